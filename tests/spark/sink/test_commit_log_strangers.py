"""A query's log of commits: what others may write to it, in each state of a commit."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from pulsar_spark.client import StoredRecord
from pulsar_spark.errors import ConnectError, CorruptError, DeadlineError, OtherClusterError, TransactionError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.spark.sink import commit_log
from pulsar_spark.spark.sink.commit_log import CommitLog, announce, log_topic
from pulsar_spark.spark.sink.commit_records import (
    CommitRecord,
    CommittedRecord,
    Intent,
    LogState,
    OpenedRecord,
    RecordFormat,
    TokenRecord,
)
from tests.spark.sink import commit_logs
from tests.spark.sink.commit_logs import (
    KEY,
    ONE,
    PLAIN,
    SIGNED,
    THREE,
    TOPIC,
    TWO,
    before_call,
    begun,
    committed_batch,
    copy_of_intent,
)
from tests.spark.sink.simulated_broker import SimulatedRecordTopic

broker = commit_logs.broker
query = commit_logs.query


# ---- what others may write, in each state of a commit


def signed(record: CommitRecord, key: bytes = KEY, topic: TopicName = TOPIC) -> bytes:
    return RecordFormat(str(topic), key).encode(record)


def test_intents_that_follow_one_another_are_read_at_once(broker, query, caplog):
    first, _ = committed_batch(broker, query, 4)
    second, third = TxnId(9, 1), TxnId(9, 2)
    caplog.clear()
    with CommitLog(broker, query) as log:
        for intent in (Intent(5, (second,), first), last := Intent(6, (third,), second)):
            broker.store(TOPIC, RecordFormat(str(TOPIC), query.protection.key).encode(intent), None)
        log.refresh()
        assert log.state.intent == last
    assert caplog.messages == []


FORGED = {
    "no record": None,
    "no text of ours": b"\xff",
    "a transaction to abort": OpenedRecord(THREE),
    "a later micro-batch": Intent(99, (THREE,), ONE),
    "the same micro-batch, by another transaction": Intent(5, (THREE,), ONE),
    "an earlier micro-batch": Intent(3, (THREE,), ONE),
    "a marker": CommittedRecord(THREE),
    "a token": TokenRecord("token"),
}
SIGNATURES = {
    "without a signature": lambda record: RecordFormat(str(TOPIC), None).encode(record),
    "with another key": lambda record: signed(record, b"another key of somebody"),
    "of another query": lambda record: signed(record, topic=log_topic(None, "other")),
    "with the signature of another record": lambda record: (
        signed(TokenRecord("a"))[:64] + signed(record)[64:]
    ),
}


@pytest.mark.parametrize("sign", SIGNATURES.values(), ids=SIGNATURES.keys())
@pytest.mark.parametrize("record", FORGED.values(), ids=FORGED.keys())
def test_what_is_made_up_changes_nothing_where_there_is_a_key(broker, caplog, record, sign):
    _, state = committed_batch(broker, SIGNED)
    value = sign(record) if record is not None and not isinstance(record, bytes) else record
    broker.store(TOPIC, value, None)
    caplog.clear()
    assert CommitLog(broker, SIGNED).state == state
    (line,) = caplog.messages
    assert "1 messages that are not records of the query's commits are ignored" in line
    assert KEY.decode() not in line


def test_a_message_that_is_no_record_is_left_out(broker, query, caplog):
    _, state = committed_batch(broker, query)
    broker.store(TOPIC, None, None)
    caplog.clear()
    assert CommitLog(broker, query).state == state
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "value",
    [
        *(b"plain", b"\xff", b"[" * 100_000, b'{"opened": [1, 2], "batch": 3}'),
        *(b'{"batch": 5, "transactions": [[0, 1]]}', b'{"batch": 5, "after": null}', b'{"sealed": [0, 1]}'),
    ],
)
def test_a_record_in_a_form_of_no_version(broker, caplog, value):
    """Without a key a later version may have written it; with a key it is somebody else's."""
    broker.store(TOPIC, value, None)
    assert CommitLog(broker, SIGNED).state == LogState()
    assert len(caplog.messages) == 1
    with pytest.raises(CorruptError, match=r"not a record .*If somebody else wrote it, see") as raised:
        CommitLog(broker, PLAIN)
    assert (raised.value.topic, raised.value.message_id) == (str(TOPIC), "1:1")


def test_a_record_from_another_cluster_is_refused(query):
    form, left_out = RecordFormat(str(TOPIC), query.protection.key), []
    copied = StoredRecord(MessageId(1, 1), form.encode(OpenedRecord(ONE)), cluster="a")
    with pytest.raises(OtherClusterError, match=r"has in cluster 'a'.*delete this topic here"):
        list(commit_log._decoded(form, TOPIC, None, [copied], left_out))
    assert list(commit_log._decoded(form, TOPIC, None, [replace(copied, value=None)], left_out)) == []
    assert len(left_out) == 1


def test_a_copy_of_any_record_changes_nothing(broker, query, caplog):
    """Whatever was visible at any time is written again, as it is, by somebody who has no key."""
    committed_batch(broker, query, 3)
    older = [each.value for each in broker.visible(TOPIC)]
    committed_batch(broker, query, 4)
    transaction, state = committed_batch(broker, query, 5)
    for stored in [*(each.value for each in broker.visible(TOPIC)), *older]:
        broker.store(TOPIC, stored, None)
    found = CommitLog(broker, query).state
    assert found.intent == state.intent
    assert found.committed == {transaction}
    assert transaction not in found.opened
    assert any(
        "an intent that does not follow the last one" in line or "than the one it was written in" in line
        for line in caplog.messages
    )


