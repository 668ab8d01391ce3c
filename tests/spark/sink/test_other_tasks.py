"""Which other tasks of a micro-batch are asked about, and what is said of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from pulsar_spark.client import (
    Client,
    DedupTask,
    Origin,
    Producer,
    RunToFind,
    Schema,
    TaskIds,
    TopicWriter,
    VersionedSchema,
    first_sequence_id,
)
from pulsar_spark.client.reading import backward_search
from pulsar_spark.errors import DuplicatesError, NotAllowedError, NotReadyError, SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import SchemaType
from pulsar_spark.spark.sink import other_tasks
from pulsar_spark.spark.sink.other_tasks import DedupAttempt, TaskSearch, count_of_other_tasks
from pulsar_spark.wire.columns.singles import encode_singles
from tests.client.clients import client_of, columns, numbered, producing
from tests.fake_broker import FakeBroker

T, U, V = (TopicName.parse(name) for name in "tuv")
SECRET = b"only the query knows this"
ORIGIN = Origin(3, 1, 2)
FIRST = first_sequence_id(ORIGIN.batch)
SCHEMA = Schema(SchemaType.INT32)

# What is known of the tasks from number 2 on: what they have stored, and whether the broker knows a producer;
# then it knows none. And what it means: what is stored, the last task that stored, where the search ends.
SEARCHES = {
    "no other task": ({}, {}, None, 6),
    "no topics": ({2: ({}, True)}, {}, None, 7),
    "two that stored": ({2: ({T: 5}, True), 3: ({T: 1}, True)}, {T: 6}, 3, 8),
    "one with several partitions": ({2: ({T: 2, V: 0, U: 1}, True)}, {T: 2, U: 1}, 2, 7),
    "one of an older micro-batch": ({2: ({}, True)}, {}, None, 7),
    "one whose name somebody else has used": ({2: ({T: 0}, True)}, {}, None, 7),
    "after a gap": ({5: ({T: 1}, True)}, {T: 1}, 5, 10),
    "after too large a gap": ({6: ({T: 1}, True)}, {}, None, 6),
    "older ones fill a gap": ({4: ({}, True), 8: ({T: 1}, True)}, {T: 1}, 8, 13),
}


@pytest.mark.parametrize(("answers", "stored", "last", "end"), SEARCHES.values(), ids=SEARCHES.keys())
def test_the_search(answers, stored, last, end):
    search = TaskSearch(2)
    while not search.is_done:
        found, is_known = answers.get(search.number, ({}, False))
        search.add(found, is_known=is_known)
    assert search.stored == stored
    assert search.last_found == last
    assert search.number == end


def test_the_search_ends_whatever_names_others_make():
    search = TaskSearch(2)
    for _ in range(10_000):
        if search.is_done:
            break
        search.add({}, is_known=True)
    assert search.number == 1002


class Broker:
    """A client; it knows what producers stored last on each topic partition.

    Attributes:
        foreign: names of producers under which somebody else has stored everything.
        counted: runs whose entries were read.
    """

    def __init__(self, **last: int) -> None:
        self.last = last
        self.foreign: set[str] = set()
        self.counted: list[RunToFind] = []
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

    def count_stored_run(self, topic: TopicName, run: RunToFind) -> int:
        self.counted.append(run)
        if f"spark-q-{run.origin.task}" in self.foreign:
            return 0
        return run.last_sequence_id - FIRST + 1


@pytest.fixture
def plugged_in(monkeypatch):
    for name in ("last_sequence_id", "count_stored_run"):

        def call(client, *args, name=name, **more):
            return getattr(client, name)(*args, **more)

        monkeypatch.setattr(other_tasks, name, call)


faked = pytest.mark.usefixtures("plugged_in")


def attempt(*topics: TopicName) -> DedupAttempt:
    return DedupAttempt("spark-q", ORIGIN, SECRET, frozenset(topics))


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


@faked
def test_nobody_is_asked_where_no_task_may_be_a_replay(caplog):
    broker: Any = Broker()
    assert count(broker, [None, None], 2) == {}
    assert not broker.asked
    assert not caplog.records


@faked
def test_all_topics_of_all_tasks_are_looked_at(caplog):
    broker: Any = Broker()
    assert count(broker, [attempt(T), None, attempt(U, T)], 3) == {}
    assert sorted(broker.asked[:4]) == [
        (f"{topic}-partition-{number}", "spark-q-3") for topic in "tu" for number in range(2)
    ]
    assert not caplog.records


@faked
def test_rows_of_tasks_that_are_no_more_are_warned_of(caplog):
    last = {"t_0_spark-q-2": FIRST + 4, "t_1_spark-q-2": FIRST - 1, "t_1_spark-q-3": FIRST}
    broker: Any = Broker(**last)
    assert count(broker, [attempt(T)], 2) == {T.of_partition(0): 5, T.of_partition(1): 1}
    assert caplog.messages == [
        "producers spark-q-*: this run of the micro-batch differs from the earlier one: it has 2 tasks, "
        "but task 3 wrote rows of the micro-batch in the earlier run. No row is missing, and up to 6 "
        "messages may be duplicated"
    ]
    assert broker.counted == [
        RunToFind(
            replace(ORIGIN, task=task),
            SECRET,
            f"spark-q-{task}",
            last,
            is_claimed=True,
            may_be_replay=True,
            may_be_own=False,
        )
        for task, last in ((2, FIRST + 4), (3, FIRST))
    ]


@faked
def test_tasks_that_have_stored_only_earlier_micro_batches_do_not_end_the_search():
    broker: Any = Broker(**{f"t_0_spark-q-{task}": 0 for task in range(2, 8)}, **{"t_1_spark-q-8": FIRST})
    assert count(broker, [attempt(T)], 2) == {T.of_partition(1): 1}


@faked
def test_what_somebody_else_stored_under_such_a_name_is_not_warned_of(caplog):
    """Everybody sees the names. None that others use keeps a strict query from going on."""
    broker: Any = Broker(**{"t_0_spark-q-2": FIRST + 4, "t_1_spark-q-3": FIRST + 1})
    broker.foreign = {"spark-q-2", "spark-q-3"}
    assert count(broker, [attempt(T)], 2, strict=True) == {}
    assert len(broker.counted) == 2
    assert not caplog.records


@faked
def test_only_ids_that_the_query_can_have_used_are_waited_for():
    """Else each name that somebody else has used would delay the query by an operation timeout."""
    own = TaskIds(SECRET, "spark-q-2", str(T.of_partition(1))).first(ORIGIN.batch)
    broker: Any = Broker(**{"t_0_spark-q-2": own + 4, "t_1_spark-q-2": own + 4, "t_1_spark-q-3": own + 4})
    count(broker, [attempt(T)], 2)
    assert [run.may_be_own for run in broker.counted] == [False, True, False]


@faked
def test_names_that_somebody_else_has_used_up_do_not_prolong_the_search():
    """Each of them is read for; so few are that no query waits long."""
    names = [f"spark-q-{number}" for number in range(2, 200)]
    broker: Any = Broker(**{f"t_0_{name}": FIRST + 4 for name in names})
    broker.foreign = set(names)
    assert count(broker, [attempt(T)], 2, strict=True) == {}
    assert len(broker.counted) == 4


@faked
def test_a_broker_that_does_not_answer_is_no_error(caplog):
    broker: Any = Broker()
    broker.error = NotReadyError("no broker")
    assert count(broker, [attempt(T)], 2) == {}
    assert "not known whether other tasks of an earlier run have written rows" in caplog.text


@faked
def test_where_only_encrypted_messages_are_taken():
    broker: Any = Broker(**{"t_0_spark-q-2": FIRST + 4})
    broker.requires_encryption = True
    assert count(broker, [attempt(T)], 2, is_encrypted=True) == {T.of_partition(0): 5}
    with pytest.raises(NotAllowedError):
        count(broker, [attempt(T)], 2, strict=True)


@faked
def test_where_only_messages_with_a_schema_are_taken():
    """A topic that rows were to go to may have none yet."""
    broker: Any = Broker(**{"t_0_spark-q-2": FIRST + 4})
    broker.requires_schema = True
    assert count(broker, [attempt(T, U)], 2, has_schema=True) == {T.of_partition(0): 5}
    with pytest.raises(SchemaError):
        count(broker, [attempt(T)], 2, strict=True)


@faked
def test_a_strict_query_fails(caplog):
    broker: Any = Broker(**{"t_0_spark-q-2": FIRST + 4})
    with pytest.raises(DuplicatesError, match=r"task 2 wrote rows of the micro-batch.* up to 5 messages"):
        count(broker, [attempt(T)], 2, strict=True)
    broker.error = NotReadyError("no broker")
    with pytest.raises(NotReadyError):
        count(broker, [attempt(T)], 2, strict=True)
    assert not caplog.records


# ---- on a fake broker


def store(client: Client, task: int, values: list[bytes], write: int = 0) -> None:
    """Run a task of the micro-batch."""
    dedup = DedupTask(client, f"spark-q-{task}", Origin(3, task, write), SECRET, required=True)
    with closing(dedup), TopicWriter(client, T, producing(batching_max_messages=3), dedup=dedup) as writer:
        writer.send(columns(values))
        writer.flush()


def test_rows_of_tasks_that_are_no_more_are_found_by_their_origins(monkeypatch):
    """Not those of other writes, nor what others store under the same names."""
    monkeypatch.setattr(backward_search, "_SETTLING", 0.0)  # all that is stored is visible
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(T)
        for task in range(4):
            store(client, task, numbered(10))
        store(client, 2, numbered(20), write=1)
        options = producing(name="spark-q-4")
        with closing(Producer(client, T, options, 1, first_sequence_id=FIRST)) as other:
            other.send_singles(encode_singles(columns(numbered(5))))
            other.flush()
        for write, tasks, stored in ((0, 2, 20), (0, 3, 10), (1, 2, 20), (0, 4, 0), (2, 2, 0)):
            attempts = [DedupAttempt("spark-q", Origin(3, 0, write), SECRET, frozenset([T]))]
            found = count(client, [*attempts, None], tasks)
            assert found == ({T: stored} if stored else {}), (write, tasks)
