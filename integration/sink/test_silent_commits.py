"""The driver's commit while the broker says nothing: it goes on, and the query with it."""

import logging
import os
import signal
import threading
import time

import pytest

from integration.fixtures.transactions import transactional_cluster
from integration.helpers.proxies import SilentProxy
from integration.sink.test_transactional_commits import Query
from pulsar_spark.client import Client, ClientOptions, Transactions
from pulsar_spark.spark.sink.commit_log import CommitLog

cluster = transactional_cluster

# Seconds of the connection timeout here; with the default, 10 s, all takes as much longer.
_TIMEOUT = 2.0


@pytest.fixture
def topic(topic, admin):
    admin.create_held_topic(topic, 2)
    return topic


@pytest.fixture
def silent(transactional_broker):
    with SilentProxy(transactional_broker.service_url) as proxy:
        yield proxy


@pytest.fixture
def query(silent, peer, topic):
    with Client(ClientOptions(service_url=silent.service_url, connection_timeout=_TIMEOUT)) as client:
        yield Query(client, peer, topic)


def once_before(owner, name, act, patch):
    """Act once, right before a method is called for the first time."""
    method, lock, left = getattr(owner, name), threading.Lock(), [act]

    def called(*args):
        with lock:
            if left:
                left.pop()()
        return method(*args)

    patch.setattr(owner, name, called)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Transactions, "__init__"),
        (CommitLog, "write"),
        (Transactions, "add"),
        (CommitLog, "mark"),
        (Transactions, "commit"),
        (CommitLog, "trim"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.__name__,
)
def test_a_commit_over_connections_that_have_gone_silent(query, silent, monkeypatch, owner, method):
    """Whichever step it comes to, and whichever of its connections the step needs."""
    reports = [query.task("a"), query.task("b")]
    once_before(owner, method, silent.fall_silent, monkeypatch)
    began = time.monotonic()
    query.commit(0, *reports)
    took = time.monotonic() - began
    logging.getLogger(__name__).info("committed after %.1f s", took)
    assert took < 15.0
    query.commit(1, query.task("c"))
    assert query.rows() == ["a", "b", "c"]


@pytest.mark.long
@pytest.mark.parametrize("method", ["add", "commit"])
def test_a_broker_that_stands_still_in_a_commit(
    transactional_broker, peer, topic, monkeypatch, caplog, method
):
    """For longer than a request may take. Spark does not call the commit again."""
    with Client(ClientOptions(service_url=transactional_broker.service_url)) as client:
        _stand_still_in_a_commit(Query(client, peer, topic), transactional_broker, monkeypatch, method)
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert any(each.startswith("retrying in") for each in warnings), "no request outlasted its timeout"


def _stand_still_in_a_commit(query, transactional_broker, monkeypatch, method):
    reports = [query.task("a"), query.task("b")]
    awake: list[float] = []

    def wake():
        awake.append(time.monotonic())
        os.kill(transactional_broker.pid, signal.SIGCONT)

    timer = threading.Timer(40.0, wake)

    def stop():
        os.kill(transactional_broker.pid, signal.SIGSTOP)
        timer.start()

    once_before(Transactions, method, stop, monkeypatch)
    query.commit(0, *reports)
    timer.join()
    took = time.monotonic() - awake[0]
    logging.getLogger(__name__).info("committed %.1f s after the broker went on", took)
    assert took < 15.0
    query.commit(1, query.task("c"))
    assert query.rows() == ["a", "b", "c"]
