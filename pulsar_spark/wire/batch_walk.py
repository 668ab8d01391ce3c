"""The fields of a batch, read one field of *all* messages at a time in numpy: the hot path of reading.

A walk needs to know where the messages start. That may be a mere guess, for a walk is kept only where every
message ends exactly where the next one was said to start, which by induction from byte 0 proves all of them.
What a walk does not understand, and what it finds wrong, is left to :mod:`batch_scan`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire.batch_fields import (
    BYTES,
    LARGEST_BATCH,
    LONGEST_VARINT,
    NUMBERS,
    PAYLOAD_SIZE,
    PROPERTIES,
    SPANS,
    VARINT,
    Fields,
    Flags,
    Ints,
)
from pulsar_spark.wire.batch_scan import scan

_LEAST_MESSAGE = 6  # 4 bytes of size, then payload_size, which is required
_FEW = 24  # messages; below it the fixed cost of numpy calls is more than a scan takes
_LONG = 2048  # bytes a message; above it a search through the values takes longer than steps over them
_MOST_ROUNDS = 64  # of the walk; a message with more fields than that is scanned


def find_fields(body: bytes | bytearray | memoryview | pa.Buffer, count: int) -> Fields:
    """Find the fields of the ``count`` messages that make up ``body``, a whole decompressed batch.

    Raises:
        CorruptError: ``body`` is anything but exactly ``count`` well-formed messages.
    """
    array = np.frombuffer(body, np.uint8)
    if not 0 < count <= len(array) // _LEAST_MESSAGE or len(array) > LARGEST_BATCH:
        raise CorruptError(f"a batch of {len(array)} bytes cannot hold {count} messages")
    fields = None
    if count >= _FEW and len(array) < _LONG * count:
        fields = _walk_from(array, _starts_by_search(array, count))
    if fields is not None:
        return fields
    indexed = bytes(body)  # reading single bytes of anything else takes longer
    if count >= _FEW:
        fields = _walk_from(array, _starts_by_steps(indexed, count))
    return scan(indexed, count) if fields is None else fields


# ---- guesses of where the messages start


def _starts_by_search(array: npt.NDArray[np.uint8], count: int) -> Ints | None:
    """Take each place that looks like the first message's header, if there are just ``count`` of them.

    Exact enough for text and most binary values; a value that holds such a header by chance spoils it.
    """
    starts = np.flatnonzero(array[4:] == array[4])
    for nth in range(2):  # sizes below 64 KiB begin with two zero bytes
        starts = starts[array[starts + nth] == 0]
    if len(starts) > count:
        starts = starts[array[starts + 2] == array[2]]
    return starts if len(starts) == count else None


def _starts_by_steps(body: bytes, count: int) -> Ints | None:
    """Go from message to message, reading only up to ``payload_size``; None for an unusual header."""
    starts = [0] * count
    at = 0
    try:
        for row in range(count):
            starts[row] = at
            cursor = at + 4
            end = cursor + (body[at] << 24 | body[at + 1] << 16 | body[at + 2] << 8 | body[at + 3])
            while (tag := body[cursor]) != 0x18:
                length = body[cursor + 1]
                cursor += 2
                if tag & 7 != BYTES:
                    return None
                if length > 0x7F:
                    length += (body[cursor] - 1) << 7
                    cursor += 1
                cursor += length
            size = body[cursor + 1]
            if size > 0x7F:
                size += (body[cursor + 2] - 1) << 7
                if body[cursor + 2] > 0x7F:
                    size += (body[cursor + 3] - 1) << 14
            at = end + size
    except IndexError:
        return None
    return np.array(starts, np.int64)


# ---- all messages at once


class _NotPlainError(Exception):
    """The guess of the starts was wrong, or a header has what only a scan understands."""


def _require(holds: bool | np.bool_) -> None:
    if not holds:
        raise _NotPlainError


def _all(flags: Flags) -> bool:
    """Like ``flags.all()``, which takes five times as long for a thousand flags."""
    return int(np.count_nonzero(flags)) == len(flags)


def _walk_from(body: npt.NDArray[np.uint8], starts: Ints | None) -> Fields | None:
    """Walk from the guessed starts, if there is a guess; None where it comes to nothing."""
    try:
        return None if starts is None else _walk(body, starts)
    except _NotPlainError:
        return None


def _walk(body: npt.NDArray[np.uint8], starts: Ints) -> Fields:
    """Read the fields of all messages, one field of every message a round.

    A round takes the messages whose next field is the same as the first waiting message's; the others wait.
    """
    _require(starts[0] == 0 and starts[-1] + 4 <= len(body))
    sizes = np.ndarray((len(body) - 3,), ">u4", body, 0, (1,))[starts].astype(np.int64)
    cursor = starts + 4
    ends = cursor + sizes
    _require(_all(ends <= len(body)))
    into = _Found(starts)
    rows = np.arange(len(starts))
    limits = ends
    for _ in range(_MOST_ROUNDS):
        left = cursor < limits
        if not _all(left):
            rows, cursor, limits = rows[left], cursor[left], limits[left]
            if not len(rows):
                return into.finish(ends, len(body))
        tags = body[cursor]
        same = tags == tags[0]
        if _all(same):
            cursor = _walk_field(body, int(tags[0]), rows, cursor + 1, limits, into)
        else:
            past = _walk_field(body, int(tags[0]), rows[same], cursor[same] + 1, limits[same], into)
            cursor = cursor.copy()  # the old one may be what a field's positions are held in
            cursor[same] = past
    raise _NotPlainError


def _walk_field(
    body: npt.NDArray[np.uint8], tag: int, rows: Ints, cursor: Ints, limits: Ints, into: _Found
) -> Ints:
    """Read one field of the messages ``rows``, whose tag is read; returns where the next ones begin."""
    number = tag >> 3
    if tag & 7 == VARINT and number in NUMBERS:
        values, cursor = _varints(body, cursor, limits)
        into.fields.set_number(number, rows, values)
        return cursor
    _require(tag & 7 == BYTES and number in SPANS)
    cursor, end = _lengths(body, cursor, limits)
    if number == PROPERTIES:
        into.properties.append((rows, *_walk_property(body, cursor, end)))
    else:
        into.fields.set_span(number, rows, cursor, end)
    return end


def _walk_property(body: npt.NDArray[np.uint8], cursor: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Read KeyValues that are just a key and then a value."""
    _require(_all(cursor < end) and _all(body[cursor] == 0x0A))
    key, key_end = _lengths(body, cursor + 1, end)
    _require(_all(key_end < end) and _all(body[key_end] == 0x12))
    value, value_end = _lengths(body, key_end + 1, end)
    _require(_all(value_end == end))
    return key, key_end, value, value_end


