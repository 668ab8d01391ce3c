"""A batch entry's payload <-> MessageColumns: the hot path of reading and of writing.

Owns the null rules and the making of Arrow arrays. Where the fields of a message lie comes from
:mod:`batch_fields` (the layout is drawn there), how columns become fields from :mod:`pieces`. Which messages
form a batch, its metadata and its compression are the business of others. No Python object is made for a
message, either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import batch_fields as bf
from pulsar_spark.wire import pieces, texts
from pulsar_spark.wire.batch_walk import find_fields
from pulsar_spark.wire.columns import MessageColumns

Readable: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The messages of one batch.

    Attributes:
        columns: the messages held, m rows.
        batch_index: int64[m], each row's index in the batch, where compaction took messages out of it;
            None where all are held: row i is batch index i.
    """

    columns: MessageColumns
    batch_index: bf.Ints | None


@dataclass(frozen=True, slots=True)
class DecodedBatches:
    """The messages of several batches, m rows in all.

    Attributes:
        columns: the messages held, batch after batch.
        held: int64[n], how many rows each of the n batches has.
        batch_index: int64[m], each row's index in its batch.
    """

    columns: MessageColumns
    held: bf.Ints
    batch_index: bf.Ints


def decode_batch(payload: Readable, count: int) -> DecodedBatch:
    """Decode the ``count`` (``num_messages_in_batch``) messages of a decompressed batch payload.

    A message with ``compacted_out`` is left out. ``null_value`` gives a null value; no ``partition_key``, or
    ``null_partition_key``, a null key (the empty key is a key). Keys are bytes and need not be UTF-8;
    property names and values become strings, with U+FFFD for each malformed part. A property name that
    occurs twice in a message is in its map twice, in the order of the wire. Unsigned 64 bit numbers beyond
    2**63 - 1 come out negative, as in Java.

    Raises:
        CorruptError: the payload is anything but exactly ``count`` well-formed messages, or a key flagged
            as base64 is not.
    """
    fields = find_fields(payload, count)
    held = _held(fields)
    return DecodedBatch(_columns(pa.py_buffer(payload), fields, held), held)


def decode_batches(payloads: Sequence[Readable], counts: Sequence[int]) -> DecodedBatches:
    """Decode at least one batch payload, as :func:`decode_batch` does, in one go.

    The fixed cost of a call is that of decoding hundreds of messages, so small batches are much cheaper
    together. Together they must be below 2 GiB; a few MiB at once are fastest.

    Raises:
        CorruptError: one of the batches is corrupt; decode them one by one to learn which.
    """
    sizes = np.array([len(payload) for payload in payloads])
    expected = np.array(counts)
    if expected.min() <= 0:
        raise CorruptError(f"a batch of {expected.min()} messages")
    body = b"".join(payloads)
    fields = find_fields(body, int(expected.sum()))
    first = np.cumsum(expected) - expected
    if (fields.start[first] != np.cumsum(sizes) - sizes).any():
        raise CorruptError("a batch that does not end with its last message")
    index = np.arange(expected.sum()) - np.repeat(first, expected)
    held = _held(fields)
    if held is not None:
        batch = np.repeat(np.arange(len(expected)), expected)
        expected = np.bincount(batch[held], minlength=len(expected))
        index = index[held]
    return DecodedBatches(_columns(pa.py_buffer(body), fields, held), expected, index)


def encode_batch_messages(columns: MessageColumns) -> pieces.EncodedMessages:
    """Encode each row as a single message of a batch, so that any run of rows is a batch's payload.

    A key is written as it is if it is UTF-8, else as base64 text with its flag. A null value is
    ``null_value`` and no payload; other nulls are left out.

    Raises:
        OptionError: a null among the properties, or more than 2 GiB at once.
    """
    keys, is_base64 = texts.encode_keys(columns.key)
    value, count = columns.value, len(columns)
    value_sizes = pieces.lengths(value)
    is_null = value.is_null().to_numpy(zero_copy_only=False) if value.null_count else None
    fields = [
        *pieces.properties_field(b"\x0a", columns.properties),
        *pieces.bytes_field(b"\x12", keys),
        pieces.size_field(b"\x18", value_sizes),
        *pieces.number_field(b"\x28", columns.event_time),
        *pieces.flag_field(b"\x30", is_base64),
        *pieces.bytes_field(b"\x3a", columns.ordering_key),
        *pieces.number_field(b"\x40", columns.sequence_id),
        *pieces.flag_field(b"\x48", is_null),
    ]
    header_size = pieces.big_endian(pieces.total_sizes(fields, count))
    return pieces.join([header_size, *fields, pieces.Piece(value, value_sizes)], count)


