"""The messages of entries <-> MessageColumns: batches, and entries of one message.

:mod:`batch_fields` finds the fields of a batch's messages (the layout is drawn in :mod:`field_spans`), and
:mod:`message_columns` converts fields to columns and back. An unbatched message's fields are in the entry's
MessageMetadata, and the whole payload is the value.

This is the hot path of reading and of writing: no Python object is made per message of a batch. Other modules
decide which messages form a batch, and handle its metadata and compression.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints, gather, joined_buffer, offsets_of, with_nulls
from pulsar_spark.arrow.join import (
    EncodedField,
    EncodedMessages,
    big_endian,
    binary_of,
    bytes_field,
    join,
    join_in_order,
    lengths,
    total_sizes,
)
from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb
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
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import NUMBERS, EntryField
from pulsar_spark.wire.fields import field_spans as fs
from pulsar_spark.wire.fields.batch_fields import find_fields

_SMALL = 4096  # mean bytes of a payload; smaller payloads are copied
_BATCH_NUMBERS = fs.Numbers(
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
    body, sizes, expected = joined_buffer(payloads), np.array(list(map(len, payloads))), np.array(counts)
    if expected.min() <= 0:
        raise CorruptError(f"a batch of {expected.min()} messages")
    max_properties = fs.MAX_PROPERTIES * len(expected)
    fields = find_fields(body, int(expected.sum()), max_properties)
    first = np.cumsum(expected) - expected
    if (most := fields.max_properties(first)) > fs.MAX_PROPERTIES:
        raise CorruptError(f"a batch of {most} properties; the maximum is {fs.MAX_PROPERTIES}")
    if (fields.start[first] != np.cumsum(sizes) - sizes).any():
        raise CorruptError("a batch that does not end with its last message")
    rows, remaining = _remaining(fields), expected
    if rows is not None:
        batch = np.repeat(np.arange(len(expected)), expected)
        remaining = np.bincount(batch[rows], minlength=len(expected))
    return DecodedBatches(DecodedColumns(body, fields, _BATCH_NUMBERS, rows), remaining, expected, rows)


def encode_batch_messages(
    columns: MessageColumns, keys: EncodedKeys | None = None, *, order: Ints | None = None
) -> EncodedMessages:
    """Encodes each row as a single message; the bytes of any consecutive rows are a batch's payload.

    A null value is written as ``null_value`` without a payload; other nulls are left out. A message in a
    batch has no ``deliver_at``.

    Args:
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


def _remaining(fields: fs.Fields) -> Ints | None:
    """Returns the indexes of the messages that compaction has not removed; None if it removed none."""
    gone = flag(fields, fs.COMPACTED_OUT)
    return None if gone is None else np.flatnonzero(~gone)


class EncodedSingle(NamedTuple):
    """One unbatched message, before the producer adds its fields.

    Attributes:
        metadata: the message's MessageMetadata from field 4 on. Put fields 1 to 3 (producer name, sequence
            id, publish time) before it, and compression, schema version and so on after it.
        payload: uncompressed value.
        sequence_ids: sequence id that the row has, twice (first, last); None: the producer's next id.
    """

    metadata: Buffer
    payload: Buffer
    sequence_ids: tuple[int, int] | None = None

    @property
    def key(self) -> bytes | None:
        """Returns the message's key, decoded; None for no key."""
        required = b"\x0a\x00\x10\x00\x18\x00"  # fields 1 to 3, empty
        metadata = pb.MessageMetadata.FromString(required + bytes(self.metadata))
        if not metadata.HasField("partition_key"):
            return None
        key = metadata.partition_key
        return base64.b64decode(key) if metadata.partition_key_b64_encoded else key


