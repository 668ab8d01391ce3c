"""Which writers of a task are open, and which are flushed and closed, in which order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pulsar_spark.client import (
    IN_PARALLEL,
    DedupTask,
    Origin,
    ProducerOptions,
    Schema,
    SentTotals,
    TopicWriter,
    VersionedSchema,
    task_memory,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.schema import SchemaType
from pulsar_spark.spark.sink import topic_writers
from pulsar_spark.spark.sink.topic_writers import MAX_OPEN_TOPICS, TopicWriters
from tests.client.clients import client_of, columns, producing
from tests.fake_broker import HANG, FakeBroker, Held
from tests.fake_clients import Type
from tests.work import calls as work

X, Y, Z = TOPICS = [TopicName.parse(f"persistent://a/b/{name}") for name in "xyz"]


class Fakes:
    """Records what is done to writers, in order.

    Attributes:
        calls: what is done, and to which topic's writer.
        fitted: the topics of writers whose part of the memory was made smaller.
        meet: called in each call of a writer, with its name.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.given: dict[str, dict[str, Any]] = {}
        self.fitted: list[str] = []
        self.error: Exception | None = None
        self.meet: Callable[[str], object] = lambda what: None

    def writer(self, client: object, topic: TopicName, options: object, **given: Any) -> FakeWriter:
        self.given[topic.local] = {"options": options, **given}
        return FakeWriter(self, topic)


class FakeWriter:
    """Stands for a TopicWriter; what is not flushed when it is closed is lost."""

    def __init__(self, fakes: Fakes, topic: TopicName) -> None:
        self.topic, self._fakes = topic, fakes
        self._pending = 0
        self.sent: dict[TopicName, SentTotals] = {}
        self._note("open")

    def send(self, columns: int) -> None:
        self._note("send")
        self._pending += columns

    def flush(self) -> None:
        self._note("flush")
        if self._fakes.error is not None:
            raise self._fakes.error
        if self._pending:
            before = self.sent.get(self.topic, SentTotals())
            self.sent[self.topic] = SentTotals(
                before.messages + self._pending, 0, MessageId(1, 1), MessageId(1, 2)
            )
        self._pending = 0

    def fit(self) -> None:
        self._fakes.fitted.append(self.topic.local)

    def begin_close(self) -> None:
        """``close`` does it, too."""

    def close(self) -> None:
        self._note("close")
        self._pending = 0

    def _note(self, what: str) -> None:
        self._fakes.meet(what)
        self._fakes.calls.append((what, self.topic.local))


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


def writers(fakes: Fakes, max_open: int, **more: Any) -> Any:
    """Writers that send numbers of rows to fakes."""
    return opened_by(fakes.writer, None, ProducerOptions(), max_open, **more)


def opened_by(
    kind: Any, client: object, options: ProducerOptions, max_open: int = MAX_OPEN_TOPICS, **more: Any
) -> Any:
    given = {name: more[name] for name in more if name != "schema_of"}
    open_writer = partial(kind, client, memory=task_memory(options), **given)
    return TopicWriters(open_writer, options, max_open, **more)


def test_each_topic_has_its_schema(fakes):
    kinds = {X: SchemaType.STRING, Y: SchemaType.INT32}
    schemas = {topic: VersionedSchema(3, Schema(kind)) for topic, kind in kinds.items()}
    with writers(fakes, 1, schema_of=schemas.__getitem__) as opened:
        for topic in (X, Y, X):
            opened.of(topic)
            expected = ProducerOptions(schema=schemas[topic].schema)
            assert fakes.given[topic.local]["options"] == expected
    with writers(fakes, 1) as opened:
        opened.of(X)
    assert fakes.given["x"]["options"] == ProducerOptions()


def calls(fakes: Fakes, *kinds: str) -> list[tuple[str, str]]:
    return [call for call in fakes.calls if call[0] in kinds]


def test_a_writer_that_makes_room_is_flushed_before_it_is_closed(fakes):
    with writers(fakes, 2) as opened:
        for topic in TOPICS:
            opened.of(topic).send(1)
    assert fakes.calls[:8] == [
        ("open", "x"),
        ("send", "x"),
        ("open", "y"),
        ("send", "y"),
        ("flush", "x"),
        ("close", "x"),
        ("open", "z"),
        ("send", "z"),
    ]


def test_all_that_are_open_are_flushed_before_they_are_closed(fakes):
    with writers(fakes, 2) as opened:
        opened.of(X).send(1)
        opened.of(Y).send(1)
        opened.finish()
        assert not calls(fakes, "close")
    assert calls(fakes, "flush", "close") == [("flush", "x"), ("flush", "y"), ("close", "x"), ("close", "y")]