def _held(fields: bf.Fields) -> bf.Ints | None:
    """Return the rows that compaction has left, None where that is all of them."""
    gone = _flag(fields, bf.COMPACTED_OUT)
    return None if gone is None else np.flatnonzero(~gone)


def _columns(body: pa.Buffer, fields: bf.Fields, held: bf.Ints | None) -> MessageColumns:
    no_value = _flag(fields, bf.NULL_VALUE)
    return MessageColumns(
        value=_gather(body, *fields.value, None if no_value is None else ~no_value, held),
        key=_keys(body, fields, held),
        event_time=_numbers(fields, bf.EVENT_TIME, held),
        properties=_properties(body, fields, held),
        ordering_key=_gather(body, *fields.spans[bf.ORDERING_KEY], held)
        if bf.ORDERING_KEY in fields.spans
        else None,
        sequence_id=_numbers(fields, bf.SEQUENCE_ID, held),
    )


def _gather(
    body: pa.Buffer, at: bf.Ints, end: bf.Ints, has: bf.Flags | None, held: bf.Ints | None
) -> pa.BinaryArray:
    """Copy the spans [at, end) of the body into one array; ``at`` must ascend and spans not overlap.

    The body is looked at as a binary array whose even elements are the spans and whose odd ones are what
    lies between them; ``take`` of the even ones then copies all spans in one call.
    """
    count = len(at)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = at
    offsets[1::2] = end
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), body])
    even = np.arange(0, 2 * count, 2, dtype=np.int32) if held is None else (2 * held).astype(np.int32)
    absent = None if has is None or has.all() else ~(has if held is None else has[held])
    return spans.take(pa.array(even, mask=absent))


def _flag(fields: bf.Fields, number: int) -> bf.Flags | None:
    """Return which messages have the bool field set to true, None if none has."""
    if number not in fields.numbers:
        return None
    true = fields.numbers[number][0] != 0
    return true if true.any() else None


def _numbers(fields: bf.Fields, number: int, held: bf.Ints | None) -> pa.Int64Array | None:
    if number not in fields.numbers:
        return None
    values, has = fields.numbers[number]
    if held is not None:
        values, has = values[held], has[held]
    return pa.array(values, mask=None if has.all() else ~has)


def _keys(body: pa.Buffer, fields: bf.Fields, held: bf.Ints | None) -> pa.BinaryArray:
    count = len(fields.start) if held is None else len(held)
    if bf.KEY not in fields.spans:
        return pa.nulls(count, pa.binary())
    at, end, has = fields.spans[bf.KEY]
    null = _flag(fields, bf.NULL_KEY)
    keys = _gather(body, at, end, has if null is None else has & ~null, held)
    base64_text = _flag(fields, bf.KEY_IS_BASE64)
    if base64_text is None:
        return keys
    return texts.decode_keys(keys, base64_text if held is None else base64_text[held])


def _properties(body: pa.Buffer, fields: bf.Fields, held: bf.Ints | None) -> pa.MapArray | None:
    if fields.properties is None:
        return None
    row, key, key_end, value, value_end = fields.properties
    per_message = np.bincount(row, minlength=len(fields.start))
    chosen = None
    if held is not None:
        chosen = np.flatnonzero(np.isin(row, held))
        per_message = per_message[held]
    offsets = np.zeros(len(per_message) + 1, np.int32)
    np.cumsum(per_message, out=offsets[1:])
    names = texts.to_strings(_gather(body, key, key_end, None, chosen))
    values = texts.to_strings(_gather(body, value, value_end, None, chosen))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)
