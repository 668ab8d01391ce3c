"""Which producers a task that deduplicates opens: few, or all if an earlier run may have written."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest

from pulsar_spark.client import DedupTask, Origin, TopicWriter
from pulsar_spark.errors import BusyError, PulsarError
from pulsar_spark.ids import TopicName
from tests.client.clients import client_of, columns, numbered, producing
from tests.client.writing.told import told
from tests.fake_broker import FakeBroker
from tests.fake_clients import Type

NAME = "query-0"
COUNT = 100
TOPIC = TopicName.parse("parted")

pytestmark = pytest.mark.usefixtures("quick_searches")


@pytest.fixture
def broker():
    with FakeBroker(deduplicates=True) as broker:
        broker.create(TOPIC, COUNT)
        yield broker


def task_of(client, batch=0, *, required=False, may_be_replay=False, strict=False):
    origin, secret = Origin(batch, 0, 0), b"only the query knows this"
    return DedupTask(
        client, NAME, origin, secret, required=required, may_be_replay=may_be_replay, strict=strict
    )


def open_writer(client, task):
    return TopicWriter(client, TOPIC, producing(batching_max_publish_delay=1000.0), dedup=task)


def rows(*partitions, first=0):
    return columns(numbered(len(partitions), first), partition=pa.array(partitions, pa.int32()))


def run(client, *blocks, **given):
    """One run of a task; gives how many messages may be duplicated."""
    task = task_of(client, **given)
    with closing(task), open_writer(client, task) as writer:
        for block in blocks:
            writer.send(block)
        writer.flush()
        task.finish()
        return told((task, writer.sent))


def opened(broker):
    return [TopicName.parse(each.topic).partition for each in broker.seen(Type.PRODUCER)]


def stored(broker):
    """The partition of each row, by value."""
    found = [(value, number) for number in range(COUNT) for value in partition(broker, number).values]
    assert not [value for value, count in Counter(value for value, _ in found).items() if count > 1]
    return dict(found)


def partition(broker, number):
    return broker.topics[str(TOPIC.of_partition(number))]


def requests(broker):
    """What a broker answers, but for the entries."""
    kinds = Type.PARTITIONED_METADATA, Type.LOOKUP, Type.PRODUCER, Type.CLOSE_PRODUCER, Type.SUBSCRIBE
    return sum(len(broker.seen(kind)) for kind in kinds)


@pytest.mark.parametrize(("required", "expected"), [(False, 7), (True, 10)])
@pytest.mark.parametrize("at", [0, 7])
def test_a_row_costs_few_requests(broker, client, required, expected, at):
    """The first partition, by which copies exclude each other, and that of the row; and the proof."""
    run(client, rows(at), required=required)
    assert set(opened(broker)) == {0, at}
    assert requests(broker) == (expected if at else expected - 3)
    assert stored(broker) == {b"0": at}


@pytest.mark.parametrize("given", [{"may_be_replay": True}, {"strict": True, "required": True}])
def test_a_possible_replay_opens_all(broker, client, given):
    run(client, **given)
    assert sorted(opened(broker)) == list(range(COUNT))


def test_rows_that_come_later_open_all(broker, client):
    run(client, rows(3), rows(3))
    assert sorted(opened(broker)) == list(range(COUNT))


def test_a_replay_finds_what_the_first_run_stored_anywhere(broker, client):
    run(client, rows(3, 5, 99))
    assert run(client, rows(7, 7, 7), may_be_replay=True) == 0
    assert stored(broker) == {b"0": 3, b"1": 5, b"2": 99}


@pytest.mark.parametrize("partitions", [(3, 5, 99), (99, 5, 3), (3, 7, 8), (7, 99, 8)])
def test_a_stage_that_is_repeated_silently_doubles_no_row(broker, client, partitions):
    """One row that meets a stored one of its partition is enough to look for the others everywhere."""
    run(client, rows(3, 5, 99))
    assert run(client, rows(*partitions)) == 0
    assert stored(broker) == {b"0": 3, b"1": 5, b"2": 99}
    assert sorted(set(opened(broker))) == list(range(COUNT))


def test_rows_that_a_repeated_stage_may_have_doubled_are_told(broker, client):
    """They were sent before anything showed that it is a replay."""
    run(client, rows(3, 5))
    assert run(client, rows(7), rows(5, first=1)) == 1
    assert (partition(broker, 3).values, partition(broker, 7).values) == ([b"0"], [b"0"])
    assert partition(broker, 5).values == [b"1"]


def test_copies_do_not_wait_for_each_other_though_one_has_lost_the_first_partition(broker, client):
    """The copy takes it, and gives it back because of a name that the first one has."""
    first, failures = task_of(client), []

    def run_copy():
        try:
            with client_of(broker) as other:
                run(other, rows(5, 7, 9), may_be_replay=True)
        except PulsarError as error:
            failures.append(error)

    with closing(first), open_writer(client, first) as writer:
        writer.send(rows(5))
        broker.close_all(TOPIC.of_partition(0))
        copy = threading.Thread(target=run_copy)
        copy.start()
        broker.wait_for(lambda: 5 in opened(broker)[2:])
        writer.send(rows(7, 9, first=1))
        writer.flush()
        first.finish()
    copy.join()
    assert stored(broker) == {b"0": 5, b"1": 7, b"2": 9}
    assert not failures
    assert broker.open_producers == []


def test_a_copy_opens_nothing_beside_one_without_rows(broker, client):
    """It has the topic's first partition only."""
    first = task_of(client)
    with closing(first), open_writer(client, first), client_of(broker, operation_timeout=0.3) as other:
        for may_be_replay in (False, True):
            with pytest.raises(BusyError):
                run(other, rows(5), may_be_replay=may_be_replay)
    assert set(opened(broker)) == {0}
