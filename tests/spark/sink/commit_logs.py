"""Logs of commits over a record topic in memory, and their batches."""

from __future__ import annotations

import logging

import pytest

from pulsar_spark.ids import TxnId
from pulsar_spark.spark.sink import commit_log
from pulsar_spark.spark.sink.commit_log import CommitLog, LogProtection, QueryLog, announce, log_topic
from pulsar_spark.spark.sink.commit_records import Intent, LogState
from tests.spark.sink.simulated_broker import SimulatedBroker, SimulatedRecordTopic, plug_in

TOPIC = log_topic(None, "id")
KEY = b"a secret of the query"
SIGNED = QueryLog(TOPIC, 5, LogProtection(KEY))
PLAIN = QueryLog(TOPIC, 5)
ONE, TWO, THREE = TxnId(0, 0), TxnId(0, 1), TxnId(0, 2)


@pytest.fixture
def broker(monkeypatch, caplog) -> SimulatedBroker:
    caplog.set_level(logging.WARNING, commit_log.__name__)
    return plug_in(monkeypatch)


@pytest.fixture(params=[PLAIN, SIGNED], ids=["without a key", "with a key"])
def query(request) -> QueryLog:
    return request.param


def begun(broker):
    """A transaction that has the log as a part."""
    transaction = broker.begin()
    broker.add(transaction, [TOPIC])
    return transaction


def committed_batch(broker, query: QueryLog, batch: int = 5) -> tuple[TxnId, LogState]:
    """A micro-batch whose only transaction is committed, and the log's state then."""
    transaction = begun(broker)
    announce(broker, query, transaction)
    with CommitLog(broker, query) as log:
        last = log.state.intent
        log.write(Intent(batch, (transaction,), None if last is None else last.first))
        log.mark([transaction])
        broker.end(transaction, "committed")
        log.refresh()
        log.trim()
        return transaction, log.state


def copy_of_intent(broker) -> bytes:
    """The first intent of the log, as it is stored."""
    return next(each.value for each in broker.visible(TOPIC) if b'"batch"' in each.value)


def before_call(monkeypatch, name: str, act) -> None:
    """Let ``act`` come once, right before the log's owner calls ``name`` at its topic."""
    (acts, call) = [act], getattr(SimulatedRecordTopic, name)

    def acting(topic, *args, **kwargs):
        while acts:
            acts.pop()()
        return call(topic, *args, **kwargs)

    monkeypatch.setattr(SimulatedRecordTopic, name, acting)
