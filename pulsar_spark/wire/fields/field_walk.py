"""Reads protobuf fields of many messages in numpy, one field of *all* messages at a time: the hot path.

Messages that a walk does not understand, or finds malformed, raise :class:`NotPlainError`. Then other
functions read message by message, and report the fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from pulsar_spark.arrow.arrays import Bytes, Ints, every
from pulsar_spark.errors import assert_never
from pulsar_spark.wire.fields.field_spans import BYTES, LONGEST_VARINT, MAX_PROPERTIES, VARINT, Fields

_MAX_ROUNDS = 64  # rounds of a walk; messages with more fields than that are not plain


class NotPlainError(Exception):
    """A message is malformed, or its fields cannot be read by column."""


class FieldKind(Enum):
    """The way in which a walk treats a field."""

    NUMBER = auto()
    SPAN = auto()
    PROPERTY = auto()
    IGNORED = auto()


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a message.

    Attributes:
        kinds: treatment of each field, by tag (field number and wire type).
        highest: highest known field number. Higher fields are ignored; other unknown tags are not plain.
    """

    kinds: dict[int, FieldKind]
    highest: int


def require(holds: bool | np.bool_) -> None:
    """Raises NotPlainError unless ``holds`` is true."""
    if not holds:
        raise NotPlainError


def big_endian(body: Bytes, at: Ints, width: int) -> Ints:
    """Reads unsigned integers of ``width`` 2 or 4 bytes, which must lie inside the body."""
    if not len(at):
        return np.zeros(0, np.int64)
    numbers: Ints = np.ndarray((len(body) - width + 1,), f">u{width}", body, 0, (1,))[at].astype(np.int64)
    return numbers


def walk(
    body: Bytes,
    starts: Ints,
    cursor: Ints,
    ends: Ints,
    layout: Layout,
    max_properties: int = MAX_PROPERTIES,
) -> Fields:
    """Reads the fields of messages whose metadata is in [cursor, ends); the caller sets ``value``.

    A round takes the next field of the first waiting message, and reads it in all messages with the same next
    field; the other messages wait.

    Args:
        starts: ascending positions up to ``cursor``, used as empty spans for fields that a message lacks.
        cursor: start of each message's metadata.
        ends: end of each message's metadata, inside the body.

    Raises:
        NotPlainError: the messages must be read one by one.
    """
    found = Fields(starts, (starts, starts))
    properties: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
    rows = np.arange(len(starts))
    limits = ends
    for _ in range(_MAX_ROUNDS):
        left = cursor < limits
        if not every(left):
            rows, cursor, limits = rows[left], cursor[left], limits[left]
            if not len(rows):
                found.properties = _in_order(properties)
                return found
        tags = body[cursor]
        same = tags == tags[0]
        tag, width = int(tags[0]), 1
        if tag > 0x7F:
            seconds = body[np.minimum(cursor + 1, len(body) - 1)]
            same &= seconds == seconds[0]
            tag, width = tag - 0x80 | int(seconds[0]) << 7, 2
            require(0 < seconds[0] < 0x80)
        if every(same):
            cursor = _walk_field(body, tag, rows, cursor + width, limits, layout, found, properties)
        else:
            mine = rows[same], cursor[same] + width, limits[same]
            past = _walk_field(body, tag, *mine, layout, found, properties)
            cursor = cursor.copy()  # the positions of a field may share the old array
            cursor[same] = past
        require(sum(len(found_rows) for found_rows, *_ in properties) <= max_properties)
    raise NotPlainError


def _walk_field(
    body: Bytes,
    tag: int,
    rows: Ints,
    cursor: Ints,
    limits: Ints,
    layout: Layout,
    found: Fields,
    properties: list[tuple[Ints, Ints, Ints, Ints, Ints]],
) -> Ints:
    """Reads one field of the messages ``rows``, after its tag; returns the starts of the next fields."""
    kind = layout.kinds.get(tag)
    if kind is None:
        require(tag >> 3 > layout.highest)
        kind = FieldKind.IGNORED
    if tag & 7 == VARINT:
        values, cursor = varints(body, cursor, limits)
        if kind is FieldKind.NUMBER:
            found.set_number(tag >> 3, rows, values)
        return cursor  # a span or property of another wire type is ignored
    require(tag & 7 == BYTES)
    cursor, end = lengths(body, cursor, limits)
    match kind:
        case FieldKind.SPAN:
            found.set_span(tag >> 3, rows, cursor, end)
        case FieldKind.PROPERTY:
            properties.append((rows, *_walk_property(body, cursor, end)))
        case FieldKind.NUMBER | FieldKind.IGNORED:
            pass
        case _:
            assert_never(kind)
    return end


def _walk_property(body: Bytes, cursor: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Reads KeyValues that have only a key and then a value."""
    require(every(cursor < end) and every(body[cursor] == 0x0A))
    key, key_end = lengths(body, cursor + 1, end)
    require(every(key_end < end) and every(body[key_end] == 0x12))
    value, value_end = lengths(body, key_end + 1, end)
    require(every(value_end == end))
    return key, key_end, value, value_end


def _in_order(
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints]],
) -> tuple[Ints, Ints, Ints, Ints, Ints] | None:
    if not parts:
        return None
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    row, key, key_end, value, value_end = (column[order] for column in columns)
    return row, key, key_end, value, value_end


def lengths(body: Bytes, cursor: Ints, limits: Ints) -> tuple[Ints, Ints]:
    """Reads lengths; returns start and end of the bytes, which must end within ``limits``."""
    sizes, at = varints(body, cursor, limits)
    require(every(sizes.view(np.uint64) <= (limits - at).view(np.uint64)))
    return at, at + sizes


def varints(body: Bytes, cursor: Ints, limits: Ints, max_size: int = LONGEST_VARINT) -> tuple[Ints, Ints]:
    """Reads a varint of at most ``max_size`` bytes at each position; returns the values and their ends."""
    require(max_size > 0 and every(cursor < limits))
    read = body[cursor]
    values = read.astype(np.int64)
    cursor = cursor + 1
    more = read > 0x7F
    longer = int(np.count_nonzero(more))
    # After a byte above 0x7f, a varint follows, to be shifted by 7 bits; the 1 removes the byte's top bit.
    if longer == len(more):
        rest, cursor = varints(body, cursor, limits, max_size - 1)
        values += (rest - 1) << 7
    elif longer:
        which = np.flatnonzero(more)
        rest, cursor[which] = varints(body, cursor[which], limits[which], max_size - 1)
        values[which] += (rest - 1) << 7
    return values, cursor
