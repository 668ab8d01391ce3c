"""Several tasks for one topic partition: the same rows, each task's in order, and the same when replayed."""

import itertools

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from integration.chaos.messages import numbered
from integration.fixtures.spark import Collector, drain
from integration.helpers.triggers import Triggers, message_id
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.plan.batch import plan_read

LEDGERS, EACH, PER_ENTRY = 3, 120, 5
COUNT = LEDGERS * EACH


@pytest.fixture
def filled(peer, admin, topic):
    """A topic of several ledgers, with an empty one at its end; the broker keeps what a query has read."""
    admin.create_held_topic(topic)
    for first in range(0, COUNT, EACH):
        peer.produce(topic, numbered(EACH, first=first), batch_size=PER_ENTRY)
        admin.unload(topic)
    return topic


def values(count=COUNT):
    return [f"{number} " for number in range(count)]


def assert_adjacent(tasks):
    """Each begins where the one before ends; only the last one's end is a message that must be there."""
    assert all(one.end == other.start for one, other in itertools.pairwise(tasks))
    assert [task.visible for task in tasks] == [False] * (len(tasks) - 1) + [True]


def test_a_batch_read_in_several_tasks(pulsar_in_spark, filled):
    whole = pulsar_in_spark.read(filled).collect()
    rows = pulsar_in_spark.read(filled, minPartitions="7").withColumn("task", f.spark_partition_id())
    split = rows.collect()
    assert len({row.task for row in split}) == 7
    assert [bytes(row["__messageId"]) for row in split] == [bytes(row["__messageId"]) for row in whole]
    ids: dict[int, list[MessageId]] = {}
    for row in split:
        ids.setdefault(row.task, []).append(message_id(bytes(row["__messageId"])))
    assert all(each == sorted(each) for each in ids.values())
    assert [bytes(row.value).decode() for row in split] == values()


def test_a_stream_in_several_tasks_is_replayed_in_the_same(pulsar_in_spark, filled, checkpoint):
    rows = pulsar_in_spark.stream(filled, minPartitions="4", maxMessagesPerTrigger="200").select(
        "value", "__messageId", f.spark_partition_id().alias("task")
    )
    sink = Collector(fail_at={1})
    with pytest.raises(StreamingQueryException, match="InjectedError"):
        drain(rows, sink, checkpoint)
    sink.fail_at.clear()
    drain(rows, sink, checkpoint)
    first, again = sink.batches[1]
    assert first == again
    assert {row.task for row in first} == {0, 1, 2, 3}
    assert sink.values == values()


@pytest.mark.parametrize("most", [7, 45, 1000])
def test_no_task_has_more_messages_than_asked_for(cluster, filled, most):
    with Triggers(cluster.service_url, filled, maxMessagesPerPartition=str(most)) as triggers:
        (batch,) = triggers.available_now()
        again = triggers.planner.ranges(batch.start, batch.end)
        counts = [len(triggers.rows_of(task)) for task in batch.tasks]
        rows = triggers.rows(batch)
    assert batch.tasks == again
    assert_adjacent(batch.tasks)
    assert [value.decode() for _, _, value in rows] == values()
    assert max(counts) <= max(most, PER_ENTRY)
    assert len(counts) <= COUNT // max(PER_ENTRY, most // PER_ENTRY * PER_ENTRY) + LEDGERS


def test_more_tasks_than_entries(cluster, filled):
    given = {"service.url": cluster.service_url, "topic": filled, "minPartitions": "1000"}
    tasks = plan_read(parse_source(given, Mode.BATCH))
    assert_adjacent(tasks)
    assert len(tasks) == COUNT // PER_ENTRY
    with Triggers(cluster.service_url, filled) as triggers:
        assert [len(triggers.rows_of(task)) for task in tasks] == [PER_ENTRY] * len(tasks)
