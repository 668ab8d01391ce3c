from pathlib import Path

import pytest

from pulsar_spark.client import AccessMode, ConsumerCryptoFailureAction, ProducerCryptoFailureAction
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.chunk_assembler import ChunkLimits
from pulsar_spark.protocol.routing import HashingScheme, RoutingMode
from pulsar_spark.spark.options.encryption import DecryptionOptions, EncryptionOptions
from pulsar_spark.spark.options.limits import Limits
from pulsar_spark.spark.options.option import Mode, Scope
from pulsar_spark.spark.options.parse import SinkOptions, SourceOptions, docs_page, parse_sink, parse_source
from pulsar_spark.spark.options.positions import AtTime, PositionWord
from pulsar_spark.spark.options.table import TABLE
from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS
from pulsar_spark.wire import pulsar_pb2 as pb

URL = {"service.url": "pulsar://localhost:6650"}
HERE = Path(__file__).parents[1]


def source(mode: Mode | None = Mode.STREAM, **options: str) -> SourceOptions:
    return parse_source(
        {**URL, "topic": "t", **{name.replace("_", "."): text for name, text in options.items()}}, mode
    )


def sink(**options: str) -> SinkOptions:
    return parse_sink({**URL, **{name.replace("_", "."): text for name, text in options.items()}})


def test_source_defaults():
    options = source()
    assert options.topics == (TopicName.parse("persistent://public/default/t"),)
    assert options.start.everywhere is PositionWord.LATEST
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
    assert producer.routing_mode is RoutingMode.ROUND_ROBIN
    assert producer.hashing_scheme is HashingScheme.JAVA_STRING
    assert producer.switch_frequency == 10
    assert sink().router is None
    assert not producer.chunking


def test_routing_of_the_sink():
    options = {"messageRoutingMode": "custompartition", "messageRouter": "package.module.function"}
    found = parse_sink({**URL, **{f"pulsar.producer.{name}": text for name, text in options.items()}})
    assert found.producer.routing_mode is RoutingMode.CUSTOM
    assert found.router == "package.module.function"
    for name, text in options.items():
        with pytest.raises(OptionError, match=r"go together\. Set both or none"):
            parse_sink({**URL, f"pulsar.producer.{name}": text})


def test_chunking_needs_batching_to_be_off():
    text = r"chunkingEnabled and .*batchingEnabled are both true"
    with pytest.raises(OptionError, match=text):
        sink(pulsar_producer_chunkingEnabled="true")
    with pytest.raises(OptionError, match=r"chunkMaxMessageSize .*without .*chunkingEnabled"):
        sink(pulsar_producer_chunkMaxMessageSize="1m")
    given = {"pulsar_producer_chunkingEnabled": "true", "pulsar_producer_batchingEnabled": "false"}
    producer = sink(**given, pulsar_producer_chunkMaxMessageSize="1m").producer
    assert producer.chunking
    assert producer.chunk_max_message_size == 1 << 20
    assert sink(**given).producer.chunk_max_message_size is None


def test_transactions_have_a_time_out():
    assert parse_sink(URL).transaction_timeout is None
    assert parse_sink({**URL, "delivery": "Transactional"}).transaction_timeout == 600.0
    options = {"delivery": "transactional", "transactionTimeout": "90s"}
    assert parse_sink({**URL, **options}).transaction_timeout == 90.0
    with pytest.raises(OptionError, match="no use without transactions"):
        parse_sink({**URL, "transactionTimeout": "90s"})
    with pytest.raises(OptionError, match="delivery is 'exactly'"):
        parse_sink({**URL, "delivery": "exactly"})


def test_producers_of_the_sink():
    given = {
        "accessMode": "waitforexclusive",
        "initialSequenceId": "-1",
        "properties": '{"team": "a", "x": ""}',
    }
    producer = parse_sink(
        {**URL, **{f"pulsar.producer.{name}": text for name, text in given.items()}}
    ).producer
    assert producer.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
    assert producer.initial_sequence_id == -1
    assert producer.properties == (("team", "a"), ("x", ""))
    usual = sink().producer
    assert (usual.access_mode, usual.initial_sequence_id, usual.properties) == (AccessMode.SHARED, None, ())


def test_encryption_is_off():
    assert sink().encryption is None
    assert source().decryption == DecryptionOptions(None, ConsumerCryptoFailureAction.FAIL)


