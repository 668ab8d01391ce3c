"""A query's move to another cluster, in Spark's order, on clusters in memory."""

import json
import logging
from dataclasses import replace

import pytest

from pulsar_spark.client import Source
from pulsar_spark.errors import DataLossError, OtherClusterError
from tests.spark.plan.cluster_pair import TIME, Pair, begun, begun_in_two, last, move, unfinished_in_two
from tests.spark.plan.simulated_spark import SimulatedSpark, T, at


@pytest.mark.parametrize("ledger", [7, 10, 13], ids=["smaller ids", "same ids", "larger ids"])
def test_it_goes_on_after_what_it_has_read(ledger, caplog):
    pair = Pair(ledger)
    spark = begun(pair)
    pair.topic("a").produce(3, time=TIME + 1)
    pair.copy()
    if ledger == 10:
        pair.topic("b").entries[4] = replace(pair.topic("b").entries[4], id=at("10:4"))
    move(spark, pair.b)
    with caplog.at_level(logging.WARNING):
        rows = spark.drain()
    assert pair.origins(rows) == [("a", at(f"10:{n}")) for n in (5, 6, 7)]
    (told,) = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert "from cluster 'a' to the one of pulsar://localhost:1" in told
    assert "10:7, published 1970-01-01T00:16:40.001+00:00" in told
    assert last(spark).left.positions == {T: at("10:4")}
    assert pair.topic("b").cursors["s"] == last(spark).positions[T]


def test_a_move_reads_few_of_many_entries():
    """Each probe needs one entry; the search for own entries goes over those of the margin."""
    pair = Pair()
    for number in range(100):
        for name in "ab":
            pair.topic(name).produce(20, time=TIME + 1000 * number)
        pair.copy()
    spark = SimulatedSpark(pair.a, startingOffsets="earliest", publishTimeMargin="1s")
    spark.drain()
    pair.topic("a").produce(20, time=TIME + 100_000)
    pair.copy()
    move(spark, pair.b)
    spark.drain()
    assert last(spark).left is not None
    assert sum(pair.b.probed) < 1500  # of 4,020 entries
    assert len(pair.b.probed) < 100


def test_a_query_that_has_read_nothing_yet_moves():
    """It began at the end of its topic."""
    pair = Pair()
    pair.topic("a").produce(3, time=TIME)
    spark = SimulatedSpark(pair.a, predefinedSubscription="s", publishTimeMargin="0")
    spark.drain()
    pair.topic("a").produce(2, time=TIME)
    pair.copy()
    move(spark, pair.b)
    assert pair.origins(spark.drain()) == [("a", at("10:3")), ("a", at("10:4"))]


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("ledger", [7, 10, 13], ids=["smaller ids", "same ids", "larger ids"])
def test_a_query_that_began_in_an_empty_topic_loses_nothing_in_silence(ledger, is_held):
    """It has no witness yet."""
    pair = Pair(ledger)
    spark = SimulatedSpark(pair.a, startingOffsets="latest", predefinedSubscription="s")
    spark.drain()
    assert last(spark).witness is None
    pair.topic("a").produce(4, time=TIME)
    pair.copy()
    if is_held:
        pair.topic("b").cursors["s"] = pair.topic("b").begin
    move(spark, pair.b)
    if ledger == 10 or (ledger == 13 and is_held):
        assert len(spark.drain()) == 4
    else:
        with pytest.raises(DataLossError, match=r"another cluster|was removed"):
            spark.trigger()
        spark.restart()
        with pytest.raises(DataLossError):
            spark.trigger()


def test_the_move_itself_has_no_rows_and_is_checkpointed_first():
    pair = Pair()
    spark = begun(pair)
    pair.copy()
    move(spark, pair.b)
    before = list(spark.offsets)
    assert spark.trigger() == []
    assert last(spark).witness.source == ("a", at("10:4"))
    assert len(spark.offsets) == len(before) + 1
    assert pair.topic("b").cursors == {}  # so that a start finds the same until Spark has the move
    spark.offsets, spark.committed = before, len(before)
    spark.restart()
    assert spark.drain() == []
    assert last(spark).left is not None


