"""A query's move to another cluster, in Spark's order, on clusters in memory."""

import json
import logging
import random
from collections import Counter
from dataclasses import replace

import pytest

from pulsar_spark.client import Source, Witness
from pulsar_spark.errors import DataLossError, OtherClusterError
from pulsar_spark.spark.plan.offsets import Offsets
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import SimulatedSpark, T, at

TIME = 1_000_000  # the simulated cluster's clock begins here, in ms


class Pair:
    """Two clusters, `a` and `b`, that have a topic; copies are made when a test wants them."""

    def __init__(self, ledger=10, partitions=0):
        self.a, self.b = SimulatedCluster(), SimulatedCluster()
        for each, number in ((self.a, 10), (self.b, ledger)):
            each.create("t", partitions, ledger=number)
        self.sent = Counter()

    def topic(self, name, number=None):
        topic = T if number is None else T.of_partition(number)
        return (self.a if name == "a" else self.b).topics[topic]

    def copy(self, name="a", number=None, *, count=None, back=0):
        """Copy entries to the other cluster; ``back`` of those that were copied again."""
        source, target = self.topic(name, number), self.topic("b" if name == "a" else "a", number)
        own = [each for each in source.entries if each.source is None]
        first = self.sent[name, number] - back
        last = len(own) if count is None else self.sent[name, number] + count
        for each in own[first:last]:
            target.produce(time=each.publish_time, messages=each.messages)
            target.entries[-1] = replace(target.entries[-1], source=Source(name, each.id))
        self.sent[name, number] = last

    def origins(self, rows):
        """Where rows of `b` were produced."""
        found = []
        for topic, place in rows:
            (entry,) = [each for each in self.b.topics[topic].entries if each.id == place]
            found.append(("b", place) if entry.source is None else tuple(entry.source))
        return found


def begun(pair, count=5, **options):
    """A query that has read a number of entries on `a`."""
    pair.topic("a").produce(count, time=TIME)
    spark = SimulatedSpark(
        pair.a, startingOffsets="earliest", predefinedSubscription="s", publishTimeMargin="0", **options
    )
    spark.drain()
    return spark


def move(spark, cluster):
    """Stop it and start it on another cluster."""
    spark.stop()
    spark.cluster = cluster
    spark.start()


def last(spark, number=-1):
    return Offsets.from_json(json.loads(spark.offsets[number]))


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
    assert last(spark).left.clusters["a"].positions == {T: at("10:4")}
    assert pair.topic("b").cursors["s"] == last(spark).positions[T]


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


