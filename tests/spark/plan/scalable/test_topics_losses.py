"""Streams of scalable topics: losses, and the subscriptions that hold segments."""

import pytest

from pulsar_spark.errors import AuthError, BrokerError, ConnectError, DataLossError, OptionError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.plan.scalable import ScalableTopics
from tests.spark.plan.scalable.scalable_queries import KEYS, assert_complete, play, query
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import options_of


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
