"""Deduplicating tasks that close writers because rows name many topics, against the fake broker."""

import pyarrow as pa
import pytest

from pulsar_spark.client import TopicWriter
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.topic_writers import TopicWriters
from tests.client.clients import columns, producing
from tests.client.writing import dedup_tasks
from tests.client.writing.dedup_tasks import task_of
from tests.client.writing.topic_writers import parted, stored

broker = dedup_tasks.broker
OTHER = TopicName.parse("other")


def open_writers(client, task, max_open):
    options = producing(batching=False, batching_max_publish_delay=1000.0, send_timeout=3.0)

    def open_writer(name, options):
        return TopicWriter(client, name, options, dedup=task)

    return TopicWriters(open_writer, options, max_open, in_parallel=1, dedup=task)


def part(values, *numbers):
    return columns([each.encode() for each in values], partition=pa.array(numbers, pa.int32()))


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("max_open", [2, 1])
def test_a_strict_task_keeps_rows_of_a_closed_topic_until_it_has_found_all_stored_ones(
    client, broker, max_open
):
    topic = parted(broker, 2)
    broker.create(OTHER)
    first = task_of(client, 0, strict=True, required=True)
    with TopicWriter(client, topic, producing(batching=False), dedup=first) as writer:
        writer.send(part("ac", 0, 0))  # and dies before the other partition gets its rows
        writer.flush()
    first.close()
    task = task_of(client, 0, strict=True, required=True)
    with open_writers(client, task, max_open) as writers:
        writers.send([(topic, part("ab", 0, 1))])
        writers.send([(OTHER, columns([b"x"]))])
        writers.send([(topic, part("cd", 0, 1))])
        writers.finish()
    assert [sorted(each) for each in stored(broker, topic, 2)] == [[b"a", b"c"], [b"b", b"d"]]
