"""Rows with sequence ids of their own, on the real broker."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from integration.chaos.messages import columns_of, numbered
from integration.fixtures.spark import begun, finish
from integration.helpers.clients import open_writer
from pulsar_spark.errors import SendError
from tests.writes import send_all, write_all


@pytest.fixture
def deduplicated(admin, namespace, own_topic):
    """A topic in a namespace that deduplicates."""
    admin.set_deduplication(namespace, True)
    return own_topic


def with_ids(*ids):
    """A message for each id; the first has number 0."""
    return replace(columns_of(numbered(len(ids))), sequence_id=pa.array(ids, pa.int64()))


@pytest.mark.parametrize("batching", [True, False])
def test_a_broker_that_deduplicates_keeps_what_is_new(client, peer, deduplicated, batching):
    for ids in ([1, 2, 3], [2, 3, 4, 5], [5, 6, 7]):
        write_all(open_writer(client, deduplicated, name="mine", batching=batching), with_ids(*ids))
    assert [record.value for record in peer.read_all(deduplicated)] == [
        b"%d " % number for number in (0, 1, 2, 2, 3, 1, 2)
    ]


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("name", [None, "mine"])
def test_rows_that_a_broker_drops_by_the_ids_of_others_are_an_error_in_each_run(
    client, peer, deduplicated, name, batching
):
    ids = [number * 370 % 1000 for number in range(1000)]
    for _ in range(2):
        with open_writer(client, deduplicated, name=name, batching=batching) as writer:
            with pytest.raises(SendError, match=f"do not ascend; topic {deduplicated}"):
                send_and_flush(writer, ids)
            assert sum(sent.messages for sent in writer.sent.values()) < 10
    assert len(peer.read_all(deduplicated)) < 20


def send_and_flush(writer, ids):
    send_all(writer, with_ids(*ids))


def test_a_copy_of_a_topic_of_several_producers_is_not_cut_short(
    pulsar_in_spark, peer, topic, deduplicated, checkpoint
):
    for _ in range(3):
        peer.produce(topic, numbered(100))
    rows = pulsar_in_spark.stream(topic, metadataColumns="__sequenceId")
    copy = pulsar_in_spark.write_stream(rows, checkpoint, deduplicated).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match=r"\[PULSAR_SEND\].*ids .* do not ascend"):
        finish(begun(copy))
    rows = pulsar_in_spark.stream(topic, metadataColumns="")
    copy = pulsar_in_spark.write_stream(rows, checkpoint.with_name("again"), f"{deduplicated}-2")
    finish(begun(copy.trigger(availableNow=True)))
    assert len(peer.read_all(f"{deduplicated}-2")) == 300
