"""Micro-batches keep to the user's limits: through Spark, and through its calls on the planner alone."""

import itertools
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest

from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.chaos.messages import number_of, numbered
from integration.fixtures.spark import Collector, PulsarInSpark, drain, start
from integration.helpers.cluster import TEST_JVM
from integration.helpers.peer import Peer, Record
from integration.helpers.triggers import Triggers, partitions_of

_INTERCEPTORS = "org.apache.pulsar.common.intercept"
# Ledgers of few entries, and the broker tells each message's index and time.
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "2500",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "brokerEntryMetadataInterceptors": f"{_INTERCEPTORS}.AppendIndexMetadataInterceptor,"
    f"{_INTERCEPTORS}.AppendBrokerTimestampMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}


@pytest.fixture(scope="module")
def indexed():
    with StandaloneBroker(SETTINGS, jvm=TEST_JVM) as broker:
        yield broker


@pytest.fixture
def indexed_peer(indexed):
    with Peer(indexed.service_url) as opened:
        yield opened


def values(count):
    return [f"{number} " for number in range(count)]


def taken(triggers, batch):
    """Rows by partition."""
    return Counter({task.topic: len(triggers.rows_of(task)) for task in batch.tasks})


def numbers(rows):
    return [number_of(Record(value)) for _, _, value in rows]


