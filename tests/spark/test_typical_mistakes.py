"""Mistakes of people who are new to the package: the first line says what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.data_source import PulsarDataSource

URL = {"service.url": "pulsar://localhost:6650"}
TOPIC = {**URL, "topic": "t"}
TEXT, INT = StringType(), IntegerType()


def source(**options: str) -> PulsarDataSource:
    return PulsarDataSource(CaseInsensitiveDict(options))


# Options of a read; what is wrong; what to do.
READS = [
    ({"topic": "t"}, "service.url is missing", "Set"),
    (
        {**TOPIC, "service.url": "http://localhost:8080"},
        "does not begin with pulsar://",
        "Write pulsar://host",
    ),
    ({**TOPIC, "service.url": "localhost:6650"}, "does not begin with pulsar://", "Write pulsar://host"),
    (URL, "no topic is named", 'Set .option("topic"'),
    ({**TOPIC, "topics": "u"}, "topic and topics cannot be used together", "Leave all but one"),
    ({**URL, "topic": "a,b"}, "option topic is 'a,b'", "To read several, set topics"),
    ({**URL, "topic": "b/t"}, "tenant or namespace is missing", "Write persistent://tenant/namespace/topic"),
    ({**URL, "topicc": "t"}, "no option 'topicc'", "Did you mean topic?"),
    ({**TOPIC, "subscription": "s"}, "no option 'subscription'", "use predefinedSubscription"),
    ({**TOPIC, "startingOffsets": "beginning"}, "startingOffsets is 'beginning'", "earliest"),
    ({**TOPIC, "startingOffsets": "subscription"}, "no subscription is named", "predefinedSubscription"),
    ({**TOPIC, "startingTime": "1700000000"}, "before March 1973", "probably 1700000000000"),
    ({**TOPIC, "subscribe": "t"}, "no option 'subscribe'", "use topic"),
    ({**TOPIC, "valueFormat": "avro"}, "valueFormat is 'avro'", "It must be columns, and schemaType=avro"),
    (
        {**TOPIC, "valueSchema": '"string"'},
        "valueSchema has no effect with valueFormat=raw",
        "Set valueFormat to columns",
    ),
    ({**TOPIC, "delivery": "transactional"}, "not one of the source", "an option of the sink"),
    ({**TOPIC, "maxMessagesPerTrigger": "10k"}, "is '10k'", "a whole number"),
    ({**TOPIC, "pulsar.client.authParams": "token:x"}, "without authPluginClassName", "such as token"),
    ({**TOPIC, "pulsar.consumer.subscriptionType": "Shared"}, "no option", "minPartitions"),
    ({**TOPIC, "checkpointLocation": "/c"}, "no option 'checkpointlocation'", "set it on writeStream"),
    ({**TOPIC, "queryName": "q"}, "no option 'queryname'", "set it on writeStream"),
    ({**TOPIC, "path": "payments"}, "no option 'path'", "use topic, and load()"),
    ({**TOPIC, "maxFilesPerTrigger": "1"}, "no option", "use maxMessagesPerTrigger"),
    ({**TOPIC, "columnNameOfCorruptRecord": "c"}, "no option", "metadataColumns with __corruptValue"),
    ({**TOPIC, "badRecordsPath": "/b"}, "no option", "metadataColumns with __corruptValue"),
    ({**TOPIC, "deadLetterTopic": "d"}, "no option", "use mode with PERMISSIVE"),
    ({**TOPIC, "trigger": "1 minute"}, "no option 'trigger'", "set it on writeStream"),
    ({**TOPIC, "inferSchema": "true"}, "no option", "use valueFormat with columns"),
    ({**TOPIC, "multiLine": "true"}, "no option", "each message is one value"),
    ({"bootstrap.servers": "h:9092", "topic": "t"}, "no option", "use service.url"),
    ({**URL, "topic": "persistent:/public/default/t"}, "a slash is missing after", "Write persistent://"),
    (
        {**TOPIC, "pulsar.client.authPluginClassName": "basic", "pulsar.client.authParams": "user:word"},
        "authParams is not a JSON object",
        '{"userId": "..."',
    ),
    ({**TOPIC, "useTls": "true"}, "no option", "use service.url with pulsar+ssl://"),
    ({**TOPIC, "metadataColumns": "key"}, "metadataColumns is 'key'", "It must be __key, in place of key"),
    ({**TOPIC, "metadataColumns": "__ky"}, "metadataColumns is '__ky'", "names from __key"),
    ({**URL, "topic": "ord*"}, "option topic is 'ord*'", "set topicsPattern"),
    ({**URL, "topics": "ord*,u"}, "option topics is 'ord*,u'", "set topicsPattern"),
    ({**URL, "topics": "a b"}, "option topics is 'a b'", "names separated by commas"),
    ({**URL, "topics": '["a", "b"]'}, "option topics is", "commas, without brackets"),
    (
        {**URL, "topicsPattern": "*x*"},
        "invalid regular expression: nothing to repeat",
        "where .* is any text",
    ),
    ({**TOPIC, "valueFormat": "string"}, "valueFormat is 'string'", "raw, and a cast of value"),
    ({**TOPIC, "pollTimeoutMs": "5"}, "option pollTimeoutMs is '5'", "with its unit, 5s or 5ms"),
    (
        {**TOPIC, "pulsar.client.keepAliveIntervalSeconds": "30000"},
        "is '30000'",
        "30000ms or 30000s",
    ),
    ({**TOPIC, "pulsar.reader.cryptoKeyReader": "__main__.Keys"}, "'__main__.Keys'", "move it out of"),
    ({**TOPIC, "pulsar.reader.cryptoKeyReader": "os.path"}, "is os.path, a module", "Write os.path.Class"),
    ({**TOPIC, "pulsar.reader.cryptoKeyReader": "/no/keys"}, "there is no such folder", "Put the folder"),
    (
        {**TOPIC, "pulsar.client.authPluginClassName": "jwt", "pulsar.client.authParams": "token:x"},
        "plugin jwt: did you mean token?",
        "Set it to one of token",
    ),
    (
        {**TOPIC, "pulsar.client.authPluginClassName": "token", "pulsar.client.authParams": "Bearer x"},
        "authParams is wrong",
        "token:TEXT (without Bearer)",
    ),
]

# Options of a write; the columns of the rows; what is wrong; what to do.
WRITES: list[tuple[dict[str, str], dict[str, DataType], str, str]] = [
    ({}, {"value": TEXT}, "A write does not use the options of its table", "INSERT INTO t WITH"),
    (URL, {"value": TEXT}, "no topic is given", 'Set .option("topic"'),
    (TOPIC, {"value": INT}, "the value column value is int", "cast it to binary or string"),
    (TOPIC, {"id": INT, "item": TEXT}, "the value must be one column", "Set valueFormat=columns"),
    (TOPIC, {"key": TEXT, "value": TEXT}, "names of Kafka's sink: key.", "Rename key to __key. Fields"),
    (
        TOPIC,
        {"key": BinaryType(), "value": BinaryType(), "headers": TEXT, "partition": INT},
        "names of Kafka's sink: key, headers, partition",
        "Rename key to __key, headers to __messageProperties, partition to __partition",
    ),
    (
        URL,
        {"topic": TEXT, "value": TEXT, "timestamp": TimestampType(), "offset": INT},
        "names of Kafka's sink: topic, timestamp",
        "Rename topic to __topic, timestamp to __eventTime",
    ),
    (TOPIC, {"value": TEXT, "__evenTime": TimestampType()}, "no column __evenTime", "mean __eventTime"),
    (TOPIC, {"__key": TEXT, "__payload": BinaryType()}, "no column __payload", "rename it to value"),
    (TOPIC, {"__key": INT, "value": TEXT}, "column __key is int", "Cast it to string or binary"),
    (
        {**TOPIC, "keyColumns": "id"},
        {"id": INT, "value": TEXT},
        "no effect with valueFormat=raw",
        "Set valueFormat to columns",
    ),
    ({**TOPIC, "delivery": "exactly-once"}, {"value": TEXT}, "is 'exactly-once'", "transactional"),
    ({**TOPIC, "startingOffsets": "latest"}, {"value": TEXT}, "not one of the sink", "option of the source"),
    ({**TOPIC, "path": "payments"}, {"value": TEXT}, "no option 'path'", "use topic, and load(), save()"),
    ({**TOPIC, "deliveryGuarantee": "once"}, {"value": TEXT}, "no option", "use delivery"),
    ({**TOPIC, "pulsar.producer.sendTimeoutMs": "30"}, {"value": TEXT}, "is '30'", "30s or 30ms"),
    ({**TOPIC, "valueFormat": "string"}, {"value": TEXT}, "is 'string'", "raw, and a cast of value"),
    (
        {**TOPIC, "onBatchWritten": "__main__.f"},
        {"value": TEXT},
        "'__main__.f'",
        "move it out of the program",
    ),
    ({**TOPIC, "onBatchWritten": "os.path"}, {"value": TEXT}, "os.path, a module", "Write os.path.function"),
    ({**TOPIC, "pulsar.producer.interceptors": "no.X"}, {"value": TEXT}, "no such name", "--py-files"),
    ({**TOPIC, "transactional": "true"}, {"value": TEXT}, "no option", "use delivery with transactional"),
    ({**TOPIC, "exactlyOnce": "true"}, {"value": TEXT}, "no option", "use delivery with effectively-once"),
    ({**TOPIC, "linger.ms": "5"}, {"value": TEXT}, "no option", "use pulsar.producer.batchingMaxPublish"),
    ({**TOPIC, "key": "id"}, {"value": TEXT}, "no option 'key'", "use a column __key"),
    ({**TOPIC, "partitions": "4"}, {"value": TEXT}, "no option", "pulsar_spark admin create TOPIC NUMBER"),
    ({**TOPIC, "acks": "all"}, {"value": TEXT}, "no option", "leave it out: a write ends when"),
    ({**TOPIC, "compressionType": "LZ4"}, {"value": TEXT}, "no option", "pulsar.producer.compressionType"),
]


def check(action: Callable[[], object], what: str, advice: str) -> None:
    with pytest.raises(OptionError) as caught:
        action()
    (line,) = str(caught.value).splitlines()
    assert line.startswith("[PULSAR_OPTION] ")
    _, found, after = line.partition(what)
    assert found, line
    assert advice in after, line


def test_mistakes_of_reads():
    for options, what, advice in READS:
        check(source(**options).schema, what, advice)


def test_mistakes_of_writes():
    for options, columns, what, advice in WRITES:
        schema = StructType()
        for name, kind in columns.items():
            schema.add(name, kind)
        for write in (source(**options).writer, source(**options).streamWriter):
            check(partial(write, schema, overwrite=False), what, advice)
