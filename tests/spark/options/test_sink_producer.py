import pytest

from pulsar_spark.client import (
    COMPRESSION_TYPES,
    AccessMode,
    BatcherBuilder,
    HashingScheme,
    ProducerOptions,
    RoutingMode,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.parse import parse_sink
from tests.loops import for_each
from tests.spark.options.parsing import URL, sink


def test_sink_defaults_are_those_of_the_java_client():
    producer = sink().producer
    assert sink().topic is None
    assert producer.name is None
    assert producer.batching
    assert producer.batching_max_messages == 1000
    assert producer.batching_max_bytes == 131072
    assert producer.batching_max_publish_delay == pytest.approx(0.001)
    assert producer.max_pending_messages == 10_000
    assert producer.max_pending_messages_across_partitions == 1_000_000
    assert producer.memory_limit == 64 << 20
    assert producer.block_if_queue_full
    assert producer.send_timeout == 30.0
    assert producer.compression == COMPRESSION_TYPES["NONE"]
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
        with pytest.raises(OptionError, match=r"only one of .* is set\. Set both, or neither"):
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


def test_batches_of_one_key_need_batching():
    given = {"pulsar_producer_batcherBuilder": "KEY_BASED", "pulsar_producer_batchingEnabled": "false"}
    with pytest.raises(OptionError, match=r"batcherBuilder has no effect without .*batchingEnabled"):
        sink(**given)


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


def test_keys_need_a_reader():
    for name, text in {"encryptionKeys": "a", "cryptoKeyReader": "/keys"}.items():
        with pytest.raises(OptionError, match=r"only one of .*encryptionKeys and .*cryptoKeyReader is set"):
            sink(**{f"pulsar_producer_{name}": text})


def test_defaults_are_those_of_producer_options():
    assert sink().producer == ProducerOptions()


@for_each(
    ("name", "text", "field", "value"),
    [
        ("producerName", "p", "name", "p"),
        ("batchingEnabled", "false", "batching", False),
        ("batchingMaxMessages", "0", "batching_max_messages", 0),
        ("batchingMaxBytes", "1k", "batching_max_bytes", 1024),
        ("batchingMaxPublishDelayMicros", "2s", "batching_max_publish_delay", 2.0),
        ("batcherBuilder", "key_based", "batcher_builder", BatcherBuilder.KEY_BASED),
        ("compressionType", "zstd", "compression", COMPRESSION_TYPES["ZSTD"]),
        ("maxPendingMessages", "3", "max_pending_messages", 3),
        ("maxPendingMessagesAcrossPartitions", "4", "max_pending_messages_across_partitions", 4),
        ("blockIfQueueFull", "false", "block_if_queue_full", False),
        ("memoryLimit", "1m", "memory_limit", 1 << 20),
        ("sendTimeoutMs", "5s", "send_timeout", 5.0),
        ("messageRoutingMode", "singlepartition", "routing_mode", RoutingMode.SINGLE),
        ("hashingScheme", "murmur3_32hash", "hashing_scheme", HashingScheme.MURMUR3_32),
        ("roundRobinRouterBatchingPartitionSwitchFrequency", "6", "switch_frequency", 6),
    ],
)
def test_each_option_of_producers_reaches_its_field(name, text, field, value):
    given = parse_sink({**URL, f"pulsar.producer.{name}": text}).producer
    assert getattr(given, field) == value
    assert getattr(ProducerOptions(), field) != value
