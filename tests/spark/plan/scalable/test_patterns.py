"""Queries of a pattern of scalable topics, which are created and deleted while a query runs or is stopped."""

import logging
from typing import Any

import pytest

from pulsar_spark.errors import BrokerError, ConnectError, NotReadyError, OptionError
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan.batch import plan_read
from pulsar_spark.spark.plan.topics import find_partitions
from tests.spark.plan.read_topics import ADMIN, names, watched
from tests.spark.plan.scalable.scalable_queries import KEYS, assert_complete
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import SimulatedSpark, options_of

PATTERN: dict[str, Any] = {"topicsPattern": "topic://public/default/s.*", "admin__url": ADMIN}


class PatternQuery(SimulatedSpark):
    """A stream of PATTERN."""

    def __init__(self, cluster, **options):
        super().__init__(cluster, "unused", startingOffsets="earliest", **options)

    def start(self, **options):
        self.options.pop("topic", None)
        super().start(**PATTERN, **options)


def created(cluster, local, messages=1):
    topic = ScalableTopic(cluster, f"topic://public/default/{local}", ledger=100 * len(cluster.layouts))
    for _ in range(messages):
        topic.write(KEYS)
    return topic


def deleted(cluster, topic):
    del cluster.layouts[topic.name]
    cluster.registered.pop(topic.name, None)
    for segment in topic._segments:
        cluster.topics.pop(segment)


def assert_all(spark, *topics):
    """Each message of the topics came once, and those of a key in order."""
    rows = spark.rows
    for topic in topics:
        spark.rows = [row for row in rows if row[0].base == topic.name]
        assert_complete(topic, spark)
    spark.rows = rows
    assert {row[0].base for row in rows} == {topic.name for topic in topics if topic.counts}


def test_it_reads_scalable_topics_only_and_other_patterns_read_others(cluster):
    st = created(cluster, "st")
    created(cluster, "other")
    cluster.create("sp")
    for read in (watched(cluster, **PATTERN).partitions, find_partitions(cluster, options_of(**PATTERN))):
        assert read == [st.named(0)]
    assert names(find_partitions(cluster, options_of(topicsPattern="s.*"))) == ["sp"]
    assert {each.topic for each in plan_read(options_of(Mode.BATCH, **PATTERN), cluster)} == {st.named(0)}


def test_a_stream_needs_the_admin_service():
    with pytest.raises(OptionError, match=r"admin\.url"):
        options_of(topicsPattern=PATTERN["topicsPattern"])
    options_of(Mode.BATCH, topicsPattern=PATTERN["topicsPattern"])


def test_new_topics_are_read_from_their_first_message_and_registered(cluster):
    old = created(cluster, "s1")
    spark = PatternQuery(cluster)
    spark.drain()
    new = created(cluster, "s2")
    spark.drain()
    assert cluster.registered[new.name] == cluster.registered[old.name] == {spark.subscription}
    new.split(new.active[0])
    new.write(KEYS)
    old.write(KEYS)
    spark.drain()
    assert_all(spark, old, new)


def test_a_topic_that_appears_while_the_query_is_stopped(cluster):
    old = created(cluster, "s1")
    spark = PatternQuery(cluster)
    spark.drain()
    new = created(cluster, "s2")
    new.split(new.active[0])
    new.write(KEYS)
    spark.restart()
    spark.drain()
    assert cluster.registered[new.name] == {spark.subscription}
    assert_all(spark, old, new)


def test_a_query_may_begin_without_a_topic(cluster, caplog):
    spark = PatternQuery(cluster)
    assert "so nothing is read" in caplog.text
    assert spark.drain() == []
    new = created(cluster, "s1")
    spark.drain()
    assert_all(spark, new)


def test_a_deleted_topic_goes(cluster, caplog):
    """It leaves the offset, and its watch is closed; the other topics go on."""
    kept, gone = created(cluster, "s1"), created(cluster, "s2")
    spark = PatternQuery(cluster)
    spark.drain()
    readers = cluster.open_readers
    deleted(cluster, gone)
    kept.write(KEYS)
    spark.drain()
    spark.drain()
    assert_all(spark, kept, gone)
    assert cluster.open_readers < readers
    assert str(gone.name) not in spark.offsets[-1]
    kept.write(KEYS)
    spark.restart()
    spark.drain()
    assert_all(spark, kept, gone)
    spark.stop()
    assert cluster.open_readers == 0
    assert [line for line in caplog.records if line.levelno >= logging.ERROR] == []


def test_a_topic_that_is_deleted_while_the_query_is_stopped(cluster):
    kept, gone = created(cluster, "s1"), created(cluster, "s2")
    spark = PatternQuery(cluster)
    spark.drain()
    spark.stop()
    deleted(cluster, gone)
    kept.write(KEYS)
    spark.start()
    spark.drain()
    assert_all(spark, kept, gone)


def test_a_topic_whose_subscription_cannot_be_registered_is_tried_again(cluster, monkeypatch):
    old = created(cluster, "s1")
    spark = PatternQuery(cluster)
    spark.drain()
    real = cluster.admin
    failures = [ConnectError("down"), BrokerError("500")]

    class Failing:
        def __init__(self, url):
            self._real = real(url)

        def hold_scalable(self, topic, name):
            if failures:
                raise failures.pop()
            self._real.hold_scalable(topic, name)

        def __getattr__(self, name):
            return getattr(self._real, name)

    monkeypatch.setattr(cluster, "admin", Failing)
    new = created(cluster, "s2")
    for _ in range(10):
        spark.drain()
    assert not failures
    assert_all(spark, old, new)


def test_a_refused_registration_of_a_running_query_is_passing(cluster, monkeypatch):
    created(cluster, "s1")
    topics = watched(cluster, **PATTERN)
    topics._scalable.subscription = "s"

    class Refusing:
        def hold_scalable(self, topic, name):
            raise BrokerError("500")

    monkeypatch.setattr(cluster, "admin", lambda url: Refusing())
    new = created(cluster, "s2")
    with pytest.raises(NotReadyError, match="500"):
        topics._scalable.segments_of(new.name)
    topics.close()


def test_a_named_topic_that_is_waited_for_is_registered_when_it_appears(cluster):
    name = "topic://public/default/s1"
    options = {"startingOffsets": "earliest", "waitingForNonExistedTopic": "true", "admin__url": ADMIN}
    spark = SimulatedSpark(cluster, name, **options)
    assert spark.drain() == []
    new = created(cluster, "s1")
    spark.drain()
    spark.drain()
    assert cluster.registered[new.name] == {spark.subscription}
    assert_all(spark, new)


def test_an_idle_query_lists_nothing(cluster):
    created(cluster, "s1")
    topics = watched(cluster, **PATTERN)
    before = len(cluster.requests)
    for _ in range(10):
        topics.refresh()
        cluster.clock += 1.0
    assert len(cluster.requests) == before
    topics.close()
    assert cluster.open_readers == 0
