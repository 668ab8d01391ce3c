"""Options of Spark and of other connectors: each is answered, and with options that exist."""

import re

import pytest

from pulsar_spark.spark.options import parse
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE
from tests.loops import for_each

OURS = {option.name for option in (*CONNECTION, *SOURCE, *SINK)}
OTHERS = {**parse._SPARK, **parse._KAFKA, **parse._FLINK, **parse._PULSAR}


@for_each(
    ("name", "ours"),
    [
        ("maxOffsetsPerTrigger", "maxMessagesPerTrigger"),
        ("startingTimestamp", "startingTime"),
        ("startingOffsetsByTimestamp", "startingTime"),
        ("subscribe", "topic"),
        ("subscribePattern", "topicsPattern"),
        ("kafka.bootstrap.servers", "service.url"),
        ("kafka.group.id", "predefinedSubscription"),
        ("service-url", "service.url"),
        ("admin-url", "admin.url"),
        ("scan.startup.mode", "startingOffsets"),
        ("sink.delivery-guarantee", "delivery"),
        ("subscription", "predefinedSubscription"),
        ("subscriptionName", "predefinedSubscription"),
        ("subscriptionType", "minPartitions"),
        ("pulsar.consumer.subscriptionType", "minPartitions"),
        ("pulsar.consumer.subscriptionInitialPosition", "startingOffsets"),
    ],
)
def test_names_are_answered_with_ours(name, ours):
    assert ours in parse._OTHER_NAMES[name.lower()]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("kafka.ssl.truststore.location", "pulsar.client.tls"),
        ("kafka.acks", "pulsar.producer"),
        ("pulsar.consumer.ackReceiptEnabled", "docs/options.md"),
    ],
)
def test_beginnings_are_answered_with_ours(name, ours):
    assert name.lower() not in parse._OTHER_NAMES
    assert ours in parse._advice_for_prefix(name.lower())


def test_a_name_of_nobody_is_not_answered():
    for name in ("nonsense", "kafka", "pulsar.client.nonsense"):
        assert name not in parse._OTHER_NAMES
        assert parse._advice_for_prefix(name) is None


def test_no_name_is_one_of_ours():
    """It would be accepted, and its answer never shown."""
    assert {name.lower() for name in OTHERS} & {name.lower() for name in OURS} == set()


def test_what_is_advised_exists():
    for name, advice in OTHERS.items():
        verb, _, rest = advice.partition(" ")
        named = re.match(r"[\w.]+", rest)[0].rstrip(".")
        assert (verb == "use" and (named in OURS or named in ("a", "topic"))) or advice.startswith(
            ("leave it out, ", "leave it out: ")
        ), name


def test_longer_beginnings_come_first():
    """The first that fits is taken."""
    names = list(parse._PREFIXES)
    assert not any(late.startswith(early) for at, early in enumerate(names) for late in names[at + 1 :])
