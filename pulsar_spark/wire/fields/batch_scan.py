"""Reads the fields of a batch message by message: slower than :mod:`batch_walk`, but complete.

A scan accepts everything that protobuf allows (unknown fields, any order, repeated fields). Only a scan
reports the fault of a corrupt batch.
"""

from __future__ import annotations

from array import array

import numpy as np

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire.fields.field_spans import (
    BYTES,
    FIXED32,
    FIXED64,
    LARGEST_BATCH,
    LONGEST_VARINT,
    MAX_PROPERTIES,
    NULL_KEY,
    NUMBERS,
    PAYLOAD_SIZE,
    PROPERTIES,
    SPANS,
    VARINT,
    Fields,
)

_KNOWN = dict.fromkeys(NUMBERS, VARINT) | dict.fromkeys(SPANS, BYTES)
_FIXED_WIDTH = {FIXED64: 8, FIXED32: 4}  # width in bytes


def scan(body: bytes, count: int, max_properties: int = MAX_PROPERTIES) -> Fields:
    """Reads all messages one by one. All well-formed protobuf is accepted.

    Raises:
        CorruptError: a message is malformed (the error has its index and the fault), or the messages have
            more than ``max_properties`` in total.
    """
    total = len(body)
    found = _Lists(count, max_properties)
    at = 0
    for row in range(count):
        found.start[row] = at
        if total - at < 4:
            raise CorruptError(f"message {row} of {count} in a batch begins after the end of the batch")
        cursor = at + 4
        end = cursor + int.from_bytes(body[at:cursor], "big")
        if end > total:
            raise CorruptError(f"the metadata of message {row} in a batch ends after the batch")
        try:
            size = _scan_message(body, row, cursor, end, found)
        except MalformedError as broken:
            raise CorruptError(f"the metadata of message {row} in a batch is malformed: {broken}") from None
        found.value_at[row] = end
        at = end + size
        if at > total:
            raise CorruptError(f"the payload of message {row} in a batch ends after the batch")
    if at != total:
        raise CorruptError(f"{total - at} bytes follow the last of {count} messages in a batch")
    return found.finish(total)


class MalformedError(Exception):
    """A message's metadata is malformed; the error's text describes the fault."""


class _Lists:
    """Collects the results of a scan in arrays that become ``Fields`` without a copy."""

    def __init__(self, count: int, max_properties: int) -> None:
        self.start = _zeros(count)
        self.value_at = _zeros(count)
        self.numbers: dict[int, array[int]] = {}
        self.spans: dict[int, tuple[array[int], array[int]]] = {}
        self.has: dict[int, bytearray] = {}
        self.properties: array[int] = array("q")
        self._max_properties = max_properties

    def set_number(self, number: int, row: int, value: int) -> None:
        if number not in self.numbers:
            self.numbers[number] = _zeros(len(self.start), "Q")
            self.has[number] = bytearray(len(self.start))
        self.numbers[number][row] = value
        self.has[number][row] = 1

    def set_span(self, number: int, row: int, at: int, end: int) -> None:
        if number not in self.spans:
            self.spans[number] = _zeros(len(self.start)), _zeros(len(self.start))
            self.has[number] = bytearray(len(self.start))
        all_at, all_end = self.spans[number]
        all_at[row], all_end[row] = at, end
        self.has[number][row] = 1

    def add_property(self, row: int, spans: tuple[int, int, int, int]) -> None:
        self.properties.extend((row, *spans))
        if len(self.properties) > 5 * self._max_properties:
            raise MalformedError(f"more than {self._max_properties} properties, which is the maximum")

    def finish(self, total: int) -> Fields:
        start, value_at = (np.frombuffer(one, np.int64) for one in (self.start, self.value_at))
        fields = Fields(start, (value_at, np.append(start[1:], total)))
        for number, flags in self.has.items():
            has = np.frombuffer(flags, np.bool_)
            if number in self.numbers:
                fields.numbers[number] = np.frombuffer(self.numbers[number], np.int64), has
            else:
                at, end = (np.frombuffer(one, np.int64) for one in self.spans[number])
                for column in (at, end):
                    np.copyto(column, start, where=~has)
                fields.spans[number] = at, end, has
        if self.properties:
            row, key, key_end, value, value_end = np.frombuffer(self.properties, np.int64).reshape(-1, 5).T
            fields.properties = row, key, key_end, value, value_end
        return fields


