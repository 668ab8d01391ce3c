"""DedupTask: what it finds of several writes of a micro-batch, of hidden rows, and in other partitions."""

import logging
import re
from collections import Counter
from contextlib import closing
from itertools import repeat
from types import SimpleNamespace

import pytest

from pulsar_spark.client import DedupTask, Origin, TopicWriter
from pulsar_spark.client.reading import backward_search
from pulsar_spark.errors import DuplicatesError, SendError
from pulsar_spark.ids import TopicName, TxnId
from tests.client.clients import TOPIC, columns, hurry, numbered, producing
from tests.fake_broker import FakeBroker, pass_on
from tests.fake_clients import Type
from tests.fake_topics import section_of

SECRET = b"only the query knows this"
FIRST, SECOND = numbered(10), [*numbered(5), b"more", *numbered(5, 20)]


@pytest.fixture
def broker():
    with FakeBroker(deduplicates=True) as broker:
        broker.create(TOPIC)
        yield broker


@pytest.fixture
def waits_for_nothing(monkeypatch):
    """All that is stored is visible, so no search may wait for more."""

    def sleep(seconds):
        raise AssertionError("waited in vain")

    monkeypatch.setattr(backward_search, "time", SimpleNamespace(sleep=sleep))


def write(client, number, values, batch=0, *, may_be_replay=True, strict=True):
    """Run a task of one write of a micro-batch; give how many messages may be duplicated."""
    origin = Origin(batch, 0, number)
    task = DedupTask(
        client, "query-0", origin, SECRET, required=True, strict=strict, may_be_replay=may_be_replay
    )
    options = producing(batching_max_messages=4)
    with closing(task), TopicWriter(client, TOPIC, options, dedup=task) as writer:
        writer.send(columns(values))
        writer.flush()
        task.finish()
        return sum(each.possible_duplicates for each in task.sent.values())


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


@pytest.fixture
def topic(broker):
    return broker.topics[str(TOPIC)]


HIDDEN = r"up to 10 messages .* cannot be compared: an open transaction hides them"


@pytest.mark.parametrize("seen", [0, 4])
def test_rows_that_are_hidden_are_not_sent_again_silently(client, topic, seen, caplog):
    """Also where rows of an earlier micro-batch show that entries of the query can be found."""
    write(client, 0, [b"of an earlier micro-batch"])
    write(client, 0, FIRST[:seen], 1)
    topic.append(section_of(b"open"), TxnId(9, 9))
    write(client, 0, FIRST, 1, may_be_replay=False)
    hurry(client, 0.2)
    before = len(topic.entries)
    with pytest.raises(DuplicatesError, match=HIDDEN):
        write(client, 0, FIRST, 1)
    assert len(topic.entries) == before
    assert write(client, 0, FIRST, 1, strict=False) == 10
    assert re.search(HIDDEN, caplog.text)
    topic.end(TxnId(9, 9), commit=False)
    found = Counter(topic.values)
    assert found == Counter([b"of an earlier micro-batch", *FIRST, *FIRST[seen:]])


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
    """Rows without keys go to partitions in blocks, as large as batches; so much of a run is stored there."""
    name, rows = TopicName.parse("parted"), numbered(12)
    parts = [broker.create(name, 2), broker.topics[str(name.of_partition(1))]]

    def lose(connection, frame):
        if connection.producers[frame.command.send.producer_id].topic is not parts[lost]:
            pass_on(connection, frame)

    def run(portions, **options):
        task = DedupTask(client, "query-0", Origin(0, 0, 0), SECRET, required=False, strict=True)
        with closing(task), TopicWriter(client, name, producing(**options), dedup=task) as writer:
            for first in range(0, 12, portions):
                writer.send(columns(rows[first : first + portions]))
            writer.flush()
            task.finish()

    broker.script(Type.SEND, repeat(lose))
    with pytest.raises(SendError):
        run(12, batching_max_messages=2, send_timeout=0.1)
    broker.script(Type.SEND, [])
    assert parts[1 - lost].values
    assert not parts[lost].values
    for _ in range(2):
        run(portions, batching_max_messages=size)
        assert sorted(parts[0].values + parts[1].values) == sorted(rows)
    assert not caplog.messages
