from pathlib import Path

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options import (
    TABLE,
    Scope,
    SinkOptions,
    SourceOptions,
    Start,
    docs_page,
    parse_sink,
    parse_source,
)
from pulsar_spark.wire import pulsar_pb2 as pb

URL = {"service.url": "pulsar://localhost:6650"}
HERE = Path(__file__).parent


def source(**options: str) -> SourceOptions:
    return parse_source(
        {**URL, "topic": "t", **{name.replace("_", "."): text for name, text in options.items()}}
    )


def sink(**options: str) -> SinkOptions:
    return parse_sink({**URL, **{name.replace("_", "."): text for name, text in options.items()}})


def test_source_defaults():
    options = source()
    assert options.topics == (TopicName.parse("persistent://public/default/t"),)
    assert options.start is None
    assert options.subscription_prefix == "spark-pulsar"
    assert options.poll_timeout == 120.0
    assert options.client.service_url == "pulsar://localhost:6650"
    assert options.client.operation_timeout == 30.0
    assert options.client.connection_timeout == 10.0
    assert options.client.keep_alive_interval == 30.0


def test_sink_defaults_are_those_of_the_java_client():
    producer = sink().producer
    assert sink().topic is None
    assert producer.name is None
    assert producer.batching
    assert producer.batching_max_messages == 1000
    assert producer.batching_max_bytes == 131072
    assert producer.batching_max_publish_delay == pytest.approx(0.001)
    assert producer.max_pending_messages == 10_000
    assert producer.max_pending_messages_across_partitions == 50_000
    assert producer.memory_limit == 64 << 20
    assert producer.block_if_queue_full
    assert producer.send_timeout == 30.0
    assert producer.compression == pb.NONE


def test_names_are_case_insensitive():
    options = parse_source({"SERVICE.URL": "pulsar://h", "Topics": "a, b,a", "STARTINGOFFSETS": "Earliest"})
    assert [topic.local for topic in options.topics] == ["a", "b"]
    assert options.start is Start.EARLIEST


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500", 1.5), ("100ms", 0.1), ("5s", 5.0), ("2m", 120.0), ("1.5h", 5400.0), (" 7 s ", 7.0)],
)
def test_times_take_units_and_plain_milliseconds(text, seconds):
    assert source(pollTimeoutMs=text).poll_timeout == pytest.approx(seconds)


def test_the_plain_unit_of_a_time_is_the_one_in_its_name():
    assert source(pulsar_client_keepAliveIntervalSeconds="5").client.keep_alive_interval == 5.0
    delay = sink(pulsar_producer_batchingMaxPublishDelayMicros="5000").producer.batching_max_publish_delay
    assert delay == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("text", "size"), [("100", 100), ("64k", 65536), ("1M", 1 << 20), ("1.5mb", 3 << 19)]
)
def test_sizes_take_units(text, size):
    assert sink(pulsar_producer_batchingMaxBytes=text).producer.batching_max_bytes == size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pollTimeoutMs", "soon"),
        ("pollTimeoutMs", "0"),
        ("pollTimeoutMs", "5 weeks"),
        ("pollTimeoutMs", "-1"),
        ("pollTimeoutMs", "9223372036854775807"),
        ("pollTimeoutMs", "25d"),
        ("pulsar.client.keepAliveIntervalSeconds", "9" * 400),
        ("startingOffsets", '{"t": {"0": "1:1"}}'),
        ("topic", "non-persistent://public/default/t"),
        ("service.url", "http://localhost:8080"),
        ("subscriptionPrefix", " "),
    ],
)
def test_bad_values_of_the_source(name, text):
    with pytest.raises(OptionError, match=r"^\[PULSAR_OPTION\] "):
        parse_source({**URL, "topic": "t", name: text})


@pytest.mark.parametrize(
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
    ],
)
def test_bad_values_of_the_sink_name_the_option_and_the_value(name, text):
    with pytest.raises(OptionError, match=rf"option pulsar\.producer\.{name} is '{text}'. Give it "):
        parse_sink({**URL, f"pulsar.producer.{name}": text})


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("topicc", "topic"),
        ("startingoffset", "startingOffsets"),
        ("serviceurl", "service.url"),
        ("operationTimeoutMs", "pulsar.client.operationTimeoutMs"),
        ("endingOffsets", "startingOffsets"),
    ],
)
def test_an_unknown_option_names_the_nearest(given, nearest):
    with pytest.raises(OptionError, match=rf"Did you mean {nearest}\?"):
        parse_source({**URL, "topic": "t", given: "x"})


def test_an_option_of_the_other_side_is_told_so():
    with pytest.raises(OptionError, match=r"pulsar\.producer\.compressionType is not one of the source"):
        source(pulsar_producer_compressionType="LZ4")
    with pytest.raises(OptionError, match="It belongs to the source"):
        sink(startingOffsets="latest")


def test_what_spark_adds_is_let_through():
    parse_source({**URL, "topic": "t", "path": "p"})
    parse_sink({**URL, "path": "p", "checkpointLocation": "/c", "queryName": "q"})


def test_exactly_one_of_topic_and_topics():
    with pytest.raises(OptionError, match="exactly one"):
        parse_source(URL)
    with pytest.raises(OptionError, match="exactly one"):
        parse_source({**URL, "topic": "a", "topics": "b"})


def test_the_service_url_is_required():
    with pytest.raises(OptionError, match=r"service\.url is missing"):
        parse_sink({})


def test_every_default_can_be_given():
    for option in TABLE:
        if option.default is not None:
            option.parse(option.default)


def test_names_are_unique():
    names = [option.name.lower() for option in TABLE]
    assert len(names) == len(set(names))
    assert all(option.scope in Scope.BOTH for option in TABLE)


def test_the_docs_page_is_the_table():
    page = (HERE / "../../docs/options.md").read_text()
    assert page == docs_page(), "run: python -m pulsar_spark.spark > docs/options.md"