def test_open_writers_make_room_for_another_one(fakes):
    with writers(fakes, 2) as opened:
        for topic in (X, Y, Y, Z):
            opened.of(topic)
    assert fakes.fitted == ["x", "x", "y", "y", "z"]


def test_one_that_is_closed_is_flushed_and_opened_anew(fakes):
    with writers(fakes, 2) as opened:
        opened.of(X).send(1)
        opened.close(X)
        opened.of(X).send(2)
        opened.finish()
    done = [what for what, topic in fakes.calls if topic == "x"]
    assert done == ["open", "send", "flush", "close", "open", "send", "flush", "close"]
    assert opened.sent[X].messages == 3


def test_the_one_that_was_used_longest_ago_makes_room(fakes):
    with writers(fakes, 2) as opened:
        first = opened.of(X)
        opened.of(Y)
        assert opened.of(X) is first
        opened.of(Z)
        assert calls(fakes, "close") == [("close", "y")]
        opened.of(Y)
    assert calls(fakes, "open", "close")[4:6] == [("close", "x"), ("open", "y")]
    assert list(opened.topics) == TOPICS


def test_what_closed_writers_have_sent_counts(fakes):
    with writers(fakes, 1) as opened:
        for rows, topic in enumerate([X, Y, X, Z], start=1):
            opened.of(topic).send(rows)
        opened.finish()
    assert {topic.local: sent.messages for topic, sent in opened.sent.items()} == {"x": 4, "y": 2, "z": 4}
    assert opened.sent[X] == SentTotals(4, 0, MessageId(1, 1), MessageId(1, 2))


def test_what_is_closed_is_added_up_once(fakes):
    """Else thousands of topics cost the square of their number."""
    costs = []
    with writers(fakes, 1) as opened:
        for number in range(200):
            topic = TopicName.parse(f"many-{number}")
            opened.of(topic).send(1)
            costs.append(work(partial(opened.close, topic)))
    assert max(costs[1:]) < 2 * min(costs[1:])
    assert len(opened.sent) == 200


def test_topics_are_opened_sent_to_and_flushed_side_by_side(fakes):
    """Copies of a task exclude each other by the first topic, so that is opened alone."""
    both, all_ = (threading.Barrier(count, timeout=HANG) for count in (2, 3))
    met = []

    def meet(what: str) -> None:
        met.append(what)
        if what != "close" and met != ["open"]:
            (both if what == "open" else all_).wait()

    fakes.meet = meet
    with writers(fakes, 3) as opened:
        opened.send([(topic, 1) for topic in TOPICS])
        opened.close(*TOPICS)
        assert sorted(opened.sent) == TOPICS
    assert Counter(met) == dict.fromkeys(("open", "send", "flush", "close"), 3)


def test_user_code_is_called_from_one_thread(fakes):
    threads = set()
    fakes.meet = lambda what: threads.add(threading.current_thread())
    with writers(fakes, 3, in_parallel=1) as opened:
        for topic in TOPICS:
            opened.send([(topic, 1)])
        opened.finish()
    assert threads == {threading.current_thread()}
    assert opened.in_parallel == 1


@pytest.mark.parametrize("what", [Type.PRODUCER, Type.CLOSE_PRODUCER])
def test_a_broker_is_waited_for_once_for_many_topics(what):
    names = [TopicName.parse(f"many-{number}") for number in range(2 * IN_PARALLEL)]
    with FakeBroker() as broker, client_of(broker) as client:
        with opened_by(TopicWriter, client, producing(), IN_PARALLEL) as opened:
            held = Held(broker)
            broker.script(what, [held] * IN_PARALLEL)
            for first in (0, IN_PARALLEL):
                some = [(name, columns([b"x"])) for name in names[first : first + IN_PARALLEL]]
                sending = threading.Thread(target=opened.send, args=(some,))
                sending.start()
                if first or what == Type.PRODUCER:
                    broker.wait_for_command(what, first + IN_PARALLEL if what == Type.PRODUCER else first)
                    held.release()
                sending.join(HANG)
                assert not sending.is_alive()
            opened.finish()
        assert all(broker.topics[str(name)].values == [b"x"] for name in names)


def test_a_writer_that_cannot_be_flushed_is_closed_in_the_end(fakes):
    fakes.error = RuntimeError("no receipt")
    with writers(fakes, 1) as opened:
        opened.of(X)
        with pytest.raises(RuntimeError, match="no receipt"):
            opened.of(Y)
    assert fakes.calls == [("open", "x"), ("flush", "x"), ("close", "x")]
    assert list(opened.topics) == [X]


def fail_with_rows(opened: Any) -> None:
    with opened:
        opened.of(X).send(1)
        raise RuntimeError("a row")


