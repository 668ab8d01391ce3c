"""A query's move to another cluster, in Spark's order, on clusters in memory."""

import json
import logging
import random
from collections import Counter
from dataclasses import replace

import pytest

from pulsar_spark.client import Source
from pulsar_spark.errors import DataLossError, OtherClusterError
from pulsar_spark.spark.plan.offsets import Offsets
from tests.loops import a_few_of
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

    def origins(self, rows, name="b"):
        """Where rows of a cluster were produced."""
        found, topics = [], (self.a if name == "a" else self.b).topics
        for topic, place in rows:
            (entry,) = [each for each in topics[topic].entries if each.id == place]
            found.append((name, place) if entry.source is None else tuple(entry.source))
        return found


def begun(pair, count=5, **options):
    """A query that has read a number of entries on `a`."""
    pair.topic("a").produce(count, time=TIME)
    spark = SimulatedSpark(
        pair.a, startingOffsets="earliest", predefinedSubscription="s", publishTimeMargin="0", **options
    )
    spark.drain()
    return spark


def begun_in_two():
    """Two partitions on `a`, and a query that has read three entries of each."""
    pair = Pair(partitions=2)
    for number in range(2):
        pair.topic("a", number).produce(3, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest", publishTimeMargin="0")
    spark.drain()
    return pair, spark


def unfinished_in_two():
    """The same, and a micro-batch of two copied entries of each that did not finish."""
    pair, spark = begun_in_two()
    for number in range(2):
        pair.topic("a", number).produce(2, time=TIME)
        pair.copy(number=number)
    spark.trigger(fails=True)
    return pair, spark


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
    assert last(spark).left.moves == 1
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
        assert last(spark).left.moves == 1


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


def moved(pair, **options):
    """A query that has read five entries on `a`, of which two more had no copies, and three of `b` there."""
    spark = begun(pair, maxMessagesPerTrigger="1", **options)
    pair.copy()
    pair.topic("a").produce(2, time=TIME)
    move(spark, pair.b)
    spark.drain()
    pair.topic("b").produce(3, time=TIME + 5)
    assert len(spark.drain()) == 3
    assert last(spark).witness.source is None
    return spark


def test_a_return_has_the_positions_and_the_witness_of_the_first_stay():
    pair = Pair()
    spark = moved(pair)
    before = last(spark).left.clusters["a"]
    pair.copy("b")
    move(spark, pair.a)
    assert spark.trigger() == []
    assert (last(spark).positions, last(spark).witness) == (before.positions, before.witness)


@pytest.mark.parametrize(("partitions", "more"), [(10, ""), (12, "; and 2 more")])
def test_a_warning_names_ten_partitions(partitions, more, caplog):
    pair = Pair(partitions=partitions)
    for number in range(partitions):
        pair.topic("a", number).produce(1, time=TIME)
    spark = SimulatedSpark(pair.a, startingOffsets="earliest")
    spark.drain()
    for number in range(partitions):
        pair.copy(number=number)
    move(spark, pair.b)
    with caplog.at_level(logging.WARNING):
        spark.drain()
    assert caplog.text.count(", published ") == 10
    assert (("more. Messages after it" in caplog.text), more in caplog.text) == (bool(more), True)


@pytest.mark.parametrize("again", [0, 2])
def test_a_query_returns_to_where_it_left(again, caplog):
    pair = Pair()
    spark = moved(pair)
    pair.copy()
    assert len(spark.drain()) == 2
    if not again:
        spark.offsets[-2:], spark.committed = [], spark.committed - 2  # it had not read them there
    pair.copy("b")
    move(spark, pair.a)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        rows = spark.drain()
    assert pair.origins(rows, "a") == [("a", at("10:5")), ("a", at("10:6"))]
    (told,) = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert "returns from cluster 'b' to cluster 'a'" in told
    pair.topic("b").produce(1, time=TIME + 5)
    pair.copy("b")
    pair.topic("a").produce(1, time=TIME)
    assert pair.origins(spark.drain(), "a") == [("b", at("10:10")), ("a", at("10:11"))]
    assert last(spark).left.clusters.keys() == {"b"}
    pair.copy()
    move(spark, pair.b)
    assert pair.origins(spark.drain()) == [("b", at("10:10"))]  # again: it came after the query had left


def test_a_short_stay_in_the_other_cluster_is_enough_to_return():
    """Its first own entry replaces the copied witness at once."""
    pair = Pair()
    spark = begun(pair)
    spark.options["publishTimeMargin"] = "60s"
    pair.copy()
    move(spark, pair.b)
    spark.drain()
    pair.topic("b").produce(2, time=TIME)
    assert len(spark.drain()) == 2
    pair.copy("b")
    move(spark, pair.a)
    assert spark.drain() == []
    assert last(spark).left.clusters.keys() == {"b"}


@pytest.mark.parametrize("is_again", [False, True])
def test_a_query_returns_though_it_has_read_copies_alone(is_again, caplog):
    """Nothing names the other cluster then, so its own messages are read, perhaps again."""
    pair = Pair()
    spark = begun(pair)
    pair.topic("a").produce(2, time=TIME)
    pair.copy()
    move(spark, pair.b)
    assert len(spark.drain()) == 2
    if is_again:
        witness = last(spark).witness
        pair.topic("b").produce(1, time=TIME)
        spark.drain()
        spark.offsets[-1] = json.dumps(replace(last(spark), witness=witness).to_json())  # none was at hand
    pair.copy("b")
    move(spark, pair.a)
    rows = [("a", at("10:5")), ("a", at("10:6"))]
    caplog.clear()
    assert pair.origins(spark.drain(), "a") == rows + [("b", at("10:7"))] * is_again
    assert "those of the other cluster" in caplog.text
    pair.topic("a").produce(1, time=TIME)
    pair.copy()
    move(spark, pair.b)
    assert pair.origins(spark.drain()) == [("a", at("10:8" if is_again else "10:7"))]
    pair.topic("a").produce(1, time=TIME)
    pair.copy()
    spark.trigger(fails=True)
    move(spark, pair.a)
    with pytest.raises(OtherClusterError, match="name is unknown"):
        spark.trigger()


def test_an_unfinished_micro_batch_runs_again_after_the_return():
    pair = Pair()
    spark = moved(pair)
    pair.topic("b").produce(1, time=TIME + 5)
    spark.trigger(fails=True)
    pair.copy("b")
    spark.options["publishTimeMargin"] = "60s"  # which reaches back to what was read there
    move(spark, pair.a)
    new = [("a", at("10:5")), ("a", at("10:6"))]
    assert pair.origins(spark.trigger(), "a") == [*new, ("b", pair.topic("b").last)]
    assert pair.origins(spark.drain(), "a") == new


def test_a_second_move_to_a_cluster_that_is_not_recognized_is_refused():
    """Own entries that had not been copied when it left would be left out."""
    pair = Pair()
    spark = moved(pair)
    pair.copy("b")
    topic = pair.topic("a")
    topic.entries = [each for each in topic.entries if each.id != last(spark).left.clusters["a"].witness.id]
    move(spark, pair.a)
    with pytest.raises(OtherClusterError, match="no copy of a message here says"):
        spark.trigger()


@pytest.mark.parametrize("seed", a_few_of(4, 1))
def test_moves_to_and_fro_lose_nothing(seed):
    """Both clusters are written to. What may be doubled are messages of the cluster that a query comes to."""
    rnd, moves = random.Random(seed), 0
    for _ in range(20):
        pair, on, rows = Pair(rnd.randint(8, 12)), "a", Counter()
        spark = SimulatedSpark(
            pair.a, startingOffsets="earliest", predefinedSubscription="s", maxMessagesPerTrigger="2"
        )
        spark.start(publishTimeMargin="0")
        pair.topic("a").produce(1, time=TIME)
        for time in range(TIME, TIME + 40):
            name = rnd.choice("ab")
            pair.topic(name).produce(1, time=time)
            for each in "ab":
                pair.copy(each) if rnd.random() < 0.9 else None
            rows.update(pair.origins(spark.trigger() or [], on))
            if rnd.random() < 0.1:
                for each in "ab":
                    pair.copy(each)
                rows.update(pair.origins(spark.drain(), on))
                on = "b" if on == "a" else "a"
                move(spark, pair.a if on == "a" else pair.b)
                try:
                    rows.update(pair.origins(spark.trigger() or [], on))
                    moves += 1
                except OtherClusterError:
                    on = "b" if on == "a" else "a"
                    move(spark, pair.a if on == "a" else pair.b)
        for each in "ab":
            pair.copy(each)
        rows.update(pair.origins(spark.drain(), on))
        written = {
            (name, each.id) for name in "ab" for each in pair.topic(name).entries if each.source is None
        }
        assert rows.keys() == written
    assert moves > 20


@pytest.mark.parametrize("seed", a_few_of(4, 1))
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