def _lengths(body: npt.NDArray[np.uint8], cursor: Ints, limits: Ints) -> tuple[Ints, Ints]:
    """Read lengths; returns where the bytes begin and end, the latter no further than ``limits``."""
    lengths, at = _varints(body, cursor, limits)
    _require(_all(lengths.view(np.uint64) <= (limits - at).view(np.uint64)))
    return at, at + lengths


def _varints(
    body: npt.NDArray[np.uint8], cursor: Ints, limits: Ints, most: int = LONGEST_VARINT
) -> tuple[Ints, Ints]:
    """Read a varint of at most ``most`` bytes at each position; returns the values and where they end."""
    _require(most > 0 and _all(cursor < limits))
    read = body[cursor]
    values = read.astype(np.int64)
    cursor = cursor + 1
    more = read > 0x7F
    longer = int(np.count_nonzero(more))
    # What follows a byte with its flag set is a varint again, 7 bits up; the 1 takes the flag itself off.
    if longer == len(more):
        rest, cursor = _varints(body, cursor, limits, most - 1)
        values += (rest - 1) << 7
    elif longer:
        which = np.flatnonzero(more)
        rest, cursor[which] = _varints(body, cursor[which], limits[which], most - 1)
        values[which] += (rest - 1) << 7
    return values, cursor


class _Found:
    """Collects what the rounds of a walk found."""

    def __init__(self, starts: Ints) -> None:
        self.fields = Fields(starts, (starts, starts))
        self.properties: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []

    def finish(self, ends: Ints, total: int) -> Fields:
        """Prove the chain of messages and put the properties in the order of the messages."""
        fields = self.fields
        _require(PAYLOAD_SIZE in fields.numbers)
        sizes, has = fields.numbers[PAYLOAD_SIZE]
        _require(_all(has) and _all((sizes >= 0) & (sizes <= total)))
        value_ends = ends + sizes
        _require(_all(value_ends[:-1] == fields.start[1:]) and value_ends[-1] == total)
        fields.value = ends, value_ends
        if self.properties:
            columns = [np.concatenate(parts) for parts in zip(*self.properties, strict=True)]
            order = np.argsort(columns[0], kind="stable")
            row, key, key_end, value, value_end = (column[order] for column in columns)
            fields.properties = row, key, key_end, value, value_end
        return fields
