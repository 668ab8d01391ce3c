"""PartitionWriter: no order of events loses, doubles or moves a row, with deduplication and without."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import SendError
from pulsar_spark.protocol.writing import packer
from pulsar_spark.protocol.writing.batcher import Batcher
from pulsar_spark.protocol.writing.partition_writer import Step, WriterState
from pulsar_spark.protocol.writing.pending import EntryKind
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle, decode_batches
from tests.protocol.writing.partition_writers import (
    CUT,
    DROPPED,
    MAX_MESSAGE,
    PLACE,
    ids,
    metadata_of,
    new_writer,
    prove,
    rows,
    singles,
    success,
)

FULL, LOST, OPEN = WriterState.FULL, WriterState.LOST, WriterState.OPEN


def number(row):
    return struct.pack(">I", row)


def numbers(entry):
    payload = bytes(entry.payload)
    if entry.kind is EntryKind.SINGLE:
        return list(struct.unpack(">I", payload))
    values = decode_batches([payload], [entry.messages]).columns.value.to_pylist()
    return [struct.unpack(">I", value)[0] for value in values]


class Broker:
    """One topic partition, which knows a producer's last id if it deduplicates, and assembles chunks."""

    def __init__(self, *, deduplicates):
        self.deduplicates = deduplicates
        self.rows = []
        self.stored = []
        self.last = -1
        self._parts = {}

    def somebody_else(self, count):
        """Another program writes under the producer's name, to be dropped as a duplicate by nobody."""
        self.last += count

    def restart(self):
        """It takes ids from all that is stored: that of a message in chunks from its first chunk."""
        self.last = max([self.last, *(entry.highest_sequence_id for entry in self.stored)])

    def store(self, entry, reached):
        """Take an entry off the wire; return its receipt."""
        if self.deduplicates and entry.sequence_id <= self.last:
            reached["dropped as a duplicate"] += 1
            return entry.sequence_id, *DROPPED
        self.stored.append(replace(entry))  # heads of chunks change
        if entry.kind.is_chunk:
            metadata = metadata_of(entry)
            parts = self._parts.setdefault(metadata.uuid, [])
            assert metadata.chunk_id == len(parts)  # readers drop a message of which a chunk comes twice
            parts.append(bytes(entry.payload))
            if entry.kind is EntryKind.CHUNK:
                return entry.sequence_id, *PLACE
            assert len(parts) == metadata.num_chunks_from_msg
            assert b"".join(parts) == b"x" * 300
            self.rows.append(int(metadata.partition_key))
            reached["a message in chunks is stored"] += 1
        else:
            self.rows += numbers(entry)
        self.last = max(self.last, entry.highest_sequence_id)
        return entry.sequence_id, *PLACE


