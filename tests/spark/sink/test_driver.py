"""What the driver does when the tasks have finished, and in which order."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.client import Origin, SentTotals
from pulsar_spark.errors import AuthError, DuplicatesError, OptionError, SendError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.options.parse import parse_sink
from pulsar_spark.spark.sink import driver
from pulsar_spark.spark.sink.commit_log import LogProtection
from pulsar_spark.spark.sink.delivery import query_secret
from pulsar_spark.spark.sink.driver import fail_batch, finish_batch
from pulsar_spark.spark.sink.report import TaskReport

T = TopicName.parse("t")
PLAIN = {"service.url": "pulsar://localhost:6650", "topic": "t", "onBatchWritten": "users.note"}
ENCRYPTED = {
    **PLAIN,
    "delivery": "effectively-once",
    "failOnDuplicates": "true",
    "pulsar.producer.encryptionKeys": "key",
    "pulsar.producer.cryptoKeyReader": "/not/there",  # tasks have the keys
}
TRANSACTIONAL = {**PLAIN, "delivery": "transactional"}
OPEN = LogProtection()
TWICE = {T: 7}
TOPICS: list[tuple[Any, ...]] = []
TYPED = {**PLAIN, "valueFormat": "columns"}
REPORT = replace(TaskReport.of({T: SentTotals(2, 20)}, "query"), origin=Origin(3, 0, 0))
IN_TRANSACTION = replace(REPORT, origin=None, log=TopicName.parse("log"), transaction=TxnId(0, 1))


@pytest.fixture
def calls(monkeypatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(driver, "shared_client", lambda options: options.service_url)
    monkeypatch.setattr(driver, "add_sink_topics", lambda *topics: TOPICS.append(topics))
    TOPICS.clear()
    names = ("abort_batch", "commit_batch", "commit_once", "count_write", "report_batch")
    for name in names:

        def note(*args: Any, name: str = name) -> None:
            calls.append((name, *(list(arg) if isinstance(arg, list) else arg for arg in args)))

        monkeypatch.setattr(driver, name, note)

    def count(*args: Any, strict: bool) -> dict[TopicName, int]:
        calls.append(("find_duplicates", *args, strict))
        return TWICE

    monkeypatch.setattr(driver, "find_duplicates", count)
    return calls


URL = PLAIN["service.url"]
BATCHES = {
    "plain": (PLAIN, [REPORT, None], 3, []),
    "encrypted, once": (ENCRYPTED, [REPORT, None], 3, []),
    "by a schema": (TYPED, [REPORT, None], 3, []),
    "plain batch write": (PLAIN, [REPORT, None], None, []),
    "transactional": (TRANSACTIONAL, [IN_TRANSACTION, None], 3, [("commit_batch", URL, 3, OPEN, 600.0)]),
    "transactional batch write": (TRANSACTIONAL, [IN_TRANSACTION, None], None, [("commit_once", URL, 600.0)]),
}


@pytest.mark.parametrize(("given", "messages", "batch", "commits"), BATCHES.values(), ids=BATCHES.keys())
def test_what_is_committed_is_reported(calls, given, messages, batch, commits):
    finish_batch(parse_sink(given), messages, batch)
    expected = [(name, url, messages[:1], *more) for name, url, *more in commits]
    assert calls == [
        *expected,
        ("find_duplicates", URL, messages[:1], query_secret("query"), given is ENCRYPTED),
        ("report_batch", messages[:1], TWICE, batch, "users.note"),
    ]


def test_a_batch_write_cannot_be_effectively_once(calls):
    """Its tasks have written nothing. Rows without any partition have no task, also in foreachBatch."""
    options = parse_sink({**PLAIN, "delivery": "effectively-once"})
    for batch in (None, 3):
        with pytest.raises(OptionError, match="not possible in a plain batch write"):
            finish_batch(options, [TaskReport({}), TaskReport({})], batch)
    assert not calls
    finish_batch(options, [], None)
    finish_batch(options, [TaskReport({}), REPORT], None)
    assert [call[0] for call in calls].count("report_batch") == 2


@pytest.mark.parametrize("batch", [3, None], ids=["stream", "foreachBatch"])
def test_the_topics_of_a_query_are_told_to_listeners(calls, batch):
    other = TaskReport.of({TopicName.parse("other").of_partition(1): SentTotals(1, 10)}, query="query")
    finish_batch(parse_sink(PLAIN), [replace(REPORT, query="query"), None, other], batch)
    names = {str(T), "persistent://public/default/other"}
    assert [("query", URL, names)] == TOPICS


OF_FOREACH_BATCH = replace(REPORT, micro_batch=("query", "run", 3))
WRITES = {
    "foreachBatch": (PLAIN, OF_FOREACH_BATCH, None, T),
    "foreachBatch, rows name their topics": ({**PLAIN, "topic": None}, OF_FOREACH_BATCH, None, None),
    "stream": (PLAIN, OF_FOREACH_BATCH, 3, T),
    "foreachBatch, transactional": (
        TRANSACTIONAL,
        replace(IN_TRANSACTION, micro_batch=OF_FOREACH_BATCH.micro_batch),
        None,
        T,
    ),
}


@pytest.mark.parametrize(("given", "message", "batch", "topic"), WRITES.values(), ids=WRITES.keys())
def test_a_write_of_a_micro_batch_is_counted_once(calls, given, message, batch, topic):
    """When it is committed: one that fails is tried again under the same number."""
    options = parse_sink({name: value for name, value in given.items() if value is not None})
    finish_batch(options, [message, None, message], batch)
    assert [call for call in calls if call[0] == "count_write"] == [("count_write", "query", "run", 3, topic)]
    assert [call[0] for call in calls][-2:] == ["count_write", "report_batch"]


@pytest.mark.parametrize("batch", [3, None])
def test_a_write_of_no_micro_batch_is_not_counted(calls, batch):
    finish_batch(parse_sink(PLAIN), [REPORT, None], batch)
    finish_batch(parse_sink(PLAIN), [], batch)  # rows without any partition have no task
    assert not [call for call in calls if call[0] == "count_write"]


@pytest.mark.parametrize("batch", [3, None], ids=["stream", "foreachBatch"])
def test_only_a_function_that_may_write_again_fails_if_its_write_cannot_be_counted(
    calls, monkeypatch, caplog, batch
):
    """A stream only opens more producers then."""

    def fail(*_: object) -> None:
        raise SendError("disk full")

    monkeypatch.setattr(driver, "count_write", fail)
    with nullcontext() if batch is not None else pytest.raises(SendError, match="disk full"):
        finish_batch(parse_sink(PLAIN), [OF_FOREACH_BATCH], batch)
    assert ("disk full" in caplog.text) is (batch is not None)
    assert [call[0] for call in calls].count("report_batch") == (batch is not None)


def test_a_write_that_fails_is_not_counted(calls, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise DuplicatesError("other tasks")

    monkeypatch.setattr(driver, "find_duplicates", fail)
    with pytest.raises(DuplicatesError):
        finish_batch(parse_sink(ENCRYPTED), [OF_FOREACH_BATCH], None)
    assert not calls


def test_what_is_not_committed_is_not_reported(calls, monkeypatch):
    def fail(*_: object) -> None:
        raise TransactionError("not committed")

    monkeypatch.setattr(driver, "commit_batch", fail)
    with pytest.raises(TransactionError):
        finish_batch(parse_sink(TRANSACTIONAL), [IN_TRANSACTION], 3)
    assert not calls


def test_transactions_of_a_write_that_failed_are_aborted(calls):
    fail_batch(parse_sink(PLAIN), [REPORT, None], 3)
    assert not calls
    fail_batch(parse_sink(TRANSACTIONAL), [IN_TRANSACTION, None], 3)
    fail_batch(parse_sink(TRANSACTIONAL), [IN_TRANSACTION, None], None)
    assert calls == [
        ("abort_batch", URL, [IN_TRANSACTION], 3, OPEN),
        ("abort_batch", URL, [IN_TRANSACTION], -1, OPEN),
    ]


def test_an_abort_that_fails_does_not_hide_why_the_write_has_failed(calls, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise AuthError("no right to look up the coordinator")

    monkeypatch.setattr(driver, "abort_batch", fail)
    fail_batch(parse_sink(TRANSACTIONAL), [None], 3)
    (told,) = caplog.messages
    assert told.startswith("transactions of the failed write stay open until they time out: [PULSAR_AUTH]")


def test_what_tasks_have_to_warn_of_is_warned_of_once(calls, caplog, monkeypatch):
    said: set[str] = set()
    monkeypatch.setattr(driver, "is_first_to_say", lambda what: not (what in said or said.add(what)))
    warned = replace(REPORT, warning="rows are written at least once")
    for batch in range(2):
        finish_batch(parse_sink(PLAIN), [warned, REPORT, warned], batch)
    in_transaction = replace(IN_TRANSACTION, warning="anybody may write")
    finish_batch(parse_sink(TRANSACTIONAL), [in_transaction], 2)
    assert caplog.messages == ["rows are written at least once", "anybody may write"]
