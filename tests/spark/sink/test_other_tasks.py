"""Which other tasks of a micro-batch are asked about, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_spark.client import Schema, VersionedSchema
from pulsar_spark.errors import DuplicatesError, NotAllowedError, NotReadyError, SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink import other_tasks
from pulsar_spark.spark.sink.other_tasks import DedupAttempt, TaskSearch, count_of_other_tasks
from pulsar_spark.wire.schemas.schema import SchemaType

T, U, V = (TopicName.parse(name) for name in "tuv")
FIRST = 100
SCHEMA = Schema(SchemaType.INT32)

# What the broker says of the tasks from number 2 on, and what it means; then it knows none.
SEARCHES = {
    "no other task": ({}, {}, 6),
    "no topics": ({2: {}}, {}, 6),
    "two that stored": ({2: {T: 104}, 3: {T: 100}}, {T: 6}, 8),
    "one with several partitions": ({2: {T: 101, V: -1, U: 100}}, {T: 2, U: 1}, 7),
    "one of an older micro-batch": ({2: {T: 99}}, {}, 7),
    "after a gap": ({5: {T: 100}}, {T: 1}, 10),
    "after too large a gap": ({6: {T: 100}}, {}, 6),
    "older ones fill a gap": ({4: {T: 7}, 8: {T: 100}}, {T: 1}, 13),
}


@pytest.mark.parametrize(("answers", "stored", "end"), SEARCHES.values(), ids=SEARCHES.keys())
def test_the_search(answers, stored, end):
    search = TaskSearch(2, FIRST)
    while not search.is_done:
        search.add(answers.get(search.number, {T: -1}))
    assert search.stored == stored
    assert search.number == end


class Broker:
    """A client; it knows what producers stored last on each topic partition."""

    def __init__(self, **last: int) -> None:
        self.last = last
        self.asked: list[tuple[str, str]] = []
        self.error: NotReadyError | None = None
        self.requires_encryption = False
        self.requires_schema = False
        self.schemas = self

    def latest(self, topic: TopicName) -> VersionedSchema | None:
        return VersionedSchema(3, SCHEMA) if topic == T else None

    def partitions(self, topic: TopicName) -> list[TopicName]:
        return [topic.of_partition(number) for number in range(2)]

    def last_sequence_id(
        self, topic: TopicName, name: str, *, is_encrypted: bool, schema: Schema | None
    ) -> int:
        if self.requires_encryption and not is_encrypted:
            raise NotAllowedError("encryption is required")
        if self.requires_schema and schema != (SCHEMA if topic.base == T else None):
            raise SchemaError("a schema is required")
        self.asked.append((topic.local, name))
        if self.error is not None:
            raise self.error
        return self.last.get(f"{topic.base.local}_{topic.partition}_{name}", -1)


@pytest.fixture(autouse=True)
def plugged_in(monkeypatch):
    monkeypatch.setattr(
        other_tasks,
        "last_sequence_id",
        lambda client, *args, **more: client.last_sequence_id(*args, **more),
    )


def attempt(*topics: TopicName) -> DedupAttempt:
    return DedupAttempt("spark-q", FIRST, frozenset(topics))


def count(
    broker: Any,
    attempts: list[DedupAttempt | None],
    tasks: int,
    *,
    is_encrypted: bool = False,
    has_schema: bool = False,
    strict: bool = False,
):
    return count_of_other_tasks(
        broker, attempts, tasks, is_encrypted=is_encrypted, has_schema=has_schema, strict=strict
    )


def test_nobody_is_asked_where_no_task_may_be_a_replay(caplog):
    broker: Any = Broker()
    assert count(broker, [None, None], 2) == {}
    assert not broker.asked
    assert not caplog.records


def test_all_topics_of_all_tasks_are_looked_at(caplog):
    broker: Any = Broker()
    assert count(broker, [attempt(T), None, attempt(U, T)], 3) == {}
    assert sorted(broker.asked[:4]) == [
        (f"{topic}-partition-{number}", "spark-q-3") for topic in "tu" for number in range(2)
    ]
    assert not caplog.records


def test_rows_of_tasks_that_are_no_more_are_warned_of(caplog):
    broker: Any = Broker(**{"t_0_spark-q-2": 104, "t_1_spark-q-2": 99, "t_1_spark-q-3": 101})
    assert count(broker, [attempt(T)], 2) == {T.of_partition(0): 5, T.of_partition(1): 2}
    assert caplog.messages == [
        "producers spark-q-*: this run of the micro-batch differs from the earlier one: it has 2 tasks, "
        "but task 3 wrote rows of the micro-batch in the earlier run. No row is missing, and up to 7 "
        "messages may be duplicated"
    ]


def test_a_broker_that_does_not_answer_is_no_error(caplog):
    broker: Any = Broker()
    broker.error = NotReadyError("no broker")
    assert count(broker, [attempt(T)], 2) == {}
    assert "not known whether other tasks of an earlier run have written rows" in caplog.text


def test_where_only_encrypted_messages_are_taken():
    broker: Any = Broker(**{"t_0_spark-q-2": 104})
    broker.requires_encryption = True
    assert count(broker, [attempt(T)], 2, is_encrypted=True) == {T.of_partition(0): 5}
    with pytest.raises(NotAllowedError):
        count(broker, [attempt(T)], 2, strict=True)


def test_where_only_messages_with_a_schema_are_taken():
    """A topic that rows were to go to may have none yet."""
    broker: Any = Broker(**{"t_0_spark-q-2": 104})
    broker.requires_schema = True
    assert count(broker, [attempt(T, U)], 2, has_schema=True) == {T.of_partition(0): 5}
    with pytest.raises(SchemaError):
        count(broker, [attempt(T)], 2, strict=True)


def test_a_strict_query_fails(caplog):
    broker: Any = Broker(**{"t_0_spark-q-2": 104})
    with pytest.raises(DuplicatesError, match=r"task 2 wrote rows of the micro-batch.* up to 5 messages"):
        count(broker, [attempt(T)], 2, strict=True)
    broker.error = NotReadyError("no broker")
    with pytest.raises(NotReadyError):
        count(broker, [attempt(T)], 2, strict=True)
    assert not caplog.records