def test_batch_entries_under_a_cap_of_one_are_read_once(pulsar_in_spark, peer, admin, topic, checkpoint):
    count = 2000
    admin.create_partitioned_topic(topic, 4)
    peer.produce(topic, numbered(count, keys=100), batch_size=100)
    capped = pulsar_in_spark.stream(topic, maxBytesPerTrigger="3k")
    sink = Collector()
    query = start(capped, sink, checkpoint)
    try:
        wait_until(lambda: query.exception() or len(sink.values) >= count // 3)
    finally:
        query.stop()
    assert query.exception() is None
    drain(capped, sink, checkpoint)
    assert sorted(sink.values) == sorted(values(count))
    assert max(len(batches[-1]) for batches in sink.batches.values()) <= 500
    assert len(sink.batches) >= 5


def test_available_now_reaches_its_end_in_several_batches(pulsar_in_spark, peer, topic, checkpoint):
    peer.produce(topic, numbered(40))
    sink = Collector()

    def and_more(batch, number):
        sink(batch, number)
        peer.produce(topic, numbered(10, first=1000))

    # At least as many as never come together: this trigger does not wait for them.
    drain(
        pulsar_in_spark.stream(topic, maxMessagesPerTrigger="15", minMessagesPerTrigger="15"),
        and_more,
        checkpoint,
    )
    assert sink.values == values(40)
    assert [len(batches[-1]) for batches in sink.batches.values()] == [15, 15, 10]


def test_a_large_backlog_does_not_starve_the_small_ones(cluster, peer, admin, topic):
    large, small, cap = 20_000, 10, 1000
    admin.create_partitioned_topic(topic, 8)
    first, *others = partitions_of(topic, 8)
    peer.produce(str(first), numbered(large), batch_size=10)
    for other in others:
        peer.produce(str(other), numbered(small))
    counts = []
    with Triggers(cluster.service_url, topic, maxMessagesPerTrigger=str(cap)) as triggers:
        for batch in triggers.available_now():
            counts.append(taken(triggers, batch))
    assert all(counts[0][other] > 0 for other in others)
    assert all(each.total() <= cap + 10 + 7 for each in counts)
    assert sum(counts, Counter()) == Counter({first: large, **dict.fromkeys(others, small)})
    assert len(counts) <= large // cap + 2


def test_all_limits_hold_together(cluster, peer, topic):
    small, large = numbered(20), numbered(20, first=20, size=1000)
    peer.produce(topic, small + large)
    limits = {"maxMessagesPerTrigger": "8", "maxBytesPerTrigger": "5k"}
    with Triggers(cluster.service_url, topic, **limits) as triggers:
        rows = [numbers(triggers.rows(batch)) for batch in triggers.available_now()]
    assert list(itertools.chain(*rows)) == list(range(40))
    assert list(map(len, rows)) == [8, 8, 8, 4, 4, 4, 4]


def test_few_messages_wait_for_more_or_for_the_delay(cluster, peer, topic):
    peer.produce(topic, numbered(9))
    limits = {"minMessagesPerTrigger": "10", "maxTriggerDelay": "1h"}
    with Triggers(cluster.service_url, topic, **limits) as triggers:
        begin = triggers.planner.initial()
        triggers.poll(begin, 1.5)
        peer.produce(topic, numbered(1, first=9))
        batch = triggers.next_batch(begin)
        assert numbers(triggers.rows(batch)) == list(range(10))
    with Triggers(cluster.service_url, topic, **limits | {"maxTriggerDelay": "1s"}) as triggers:
        batch = triggers.next_batch(triggers.planner.initial())
        peer.produce(topic, numbered(1, first=10))
        batch = triggers.next_batch(batch.end)
        assert numbers(triggers.rows(batch)) == [10]


def test_with_indexes_a_cap_beyond_what_is_looked_at_is_exact(indexed, indexed_peer, topic):
    # Entries of 1 and then of 10 messages: by the mean of the first thousand it would be far off.
    indexed_peer.produce(topic, numbered(1100))
    indexed_peer.produce(topic, numbered(10_000, first=1100), batch_size=10)
    with Triggers(indexed.service_url, topic, maxMessagesPerTrigger="4000") as triggers:
        counts = [triggers.count(batch) for batch in triggers.available_now()]
    assert sum(counts) == 11_100
    assert counts[:2] == [4000, 4000]


def test_a_cap_over_the_borders_of_short_ledgers(cluster, peer, admin, topic):
    admin.create_held_topic(topic)
    for first in range(0, 70, 7):
        peer.produce(topic, numbered(7, first=first))
        admin.unload(topic)
    with Triggers(cluster.service_url, topic, maxMessagesPerTrigger="10") as triggers:
        rows = [numbers(triggers.rows(batch)) for batch in triggers.available_now()]
    assert rows == [list(range(first, first + 10)) for first in range(0, 70, 10)]


def test_what_the_broker_adds_to_an_entry(indexed, indexed_peer, topic, spark):
    began = datetime.now(timezone.utc)
    indexed_peer.produce(topic, numbered(3))
    indexed_peer.produce(topic, numbered(200, first=3), batch_size=50)
    names = "__index,__brokerPublishTime,__publishTime"
    rows = PulsarInSpark(spark, indexed.service_url).read(topic, metadataColumns=names).collect()
    assert [row["__index"] for row in rows] == list(range(203))
    moment = timedelta(milliseconds=1)  # times are cut
    for row in rows:
        taken_at = row["__brokerPublishTime"].astimezone(timezone.utc)
        assert began - moment <= taken_at <= datetime.now(timezone.utc)
        assert row["__publishTime"] <= row["__brokerPublishTime"]


@pytest.mark.parametrize("with_admin", [False, True])
def test_a_large_cap_over_the_borders_of_ledgers(indexed, indexed_peer, topic, with_admin):
    indexed.admin.create_held_topic(topic)
    indexed_peer.produce(topic, numbered(6000))
    assert len(indexed.admin.internal_stats(topic)["ledgers"]) >= 3
    options = {"admin.url": indexed.admin_url} if with_admin else {}
    with Triggers(indexed.service_url, topic, maxMessagesPerTrigger="2000", **options) as triggers:
        rows = [numbers(triggers.rows(batch)) for batch in triggers.available_now()]
    assert list(itertools.chain(*rows)) == list(range(6000))
    assert max(map(len, rows)) <= 2000
    # An estimated end stays within its ledger.
    assert len(rows) <= 6


@pytest.mark.parametrize("with_admin", [False, True])
def test_a_large_cap_of_bytes_is_about_kept(indexed, indexed_peer, topic, with_admin):
    indexed_peer.produce(topic, numbered(2400, size=200))
    options = {"admin.url": indexed.admin_url} if with_admin else {}
    with Triggers(indexed.service_url, topic, maxBytesPerTrigger="360k", **options) as triggers:
        counts = [triggers.count(batch) for batch in triggers.available_now()]
    assert sum(counts) == 2400
    # 200 bytes and as many of metadata at most: more than the thousand that are looked at one by one.
    assert 1000 < counts[0] < 360 * 1024 / 200
