"""DedupTask: what a replay finds, of all kinds of rows and writes, and wherever they are stored."""

import logging
import random
import re
from collections import Counter
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise, repeat
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pulsar_spark.client import (
    BatcherBuilder,
    Decryptor,
    DedupTask,
    Encryptor,
    EntryField,
    KeyFolder,
    MessageColumns,
    RangeEntries,
    TopicWriter,
    UserCode,
    decode_entries,
)
from pulsar_spark.client.reading import backward_search
from pulsar_spark.errors import DuplicatesError, SendError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import TOPIC, client_of, columns, hurry, numbered, producing
from tests.client.test_encryption import put_key
from tests.client.writing import dedup_tasks
from tests.client.writing.dedup_tasks import SECRET
from tests.client.writing.told import new_origin, told
from tests.fake_broker import HANG, FakeBroker, pass_on, silence
from tests.fake_clients import Type
from tests.fake_topics import section_of
from tests.loops import a_few_of
from tests.ranges import read_range

broker = dedup_tasks.broker
FIRST, SECOND = numbered(10), [*numbered(5), b"more", *numbered(5, 20)]


@pytest.fixture
def waits_for_nothing(monkeypatch):
    """All that is stored is visible, so no search may wait for more."""

    def sleep(seconds):
        raise AssertionError("waited in vain")

    monkeypatch.setattr(backward_search, "time", SimpleNamespace(sleep=sleep))


def write(client, number, values, batch=0, *, task=0, may_be_replay=True, strict=True):
    """Run a task of one write of a micro-batch; give how many messages may be duplicated."""
    name, origin = f"query-{task}", new_origin(batch, task, number)
    task = DedupTask(client, name, origin, SECRET, required=True, strict=strict, may_be_replay=may_be_replay)
    options = producing(batching_max_messages=4)
    with closing(task), TopicWriter(client, TOPIC, options, dedup=task) as writer:
        writer.send(columns(values))
        writer.flush()
        task.finish()
        return told((task, writer.sent))


# ---- a function of foreachBatch may write to a topic several times


@pytest.mark.usefixtures("waits_for_nothing")
@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("may_be_replay", [False, True])
def test_rows_that_two_writes_have_are_stored_twice(client, broker, batches, may_be_replay, caplog):
    """In the first run nothing is left out, and nothing is waited for."""
    with caplog.at_level(logging.WARNING):
        for batch in range(batches):
            write(client, 0, FIRST, batch, may_be_replay=batch == 0)
            write(client, 1, SECOND, batch, may_be_replay=may_be_replay)
            write(client, 2, FIRST, batch, may_be_replay=may_be_replay)
    assert broker.topics[str(TOPIC)].values == (FIRST + SECOND + FIRST) * batches
    assert not caplog.messages


@pytest.mark.usefixtures("waits_for_nothing")
@pytest.mark.parametrize("may_be_replay", [False, True])
def test_a_later_write_waits_for_no_other_task(client, broker, may_be_replay):
    """The topic's last entry may be another task's, of the write before."""
    for batch in range(2):
        for number in range(3):
            for task in range(2):
                write(client, number, FIRST, batch, task=task, may_be_replay=may_be_replay, strict=False)
    assert broker.topics[str(TOPIC)].values == FIRST * 12


@pytest.mark.usefixtures("waits_for_nothing")
def test_an_id_of_a_later_micro_batch_that_a_stranger_has_used_delays_none(client, broker, topic):
    for batch in range(4):
        if batch == 1:
            topic.stored_ids.update({f"query-{task}": (100 << 32) + 7 for task in range(2)})
        for task in range(2):
            write(client, 0, FIRST, batch, task=task, may_be_replay=False, strict=False)
    assert topic.values == FIRST * 8


@pytest.mark.usefixtures("waits_for_nothing")
@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("stored", [1, 2])
@pytest.mark.parametrize("rows", [1, 11])
def test_each_write_of_a_replay_finds_its_own_rows(client, broker, batch, stored, rows, caplog):
    """The run before has ended after some of the writes."""
    before = [b"of an earlier micro-batch"] if batch else []
    if batch:
        write(client, 0, before)
    with caplog.at_level(logging.WARNING):
        for writes in (stored, 2, 2):
            for number, values in enumerate((FIRST, SECOND)[:writes]):
                write(client, number, values[:rows], batch)
    assert broker.topics[str(TOPIC)].values == before + FIRST[:rows] + SECOND[:rows]
    assert not caplog.messages


# ---- an open transaction of somebody else hides what comes after its first message