@dataclass(frozen=True, eq=False)
class EncodedSingles(Sequence[EncodedSingle]):
    """n unbatched messages by column. Items are made on request.

    Objects for all rows at once would cost as much time in Python's garbage collector as sending the rows.

    Attributes:
        metadata: metadata of all messages; message i has ``metadata[bounds[i]:bounds[i + 1]]``.
        payload: values of all messages; message i has ``payload[at[i]:end[i]]``.
        ids: sequence ids that the rows have, int64[n]; None: the producer's next ids.
    """

    metadata: Buffer
    bounds: Ints
    payload: Buffer
    at: Ints
    end: Ints
    ids: Ints | None = None

    @property
    def sizes(self) -> Ints:
        """Bytes of each message's metadata and payload, int64[n]."""
        return np.diff(self.bounds) + self.end - self.at

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[EncodedSingle]:
        bounds = self.bounds.tolist()
        ids = repeat(None) if self.ids is None else zip(self.ids.tolist(), self.ids.tolist(), strict=True)
        spans = zip(bounds, bounds[1:], self.at.tolist(), self.end.tolist(), ids, strict=False)
        metadata, payload = self.metadata, self.payload
        for first, last, at, end, own in spans:
            yield EncodedSingle(metadata[first:last], payload[at:end], own)

    @overload
    def __getitem__(self, index: int) -> EncodedSingle: ...

    @overload
    def __getitem__(self, index: slice) -> EncodedSingles: ...

    def __getitem__(self, index: int | slice) -> EncodedSingle | EncodedSingles:
        if isinstance(index, int):
            at = range(len(self))[index]
            (item,) = self[at : at + 1]
            return item
        first, stop, step = index.indices(len(self))
        assert step == 1, "messages are sent in their order"
        return replace(
            self,
            bounds=self.bounds[first : max(first, stop) + 1],
            at=self.at[first:stop],
            end=self.end[first:stop],
            ids=None if self.ids is None else self.ids[first:stop],
        )

    def with_ids(self, ids: Ints) -> EncodedSingles:
        """Returns the same messages with the sequence ids ``ids``, int64[n]."""
        return replace(self, ids=ids)


def decode_singles(entries: Entries, payloads: Sequence[Buffer] | None = None) -> DecodedColumns:
    """Decodes entries with one message each, by the rules of :func:`entry_messages.decode_batches`.

    Args:
        entries: entries, none of which is a batch.
        payloads: complete, decompressed payloads; None: use those of ``entries``. A single payload is not
            copied.

    Raises:
        CorruptError: a key flagged as base64 is not base64.
    """
    heads, fields = entries.fields
    null = flag(fields, EntryField.NULL_VALUE)
    if payloads is None and entries.body is not None:
        value = gather(pa.py_buffer(entries.body), *fields.value, None if null is None else ~null)
    else:
        value = _values(entries.payloads if payloads is None else payloads, null)
    return DecodedColumns(pa.py_buffer(heads), fields, NUMBERS, value=value)


def encode_singles(
    columns: MessageColumns, keys: EncodedKeys | None = None, *, order: Ints | None = None
) -> EncodedSingles:
    """Encodes each row as an unbatched message; arguments and rules as for ``encode_batch_messages``.

    ``sequence_id`` is not written, because the producer sets an entry's sequence id.

    Raises:
        OptionError: the properties contain a null, or there are more than 2 GiB of metadata at once.
    """
    keys = keys or encode_keys(columns.key)
    if order is not None:
        columns, keys = columns.take(pa.array(order)), keys.take(order)
    texts, is_base64 = keys
    value, count = columns.value, len(columns)
    is_null = value.is_null().to_numpy(zero_copy_only=False) if value.null_count else None
    fields = [
        *properties_field(b"\x22", columns.properties),
        *bytes_field(b"\x32", texts),
        *number_field(b"\x60", columns.event_time),
        *flag_field(b"\x88\x01", is_base64),
        *bytes_field(b"\x92\x01", columns.ordering_key),
        *number_field(b"\x98\x01", columns.deliver_at),
        *flag_field(b"\xc8\x01", is_null),
    ]
    metadata = join(fields, count)
    return EncodedSingles(bytes(metadata.buffer), metadata.offsets, *_payloads(value))


def _values(payloads: Sequence[Buffer], null: Flags | None) -> pa.BinaryArray:
    offsets = np.zeros(len(payloads) + 1, np.int32)
    np.cumsum([len(payload) for payload in payloads], out=offsets[1:])
    values = binary_of(joined_buffer(payloads), offsets)
    return values if null is None else with_nulls(values, null)


def _payloads(values: pa.BinaryArray) -> tuple[Buffer, Ints, Ints]:
    """Returns the bytes of the rows, and start and end of each row; null is empty."""
    if len(values) == values.null_count:
        nowhere = np.zeros(len(values), np.int64)
        return b"", nowhere, nowhere
    starts = offsets_of(values).astype(np.int64)
    first, last = int(starts[0]), int(starts[-1])
    view = memoryview(values.buffers()[2]).cast("B")[first:last]  # Arrow declares its bytes as signed
    at = starts[:-1] - first
    # A slice of bytes is a copy, which costs less than a view of few bytes.
    payload = bytes(view) if len(view) < _SMALL * len(values) else view
    return payload, at, at + lengths(values)
