"""Entries that the broker refuses while it stores later ones: no row is lost, and none is stored twice."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from integration.broker import Admin
from integration.broker.waiting import wait_until
from integration.chaos.messages import columns_of
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.peer import Peer, Record
from integration.helpers.replays import STRICT, Replays, number_in
from pulsar_spark.client import Producer, ProducerOptions
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire.columns.entry_messages import encode_singles
from pulsar_spark.wire.columns.message_columns import MessageColumns

ROWS = 3000
REFUSED = 1500  # the number of the row that is refused
LARGE = 300_000  # bytes
LATER = 3_600_000  # ms

PROBE = b"probe"

# Of the broker behind a proxy.
BROKER = {
    "brokerDeduplicationEnabled": "true",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}


class Policy(NamedTuple):
    """A policy of a topic.

    Attributes:
        set: what sets it, or takes it away.
        probe: a message that it refuses.
        change: of the rows of a query: one of them is refused.
    """

    set: Callable[[Admin, str, bool], None]
    probe: MessageColumns
    change: Callable[[DataFrame], DataFrame]


def is_refused():
    return f.col("value").startswith(f"{REFUSED}.")


def make_large(rows):
    return rows.withColumn(
        "value", f.when(is_refused(), f.rpad("value", LARGE, "!")).otherwise(f.col("value"))
    )


def deliver_late(rows):
    """The time is that of the row, not that of the run."""
    return rows.withColumn("__deliverAt", f.when(is_refused(), f.lit("2100-01-01").cast("timestamp")))


POLICIES = {
    "size": Policy(
        lambda admin, topic, on: admin.set_max_message_size(topic, 200_000 if on else None),
        columns_of([Record(PROBE.ljust(LARGE))]),
        make_large,
    ),
    "delay": Policy(
        lambda admin, topic, on: admin.set_max_delay(topic, 60_000 if on else None),
        replace(
            columns_of([Record(PROBE)]), deliver_at=pa.array([round(time.time() * 1000) + LATER], pa.int64())
        ),
        deliver_late,
    ),
}


def switch(client, admin, topic, policy, on):
    """Set a policy or take it away, and wait until each partition goes by it."""
    policy.set(admin, topic, on)
    for partition in client.partitions(TopicName.parse(topic)):
        wait_until(lambda partition=partition: is_taken(client, partition, policy.probe) != on)


def is_taken(client, topic, message):
    with closing(Producer(client, topic, ProducerOptions(), 1)) as producer:
        producer.send_singles(encode_singles(message))
        try:
            producer.flush()
        except NotAllowedError:
            return False
        return True


def rows_in(peer, topic):
    """How often each row is there, without the probes."""
    values = [record.value or b"" for record in peer.read_all(topic)]
    return Counter(number_in(value.replace(b"!", b".")) for value in values if not value.startswith(PROBE))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("size", {}, id="size-default", marks=pytest.mark.long),
        pytest.param("delay", STRICT, id="delay-strict"),
        pytest.param("size", STRICT, id="size-strict", marks=pytest.mark.long),
        pytest.param("delay", {}, id="delay-default", marks=pytest.mark.long),
    ],
)
def test_a_row_that_a_policy_refuses_is_stored_when_it_is_lifted(
    pulsar_in_spark, client, admin, peer, once_topic, tmp_path, kind, options
):
    policy = POLICIES[kind]
    query = Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS)
    switch(client, admin, once_topic, policy, True)
    for _ in range(3):
        query.fails(r"\[PULSAR_NOT_ALLOWED\]", None, policy.change, **options)
    stored = rows_in(peer, once_topic)
    assert REFUSED not in stored
    assert stored.total() > ROWS // 2
    switch(client, admin, once_topic, policy, False)
    query.run(None, policy.change, **options)
    assert rows_in(peer, once_topic) == Counter(range(ROWS))


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="default"), pytest.param(STRICT, id="strict", marks=pytest.mark.long)]
)
def test_a_row_that_is_damaged_on_the_way_is_stored(spark, own_proxied, topic, tmp_path, options):
    """If the broker has stored later entries, it would drop this one now: the query fails."""
    admin, here = own_proxied.broker.admin, PulsarInSpark(spark, own_proxied.service_url)
    admin.create_partitioned_topic(topic, 2)
    query = Replays(here, admin.url, topic, tmp_path, rows=ROWS)
    before = own_proxied.proxy.damaged
    own_proxied.proxy.damage_next(b"!" * 1000)
    with suppress(StreamingQueryException):
        query.run(None, make_large, **options)
    assert own_proxied.proxy.damaged == before + 1
    query.run(None, make_large, **options)
    with Peer(own_proxied.broker.service_url) as peer:
        assert rows_in(peer, topic) == Counter(range(ROWS))
