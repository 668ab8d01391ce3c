"""Streams of scalable topics: each message once, those of a key in order, whatever happens to segments."""

import json
import random
import threading

import pytest

from pulsar_spark.client import EntryInfo
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    ConnectError,
    DataLossError,
    NotReadyError,
    OptionError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan.batch import plan_read
from pulsar_spark.spark.plan.scalable import segments
from pulsar_spark.spark.plan.scalable.topics import ScalableTopics
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import HASHES, ScalableTopic
from tests.spark.plan.simulated_spark import SimulatedSpark, options_of

KEYS = range(0, HASHES, HASHES // 16)


@pytest.fixture
def topic(cluster):
    return ScalableTopic(cluster)


def query(topic, cluster, **options):
    options = {"startingOffsets": "earliest", "admin__url": "http://localhost:1"} | options
    return SimulatedSpark(cluster, str(topic.name), **options)


def play(words, topic, spark=None):
    """What happens, in words: a message of each key is written, the first segment split, all merged."""
    for word in words.split():
        match word:
            case "write":
                topic.write(KEYS)
            case "split":
                topic.split(topic.active[0])
            case "merge":
                topic.merge(*topic.active)
            case "clean":
                topic.clean_up()
            case "now":
                spark.restart(available_now=True)
            case _:
                spark.play(word)


def positions(spark):
    """The offset of a query as JSON, without the subscription."""
    return json.loads(spark.offsets[-1])["topics"]


def read(topic, spark):
    """The keys and numbers of all rows, batch by batch in the order of the offsets."""
    return [topic.written[row] for row in spark.rows]


def assert_complete(topic, spark):
    """Each message came once, and those of a key in order."""
    rows = read(topic, spark)
    assert len(rows) == sum(topic.counts.values())
    seen = dict.fromkeys(topic.counts, 0)
    for key, number in rows:
        assert number == seen[key], f"{number} of key {key} came where {seen[key]} was to come"
        seen[key] += 1


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
        monkeypatch.setattr(segments, "PROMPT", 0.0)
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


def test_what_nobody_held_is_reported_with_its_segment(cluster, topic):
    spark = query(topic, cluster)
    play("write drain write stop", topic, spark)
    cluster.registered[topic.name].clear()
    play("split clean start", topic, spark)
    with pytest.raises(DataLossError, match=r"segment://public/default/st/0000-ffff-0"):
        spark.trigger()


class NoAdmin:
    """An admin service that does not answer."""

    def __getattr__(self, _):
        raise ConnectError("the admin service does not answer")


@pytest.mark.parametrize("options", [{}, {"startingOffsets": "latest"}, {"predefinedSubscription": "s"}])
def test_a_query_that_cannot_be_registered_does_not_start(cluster, topic, monkeypatch, options):
    topic.write(KEYS)
    spark = query(topic, cluster, **options)
    monkeypatch.setattr(cluster, "admin", lambda url: NoAdmin())
    for _ in range(2):
        with pytest.raises(ConnectError, match=r"PULSAR_CONNECT.*registered"):
            spark.trigger()
    monkeypatch.undo()
    play("restart drain write split clean write drain", topic, spark)
    assert len(spark.rows) == len(KEYS) * (2 if "startingOffsets" in options else 3)


def test_a_start_that_cannot_be_registered_does_not_hide_the_loss_from_the_next_one(
    cluster, topic, monkeypatch
):
    """The subscription was removed while the query was stopped, and then a segment."""
    spark = query(topic, cluster)
    play("write drain stop", topic, spark)
    cluster.admin("").release_scalable(topic.name, spark.subscription)
    play("write split", topic)
    monkeypatch.setattr(cluster, "admin", lambda url: NoAdmin())
    spark.start()
    with pytest.raises(ConnectError):
        spark.trigger()
    assert not any(found.cursors for found in cluster.topics.values())
    monkeypatch.undo()
    topic.clean_up()
    for _ in range(2):
        spark.restart()
        with pytest.raises(DataLossError, match=r"segment://public/default/st/0000-ffff-0"):
            spark.trigger()


@pytest.mark.parametrize("stopped", [True, False])
def test_a_subscription_that_is_removed_from_a_running_query_is_registered_again(
    cluster, topic, caplog, stopped
):
    spark = query(topic, cluster)
    play("write drain", topic, spark)
    if stopped:
        play("restart drain", topic, spark)
    cluster.registered[topic.name].clear()
    play("write split write trigger", topic, spark)
    assert cluster.registered[topic.name] == {spark.subscription}
    assert "was removed" in caplog.text
    play("clean drain split clean write drain", topic, spark)
    assert_complete(topic, spark)


def test_only_what_nothing_held_may_be_unread(cluster, topic):
    """Of the segments that are gone; and only where not all of one was read, as far as its end is known."""
    play("write split split", topic)
    full, empty, taking, other = map(topic.named, range(4))
    end = cluster.topics[full].last
    admin, options = cluster.admin(""), options_of(topic=str(topic.name), admin__url="http://localhost:1")
    scalable = ScalableTopics(cluster, options)

    def unread():
        asked = [(full, end), (full, end.back(1)), (empty, MessageId.EARLIEST), (taking, end), (other, end)]
        return [scalable.is_unread(*each, "s") for each in asked]

    assert unread() == [True] * 5, "no end is known"
    scalable.segments_of(topic.name)
    assert unread() == [False, True, False, True, True]
    admin.hold_scalable(topic.name, "s")
    assert unread() == [False] * 5
    scalable.subscription = "s"
    for gone in (other, taking):
        admin.release_scalable(topic.name, "s")
        topic.split(gone)
        topic.clean_up()
        scalable.segments_of(topic.name)
        assert unread() == [False, True, False, gone is taking, True]


def test_the_end_of_a_segment_is_nothing_to_report(cluster):
    cluster.create("t", ledger=1000)
    cluster.create("u")
    topic = ScalableTopic(cluster, "topic://public/default/t", list(cluster.topics)[:1])
    scalable = ScalableTopics(cluster, options_of(topic=str(topic.name), admin__url="http://localhost:1"))
    names = scalable.segments_of(topic.name)
    assert [scalable.is_ordered(each) for each in [*names, *cluster.topics]] == [
        True,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("error", [BrokerError("500"), AuthError("403")])
def test_a_running_query_asks_an_admin_service_again_that_has_failed(
    cluster, topic, monkeypatch, caplog, error
):
    spark = query(topic, cluster)
    play("write drain split write", topic, spark)

    class Failing:
        def scalable_subscriptions(self, name):
            raise error

    monkeypatch.setattr(cluster, "admin", lambda url: Failing())
    if isinstance(error, AuthError):
        with pytest.raises(AuthError, match="only for a subscription that is registered"):
            spark.drain()
        return
    spark.drain()
    assert "could not be listed; this is retried: [PULSAR_NOT_READY]" in caplog.text
    monkeypatch.undo()
    spark.drain()
    assert_complete(topic, spark)


def remove_unread(cluster, topic, generations):
    """Remove the subscription, and then the segments of some generations."""
    cluster.admin("").release_scalable(topic.name, next(iter(cluster.registered[topic.name])))
    for number in range(generations):
        topic.write(KEYS)
        (topic.split(topic.active[0]) if number % 2 == 0 else topic.merge(*topic.active))
    topic.clean_up()


@pytest.mark.parametrize("generations", [1, 2, 3])
def test_what_a_running_query_did_not_hold_is_reported(cluster, topic, generations, caplog):
    """The segments that it had read, and those that it never saw."""
    spark = query(topic, cluster, failOnDataLoss="false")
    play("write drain", topic, spark)
    remove_unread(cluster, topic, generations)
    play("write drain", topic, spark)
    assert "[PULSAR_DATA_LOSS]" in caplog.text
    assert "segment://public/default/st/0000-ffff-0" in caplog.text
    assert ("segments that the query never saw" in caplog.text) == (generations > 1)
    spark.options["failOnDataLoss"] = "true"
    play("restart trigger", topic, spark)
    remove_unread(cluster, topic, 1)
    with pytest.raises(DataLossError):
        spark.drain()


def test_a_segment_that_nothing_held_is_a_loss_where_not_all_of_it_was_read(cluster, topic):
    play("write split", topic)
    spark = query(topic, cluster, maxMessagesPerTrigger="4")
    spark.trigger()
    remove_unread(cluster, topic, 0)
    with pytest.raises(DataLossError, match=r"subscription was removed.*0000-ffff-0.*\(1:3, "):
        spark.trigger()


@pytest.mark.parametrize("is_held", [True, False])
def test_a_new_segment_that_goes_before_it_is_opened(cluster, topic, monkeypatch, caplog, is_held):
    """It was empty, unless nothing held it."""
    spark = query(topic, cluster, failOnDataLoss="false")
    play("drain split", topic, spark)
    gone, real = topic.named(1), cluster.subscribe

    def subscribe(name, options):
        if name == gone and cluster.topics.pop(gone, None) and not is_held:
            cluster.registered[topic.name].clear()
        return real(name, options)

    monkeypatch.setattr(cluster, "subscribe", subscribe)
    spark.trigger()
    losses = [each.getMessage() for each in caplog.records if "[PULSAR_DATA_LOSS]" in each.getMessage()]
    assert [str(gone) in each for each in losses] == ([] if is_held else [True])


def test_segments_that_came_and_went_while_the_query_was_stopped_are_reported(cluster, topic):
    """Also if all that it knew were done."""
    spark = query(topic, cluster)
    play("write drain split drain stop", topic, spark)
    remove_unread(cluster, topic, 0)
    play("merge write split clean", topic)
    for _ in range(2):
        spark.restart()
        with pytest.raises(DataLossError, match="1 segments that the query never saw"):
            spark.trigger()


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


def test_the_subscription_is_registered_by_each_run_and_removed_with_the_first_one(cluster, topic):
    spark = query(topic, cluster)
    spark.planner.initial()
    assert len(cluster.registered[topic.name]) == 1
    spark.planner.close()
    assert cluster.registered[topic.name] == set()
    spark = query(topic, cluster)
    spark.drain()
    cluster.registered[topic.name].clear()
    play("restart drain", topic, spark)
    assert cluster.registered[topic.name] == {spark.subscription}


def test_a_stream_needs_the_admin_service(cluster, topic):
    with pytest.raises(OptionError, match=r"admin\.url"):
        query(topic, cluster, admin__url="")


def test_a_topic_that_is_deleted_is_a_loss_of_what_was_seen_and_not_read(cluster, topic, caplog):
    spark = query(topic, cluster, failOnDataLoss="false", maxMessagesPerTrigger="1")
    play("drain write split write trigger", topic, spark)
    del cluster.layouts[topic.name]
    for name in [name for name in cluster.topics if name.is_segment]:
        del cluster.topics[name]
    spark.trigger()
    assert "[PULSAR_DATA_LOSS]" in caplog.text
    assert spark.trigger() is None


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
