"""Topics that end before their next message after a restart: for brokers the end is an empty ledger."""

from collections import Counter

import pytest

from integration.broker import StandaloneBroker
from integration.fixtures.spark import Collector, PulsarInSpark, await_rows, drain, start
from integration.helpers.cluster import TEST_JVM
from integration.helpers.segments import ScalableTopic
from integration.helpers.versions import NEWEST_LINE
from pulsar_spark_broker.jars import VERSION_VARIABLE

VALUES = [str(number) for number in range(6)]


def test_a_topic_that_is_terminated_is_read_to_its_end(spark, broker_factory, topic, checkpoint):
    broker: StandaloneBroker = broker_factory()
    broker.admin.create_held_topic(topic)
    pulsar, collector = PulsarInSpark(spark, broker.service_url), Collector()
    rows = pulsar.stream(topic)
    pulsar.write(pulsar.rows([(value,) for value in VALUES[:3]], "value string"), topic)
    drain(rows, collector, checkpoint)
    pulsar.write(pulsar.rows([(value,) for value in VALUES[3:]], "value string"), topic)
    broker.kill()
    broker.start()
    broker.admin.terminate(topic)
    batch = pulsar.read(topic, startingOffsets="earliest").collect()
    assert [bytes(row.value).decode() for row in batch] == VALUES
    drain(rows, collector, checkpoint)
    assert collector.values == VALUES
    again = Collector()
    drain(rows, again, checkpoint.with_name("another"))
    assert again.values == VALUES


def test_a_topic_that_is_terminated_while_a_query_runs_is_read_to_its_end(
    spark, broker_factory, topic, checkpoint
):
    broker: StandaloneBroker = broker_factory()
    broker.admin.create_held_topic(topic)
    pulsar, collector = PulsarInSpark(spark, broker.service_url), Collector()
    query = start(pulsar.stream(topic, maxMessagesPerTrigger="1"), collector, checkpoint)
    try:
        pulsar.write(pulsar.rows([(value,) for value in VALUES], "value string"), topic)
        await_rows(query, lambda: collector.rows)
        broker.kill()
        broker.start()
        broker.admin.terminate(topic)
        await_rows(query, lambda: len(collector.rows) == len(VALUES))
    finally:
        query.stop()
    assert collector.values == VALUES


@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"transactionCoordinatorEnabled": "true"}, marks=pytest.mark.long)]
)
def test_a_segment_that_is_split_is_read_to_its_end(spark, topic, checkpoint, settings):
    counts = Counter()
    local = topic.rpartition("/")[2]
    name = f"topic://public/default/{local}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VERSION_VARIABLE, NEWEST_LINE)
        with StandaloneBroker(settings, jvm=TEST_JVM) as broker:
            broker.admin.set_retention("public/default", minutes=-1, megabytes=-1)
            pulsar, collector = PulsarInSpark(spark, broker.service_url), Collector()
            rows = pulsar.stream(name, **{"admin.url": broker.admin_url})
            for _ in range(2):
                with ScalableTopic(
                    broker.service_url, broker.admin, local, segments=0 if counts else 1
                ) as scalable:
                    for key in VALUES:
                        scalable.write(key)
                    counts.update(scalable.counts)
                broker.kill()
                broker.start()
                with ScalableTopic(broker.service_url, broker.admin, local, segments=0) as scalable:
                    scalable.split(scalable.active[0])
                drain(rows, collector, checkpoint)
            batch = pulsar.read(name, startingOffsets="earliest").collect()
    for found in (batch, collector.rows):
        assert Counter(bytes(row.value).decode().partition(":")[0] for row in found) == counts
