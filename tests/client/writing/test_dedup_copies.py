"""DedupTask: copies of a task that write at the same time."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from pulsar_spark.errors import AuthError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.replay.task_ids import TaskIds
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of, columns, numbered
from tests.client.writing import dedup_tasks
from tests.client.writing.dedup_tasks import NAME, SECRET, open_writer, run, task_of
from tests.fake_broker import Held, lose_answer, pass_on, refuses
from tests.fake_clients import Type
from tests.writes import send_all, write_all

pytestmark = pytest.mark.usefixtures("quick_searches")
broker = dedup_tasks.broker


def test_another_run_that_still_writes_is_an_error(broker, client, topic):
    """A task that Spark took for lost."""
    task = task_of(client)
    write_all(open_writer(client, task), columns(numbered(4)))
    topic.stored_ids[NAME] += 4  # the other run's
    with pytest.raises(SendError, match="has written under the producer name query-0"):
        open_writer(client, task)
    assert broker.open_producers == []


def test_what_another_copy_writes_while_a_topic_is_opened_again_is_noticed(broker, client):
    """Also if the first attempt finds it at one partition, and is given up because of another one."""
    name, task = TopicName.parse("parted"), task_of(client)
    broker.create(name, 2)
    first = str(name.of_partition(0))
    write_all(open_writer(client, task, name), columns(numbered(4)))
    broker.topics[first].stored_ids[NAME] = TaskIds(SECRET, NAME, first).first(0) + 5
    broker.script(Type.PRODUCER, [pass_on, refuses(pb.ProducerBusy)])
    with pytest.raises(SendError, match="has written under the producer name query-0"):
        open_writer(client, task, name)
    assert len(broker.seen(Type.PRODUCER)) == 6
    assert broker.open_producers == []


def test_another_run_that_writes_while_deduplication_is_proven_is_an_error(broker, client, topic):
    """The proof gives the name away for a moment, and another copy of the task may be waiting for it."""
    held = Held(broker)
    broker.script(Type.PRODUCER, [pass_on, held])
    with ThreadPoolExecutor(1) as threads, client_of(broker) as other:
        first = threads.submit(run, other, numbered(12), required=True)
        broker.wait_for(lambda: held.count)
        run(client, numbered(12), required=True)
        held.release()
        with pytest.raises(SendError, match="has written under the producer name query-0"):
            first.result()
    assert topic.values == numbered(12)


def test_copies_of_a_task_do_not_wait_for_each_other(broker, client):
    """One gives its first name away to prove deduplication, and has another; the other copy comes then."""
    name, held = TopicName.parse("parted"), Held(broker)
    broker.create(name, 2)
    topics = [str(name.of_partition(number)) for number in range(2)]
    broker.script(Type.PRODUCER, [pass_on, pass_on, held])
    given = {"topic": name, "batching": False, "required": True}
    with ThreadPoolExecutor(2) as threads, client_of(broker) as other:
        proving = threads.submit(run, other, numbered(12), **given)
        broker.wait_for(lambda: held.count)
        waiting = threads.submit(run, client, numbered(12), **given)
        broker.wait_for(lambda: [one.topic for one in broker.seen(Type.PRODUCER)].count(topics[1]) > 1)
        held.release()
        assert [each.result()[1] for each in (proving, waiting)] == [12, 12]
    values = [value for topic in topics for value in broker.topics[topic].values]
    assert Counter(values) == Counter(numbered(12))


def test_a_name_that_was_lost_is_had_again_though_another_copy_waits_for_it(broker, client):
    """A producer that has nothing to send is not opened again at once."""
    name = TopicName.parse("parted")
    broker.create(name, 2)
    first, second = (str(name.of_partition(number)) for number in range(2))
    with closing(task_of(client)) as task, ThreadPoolExecutor(1) as threads, client_of(broker) as other:
        with open_writer(client, task, name, batching=False) as writer:
            send_all(writer, columns(numbered(4)))
            broker.close_all(first)
            waiting = threads.submit(run, other, numbered(12), topic=name, batching=False)
            broker.wait_for(lambda: [one.topic for one in broker.seen(Type.PRODUCER)].count(second) > 1)
            send_all(writer, columns(numbered(8, 4)))
        assert waiting.result()[1] == 12
    values = [value for topic in (first, second) for value in broker.topics[topic].values]
    assert Counter(values) == Counter(numbered(12))


@pytest.mark.parametrize("at", range(3))
def test_producers_that_cannot_be_opened_now_are_tried_again(broker, client, at):
    name = TopicName.parse("parted")
    broker.create(name, 3)
    passing = [refuses(pb.ServiceNotReady), lose_answer, refuses(pb.ProducerBusy)]
    broker.script(Type.PRODUCER, [*[pass_on] * at, *passing])
    assert run(client, numbered(12), topic=name)[1] == 12
    assert broker.open_producers == []


def test_an_error_that_lasts_is_raised_though_another_one_passes(broker, client):
    name = TopicName.parse("parted")
    broker.create(name, 3)
    broker.script(Type.PRODUCER, [pass_on, refuses(pb.ProducerBusy), refuses(pb.AuthorizationError)])
    with pytest.raises(AuthError):
        run(client, numbered(12), topic=name)
    assert len(broker.seen(Type.PRODUCER)) == 3
    assert broker.open_producers == []


@pytest.mark.parametrize("rows", [0, 4])
def test_another_run_that_ends_before_it_writes_is_none(broker, client, topic, rows):
    """It had the name while deduplication was proven, and no more rows than were stored by then."""
    held = Held(broker)
    broker.script(Type.PRODUCER, [pass_on, held])
    with ThreadPoolExecutor(1) as threads, client_of(broker) as other:
        first = threads.submit(run, other, numbered(12), required=True)
        broker.wait_for(lambda: held.count)
        run(client, numbered(rows), required=True)
        held.release()
        assert first.result()[1] == 12
    assert topic.values == numbered(12)