def _zeros(count: int, kind: str = "q") -> array[int]:
    return array(kind, bytes(8 * count))


def _scan_message(body: bytes, row: int, cursor: int, end: int, found: _Lists) -> int:
    """Reads one message's metadata; returns its payload size."""
    size = -1
    while cursor < end:
        tag = body[cursor]
        cursor += 1
        if tag > 0x7F:
            tag, cursor = scan_varint(body, cursor - 1, end)
        number, wire = tag >> 3, tag & 7
        if _KNOWN.get(number) != wire:
            cursor = _skip(body, tag, cursor, end, NULL_KEY)
            continue
        value = body[cursor] if cursor < end else 0x80
        if value < 0x80:
            cursor += 1
        else:
            value, cursor = scan_varint(body, cursor, end)
        if wire == VARINT:
            found.set_number(number, row, value)
            if number == PAYLOAD_SIZE:
                size = value & 0xFFFFFFFF
            continue
        at, cursor = cursor, cursor + value
        if cursor > end:
            raise MalformedError("a field that ends after its message")
        if number == PROPERTIES:
            found.add_property(row, _scan_property(body, at, cursor))
        else:
            found.set_span(number, row, at, cursor)
    if not 0 <= size <= LARGEST_BATCH:
        raise MalformedError("no payload_size, or a negative one")
    return size


def _scan_property(body: bytes, cursor: int, end: int) -> tuple[int, int, int, int]:
    spans: dict[int, tuple[int, int]] = {}
    while cursor < end:
        tag, cursor = scan_varint(body, cursor, end)
        if tag in (0x0A, 0x12):
            spans[tag] = _, cursor = scan_length(body, cursor, end)
        else:
            cursor = _skip(body, tag, cursor, end, 2)
    if len(spans) < 2:
        raise MalformedError("a property without key or value")
    return *spans[0x0A], *spans[0x12]


def _skip(body: bytes, tag: int, cursor: int, end: int, highest_known: int) -> int:
    """Returns the end of an unknown field. Groups, which Pulsar never used, are refused."""
    number, wire = tag >> 3, tag & 7
    if not highest_known < number < 2**29:
        raise MalformedError(f"an invalid field {number} with wire type {wire}")
    if wire == VARINT:
        return scan_varint(body, cursor, end)[1]
    if wire == BYTES:
        return scan_length(body, cursor, end)[1]
    if wire not in _FIXED_WIDTH or end - cursor < _FIXED_WIDTH[wire]:
        raise MalformedError("an unknown wire type, or a truncated field")
    return cursor + _FIXED_WIDTH[wire]


def scan_varint(body: bytes, cursor: int, end: int) -> tuple[int, int]:
    """Reads a varint; returns value and end. Bits above the 64th are dropped, as in protobuf.

    Raises:
        MalformedError: the varint ends after ``end``, or has more than ten bytes.
    """
    if cursor < end and body[cursor] < 0x80:
        return body[cursor], cursor + 1
    value = shift = 0
    for at in range(cursor, min(end, cursor + LONGEST_VARINT)):
        byte = body[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + 1
        shift += 7
    raise MalformedError("a truncated varint")


def scan_length(body: bytes, cursor: int, end: int) -> tuple[int, int]:
    """Reads a length; returns start and end of the bytes after it.

    Raises:
        MalformedError: the bytes end after ``end``, or the length is truncated.
    """
    length, at = scan_varint(body, cursor, end)
    if length > end - at:
        raise MalformedError("a field that ends after its message")
    return at, at + length
