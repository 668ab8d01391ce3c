"""A query's log of commits, over a record topic in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_spark.errors import OptionError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.commit_log import CommitLog, QueryLog, announce, log_topic, read_log_key
from pulsar_spark.spark.sink.commit_records import Intent, LogState
from tests.spark.sink import commit_logs
from tests.spark.sink.commit_logs import (
    KEY,
    ONE,
    SIGNED,
    THREE,
    TOPIC,
    TWO,
    before_call,
    begun,
    committed_batch,
    copy_of_intent,
)

broker = commit_logs.broker
query = commit_logs.query


@pytest.mark.parametrize(
    ("topic", "namespace"),
    [("orders", "public/default"), ("a/b/orders", "a/b"), ("a/b/orders-partition-1", "a/b")],
)
def test_the_log_is_beside_the_topic(topic, namespace):
    log = log_topic(TopicName.parse(topic), "id")
    assert str(log) == f"persistent://{namespace}/spark-transactions-id"


def test_without_a_topic_it_is_where_topics_are_by_default():
    assert str(TOPIC) == "persistent://public/default/spark-transactions-id"


def test_the_next_driver_reads_what_was_written(broker, query):
    one, two = begun(broker), begun(broker)
    announce(broker, query, one)
    announce(broker, query, two)
    with CommitLog(broker, query) as log:
        assert log.state == LogState(opened=frozenset([one, two]))
        log.write(Intent(4, (one,)))
        log.mark([one])
        broker.end(one, "committed")
        log.refresh()
        expected = LogState(Intent(4, (one,)), frozenset([one]), frozenset([two]))
        assert log.state == expected
    assert CommitLog(broker, query).state == expected


def test_markers_are_read_when_all_are_visible(broker, query):
    one, two = begun(broker), begun(broker)
    with CommitLog(broker, query) as log:
        log.mark([one, two])
        broker.end(two, "committed")
        log.refresh()
        assert not log.state.committed  # an open transaction hides what comes after it
        broker.end(one, "aborted")
        log.await_all()
        assert log.state.committed == {two}
    assert broker.effects[-2:] == [("token",), ("read",)]


def test_what_is_older_than_the_intent_is_released(broker, query):
    announce(broker, query, ONE)
    with CommitLog(broker, query) as log:
        log.trim()
        assert len(list(broker.visible(TOPIC))) == 1  # no intent was written here
        log.write(Intent(4, (ONE,)))
        log.refresh()
        announce(broker, query, TWO)
        log.trim()
    assert CommitLog(broker, query).state == LogState(Intent(4, (ONE,)), opened=frozenset([TWO]))


# ---- records that were removed by somebody else


def write_batch_again(broker, query: QueryLog, batch: int = 5) -> None:
    """What a restart does that does not know that the micro-batch was committed."""
    announce(broker, query, TWO)
    with CommitLog(broker, query) as log:
        log.write(Intent(batch, (TWO,)))


@pytest.mark.parametrize("evicted", ["all", "all but the last marker"])
def test_a_batch_that_is_written_again_because_its_records_were_removed_is_warned_of(
    broker, query, caplog, evicted
):
    committed_batch(broker, query)
    *_, before, last = broker.visible(TOPIC)
    broker.release(TOPIC, last.position if evicted == "all" else before.position)
    broker.trim(TOPIC)
    caplog.clear()
    write_batch_again(broker, query)
    (line,) = caplog.messages
    assert line.startswith(f"{TOPIC}, micro-batch 5: the records of the query's commits were removed")
    assert "its rows are now duplicated" in line


def test_a_batch_that_is_written_again_because_the_log_was_deleted_is_warned_of(broker, query, caplog):
    committed_batch(broker, query, 4)
    committed_batch(broker, query)
    broker.delete(TOPIC)
    caplog.clear()
    write_batch_again(broker, query)
    (line,) = caplog.messages
    assert line.startswith(f"{TOPIC}, micro-batch 5: the log has no record of an earlier commit")
    assert "may be duplicated if" in line
    caplog.clear()
    with CommitLog(broker, query) as log:
        log.write(Intent(6, (THREE,), TWO))
    assert caplog.messages == []  # it is said once


def test_records_that_were_only_acknowledged_are_found_again(broker, query, caplog):
    transaction, state = committed_batch(broker, query)
    broker.release(TOPIC, list(broker.visible(TOPIC))[-1].position)
    announce(broker, query, TWO)
    caplog.clear()
    with CommitLog(broker, query) as log:
        assert log.state == LogState(state.intent, state.committed, frozenset([TWO]))
        log.write(Intent(6, (TWO,), transaction))
    (line,) = caplog.messages
    assert "they are still stored this time" in line


def test_a_new_query_is_not_warned(broker, query, caplog):
    write_batch_again(broker, query, 0)
    assert caplog.messages == []


# ---- a backlog quota that keeps producers out


def test_what_is_finished_makes_room_for_the_next_micro_batch(broker, query, caplog):
    first, _ = committed_batch(broker, query, 4)
    broker.grow_old()
    broker.has_quota = True
    second = begun(broker)
    caplog.clear()
    announce(broker, query, second)
    with CommitLog(broker, query) as log:
        assert log.state.opened == {second}
        assert log.state.intent is not None
        assert log.state.intent.batch == 4
        broker.grow_old()  # the micro-batch takes longer than the quota
        log.write(Intent(5, (second,), first))
    assert CommitLog(broker, query).state == LogState(Intent(5, (second,), first))
    assert caplog.messages == []


def test_room_is_made_where_nothing_is_committed_yet(broker, query):
    first = begun(broker)
    announce(broker, query, first)
    broker.grow_old()
    broker.has_quota = True
    second = begun(broker)
    announce(broker, query, second)
    with CommitLog(broker, query) as log:
        assert log.state == LogState(opened=frozenset({first, second}))


def test_a_copied_intent_is_not_the_first_where_room_is_made(broker, query, monkeypatch):
    committed_batch(broker, query, 2)
    copied = copy_of_intent(broker)
    committed_batch(broker, query, 3)
    committed_batch(broker, query, 4)
    late = begun(broker)

    def copy_and_open():
        broker.store(TOPIC, copied, None)
        broker.has_quota = False
        announce(broker, query, late)

    broker.grow_old()
    broker.has_quota = True
    before_call(
        monkeypatch, "release_all", lambda: before_call(monkeypatch, "open_for_writing", copy_and_open)
    )
    second = begun(broker)
    announce(broker, query, second)
    state = CommitLog(broker, query).state
    assert state.intent is not None
    assert state.intent.batch == 4
    assert state.opened == {second, late}


def test_what_is_not_finished_makes_no_room(broker, query):
    committed_batch(broker, query, 5)
    broker.grow_old()
    broker.has_quota = True
    with pytest.raises(
        SendError, match=r"still needs .* to finish micro-batch 5.* Raise the namespace's backlog quota"
    ):
        announce(broker, query, TWO)


# ---- where the key is


def test_the_key_is_read_from_a_file_or_a_variable(tmp_path: Path, monkeypatch):
    (tmp_path / "key").write_text("0123456789abcdef\n")
    monkeypatch.setenv("LOG_KEY", "fedcba9876543210")
    assert read_log_key(f"file://{tmp_path}/key") == b"0123456789abcdef"
    assert read_log_key("env:LOG_KEY") == b"fedcba9876543210"


@pytest.mark.parametrize("key", [None, b"short secret", b"\xff" * 20])
def test_a_key_that_cannot_be_used(tmp_path: Path, key):
    if key is not None:
        (tmp_path / "key").write_bytes(key)
    with pytest.raises(OptionError, match="transactionLogKey") as raised:
        read_log_key(f"file://{tmp_path}/key")
    assert "secret" not in str(raised.value)


def test_a_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("LOG_KEY", raising=False)
    with pytest.raises(OptionError, match="cannot be read"):
        read_log_key("env:LOG_KEY")


def test_the_key_is_not_shown():
    assert KEY.decode() not in repr(SIGNED)
