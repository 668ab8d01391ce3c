"""Headers of messages that are all laid out like the first one: checked and read eight bytes at a time.

Such headers differ only in the bytes of keys and properties, and in numbers that take as many bytes. All
other bits (sizes, tags, lengths) must be those of the first message, so all messages are read as the first
one is. Other headers are left to :mod:`field_walk`, which takes three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.wire.fields.batch_scan import MalformedError, scan_length, scan_varint
from pulsar_spark.wire.fields.field_spans import BYTES, NUMBERS, PROPERTIES, SPANS, VARINT, Fields, Ints
from pulsar_spark.wire.fields.field_walk import NotPlainError, every, require
from pulsar_spark.wire.fields.grid import grid_of

Bytes: TypeAlias = "npt.NDArray[np.uint8]"
Words: TypeAlias = "npt.NDArray[np.uint64]"

_MAX_SIZE = 256  # bytes of a header; longer ones are rare
_WORD, _WORD_TYPE = 8, np.dtype("<u8")  # bytes; longer numbers are rare
_PROPERTY_KEY, _PROPERTY_VALUE = 0x0A, 0x12
# How the groups of 7 bits of a varint are joined, pair by pair: lower and upper groups, and the shift.
_JOINS = (
    (0x007F007F007F007F, 0x7F007F007F007F00, 1),
    (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
    (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
)


class _Words:
    """The bytes of n messages, eight at a time.

    Args:
        body: bytes that contain the messages.
        starts: where they begin, ascending.

    Attributes:
        grid: the grid of the starts; None if they lie in none.
    """

    def __init__(self, body: Bytes, starts: Ints) -> None:
        self._body = body
        self._starts = starts
        self.grid = grid_of(starts)

    def at(self, place: int) -> Words:
        """The bytes of each message from ``place`` on, little-endian, [n]; they must lie inside the body."""
        if self.grid is not None:  # takes half of the time
            return self.grid.items(self._body, _WORD_TYPE, place).reshape(-1)
        words: Words = np.ndarray((len(self._body) - place - _WORD + 1,), _WORD_TYPE, self._body, place, (1,))
        return words[self._starts]


@dataclass(frozen=True, slots=True)
class Header:
    """The layout of a header: positions in bytes from the start of its message.

    Attributes:
        size: position of the value.
        may_differ: the bits that may differ between messages, in whole words.
        spans: field number -> (at, end).
        numbers: field number -> (at, end) of its varint.
        properties: (key at, key end, value at, value end) of each.
    """

    size: int
    may_differ: bytearray
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    numbers: dict[int, tuple[int, int]] = field(default_factory=dict)
    properties: list[tuple[int, int, int, int]] = field(default_factory=list)

    def read(self, body: Bytes, starts: Ints, max_properties: int) -> Fields | None:
        """Read the headers of the messages that begin at ``starts``; ``value`` is left to the caller.

        Args:
            body: bytes that contain the messages.
            starts: two or more, ascending, from 0.
            max_properties: maximum properties of all messages together.

        Returns:
            The fields; None if a header is laid out in another way, would overlap the next one or is too near
            to the body's end, or if there are more than ``max_properties``.
        """
        count = len(starts)
        if np.diff(starts).min() < self.size or starts[-1] + self.size + _WORD > len(body):
            return None
        if len(self.properties) * count > max_properties:
            return None
        words = _Words(body, starts)
        if not self._is_that_of_all(words):
            return None
        found, all_have = Fields(starts, (starts, starts), grid=words.grid), np.ones(count, np.bool_)
        for number, (at, end) in self.spans.items():
            found.spans[number] = starts + at, starts + end, all_have
        for number, (at, end) in self.numbers.items():
            found.numbers[number] = _varints(words.at(at), end - at), all_have
        if self.properties:
            rows = np.repeat(np.arange(count), len(self.properties))
            key, key_end, value, value_end = (
                np.add.outer(starts, offsets).reshape(-1) for offsets in np.array(self.properties).T
            )
            found.properties = rows, key, key_end, value, value_end
        return found

    def _is_that_of_all(self, words: _Words) -> bool:
        same = ~np.frombuffer(self.may_differ, "<u8")
        for number in np.flatnonzero(same).tolist():
            found = words.at(number * _WORD) & same[number]
            if not every(found == found[0]):
                return False
        return True


def first_header(body: Bytes) -> Header | None:
    """The layout of the header at the body's beginning; None if it is long, unusual or malformed."""
    data = body[:_MAX_SIZE].tobytes()
    size = 4 + int.from_bytes(data[:4], "big")
    if size > len(data):
        return None
    header = Header(size, bytearray(size) + b"\xff" * (-size % _WORD))
    at = 4
    try:
        while at < size:
            at = _add_field(header, data, at, size)
    except (MalformedError, NotPlainError):
        return None
    return header


def _add_field(header: Header, data: bytes, at: int, size: int) -> int:
    """Add the field at a position; returns where it ends."""
    number, wire = data[at] >> 3, data[at] & 7
    at += 1
    if wire == VARINT:
        _, end = scan_varint(data, at, size)
        require(number in NUMBERS and end - at <= _WORD)
        header.numbers[number] = at, end
        header.may_differ[at:end] = b"\x7f" * (end - at)
        return end
    require(wire == BYTES)
    at, end = scan_length(data, at, size)
    if number == PROPERTIES:
        _add_property(header, data, at, end)
    else:
        require(number in SPANS)
        header.spans[number] = at, end
        header.may_differ[at:end] = b"\xff" * (end - at)
    return end


def _add_property(header: Header, data: bytes, at: int, end: int) -> None:
    require(at < end and data[at] == _PROPERTY_KEY)
    key, key_end = scan_length(data, at + 1, end)
    require(key_end < end and data[key_end] == _PROPERTY_VALUE)
    value, value_end = scan_length(data, key_end + 1, end)
    require(value_end == end)
    header.properties.append((key, key_end, value, end))
    header.may_differ[key:key_end] = b"\xff" * (key_end - key)
    header.may_differ[value:end] = b"\xff" * (end - value)


def _varints(words: Words, size: int) -> Ints:
    """The numbers whose varints are the first ``size`` bytes of each word."""
    values = words & np.uint64(0x7F7F7F7F7F7F7F7F >> 8 * (_WORD - size))
    for low, high, shift in _JOINS[: (size - 1).bit_length()]:
        values = values & np.uint64(low) | (values & np.uint64(high)) >> np.uint64(shift)
    numbers: Ints = values.view(np.int64)
    return numbers