class World:
    """A writer, its owner, a connection with what is on its way, and a broker."""

    def __init__(self, deduplicates, reached):
        self.reached = reached
        self.writer = new_writer(max_messages=6, chunking=True)
        self.batcher = Batcher(3, MAX_MESSAGE - packer.METADATA_ROOM, 0.3)
        self.broker = Broker(deduplicates=deduplicates)
        self.wire, self.receipts = [], []
        self.added, self.acknowledged = 0, []
        self.now, self.attempts = 0.0, 0
        self.has_failed = False
        self.reconnect(0)

    def new_rows(self, count):
        self.added += count
        return [number(row) for row in range(self.added - count, self.added)]

    def add(self, packed):
        self.send(self.writer.add(list(packed), self.now))
        self.reached[self.writer.state] += 1

    def send(self, outgoing):
        self.wire += outgoing

    def add_rows(self, count):
        body, offsets = rows(*self.new_rows(count))
        batches = self.batcher.add(body, offsets, self.now)
        self.add(self.writer.packer.batch(batch, 5) for batch in batches)

    def close_batch(self, _=0):
        self.add(self.writer.packer.batch(batch, 5) for batch in self.batcher.take())

    def add_singles(self, count):
        self.close_batch()
        self.add(self.writer.packer.singles(singles(*self.new_rows(count)), 5))

    def add_large(self, _=0):
        self.close_batch()
        self.added += 1
        fields = pb.MessageMetadata(partition_key=b"%d" % (self.added - 1)).SerializePartialToString()
        large = EncodedSingle(memoryview(fields), memoryview(b"x" * 300))
        self.add(self.writer.packer.singles([large], 5))

    def store(self, count):
        taken, self.wire = self.wire[:count], self.wire[count:]
        self.receipts += [self.broker.store(entry, self.reached) for entry in taken]

    def acknowledge(self, count):
        taken, self.receipts = self.receipts[:count], self.receipts[count:]
        for receipt in taken:
            entry = self.writer.receipt(*receipt)
            assert self.writer.receipt(entry.sequence_id - 1, *PLACE) is None
            self.acknowledge_one(entry)
        if self.writer.can_resume:
            self.reached["resumed"] += 1
            self.send(self.writer.resume(self.now))

    def acknowledge_one(self, entry):
        if entry.kind is EntryKind.CHUNK:
            self.reached["a chunk is acknowledged"] += 1
        elif entry.kind is EntryKind.LAST_CHUNK:
            self.acknowledged.append(int(metadata_of(entry).partition_key))
        else:
            self.acknowledged += numbers(entry)

    def cut(self, _=0):
        self.wire, self.receipts = [], []
        self.writer.lost(CUT)
        assert self.writer.next_step(self.now) is Step.REOPEN

    def reconnect(self, fails):
        self.wire, self.receipts = [], []
        self.writer.registering()
        last = self.broker.last if self.broker.deduplicates else -1
        try:
            self.resend(last, fails)
        except SendError:
            self.has_failed = True

    def resend(self, last, fails):
        proof = self.writer.registered(success("p", last), MAX_MESSAGE)
        if proof is not None:
            self.reached["looked up"] += 1
            prove(proof, self.broker.stored)
        if fails > 3:
            self.writer.lost(CUT)
        self.attempts += 1
        self.send(self.writer.resend(str(self.attempts), self.now))
        if list(self.writer.window) and fails <= 3:
            self.reached["resent"] += 1

    def restart(self, count):
        """The broker restarts when so much of what is on the wire is stored."""
        self.store(count - 1)
        self.cut()
        self.broker.restart()
        self.reconnect(0)
        if self.has_failed:
            self.reached["failed"] += 1

    def somebody_else(self, count):
        """All that is on the wire, or nothing of it, is stored before another program has the name."""
        if count % 2:
            self.store(len(self.wire))
        self.cut()
        self.broker.somebody_else(count)
        self.reconnect(0)

    def lose_receipts(self, count):
        """All that is on the wire is stored, and some of the receipts are lost with the connection."""
        self.store(len(self.wire))
        self.acknowledge(count - 1)
        self.cut()
        self.reconnect(0)

    def lose_receipts_of_chunks(self, count):
        self.add_large()
        self.lose_receipts(min(count, 2))

    def wait(self, tenths):
        self.now += tenths / 10
        due = self.batcher.due_at
        if due is not None and due <= self.now:
            self.close_batch()

    def check(self):
        """Rows are stored and acknowledged in their order, each once; the window holds what it may."""
        assert self.acknowledged == list(range(len(self.acknowledged)))
        assert self.writer.tally.sent.messages == len(self.acknowledged)
        pending = list(self.writer.window)
        assert ids(pending) == sorted(ids(pending))
        # Chunks that were acknowledged come back where the message begins again: they are not counted.
        assert sum(entry.messages for entry in pending if entry.kind is not EntryKind.CHUNK) <= 6
        if self.broker.deduplicates:
            assert self.broker.rows == list(range(len(self.broker.rows)))
        assert len(self.acknowledged) <= len(set(self.broker.rows)) <= self.added

    def finish(self):
        """Send and acknowledge all that is left."""
        if self.writer.state is not OPEN and self.writer.state is not FULL:
            self.reconnect(0)
        self.close_batch()
        while self.wire or self.receipts:
            self.store(10)
            self.acknowledge(10)
        assert (bool(self.writer.window), self.writer.has_waiting, self.writer.state) == (False, False, OPEN)
        assert self.acknowledged == list(range(self.added))
        first_seen = list(dict.fromkeys(self.broker.rows))
        assert first_seen == list(range(self.added))
        self.reached["finished"] += 1


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(World.add_rows, World.close_batch, World.add_singles, World.add_large),
                *(World.store, World.store, World.acknowledge, World.acknowledge),
                *(World.cut, World.reconnect, World.lose_receipts, World.lose_receipts_of_chunks, World.wait),
                World.restart,
            ]
        ),
        st.integers(1, 5),
    ),
    max_size=60,
)


# Reaches by itself all that is counted below.
ALL_OF_THEM = [
    *((World.add_rows, 5), (World.add_large, 1), (World.store, 3), (World.acknowledge, 2)),
    *((World.cut, 1), (World.add_singles, 5), (World.reconnect, 5), (World.reconnect, 1)),
    *((World.store, 9), (World.acknowledge, 9), (World.store, 9), (World.acknowledge, 9)),
    *((World.add_large, 1), (World.store, 1), (World.acknowledge, 1), (World.lose_receipts, 1)),
    *((World.store, 9), (World.acknowledge, 9), (World.add_rows, 1), (World.wait, 5)),
    *((World.store, 9), (World.acknowledge, 9)),
]
ALWAYS = (
    *(FULL, LOST, OPEN, "resent", "resumed", "finished"),
    *("a message in chunks is stored", "a chunk is acknowledged"),
)


@pytest.mark.parametrize("deduplicates", [True, False])
def test_no_order_of_events_loses_doubles_or_moves_a_row(deduplicates):
    """But for doubling where the broker does not deduplicate."""
    reached = Counter()

    @settings(max_examples=100)
    @given(EVENTS)
    @example(ALL_OF_THEM)
    @example([(World.add_large, 1), (World.restart, 2)])
    def run(events):
        world = World(deduplicates, reached)
        for event, number in events:
            event(world, number)
            world.check()
            if world.has_failed:
                return
        world.finish()
        world.check()

    run()
    expected = {*ALWAYS, "looked up", "dropped as a duplicate", "failed"} if deduplicates else {*ALWAYS}
    assert expected <= {what for what, times in reached.items() if times}
    assert reached["finished"] >= 50


def test_what_somebody_else_writes_under_the_name_is_an_error_whatever_came_before():
    reached = Counter()

    @settings(max_examples=100)
    @given(EVENTS, st.integers(1, 5))
    @example([(World.add_rows, 5), (World.close_batch, 1)], 2)
    @example([(World.add_rows, 5), (World.close_batch, 1)], 3)
    @example([(World.add_rows, 1), (World.add_rows, 4), (World.add_large, 1)], 1)
    def run(events, count):
        world = World(True, reached)
        for event, number in events:
            event(world, number)
            if world.has_failed:
                return
        if world.writer.state is LOST:
            world.reconnect(0)
        world.add_singles(5)
        pending = list(world.writer.window)
        world.somebody_else(count)
        assert world.has_failed
        reached["inside what is pending"] += bool(pending) and world.broker.last <= max(
            entry.highest_sequence_id for entry in pending
        )

    run()
    assert reached["inside what is pending"] >= 10