def test_a_run_ends_between_the_move_and_its_batch():
    pair = Pair()
    spark = begun(pair)
    pair.topic("a").produce(2, time=TIME)
    pair.copy()
    move(spark, pair.b)
    spark.trigger(fails=True)
    spark.restart()
    assert pair.origins(spark.drain()) == [("a", at("10:5")), ("a", at("10:6"))]


def test_what_was_read_before_it_was_copied_is_left_out():
    pair = Pair()
    spark = begun(pair)
    pair.copy(count=2)
    spark.offsets[-1] = json.dumps(
        replace(last(spark), witness=replace_id(last(spark).witness, "10:1")).to_json()
    )
    move(spark, pair.b)
    assert spark.drain() == []
    pair.topic("a").produce(1, time=TIME)
    pair.copy()
    assert pair.origins(spark.drain()) == [("a", at("10:5"))]
    pair.copy(back=4)
    spark.restart()
    assert spark.drain() == [(T, at("10:9"))]  # 10:5 again, as for each reader; the others are left out


def replace_id(witness, text):
    return witness._replace(id=at(text))


def test_a_cluster_that_was_built_anew_is_read():
    pair = Pair()
    spark = begun(pair)
    pair.copy()
    move(spark, pair.b)
    spark.drain()
    pair.a.create("t", ledger=10)
    pair.topic("a").produce(3, time=TIME + 10**9)
    pair.sent.clear()
    pair.copy()
    assert len(spark.drain()) == 3


@pytest.mark.parametrize("count", [0, 2, 4])
def test_an_unfinished_micro_batch_has_the_same_rows(count, caplog):
    pair = Pair()
    spark = begun(pair)
    pair.topic("a").produce(4, time=TIME)
    spark.trigger(fails=True)
    pair.topic("a").produce(2, time=TIME)
    pair.copy(count=5 + count)
    move(spark, pair.b)
    if count < 4:
        with pytest.raises(DataLossError, match=rf"not been copied.*/t; message \(10:{4 + count}, 10:8\]"):
            spark.trigger()
        spark.restart(failOnDataLoss="false")
    assert pair.origins(spark.trigger()) == [("a", at(f"10:{n}")) for n in range(5, 5 + count)]
    pair.copy()
    # What was reported as lost stays so.
    assert pair.origins(spark.drain()) == [("a", at("10:9")), ("a", at("10:10"))]


def test_an_unfinished_micro_batch_ends_where_it_did_though_entries_were_sent_again():
    pair = Pair()
    spark = begun(pair)
    pair.topic("a").produce(4, time=TIME)
    spark.trigger(fails=True)
    pair.topic("a").produce(2, time=TIME)
    pair.copy()
    pair.copy(back=6)  # a search among the copies may find the second ones
    move(spark, pair.b)
    again, rows = pair.origins(spark.trigger()), pair.origins(spark.drain())
    assert set(again) == {("a", at(f"10:{number}")) for number in range(5, 9)}
    assert rows == [("a", at("10:9")), ("a", at("10:10"))]


@pytest.mark.parametrize(("time", "is_read"), [(TIME - 60_000, True), (TIME - 60_001, False)])
def test_own_messages_are_read_again_from_the_margin_on(time, is_read):
    pair = Pair()
    spark = begun(pair)
    spark.options["publishTimeMargin"] = "60s"
    pair.topic("b").produce(1, time=time)
    pair.copy()
    move(spark, pair.b)
    assert pair.origins(spark.drain()) == [("b", at("10:0"))] * is_read


def test_an_unfinished_micro_batch_that_was_not_copied_at_all():
    """Nor was anything before it, in this partition."""
    pair = Pair(partitions=2)
    for number in range(2):
        pair.topic("a", number).produce(3, time=TIME)
    spark = SimulatedSpark(
        pair.a, startingOffsets="earliest", publishTimeMargin="0", maxMessagesPerTrigger="4"
    )
    spark.trigger()
    spark.trigger(fails=True)
    pair.copy(number=0)
    move(spark, pair.b)
    spark.restart(failOnDataLoss="false")
    assert {topic for topic, _ in spark.trigger()} == {T.of_partition(0)}


