"""Parses the user's options by the tables of source or sink: names, values and defaults.

This module owns the rules for all options. An option's meaning is in its table, and checks of combinations
are in the table's module.

Names of other connectors' options are refused, because a difference in meaning would go unnoticed; the error
names the option to use here instead. The names are from Spark itself and its Kafka and file sources, Flink's
Pulsar connector in its SQL and Java spelling, and Pulsar's own clients.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.connection import CONNECTION, SERVICE_URL
from pulsar_spark.spark.options.option import Mode, Option, Values
from pulsar_spark.spark.options.sink import SINK, SinkOptions, sink_options
from pulsar_spark.spark.options.source import SOURCE, SourceOptions, source_options

_TABLES = {"source": SOURCE, "sink": SINK}

# Minimum similarity (0 to 1) of a name to suggest; prefixes such as ``pulsar.client.`` are not compared.
_NEAR = 0.75
_PREFIX = re.compile(r"pulsar\.\w+\.")

# Options of writeStream that Spark adds to the sink's options.
_SPARKS_OWN = {"source": frozenset[str](), "sink": frozenset({"checkpointlocation", "queryname"})}


def parse_source(options: Mapping[str, str], mode: Mode | None) -> SourceOptions:
    """Parses the options of ``spark.read`` and ``spark.readStream``.

    Args:
        mode: batch or stream; None: unknown, because Spark requests the schema first. None accepts the
            options of both modes, and starts at a batch's default.

    Raises:
        OptionError: an unknown name (the text suggests a similar one), a bad value, a missing option, or
            options that cannot be used together.
    """
    values = _read(options, "source")
    if mode is not None and SERVICE_URL not in values.given:
        # Spark does not request a schema that the user or a table has. Such a table may have no options.
        raise OptionError(
            "the option service.url is missing. A table has no options if it was made with listed columns, "
            "AS SELECT, saveAsTable or toTable",
            advice='Set .option("service.url", "pulsar://host:6650"), or create the table with OPTIONS (...) '
            "and without columns",
        )
    for option in values.given:
        if mode is not None and option.only not in (None, mode):
            raise OptionError(
                f"option {option.name} is not allowed for reading a {mode.value}", advice="Leave it out"
            )
    return source_options(values, mode)


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Parses the options of ``df.write`` and ``df.writeStream``."""
    values = _read(options, "sink")
    if not values.given:
        raise OptionError(
            "the option service.url is missing. A write does not use the options of its table",
            advice='Set .option("service.url", "pulsar://host:6650") and .option("topic", ...), in SQL '
            "INSERT INTO t WITH (...). Instead of CREATE TABLE ... AS SELECT, create the table, then insert",
        )
    return sink_options(values)


def _read(options: Mapping[str, str], side: str) -> Values:
    known = {option.name.lower(): option for option in (*CONNECTION, *_TABLES[side])}
    texts = {name.lower(): text.strip() for name, text in options.items()}
    for name in sorted(texts.keys() - known.keys() - _SPARKS_OWN[side]):
        raise _unknown(name, side, {name: option.name for name, option in known.items()})
    by_name = {}
    for name, option in known.items():
        text = texts.get(name, option.default)
        by_name[option.name] = None if text is None else _value(option, text)
    return Values(by_name, tuple(option for name, option in known.items() if name in texts))


def _value(option: Option[Any], text: str) -> Any:
    try:
        return option.parser(text)
    except ValueError as error:
        given = "wrong" if option.secret else repr(text[:500])
        raise OptionError(f"option {option.name} is {given}", advice=f"It must be {error}") from None


def _unknown(name: str, side: str, known: Mapping[str, str]) -> OptionError:
    """Returns the error for an unknown option; ``name`` and the keys of ``known`` are in lower case."""
    for other, table in _TABLES.items():
        for option in table:
            if option.name.lower() == name:
                what = f"option {option.name} is not one of the {side}"
                return OptionError(what, advice=f"It is an option of the {other}")
    advice = _OTHER_NAMES.get(name) or _nearest(name, known) or _advice_for_prefix(name)
    return OptionError(
        f"the {side} has no option {name!r}",
        advice=advice or f"docs/options.md lists all options of the {side}",
    )


def _nearest(name: str, known: Mapping[str, str]) -> str | None:
    """Returns a question that suggests the most similar name; None: no name is similar."""
    stems = {_PREFIX.sub("", each): each for each in known}
    near = difflib.get_close_matches(_PREFIX.sub("", name), stems, n=1, cutoff=_NEAR)
    return f"Did you mean {known[stems[near[0]]]}?" if near else None


def _advice_for_prefix(name: str) -> str | None:
    """Returns the advice for a name with another connector's prefix; None for other names."""
    found = next((ours for prefix, ours in _PREFIXES.items() if name.startswith(prefix)), None)
    return None if found is None else f"This is an option of another connector: {found}"


_SPARK = {
    "path": "use topic, and load(), save() or start() without a name",
    "checkpointLocation": "leave it out, and set it on writeStream",
    "queryName": "leave it out, and set it on writeStream",
    "maxFilesPerTrigger": "use maxMessagesPerTrigger",
    "columnNameOfCorruptRecord": "use mode with PERMISSIVE, and metadataColumns with __corruptValue",
    "badRecordsPath": "use mode with PERMISSIVE, and metadataColumns with __corruptValue",
    "trigger": "leave it out, and set it on writeStream by trigger(...)",
    "inferSchema": "use valueFormat with columns: the topic's schema gives the columns",
    "multiLine": "leave it out: each message is one value",
    "header": "leave it out: each message is one value",
    "key": "use a column __key, or keyColumns",
    "partitions": "leave it out: pulsar_spark admin create TOPIC NUMBER makes a topic with some",
    "transactional": "use delivery with transactional",
    "exactlyOnce": "use delivery with effectively-once or transactional",
}

