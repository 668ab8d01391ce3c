"""A query's log of commits, over a record topic in memory."""

import logging

import pytest

from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink import commit_log
from pulsar_spark.spark.sink.commit_log import CommitLog, announce, log_topic
from pulsar_spark.spark.sink.commit_records import Intent, LogState
from tests.spark.sink.simulated_broker import SimulatedBroker, SimulatedRecordTopic, plug_in

TOPIC = log_topic(None, "id")
ONE, TWO = TxnId(0, 0), TxnId(0, 1)


@pytest.fixture
def broker(monkeypatch) -> SimulatedBroker:
    return plug_in(monkeypatch)


@pytest.mark.parametrize(
    ("topic", "namespace"),
    [("orders", "public/default"), ("a/b/orders", "a/b"), ("a/b/orders-partition-1", "a/b")],
)
def test_the_log_is_beside_the_topic(topic, namespace):
    log = log_topic(TopicName.parse(topic), "id")
    assert str(log) == f"persistent://{namespace}/spark-transactions-id"


def test_without_a_topic_it_is_where_topics_are_by_default():
    assert str(TOPIC) == "persistent://public/default/spark-transactions-id"


def begun(broker):
    """A transaction that has the log as a part."""
    transaction = broker.begin()
    broker.add(transaction, [TOPIC])
    return transaction


def test_the_next_driver_reads_what_was_written(broker):
    one, two = begun(broker), begun(broker)
    announce(broker, TOPIC, one)
    announce(broker, TOPIC, two)
    with CommitLog(broker, TOPIC) as log:
        assert log.state == LogState(opened=frozenset([one, two]))
        log.write(Intent(4, (one,)))
        log.mark([one])
        broker.end(one, "committed")
        log.refresh()
        expected = LogState(Intent(4, (one,)), frozenset([one]), frozenset([two]))
        assert log.state == expected
    assert CommitLog(broker, TOPIC).state == expected


def test_markers_are_read_when_all_are_visible(broker):
    one, two = begun(broker), begun(broker)
    with CommitLog(broker, TOPIC) as log:
        log.mark([one, two])
        broker.end(two, "committed")
        log.refresh()
        assert not log.state.committed  # an open transaction hides what comes after it
        broker.end(one, "aborted")
        log.await_markers()
        assert log.state.committed == {two}
    assert broker.effects[-2:] == [("token",), ("read",)]


def test_what_is_older_than_the_intent_is_released(broker):
    announce(broker, TOPIC, ONE)
    with CommitLog(broker, TOPIC) as log:
        log.trim()
        assert len(list(broker.visible(TOPIC))) == 1  # no intent was written here
        log.write(Intent(4, (ONE,)))
        log.refresh()
        announce(broker, TOPIC, TWO)
        log.trim()
    assert CommitLog(broker, TOPIC).state == LogState(Intent(4, (ONE,)), opened=frozenset([TWO]))


def test_what_somebody_else_wrote_is_an_error_that_names_it(broker, monkeypatch):
    broker.store(TOPIC, b"plain", None)
    closed = []
    monkeypatch.setattr(SimulatedRecordTopic, "close", lambda topic: closed.append(topic.topic))
    with pytest.raises(CorruptError, match="somebody else writes to this topic") as raised:
        CommitLog(broker, TOPIC)
    assert (raised.value.topic, raised.value.message_id) == (str(TOPIC), "1:1")
    assert closed == [TOPIC]


def test_records_that_were_acknowledged_by_somebody_else_are_warned_of(broker, monkeypatch, caplog):
    monkeypatch.setattr(SimulatedRecordTopic, "is_released", True)
    announce(broker, TOPIC, ONE)
    with caplog.at_level(logging.WARNING, commit_log.__name__):
        assert CommitLog(broker, TOPIC).state.opened == {ONE}
    (line,) = caplog.messages
    assert line.startswith(f"{TOPIC}: records of the query's commits were acknowledged, by a message TTL")
