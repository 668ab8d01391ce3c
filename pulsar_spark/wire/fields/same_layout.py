"""Headers with the same layout as the first message's: checked and read eight bytes at a time.

Such headers differ only in the bytes of keys and properties, and in numbers of equal size. All other bits
(sizes, tags, lengths) must equal the first message's, so all messages are read like the first. Other headers
are left to :mod:`field_walk`, which takes three times as long.
"""

from __future__ import annotations

import numpy as np

from pulsar_spark.arrow.arrays import Bytes, Ints, every
from pulsar_spark.arrow.spans import Grid, grid_of, grid_of_rows, items_at
from pulsar_spark.wire.fields.batch_scan import MalformedError, scan_length, scan_varint
from pulsar_spark.wire.fields.field_spans import (
    BYTES,
    NUMBERS,
    PROPERTIES,
    SPANS,
    VARINT,
    WORD,
    AlikeHeaders,
    Fields,
    HeaderLayout,
    PropertySpans,
    Words,
)
from pulsar_spark.wire.fields.field_walk import NotPlainError, require

_MAX_SIZE = 256  # bytes of a header; longer ones are rare
_SHORT = 24  # bytes of a header; longer headers are read faster from one copied buffer
_WORD = WORD.itemsize
_PROPERTY_KEY, _PROPERTY_VALUE = 0x0A, 0x12
# Steps that join neighbouring groups of bits: mask of the lower groups, mask of the upper groups, shift.
_JOINS = (
    (0x007F007F007F007F, 0x7F007F007F007F00, 1),
    (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
    (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
)


def read_alike(body: Bytes, starts: Ints, layout: HeaderLayout, max_properties: int) -> Fields | None:
    """Reads the headers of the messages that begin at ``starts``; the caller sets ``value``.

    Args:
        starts: two or more positions, ascending, from 0.

    Returns:
        The fields; None if a header has another layout or would overlap the next, if the last header ends
        after the body, or if there are more than ``max_properties``.
    """
    if np.diff(starts).min() < layout.size or starts[-1] + layout.size > len(body):
        return None
    if len(layout.properties) * len(starts) > max_properties:
        return None
    grid = grid_of(starts)
    headers = _headers(body, starts, layout, grid)
    if not _are_alike(headers):
        return None
    found = Fields(starts, (starts, starts), alike=headers, grid=grid)
    all_have = np.ones(len(starts), np.bool_)
    for number, (at, end) in layout.numbers.items():
        found.numbers[number] = _varints(headers.words(at), end - at), all_have
    return found


def _headers(body: Bytes, starts: Ints, layout: HeaderLayout, grid: Grid | None) -> AlikeHeaders:
    """Returns the headers: in place if they are short and in a grid, else copied."""
    width = len(layout.may_differ)
    if grid is not None and layout.size <= _SHORT and starts[-1] + width <= len(body):
        return AlikeHeaders(layout, body, grid)
    item, rows = np.dtype((np.void, layout.size)), np.empty(len(starts) * width, np.uint8)
    to = grid_of_rows(len(starts), width)
    items = items_at(body, starts, item) if grid is None else grid.items(body, item).reshape(-1)
    to.items(rows, item)[0] = items
    return AlikeHeaders(layout, rows, to)


def _are_alike(headers: AlikeHeaders) -> bool:
    """Whether all bits that must equal the first message's do."""
    same = ~np.frombuffer(headers.layout.may_differ, WORD)
    for number in np.flatnonzero(same).tolist():
        found = headers.words(number * _WORD) & same[number]
        if not every(found == found[0]):
            return False
    return True


def first_layout(body: Bytes) -> HeaderLayout | None:
    """Returns the layout of the header at the body's start; None if it is long, unusual or malformed."""
    data = body[:_MAX_SIZE].tobytes()
    size = 4 + int.from_bytes(data[:4], "big")
    if size > len(data):
        return None
    # Padding, so that a word can be read at each byte of the header.
    layout = HeaderLayout(size, bytearray(size) + b"\xff" * (-size % _WORD + _WORD))
    at = 4
    try:
        while at < size:
            at = _add_field(layout, data, at, size)
    except (MalformedError, NotPlainError):
        return None
    return layout


def _add_field(layout: HeaderLayout, data: bytes, at: int, size: int) -> int:
    number, wire = data[at] >> 3, data[at] & 7
    at += 1
    if wire == VARINT:
        _, end = scan_varint(data, at, size)
        require(number in NUMBERS and end - at <= _WORD)
        layout.numbers[number] = at, end
        layout.may_differ[at:end] = b"\x7f" * (end - at)
        return end
    require(wire == BYTES)
    at, end = scan_length(data, at, size)
    if number == PROPERTIES:
        _add_property(layout, data, at, end)
    else:
        require(number in SPANS)
        layout.spans[number] = at, end
        layout.may_differ[at:end] = b"\xff" * (end - at)
    return end


def _add_property(layout: HeaderLayout, data: bytes, at: int, end: int) -> None:
    require(at < end and data[at] == _PROPERTY_KEY)
    key, key_end = scan_length(data, at + 1, end)
    require(key_end < end and data[key_end] == _PROPERTY_VALUE)
    value, value_end = scan_length(data, key_end + 1, end)
    require(value_end == end)
    layout.properties.append(PropertySpans((key, key_end), (value, end)))
    layout.may_differ[key:key_end] = b"\xff" * (key_end - key)
    layout.may_differ[value:end] = b"\xff" * (end - value)


def _varints(words: Words, size: int) -> Ints:
    """Decodes the varints in the first ``size`` bytes of each word."""
    values = words & np.uint64(0x7F7F7F7F7F7F7F7F >> 8 * (_WORD - size))
    for low, high, shift in _JOINS[: (size - 1).bit_length()]:
        values = values & np.uint64(low) | (values & np.uint64(high)) >> np.uint64(shift)
    numbers: Ints = values.view(np.int64)
    return numbers
