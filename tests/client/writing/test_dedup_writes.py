"""DedupTask where a micro-batch writes to a topic several times, as a function of foreachBatch may do."""

import logging
from contextlib import closing
from types import SimpleNamespace

import pytest

from pulsar_spark.client import DedupTask, Origin, TopicWriter
from pulsar_spark.client.reading import backward_search
from tests.client.clients import TOPIC, columns, numbered, producing
from tests.fake_broker import FakeBroker

SECRET = b"only the query knows this"
FIRST, SECOND = numbered(10), [*numbered(5), b"more", *numbered(5, 20)]


@pytest.fixture
def broker():
    with FakeBroker(deduplicates=True) as broker:
        broker.create(TOPIC)
        yield broker


@pytest.fixture(autouse=True)
def waits_for_nothing(monkeypatch):
    """All that is stored is visible, so no search may wait for more."""

    def sleep(seconds):
        raise AssertionError("waited in vain")

    monkeypatch.setattr(backward_search, "time", SimpleNamespace(sleep=sleep))


def write(client, number, values, batch=0, *, may_be_replay=True):
    origin = Origin(batch, 0, number)
    task = DedupTask(
        client, "query-0", origin, SECRET, required=True, strict=True, may_be_replay=may_be_replay
    )
    options = producing(batching_max_messages=4)
    with closing(task), TopicWriter(client, TOPIC, options, dedup=task) as writer:
        writer.send(columns(values))
        writer.flush()
        task.finish()
        assert sum(each.possible_duplicates for each in task.sent.values()) == 0


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
