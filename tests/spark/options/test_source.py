import pytest

from pulsar_spark.client import ChunkLimits, ConsumerCryptoFailureAction
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.connection import DecryptionOptions
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.options.positions import AtTime, PositionWord
from pulsar_spark.spark.options.source import Limits
from pulsar_spark.spark.rows.schema import DEFAULT_METADATA_COLUMNS
from tests.spark.options.parsing import URL, refused, source


def test_source_defaults():
    options = source()
    assert options.topics == (TopicName.parse("persistent://public/default/t"),)
    assert options.start.everywhere is PositionWord.LATEST
    assert options.client.subscription_prefix == "spark-pulsar"
    assert options.poll_timeout == 120.0
    assert options.client.service_url == "pulsar://localhost:6650"
    assert options.client.operation_timeout == 30.0
    assert options.client.connection_timeout == 10.0
    assert options.client.keep_alive_interval == 30.0


def test_exactly_one_of_topic_and_topics():
    with pytest.raises(OptionError, match=r"no topic is named\. Set"):
        parse_source(URL, Mode.STREAM)
    with pytest.raises(OptionError, match="topic and topics cannot be used together") as caught:
        parse_source({**URL, "topic": "a", "topics": "b"}, Mode.STREAM)
    assert caught.value.advice == "Leave all but one of them out"


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
    assert options.columns.metadata == ("__index", "__key")
    assert not options.fail_on_data_loss
    assert not options.retain_subscription
    assert not options.must_exist
    assert options.read_compacted
    assert options.pattern is None


def test_defaults_of_limits_chunks_and_columns():
    options = source()
    assert options.limits == Limits()
    assert options.chunks == ChunkLimits()
    assert options.columns.metadata == DEFAULT_METADATA_COLUMNS
    assert options.fail_on_data_loss
    assert options.retain_subscription
    assert options.subscription is None
    assert options.admin_url is None
    assert options.end.everywhere is PositionWord.LATEST


def test_the_usual_start_is_the_modes():
    assert source(Mode.STREAM).start.everywhere is PositionWord.LATEST
    assert source(Mode.BATCH).start.everywhere is PositionWord.EARLIEST
    assert source(None).start.everywhere is PositionWord.EARLIEST


def test_the_prefix_of_the_subscription():
    assert source(subscriptionPrefix="mine").client.subscription_prefix == "mine"
    named = source(subscriptionPrefix="mine", predefinedSubscription="mine-too")
    assert (named.client.subscription_prefix, named.subscription) == ("mine", "mine-too")


def test_times_in_place_of_offsets():
    options = source(Mode.BATCH, startingTime="1970-01-01T00:00:01Z", endingTime="1970-01-01T00:00:02Z")
    assert options.start.everywhere == AtTime(1000)
    assert options.end.everywhere == AtTime(2000)
    assert source(Mode.BATCH, endingTime="2024-05-01").start.everywhere is PositionWord.EARLIEST


def test_the_margin_of_publish_times():
    assert source().publish_time_margin == 60.0
    assert source(Mode.BATCH, publishTimeMargin="0").publish_time_margin == 0.0
    assert source(publishTimeMargin="1500").publish_time_margin == 1.5
    refused("publishTimeMargin", publishTimeMargin="-1")


def test_a_pattern_in_place_of_topics():
    options = parse_source({**URL, "topicsPattern": "a/b/t.*"}, Mode.STREAM)
    assert options.topics == ()
    assert str(options.pattern) == "persistent://a/b/t.*"


@pytest.mark.parametrize("other", [{"topics": "b"}, {"topicsPattern": "b.*"}])
def test_only_one_way_to_name_topics(other):
    refused(f"options topic and {next(iter(other))} cannot be used together", **other)


def test_several_topics_in_the_option_of_one():
    for text in ("a,b", "persistent://a/b/t, persistent://a/b/u"):
        refused(r"option topic is .*one topic, without a comma\. To read several, set topics", topic=text)


@pytest.mark.parametrize("mode", [Mode.STREAM, Mode.BATCH])
@pytest.mark.parametrize("time", ["startingTime", "endingTime"])
@pytest.mark.parametrize("offsets", ["startingOffsets", "endingOffsets"])
def test_offsets_do_not_go_together_with_times(offsets, time, mode):
    with pytest.raises(OptionError, match=r"cannot be used together|is not allowed for reading a stream"):
        source(mode, **{offsets: "latest", time: "2024-05-01"})


def test_a_subscription_as_a_position_has_a_name():
    refused("no subscription is named", startingOffsets="subscription")
    refused("endingOffsets is subscription", Mode.BATCH, endingOffsets="subscription")
    source(Mode.BATCH, startingOffsets="subscription", predefinedSubscription="s")
    source(Mode.BATCH, endingOffsets="subscription", predefinedSubscription="s")
    refused("no effect in this batch", Mode.BATCH, predefinedSubscription="s")


def test_an_end_before_the_start():
    refused(
        "the position of endingTime is before that of startingTime",
        Mode.BATCH,
        startingTime="2024-05-02",
        endingTime="2024-05-01",
    )
    refused("endingOffsets is before", Mode.BATCH, startingOffsets="latest", endingOffsets="earliest")
    source(Mode.BATCH, startingTime="2024-05-01", endingTime="2024-05-01")


def test_the_minimum_is_not_more_than_the_maximum():
    refused("minMessagesPerTrigger .11. is greater", minMessagesPerTrigger="11", maxMessagesPerTrigger="10")
    source(minMessagesPerTrigger="10", maxMessagesPerTrigger="10")


def test_keys_of_readers():
    assert source().decryption == DecryptionOptions(None, ConsumerCryptoFailureAction.FAIL)
    options = source(pulsar_reader_cryptoKeyReader="my.Keys", pulsar_reader_cryptoFailureAction="DISCARD")
    assert options.decryption == DecryptionOptions("my.Keys", ConsumerCryptoFailureAction.DISCARD)