def test_a_task_that_fails_flushes_nothing(fakes):
    with pytest.raises(RuntimeError, match="a row"):
        fail_with_rows(writers(fakes, 2))
    assert fakes.calls == [("open", "x"), ("send", "x"), ("close", "x")]


def test_a_broker_that_does_not_answer_is_waited_for_once_whatever_topics_are_open():
    with FakeBroker() as broker, client_of(broker) as client:
        opened, held = opened_by(TopicWriter, client, producing()), Held(broker)
        for number in range(topic_writers.MAX_OPEN_TOPICS):
            opened.of(TopicName.parse(f"many-{number}")).send(columns([b"x"]))
        broker.script(Type.CLOSE_PRODUCER, [held] * topic_writers.MAX_OPEN_TOPICS)
        leaving = threading.Thread(target=opened.__exit__, args=(None, None, None))
        leaving.start()
        broker.wait_for_command(Type.CLOSE_PRODUCER, topic_writers.MAX_OPEN_TOPICS)
        held.release()
        leaving.join(HANG)
        assert not leaving.is_alive()
        assert broker.open_producers == []


class Dedup:
    """Stands for a DedupTask."""

    def __init__(self, fakes: Fakes) -> None:
        self._calls = fakes.calls
        self.sent = {X: SentTotals(5), Z: SentTotals(1, found=1)}

    def leave(self, topic: TopicName) -> None:
        self._calls.append(("leave", topic.local))

    def finish(self) -> None:
        self._calls.append(("finish", "task"))

    def close(self) -> None:
        self._calls.append(("close", "task"))


def test_a_task_is_finished_when_all_is_acknowledged(fakes):
    """Until then rows may still come; and what is stored is read until the last writer is closed."""
    with writers(fakes, 2, dedup=Dedup(fakes)) as opened:
        opened.of(X).send(1)
        opened.of(Y)
        opened.finish()
        assert calls(fakes, "flush", "finish")[-1] == ("finish", "task")
    assert calls(fakes, "close")[-1] == ("close", "task")
    assert len(calls(fakes, "finish", "close")) == 4


def test_what_is_stored_is_no_longer_read_for_a_task_that_fails(fakes):
    with pytest.raises(RuntimeError, match="a row"):
        fail_with_rows(writers(fakes, 2, dedup=Dedup(fakes)))
    assert fakes.calls[-1] == ("close", "task")
    assert not calls(fakes, "finish", "flush")


def test_rows_that_earlier_runs_have_stored_count(fakes):
    with writers(fakes, 1, dedup=Dedup(fakes)) as opened:
        opened.of(X).send(2)
        opened.of(Y).send(3)
        opened.finish()
    assert {topic.local: sent.messages for topic, sent in opened.sent.items()} == {"x": 7, "y": 3, "z": 1}
    assert opened.sent[Z].found == 1


@pytest.mark.parametrize("max_open", [1, 2, 3])
@pytest.mark.parametrize("stored", [0, 7, 30])
def test_a_replay_stores_each_row_once_though_few_topics_may_be_open(max_open, stored):
    """A topic is opened again and again: what is found of it goes on where it was."""
    rows = [(TOPICS[number % 3], b"%d" % number) for number in range(30)]
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        for topic in TOPICS:
            broker.create(topic, 2)
        for count in (stored, 30, 30):
            task = DedupTask(client, "q-0", Origin(0, 0, 0), b"secret", required=True, strict=True)
            options = producing(batching_max_messages=2)
            with opened_by(TopicWriter, client, options, max_open, dedup=task) as opened:
                for topic, value in rows[:count]:
                    opened.of(topic).send(columns([value]))
                opened.finish()
                assert sum(sent.messages for sent in opened.sent.values()) == count
        for topic in TOPICS:
            parts = [broker.topics[str(topic.of_partition(number))].values for number in range(2)]
            assert Counter(parts[0] + parts[1]) == Counter(value for name, value in rows if name == topic)


def test_what_is_stored_in_topics_that_were_closed_is_not_read_any_more():
    """Else a replay to thousands of topics would have as many consumers, each with what it has received."""
    rows = [b"%d" % number for number in range(21_000)]  # more than are read at a time
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        for topic in TOPICS:
            broker.create(topic)
        for count in (21_000, 1, 21_000):
            task = DedupTask(client, "q-0", Origin(0, 0, 0), b"secret", required=True, strict=True)
            with opened_by(TopicWriter, client, producing(), 1, dedup=task) as opened:
                for topic in TOPICS:
                    opened.of(topic).send(columns(rows[:count]))
                    broker.wait_for(lambda: len({one.topic for one in broker.open_consumers}) <= 1)
                for topic in TOPICS:
                    opened.of(topic).send(columns(rows[count:]))
                opened.finish()
        assert all(broker.topics[str(topic)].values == rows for topic in TOPICS)
