"""Fields: the positions of each message's fields, before they become Arrow arrays.

A header is the size and the metadata of a message. If all headers have the same layout (AlikeHeaders), each
field is copied from the same offset of every header.

The layout of a batch, and of the KeyValue inside field 1:

    ============  ==========================================================
    4 bytes       size of the metadata, big-endian
    metadata      fields, each ``tag`` then a varint or ``length, bytes``
    payload       ``payload_size`` bytes (field 3 of the metadata)
    ============  ==========================================================

    =====  ===========================  =====  ============================
    tag    field                        tag    field
    =====  ===========================  =====  ============================
    0x0a   properties (0x0a k 0x12 v)   0x30   partition_key_b64_encoded
    0x12   partition_key                0x3a   ordering_key
    0x18   payload_size                 0x40   sequence_id
    0x20   compacted_out                0x48   null_value
    0x28   event_time                   0x50   null_partition_key
    =====  ===========================  =====  ============================
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Bytes, Flags, Grid, Ints, Span, copy_spans, grid_of_rows

PROPERTIES, KEY, PAYLOAD_SIZE, COMPACTED_OUT, EVENT_TIME, KEY_IS_BASE64 = 1, 2, 3, 4, 5, 6
ORDERING_KEY, SEQUENCE_ID, NULL_VALUE, NULL_KEY = 7, 8, 9, 10

NUMBERS = frozenset(
    {PAYLOAD_SIZE, COMPACTED_OUT, EVENT_TIME, KEY_IS_BASE64, SEQUENCE_ID, NULL_VALUE, NULL_KEY}
)
SPANS = frozenset({PROPERTIES, KEY, ORDERING_KEY})
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # protobuf's wire types

LARGEST_BATCH = 2**31 - 1  # bytes; Arrow's binary offsets are int32
# Maximum properties of an entry, because a few compressed bytes can hold millions of empty properties.
MAX_PROPERTIES = 500_000
LONGEST_VARINT = 10  # maximum bytes of a varint


class Numbers(NamedTuple):
    """The field numbers of one kind of metadata."""

    key: int
    event_time: int
    key_is_base64: int
    ordering_key: int
    sequence_id: int
    null_value: int
    null_key: int


# Columns of m properties, int64[m] each: index of the message, start and end of the name, and of the value.
PropertyColumns: TypeAlias = "tuple[Ints, Ints, Ints, Ints, Ints]"


@dataclass(slots=True)
class Fields:
    """The fields of n messages: numbers, and for other fields their positions in a buffer of bytes.

    Attributes:
        start: start of each message in the buffer, int64[n].
        value: starts and ends of the messages' values, int64[n] each.
        spans: field number -> (starts, ends, has) of bytes and texts; no item if no message has the field.
            If ``has`` is false, start and end are the message's ``start``, so that the starts ascend.
        numbers: field number -> (values, has), values as signed 64 bit; no item if no message has the field.
        properties: properties, ordered by row.
        alike: headers, if all have the same layout; then ``spans`` and ``properties`` are not set.
        grid: ``start`` as a Grid of regular distances; None if ``alike`` is None, or distances are irregular.
    """

    start: Ints
    value: tuple[Ints, Ints]
    spans: dict[int, tuple[Ints, Ints, Flags]] = field(default_factory=dict)
    numbers: dict[int, tuple[Ints, Flags]] = field(default_factory=dict)
    properties: PropertyColumns | None = None
    alike: AlikeHeaders | None = None
    grid: Grid | None = None

    def set_number(self, number: int, rows: Ints, values: Ints) -> None:
        """Stores a numeric field of the messages ``rows``; overwrites earlier values."""
        count = len(self.start)
        if number not in self.numbers:
            if len(rows) == count:
                self.numbers[number] = values, np.ones(count, np.bool_)
                return
            self.numbers[number] = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        all_values, has = self.numbers[number]
        all_values[rows] = values
        has[rows] = True

    def set_span(self, number: int, rows: Ints, at: Ints, end: Ints) -> None:
        """Stores the start and end of a field in the messages ``rows``; overwrites earlier positions."""
        count = len(self.start)
        if number not in self.spans:
            if len(rows) == count:
                self.spans[number] = at, end, np.ones(count, np.bool_)
                return
            empty = self.start
            self.spans[number] = empty.copy(), empty.copy(), np.zeros(count, np.bool_)
        all_at, all_end, has = self.spans[number]
        all_at[rows] = at
        all_end[rows] = end
        has[rows] = True

    def rows(self, first: int, stop: int) -> Fields:
        """Returns the fields of the messages from ``first`` to ``stop``, exclusive."""
        if first == 0 and stop == len(self.start):
            return self
        assert self.alike is None, "only the fields of entries are cut, and these are walked"
        cut = slice(first, stop)
        properties = None
        if self.properties is not None:
            low, high = np.searchsorted(self.properties[0], (first, stop))
            row, *spans = (column[low:high] for column in self.properties)
            if len(row):
                key, key_end, value, value_end = spans
                properties = row - first, key, key_end, value, value_end
        return Fields(
            self.start[cut],
            (self.value[0][cut], self.value[1][cut]),
            {number: (at[cut], end[cut], has[cut]) for number, (at, end, has) in self.spans.items()},
            {number: (values[cut], has[cut]) for number, (values, has) in self.numbers.items()},
            properties,
        )

    def max_properties(self, first: Ints) -> int:
        """Returns the largest number of properties of a batch; ``first``: index of each first message."""
        if self.alike is not None:
            messages = np.diff(first, append=len(self.start)).max()
            return len(self.alike.layout.properties) * int(messages)
        if self.properties is None:
            return 0
        rows = self.properties[0]
        return int(np.diff(np.searchsorted(rows, first), append=len(rows)).max())


class FieldLists:
    """Collects the fields of n messages that are read one by one; ``finish`` returns them without a copy.

    Attributes:
        start: start of each message.
        properties: five numbers for each property, as in PropertyColumns.
    """

    def __init__(self, count: int) -> None:
        self.start = int64s(count)
        self.properties: array[int] = array("q")
        self._numbers: dict[int, array[int]] = {}
        self._spans: dict[int, tuple[array[int], array[int]]] = {}
        self._has: dict[int, bytearray] = {}

    def set_number(self, number: int, row: int, value: int) -> None:
        """Stores a numeric field of one message, an unsigned 64-bit number; overwrites an earlier value."""
        if number not in self._numbers:
            self._numbers[number] = int64s(len(self.start), "Q")
            self._has[number] = bytearray(len(self.start))
        self._numbers[number][row] = value
        self._has[number][row] = 1

    def set_span(self, number: int, row: int, at: int, end: int) -> None:
        """Stores a field of bytes of one message; overwrites an earlier position."""
        if number not in self._spans:
            self._spans[number] = int64s(len(self.start)), int64s(len(self.start))
            self._has[number] = bytearray(len(self.start))
        all_at, all_end = self._spans[number]
        all_at[row], all_end[row] = at, end
        self._has[number][row] = 1

    def finish(self) -> Fields:
        """Returns the fields; the caller sets ``value``."""
        start = np.frombuffer(self.start, np.int64)
        fields = Fields(start, (start, start))
        for number, flags in self._has.items():
            has = np.frombuffer(flags, np.bool_)
            if number in self._numbers:
                fields.numbers[number] = np.frombuffer(self._numbers[number], np.int64), has
            else:
                at, end = (np.frombuffer(one, np.int64) for one in self._spans[number])
                for column in (at, end):
                    np.copyto(column, start, where=~has)
                fields.spans[number] = at, end, has
        if self.properties:
            row, key, key_end, value, value_end = np.frombuffer(self.properties, np.int64).reshape(-1, 5).T
            fields.properties = row, key, key_end, value, value_end
        return fields


def int64s(count: int, kind: str = "q") -> array[int]:
    """Returns ``count`` zeros of 64 bits; ``kind``: type code of the array."""
    return array(kind, bytes(8 * count))


Words: TypeAlias = npt.NDArray[np.uint64]

WORD = np.dtype("<u8")


class PropertySpans(NamedTuple):
    """Start and end of a property's name, and of its value."""

    name: Span
    value: Span