_KAFKA = {
    "kafka.bootstrap.servers": "use service.url, such as pulsar://HOST:6650",
    "bootstrap.servers": "use service.url, such as pulsar://HOST:6650",
    "kafka.group.id": "use predefinedSubscription",
    "linger.ms": "use pulsar.producer.batchingMaxPublishDelayMicros",
    "subscribe": "use topic, or topics for several",
    "subscribePattern": "use topicsPattern",
    "assign": "use topic with the partition in it, such as orders-partition-0, or topics for several",
    "startingTimestamp": "use startingTime",
    "endingTimestamp": "use endingTime",
    "startingOffsetsByTimestamp": 'use startingTime with JSON by topic, such as {"orders": 1700000000000}',
    "endingOffsetsByTimestamp": 'use endingTime with JSON by topic, such as {"orders": 1700000000000}',
    "startingOffsetsByTimestampStrategy": (
        "leave it out: a query whose start time is after the last message waits for it"
    ),
    "maxOffsetsPerTrigger": "use maxMessagesPerTrigger",
    "minOffsetsPerTrigger": "use minMessagesPerTrigger",
    "maxRecordsPerPartition": "use maxMessagesPerPartition",
    "kafkaConsumer.pollTimeoutMs": "use pollTimeoutMs",
    "fetchOffset.numRetries": "use pulsar.client.operationTimeoutMs, the timeout that includes all retries",
    "fetchOffset.retryIntervalMs": (
        "use pulsar.client.operationTimeoutMs, the timeout that includes all retries"
    ),
    "groupIdPrefix": "use subscriptionPrefix",
    "acks": "leave it out: a write ends when the brokers have acknowledged all rows",
    "includeHeaders": "leave it out: the column __messageProperties has them",
}

_FLINK = {
    "service-url": "use service.url",
    "pulsar.client.serviceUrl": "use service.url",
    "admin-url": "use admin.url",
    "pulsar.admin.adminUrl": "use admin.url",
    "topic-pattern": "use topicsPattern",
    "scan.startup.mode": "use startingOffsets, or startingTime",
    "scan.startup.timestamp-millis": "use startingTime",
    "scan.startup.sub-name": "use predefinedSubscription",
    "scan.startup.specific-offsets": "use startingOffsets",
    "source.start.message-id": "use startingOffsets",
    "source.start.publish-time": "use startingTime",
    "source.stop.at-message-id": "use endingOffsets of a batch",
    "source.stop.after-message-id": "use endingOffsets of a batch",
    "source.stop.at-publish-time": "use endingTime of a batch",
    "source.subscription-name": "use predefinedSubscription",
    "pulsar.consumer.subscriptionName": "use predefinedSubscription",
    "format": "use valueFormat",
    "value.format": "use valueFormat",
    "key.format": "use valueFormat with keyColumns",
    "key.fields": "use keyColumns, or a column __key",
    "sink.delivery-guarantee": "use delivery",
    "pulsar.sink.deliveryGuarantee": "use delivery",
    "deliveryGuarantee": "use delivery",
    "sink.topic-routing-mode": "use pulsar.producer.messageRoutingMode",
    "pulsar.sink.topicRoutingMode": "use pulsar.producer.messageRoutingMode",
    "sink.message-delay-interval": "use a column __deliverAfter",
}

_PULSAR = {
    "allowDifferentTopicSchemas": (
        "leave it out, and use valueFormat=raw, or columns that the topics share by .schema(...)"
    ),
    "useTls": "use service.url with pulsar+ssl://",
    "deadLetterTopic": "use mode with PERMISSIVE, and write the rows with a __corruptValue to that topic",
    "subscription": "use predefinedSubscription",
    "subscriptionName": "use predefinedSubscription",
    "subscriptionType": "leave it out: a query reads each partition in order, and minPartitions adds tasks",
    "subscriptionInitialPosition": "use startingOffsets",
    "pulsar.consumer.subscriptionType": (
        "leave it out: a query reads each partition in order, and minPartitions adds tasks"
    ),
    "pulsar.consumer.subscriptionInitialPosition": "use startingOffsets",
}

# Advice for options of other connectors, by prefix of the name; longer prefixes first.
_PREFIXES = {
    "kafka.sasl.": "use pulsar.client.authPluginClassName and pulsar.client.authParams, see docs/security.md",
    "kafka.ssl.": "use the options pulsar.client.tls..., see docs/security.md",
    "kafka.security.": (
        "use pulsar+ssl:// in service.url, and the options pulsar.client..., see docs/security.md"
    ),
    "kafka.": (
        "use the matching option pulsar.client... or pulsar.producer... if there is one, see docs/options.md"
    ),
    "pulsar.admin.": "use the options pulsar.client..., which are also used for the admin service",
    "pulsar.consumer.": "leave it out, or see the options of the source in docs/options.md",
    "pulsar.reader.": "leave it out, or see the options of the source in docs/options.md",
    "pulsar.source.": "leave it out, or see the options of the source in docs/options.md",
    "pulsar.sink.": "leave it out, or see the options of the sink in docs/options.md",
}

_OTHER_NAMES = {
    name.lower(): f"This is {whose} {name}: {ours}"
    for whose, names in (("Spark's", _SPARK), ("Kafka's", _KAFKA), ("Flink's", _FLINK), ("Pulsar's", _PULSAR))
    for name, ours in names.items()
}
