"""What a task gives of its range where a topic is gone or an entry cannot be decoded."""

import pytest
from pyspark.sql.datasource import InputPartition

from pulsar_spark.errors import CorruptError, DataLossError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark import reader
from pulsar_spark.spark.plan.ranges import Range
from pulsar_spark.spark.reader import PulsarReader, PulsarStreamReader
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA
from tests.client.clients import START, TOPIC, client_of, singles
from tests.fake_broker import FakeBroker
from tests.fake_topics import section_of


@pytest.fixture
def broker():
    with FakeBroker() as broker:
        yield broker


@pytest.fixture(params=[PulsarReader, PulsarStreamReader])
def task(request, broker, monkeypatch):
    """Reads a range as a task does; gives the values of its rows."""
    with client_of(broker) as client:
        monkeypatch.setattr(reader, "shared_client", lambda options: client)

        def run(each, **options):
            given = {"service.url": broker.url, "topic": str(TOPIC), **options}
            batches = request.param(given, SOURCE_SCHEMA).read(InputPartition(each))
            return [value for batch in batches for value in batch.column("value").to_pylist()]

        yield run


def test_the_rows_of_a_range(broker, task):
    ids = broker.publish(TOPIC, *singles([b"a", b"b", b"c"]))
    assert task(Range(TOPIC, ids[0], ids[-1])) == [b"b", b"c"]


def test_a_topic_that_is_gone(task, caplog):
    gone = TopicName.parse("gone")
    each = Range(gone, MessageId(5, 1), MessageId(5, 3))
    with pytest.raises(
        DataLossError, match=r"deleted; topic .*/gone; message \(5:1, 5:3\].*failOnDataLoss=false"
    ):
        task(each)
    assert task(each, failOnDataLoss="false") == []
    assert "the topic was deleted; topic persistent://public/default/gone; message (5:1, 5:3]" in caplog.text


def test_a_batch_that_cannot_be_decoded(broker, task, caplog):
    bad = section_of(b"\0\0\0\x02\x18\0", num_messages_in_batch=2)
    ids = broker.publish(TOPIC, *singles([b"a"]), bad, *singles([b"b"]))
    each = Range(TOPIC, START, ids[-1])
    with pytest.raises(CorruptError, match=f"message {ids[1]}.*failOnDataLoss=false"):
        task(each)
    assert task(each, failOnDataLoss="false") == [b"a", b"b"]
    assert f"topic {TOPIC}; message {ids[1]}" in caplog.text