def test_an_unfinished_micro_batch_with_a_new_partition():
    pair = Pair(partitions=1)
    pair.topic("a", 0).produce(3, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest", publishTimeMargin="0")
    spark.drain()
    for each in (pair.a, pair.b):
        each.create("t", 2)
    pair.a.clock += 61
    pair.topic("a", 1).produce(2, time=TIME)
    spark.trigger(fails=True)
    assert T.of_partition(1) in last(spark).positions
    for number in range(2):
        pair.copy(number=number)
    move(spark, pair.b)
    assert pair.origins(spark.trigger()) == [("a", at("10:0")), ("a", at("10:1"))]


def test_an_unfinished_first_micro_batch_is_refused():
    pair = Pair()
    pair.topic("a").produce(4, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest", publishTimeMargin="0")
    spark.trigger(fails=True)
    pair.copy()
    move(spark, pair.b)
    with pytest.raises(OtherClusterError, match="first micro-batch did not finish"):
        spark.trigger()


def test_copies_that_are_gone_are_a_loss():
    pair, spark = begun_in_two()
    for number in range(2):
        pair.copy(number=number)
    pair.topic("b", 1).roll_over(trims=True)
    pair.topic("a", 1).produce(2, time=TIME)
    pair.copy(number=1)
    del pair.topic("b", 1).entries[0]
    move(spark, pair.b)
    with pytest.raises(DataLossError, match=r"no copy of a message up to there.*t-partition-1;"):
        spark.trigger()
    spark.restart(failOnDataLoss="false")
    assert pair.origins(spark.drain()) == [("a", at("10:4"))]


def test_a_partition_that_is_missing_is_a_loss():
    pair, spark = begun_in_two()
    pair.copy(number=0)
    pair.copy(number=1)
    del pair.b.topics[T.of_partition(1)]
    pair.b._partitioned[T] = 1
    move(spark, pair.b)
    with pytest.raises(DataLossError):
        spark.trigger()


def test_copies_of_an_unfinished_micro_batch_that_are_gone_are_a_loss():
    pair, spark = unfinished_in_two()
    del pair.topic("b", 1).entries[:4]
    move(spark, pair.b)
    with pytest.raises(DataLossError, match=r"no copy of .*t-partition-1; message \(10:2, the end\]"):
        spark.trigger()


def test_a_partition_without_copies_is_named(caplog):
    pair = Pair(partitions=2)
    pair.topic("a", 0).produce(1, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest")
    spark.drain()
    pair.copy(number=0)
    move(spark, pair.b)
    with caplog.at_level(logging.WARNING):
        spark.drain()
    assert "t-partition-1: none. Messages after it" in caplog.text


def test_a_partition_of_an_unfinished_micro_batch_that_is_missing_is_a_loss():
    pair, spark = unfinished_in_two()
    del pair.b.topics[T.of_partition(1)]
    pair.b._partitioned[T] = 1
    move(spark, pair.b)
    with pytest.raises(DataLossError, match=r"the topic was deleted.*t-partition-1;"):
        spark.trigger()
    spark.restart(failOnDataLoss="false")
    assert pair.origins(spark.trigger()) == [("a", at("10:3")), ("a", at("10:4"))]


@pytest.mark.parametrize("held", [True, False])
def test_who_may_produce_cannot_move_a_query_that_has_its_subscription(held):
    """A message that seems to be a copy of the witness, in its own cluster, where that was deleted."""
    pair = Pair()
    spark = begun(pair)
    topic = pair.topic("a")
    topic.roll_over(trims=True)
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("x", last(spark).witness.id))
    if not held:
        topic.cursors.clear()
    spark.restart()
    if held:
        with pytest.raises(OtherClusterError, match="seems to be a copy"):
            spark.trigger()
    else:
        spark.trigger()
        assert last(spark).left is not None


@pytest.mark.parametrize("ledger", [10, 13])
def test_two_clusters_that_seem_to_have_the_witness_are_refused(ledger):
    pair = Pair(ledger)
    spark = begun(pair)
    pair.copy()
    topic = pair.topic("b")
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("x", last(spark).witness.id))
    move(spark, pair.b)
    with pytest.raises(OtherClusterError, match="no copy of a message here says"):
        spark.trigger()
