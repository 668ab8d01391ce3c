"""Partition writers for tests, and what their entries hold."""

from __future__ import annotations

import numpy as np

from pulsar_spark.errors import AuthError, ConnectError, TerminatedError, TopicNotFoundError
from pulsar_spark.protocol.writing.packer import METADATA_ROOM, Packer
from pulsar_spark.protocol.writing.partition_writer import PartitionWriter, WriterState
from pulsar_spark.protocol.writing.pending import EntryKind, MemoryBudget, Outgoing, PendingWindow
from pulsar_spark.protocol.writing.stored_ids import StoredIds
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle
from pulsar_spark.wire.entry.entries import Entry
from pulsar_spark.wire.frames import decode_payload_section
from tests.wire.columns.batch_rows import message

TOPIC = "persistent://a/b/t"
TIMEOUT = 30.0
MAX_MESSAGE = METADATA_ROOM + 200
FULL_AT = 2  # messages in the window
PLACE = 7, 1
DROPPED = -1, -1
CUT = ConnectError("the connection broke")
FINAL = TopicNotFoundError("no such topic")
TERMINATED = TerminatedError("terminated")
REGISTERING, OPEN, FULL, LOST, SEALED, FAILED, CLOSED = WriterState


def new_packer(*, chunking=False, **options):
    return Packer(TOPIC, pb.NONE, chunking=chunking, chunk_max_message_size=None, **options)


def new_writer(
    *, max_messages=FULL_AT, chunking=False, is_shared_name=True, budget=None, keeps_rows=False, **options
):
    packer = new_packer(chunking=chunking, keeps_rows=keeps_rows)
    window = PendingWindow(TOPIC, max_messages, budget or MemoryBudget(10**6), TIMEOUT)
    stored = StoredIds(TOPIC, is_shared_name=is_shared_name)
    return PartitionWriter(TOPIC, packer, window, stored, **options)


def register(writer, last=-1, now=0.0, *, stored=(), name="p"):
    """Register and resend, as an owner does who finds entries stored; returns what goes on the wire."""
    writer.registering()
    proof = writer.registered(success(name, last), MAX_MESSAGE)
    if proof is not None:
        prove(proof, stored)
    return writer.resend("1", now)


def success(name, last=-1, topic_epoch=None, schema_version=b""):
    """A broker's answer to the registration of a producer."""
    return pb.CommandProducerSuccess(
        request_id=1,
        producer_name=name,
        last_sequence_id=last,
        topic_epoch=topic_epoch,
        schema_version=schema_version,
    )


def prove(proof, stored):
    """Give a proof entries as the broker has stored them."""
    for entry in stored:
        section = decode_payload_section(memoryview(entry.head + bytes(entry.payload)))
        proof.take(Entry(7, 1, *section))


def singles(*values):
    return [EncodedSingle(memoryview(b""), memoryview(value)) for value in values]


def outgoing(sequence_id, messages=1, size=10):
    return entry_of(sequence_id, messages, b"h" * 4, b"p" * (size - 4))


def entry_of(sequence_id, messages, head, payload, kind=EntryKind.BATCH):
    return Outgoing(sequence_id, sequence_id + messages - 1, messages, head, payload, kind)


def chunk(sequence_id, kind=EntryKind.CHUNK):
    return entry_of(sequence_id, 1, b"head", b"payload", kind)


def entries(writer, count=1):
    return list(writer.packer.singles(singles(*[b"x"] * count), 5))


def rows(*values):
    """Encoded rows of a batch, with their offsets; each is 6 bytes longer than its value."""
    messages = [message(value) for value in values]
    return memoryview(b"".join(messages)), np.cumsum([0, *map(len, messages)], dtype=np.int64)


def metadata_of(entry):
    return decode_payload_section(memoryview(entry.head + bytes(entry.payload))).metadata


def ids(entries):
    return [entry.sequence_id for entry in entries]


def writer_in(state, **options):
    """A writer in a state, with entry 0 pending; if it is full, 1 is pending too, and 2 waits."""
    writer = new_writer(**{"is_segment": state is SEALED, **options})
    register(writer)
    writer.add(entries(writer), 0.0)
    if state is REGISTERING:
        writer.registering()
        writer.registered(success("p", -1), MAX_MESSAGE)
    elif state is FULL:
        writer.add(entries(writer, 2), 0.0)
    elif state is LOST:
        writer.lost(CUT)
    elif state is SEALED:
        writer.lost(TERMINATED)
    elif state is FAILED:
        writer.lost(CUT)
        writer.give_up(AuthError("no right") if options.get("is_segment") else FINAL)
    elif state is CLOSED:
        writer.close()
    assert writer.state is state
    return writer


def large(writer):
    return list(writer.packer.singles(singles(b"x" * 500), 5))


def with_pending(count, **options):
    """A writer that has lost its connection, with ids 0 to count - 1 pending; and its entries."""
    writer = new_writer(max_messages=10, **options)
    register(writer)
    added = entries(writer, count)
    writer.add(added, 0.0)
    writer.lost(CUT)
    return writer, added