def test_keys_and_their_reader():
    given = {
        "pulsar_producer_encryptionKeys": "a, b,a",
        "pulsar_producer_cryptoKeyReader": "file:///my%20keys",
    }
    action = ProducerCryptoFailureAction
    assert sink(**given).encryption == EncryptionOptions("/my keys", ("a", "b"), action.FAIL)
    given["pulsar_producer_cryptoFailureAction"] = "send"
    assert sink(**given).encryption == EncryptionOptions("/my keys", ("a", "b"), action.SEND)
    options = source(pulsar_reader_cryptoKeyReader="my.Keys", pulsar_reader_cryptoFailureAction="DISCARD")
    assert options.decryption == DecryptionOptions("my.Keys", ConsumerCryptoFailureAction.DISCARD)


@pytest.mark.parametrize("text", ["keys", "./keys", "file:keys", "http://keys", "my.2", ""])
def test_a_key_reader_is_a_folder_or_a_name(text):
    with pytest.raises(OptionError, match=r"pulsar\.reader\.cryptoKeyReader .*/path or file:///path"):
        source(pulsar_reader_cryptoKeyReader=text)


@pytest.mark.parametrize("text", ["", ",", "a,,b"])
def test_names_of_keys_are_not_empty(text):
    with pytest.raises(OptionError, match=r"pulsar\.producer\.encryptionKeys .*names separated by commas"):
        sink(pulsar_producer_encryptionKeys=text, pulsar_producer_cryptoKeyReader="/keys")


def test_keys_need_a_reader():
    for name, text in {"encryptionKeys": "a", "cryptoKeyReader": "/keys"}.items():
        with pytest.raises(OptionError, match=r"encryptionKeys and cryptoKeyReader .* go together"):
            sink(**{f"pulsar_producer_{name}": text})


def test_names_are_case_insensitive():
    options = parse_source(
        {"SERVICE.URL": "pulsar://h", "Topics": "a, b,a", "STARTINGOFFSETS": "Earliest"}, None
    )
    assert [topic.local for topic in options.topics] == ["a", "b"]
    assert options.start.everywhere is PositionWord.EARLIEST


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
    with pytest.raises(OptionError, match=rf"option pulsar\.producer\.{name} is '{text}'. Give it "):
        parse_sink({**URL, f"pulsar.producer.{name}": text})


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("topicc", "topic"),
        ("startingoffset", "startingOffsets"),
        ("serviceurl", "service.url"),
        ("operationTimeoutMs", "pulsar.client.operationTimeoutMs"),
        ("endingOffset", "endingOffsets"),
    ],
)
def test_an_unknown_option_names_the_nearest(given, nearest):
    with pytest.raises(OptionError, match=rf"Did you mean {nearest}\?"):
        parse_source({**URL, "topic": "t", given: "x"}, Mode.STREAM)


def test_an_option_of_the_other_side_is_told_so():
    with pytest.raises(OptionError, match=r"pulsar\.producer\.compressionType is not one of the source"):
        source(pulsar_producer_compressionType="LZ4")
    with pytest.raises(OptionError, match="It belongs to the source"):
        sink(startingOffsets="latest")


def test_what_spark_adds_is_let_through():
    parse_source({**URL, "topic": "t", "path": "p"}, Mode.STREAM)
    parse_sink({**URL, "path": "p", "checkpointLocation": "/c", "queryName": "q"})


def test_exactly_one_of_topic_and_topics():
    with pytest.raises(OptionError, match="exactly one"):
        parse_source(URL, Mode.STREAM)
    with pytest.raises(OptionError, match="exactly one"):
        parse_source({**URL, "topic": "a", "topics": "b"}, Mode.STREAM)


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


def refused(match: str, mode: Mode | None = Mode.STREAM, **options: str) -> None:
    with pytest.raises(OptionError, match=match) as caught:
        source(mode, **options)
    assert caught.value.advice


def test_all_that_a_source_takes():
    options = source(
        admin_url="https://h:8443/",
        startingOffsets="subscription",
        failOnDataLoss="false",
        maxMessagesPerTrigger="100",
        maxBytesPerTrigger="1m",
        minMessagesPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="4",
        maxMessagesPerPartition="1000",
        predefinedSubscription="s",
        retainSubscription="false",
        waitingForNonExistedTopic="true",
        allowDifferentTopicSchemas="true",
        readCompacted="true",
        maxPendingChunkedMessages="5",
        expireTimeOfIncompleteChunkedMessage="2m",
        autoAckOldestChunkedMessageOnQueueFull="true",
        metadataColumns="__index, __KEY,__index",
    )
    assert options.admin_url == "https://h:8443"
    assert options.start.everywhere is PositionWord.SUBSCRIPTION
    assert options.limits == Limits(max_messages=100, max_bytes=1 << 20, min_messages=10, max_delay=30.0)
    assert (options.min_partitions, options.max_messages_per_partition) == (4, 1000)
    assert options.subscription == "s"
    assert options.chunks == ChunkLimits(max_pending=5, expire=120.0, auto_ack_oldest=True)
    assert options.metadata_columns == ("__index", "__key")
    assert not options.fail_on_data_loss
    assert not options.retain_subscription
    assert options.wait_for_topics
    assert options.allow_different_schemas
    assert options.read_compacted
    assert options.pattern is None


