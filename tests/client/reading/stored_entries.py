"""Entries as a broker would deliver them, made without one."""

import pyarrow as pa

from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.entry.codecs import compress
from pulsar_spark.wire.entry.entries import Entry

TOPIC = TopicName.parse("t-partition-3")


def columns(values, keys=None, **more) -> MessageColumns:
    return MessageColumns(
        value=pa.array(values, pa.binary()), key=pa.array(keys or [None] * len(values), pa.binary()), **more
    )


def metadata(**fields) -> pb.MessageMetadata:
    made = pb.MessageMetadata(**{"producer_name": b"p", "sequence_id": 0, "publish_time": 1000, **fields})
    return pb.MessageMetadata.FromString(made.SerializeToString())


def entry_of(ledger, entry, plain: bytes, *, compression=pb.NONE, **fields) -> Entry:
    """An entry of a payload that is compressed here."""
    fields = {"compression": compression, "uncompressed_size": len(plain), **fields}
    return Entry(ledger, entry, metadata(**fields), memoryview(compress(compression, plain)), None)


def batch_entry(ledger, entry, messages: MessageColumns, **fields) -> Entry:
    encoded = encode_batch_messages(messages)
    plain = bytes(memoryview(encoded.buffer)[encoded.offsets[0] : encoded.offsets[-1]])
    return entry_of(ledger, entry, plain, **{"num_messages_in_batch": len(messages), **fields})


def single_entry(ledger, entry, value: bytes | memoryview, **fields) -> Entry:
    return Entry(ledger, entry, metadata(**fields), memoryview(value), None)


def compacted_entry(ledger, entry, values: bytes, gone: set[int], index: int | None = None) -> Entry:
    """A batch of messages of one byte, of which compaction took some out."""
    parts = []
    for place in range(len(values)):
        head = pb.SingleMessageMetadata(payload_size=1, compacted_out=place in gone).SerializeToString()
        parts.append(len(head).to_bytes(4, "big") + head + values[place : place + 1])
    made = entry_of(ledger, entry, b"".join(parts), num_messages_in_batch=len(values))
    return made._replace(broker_index=index)


def bomb(count: int, **fields) -> Entry:
    """A few bytes that are, after ZSTD, a well-formed batch of ``count`` empty messages."""
    plain = b"\0\0\0\x02\x18\0" * count
    return entry_of(5, 6, plain, compression=pb.ZSTD, num_messages_in_batch=count, **fields)