HIDDEN = r"up to 10 messages .* cannot be compared: an open transaction hides them"


@pytest.mark.parametrize("may_be_replay", [False, True])
@pytest.mark.parametrize("seen", [0, 4])
def test_rows_that_are_hidden_are_not_sent_again_silently(client, topic, seen, may_be_replay, caplog):
    """Also where rows of an earlier micro-batch show that entries of the query can be found.

    Spark does not tell if it repeats a stage, or if a function of foreachBatch repeats its write.
    """
    write(client, 0, [b"of an earlier micro-batch"])
    write(client, 0, FIRST[:seen], 1)
    topic.append(section_of(b"open"), TxnId(9, 9))
    write(client, 0, FIRST, 1, may_be_replay=False)
    hurry(client, 0.2)
    before = len(topic.entries)
    with pytest.raises(DuplicatesError, match=HIDDEN):
        write(client, 0, FIRST, 1, may_be_replay=may_be_replay)
    assert len(topic.entries) == before
    assert write(client, 0, FIRST, 1, may_be_replay=may_be_replay, strict=False) == 10 - seen
    assert re.search(HIDDEN, caplog.text)
    topic.end(TxnId(9, 9), commit=False)
    found = Counter(topic.values)
    assert found == Counter([b"of an earlier micro-batch", *FIRST, *FIRST[seen:]])


STORING = r"messages .* cannot be compared: .* the broker is still storing some of them"


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("seen", [0, 4])
@pytest.mark.parametrize("comes", [False, True])
def test_rows_that_a_slow_broker_stores_later_are_not_sent_again_silently(
    client, broker, topic, seen, comes, caplog
):
    """A worker was killed: the broker names the last id that it has sent, before its entry is stored."""
    write(client, 0, [b"of an earlier micro-batch"])
    write(client, 0, FIRST, 1, may_be_replay=False)
    before, wanted = topic.values[: 1 + seen], topic.values
    (entries,) = topic.ledgers.values()
    late = entries[1 + seen // 4 :]
    del entries[-len(late) :]

    def store():
        for entry in late:
            topic.append(entry.section)

    def store_first(connection, frame):
        store()
        pass_on(connection, frame)

    if comes:
        broker.script(Type.GET_LAST_MESSAGE_ID, [*[pass_on] * 20, store_first])
        assert write(client, 0, FIRST, 1) == 0
        assert topic.values == wanted
        assert not caplog.messages
        return
    hurry(client, 0.3)
    with pytest.raises(DuplicatesError, match=STORING):
        write(client, 0, FIRST, 1)
    assert topic.values == before
    assert write(client, 0, FIRST, 1, strict=False) >= 6
    assert re.search(STORING, caplog.text)
    store()
    assert Counter(topic.values) == Counter([*wanted, *FIRST[seen:]])


def test_rows_that_become_visible_in_time_are_found(client, broker, topic):
    write(client, 0, [b"of an earlier micro-batch"])
    topic.append(section_of(b"open"), TxnId(9, 9))
    write(client, 0, FIRST, 1, may_be_replay=False)

    def commit(connection, frame):
        topic.end(TxnId(9, 9), commit=True)
        pass_on(connection, frame)

    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, pass_on, commit])
    assert write(client, 0, FIRST, 1) == 0
    assert topic.values == [b"of an earlier micro-batch", b"open", *FIRST]


