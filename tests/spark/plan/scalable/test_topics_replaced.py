"""Streams of topics that become scalable, or are deleted and made again."""

import pytest

from pulsar_spark.errors import DataLossError
from tests.spark.plan.scalable.scalable_queries import KEYS, assert_complete, play, query
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import SimulatedSpark


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("left", [0, 5])
def test_a_query_moves_with_a_topic_that_becomes_scalable(cluster, partitions, left):
    """Its old partitions have left the layout when it starts: nobody was registered."""
    old = cluster.create("t", partitions, ledger=1000)
    spark = SimulatedSpark(cluster, "t", startingOffsets="earliest")
    for each in old:
        each.produce(3)
    spark.drain()
    for each in old:
        each.produce(left)
    spark.planner.close()
    topic = ScalableTopic(cluster, "topic://public/default/t", list(cluster.topics))
    play("write clean clean", topic)
    assert topic.sealed == []
    spark.start(topic=str(topic.name), admin__url="http://localhost:1", maxMessagesPerTrigger="2")
    play("drain write restart drain", topic, spark)
    count = len(old) * (3 + left)
    assert not any(name.is_segment for name, _ in spark.rows[:count])
    assert len(set(spark.rows)) == len(spark.rows) == count + 2 * len(KEYS)


def test_old_partitions_that_leave_the_layout_while_they_are_read_come_first(cluster):
    (old,) = cluster.create("t", ledger=1000)
    old.produce(6)
    topic = ScalableTopic(cluster, "topic://public/default/t", list(cluster.topics))
    topic.write(KEYS)
    spark = query(topic, cluster, maxMessagesPerTrigger="2")
    spark.trigger()
    cluster.registered[topic.name].clear()
    play("clean drain", topic, spark)
    assert not any(name.is_segment for name, _ in spark.rows[:6])
    assert len(spark.rows) == 6 + len(KEYS)


def test_an_old_partition_that_is_really_gone_is_reported(cluster):
    (old,) = cluster.create("t", ledger=1000)
    old.produce(6)
    spark = SimulatedSpark(cluster, "t", startingOffsets="earliest")
    spark.drain()
    spark.planner.close()
    topic = ScalableTopic(cluster, "topic://public/default/t", list(cluster.topics))
    topic.clean_up()
    cluster.delete("t")
    topic.write(KEYS)
    spark.start(topic=str(topic.name), admin__url="http://localhost:1")
    with pytest.raises(DataLossError, match="persistent://public/default/t"):
        spark.trigger()
    spark.restart(failOnDataLoss="false")
    spark.drain()
    assert len(spark.rows) == 6 + len(KEYS)


def test_an_old_partition_that_is_deleted_while_it_is_read_holds_no_segment_back(cluster):
    (old,) = cluster.create("t", ledger=1000)
    old.produce(3)
    spark = SimulatedSpark(cluster, "t", startingOffsets="earliest")
    spark.drain()
    topic = ScalableTopic(cluster, "topic://public/default/t", list(cluster.topics))
    old.topic_end = None
    play("write clean clean", topic)
    spark.restart(topic=str(topic.name), admin__url="http://localhost:1")
    assert spark.drain() == []
    cluster.delete("t")
    assert len(spark.drain()) == len(KEYS)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_that_is_made_again_is_not_taken_as_read(cluster, topic, restarts):
    """Its segments have the same names, of which the query has read one to the end."""
    spark = query(topic, cluster, failOnDataLoss="false")
    play("write split drain", topic, spark)
    for name in [name for name in cluster.topics if name.is_segment]:
        del cluster.topics[name]
    again = ScalableTopic(cluster)
    cluster.layouts[topic.name] = cluster.layouts[topic.name]._replace(epoch=9)
    again.write(KEYS)
    for _ in range(2 if restarts else 1):
        if restarts:
            spark.restart()
        with pytest.raises(DataLossError, match=r"created again.*0000-ffff-0"):
            spark.drain()


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("splits", [1, 2])
def test_a_topic_that_is_made_again_and_split_is_not_taken_as_read(cluster, topic, fails, splits):
    """Its sealed segment has the name of one that is done, and newer ledgers than what its children had."""
    spark = query(topic, cluster, failOnDataLoss=fails)
    play("write split", topic)
    for _ in range(splits):
        play("write drain", topic, spark)
        if splits == 2:
            topic.split(topic.active[0])
    spark.planner.close()
    for name in [name for name in cluster.topics if name.is_segment]:
        del cluster.topics[name]
    again = ScalableTopic(cluster, ledger=100)
    for _ in range(splits):
        again.write(KEYS)
        again.split(again.active[0])
    again.write(KEYS)
    cluster.layouts[topic.name] = cluster.layouts[topic.name]._replace(epoch=9)
    for _ in range(2):
        spark.start()
        with pytest.raises(
            DataLossError, match=r"(is newer than what it read after|takes messages).*created again"
        ):
            spark.drain()
        spark.planner.close()


def test_a_parent_that_got_a_ledger_while_it_was_split_is_not_another_one(cluster, topic):
    """Its last ledger is newer than those of its children; its first one is not."""
    spark = query(topic, cluster)
    topic.write(KEYS)
    parent = topic.active[0]
    cluster.topics[parent].roll_over(50)
    topic.write(KEYS)
    topic.split(parent)
    play("write drain restart drain", topic, spark)
    assert_complete(topic, spark)