def test_defaults_of_limits_chunks_and_columns():
    options = source()
    assert options.limits == Limits()
    assert options.chunks == ChunkLimits()
    assert options.metadata_columns == DEFAULT_METADATA_COLUMNS
    assert options.fail_on_data_loss
    assert options.retain_subscription
    assert options.subscription is None
    assert options.admin_url is None
    assert options.end.everywhere is PositionWord.LATEST


def test_metadata_columns_may_be_none_at_all():
    assert source(metadataColumns=" ").metadata_columns == ()


def test_the_usual_start_is_the_modes():
    assert source(Mode.STREAM).start.everywhere is PositionWord.LATEST
    assert source(Mode.BATCH).start.everywhere is PositionWord.EARLIEST


def test_times_in_place_of_offsets():
    options = source(Mode.BATCH, startingTime="1000", endingTime="1970-01-01T00:00:02Z")
    assert options.start.everywhere == AtTime(1000)
    assert options.end.everywhere == AtTime(2000)
    assert source(Mode.BATCH, endingTime="5").start.everywhere is PositionWord.EARLIEST


def test_a_pattern_in_place_of_topics():
    options = parse_source({**URL, "topicsPattern": "a/b/t.*"}, Mode.STREAM)
    assert options.topics == ()
    assert str(options.pattern) == "persistent://a/b/t.*"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@h:8080",
        "http://secret@h",
        "secret",
        "ftp://secret",
        "http://h:secret",
        "http://h:0/secret",
        "http://h?token=secret",
        "http://h1,http://secret",
        "http://[secret",
    ],
)
def test_a_bad_admin_url_is_not_repeated(url):
    with pytest.raises(OptionError, match=r"admin\.url") as caught:
        source(admin_url=url)
    assert "secret" not in str(caught.value)
    with pytest.raises(OptionError, match=r"admin\.url"):
        sink(admin_url=url)


@pytest.mark.parametrize("other", [{"topics": "b"}, {"topicsPattern": "b.*"}])
def test_only_one_way_to_name_topics(other):
    refused("exactly one of the options topic, topics and topicsPattern", **other)


@pytest.mark.parametrize("mode", [Mode.STREAM, Mode.BATCH])
@pytest.mark.parametrize("time", ["startingTime", "endingTime"])
@pytest.mark.parametrize("offsets", ["startingOffsets", "endingOffsets"])
def test_offsets_do_not_go_together_with_times(offsets, time, mode):
    with pytest.raises(OptionError, match=r"does not go together with|is not for reading a stream"):
        source(mode, **{offsets: "latest", time: "5"})


def test_what_is_for_one_mode_only():
    for name, text in {"endingOffsets": "latest", "endingTime": "5"}.items():
        refused(f"option {name} is not for reading a stream", **{name: text})
        source(None, **{name: text})
    for name in ("maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay"):
        refused(f"option {name} is not for reading a batch", Mode.BATCH, **{name: "5"})
        source(None, **{name: "5"})
    refused("retainSubscription is not for reading a batch", Mode.BATCH, retainSubscription="true")


def test_a_subscription_as_a_position_has_a_name():
    refused("no subscription is named", startingOffsets="subscription")
    refused("endingOffsets is subscription", Mode.BATCH, endingOffsets="subscription")
    source(Mode.BATCH, startingOffsets="subscription", predefinedSubscription="s")
    source(Mode.BATCH, endingOffsets="subscription", predefinedSubscription="s")
    refused("no use in this batch", Mode.BATCH, predefinedSubscription="s")
    refused("both name the subscription", predefinedSubscription="s", subscriptionPrefix="p")


def test_an_end_before_the_start():
    refused("endingTime is before startingTime", Mode.BATCH, startingTime="5", endingTime="4")
    refused("endingOffsets is before", Mode.BATCH, startingOffsets="latest", endingOffsets="earliest")
    source(Mode.BATCH, startingTime="5", endingTime="5")


def test_the_least_is_not_more_than_the_most():
    refused("minMessagesPerTrigger, 11, is more", minMessagesPerTrigger="11", maxMessagesPerTrigger="10")
    source(minMessagesPerTrigger="10", maxMessagesPerTrigger="10")


def test_long_values_are_not_repeated_whole():
    with pytest.raises(OptionError) as caught:
        source(startingOffsets="x" * 10_000)
    assert len(str(caught.value)) < 1000
