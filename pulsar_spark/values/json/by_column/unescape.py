"""Escapes in strings of JSON, of many strings at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, bytes_and_offsets

_BACKSLASH, _U = b"\\u"
_PAIRS: Final = {
    b'"': b'"',
    b"\\": b"\\",
    b"/": b"/",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
}
_MEANING: Final = np.zeros(256, np.uint8)  # of the byte after a backslash; 0: none
for _byte, _meant in _PAIRS.items():
    _MEANING[_byte[0]] = _meant[0]
_MEANING[_U] = 1
_HEX: Final = np.full(256, 0x10000, np.int32)  # of a digit; too large for others
for _number, _digits in enumerate([*"0123456789", "aA", "bB", "cC", "dD", "eE", "fF"]):
    for _digit in _digits:
        _HEX[ord(_digit)] = _number
_SIZE: Final = 6  # of \uXXXX
_PAD: Final = 16


def escaped_after(slashes: npt.NDArray[np.integer]) -> Flags:
    """Which of the backslashes at ascending positions escape what comes after them."""
    index = np.arange(len(slashes), dtype=slashes.dtype)
    is_first = np.ones(len(slashes), np.bool_)
    is_first[1:] = np.diff(slashes) != 1
    run = np.maximum.accumulate(np.where(is_first, index, 0))
    escape: Flags = (index - run) % 2 == 0
    return escape


def unescaped(texts: pa.StringArray) -> tuple[pa.StringArray, Flags]:
    """What strings stand for.

    Args:
        texts: the contents of strings without nulls, none of which ends within an escaped character.

    Returns:
        n texts, and bool[n], which are well-formed; others have no meaning, but are UTF-8.
    """
    count = len(texts)
    if not count:
        return texts, np.ones(0, np.bool_)
    raw, offsets = bytes_and_offsets(texts)
    data = np.concatenate([raw, np.zeros(_PAD, np.uint8)])
    slashes = np.flatnonzero(raw == _BACKSLASH)
    slashes = slashes[escaped_after(slashes)]
    kind = data[slashes + 1]
    meaning = _MEANING[kind]
    bad = slashes[meaning == 0]
    is_kept = np.ones(len(raw), np.bool_)
    is_kept[slashes] = False
    data[slashes + 1] = np.where(meaning, meaning, kind)
    is_unicode = kind == _U
    if is_unicode.any():
        at = slashes[is_unicode]
        ends = offsets[np.searchsorted(offsets, at, "right")]
        bad = np.concatenate([bad, _set_characters(data, is_kept, at, ends)])
    ok = np.ones(count, np.bool_)
    if len(bad):
        ok[np.searchsorted(offsets, bad, "right") - 1] = False
    kept = np.append(0, np.cumsum(is_kept))
    ends = kept[offsets].astype(np.int32)
    made = pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(data[:-_PAD][is_kept]))
    return made, ok


def _set_characters(data: npt.NDArray[np.uint8], is_kept: Flags, at: Ints, ends: Ints) -> Ints:
    r"""Write the UTF-8 of each \uXXXX at positions over it; returns the positions of malformed ones.

    Args:
        data: the bytes of all strings.
        is_kept: which of them remain.
        at: ascending positions of the backslashes.
        ends: where the strings end that they are in.
    """
    data[at + 1] = ord("?")  # of those that are malformed, nothing else is changed
    code = np.zeros(len(at), np.int32)
    last = len(data) - 1
    for digit in range(4):
        code = code * 16 + _HEX[data[np.minimum(at + 2 + digit, last)]]
    # A digit that is none makes it too large, whatever comes after.
    is_whole = (code <= 0xFFFF) & (at + _SIZE <= ends)
    is_high, is_low = is_whole & (code >> 10 == 0x36), is_whole & (code >> 10 == 0x37)
    is_first = np.zeros(len(at), np.bool_)
    is_first[:-1] = is_high[:-1] & is_low[1:] & (np.diff(at) == _SIZE) & (at[:-1] + 2 * _SIZE <= ends[:-1])
    is_second = np.append(False, is_first[:-1])
    is_good = is_whole & (is_high == is_first) & (is_low == is_second)
    code = np.where(is_first, 0x10000 + ((code & 0x3FF) << 10) + (np.append(code[1:], 0) & 0x3FF), code)
    for place in range(1, _SIZE):
        is_kept[at[is_good] + place] = False
    size = 1 + (code > 0x7F).astype(np.int32) + (code > 0x7FF) + (code > 0xFFFF)
    for length, lead in ((1, 0), (2, 0xC0), (3, 0xE0), (4, 0xF0)):
        mine = np.flatnonzero(is_good & ~is_second & (size == length))
        for byte in range(length):
            bits = code[mine] >> 6 * (length - 1 - byte)
            data[at[mine] + 1 + byte] = (bits & 0x3F | 0x80) if byte else (bits | lead)
            is_kept[at[mine] + 1 + byte] = True
    malformed: Ints = at[~is_good]
    return malformed
