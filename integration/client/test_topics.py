"""The topics of a namespace: which a pattern means, and how a watch tells that they came or went."""

from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import numbered
from integration.helpers.clients import WINDOW, entries_of, id_of, numbers, reader, take
from pulsar_spark.client import Consumer, LastMessageId, SubscriptionOptions, TopicWatch, run_all
from pulsar_spark.errors import SubscriptionLimitError, TopicNotFoundError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import commands

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def names(client, namespace, regex):
    found = client.topics_matching(TopicPattern.parse(f"{namespace}/{regex}"))
    assert all(f"{topic.tenant}/{topic.namespace}" == namespace for topic in found)
    return [topic.local for topic in found]


def test_a_pattern_means_topics_and_not_their_partitions(client, admin, namespace):
    for name in ("orders", "orders-eu", "old-orders"):
        admin.create_topic(f"persistent://{namespace}/{name}")
    admin.create_partitioned_topic(f"persistent://{namespace}/orders-us", 3)
    admin.create_topic(f"persistent://{namespace}/spark-transactions-{uuid4()}")
    assert names(client, namespace, "orders.*") == ["orders", "orders-eu", "orders-us"]
    assert names(client, namespace, "orders-.s") == ["orders-us"]
    assert names(client, namespace, "orders") == ["orders"]
    assert names(client, namespace, ".*partition-1") == []
    assert names(client, namespace, "__.*") == []
    assert names(client, namespace, ".*") == ["old-orders", "orders", "orders-eu", "orders-us"]
    (found,) = client.topics_matching(TopicPattern.parse(f"persistent://{namespace}/orders-us"))
    assert len(client.partitions(found)) == 3


def test_a_namespace_that_is_missing_has_no_topics(client):
    assert names(client, "public/none-such", ".*") == []


def test_a_watch_tells_what_comes_and_goes(client, admin, namespace):
    base = f"persistent://{namespace}"
    admin.create_topic(f"{base}/a-before")
    pattern = TopicPattern.parse(f"{namespace}/a.*")
    everything = TopicPattern.parse(f"{namespace}/.*")
    with TopicWatch(client, pattern) as watch, TopicWatch(client, everything) as other:
        assert changed(watch)
        assert changed(other)
        assert not changed(watch)
        admin.create_topic(f"{base}/b")
        wait_until(lambda: changed(other))
        assert not changed(watch)
        admin.create_topic(f"{base}/a-new")
        named: list[TopicName] = []
        wait_until(lambda: named.extend(watch.take_changes() or []) or named)
        assert named == [TopicName.parse(f"{base}/a-new")]
        admin.create_partitioned_topic(f"{base}/a-parts", 2)
        wait_until(lambda: changed(watch) and len(client.partitions(TopicName.parse(f"{base}/a-parts"))) == 2)
        settle(watch, other)
        admin.grow_partitioned_topic(f"{base}/a-parts", 3)
        wait_until(lambda: changed(watch))
        settle(watch, other)
        admin.delete_topic(f"{base}/a-before")
        wait_until(lambda: changed(watch))


def test_a_named_topic_is_watched_without_a_list_of_all(client, admin, namespace, monkeypatch):
    """Also one whose name, with that of its namespace, is longer than the broker's limit of patterns."""
    asked = []
    build = commands.watch_topic_list

    def note(*given):
        asked.append(given[-1])
        return build(*given)

    monkeypatch.setattr(commands, "watch_topic_list", note)
    short = f"n-{uuid4().hex[:8]}"
    admin.create_namespace(f"public/{short}")
    for place, name in (
        (f"public/{short}", "t"),
        (f"public/{short}", "orders.of-a-very-long-name-indeed-" * 2),
    ):
        topic = TopicName.parse(f"persistent://{place}/{name}")
        with TopicWatch(client, TopicPattern.of(topic), may_list=False) as watch:
            settle(watch)
            admin.create_topic(f"persistent://{place}/unrelated-{name}")
            admin.create_partitioned_topic(str(topic), 2)
            wait_until(lambda: changed(watch))
            settle(watch)
            admin.delete_partitioned_topic(str(topic))
            for number in range(2):
                assert watch.take_deleted(topic.of_partition(number), 30.0)
    assert asked[0] == f"public/{short}/t(-p.*)?"
    assert all(len(each) <= 50 for each in asked)


def changed(watch):
    """Whether it names changes, or wants a list."""
    return watch.take_changes() != []


def settle(*watches):
    """Wait until no more news arrives."""
    quiet = 0

    def still():
        nonlocal quiet
        quiet = 0 if sum(changed(watch) for watch in watches) else quiet + 1
        return quiet == 10

    wait_until(still)


def test_a_watch_that_was_lost_stands_again(client, admin, namespace):
    with TopicWatch(client, TopicPattern.parse(f"{namespace}/.*")) as watch:
        assert changed(watch)
        client.service(client.operation()).close()
        assert changed(watch)  # it was lost
        wait_until(lambda: changed(watch))  # it stands again
        assert not changed(watch)
        admin.create_topic(f"persistent://{namespace}/new")
        wait_until(lambda: changed(watch))


def test_many_partitions_are_asked_together(client, admin, topic):
    admin.create_partitioned_topic(topic, 40)
    partitions = client.partitions(TopicName.parse(topic))
    missing = TopicName.parse(topic).of_partition(77)
    options = SubscriptionOptions(name="reader", durable=False)
    opened = run_all([partial(Consumer, client, name, options) for name in [*partitions, missing]])
    assert isinstance(opened.pop(), TopicNotFoundError)
    consumers = [consumer for consumer in opened if isinstance(consumer, Consumer)]
    assert [consumer.topic for consumer in consumers] == partitions
    answers = run_all([consumer.last_message_id for consumer in consumers])
    assert all(isinstance(answer, LastMessageId) and answer.last.entry == -1 for answer in answers)
    run_all([consumer.close for consumer in consumers])
    assert admin.subscriptions(str(partitions[0])) == []


def test_a_reader_moves_where_a_topic_may_have_no_more_subscriptions(client, peer, admin, namespace):
    """It subscribes by another name, and the broker counts the one before for a moment."""
    topic = f"persistent://{namespace}/limited"
    peer.produce(topic, numbered(20))
    ids = [id_of(entry) for entry in entries_of(client, topic)]
    wait_until(lambda: not admin.subscriptions(topic))
    admin.set_max_subscriptions(namespace, 1)
    with Consumer(client, TopicName.parse(topic), reader(ids[0]), Permits(WINDOW)) as consumer:
        wait_until(lambda: is_refused(client, topic))
        for first, start in enumerate(ids):
            consumer.seek(start)
            assert numbers(take(consumer, len(ids) - first)) == [*range(first, len(ids))]


def is_refused(client, topic):
    """Whether the topic may have no other subscription."""
    try:
        Consumer(client, TopicName.parse(topic), replace(reader(), name="another")).close()
    except SubscriptionLimitError:
        return True
    return False
