"""Names of other connectors' options, and the options to use here instead.

The names are from Spark itself and its Kafka and file sources, Flink's Pulsar connector in its SQL and Java
spelling, and Pulsar's own clients. These names are not accepted, because a difference in meaning would go
unnoticed.
"""

from __future__ import annotations

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

# Advice by prefix of a name, longer prefixes first.
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

_BY_NAME = {
    name.lower(): f"This is {whose} {name}: {ours}"
    for whose, names in (
        ("Spark's", _SPARK),
        ("Kafka's", _KAFKA),
        ("Flink's", _FLINK),
        ("Pulsar's", _PULSAR),
    )
    for name, ours in names.items()
}


def advice_for(name: str) -> str | None:
    """Returns the advice for an option of another connector; None if no other connector has it."""
    return _BY_NAME.get(name)


def advice_for_prefix(name: str) -> str | None:
    """Returns the advice for a name that only begins like another connector's; None for other names."""
    found = next((ours for prefix, ours in _PREFIXES.items() if name.startswith(prefix)), None)
    return None if found is None else f"This is an option of another connector: {found}"
