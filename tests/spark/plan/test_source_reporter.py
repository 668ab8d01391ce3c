"""The sampler, on topics in memory."""

import threading

import pytest

from pulsar_spark.errors import ConnectError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.source_report import EntryMeans
from pulsar_spark.spark.plan.source_reporter import EntrySampler, Waiting

T = TopicName.parse("t")
BEGIN = MessageId(10, -1)


def waiting(topic, entries=5):
    return {T: Waiting(BEGIN, topic.last, entries)}


def test_the_first_probe_is_waited_for(cluster, topic):
    topic.produce(5, messages=20)
    sampler = EntrySampler(cluster)
    assert sampler.means is None
    sampler.refresh(waiting(topic))
    assert sampler.means == EntryMeans(20.0, 2000.0)
    assert cluster.open_readers == 0


def test_nothing_is_probed_where_nothing_waits_or_too_soon(cluster, topic):
    sampler = EntrySampler(cluster)
    sampler.refresh({})
    sampler.refresh({T: Waiting(BEGIN, BEGIN)})
    assert sampler.means is None
    topic.produce(1, messages=4)
    sampler.refresh(waiting(topic))
    topic.produce(99, messages=100)
    cluster.clock += 9.0
    sampler.refresh(waiting(topic))
    assert sampler.means == EntryMeans(4.0, 400.0)


def test_the_mean_follows_what_is_written(cluster, topic):
    sampler = EntrySampler(cluster)
    topic.produce(1)
    sampler.refresh(waiting(topic))
    assert sampler.means == EntryMeans(1.0, 100.0)
    probes = 0
    while sampler.means != EntryMeans(50.0, 5000.0):
        position = topic.last
        topic.produce(2, messages=50)
        cluster.clock += 11.0
        sampler.refresh({T: Waiting(position, topic.last, 2)})
        for thread in threading.enumerate():
            if thread.name == "pulsar planner":  # later probes are not waited for
                thread.join()
        probes += 1
    assert probes >= 8


def test_the_longest_backlog_is_probed(cluster):
    first, second = cluster.create("t", 2)
    first.produce(1, messages=3)
    second.produce(2, messages=7)
    sampler = EntrySampler(cluster)
    one, two = Waiting(BEGIN, first.last, 1), Waiting(BEGIN, second.last, 2)
    sampler.refresh({T.of_partition(0): one, T.of_partition(1): two})
    assert sampler.means.messages == 7.0


def test_parts_of_chunked_messages_complete_one(cluster, topic):
    topic.produce(4, chunks=True)
    sampler = EntrySampler(cluster)
    sampler.refresh(waiting(topic))
    assert sampler.means.messages == 0.25


@pytest.mark.parametrize("error", [ConnectError("gone"), RuntimeError("a bug")])
def test_a_probe_that_fails_disturbs_nobody(cluster, topic, error):
    topic.produce(5, messages=20)
    cluster.failing[T] = error
    sampler = EntrySampler(cluster)
    found = []
    for _ in range(2):
        sampler.refresh(waiting(topic))
        found.append(sampler.means)
        cluster.failing.clear()
        cluster.clock += 11.0
    assert found == [None, EntryMeans(20.0, 2000.0)]
