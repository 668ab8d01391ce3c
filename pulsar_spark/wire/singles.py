"""Entries that are not batches <-> MessageColumns.

Here the fields of a message lie in the entry's own MessageMetadata, and the whole payload is the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.wire import pieces, texts
from pulsar_spark.wire.columns import MessageColumns

if TYPE_CHECKING:
    from pulsar_spark.wire import pulsar_pb2 as pb

T = TypeVar("T")
_Optional: TypeAlias = Literal["partition_key", "ordering_key", "event_time"]


class SingleEntry(Protocol):
    """What decoding needs of an entry: metadata, and the payload, decompressed and whole."""

    @property
    def metadata(self) -> pb.MessageMetadata:
        """The entry's metadata, without ``num_messages_in_batch``."""

    @property
    def payload(self) -> bytes | memoryview:
        """The message's value."""


class EncodedSingle(NamedTuple):
    """One message that is an entry of its own, before the producer adds its part.

    Attributes:
        metadata: MessageMetadata fields 4 and up that belong to the message. Put fields 1 to 3 (producer
            name, sequence id, publish time) before it, and compression, schema version and the like after it.
        payload: the value, uncompressed; a view of the column, not a copy.
    """

    metadata: memoryview
    payload: memoryview


def decode_singles(entries: Sequence[SingleEntry]) -> MessageColumns:
    """Decode entries that hold one message each; the rules are those of ``decode_batch``.

    Raises:
        CorruptError: a key flagged as base64 is not.
    """
    metadata = [entry.metadata for entry in entries]
    values = [None if one.metadata.null_value else one.payload for one in entries]
    return MessageColumns(
        value=pa.array(values, pa.binary()),
        key=_keys(metadata),
        event_time=_event_times(metadata),
        properties=_properties(metadata),
        ordering_key=_ordering_keys(metadata),
        sequence_id=_signed([one.sequence_id for one in metadata]),
    )


def encode_singles(columns: MessageColumns) -> list[EncodedSingle]:
    """Encode each row as a message that is sent unbatched.

    The rules for keys and nulls are those of ``encode_batch_messages``. ``sequence_id`` is not written: an
    entry's sequence id is the producer's to give.

    Raises:
        OptionError: a null among the properties, or more than 2 GiB of metadata at once.
    """
    keys, is_base64 = texts.encode_keys(columns.key)
    value, count = columns.value, len(columns)
    is_null = value.is_null().to_numpy(zero_copy_only=False) if value.null_count else None
    fields = [
        *pieces.properties_field(b"\x22", columns.properties),
        *pieces.bytes_field(b"\x32", keys),
        *pieces.number_field(b"\x60", columns.event_time),
        *pieces.flag_field(b"\x88\x01", is_base64),
        *pieces.bytes_field(b"\x92\x01", columns.ordering_key),
        *pieces.flag_field(b"\xc8\x01", is_null),
    ]
    metadata = pieces.join(fields, count)
    payloads = _views(value)
    bounds = metadata.offsets.tolist()
    return [
        EncodedSingle(metadata.buffer[start:end], payload)
        for start, end, payload in zip(bounds, bounds[1:], payloads, strict=False)
    ]


def _keys(metadata: Sequence[pb.MessageMetadata]) -> pa.BinaryArray:
    # A key that is not UTF-8 comes out of protobuf as bytes, any other as str; Arrow takes both.
    keys = [
        None if one.null_partition_key else one.partition_key or _empty_or_null(one, "partition_key", b"")
        for one in metadata
    ]
    array = pa.array(keys, pa.binary())
    is_base64 = np.array([one.partition_key_b64_encoded for one in metadata], np.bool_)
    return texts.decode_keys(array, is_base64) if is_base64.any() else array


def _ordering_keys(metadata: Sequence[pb.MessageMetadata]) -> pa.BinaryArray | None:
    keys = [one.ordering_key or _empty_or_null(one, "ordering_key", b"") for one in metadata]
    array = pa.array(keys, pa.binary())
    return None if array.null_count == len(array) else array


def _event_times(metadata: Sequence[pb.MessageMetadata]) -> pa.Int64Array | None:
    times = [one.event_time or _empty_or_null(one, "event_time", 0) for one in metadata]
    array = _signed(times)
    return None if array.null_count == len(array) else array


def _empty_or_null(metadata: pb.MessageMetadata, name: _Optional, empty: T) -> T | None:
    return empty if metadata.HasField(name) else None


def _signed(numbers: list[int | None]) -> pa.Int64Array:
    """Make int64 of unsigned 64 bit numbers; those beyond 2**63 - 1 come out negative, as in Java."""
    unsigned = pa.array(numbers, pa.uint64())
    return unsigned.view(pa.int64())


def _properties(metadata: Sequence[pb.MessageMetadata]) -> pa.MapArray | None:
    per_message = [len(one.properties) for one in metadata]
    if not any(per_message):
        return None
    names, values = [], []
    for one in metadata:
        for each in one.properties:
            names.append(each.key)
            values.append(each.value)
    offsets = np.zeros(len(metadata) + 1, np.int32)
    np.cumsum(per_message, out=offsets[1:])
    return pa.MapArray.from_arrays(
        pa.array(offsets),
        texts.to_strings(pa.array(names, pa.binary())),
        texts.to_strings(pa.array(values, pa.binary())),
    )


def _views(values: pa.BinaryArray) -> list[memoryview]:
    """Views of the bytes of each row, empty where null."""
    if len(values) == values.null_count:
        return [memoryview(b"")] * len(values)
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values)]
    ends = starts + pieces.lengths(values)
    view = memoryview(data).cast("B")  # Arrow says its bytes are signed
    return [view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