def test_the_move_itself_has_no_rows_and_is_checkpointed_first():
    pair = Pair()
    spark = begun(pair)
    pair.copy()
    move(spark, pair.b)
    before = list(spark.offsets)
    assert spark.trigger() == []
    assert len(spark.offsets) == len(before) + 1
    assert pair.topic("b").cursors == {}  # so that a start finds the same until Spark has the move
    spark.offsets, spark.committed = before, len(before)
    spark.restart()
    assert spark.drain() == []
    assert last(spark).left.moves == 1


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
        with pytest.raises(DataLossError, match="have not been copied"):
            spark.trigger()
        spark.restart(failOnDataLoss="false")
    assert pair.origins(spark.trigger()) == [("a", at(f"10:{n}")) for n in range(5, 5 + count)]
    pair.copy()
    # What was reported as lost stays so.
    assert pair.origins(spark.drain()) == [("a", at("10:9")), ("a", at("10:10"))]


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
    pair = Pair(partitions=2)
    for number in range(2):
        pair.topic("a", number).produce(3, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest", publishTimeMargin="0")
    spark.drain()
    for number in range(2):
        pair.copy(number=number)
    pair.topic("b", 1).roll_over(trims=True)
    pair.topic("a", 1).produce(2, time=TIME)
    pair.copy(number=1)
    del pair.topic("b", 1).entries[0]
    move(spark, pair.b)
    with pytest.raises(DataLossError, match="no copy of a message up to there"):
        spark.trigger()
    spark.restart(failOnDataLoss="false")
    assert pair.origins(spark.drain()) == [("a", at("10:4"))]


def test_a_partition_that_is_missing_is_a_loss():
    pair = Pair(partitions=2)
    for number in range(2):
        pair.topic("a", number).produce(3, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest", publishTimeMargin="0")
    spark.drain()
    pair.copy(number=0)
    pair.copy(number=1)
    del pair.b.topics[T.of_partition(1)]
    pair.b._partitioned[T] = 1
    move(spark, pair.b)
    with pytest.raises(DataLossError):
        spark.trigger()


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
        assert last(spark).left.moves == 1


def test_two_clusters_that_seem_to_have_the_witness_are_refused():
    pair = Pair()
    spark = begun(pair)
    pair.copy()
    topic = pair.topic("b")
    topic.produce(1, time=TIME)
    topic.entries[-1] = replace(topic.entries[-1], source=Source("x", last(spark).witness.id))
    move(spark, pair.b)
    with pytest.raises(OtherClusterError, match="no copy of a message here says"):
        spark.trigger()


def test_a_query_moves_once():
    """Own entries that had not been copied when it left would be left out on the way back."""
    pair = Pair()
    spark = begun(pair)
    pair.copy()
    move(spark, pair.b)
    pair.topic("b").produce(2, time=TIME)
    assert len(spark.drain()) == 2
    pair.copy("b")
    spark.offsets[-1] = json.dumps(
        replace(last(spark), witness=Witness(T, pair.topic("b").last, TIME)).to_json()
    )
    move(spark, pair.a)
    with pytest.raises(OtherClusterError, match="no copy of a message here says"):
        spark.trigger()


@pytest.mark.parametrize("seed", range(4))
def test_histories_of_runs(seed):
    """Runs end anywhere, before and after the move; `a` alone is written to, and sends some again."""
    rnd = random.Random(seed)
    for _ in range(50):
        pair = Pair(rnd.randint(8, 12), partitions=2)
        spark = SimulatedSpark(
            pair.a,
            startingOffsets="earliest",
            predefinedSubscription="s",
            publishTimeMargin="0",
            failOnDataLoss="false",
            maxMessagesPerTrigger=rnd.choice(("2", "1000")),
        )
        doubled = Counter()
        rows = Counter()
        time = TIME
        for on in ("a", "b"):
            if on == "b":
                spark.rows, seen = [], [(topic, ("a", place)) for topic, place in spark.rows]
                rows.update(seen)
                for number in range(2):
                    pair.copy(number=number)
                move(spark, pair.b)
            for _ in range(rnd.randint(2, 8)):
                number = rnd.randrange(2)
                time += 1
                if rnd.random() < 0.2:
                    pair.topic("a", number).roll_over()
                pair.topic("a", number).produce(rnd.randint(1, 3), time=time)
                if rnd.random() < 0.5 or on == "b":
                    back = rnd.choice((0, 0, 1, 2))
                    back = min(back, pair.sent["a", number])
                    own = [each.id for each in pair.topic("a", number).entries]
                    sent = pair.sent["a", number]
                    doubled.update((T.of_partition(number), ("a", each)) for each in own[sent - back : sent])
                    pair.copy(number=number, back=back)
                fails = rnd.random() < 0.3 and spark.committed > 0 and len(spark.offsets) == spark.committed
                spark.trigger(fails=fails)
                if fails or rnd.random() < 0.2:
                    spark.restart()
        spark.restart(available_now=True)  # which waits for each partition
        spark.drain()
        places = [topic for topic, _ in spark.rows]
        rows.update(zip(places, pair.origins(spark.rows), strict=True))
        for number in range(2):
            topic = T.of_partition(number)
            for entry in pair.topic("a", number).entries:
                key = topic, ("a", entry.id)
                assert 1 <= rows[key] <= 1 + doubled[key], (key, rows[key])
