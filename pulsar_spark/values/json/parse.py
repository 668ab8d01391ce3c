"""Parses JSON to Python objects; converts objects back to JSON text for columns that hold any JSON.

``msgspec`` parses most payloads. The standard library's ``json`` parses payloads that have NaN or infinities,
which Python's client writes, halves of surrogate pairs, or integers of more digits than Python reads. It
parses all payloads if msgspec is not installed, because msgspec has no wheel for every machine. Both make the
same objects.

Objects are those of ``json``, but some numbers become bytes with their text: ``-0``, integers of more digits
than Python reads, and numbers beyond the range of double; with ``keeps_text`` also NaN, infinities, and
numbers with a point or an exponent. If an object has a name twice, the last value counts.
"""

from __future__ import annotations

import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import bytes_and_offsets

try:
    import msgspec
except ImportError:
    msgspec = None  # type: ignore[assignment]  # mypy expects a module

_Result = TypeVar("_Result")

MAX_DEPTH: Final = 1000  # maximum nested brackets, as in Jackson
_TOO_DEEP: Final = f"more than {MAX_DEPTH} brackets in each other"
_MAX_DIGITS: Final = 640  # digits that Python always reads, whatever its configured limit
_MINUS_ZERO: Final = re.compile(rb"-0(?<![^\[:,\s]-0)(?![^\s,\]}])")
# The standard library parses payloads with these texts, because msgspec refuses them.
_ONLY_UNUSUAL: Final = re.compile(rb"NaN|Infinity|\\u[dD]|" + BOM_UTF8)
_OPENING, _CLOSING, _QUOTE, _BACKSLASH = b"{[", b"}]", 0x22, 0x5C
_CONTAINERS: Final = np.frombuffer(_OPENING, np.uint8)
_STEP: Final = np.zeros(256, np.int8)  # byte -> change of the nesting depth
_STEP[list(_OPENING)], _STEP[list(_CLOSING)] = 1, -1
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|NaN')


def parse_all(payloads: pa.BinaryArray, *, keeps_text: bool) -> tuple[list[Any], list[int]]:
    """Parses n payloads; returns n values, and the rows that ``parse`` refuses, whose value is None."""
    some = payloads.to_pylist()
    is_usual = _are_usual(payloads, some)
    if is_usual and not payloads.null_count:
        try:
            return list(map(_USUAL[keeps_text], some)), []
        except _ERRORS:
            pass
    read: Callable[..., Any] = _parse_usual if is_usual else parse
    values: list[Any] = [None] * len(some)
    bad = []
    # Refused payloads are kept: an error takes microseconds, and many messages may have the same payload.
    refused: set[bytes] = set()
    for row, payload in enumerate(some):
        if payload in refused:
            bad.append(row)
        elif payload is not None:
            try:
                values[row] = read(payload, keeps_text=keeps_text)
            except ValueError:
                refused.add(payload)
                bad.append(row)
    return values, bad


def parse(payload: bytes, *, keeps_text: bool = True) -> Any:
    """Returns a payload as Python objects; with ``keeps_text``, numbers with a point are bytes (their text).

    Raises:
        ValueError: the payload is not JSON in UTF-8, or is too deep; ``refusal`` returns the reason.
    """
    if is_too_deep(payload):
        raise ValueError(_TOO_DEEP)
    if _MINUS_ZERO.search(payload) is not None:
        return _parse_unusual(payload, keeps_text)
    return _parse_usual(payload, keeps_text=keeps_text)


def refusal(payload: bytes) -> str:
    """Returns the reason why ``parse`` refuses a payload."""
    if is_too_deep(payload):
        return _TOO_DEEP
    try:
        _parse_unusual(payload, True)
    except UnicodeDecodeError as error:
        return f"the payload is not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        reason = f"malformed JSON: {error.msg} (at character {error.pos})"
        return reason if payload.strip() else "the payload is empty"
    raise AssertionError("parse takes the payload")


def _parse_usual(payload: bytes, *, keeps_text: bool) -> Any:
    try:
        return _USUAL[keeps_text](payload)
    except _ERRORS as error:
        # Malformed payloads are not parsed again by ``json``, because there may be millions.
        if type(error) is _MALFORMED and _ONLY_UNUSUAL.search(payload) is None:
            # The error of older versions of msgspec is not a ValueError.
            raise ValueError("malformed JSON") from None
    return _parse_unusual(payload, keeps_text)


