"""Streams of scalable topics: each message once, those of a key in order, whatever happens to segments."""

import random
import threading

import pytest

from pulsar_spark.client import EntryInfo
from pulsar_spark.errors import ConnectError, NotReadyError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan import scalable
from pulsar_spark.spark.plan.batch import plan_read
from tests.spark.plan.scalable.scalable_queries import KEYS, assert_complete, play, positions, query
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import SimulatedSpark, options_of


def test_children_wait_for_the_end_of_their_parent(cluster, topic):
    spark = query(topic, cluster)
    play("write drain write split write", topic, spark)
    first, second, third = spark.trigger(), spark.trigger(), spark.trigger()
    assert {row[0].partition for row in first} == {0}
    assert {row[0].partition for row in second} == {1, 2}
    assert third is None
    assert_complete(topic, spark)


def test_the_offset_names_segments_and_those_that_are_done(cluster, topic):
    spark = query(topic, cluster)
    play("write split write drain", topic, spark)
    assert positions(spark) == {
        "topic://public/default/st": {"0000-ffff-0": "done", "0000-7fff-1": "2:7", "8000-ffff-2": "3:7"}
    }


def test_unrelated_branches_are_read_side_by_side(cluster, topic):
    topic.split(topic.active[0])
    spark = query(topic, cluster)
    play("drain write", topic, spark)
    topic.split(topic.named(1))
    topic.write(KEYS)
    assert {row[0].partition for row in spark.trigger()} == {1, 2}


def test_an_empty_parent_does_not_release_its_children_before_its_own_parent_is_done(cluster, topic):
    """Three generations, of which the second got nothing."""
    play("write split merge write", topic)
    spark = query(topic, cluster)
    spark.drain()
    assert_complete(topic, spark)


def test_an_empty_segment_that_a_running_query_meets_is_nothing_to_warn_of(cluster, topic, caplog):
    spark = query(topic, cluster)
    play("drain split split write drain", topic, spark)
    assert_complete(topic, spark)
    assert caplog.text == ""


def test_a_segment_that_is_done_costs_no_request(cluster, topic):
    spark = query(topic, cluster)
    play("write split write drain", topic, spark)
    cluster.requests.clear()
    play("write drain", topic, spark)
    asked = {request[1] for request in cluster.requests if len(request) > 1 and request[0] != "layout"}
    assert topic.named(0) not in asked
    assert topic.named(1) in asked


def test_what_is_done_is_acknowledged_and_then_deleted_and_no_batch_comes_of_that(cluster, topic):
    spark = query(topic, cluster)
    play("drain write split clean", topic, spark)
    assert [name.partition for name in topic.sealed] == [0]
    play("drain clean", topic, spark)
    assert topic.sealed == []
    assert spark.trigger() is None
    play("write drain", topic, spark)
    assert set(positions(spark)[str(topic.name)]) == {"0000-7fff-1", "8000-ffff-2"}
    assert_complete(topic, spark)


def test_a_done_segment_is_acknowledged_by_a_later_run(cluster, topic):
    """The run that read its last message ended before it could do that, and the first answer is lost."""
    spark = query(topic, cluster)
    play("drain write split trigger", topic, spark)
    assert positions(spark)[str(topic.name)]["0000-ffff-0"] == "done"
    segment = topic.named(0)
    cluster.held["ack", segment] = []
    play("restart trigger", topic, spark)
    (answer,) = cluster.held.pop(("ack", segment))
    answer.set_exception(ConnectError("lost"))
    play("write drain", topic, spark)
    assert cluster.topics[segment].cursors[spark.subscription] == cluster.topics[segment].last


def test_a_done_segment_is_not_read_again_if_the_answer_to_its_acknowledgement_is_lost(cluster, topic):
    """And the broker, which has it, removes the segment."""
    spark = query(topic, cluster)
    play("drain write split", topic, spark)
    segment = topic.named(0)
    cluster.held["ack", segment] = []
    play("trigger write trigger", topic, spark)
    found = cluster.topics[segment]
    cluster.held["last message", segment] = []
    spark.trigger()
    found.cursors[spark.subscription] = found.end
    topic.clean_up()
    assert topic.sealed == []
    for _ in range(3):
        play("write trigger", topic, spark)
        assert positions(spark)[str(topic.name)]["0000-ffff-0"] == "done"
    assert_complete(topic, spark)


def test_a_batch_is_planned_again_after_a_restart_with_segments_that_it_ended(cluster, topic):
    spark = query(topic, cluster)
    play("write drain write split", topic, spark)
    spark.trigger(fails=True)
    assert positions(spark)[str(topic.name)]["0000-ffff-0"] == "done"
    play("restart write drain", topic, spark)
    assert_complete(topic, spark)


def test_a_message_of_a_transaction_may_still_come_at_the_end_of_a_sealed_segment(cluster, topic):
    """Its children wait for it."""
    spark = query(topic, cluster)
    play("write drain", topic, spark)
    parent = cluster.topics[topic.named(0)]
    place = parent.mark_transaction()
    parent.is_withheld = True
    topic.split(topic.active[0])
    topic.written[topic.named(0), place] = 0, topic.counts[0]
    topic.counts[0] += 1
    topic.write(KEYS)
    assert not spark.trigger()
    parent.is_withheld = False
    parent.entries.append(EntryInfo(place, 1, 100, 0, None, False, False))
    spark.drain()
    assert_complete(topic, spark)


