"""JSON text, one token after the other: names, strings, numbers, and values that nobody asked for.

Text ends with ``END``, so there is always a character at a position. A position is an index of characters.
Nothing here goes deeper into Python's stack with what a payload nests.
"""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints, count_bytes

END: Final = "\0"  # no JSON has it outside of strings, nor unescaped in them
# The last three are not JSON, but Python's client writes them.
NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_SCALAR: Final = re.compile(NUMBER.pattern + "|true|false|null|" + "|".join(NOT_FINITE))
_NAME: Final = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')  # without escapes
_LONG: Final = 1 << 20  # characters
# Of a string's contents: never a part of an escape, nor one half of a pair.
_PIECE: Final = re.compile(r'(?:[^"\\]{1,4096}|\\u[dD][89abAB]..\\u....|\\u....|\\.){1,64}', re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_CLOSERS: Final = {"{": "}", "[": "]"}
_BRACE: Final = ord("}")
_DECODER: Final = JSONDecoder()
_MAX_EXPONENT = 10  # digits: beyond, Python's integers are not asked
_IS_TOKEN: Final = np.isin(np.arange(256), [ord(each) for each in ",:[{"])


class BadJsonError(Exception):
    """A payload is no value of the schema.

    Attributes:
        reason: what is wrong.
        path: names of fields from the innermost to the outermost, filled in on the way out.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


def skip_space(text: str, at: int) -> int:
    """Return the first position from ``at`` on that is not white space."""
    if text[at] > " ":
        return at
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def read_string(text: str, at: int) -> tuple[str, int]:
    """Return the string whose quote is at ``at``, and where it ends.

    Raises:
        BadJsonError: it is malformed.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
    except JSONDecodeError as error:
        raise BadJsonError(f"malformed string: {error.msg} (at character {error.pos})") from None
    assert isinstance(value, str)
    return value, end


def read_utf8(text: str, at: int) -> tuple[bytes, int]:
    """Return the UTF-8 of the string whose quote is at ``at``, and where it ends.

    Python's text may take four times as much as its UTF-8: of a long string no other text is made whole.

    Raises:
        BadJsonError: it is malformed, or has half of a surrogate pair.
    """
    if len(text) <= _LONG:
        value, end = read_string(text, at)
        return _utf8(value), end
    data, end = bytearray(), at + 1
    while piece := _PIECE.match(text, end):
        try:
            value, _ = read_string(f'"{piece[0]}"{END}', 0)
            data += _utf8(value)
        except BadJsonError:
            break
        end = piece.end()
    if not text.startswith('"', end):
        value, end = read_string(text, at)  # raises, and says where
        return _utf8(value), end
    return bytes(data), end + 1


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise BadJsonError("text with half of a surrogate pair") from None


def read_name(text: str, at: int) -> tuple[str, int]:
    """Return the name that begins at ``at``, and where its value begins.

    Raises:
        BadJsonError: there is none.
    """
    found = _NAME.match(text, at)
    if found is not None:
        return found[1], found.end()
    if text[at] != '"':
        raise unexpected(text, at, "a name")
    name, at = read_string(text, at)
    at = skip_space(text, at)
    if text[at] != ":":
        raise unexpected(text, at, "a colon")
    return name, skip_space(text, at + 1)


def skip_value(text: str, at: int) -> int:
    """Return where the value that begins at ``at`` ends.

    Raises:
        BadJsonError: it is not JSON.
    """
    closers = bytearray()  # one byte a level: a payload may be nothing but brackets
    while True:
        opener = text[at]
        if opener in "{[":
            closer = _CLOSERS[opener]
            at = skip_space(text, at + 1)
            if text[at] != closer:
                closers.append(ord(closer))
                if opener == "{":
                    _, at = read_name(text, at)
                continue
            at += 1
        elif opener == '"':
            _, at = read_string(text, at)
        else:
            scalar = _SCALAR.match(text, at)
            if scalar is None:
                raise unexpected(text, at, "a value")
            at = scalar.end()
        while closers:
            at = skip_space(text, at)
            if text[at] == ",":
                at = skip_space(text, at + 1)
                if closers[-1] == _BRACE:
                    _, at = read_name(text, at)
                break
            if ord(text[at]) != closers[-1]:
                raise unexpected(text, at, f"a comma or {chr(closers[-1])}")
            closers.pop()
            at += 1
        else:
            return at


def unexpected(text: str, at: int, wanted: str) -> BadJsonError:
    """Make the error of a character that is not what should be there."""
    if at >= len(text) - 1:
        return BadJsonError(f"expected {wanted}, but the payload ends" if at else "the payload is empty")
    return BadJsonError(f"expected {wanted} at character {at}, but found {text[at]!a}")


def scaled(number: re.Match[str], scale: int, max_digits: int, *, is_cut: bool = False) -> int | None:
    """Return a number times 10 ** ``scale`` as an integer.

    Costs no more than its text is long: what Python's integers would take is never made.

    Args:
        number: a match of ``NUMBER``.
        scale: decimal digits to move the point by.
        max_digits: of the result.
        is_cut: what is left over is cut, towards the lower number; else such a number has no result.

    Returns:
        None where there is no such integer.
    """
    sign, whole, fraction, exponent = number.groups(default="")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0
    if len(exponent) > _MAX_EXPONENT:
        if not is_cut or "-" not in exponent:
            return None
        exponent = "-" + "9" * _MAX_EXPONENT
    zeros = int(exponent or 0) - len(fraction) + scale
    if len(digits) + zeros > max_digits:
        return None
    rest = ""
    if zeros < 0:
        digits, rest = digits[:zeros], digits[zeros:]
        if rest.strip("0") and not is_cut:
            return None
    result = int(digits + "0" * zeros or "0")
    if not sign:
        return result
    return -result - 1 if rest.strip("0") else -result


def count_tokens(payloads: pa.BinaryArray) -> Ints:
    """Return how many commas, colons and opening brackets n payloads have, in strings too, int64[n]."""
    return count_bytes(payloads, _IS_TOKEN)
