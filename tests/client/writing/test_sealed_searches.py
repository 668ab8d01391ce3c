"""Which sealed segments a task searches for stored rows, and what is told if it cannot; fake broker."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from pulsar_spark.errors import DuplicatesError, PulsarError
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of
from tests.client.writing import segment_tasks
from tests.client.writing.segment_tasks import BATCH, begin, run, subscribing_to, task_of
from tests.client.writing.segments import TOPIC, Segments, assert_once_in_order, keyed, open_segments
from tests.client.writing.told import told
from tests.fake_broker import Held, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.writes import send_all

broker = segment_tasks.broker


@pytest.mark.parametrize("strict", [False, True])
def test_segments_that_were_deleted_before_the_first_micro_batch_have_none_of_its_rows(
    broker, client, strict, caplog
):
    segments = Segments(broker)
    for _ in range(3):
        segments.split_first()
    lost = {str(segments.name(each)) for each in segments.all if each.state == pb.SEALED}
    begin(client, 0, 20, 0)
    segments.split_first()

    broker.script(Type.SUBSCRIBE, [subscribing_to(lost, refuses(pb.TopicNotFound, "no topic"))] * 99)
    with client_of(broker) as other:
        assert run(other, 0, 40, 0, task=task_of(other, 0, strict=strict)) == 0
    assert lost & {each.topic for each in broker.seen(Type.SUBSCRIBE)}
    assert_once_in_order(segments, 40)
    assert not caplog.messages


@pytest.mark.parametrize("strict", [False, True])
def test_an_empty_segment_may_be_deleted_after_its_search(broker, client, strict, caplog):
    """The brokers' clean-up removes it: it is known to have no rows of any task."""
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    segments.split_first()
    empty = segments.active[0]
    segments.split_first()
    task = task_of(client, strict=strict)
    with closing(task), open_segments(client, dedup=task, batching_max_messages=4) as writer:
        assert str(segments.name(empty)) in {each.topic for each in broker.seen(Type.SUBSCRIBE)}
        segments.delete(empty)
        send_all(writer, keyed(20, 40))
        task.finish()
        assert told((task, writer.sent), strict=strict) == 0
    assert_once_in_order(segments, 60)
    assert not caplog.messages


def test_segments_are_read_though_another_one_was_deleted_before_it_was_read(broker, client, caplog):
    segments = Segments(broker, 2)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    deleted = segments.active[0]

    def delete(connection, frame):
        name = str(segments.name(deleted))
        if frame.command.subscribe.topic != name:
            pass_on(connection, frame)
            return
        if deleted.state == pb.ACTIVE:
            segments.split_first()
        refuses(pb.TopicNotFound, f"no topic {name}")(connection, frame)

    broker.script(Type.SUBSCRIBE, [delete] * 99)
    with (
        client_of(broker) as other,
        closing(task_of(other)) as task,
        open_segments(other, dedup=task) as writer,
    ):
        send_all(writer, keyed(20, 20))
    stored = segments.values()[1]
    assert sorted(stored) == sorted(set(stored))
    assert any("segments that they may be in were deleted" in each for each in caplog.messages)


def test_segments_that_are_older_than_an_earlier_micro_batch_are_not_searched(broker, client):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 2)
    segments.split_first()
    run(client, 20, 20, BATCH - 1)
    before = len(broker.seen(Type.SUBSCRIBE))
    with client_of(broker) as other:  # a process that knows nothing
        begin(other, 40, 20)
        run(other, 40, 30)
    assert_once_in_order(segments, 70)
    searched = {each.topic for each in broker.seen(Type.SUBSCRIBE)[before:]}
    assert searched == {str(segments.name(each)) for each in segments.active}


def test_an_earlier_micro_batch_in_a_sealed_segment_ends_the_search(broker, client):
    segments = Segments(broker)
    segments.split_first()
    run(client, 0, 20, BATCH - 1)
    for _ in range(3):
        segments.split_first()
        segments.merge(*segments.active[:2])
        segments.publish()
    before = len(broker.seen(Type.SUBSCRIBE))
    with client_of(broker) as other:  # a process that knows nothing
        assert run(other, 20, 20) == 0
    searched = {each.topic for each in broker.seen(Type.SUBSCRIBE)[before:]}
    assert str(segments.name(segments.all[0])) not in searched
    assert_once_in_order(segments, 40)


