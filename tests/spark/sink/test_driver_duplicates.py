"""Which messages of a micro-batch may be duplicated, over all tasks of all its runs."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from pulsar_spark.client import DedupTask, Origin, SentTotals, TopicWriter
from pulsar_spark.client.reading import backward_search
from pulsar_spark.errors import BrokerError, DuplicatesError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.driver import find_duplicates
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of, columns, hurry, numbered, producing
from tests.client.writing.told import reports_of, told
from tests.fake_broker import FakeBroker, refuses
from tests.fake_clients import Type
from tests.loops import a_few_of
from tests.spark.sink.memory_moves import MemoryMoves
from tests.spark.sink.moves import Moves

T = TopicName.parse("t")
SECRET = b"only the query knows this"


@pytest.fixture
def broker(monkeypatch):
    monkeypatch.setattr(backward_search, "_SETTLING", 0.0)  # all that is stored is visible
    with FakeBroker(deduplicates=True) as broker:
        broker.create(T)
        yield broker


@pytest.fixture
def client(broker):
    with client_of(broker) as client:
        yield client


def run(client, number, rows, *, strict=False, write=0, may_be_replay=True):
    """A run of the query: of each task the rows; gives the tasks, and what their writers have sent."""
    ended = []
    with ExitStack() as stack:
        for name, values in rows.items():
            origin = Origin(3, name, write, run=number)
            task = DedupTask(
                *(client, f"spark-q-{name}", origin, SECRET),
                required=True,
                strict=strict,
                may_be_replay=may_be_replay,
            )
            stack.enter_context(closing(task))
            options = producing(batching_max_messages=3)
            with TopicWriter(client, T, options, dedup=task) as writer:
                writer.send(columns(values))
                writer.flush()
                task.finish()
                ended.append((task, writer.sent))
    return ended


# rows by task in the first run, and in the second one -> how many are duplicated
MOVES = {
    "the same": ({0: (0, 10), 1: (10, 20)}, {0: (0, 10), 1: (10, 20)}, 0),
    "more": ({0: (0, 5), 1: (10, 14)}, {0: (0, 10), 1: (10, 20)}, 0),
    "one task is two": ({0: (0, 20)}, {0: (0, 10), 1: (10, 20)}, 10),
    "two tasks are one": ({0: (0, 10), 1: (10, 20)}, {0: (0, 20)}, 10),
    "rows are exchanged": ({0: (0, 10), 1: (10, 20)}, {0: (10, 20), 1: (0, 10)}, 20),
    "sparse numbers": ({0: (0, 10), 5: (10, 20), 199: (20, 30)}, {0: (0, 30)}, 20),
    "other numbers": ({100: (0, 10)}, {0: (0, 10)}, 10),
    "a little shorter, with other values": ({0: (0, 10)}, {0: (100, 109)}, 9),
    "a little shorter": ({0: (0, 10)}, {0: (0, 9)}, 0),
    "a task has no rows any more": ({0: (0, 10), 1: (10, 20)}, {0: (0, 10), 1: (0, 0)}, 0),
    "tasks are no more, and nothing moved": ({0: (0, 10), 9: (10, 20)}, {0: (0, 10)}, 0),
}


def numbers(rows):
    return {task: numbered(last - first, first) for task, (first, last) in rows.items()}


@pytest.mark.parametrize(("first", "second", "twice"), MOVES.values(), ids=MOVES)
def test_rows_that_move_between_tasks_are_told(client, broker, first, second, twice):
    run(client, 1, numbers(first))
    stored = broker.topics[str(T)].values
    ended = run(client, 2, numbers(second))
    assert told(*ended) == twice
    if twice:
        with pytest.raises(DuplicatesError, match=f"up to {twice} messages are duplicated"):
            told(*ended, strict=True)
        # A run that finds all of them must say so, too: the driver may have died before it did.
        assert told(*run(client, 3, numbers(second))) == twice
    else:
        assert told(*ended, strict=True) == 0
        assert len(broker.topics[str(T)].values) >= len(stored)


@pytest.mark.parametrize(("first", "second", "twice"), MOVES.values(), ids=MOVES)
def test_a_strict_run_sends_no_row_that_is_stored(client, broker, first, second, twice):
    run(client, 1, numbers(first), strict=True)
    before = broker.topics[str(T)].values
    if not twice:
        assert told(*run(client, 2, numbers(second), strict=True), strict=True) == 0
        return
    with pytest.raises(DuplicatesError, match="None of these rows is sent"):
        run(client, 2, numbers(second), strict=True)
    assert broker.topics[str(T)].values == before


def test_the_first_run_asks_for_nothing_more(client, broker):
    """Its own entries are no evidence, whichever task has sent them."""
    ended = run(client, 1, numbers({0: (0, 10), 1: (0, 10)}), strict=True)
    before = len(broker.seen(Type.SUBSCRIBE))
    assert told(*ended, strict=True) == 0
    assert len(broker.seen(Type.SUBSCRIBE)) == before


def test_a_full_replay_is_not_read_by_the_driver(client, broker):
    run(client, 1, numbers({0: (0, 10), 1: (10, 20)}))
    ended = run(client, 2, numbers({0: (0, 10), 1: (10, 20)}))
    before = len(broker.seen(Type.SUBSCRIBE))
    assert told(*ended) == 0
    assert len(broker.seen(Type.SUBSCRIBE)) == before


def test_other_writes_of_the_micro_batch_do_not_count(client):
    run(client, 1, numbers({0: (0, 10), 1: (10, 20)}))
    assert told(*run(client, 2, numbers({0: (0, 20)}), write=1)) == 0


@pytest.mark.parametrize("strict", [False, True])
def test_what_cannot_be_read_is_told(client, broker, strict, caplog):
    run(client, 1, numbers({0: (0, 20)}))
    ended = run(client, 2, numbers({0: (0, 10), 1: (10, 20)}))
    broker.script(Type.SUBSCRIBE, [refuses(pb.AuthorizationError, "no right to consume")] * 9)
    if strict:
        with pytest.raises(BrokerError, match="no right"):
            told(*ended, strict=True)
    else:
        assert told(*ended) == 10, "all that were sent anew may be"
        assert "not known how many messages earlier runs have stored" in caplog.text


def test_the_numbers_of_partitions_are_those_of_what_was_not_found(client, broker):
    """So a user can see where to look."""
    name = TopicName.parse("parted")
    broker.create(name, 2)
    parts = [name.of_partition(0), name.of_partition(1)]
    reports = reports_of(run(client, 1, numbers({0: (0, 3)})))
    assert find_duplicates(client, reports, SECRET, strict=True) == {}
    empty = replace(reports[0], replays={}, topics={})
    assert find_duplicates(client, [empty], SECRET, strict=True) == {}
    assert {each: SentTotals() for each in parts}


def test_rows_are_found_though_another_task_has_seen_only_the_first_of_them(client, broker):
    """The tasks of a process share what they know, of which a part is missing where they wrote together."""
    rows = numbers({0: (0, 60), 1: (100, 160)})
    with ExitStack() as stack:
        writers = []
        for name in rows:
            task = DedupTask(client, f"spark-q-{name}", Origin(3, name, 0, run=1), SECRET, required=True)
            stack.enter_context(closing(task))
            options = producing(batching_max_messages=1)
            writers.append(stack.enter_context(TopicWriter(client, T, options, dedup=task)))
        for at in range(0, 60, 6):
            for name in (1, 0):  # each begins just before the other one goes on
                writers[name].send(columns(rows[name][at : at + 6]))
                writers[name].flush()
    hurry(client, 0.5)
    before = len(broker.topics[str(T)].entries)
    for order in ((0, 1), (1, 0)):
        assert told(*run(client, 10 + order[0], {name: rows[name] for name in order}, strict=True)) == 0
    assert len(broker.topics[str(T)].entries) == before


@pytest.mark.parametrize("seed", a_few_of(12))
def test_whatever_moves_nothing_is_doubled_silently(broker, seed):
    Moves(broker, seed).play().check()


@pytest.mark.parametrize("topics", [60, pytest.param(20_000, marks=pytest.mark.long)])
def test_whatever_moves_in_memory_nothing_is_doubled_silently(topics):
    for seed in range(topics):
        try:
            MemoryMoves(seed).play().check()
        except Exception as error:
            raise AssertionError(f"topic {seed}: {error}") from error
