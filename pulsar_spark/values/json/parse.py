"""The text of JSON -> Python's objects, by a library; and back, for values of any form.

``msgspec`` parses what it can. The standard library's ``json`` takes the rest: NaN and infinities, which
Python's client writes, halves of surrogate pairs, and integers of more digits than Python reads. It takes all
where msgspec is not installed, because that has no wheel for every machine. Both give the same objects.

Objects are those of ``json``, with one exception: a number with a point or an exponent is bytes, its text. So
are ``-0``, NaN, infinities, and integers of more digits than Python reads. Of a name twice in an object the
last counts.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from pulsar_spark.arrow.arrays import Flags, Ints

try:
    import msgspec
except ImportError:
    msgspec = None  # type: ignore[assignment]  # it is a module elsewhere

_Result = TypeVar("_Result")

MAX_DEPTH: Final = 1000  # nested brackets of a payload, as in Jackson
_MAX_DIGITS: Final = 640  # of an integer; Python always reads as many, whatever its limit is set to
_MINUS_ZERO: Final = re.compile(rb"-0(?<![^\[:,\s]-0)(?![^\s,\]}])")
_OPENING, _CLOSING, _QUOTE, _BACKSLASH = b"{[", b"}]", 0x22, 0x5C
_STEP: Final = np.zeros(256, np.int8)  # of the depth, at a bracket
_STEP[list(_OPENING)], _STEP[list(_CLOSING)] = 1, -1
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|NaN')
_raised_limit = threading.Lock()


def parse(payload: bytes) -> Any:
    """Return the value of a payload.

    Raises:
        ValueError: it is not JSON in UTF-8, or ``is_too_deep``.
    """
    if len(payload) > 2 * MAX_DEPTH and is_too_deep(payload):
        raise ValueError(f"more than {MAX_DEPTH} brackets in each other")
    if b"-0" not in payload or _MINUS_ZERO.search(payload) is None:
        try:
            return _parse_usual(payload)
        except _UNUSUAL:
            pass
    return _at_any_depth(_UNUSUAL_JSON.decode, payload.decode("utf-8-sig"))


def _integer(text: str) -> int | bytes:
    return int(text) if len(text) <= _MAX_DIGITS and text != "-0" else text.encode()


_USUAL_JSON: Final = json.JSONDecoder(parse_float=str.encode, parse_constant=str.encode)
_UNUSUAL_JSON: Final = json.JSONDecoder(parse_float=str.encode, parse_constant=str.encode, parse_int=_integer)


def _parse_by_json(payload: bytes) -> Any:
    return _USUAL_JSON.decode(payload.decode())


_parse_usual: Callable[[bytes], Any] = _parse_by_json
_UNUSUAL: tuple[type[Exception], ...] = (ValueError, RecursionError)
if msgspec is not None:
    _parse_usual = msgspec.json.Decoder(float_hook=str.encode).decode
    _UNUSUAL = (*_UNUSUAL, msgspec.DecodeError)


def _at_any_depth(call: Callable[[Any], _Result], value: Any) -> _Result:
    """Call what goes ``MAX_DEPTH`` deep into Python's stack, however deep it is already."""
    try:
        return call(value)
    except RecursionError:
        with _raised_limit:
            before = sys.getrecursionlimit()
            sys.setrecursionlimit(before + 2 * MAX_DEPTH)
            try:
                return call(value)
            finally:
                sys.setrecursionlimit(before)


def is_too_deep(payload: bytes) -> bool:
    """Whether a payload, if it is JSON, nests more than ``MAX_DEPTH`` brackets."""
    # Brackets come in pairs.
    if len(payload) <= 2 * MAX_DEPTH or sum(map(payload.count, _OPENING)) <= MAX_DEPTH:
        return False
    data = np.frombuffer(payload, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    slashes = np.flatnonzero(data == _BACKSLASH)
    if len(slashes):
        quotes = quotes[~np.isin(quotes, slashes[_escape(slashes)] + 1, assume_unique=True)]
    brackets = np.flatnonzero(_STEP[data])
    outside = brackets[np.searchsorted(quotes, brackets) % 2 == 0]
    return bool(np.cumsum(_STEP[data[outside]], dtype=np.int64).max(initial=0) > MAX_DEPTH)


def _escape(slashes: Ints) -> Flags:
    """Which of the backslashes at ascending positions escape the next character."""
    index = np.arange(len(slashes))
    is_first = np.append(True, np.diff(slashes) != 1)
    first = np.maximum.accumulate(np.where(is_first, index, 0))
    escape: Flags = (index - first) % 2 == 0
    return escape


def text_of(value: Any) -> str:
    """Return the JSON of a parsed value, without spaces; numbers are as they were."""
    try:
        return _text_of(value, is_ascii=False)
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can be
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
