"""A batch entry's payload <-> MessageColumns: the hot path of reading and of writing.

:mod:`batch_walk` finds the fields of messages (the layout is drawn in :mod:`field_spans`), and
:mod:`message_columns` converts fields to columns and back. Other modules decide which messages form a batch,
and handle its metadata and compression. No Python object is made per message in either direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer, Ints
from pulsar_spark.arrow.join import (
    EncodedField,
    EncodedMessages,
    big_endian,
    bytes_field,
    join,
    join_in_order,
    lengths,
    total_sizes,
)
from pulsar_spark.arrow.spans import joined_buffer
from pulsar_spark.errors import CorruptError
from pulsar_spark.wire.columns.message_columns import (
    DecodedColumns,
    EncodedKeys,
    MessageColumns,
    encode_keys,
    flag,
    flag_field,
    number_field,
    properties_field,
    size_field,
)
from pulsar_spark.wire.fields import field_spans as fs
from pulsar_spark.wire.fields.batch_walk import find_fields, find_separated_fields

_NUMBERS = fs.Numbers(
    key=fs.KEY,
    event_time=fs.EVENT_TIME,
    key_is_base64=fs.KEY_IS_BASE64,
    ordering_key=fs.ORDERING_KEY,
    sequence_id=fs.SEQUENCE_ID,
    null_value=fs.NULL_VALUE,
    null_key=fs.NULL_KEY,
)


@dataclass(frozen=True)
class DecodedBatches:
    """The messages of several batches, without those that compaction has removed; m rows in total.

    Attributes:
        remaining: number of rows of each of the n batches, int64[n].
        counts: number of messages in each batch before compaction, int64[n].
        rows: index of each row among all messages of the batches, int64[m]; None: compaction removed none.
    """

    columns: DecodedColumns
    remaining: Ints
    counts: Ints
    rows: Ints | None

    @cached_property
    def batch_index(self) -> Ints:
        """The index of each row in its batch, int64[m]."""
        first = np.cumsum(self.counts) - self.counts
        index: Ints = np.arange(self.counts.sum()) - np.repeat(first, self.counts)
        return index if self.rows is None else index[self.rows]


def decode_batches(payloads: Sequence[Buffer], counts: Sequence[int] | Ints) -> DecodedBatches:
    """Decodes one or more decompressed batch payloads; ``counts``: ``num_messages_in_batch`` of each.

    A message with ``compacted_out`` is left out. ``null_value`` makes the value null. The key is null if
    ``partition_key`` is missing or ``null_partition_key`` is set; the empty key is a key. Keys are bytes and
    need not be UTF-8. Property names and values become strings, with U+FFFD for each malformed part. If a
    message has a property name twice, its map has it twice, in the order on the wire. Unsigned 64-bit numbers
    above 2**63 - 1 become negative, as in Java.

    A call has a fixed cost, as much as hundreds of messages, so decode small batches together. A few MiB are
    fastest; the maximum is 2 GiB.

    Raises:
        CorruptError: a payload does not have exactly its count of well-formed messages, or has more than
            MAX_PROPERTIES, or a key flagged as base64 is not base64. Decode the batches one by one to find
            the corrupt batch.
    """
    return decode_joined(joined_buffer(payloads), np.array([len(payload) for payload in payloads]), counts)


def decode_joined(body: pa.Buffer, sizes: Ints, counts: Sequence[int] | Ints, gap: int = 0) -> DecodedBatches:
    """Decodes consecutive batch payloads in ``body``, by the rules of :func:`decode_batches`.

    Args:
        body: decompressed payloads.
        sizes: size of each payload in bytes.
        counts: ``num_messages_in_batch`` of each payload.
        gap: number of unused bytes after each payload, also the last.

    Raises:
        CorruptError: as in :func:`decode_batches`.
    """
    expected = np.array(counts)
    if expected.min() <= 0:
        raise CorruptError(f"a batch of {expected.min()} messages")
    max_properties = fs.MAX_PROPERTIES * len(expected)
    fields = find_separated_fields(body, expected, gap, max_properties) if gap else None
    if fields is None:
        if gap:
            body, gap = _without_gaps(body, sizes, gap), 0
        fields = find_fields(body, int(expected.sum()), max_properties)
    first = np.cumsum(expected) - expected
    if (most := fields.max_properties(first)) > fs.MAX_PROPERTIES:
        raise CorruptError(f"a batch of {most} properties; the maximum is {fs.MAX_PROPERTIES}")
    if (fields.start[first] != np.cumsum(sizes + gap) - sizes - gap).any():
        raise CorruptError("a batch that does not end with its last message")
    rows, remaining = _remaining(fields), expected
    if rows is not None:
        batch = np.repeat(np.arange(len(expected)), expected)
        remaining = np.bincount(batch[rows], minlength=len(expected))
    return DecodedBatches(DecodedColumns(body, fields, _NUMBERS, rows), remaining, expected, rows)


def encode_batch_messages(
    columns: MessageColumns, keys: EncodedKeys | None = None, *, order: Ints | None = None
) -> EncodedMessages:
    """Encodes each row as a single message; the bytes of any consecutive rows are a batch's payload.

    A null value is written as ``null_value`` without a payload; other nulls are left out. A message in a
    batch has no ``deliver_at``.

    Args:
        columns: rows to encode.
        keys: encoded keys of the rows; None: the result of ``encode_keys``.
        order: indexes of the rows in the order to write, int64[m]; None: all rows as given.

    Raises:
        OptionError: the properties contain a null, or there are more than 2 GiB at once.
    """
    if order is not None and not len(order):
        return EncodedMessages(memoryview(b""), np.zeros(1, np.int64))
    texts, is_base64 = keys or encode_keys(columns.key)
    value, count = columns.value, len(columns)
    value_sizes = lengths(value)
    is_null = value.is_null().to_numpy(zero_copy_only=False) if value.null_count else None
    fields = [
        *properties_field(b"\x0a", columns.properties),
        *bytes_field(b"\x12", texts),
        size_field(b"\x18", value_sizes),
        *number_field(b"\x28", columns.event_time),
        *flag_field(b"\x30", is_base64),
        *bytes_field(b"\x3a", columns.ordering_key),
        *number_field(b"\x40", columns.sequence_id),
        *flag_field(b"\x48", is_null),
    ]
    header_size = big_endian(total_sizes(fields, count))
    pieces = [header_size, *fields, EncodedField(value, value_sizes)]
    if order is not None:
        return join_in_order(pieces, order)
    return join(pieces, count)


def _without_gaps(body: pa.Buffer, sizes: Ints, gap: int) -> pa.Buffer:
    view, starts = memoryview(body).cast("B"), np.cumsum(sizes + gap) - sizes - gap
    ends = starts + sizes
    return joined_buffer([view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])


def _remaining(fields: fs.Fields) -> Ints | None:
    """Returns the indexes of the messages that compaction has not removed; None if it removed none."""
    gone = flag(fields, fs.COMPACTED_OUT)
    return None if gone is None else np.flatnonzero(~gone)