@pytest.mark.parametrize("available_now", [False, True])
def test_a_sealed_segment_may_end_with_what_readers_never_see(cluster, topic, available_now, monkeypatch):
    """Such as the marker of a transaction. A run over what there is waits until the broker says so."""
    spark = query(topic, cluster)
    play("drain write", topic, spark)
    cluster.topics[topic.named(0)].mark_transaction()
    play("split write", topic)
    spark.restart(available_now=available_now)
    if available_now:
        monkeypatch.setattr(scalable, "PROMPT", 0.0)
        answered, real = threading.Event(), cluster.has_ended
        monkeypatch.setattr(cluster, "has_ended", lambda *asked: answered.wait(60) and real(*asked))
        threading.Timer(0.1, answered.set).start()
    spark.drain()
    assert_complete(topic, spark)
    assert positions(spark)[str(topic.name)]["0000-ffff-0"] == "done"


def test_what_waits_for_an_open_transaction_says_so(cluster, topic, caplog):
    """A run that reads what is there fails: it did not."""
    spark = query(topic, cluster)
    play("drain write", topic, spark)
    parent = cluster.topics[topic.named(0)]
    parent.mark_transaction()
    parent.is_withheld = True
    play("split now drain restart write drain", topic, spark)
    assert caplog.text.count("[PULSAR_NOT_READY] the segment is sealed") == 2, "once in each run"
    spark.restart(available_now=True)
    with pytest.raises(NotReadyError, match="0000-ffff-0"):
        spark.drain()
    parent.is_withheld = False
    play("now drain", topic, spark)
    assert_complete(topic, spark)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_partition_that_is_called_sealed_before_it_is(cluster, is_listed):
    """As in a migration that is forced. It may also have left the topic as read."""
    (old,) = cluster.create("t", ledger=1000)
    old.produce(3)
    spark = SimulatedSpark(cluster, "t", startingOffsets="earliest")
    if not is_listed:
        spark.drain()
    topic = ScalableTopic(cluster, "topic://public/default/t", list(cluster.topics))
    end, old.topic_end = old.topic_end, None
    topic.write(KEYS)
    if not is_listed:
        play("clean clean", topic)
        assert topic.sealed == []
    spark.restart(topic=str(topic.name), admin__url="http://localhost:1")
    spark.drain()
    old.produce(3)
    spark.drain()
    old.topic_end = end
    cluster.clock += 100
    spark.drain()
    assert [name.is_segment for name, _ in spark.rows] == [False] * 6 + [True] * len(KEYS)


def test_available_now_reads_all_generations(cluster, topic):
    spark = query(topic, cluster)
    spark.drain()
    for _ in range(3):
        play("write split write merge write now drain", topic, spark)
        assert_complete(topic, spark)
        topic.clean_up()


def test_available_now_ends_though_segments_came_after_it_began(cluster, topic):
    """They are read up to where they were found."""
    spark = query(topic, cluster)
    play("write drain now split write", topic, spark)
    for _ in range(6):
        rows = spark.trigger()
        topic.write(KEYS)
    assert rows is None
    play("restart drain", topic, spark)
    assert_complete(topic, spark)


def test_a_start_at_the_latest_message_leaves_out_sealed_segments(cluster, topic):
    play("write split write", topic)
    old = sum(topic.counts.values())
    spark = query(topic, cluster, startingOffsets="latest")
    play("drain write drain", topic, spark)
    assert len(spark.rows) == sum(topic.counts.values()) - old


def test_a_shown_offset_is_a_start(cluster, topic):
    spark = query(topic, cluster)
    play("write split write drain trigger", topic, spark)
    topic.clean_up()  # one that is done
    assert topic.sealed == []
    again = query(topic, cluster, startingOffsets=spark.offsets[-1])
    again.drain()
    topic.write(KEYS)
    again.drain()
    assert len(again.rows) == len(KEYS)


def test_a_batch_reads_all_segments_that_are_left(cluster, topic):
    play("write split write", topic)
    options = options_of(Mode.BATCH, topic=str(topic.name))
    ranges = plan_read(options, cluster)
    assert {(each.topic.partition, str(each.end)) for each in ranges} == {(0, "1:15"), (1, "2:7"), (2, "3:7")}
    del cluster.topics[topic.named(0)]  # removed since the lookup
    assert {each.topic.partition for each in plan_read(options, cluster)} == {1, 2}


def test_random_histories():
    """Writes, splits, merges, clean-ups, failed batches, restarts and AvailableNow, in any order."""
    try_histories(range(30))


@pytest.mark.long
def test_very_many_random_histories():
    try_histories(range(30, 4000))


def try_histories(seeds):
    for seed in seeds:
        try:
            random_history(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def random_history(rng):
    cluster = SimulatedCluster()
    topic = ScalableTopic(cluster)
    capped = {"maxMessagesPerTrigger": str(rng.randint(1, 40))} if rng.random() < 0.5 else {}
    spark = query(topic, cluster, **capped)
    spark.drain()

    def write():
        topic.write(rng.choices(KEYS, k=rng.randint(1, 30)))

    def split():
        if len(topic.active) < 6:
            topic.split(rng.choice(topic.active))

    def merge():
        if len(topic.active) > 1:
            left = rng.randrange(len(topic.active) - 1)
            topic.merge(topic.active[left], topic.active[left + 1])

    def trigger():
        spark.trigger(fails=rng.random() < 0.2)

    def restart():
        spark.restart(available_now=rng.random() < 0.3)

    for _ in range(rng.randint(5, 40)):
        rng.choice((write, write, split, merge, topic.clean_up, trigger, trigger, restart))()
    play("restart drain", topic, spark)
    assert_complete(topic, spark)
    assert MessageId.LATEST not in [each.end for each in spark.ranges]
