"""MessageMetadata of the entries that this client sends."""

from __future__ import annotations

from functools import lru_cache

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.ids import TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import varint


def batch_metadata(
    producer_name: str,
    sequence_ids: tuple[int, int],
    publish_time: int,
    messages: int,
    compression: pb.CompressionType,
    uncompressed_size: int,
    keyed_by: pb.SingleMessageMetadata | None = None,
) -> bytes:
    """Serializes the metadata of a batch, without protobuf, because an object for each entry is slow.

    Args:
        sequence_ids: sequence ids of the first and the last message; the last one is the highest.
        uncompressed_size: size of the batch in bytes before compression.
        keyed_by: message whose keys the batch gets, so that a broker sends the batch to the Key_Shared
            consumer of these keys; None: no keys.
    """
    first, highest = sequence_ids
    key = flag = ordering_key = b""
    if keyed_by is not None:
        if keyed_by.HasField("partition_key"):
            key = b"\x32" + varint(len(keyed_by.partition_key)) + keyed_by.partition_key
            flag = b"\x88\x01\x01" if keyed_by.partition_key_b64_encoded else b"\x88\x01\x00"
        if keyed_by.HasField("ordering_key"):
            ordering_key = b"\x92\x01" + varint(len(keyed_by.ordering_key)) + keyed_by.ordering_key
    fields = (
        single_metadata_head(producer_name, first, publish_time),
        key,
        b"" if compression == pb.NONE else b"\x40" + varint(compression),
        b"\x48" + varint(uncompressed_size),
        b"\x58" + varint(messages),
        flag,
        ordering_key,
        b"\xc0\x01" + varint(highest),
    )
    return b"".join(fields)


def first_message(batch: Buffer) -> pb.SingleMessageMetadata:
    """Parses the metadata of the first message in an encoded batch."""
    head = memoryview(batch)
    size = int.from_bytes(head[:4], "big")
    return pb.SingleMessageMetadata.FromString(bytes(head[4 : 4 + size]))


def single_metadata_head(producer_name: str, sequence_id: int, publish_time: int) -> bytes:
    """Serializes the three required fields; a message's own fields may follow unchanged."""
    before, after = _around_sequence_id(producer_name, publish_time)
    return before + varint(sequence_id) + after


@lru_cache(maxsize=64)
def _around_sequence_id(producer_name: str, publish_time: int) -> tuple[bytes, bytes]:
    """Serializes the name and the tag before a sequence id, and the publish time after it."""
    name = producer_name.encode()
    return b"\x0a" + varint(len(name)) + name + b"\x10", b"\x18" + varint(publish_time)


def single_metadata_tail(compression: pb.CompressionType, uncompressed_size: int) -> bytes:
    """Serializes the fields about a message's payload, to be appended to its other fields."""
    return b"\x40" + varint(compression) + b"\x48" + varint(uncompressed_size)


def chunk_fields(uuid: str, chunk_id: int, chunks: int, total_size: int) -> bytes:
    """Serializes the fields that make an entry a chunk, to be appended to the message's other fields.

    Args:
        uuid: common id of the message's chunks.
        chunk_id: number of the chunk, from 0.
        total_size: total stored bytes of all chunks' payloads.
    """
    metadata = pb.MessageMetadata(
        uuid=uuid.encode(), num_chunks_from_msg=chunks, total_chunk_msg_size=total_size, chunk_id=chunk_id
    )
    return metadata.SerializePartialToString()


def schema_version_field(version: bytes) -> bytes:
    """Serializes an entry's schema version, to be appended to its metadata; empty for no version."""
    return b"\x82\x01" + varint(len(version)) + version if version else b""


def entry_hash_fields(lowest: int, highest: int) -> bytes:
    """Serializes the lowest and highest key hash of a batch in a segment of a scalable topic."""
    return b"\x88\x02" + varint(lowest) + b"\x90\x02" + varint(highest)


def transaction_fields(transaction: TxnId) -> bytes:
    """Serializes a transaction's ids, to be appended to the metadata of its entries."""
    metadata = pb.MessageMetadata(
        txnid_most_bits=transaction.most_bits, txnid_least_bits=transaction.least_bits
    )
    return metadata.SerializePartialToString()
