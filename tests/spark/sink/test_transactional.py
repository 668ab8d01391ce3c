"""The commit of micro-batches against a simulated broker: the order of its effects, and a fault at each."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.client import Transaction
from pulsar_spark.errors import NotReadyError, PulsarError, TransactionError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_log import CommitLog, LogProtection, QueryLog
from pulsar_spark.spark.sink.commit_records import Intent, OpenedRecord, encode_record
from pulsar_spark.spark.sink.report import TaskReport
from pulsar_spark.spark.sink.transactional import abort_batch, commit_batch, commit_once, write_in_transaction
from tests.spark.sink.simulated_broker import Crash, Fault, SimulatedBroker, plug_in

DATA = TopicName.parse("orders")
LOG = TopicName.parse("spark-transactions-query")
QUERY_LOG = QueryLog(LOG, 0)
OPEN = LogProtection()
BATCHES = {0: "abc", 1: "defg", 2: "hi"}
ALL = sorted("".join(BATCHES.values()))


@pytest.fixture
def broker(monkeypatch) -> SimulatedBroker:
    return plug_in(monkeypatch)


def task(broker: Any, values: Iterable[str], log: QueryLog | None = QUERY_LOG):
    """Run a task that writes rows, one message and one batch a row, after a batch without rows."""

    def write(batches: Iterator[pa.RecordBatch], transaction: Transaction | None) -> TaskReport:
        if transaction is not None:
            transaction.add([DATA])
        for batch in batches:
            assert transaction is not None
            for value in batch[0].to_pylist():
                broker.effect("row", value, apply=partial(broker.store, DATA, value.encode(), transaction.id))
        return TaskReport({})

    batches = (
        pa.record_batch([pa.array(rows, pa.string())], names=["value"])
        for rows in itertools.chain([[]], values)
    )
    return write_in_transaction(broker, log, 600.0, batches, write)


def write_batch(broker: Any, batch: int, tasks: int, shift: int) -> None:
    """Do what Spark does for a micro-batch; its rows are spread over tasks in one of many ways."""
    rows = BATCHES[batch][shift % 2 :] + BATCHES[batch][: shift % 2]
    reports: list[TaskReport] = []
    try:
        for number in range(tasks):
            reports.append(task(broker, rows[number::tasks]))
        commit_batch(broker, reports, batch, OPEN, 0.0)
    except PulsarError:
        abort_batch(broker, reports, batch, OPEN)
        raise


def run_query(broker: SimulatedBroker, done: int, life: int) -> int:
    """Run a query until it ends or fails, and return the number of the last micro-batch that Spark noted."""
    try:
        for batch in range(done + 1, len(BATCHES)):
            write_batch(broker, batch, tasks=3 - life % 2, shift=life)
            done = batch
    except (Crash, PulsarError):
        pass
    return done


def rows(broker: SimulatedBroker) -> list[str]:
    """What readers see."""
    found = sorted(stored.value.decode() for stored in broker.visible(DATA))
    assert len(found) == len(set(found)), "a row is there twice"
    return found


def ids(reports: Sequence[TaskReport]) -> list[TxnId]:
    return [report.transaction for report in reports if report.transaction is not None]


def two_tasks(broker: SimulatedBroker):
    """Two tasks that have written, and no effects of theirs."""
    reports = [task(broker, "ab"), task(broker, "c"), task(broker, "")]
    broker.effects.clear()
    return reports, *ids(reports)


# ---- the order of effects


def test_a_task_announces_its_transaction_before_it_writes(broker):
    (transaction,) = ids([task(broker, "ab")])
    assert broker.effects == [
        ("begin", 600.0),
        ("announce", transaction),
        ("add", transaction),
        ("row", "a"),
        ("row", "b"),
    ]
    assert rows(broker) == []


def test_the_intent_and_all_markers_are_durable_before_the_first_commit(broker):
    reports, first, second = two_tasks(broker)
    commit_batch(broker, reports, 0, OPEN, 0.0)
    effects = iter(broker.effects)
    assert next(effects) == ("read",)
    assert next(effects) == ("intent", 0, (first, second))
    assert next(effects) == ("read",)
    assert {next(effects), next(effects)} == {("add", first), ("add", second)}
    assert list(effects) == [
        ("mark", first),
        ("mark", second),
        ("commit", first),
        ("commit", second),
        ("release",),
    ]
    assert rows(broker) == ["a", "b", "c"]


def test_a_batch_that_was_committed_is_not_written_again(broker, caplog):
    reports, first, second = two_tasks(broker)
    broker.start_process(Fault.CRASH_AFTER, 7)
    with pytest.raises(Crash):
        commit_batch(broker, reports, 0, OPEN, 0.0)
    assert broker.effects[-1] == ("commit", first)
    broker.start_process()
    again = [task(broker, "abc")]
    broker.effects.clear()
    with caplog.at_level(logging.WARNING):
        commit_batch(broker, again, 0, OPEN, 0.0)
    assert broker.effects == [("read",), ("commit", second), ("read",), ("abort", *ids(again))]
    assert caplog.messages == ["micro-batch 0 was already committed; nothing is written"]
    assert rows(broker) == ["a", "b", "c"]


def test_no_row_of_a_batch_that_was_committed_is_sent(broker, caplog):
    """The rows are computed all the same: Spark stores the state of operators with their last row."""
    reports, _, second = two_tasks(broker)
    broker.start_process(Fault.CRASH_AFTER, 7)
    with pytest.raises(Crash):
        commit_batch(broker, reports, 0, OPEN, 0.0)
    broker.start_process()
    broker.effects.clear()
    values = iter("abc")
    again = [task(broker, values, replace(QUERY_LOG, may_be_replay=True))]
    assert list(values) == []
    commit_batch(broker, again, 0, OPEN, 0.0)
    assert broker.effects == [("read",), ("commit", second), ("read",)]
    assert caplog.messages == ["micro-batch 0 was already committed; nothing is written"]
    assert rows(broker) == ["a", "b", "c"]


def test_rows_of_a_batch_that_was_not_committed_are_sent(broker):
    """An intent, or the commit of an earlier micro-batch, is no reason to leave rows out."""
    may_be_replay = replace(QUERY_LOG, may_be_replay=True)
    reports, *_ = two_tasks(broker)
    broker.start_process(Fault.CRASH_BEFORE, 7)
    with pytest.raises(Crash):
        commit_batch(broker, reports, 0, OPEN, 0.0)
    broker.start_process()
    commit_batch(broker, [task(broker, "abc", may_be_replay)], 0, OPEN, 0.0)
    commit_batch(broker, [task(broker, "d", replace(may_be_replay, batch=1))], 1, OPEN, 0.0)
    assert rows(broker) == ["a", "b", "c", "d"]


def test_a_batch_that_was_not_committed_is_aborted_before_it_is_written_again(broker):
    reports, first, second = two_tasks(broker)
    broker.start_process(Fault.CRASH_BEFORE, 7)
    with pytest.raises(Crash):
        commit_batch(broker, reports, 0, OPEN, 0.0)
    broker.start_process()
    again = [task(broker, "abc")]
    broker.effects.clear()
    commit_batch(broker, again, 0, OPEN, 0.0)
    assert broker.effects[:5] == [
        ("read",),
        ("abort", first),
        ("abort", second),
        ("read",),
        ("intent", 0, tuple(ids(again))),
    ]
    assert rows(broker) == ["a", "b", "c"]


# ---- a fault at each effect


def effects_of_a_run(monkeypatch) -> int:
    broker = plug_in(monkeypatch)
    assert run_query(broker, -1, 0) == len(BATCHES) - 1
    assert rows(broker) == ALL
    return len(broker.effects)


def replays(monkeypatch, fault: Fault) -> Iterator[SimulatedBroker]:
    """A query whose first life meets the fault at one effect, for each effect; after its second life."""
    for at in range(effects_of_a_run(monkeypatch)):
        broker = plug_in(monkeypatch)
        broker.start_process(fault, at)
        done = run_query(broker, -1, 0)
        assert broker.has_struck
        assert set(rows(broker)) <= set(ALL)
        broker.start_process()
        assert run_query(broker, done, 1) == len(BATCHES) - 1, f"{fault} at effect {at}"
        yield broker


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_crash_at_any_effect_leaves_each_row_once(monkeypatch, fault):
    for broker in replays(monkeypatch, fault):
        assert not broker.holding_readers()
        assert rows(broker) == ALL


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.LOST_ANSWER])
def test_an_error_at_any_effect_leaves_each_row_once(monkeypatch, fault):
    for broker in replays(monkeypatch, fault):
        broker.expire()  # an abort that fails is left to the transaction's time
        assert rows(broker) == ALL


@pytest.mark.parametrize("step", [5, pytest.param(2, marks=pytest.mark.long)])
def test_a_second_crash_at_any_effect_of_the_replay_leaves_each_row_once(monkeypatch, step):
    """After some effects of the replay; which ones changes with the first crash."""
    broker = plug_in(monkeypatch)
    write_batch(broker, 0, tasks=3, shift=0)
    write_batch(broker, 1, tasks=3, shift=0)
    last = len(broker.effects) - 1
    commit = last - [effect[0] for effect in reversed(broker.effects)].index("intent")
    for at in range(commit, last + 1):
        for again in itertools.count(at % step, step):
            broker = plug_in(monkeypatch)
            broker.start_process(Fault.CRASH_AFTER, at)
            done = run_query(broker, -1, 0)
            assert done == 0
            broker.start_process(Fault.CRASH_AFTER, again)
            done = run_query(broker, done, 1)
            if not broker.has_struck:
                break
            broker.start_process()
            assert run_query(broker, done, 2) == len(BATCHES) - 1
            assert rows(broker) == ALL, f"crashes at {at} and {again}"
            assert not broker.holding_readers()
        assert again > 20


def test_transactions_whose_time_is_over_at_any_effect_lose_no_row_in_silence(monkeypatch):
    """The window that is left is between the first commit and the last one, and is an error each time."""
    partly = 0
    for at in range(effects_of_a_run(monkeypatch)):
        broker = plug_in(monkeypatch)
        broker.start_process(Fault.TIME_IS_OVER, at)
        done, error = -1, ""
        try:
            for batch in BATCHES:
                write_batch(broker, batch, tasks=3, shift=0)
                done = batch
        except TransactionError as raised:
            error = str(raised)
        broker.start_process()
        if "in the topic and stay there" in error:
            partly += 1
            for life in range(2):
                with pytest.raises(TransactionError, match="in the topic and stay there"):
                    write_batch(broker, done + 1, tasks=2, shift=life)
            assert 0 < len(rows(broker)) < len(ALL)
        else:
            assert run_query(broker, done, 1) == len(BATCHES) - 1
            assert rows(broker) == ALL, f"at effect {at}"
    assert partly == 5  # three transactions leave two such moments, the last micro-batch has two rows


@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
def test_a_commit_goes_on_after_an_error_at_any_effect(monkeypatch, fault):
    """Without another run of the query: Spark never repeats what the driver does."""
    monkeypatch.setattr("pulsar_spark.client.net.deadline._FIRST_PAUSE", 0.001)
    for at in itertools.count():
        broker: Any = plug_in(monkeypatch)
        commit_batch(broker, [task(broker, "a")], 0, OPEN, 0.0)
        task(broker, "killed", QueryLog(LOG, 1))
        reports = [task(broker, "b", QueryLog(LOG, 1)), task(broker, "c", QueryLog(LOG, 1))]
        broker.start_process(fault, at)
        commit_batch(broker, reports, 1, OPEN, 600.0)
        broker.expire()  # what a killed task has left open, if it could not be aborted
        assert rows(broker) == ["a", "b", "c"]
        if not broker.has_struck:
            break
    assert at > 10


def test_a_commit_goes_on_no_longer_than_its_transactions_live(monkeypatch):
    monkeypatch.setattr("pulsar_spark.client.net.deadline._FIRST_PAUSE", 0.001)
    broker: Any = plug_in(monkeypatch)
    reports = [task(broker, "a")]
    broker.start_process()
    monkeypatch.setattr(broker, "effect", refuse)
    with pytest.raises(NotReadyError, match="cannot be reached"):
        commit_batch(broker, reports, 0, OPEN, 0.1)


def refuse(*_: object, **__: object) -> None:
    raise NotReadyError("the broker cannot be reached")


def test_transactions_that_end_while_a_commit_goes_on_are_not_written_to(monkeypatch):
    """A broker stores a marker in a transaction that has ended, and then loses what it has committed."""
    monkeypatch.setattr("pulsar_spark.client.net.deadline._FIRST_PAUSE", 0.001)
    for at in range(12):
        broker: Any = plug_in(monkeypatch)
        reports, *_ = two_tasks(broker)
        broker.start_process(Fault.ERROR_AND_TIME_IS_OVER, at)
        try:
            commit_batch(broker, reports, 0, OPEN, 600.0)
        except TransactionError as error:
            expected = [] if "none of its rows" in str(error) else ["a", "b"]
        else:
            expected = ["a", "b", "c"]
        assert rows(broker) == expected, f"at effect {at}"
        ended = next((number for number, each in enumerate(broker.effects) if each == ("time is over",)), 99)
        assert "mark" not in [each[0] for each in broker.effects[ended:]]


def test_a_quota_does_not_stop_the_commit_of_the_next_micro_batch(broker):
    commit_batch(broker, [task(broker, "a")], 0, OPEN, 0.0)
    report = task(broker, "b", QueryLog(LOG, 1))
    broker.grow_old()
    broker.has_quota = True
    commit_batch(broker, [report], 1, OPEN, 0.0)
    assert rows(broker) == ["a", "b"]


def test_the_driver_believes_only_what_its_query_has_signed(broker):
    log = QueryLog(LOG, 1, LogProtection(b"a secret of the query"))
    foreign = broker.begin()
    reports = [task(broker, "a", log), task(broker, "b", log)]
    finishers: list[Callable[..., None]] = [partial(commit_batch, ttl=0.0), abort_batch]
    for batch, finish in enumerate(finishers):
        broker.store(LOG, encode_record(OpenedRecord(foreign)), None)
        finish(broker, [reports[batch]], batch, log.protection)
    assert broker.states[foreign] == "open"
    assert CommitLog(broker, log).state.intent == Intent(0, tuple(ids(reports[:1])))


# ---- errors and what they leave


def test_the_transaction_of_one_task_that_runs_out_before_its_marker_is_given_up(broker):
    report = task(broker, "a")
    broker.start_process(Fault.TIME_IS_OVER, 4)
    with pytest.raises(TransactionError, match="none of its rows is in the topic"):
        commit_batch(broker, [report], 0, OPEN, 0.0)
    assert broker.effects[-1] == ("add", *ids([report]))
    assert rows(broker) == []


def test_a_task_that_fails_aborts_its_transaction(broker):
    broker.start_process(Fault.ERROR_BEFORE, 4)
    with pytest.raises(NotReadyError):
        task(broker, "ab")
    assert set(broker.states.values()) == {"aborted"}


def test_abort_leaves_what_a_commit_has_begun(broker):
    reports, first, second = two_tasks(broker)
    failed = task(broker, "d")
    broker.start_process(Fault.ERROR_BEFORE, 9)
    with pytest.raises(NotReadyError):
        commit_batch(broker, reports, 0, OPEN, 0.0)
    broker.start_process()
    abort_batch(broker, [*reports, failed], 0, OPEN)
    assert [broker.states[each] for each in (first, second, *ids([failed]))] == [
        "committed",
        "open",
        "aborted",
    ]


def test_abort_ends_what_killed_tasks_left_open(broker):
    (killed,) = ids([task(broker, "a")])
    reports = [task(broker, "b")]
    abort_batch(broker, [*reports], 0, OPEN)
    assert broker.states[killed] == "aborted"
    assert set(broker.states.values()) == {"aborted"}


def test_an_abort_that_fails_is_logged(broker, caplog):
    report = task(broker, "a", log=None)
    broker.start_process(Fault.ERROR_BEFORE, 0)
    abort_batch(broker, [report], -1, OPEN)
    assert caplog.messages[0].startswith("transaction (0,0) stays open until it times out")


def test_a_batch_write_has_no_log(broker):
    reports = [task(broker, "ab", log=None), task(broker, "c", log=None)]
    assert not [effect for effect in broker.effects if effect[0] == "announce"]
    broker.effects.clear()
    commit_once(broker, reports, 0.0)
    assert sorted(broker.effects) == [("commit", each) for each in ids(reports[:2])]
    assert rows(broker) == ["a", "b", "c"]
    with pytest.raises(TransactionError, match=r"\(0,0\)"):
        commit_batch(broker, reports, 3, OPEN, 0.0)


def test_a_batch_without_rows_commits_nothing(broker):
    commit_batch(broker, [task(broker, "")], 0, OPEN, 0.0)
    commit_batch(broker, [task(broker, "", log=None)], 0, OPEN, 0.0)
    assert broker.effects == [("read",)]
