"""Protobuf fields of many messages, read one field of *all* of them at a time in numpy: reading's hot path.

What a walk does not understand, and what it finds wrong, raises :class:`NotPlainError`: it is left to those
who read message by message, who alone say what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pulsar_spark.wire.field_spans import (
    BYTES,
    LONGEST_VARINT,
    MAX_PROPERTIES,
    VARINT,
    Fields,
    Flags,
    Ints,
)

Bytes: TypeAlias = "npt.NDArray[np.uint8]"

_MAX_ROUNDS = 64  # of a walk; messages with more fields than that are not plain


class NotPlainError(Exception):
    """Something in the messages is wrong, or only to be understood one by one."""


class FieldKind(Enum):
    """What a walk does with a field."""

    NUMBER = auto()
    SPAN = auto()
    PROPERTY = auto()
    IGNORED = auto()


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a message.

    Attributes:
        kinds: field number and wire type, as one tag -> what to do with it.
        highest: known field number; higher ones are ignored, other tags are not plain.
    """

    kinds: dict[int, FieldKind]
    highest: int


def require(holds: bool | np.bool_) -> None:
    """Give the walk up unless ``holds``."""
    if not holds:
        raise NotPlainError


def every(flags: Flags) -> bool:
    """Like ``flags.all()``, which takes five times as long for a thousand flags."""
    return int(np.count_nonzero(flags)) == len(flags)


def big_endian(body: Bytes, at: Ints, width: int) -> Ints:
    """Read unsigned integers of ``width`` 2 or 4 bytes, which must lie inside the body."""
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
    """Read the fields of messages whose metadata lie at [cursor, ends); ``value`` is left to the caller.

    A round takes the messages whose next field is the same as the first waiting message's; the others wait.

    Args:
        body: what holds them.
        starts: ascending positions up to ``cursor``, which stand in for spans that a message lacks.
        cursor: where each begins.
        ends: where each ends, inside the body.
        layout: their fields.
        max_properties: of all of them together.

    Raises:
        NotPlainError: they are left to a reader one by one.
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
            cursor = cursor.copy()  # the old one may be what a field's positions are held in
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
    """Read one field of the messages ``rows``, whose tag is read; returns where the next ones begin."""
    kind = layout.kinds.get(tag)
    if kind is None:
        require(tag >> 3 > layout.highest)
        kind = FieldKind.IGNORED
    if tag & 7 == VARINT:
        values, cursor = varints(body, cursor, limits)
        if kind is FieldKind.NUMBER:
            found.set_number(tag >> 3, rows, values)
        return cursor
    require(tag & 7 == BYTES)
    cursor, end = lengths(body, cursor, limits)
    if kind is FieldKind.SPAN:
        found.set_span(tag >> 3, rows, cursor, end)
    elif kind is FieldKind.PROPERTY:
        properties.append((rows, *_walk_property(body, cursor, end)))
    return end


def _walk_property(body: Bytes, cursor: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Read KeyValues that are just a key and then a value."""
    require(every(cursor < end) and every(body[cursor] == 0x0A))
    key, key_end = lengths(body, cursor + 1, end)
    require(every(key_end < end) and every(body[key_end] == 0x12))
    value, value_end = lengths(body, key_end + 1, end)
    require(every(value_end == end))
    return key, key_end, value, value_end


def _in_order(
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints]],
) -> tuple[Ints, Ints, Ints, Ints, Ints] | None:
    """Put the properties in the order of their messages."""
    if not parts:
        return None
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    row, key, key_end, value, value_end = (column[order] for column in columns)
    return row, key, key_end, value, value_end


def lengths(body: Bytes, cursor: Ints, limits: Ints) -> tuple[Ints, Ints]:
    """Read lengths; returns where the bytes begin and end, the latter no further than ``limits``."""
    sizes, at = varints(body, cursor, limits)
    require(every(sizes.view(np.uint64) <= (limits - at).view(np.uint64)))
    return at, at + sizes


def varints(body: Bytes, cursor: Ints, limits: Ints, max_size: int = LONGEST_VARINT) -> tuple[Ints, Ints]:
    """Read a varint of at most ``max_size`` bytes at each position; returns the values and where they end."""
    require(max_size > 0 and every(cursor < limits))
    read = body[cursor]
    values = read.astype(np.int64)
    cursor = cursor + 1
    more = read > 0x7F
    longer = int(np.count_nonzero(more))
    # What follows a byte with its flag set is a varint again, 7 bits up; the 1 takes the flag itself off.
    if longer == len(more):
        rest, cursor = varints(body, cursor, limits, max_size - 1)
        values += (rest - 1) << 7
    elif longer:
        which = np.flatnonzero(more)
        rest, cursor[which] = varints(body, cursor[which], limits[which], max_size - 1)
        values[which] += (rest - 1) << 7
    return values, cursor
