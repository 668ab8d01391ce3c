import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_sink, parse_source
from pulsar_spark.spark.options.positions import PositionWord
from tests.loops import for_each
from tests.spark.options.parsing import URL, refused, sink, source


def test_names_are_case_insensitive():
    options = parse_source(
        {"SERVICE.URL": "pulsar://h", "Topics": "a, b,a", "STARTINGOFFSETS": "Earliest"}, None
    )
    assert [topic.local for topic in options.topics] == ["a", "b"]
    assert options.start.everywhere is PositionWord.EARLIEST


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("topicc", "topic"),
        ("startingoffset", "startingOffsets"),
        ("serviceurl", "service.url"),
        ("operationTimeoutMs", "pulsar.client.operationTimeoutMs"),
        ("endingOffset", "endingOffsets"),
        ("pulsar.reader.authParams", "pulsar.client.authParams"),
        ("pollTimeout", "pollTimeoutMs"),
    ],
)
def test_an_unknown_option_names_the_one_that_is_near(given, nearest):
    with pytest.raises(OptionError, match=rf"Did you mean {nearest}\?"):
        parse_source({**URL, "topic": "t", given: "x"}, Mode.STREAM)


@pytest.mark.parametrize("given", ["nonsense", "checkpoint", "batchSize", "z", "pulsar.client.nonsense"])
def test_where_no_option_is_near_the_page_is_named(given):
    with pytest.raises(OptionError, match=r"docs/options\.md lists all options of the sink") as caught:
        parse_sink({**URL, given: "x"})
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("maxOffsetsPerTrigger", "This is Kafka's maxOffsetsPerTrigger: use maxMessagesPerTrigger"),
        ("kafka.bootstrap.servers", "This is Kafka's kafka.bootstrap.servers: use service.url, such as"),
        ("service-url", "This is Flink's service-url: use service.url"),
        (
            "kafka.security.protocol",
            "This is an option of another connector: use pulsar+ssl:// in service.url",
        ),
    ],
)
def test_an_option_of_another_connector_is_answered_with_ours(given, advice):
    for parse in (lambda options: parse_source(options, None), parse_sink):
        with pytest.raises(OptionError) as caught:
            parse({**URL, "topic": "t", given: "x"})
        assert caught.value.advice.startswith(advice)
        assert f"has no option {given.lower()!r}" in str(caught.value)


def test_an_option_of_the_other_side_is_told_so():
    with pytest.raises(OptionError, match=r"pulsar\.producer\.compressionType is not one of the source"):
        source(pulsar_producer_compressionType="LZ4")
    with pytest.raises(OptionError, match="It is an option of the source"):
        sink(startingOffsets="latest")


def test_what_spark_adds_is_let_through():
    parse_sink({**URL, "checkpointLocation": "/c", "queryName": "q"})


def test_long_values_are_not_repeated_whole():
    with pytest.raises(OptionError) as caught:
        source(startingOffsets="x" * 10_000)
    assert len(str(caught.value)) < 1000


@for_each(
    ("name", "text"),
    [
        ("pollTimeoutMs", "soon"),
        ("pollTimeoutMs", "0"),
        ("pollTimeoutMs", "5 weeks"),
        ("pollTimeoutMs", "-1"),
        ("pollTimeoutMs", "9223372036854775807"),
        ("pollTimeoutMs", "25d"),
        ("pulsar.client.keepAliveIntervalSeconds", "9" * 400),
        ("startingOffsets", "sometimes"),
        ("startingOffsets", "{"),
        ("startingTime", "noon"),
        ("topicsPattern", "a/b"),
        ("admin.url", "pulsar://h:6650"),
        ("failOnDataLoss", "1"),
        ("maxMessagesPerTrigger", "0"),
        ("maxBytesPerTrigger", "0"),
        ("maxPendingChunkedMessages", "-1"),
        ("metadataColumns", "__key,value"),
        ("topic", "non-persistent://public/default/t"),
        ("service.url", "http://localhost:8080"),
        ("subscriptionPrefix", " "),
    ],
)
def test_bad_values_of_the_source(name, text):
    with pytest.raises(OptionError, match=r"^\[PULSAR_OPTION\] "):
        parse_source({**URL, "topic": "t", name: text}, Mode.STREAM)


@for_each(
    ("name", "text"),
    [
        ("batchingEnabled", "yes"),
        ("batchingMaxBytes", "10 potatoes"),
        ("batchingMaxBytes", "9" * 400),
        ("batchingMaxBytes", "1025g"),
        ("memoryLimit", "0"),
        ("sendTimeoutMs", "0"),
        ("maxPendingMessages", "0"),
        ("maxPendingMessages", "1.5"),
        ("compressionType", "rar"),
        ("producerName", ""),
        ("accessMode", "Mine"),
        ("initialSequenceId", "-2"),
        ("initialSequenceId", "9" * 19),
        ("properties", "team=sales"),
        ("properties", "1"),
        ("properties", '{"team": 1}'),
        ("messageRoutingMode", "Random"),
        ("hashingScheme", "MD5"),
        ("roundRobinRouterBatchingPartitionSwitchFrequency", "0"),
        ("messageRouter", "function"),
        ("messageRouter", "package.module-1.function"),
    ],
)
def test_bad_values_of_the_sink_name_the_option_and_the_value(name, text):
    with pytest.raises(OptionError, match=rf"option pulsar\.producer\.{name} is '{text}'. It must be "):
        parse_sink({**URL, f"pulsar.producer.{name}": text})


def test_what_is_for_one_mode_only():
    for name, text in {"endingOffsets": "latest", "endingTime": "2024-05-01"}.items():
        refused(f"option {name} is not allowed for reading a stream", Mode.STREAM, **{name: text})
        source(None, **{name: text})
    for name in ("maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay"):
        refused(f"option {name} is not allowed for reading a batch", Mode.BATCH, **{name: "500"})
        source(None, **{name: "500"})
    refused("retainSubscription is not allowed for reading a batch", Mode.BATCH, retainSubscription="true")


def test_a_secret_value_is_not_repeated():
    refused(r"pulsar\.client\.authParams is wrong\. It must be", pulsar_client_authParams=" ")


def test_of_several_unknown_options_the_first_by_name_is_told():
    refused("no option 'aaa'", **dict.fromkeys(("ddd", "bbb", "fff", "aaa", "eee", "ccc"), "1"))


def test_a_table_without_options_is_named_where_no_cluster_is():
    """Spark asks such a table for rows and not for a schema, as it does with a schema of the user's."""
    for mode in Mode:
        with pytest.raises(
            OptionError, match=r"service\.url is missing\. A table has no options if.*AS SELECT"
        ):
            parse_source({"topic": "t"}, mode)
    with pytest.raises(OptionError, match=r"service\.url is missing\. Set"):
        parse_source({"topic": "t"}, None)
    for given in ({}, {"checkpointLocation": "/c"}):
        with pytest.raises(
            OptionError, match=r"does not use the options of its table\. Set.*INSERT INTO t WITH"
        ):
            parse_sink(given)
    with pytest.raises(OptionError, match=r"service\.url is missing\. Set"):
        parse_sink({"topic": "t"})
