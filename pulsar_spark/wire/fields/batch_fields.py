"""Finds the fields of a batch by a walk, which reads all messages at once (:mod:`field_walk`), if possible.

A walk needs the start of each message. The starts are guessed, and accepted only if every message ends
exactly at the guessed start of the next; by induction from byte 0 this proves all starts. If no guess is
right, or a message is malformed or unusual, a scan reads the messages one by one. It is slower, but accepts
everything that protobuf allows (unknown fields, any order, repeated fields), and reports the fault of a
corrupt batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints, every
from pulsar_spark.errors import CorruptError
from pulsar_spark.wire.fields.field_spans import (
    BYTES,
    FIXED32,
    FIXED64,
    LARGEST_BATCH,
    MAX_PROPERTIES,
    NULL_KEY,
    NUMBERS,
    PAYLOAD_SIZE,
    PROPERTIES,
    SPANS,
    VARINT,
    FieldLists,
    Fields,
    int64s,
)
from pulsar_spark.wire.fields.field_walk import (
    FieldKind,
    Layout,
    MalformedError,
    NotPlainError,
    big_endian,
    first_layout,
    read_alike,
    require,
    scan_length,
    scan_varint,
    walk,
)

_MIN_MESSAGE_SIZE = 6  # 4 bytes for the size, then payload_size, which is required
_FEW = 24  # messages; for fewer, a scan costs less than numpy's calls
_LONG = 2048  # mean bytes of a message; above, ``_starts_by_steps`` is faster than ``_starts_by_search``
_BLOCK = 1 << 18  # words searched at a time, so that the results stay in the cache
_PAYLOAD_SIZE_TAG = PAYLOAD_SIZE << 3 | VARINT
_MAX_TEXTS = 4  # maximum text fields before ``payload_size``: a key, and properties
_MIN_DISTANCE = 8  # minimum mean bytes between guessed starts; checking one start uses 100 bytes of memory
_MAX_INSIDE = 4  # maximum rounds of ``_confirmed``; each removes wrong guesses
_MAX_ZEROS = 8  # maximum words per message that ``_starts_by_search`` checks; above, steps are faster

_LAYOUT = Layout(
    {
        **{number << 3 | VARINT: FieldKind.NUMBER for number in NUMBERS},
        **{number << 3 | BYTES: FieldKind.SPAN for number in SPANS},
        PROPERTIES << 3 | BYTES: FieldKind.PROPERTY,
    },
    highest=NULL_KEY,
)


def find_fields(
    body: bytes | bytearray | memoryview | pa.Buffer, count: int, max_properties: int = MAX_PROPERTIES
) -> Fields:
    """Finds the fields of the ``count`` messages in ``body``, one or several decompressed batches.

    Raises:
        CorruptError: ``body`` is not exactly ``count`` well-formed messages, or the messages have more than
            ``max_properties`` in total.
    """
    data = np.frombuffer(body, np.uint8)
    if not 0 < count <= len(data) // _MIN_MESSAGE_SIZE or len(data) > LARGEST_BATCH:
        raise CorruptError(f"a batch of {len(data)} bytes cannot hold {count} messages")
    if count < _FEW:
        return scan(bytes(body), count, max_properties)
    fields = _walk_from(data, _starts_of_one_size(data, count), max_properties)
    if fields is None and len(data) < _LONG * count:
        fields = _walk_from(data, _starts_by_search(data, count), max_properties)
    if fields is not None:
        return fields
    indexed = bytes(body)  # because reading single bytes of numpy arrays or views takes longer
    fields = _walk_from(data, _starts_by_steps(indexed, count), max_properties)
    return scan(indexed, count, max_properties) if fields is None else fields


# ---- guesses of the messages' starts


def _starts_of_one_size(body: npt.NDArray[np.uint8], count: int) -> Ints | None:
    """Returns the starts of messages of one size; None if they cannot have one size."""
    size, rest = divmod(len(body), count)
    return None if rest else np.arange(count) * size


def _starts_by_search(body: npt.NDArray[np.uint8], count: int) -> Ints | None:
    """Finds all positions that look like the first message's header; None if there are not ``count``.

    The search fails if a value contains such bytes by chance; text and most binary values do not.
    A metadata size below 1 KiB has the bytes 0, 0, 0 to 3, any. So the body is searched for 16-bit words with
    the bytes 0, 0 to 3: bytes 1 and 2 of a size that starts at an even offset, or bytes 2 and 3 of one at an
    odd offset. Then the tag after the size must equal the tag in the first message.
    """
    words = body[: (len(body) - 3) // 2 * 2].view("<u2")
    blocks = range(0, len(words), _BLOCK)
    found = np.concatenate([np.flatnonzero(words[at : at + _BLOCK] & 0xFCFF == 0) + at for at in blocks])
    if not count <= len(found) <= _MAX_ZEROS * count or found[0] != 0:
        return None
    found *= 2
    is_odd = (body[found + 3] == body[4]) & (body[found - 1] == 0)
    is_odd[0] = False
    starts = (found - is_odd)[is_odd | (body[found + 4] == body[4])]
    if len(starts) > count:
        starts = starts[(body[starts] == 0) & (body[starts + 1] == 0)]
    if count < len(starts) <= len(body) // _MIN_DISTANCE:
        starts = _confirmed(body, starts)
    return starts if len(starts) == count else None


def _confirmed(body: npt.NDArray[np.uint8], starts: Ints) -> Ints:
    """Returns the guessed starts at which another guessed message ends; other guesses are inside of values.

    Checks again after removals, because a removed guess may have confirmed another. Assumes that all fields
    before ``payload_size`` are texts below 128 bytes.
    """
    last = len(body) - 1
    at = np.minimum(starts + 4, last)
    for _ in range(_MAX_TEXTS):
        is_text = body[at] != _PAYLOAD_SIZE_TAG
        if not is_text.any():
            break
        at = np.minimum(at + is_text * (2 + body[np.minimum(at + 1, last)].astype(np.int64)), last)
    size = np.zeros(len(starts), np.int64)
    has_more = np.ones(len(starts), np.bool_)
    for byte in range(3):
        bits = body[np.minimum(at + 1 + byte, last)].astype(np.int64)
        size += has_more * (bits & 0x7F) << 7 * byte
        has_more &= bits > 0x7F
    ends = np.minimum(starts + 4 + big_endian(body, np.minimum(starts, last - 3), 4) + size, last + 1)
    for _ in range(_MAX_INSIDE):
        is_next = np.isin(starts, np.append(0, ends), kind="table")
        if is_next.all():
            break
        starts, ends = starts[is_next], ends[is_next]
    return starts


def _starts_by_steps(body: bytes, count: int) -> Ints | None:
    """Steps from message to message, by the sizes in each header; None for an unusual header."""
    starts = [0] * count
    at = 0
    try:
        for row in range(count):
            starts[row] = at
            cursor = at + 4
            end = cursor + (body[at] << 24 | body[at + 1] << 16 | body[at + 2] << 8 | body[at + 3])
            while (tag := body[cursor]) != _PAYLOAD_SIZE_TAG:
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


def _walk_from(body: npt.NDArray[np.uint8], starts: Ints | None, max_properties: int) -> Fields | None:
    """Walks from the guessed starts; None if there is no guess or the walk fails."""
    try:
        return None if starts is None else _walk(body, starts, max_properties)
    except NotPlainError:
        return None


def _walk(body: npt.NDArray[np.uint8], starts: Ints, max_properties: int) -> Fields:
    """Reads all fields; raises NotPlainError unless each message ends where the next begins."""
    require(starts[0] == 0 and starts[-1] + 4 <= len(body))
    ends, fields = _read_headers(body, starts, max_properties)
    require(PAYLOAD_SIZE in fields.numbers)
    sizes, has = fields.numbers[PAYLOAD_SIZE]
    require(every(has) and every((sizes >= 0) & (sizes <= len(body))))
    value_ends = ends + sizes
    require(every(value_ends[:-1] == starts[1:]) and value_ends[-1] == len(body))
    fields.value = ends, value_ends
    return fields


def _read_headers(body: npt.NDArray[np.uint8], starts: Ints, max_properties: int) -> tuple[Ints, Fields]:
    layout = first_layout(body) if _may_be_alike(body, starts) else None
    found = None if layout is None else read_alike(body, starts, layout, max_properties)
    if layout is not None and found is not None:
        return starts + layout.size, found
    cursor = starts + 4
    ends = cursor + big_endian(body, starts, 4)
    # The starts may be wrong guesses, so the metadata must end before the next start.
    require(every(ends[:-1] <= starts[1:]) and ends[-1] <= len(body))
    return ends, walk(body, starts, cursor, ends, _LAYOUT, max_properties)


def _may_be_alike(body: npt.NDArray[np.uint8], starts: Ints) -> bool:
    """Whether a sample of headers has one size, so that it pays off to compare all headers."""
    size = body[:4].tobytes()
    return all(
        body[start : start + 4].tobytes() == size for start in starts[:: 1 + len(starts) // 4].tolist()
    )


# ---- message by message

_KNOWN = dict.fromkeys(NUMBERS, VARINT) | dict.fromkeys(SPANS, BYTES)
_FIXED_WIDTH = {FIXED64: 8, FIXED32: 4}  # width in bytes


def scan(body: bytes, count: int, max_properties: int = MAX_PROPERTIES) -> Fields:
    """Reads all messages one by one. All well-formed protobuf is accepted.

    Raises:
        CorruptError: a message is malformed (the error has its index and the fault), or the messages have
            more than ``max_properties`` in total.
    """
    total = len(body)
    found, value_at = FieldLists(count), int64s(count)
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
            size = _scan_message(body, row, cursor, end, found, max_properties)
        except MalformedError as broken:
            raise CorruptError(f"the metadata of message {row} in a batch is malformed: {broken}") from None
        value_at[row] = end
        at = end + size
        if at > total:
            raise CorruptError(f"the payload of message {row} in a batch ends after the batch")
    if at != total:
        raise CorruptError(f"{total - at} bytes follow the last of {count} messages in a batch")
    fields = found.finish()
    fields.value = np.frombuffer(value_at, np.int64), np.append(fields.start[1:], total)
    return fields


def _scan_message(
    body: bytes, row: int, cursor: int, end: int, found: FieldLists, max_properties: int
) -> int:
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
            found.properties.extend((row, *_scan_property(body, at, cursor)))
            if len(found.properties) > 5 * max_properties:
                raise MalformedError(f"more than {max_properties} properties, which is the maximum")
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
