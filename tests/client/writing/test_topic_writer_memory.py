"""TopicWriter and memory: what the writers of a task share."""

import threading
from contextlib import suppress

import pyarrow as pa
import pytest

from pulsar_spark.errors import QueueFullError
from pulsar_spark.protocol.writing.batcher import BatcherBuilder
from pulsar_spark.protocol.writing.pending import MemoryBudget
from tests.client.clients import columns
from tests.client.writing.topic_writers import keys, open_writer, parted, stored
from tests.fake_broker import HANG, Held
from tests.fake_clients import Type


def test_writers_of_a_task_share_its_memory(broker, client):
    """Each partition has its part of the limit, and all together have no more than the limit."""
    held = Held(broker)
    broker.script(Type.SEND, [held] * 10**4)
    memory = MemoryBudget(5000, threading.Lock())
    topics = [parted(broker, 2, f"topic-{number}") for number in range(10)]
    writers = [
        open_writer(client, topic, memory=memory, batching=False, block_if_queue_full=False)
        for topic in topics
    ]
    for _ in range(20):
        for writer in writers:
            with suppress(QueueFullError):
                writer.send(columns([b"x" * 60]))
    sizes = pending_bytes(*writers)
    assert len(sizes) == 20
    assert 3000 < sum(sizes) <= 5000
    assert max(sizes) <= 250
    for writer in writers:
        writer.close()
    assert memory.part == 5000


def pending_bytes(*writers):
    """The bytes that are pending in each open producer."""
    producers = [producer for writer in writers for producer in writer._producers.values()]
    return [sum(entry.size for entry in producer.pending) for producer in producers]


@pytest.mark.parametrize("options", [{}, {"batching_max_bytes": 0, "batching_max_messages": 0}])
@pytest.mark.parametrize("is_keyed", [False, True])
def test_batches_are_no_larger_than_the_memory_of_their_partition(broker, client, options, is_keyed):
    """What four partitions have pending is never more than the limit, though each has room for a batch."""
    if is_keyed:
        options = {**options, "batcher_builder": BatcherBuilder.KEY_BASED}
    topic, limit, highest = parted(broker, 4), 40_000, 0
    with open_writer(client, topic, memory_limit=limit, **options) as writer:

        def look(connection, frame):
            nonlocal highest
            highest = max(highest, sum(pending_bytes(writer)))
            connection.handle(frame)

        broker.script(Type.SEND, [look] * 10**4)
        for _ in range(5):
            rows = [b"x" * 100] * 2000
            partition = pa.array([number % 4 for number in range(2000)], pa.int32())
            writer.send(columns(rows, partition=partition, key=keys(*["k"] * 2000)))
        writer.flush()
    assert [len(each) for each in stored(broker, topic, 4)] == [2500] * 4
    assert 0 < highest <= limit


def test_a_writer_that_has_more_than_its_part_waits_for_receipts_when_another_one_is_opened(broker, client):
    held = Held(broker)
    memory = MemoryBudget(10_000, threading.Lock())
    first, second = (parted(broker, 1, f"topic-{number}") for number in range(2))
    with open_writer(client, first, memory=memory, batching=False) as writer:
        broker.script(Type.SEND, [held] * 80)
        writer.send(columns([b"x" * 60] * 80))
        assert pending_bytes(writer)[0] > 5000
        with open_writer(client, second, memory=memory, batching=False):
            fitting = threading.Thread(target=writer.fit)
            fitting.start()
            fitting.join(0.05)
            assert fitting.is_alive()
            held.release()
            fitting.join(HANG)
            assert not fitting.is_alive()
            assert pending_bytes(writer)[0] <= 5000


def test_an_open_batch_that_is_more_than_its_part_is_sent(broker, client):
    memory = MemoryBudget(10_000, threading.Lock())
    first, second = (parted(broker, 1, f"topic-{number}") for number in range(2))
    with open_writer(client, first, memory=memory) as writer:
        writer.send(columns([b"x" * 600] * 9))
        with open_writer(client, second, memory=memory):
            writer.fit()
            assert len(broker.seen(Type.SEND)) == 1
            assert pending_bytes(writer) == [0]
