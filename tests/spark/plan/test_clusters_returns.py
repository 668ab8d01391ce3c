"""A query's return to the cluster that it left, and random moves there and back."""

import json
import logging
import random
from collections import Counter
from dataclasses import replace

import pytest

from pulsar_spark.errors import OtherClusterError
from tests.loops import a_few_of
from tests.spark.plan.cluster_pair import TIME, Pair, begun, last, move
from tests.spark.plan.simulated_spark import SimulatedSpark, T, at


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
    before = last(spark).left
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
    assert last(spark).left.cluster == "b"
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
    assert last(spark).left.cluster == "b"


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


def test_an_unfinished_micro_batch_that_was_read_before_the_query_left_has_no_tasks():
    """A message of `b` was read on `a`, and again on `b` because of the margin."""
    pair = Pair(13)
    spark = begun(pair, maxMessagesPerTrigger="1")
    pair.topic("b").produce(1, time=TIME)
    pair.copy("b")
    assert pair.origins(spark.drain(), "a") == [("b", at("13:0"))]
    spark.options["publishTimeMargin"] = "60s"
    pair.copy()
    move(spark, pair.b)
    assert spark.trigger() == []
    assert spark.trigger(fails=True) is None
    assert last(spark).witness.source is None
    move(spark, pair.a)
    assert spark.planner.ranges(last(spark, -2), last(spark)) == []


def test_a_second_move_to_a_cluster_that_is_not_recognized_is_refused():
    """Own entries that had not been copied when it left would be left out."""
    pair = Pair()
    spark = moved(pair)
    pair.copy("b")
    topic = pair.topic("a")
    topic.entries = [each for each in topic.entries if each.id != last(spark).left.witness.id]
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
