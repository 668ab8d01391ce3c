"""QueryPlanner on a cluster in memory: compacted topics."""

import pytest

from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import SimulatedSpark, T, at


@pytest.mark.parametrize("options", [{"startingOffsets": "earliest"}, {"startingTime": "0"}])
@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize("fails", [True, False])
def test_what_compaction_left_begins_before_the_log(options, later, fails):
    cluster = SimulatedCluster(read_compacted=True)
    (topic,) = cluster.create("t")
    topic.produce(6)
    topic.compact_and_trim(at("10:1"), at("10:4"))
    topic.produce(later)
    spark = SimulatedSpark(cluster, readCompacted="true", **options)
    spark.trigger(fails=fails)
    if fails:
        spark.restart()
    for _ in range(3):
        spark.drain()
        expected = [at("10:1"), at("10:4"), *topic.ids]
        assert spark.rows == [(T, each) for each in expected]
        topic.produce(1)
        spark.play("drain restart")


def test_a_log_that_compaction_has_emptied_behind_a_query_is_no_loss():
    """What is kept ends before what is processed: the last messages were replaced, or deleted."""
    cluster = SimulatedCluster(read_compacted=True)
    (topic,) = cluster.create("t")
    spark = SimulatedSpark(cluster, startingOffsets="earliest", readCompacted="true")
    read = topic.produce(6)
    spark.drain()
    topic.compact_and_trim(at("10:1"), at("10:4"))
    assert spark.drain() == []
    spark.restart()
    assert spark.drain() == []
    read += topic.produce(2)
    spark.drain()
    assert spark.rows == [(T, each) for each in read]


@pytest.mark.parametrize("stopped", [True, False])
def test_what_compaction_left_of_a_new_topic_is_read(stopped):
    cluster = SimulatedCluster(read_compacted=True)
    cluster.create("t", 1)
    spark = SimulatedSpark(cluster, startingOffsets="latest", readCompacted="true")
    spark.drain()
    (new,) = cluster.create("t", 2)
    new.produce(6)
    new.compact_and_trim(at("10:1"), at("10:4"))
    cluster.clock += 100.0
    if stopped:
        spark.restart()
    for _ in range(2):
        spark.drain()
        assert [entry for _, entry in spark.rows] == [at("10:1"), at("10:4"), *new.ids]
        new.produce(1)
