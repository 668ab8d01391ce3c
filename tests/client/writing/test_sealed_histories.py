"""Random histories of two micro-batches over segments that change, against the fake broker."""

import random
from contextlib import closing, suppress

import pytest

from pulsar_spark.client import BatcherBuilder
from pulsar_spark.errors import PulsarError
from tests.client.clients import client_of
from tests.client.writing.segment_tasks import BATCH, run, task_of
from tests.client.writing.segments import Segments, assert_once_in_order, keyed, open_segments
from tests.fake_broker import FakeBroker, answer_and_cut, cut, lose_answer, pass_on, without_answer
from tests.fake_clients import Type
from tests.loops import a_few_of

COMMANDS = [
    Type.CLOSE_CONSUMER,
    Type.CLOSE_PRODUCER,
    Type.FLOW,
    Type.GET_LAST_MESSAGE_ID,
    Type.LOOKUP,
    Type.PRODUCER,
    Type.SCALABLE_TOPIC_LOOKUP,
    Type.SEND,
    Type.SUBSCRIBE,
]


def play(seed):
    """Runs of two micro-batches over changes of segments; each row must be stored once, in order."""
    draw = random.Random(seed)
    with FakeBroker(has_segments=True, deduplicates=True) as broker:
        segments = Segments(broker, draw.randint(1, 3), has_buckets=draw.random() < 0.3)
        strict, required = draw.random() < 0.3, draw.random() < 0.3
        first_batch, written = draw.choice([0, 0, BATCH]), 0
        for batch in (first_batch, first_batch + 1):
            count = draw.choice([0, 10, 60, 150])
            for _ in range(draw.randint(1, 4)):
                attempt(broker, segments, draw, batch, written, count, strict=strict, required=required)
                calm(broker)
                if draw.random() < 0.3:
                    restart(broker, segments, draw)
                if draw.random() < 0.4:
                    change(segments, draw)
            with client_of(broker) as client:
                task = task_of(client, batch, strict=strict, required=required)
                assert run(client, written, count, sends=draw.randint(1, 3), task=task) == 0, seed
            written += count
        assert_once_in_order(segments, written)


def attempt(broker, segments, draw, batch, first, count, **given):
    """A run that may fail or crash while segments change, and lose receipts; perhaps with a copy."""
    options = {
        "batching": draw.random() < 0.7,
        "batching_max_messages": draw.choice([1, 4, 1000]),
        "batcher_builder": draw.choice([*BatcherBuilder, BatcherBuilder.DEFAULT]),
        "send_timeout": 5.0,
    }
    sends = draw.randint(1, 4)
    changes = sorted(draw.sample(range(sends + 1), draw.randint(0, min(2, sends))))
    crashes, copies = draw.random() < 0.5, draw.random() < 0.15
    with client_of(broker) as client:
        task = task_of(client, batch, **given)
        if draw.random() < 0.3:
            disturb(broker, segments, draw)
        with closing(task), suppress(PulsarError), open_segments(client, dedup=task, **options) as writer:
            for number in range(sends):
                if number in changes:
                    change(segments, draw)
                if draw.random() < 0.3:
                    lose_receipts(broker, draw)
                elif draw.random() < 0.3:
                    disturb(broker, segments, draw)
                at, end = (count * each // sends for each in (number, number + 1))
                writer.send(keyed(first + at, end - at))
                if draw.random() < 0.3:
                    broker.script(Type.SEND, [])
                    writer.flush()
                if copies and draw.random() < 0.5:
                    overtake(broker, segments, draw, batch, first, count, **given)
            if crashes:
                return
            broker.script(Type.SEND, [])
            if sends in changes:
                change(segments, draw)
            writer.flush()
            task.finish()


def lose_receipts(broker, draw):
    faults = [pass_on, without_answer, cut, lose_answer]
    broker.script(Type.SEND, [draw.choice(faults) for _ in range(3)])
    if draw.random() < 0.5:
        broker.cut()


def disturb(broker, segments, draw):
    """Loses connections and changes segments at some of the next commands."""

    def change_first(connection, frame):
        segments.change(draw)
        segments.publish()
        pass_on(connection, frame)

    calm(broker)
    faults = [*[pass_on] * 6, cut, lose_answer, answer_and_cut, change_first]
    for command in draw.sample(COMMANDS, draw.randint(1, 3)):
        broker.script(command, draw.choices(faults, k=draw.randint(1, 8)))


def calm(broker):
    for command in COMMANDS:
        broker.script(command, [])


def overtake(broker, segments, draw, batch, first, count, **given):
    """Another copy of the task runs once the first one has lost its segments."""
    for each in segments.active:
        segments.rebucket(each)
    segments.publish()
    broker.script(Type.SEND, [])
    with client_of(broker) as client, suppress(PulsarError):
        run(client, first, count, task=task_of(client, batch, **given))


def restart(broker, segments, draw):
    """Some active segments get another ledger, as after a restart; others may write to it."""
    for each in segments.active:
        if draw.random() < 0.5:
            broker.close_all(str(segments.name(each)))
            with broker.changed:
                segments.topic(each).roll()
    segments.let_others_write(draw)


def change(segments, draw):
    segments.let_others_write(draw)
    for _ in range(draw.randint(1, 2)):
        segments.change(draw)
        segments.publish()


@pytest.mark.parametrize("seed", a_few_of(15, 4))
def test_random_histories_store_each_row_once_in_order(seed, caplog):
    play(seed)
    assert not [each for each in caplog.messages if "duplicated" in each]


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_random_histories(part):
    for seed in range(1000 + 1000 * part, 2000 + 1000 * part):
        play(seed)