def test_a_copied_marker_is_no_proof_that_its_transaction_was_committed(broker, query):
    transaction = begun(broker)
    with CommitLog(broker, query) as log:
        log.write(Intent(5, (transaction,)))
        log.mark([transaction])
    broker.end(transaction, "aborted")
    marker = RecordFormat(str(TOPIC), query.protection.key).encode(CommittedRecord(transaction))
    broker.store(TOPIC, marker, None)
    assert not CommitLog(broker, query).state.committed


@pytest.mark.parametrize("is_hidden", [False, True], ids=["visible", "hidden by a transaction"])
def test_a_copied_intent_is_never_the_first_that_is_read(broker, query, monkeypatch, is_hidden):
    """It comes after the driver has read the log, and before it shuts others out."""
    committed_batch(broker, query, 3)
    copied = copy_of_intent(broker)
    committed_batch(broker, query, 4)
    foreign = begun(broker)

    def copy():
        if is_hidden:
            broker.store(TOPIC, b"anything", foreign)
        broker.store(TOPIC, copied, None)

    before_call(monkeypatch, "open_for_writing", copy)
    before_call(monkeypatch, "flush", lambda: broker.end(foreign, "aborted"))
    transaction, state = committed_batch(broker, query, 5)
    assert CommitLog(broker, query).state == replace(state, committed=frozenset([transaction]))


def test_what_a_task_opens_while_the_intent_is_written_is_kept(broker, query, monkeypatch):
    """A second attempt of a task began after the driver had read the log."""
    late = begun(broker)
    before_call(monkeypatch, "open_for_writing", lambda: announce(broker, query, late))
    _, state = committed_batch(broker, query, 5)
    assert late in state.opened
    assert CommitLog(broker, query).state == state
    committed_batch(broker, query, 6)
    assert late not in CommitLog(broker, query).state.opened


def test_an_intent_that_is_written_again_after_an_error_keeps_what_was_opened(broker, query, monkeypatch):
    late = begun(broker)
    before_call(monkeypatch, "open_for_writing", lambda: announce(broker, query, late))
    with CommitLog(broker, query) as log:
        with monkeypatch.context() as patch:
            patch.setattr(log, "append", fail_to_append)
            with pytest.raises(ConnectError):
                log.write(Intent(5, (TWO,)))
        log.write(Intent(5, (TWO,)))
        assert late in log.state.opened
        log.trim()
    assert late in CommitLog(broker, query).state.opened


def fail_to_append(records) -> NoReturn:
    assert list(records)
    raise ConnectError("the broker restarts")


def test_an_intent_that_somebody_has_written_meanwhile_stops_the_commit(broker, query):
    with CommitLog(broker, query) as log:
        with CommitLog(broker, query) as other:
            other.write(Intent(5, (TWO,)))
        with pytest.raises(
            TransactionError,
            match=r"micro-batch 5 is not committed, and none of its rows .* at the same time",
        ):
            log.write(Intent(5, (ONE,)))
    assert CommitLog(broker, query).state.intent == Intent(5, (TWO,))


def test_an_intent_that_an_open_transaction_hides_stops_the_commit(broker, query):
    """Else what is hidden, maybe the intent of the same micro-batch, would count for nothing."""
    transaction = begun(broker)
    broker.store(TOPIC, b"anything", transaction)
    with CommitLog(broker, query) as log, pytest.raises(DeadlineError):
        log.write(Intent(5, (ONE,)))


def test_a_signed_record_that_cannot_be_read_is_an_error_that_names_it(broker, monkeypatch):
    value = RecordFormat(str(TOPIC), KEY)
    text = b'{"of a later version": 1}'
    broker.store(TOPIC, value._signature(KEY, text) + text, None)
    closed = []
    monkeypatch.setattr(SimulatedRecordTopic, "close", lambda topic: closed.append(topic.topic))
    with pytest.raises(CorruptError, match="not a record of a query's commits") as raised:
        CommitLog(broker, SIGNED)
    assert (raised.value.topic, raised.value.message_id) == (str(TOPIC), "1:1")
    assert closed == [TOPIC]


# ---- what is no record


@pytest.mark.parametrize("batch", [0, 5])
def test_what_is_not_signed_does_not_stop_a_query_with_a_key(broker, caplog, batch):
    """Whatever somebody has written before the query's first commit, as a payload or as a record."""
    texts = ['{"batch":5,"transactions":[[0,1]]}', '{"opened":[0,1]}', '{"committed":[0,1]}', "plain"]
    for text in texts:
        broker.store(TOPIC, None, None)
        broker.store(TOPIC, text.encode(), None)
    transaction, state = committed_batch(broker, SIGNED, batch)
    assert state == LogState(Intent(batch, (transaction,)), frozenset([transaction]))
    first, *more = caplog.messages
    assert "8 messages that are not records of the query's commits are ignored" in first
    assert ["may be duplicated" in line for line in more] == [True] * (batch > 0)