@dataclass(frozen=True, slots=True)
class HeaderLayout:
    """The layout of a header: positions in bytes from the start of its message.

    Attributes:
        size: bytes of the header; the value follows.
        may_differ: mask of the header's bits that may differ between messages, padded to words of 8 bytes.
        spans: field number -> start and end of its bytes, for fields of bytes.
        numbers: field number -> start and end of its varint, for numeric fields.
    """

    size: int
    may_differ: bytearray
    spans: dict[int, Span] = field(default_factory=dict)
    numbers: dict[int, Span] = field(default_factory=dict)
    properties: list[PropertySpans] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class AlikeHeaders:
    """The headers of n messages with the same layout: equal sizes and the same fields at equal offsets.

    Attributes:
        grid: starts of the headers in ``body``.
    """

    layout: HeaderLayout
    body: Bytes
    grid: Grid

    def __len__(self) -> int:
        return self.grid.shape[0] * self.grid.shape[1]

    def take(self, which: npt.NDArray[np.int64]) -> AlikeHeaders:
        """Copies the headers of the messages at the given indexes."""
        size = self.layout.size
        items = self.grid.items(self.body, np.dtype((np.void, size))).reshape(-1)[which]
        return AlikeHeaders(self.layout, items.view(np.uint8), grid_of_rows(len(items), size))

    def words(self, place: int) -> Words:
        """Returns eight bytes of each header, at offset ``place``, as little-endian numbers, [n].

        Raises:
            ValueError: ``body`` ends before the last header's eight bytes.
        """
        return self.grid.items(self.body, WORD, place).reshape(-1)

    def column(self, number: int) -> pa.BinaryArray:
        """Returns a field of bytes that the layout has, null-free, [n]."""
        return copy_spans(self.body, self.grid, [self.layout.spans[number]])

    def property_names(self) -> pa.BinaryArray:
        """Returns the names of all properties, message after message, null-free."""
        return copy_spans(self.body, self.grid, [one.name for one in self.layout.properties])

    def property_values(self) -> pa.BinaryArray:
        """Returns the values of all properties, in the order of :meth:`property_names`."""
        return copy_spans(self.body, self.grid, [one.value for one in self.layout.properties])