def test_a_run_that_cannot_be_a_replay_searches_no_segment(broker, client):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    segments.split_first()
    run(client, 20, 20)  # the process sees the layout
    before = len(broker.seen(Type.SUBSCRIBE))
    run(client, 40, 20, BATCH + 1, task=task_of(client, BATCH + 1, may_be_replay=False))
    assert len(broker.seen(Type.SUBSCRIBE)) == before
    assert_once_in_order(segments, 60)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("batch", [0, BATCH])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [(refuses(pb.AuthorizationError, "no right"), "no right"), (silence, "operationTimeoutMs")],
)
def test_a_segment_that_cannot_be_searched_may_have_rows(
    broker, client, batch, strict, answer, reason, caplog
):
    segments = Segments(broker)
    begin(client, 0, 20, batch)
    segments.split_first()
    with client_of(broker, operation_timeout=0.5) as client:
        old = str(segments.name(segments.all[0]))

        broker.script(Type.SUBSCRIBE, [subscribing_to({old}, answer)] * 99)
        task = task_of(client, batch, strict=strict)
        if strict:
            with pytest.raises(DuplicatesError, match=reason):
                run(client, 0, 30, batch, task=task)
            assert_once_in_order(segments, 20)
        else:
            with suppress(PulsarError):  # the driver cannot count either
                run(client, 0, 30, batch, task=task)
            assert any(reason in each and old in each for each in caplog.messages)
            assert sum(each.unread for each in task.replays.values())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refuses(pb.AuthorizationError, "no right"), ["no right"]),
        (refuses(pb.TopicNotFound, "no topic"), ["were deleted"]),
        (silence, ["operationTimeoutMs", "too many segments were searched"]),
    ],
)
def test_many_segments_that_cannot_be_searched_are_told_once(broker, client, answer, told, caplog):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    for _ in range(5):
        segments.split_first()

    sealed = {str(segments.name(each)) for each in segments.all if each.state == pb.SEALED}
    broker.script(Type.SUBSCRIBE, [subscribing_to(sealed, answer)] * 99)
    with (
        client_of(broker, operation_timeout=0.5) as other,
        closing(task_of(other)) as task,
        open_segments(other, dedup=task) as writer,
    ):
        send_all(writer, keyed(20, 30))
    assert sum(each.unread > 0 for each in task.run_of(TOPIC).partitions.values()) == len(sealed)
    messages = [each for each in caplog.messages if "cannot be compared" in each]
    assert [reason in each for reason, each in zip(told, messages, strict=True)] == [True] * len(told)


def test_a_strict_task_closes_all_segments_that_it_has_searched(broker, client):
    segments = Segments(broker)
    begin(client, 0, 30_000, batching_max_messages=1000)  # more than one block
    for _ in range(4):
        segments.split_first()
    sealed = [str(segments.name(each)) for each in segments.all if each.state == pb.SEALED]

    refused = {sealed[1]}  # searched beside the first, which has rows
    action = subscribing_to(refused, refuses(pb.AuthorizationError, "no right"))
    broker.script(Type.SUBSCRIBE, [action] * 99)
    # The traceback of ``caught`` holds all that was found.
    with pytest.raises(DuplicatesError, match="no right") as caught:
        run(client, 0, 20, task=task_of(client, strict=True))
    broker.wait_for(lambda: not broker.open_consumers)
    assert caught.value.topic == sealed[1]


def test_sealed_segments_are_searched_at_once_after_the_first(broker, client):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    for _ in range(5):
        segments.split_first()
    held = Held(broker)

    sealed = [each for each in segments.all if each.state == pb.SEALED]
    others = {str(segments.name(each)) for each in sealed[:-1]}
    broker.script(Type.SUBSCRIBE, [subscribing_to(others, held)] * 99)
    with client_of(broker) as other, ThreadPoolExecutor(1) as pool:
        told = pool.submit(run, other, 20, 30)
        broker.wait_for(lambda: held.count == len(others) == 4)
        broker.script(Type.SUBSCRIBE, [])
        held.release()
        assert told.result() == 0
    assert_once_in_order(segments, 50)


@pytest.mark.parametrize("strict", [False, True])
def test_a_deleted_segment_may_have_had_rows(broker, client, strict, caplog):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    segments.split(segments.active[0])
    del segments.all[0]
    segments.publish()
    if strict:
        with pytest.raises(DuplicatesError, match="deleted"):
            run(client, 20, 20, task=task_of(client, strict=True))
    else:
        assert run(client, 20, 20) == 20
        told = f"{segments.name(segments.active[0])}: "
        assert any(each.startswith(told) and "in were deleted" in each for each in caplog.messages)
