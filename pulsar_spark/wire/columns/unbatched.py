"""Entries that are not batches <-> MessageColumns.

An unbatched message's fields are in the entry's MessageMetadata, and the whole payload is the value.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple, overload

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints, offsets_of, with_nulls
from pulsar_spark.arrow.join import binary_of, bytes_field, join, lengths
from pulsar_spark.arrow.spans import gather, joined_buffer
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
)
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import NUMBERS, EntryField

_SMALL = 4096  # mean bytes of a payload; smaller payloads are copied


class EncodedSingle(NamedTuple):
    """One unbatched message, before the producer adds its fields.

    Attributes:
        metadata: the message's MessageMetadata from field 4 on. Put fields 1 to 3 (producer name, sequence
            id, publish time) before it, and compression, schema version and so on after it.
        payload: uncompressed value.
        sequence_ids: the message's own sequence id, as first and last id; None: the producer's next id.
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
        metadata: metadata of all messages, one after the other.
        bounds: offsets of the messages in ``metadata``, int64[n + 1].
        payload: bytes that contain the payloads.
        at: start of each payload, int64[n].
        end: end of each payload, int64[n].
        ids: the messages' own sequence ids, int64[n], or None.
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
        """Returns the same messages with their own sequence ids, int64[n]."""
        return replace(self, ids=ids)


def decode_singles(entries: Entries, payloads: Sequence[Buffer] | None = None) -> DecodedColumns:
    """Decodes entries with one message each, by the rules of :func:`batches.decode_batches`.

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
