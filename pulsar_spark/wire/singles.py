"""Entries that are not batches <-> MessageColumns.

The fields of such a message are in the entry's own MessageMetadata, and the whole payload is the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.wire import encode_columns, keys_and_texts
from pulsar_spark.wire.decode_columns import DecodedColumns, flag, gather, joined_buffer
from pulsar_spark.wire.entries import Entries
from pulsar_spark.wire.entry_fields import NUMBERS, EntryField
from pulsar_spark.wire.field_spans import Flags
from pulsar_spark.wire.frames import Buffer
from pulsar_spark.wire.message_columns import MessageColumns
from pulsar_spark.wire.nulls import with_nulls


class EncodedSingle(NamedTuple):
    """One message that is an entry of its own, before the producer adds its fields.

    Attributes:
        metadata: MessageMetadata fields 4 and higher of the message. Put fields 1 to 3 (producer name,
            sequence id, publish time) before it, and compression, schema version and so on after it.
        payload: the value, uncompressed; a view of the column, not a copy.
        dedup_mark: fields that are appended unchanged to the entry's MessageMetadata.
        sequence_ids: the message's own sequence id, twice, like those of a batch's first and last message;
            None: the producer's next one.
    """

    metadata: memoryview
    payload: memoryview
    dedup_mark: bytes = b""
    sequence_ids: tuple[int, int] | None = None


def decode_singles(entries: Entries, payloads: Sequence[Buffer] | None = None) -> DecodedColumns:
    """Decode entries that hold one message each; the rules are those of :func:`batches.decode_batches`.

    Args:
        entries: entries, none of which is a batch.
        payloads: their complete, decompressed payloads; None if those in the entries are. A single payload is
            not copied.

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


def encode_singles(columns: MessageColumns, *, key_bytes: bool = False) -> list[EncodedSingle]:
    """Encode each row as a message that is sent unbatched.

    The arguments and the rules for keys and nulls are those of ``encode_batch_messages``. ``sequence_id`` is
    not written, because the producer sets an entry's sequence id.

    Raises:
        OptionError: the properties contain a null, or there are more than 2 GiB of metadata at once.
    """
    keys, is_base64 = keys_and_texts.encode_keys(columns.key, as_bytes=key_bytes)
    value, count = columns.value, len(columns)
    is_null = value.is_null().to_numpy(zero_copy_only=False) if value.null_count else None
    fields = [
        *encode_columns.properties_field(b"\x22", columns.properties),
        *encode_columns.bytes_field(b"\x32", keys),
        *encode_columns.number_field(b"\x60", columns.event_time),
        *encode_columns.flag_field(b"\x88\x01", is_base64),
        *encode_columns.bytes_field(b"\x92\x01", columns.ordering_key),
        *encode_columns.number_field(b"\x98\x01", columns.deliver_at),
        *encode_columns.flag_field(b"\xc8\x01", is_null),
    ]
    metadata = encode_columns.join(fields, count)
    payloads = _views(value)
    bounds = metadata.offsets.tolist()
    return [
        EncodedSingle(metadata.buffer[start:end], payload)
        for start, end, payload in zip(bounds, bounds[1:], payloads, strict=False)
    ]


def _values(payloads: Sequence[Buffer], null: Flags | None) -> pa.BinaryArray:
    """Make one array from payloads of less than 2 GiB in total."""
    offsets = np.zeros(len(payloads) + 1, np.int32)
    np.cumsum([len(payload) for payload in payloads], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), joined_buffer(payloads)]
    values = pa.Array.from_buffers(pa.binary(), len(payloads), buffers)
    return values if null is None else with_nulls(values, null)


def _views(values: pa.BinaryArray) -> list[memoryview]:
    """Views of the bytes of each row, empty for null."""
    if len(values) == values.null_count:
        return [memoryview(b"")] * len(values)
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values)]
    ends = starts + encode_columns.lengths(values)
    view = memoryview(data).cast("B")  # Arrow declares its bytes as signed
    return [view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
