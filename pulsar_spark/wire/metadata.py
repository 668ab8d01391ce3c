"""MessageMetadata of the entries that this client sends."""

from __future__ import annotations

from pulsar_spark.ids import TxnId
from pulsar_spark.wire import pulsar_pb2 as pb


def batch_metadata(
    producer_name: str,
    sequence_id: int,
    publish_time: int,
    messages: int,
    compression: pb.CompressionType,
    uncompressed_size: int,
) -> bytes:
    """Serialize the metadata of a batch of ``messages``, the first of which has ``sequence_id``.

    Args:
        producer_name: of the producer that sends it.
        sequence_id: of the first message.
        publish_time: ms since the epoch.
        messages: how many there are.
        compression: of the payload.
        uncompressed_size: bytes of the batch before compression.
    """
    metadata = pb.MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        num_messages_in_batch=messages,
        highest_sequence_id=sequence_id + messages - 1,
        uncompressed_size=uncompressed_size,
    )
    if compression != pb.NONE:
        metadata.compression = compression
    return metadata.SerializeToString()


def single_metadata_head(producer_name: str, sequence_id: int, publish_time: int) -> bytes:
    """Serialize the three required fields; a message's own fields may follow as they are."""
    metadata = pb.MessageMetadata(
        producer_name=producer_name, sequence_id=sequence_id, publish_time=publish_time
    )
    return metadata.SerializeToString()


def single_metadata_tail(compression: pb.CompressionType, uncompressed_size: int) -> bytes:
    """Serialize what a compressed message says of its payload, to be appended to its other fields."""
    metadata = pb.MessageMetadata(compression=compression, uncompressed_size=uncompressed_size)
    return metadata.SerializePartialToString()


def transaction_fields(transaction: TxnId) -> bytes:
    """Serialize the ids of a transaction, to be appended to the metadata of an entry that belongs to it."""
    metadata = pb.MessageMetadata(txnid_most_bits=transaction.most, txnid_least_bits=transaction.least)
    return metadata.SerializePartialToString()