def _are_usual(payloads: pa.BinaryArray, some: list[bytes | None]) -> bool:
    """Whether ``_USUAL`` may parse n payloads: all are objects or arrays, without -0, and not too deep."""
    body, offsets = bytes_and_offsets(payloads)
    first, sizes = offsets[:-1], np.diff(offsets)
    # Only objects and arrays, because -0 is searched in the joined payloads: -0 and 5 would become -05.
    return bool(
        np.isin(body[first[sizes > 0]], _CONTAINERS).all()
        and _MINUS_ZERO.search(body.data) is None
        and not any(is_too_deep(some[row] or b"") for row in np.flatnonzero(sizes > 2 * MAX_DEPTH).tolist())
    )


def _parse_unusual(payload: bytes, keeps_text: bool) -> Any:
    return _at_any_depth(_UNUSUAL[keeps_text], payload.removeprefix(BOM_UTF8).decode())


def _integer(text: str) -> int | bytes:
    return int(text) if len(text) <= _MAX_DIGITS and text != "-0" else text.encode()


def _finite(text: str) -> float | bytes:
    number = float(text)
    return number if isfinite(number) else text.encode()


# ``keeps_text`` -> arguments of ``json.JSONDecoder``.
_HOOKS: Final[dict[bool, dict[str, Any]]] = {
    False: {"parse_float": _finite, "parse_constant": float},
    True: {"parse_float": str.encode, "parse_constant": str.encode},
}
_UNUSUAL: Final = {
    keeps_text: json.JSONDecoder(**hooks, parse_int=_integer).decode for keeps_text, hooks in _HOOKS.items()
}


def _by_json(keeps_text: bool) -> Callable[[bytes], Any]:
    decode = json.JSONDecoder(**_HOOKS[keeps_text]).decode
    return lambda payload: decode(payload.decode())


_USUAL: dict[bool, Callable[[bytes], Any]] = {keeps_text: _by_json(keeps_text) for keeps_text in _HOOKS}
_ERRORS: tuple[type[Exception], ...] = (ValueError, RecursionError)
_MALFORMED: type[Exception] = json.JSONDecodeError
if msgspec is not None:
    _USUAL = {
        False: msgspec.json.Decoder().decode,
        True: msgspec.json.Decoder(float_hook=str.encode).decode,
    }
    _ERRORS = (*_ERRORS, msgspec.DecodeError)
    _MALFORMED = msgspec.DecodeError


def _at_any_depth(call: Callable[[Any], _Result], value: Any) -> _Result:
    """Calls a function that needs ``MAX_DEPTH`` levels of Python's stack; raises the limit if necessary."""
    try:
        return call(value)
    except RecursionError:
        # The limit is not restored, because another thread may parse at the same time.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * MAX_DEPTH))
        return call(value)


def is_too_deep(payload: bytes) -> bool:
    """Whether a payload, if it is JSON, nests more than ``MAX_DEPTH`` brackets."""
    # A short payload is not too deep, because each opening bracket of JSON has a closing bracket.
    if len(payload) <= 2 * MAX_DEPTH or sum(map(payload.count, _OPENING)) <= MAX_DEPTH:
        return False
    data = np.frombuffer(payload, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    slashes = np.flatnonzero(data == _BACKSLASH)
    if len(slashes):
        # Of adjacent backslashes, the first, third and so on escape the next character.
        index = np.arange(len(slashes))
        is_first = np.append(True, np.diff(slashes) != 1)
        first = np.maximum.accumulate(np.where(is_first, index, 0))
        escaping = slashes[(index - first) % 2 == 0]
        quotes = quotes[~np.isin(quotes, escaping + 1, assume_unique=True)]
    brackets = np.flatnonzero(_STEP[data])
    outside = brackets[np.searchsorted(quotes, brackets) % 2 == 0]
    return bool(np.cumsum(_STEP[data[outside]], dtype=np.int64).max(initial=0) > MAX_DEPTH)


def text_of(value: Any) -> str:
    """Returns a parsed value as JSON without spaces; numbers keep their original text."""
    try:
        return _text_of(value, is_ascii=False)
    except UnicodeEncodeError:  # a lone surrogate, which must be escaped
        return _text_of(value, is_ascii=True)


def _text_of(value: Any, *, is_ascii: bool) -> str:
    numbers: list[str] = []

    def number(written: bytes) -> float:
        numbers.append(written.decode())
        return float("nan")

    def encode(value: Any) -> str:
        numbers.clear()
        return encoder.encode(value)

    encoder = json.JSONEncoder(
        ensure_ascii=is_ascii, check_circular=False, separators=(",", ":"), default=number
    )
    text = _at_any_depth(encode, value)
    text.encode()
    if numbers:
        left = iter(numbers)
        text = _TOKEN.sub(lambda found: next(left) if found[0] == "NaN" else found[0], text)
    return text
