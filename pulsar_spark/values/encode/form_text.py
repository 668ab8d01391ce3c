"""Columns -> the text of logical types that only JSON has, see ``json_types``; null is empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.values.encode import column_values, json_text
from pulsar_spark.values.encode.cells import Piece
from pulsar_spark.values.encode.column_values import mask, require

_QUOTE: Final = b'"'
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def form_text(logical: str, path: str) -> tuple[Callable[[pa.Array], list[Piece]], bytes]:
    """What makes the text of a logical type, and what stands around it.

    Args:
        logical: json, number, char, chars, time-millis or time-micros.
        path: of the field; what is made raises Misfit for values that are not of the type.
    """
    if logical.startswith("time-"):
        return lambda column: json_text.time_text(column, logical, path), _QUOTE
    quote = _QUOTE if logical in ("char", "chars") else b""
    make = json_text.string_text if quote else json_text.plain_text
    check = _CHECKS.get(logical)

    def pieces(column: pa.Array) -> list[Piece]:
        strings = column_values.string_column(column, path)
        if check is not None:
            check(strings, path)
        return make(strings)

    return pieces, quote


def _require_json(strings: pa.StringArray, path: str) -> None:
    is_good = np.array([_is_json(each) for each in strings.to_pylist()], np.bool_)
    require(is_good, path, "text that is not JSON")


def _is_json(text: str | None) -> bool:
    try:
        json.loads("null" if text is None else text, parse_int=str, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return False
    return True


def _no_json(name: str) -> object:
    raise ValueError(name)  # Python takes NaN, Infinity and -Infinity, most others do not


def _require_number(strings: pa.StringArray, path: str) -> None:
    is_good = pc.match_substring_regex(strings, _NUMBER).fill_null(True)
    require(mask(is_good), path, "text that is not a number")


def _require_char(strings: pa.StringArray, path: str) -> None:
    # What has four bytes in UTF-8 is two characters in Java.
    is_good = pc.and_(pc.equal(pc.utf8_length(strings), 1), pc.less(pc.binary_length(strings), 4))
    require(mask(is_good.fill_null(True)), path, "text that is not one character of Java")


_CHECKS: Final[dict[str, Callable[[pa.StringArray, str], None]]] = {
    "json": _require_json,
    "number": _require_number,
    "char": _require_char,
}