# ---- rows that go to other partitions in a replay


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("portions", [1, 2, 12])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_rows_are_found_in_other_partitions(client, broker, lost, portions, size, caplog):
    """Rows say their partitions, in blocks of a size that is another one in each run."""
    name, rows = TopicName.parse("parted"), numbered(12)
    parts = [broker.create(name, 2), broker.topics[str(name.of_partition(1))]]

    def lose(connection, frame):
        if connection.producers[frame.command.send.producer_id].topic is not parts[lost]:
            pass_on(connection, frame)

    def run(portions, size, **options):
        task = DedupTask(client, "query-0", new_origin(0, 0, 0), SECRET, required=False, strict=True)
        with closing(task), TopicWriter(client, name, producing(**options), dedup=task) as writer:
            for first in range(0, 12, portions):
                some = range(first, min(first + portions, 12))
                places = pa.array([number // size % 2 for number in some], pa.int32())
                writer.send(columns([rows[number] for number in some], partition=places))
            writer.flush()
            task.finish()

    broker.script(Type.SEND, repeat(lose))
    with pytest.raises(SendError):
        run(12, 2, send_timeout=0.1)
    broker.script(Type.SEND, [])
    assert parts[1 - lost].values
    assert not parts[lost].values
    for _ in range(2):
        run(portions, size)
        assert sorted(parts[0].values + parts[1].values) == sorted(rows)
    assert not caplog.messages


# ---- rows of all kinds, and other options in each run


def keyed(draw):
    return draw.choice([None, None, b"", b"a", b"b", b"key"])


def row_of(draw, number, max_size):
    """A row as columns have it; some are equal, or differ only outside of the value."""
    value = draw.choice([None, b"", b"same", b"%d" % number, draw.randbytes(draw.randint(0, max_size))])
    return {
        "value": value,
        "key": keyed(draw),
        "event_time": draw.choice([None, None, 1, 1000]),
        "properties": draw.choice([[], [], [("p", "1")], [("p", "1"), ("q", "é")]]),
        "ordering_key": keyed(draw),
        "deliver_at": draw.choice([None, None, None, 5, 7]),
    }


KINDS = {
    "value": pa.binary(),
    "key": pa.binary(),
    "event_time": pa.int64(),
    "properties": pa.map_(pa.string(), pa.string()),
    "ordering_key": pa.binary(),
    "deliver_at": pa.int64(),
}


def columns_of(rows):
    """Columns in which no row has anything are left out, as the rows of a portion may have it."""
    found = {}
    for name, kind in KINDS.items():
        values = [row[name] for row in rows]
        if name in ("value", "key") or any(each not in (None, []) for each in values):
            found[name] = pa.array(values, kind)
    return MessageColumns(**found)


def stored_rows(client, topic, decryptor):
    """All rows that are stored, each as a text."""
    end, found = topic.entries[-1].id, Counter()
    name = TopicName.parse(topic.name)
    with closing(
        read_range(client, name, MessageId.EARLIEST, end, poll_timeout=HANG, decryptor=decryptor)
    ) as entries:
        for messages in decode_entries([RangeEntries(name, entries)], max_rows=10, max_bytes=10_000):
            times = [
                run.of_rows(lambda each: each.numbers(EntryField.DELIVER_AT)[0]) for run in messages.runs
            ]
            given = {name: getattr(messages, name) for name in KINDS if name != "deliver_at"}
            given["deliver_at"] = pa.array([int(time) or None for run in times for time in run])
            for number in range(len(messages)):
                found[
                    text_of({name: None if c is None else c[number].as_py() for name, c in given.items()})
                ] += 1
    return found


def text_of(row):
    return repr({name: None if row[name] == [] else row[name] for name in KINDS})


@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("seed", a_few_of(4, 2))
def test_rows_of_all_kinds_are_stored_once(tmp_path, seed, is_large, is_encrypted, caplog):
    """Each run has other batches, compression, chunks and portions."""
    draw = random.Random(seed)
    put_key(tmp_path, "own")
    keys = KeyFolder(tmp_path)
    code = UserCode(encryptor=Encryptor(keys, ["own"]) if is_encrypted else None)
    rows = [row_of(draw, number, 4000 if is_large else 100) for number in range(40)]

    def options():
        compression = draw.choice([pb.NONE, pb.LZ4, pb.ZSTD])
        if is_large or draw.random() < 0.3:
            given = {
                "batching": False,
                "chunking": is_large,
                "chunk_max_message_size": draw.choice([None, 1500]),
            }
        else:
            kind = draw.choice([BatcherBuilder.DEFAULT, BatcherBuilder.KEY_BASED])
            given = {"batching_max_messages": draw.choice([1, 3, 1000]), "batcher_builder": kind}
        return producing(compression=compression, **given)

    def run(given):
        task = DedupTask(
            client,
            "query-0",
            new_origin(0, 0, 0),
            SECRET,
            required=True,
            strict=True,
            decryptor=Decryptor(keys),
        )
        with closing(task), TopicWriter(client, TOPIC, given, dedup=task, code=code) as writer:
            cuts = [0, *sorted(draw.randint(0, 40) for _ in range(3)), 40]
            for first, last in pairwise(cuts):
                writer.send(columns_of(rows[first:last]))
            writer.flush()
            task.finish()
            return sum(each.messages for each in (*task.sent.values(), *writer.sent.values()))

    with FakeBroker(deduplicates=True, max_message_size=4000) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        for _ in range(2):
            broker.script(Type.SEND, [pass_on] * draw.randint(1, 12) + [silence] * 1000)
            with suppress(SendError):
                run(replace(options(), send_timeout=0.05))
        broker.script(Type.SEND, [])
        for _ in range(2):
            assert run(options()) == 40
            assert stored_rows(client, topic, Decryptor(keys)) == Counter(map(text_of, rows))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
