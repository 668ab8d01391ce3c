"""DedupTask over the segments of a scalable topic, against the fake broker."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from pulsar_spark.client import BatcherBuilder, DedupTask, TopicWriter
from pulsar_spark.errors import BusyError, DuplicatesError, PulsarError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of, columns, producing
from tests.client.writing.segments import TOPIC, Segments, assert_once_in_order, keyed, open_segments
from tests.client.writing.told import new_origin, told
from tests.fake_broker import FakeBroker, Held, pass_on, refuses, silence, without_answer
from tests.fake_clients import Type
from tests.fake_topics import section_of
from tests.protocol.test_segments import segment
from tests.writes import send_all

BATCH = 5
SECRET = b"only the query knows this"
NAME = "query-0"


@pytest.fixture
def broker():
    with FakeBroker(has_segments=True, deduplicates=True) as broker:
        yield broker


def task_of(client, batch=BATCH, *, task=0, **given):
    given = {"required": False, **given}
    return DedupTask(client, f"query-{task}", new_origin(batch, task, 0), SECRET, **given)


def run(client, first, count, batch=BATCH, *, sends=1, task=None, **options):
    """One whole run of a task; gives the number of messages that may be duplicated."""
    task, options = task or task_of(client, batch), {"batching_max_messages": 4, **options}
    with (
        closing(task),
        open_segments(client, dedup=task, **{"batching_max_messages": 4, **options}) as writer,
    ):
        for number in range(sends):
            at, end = (count * each // sends for each in (number, number + 1))
            writer.send(keyed(first + at, end - at))
        writer.flush()
        task.finish()
        return told((task, writer.sent))


def begin(client, first, count, batch=BATCH, **options):
    """A run that ends after its rows are stored; without its report."""
    task = task_of(client, batch)
    with (
        closing(task),
        open_segments(client, dedup=task, **{"batching_max_messages": 4, **options}) as writer,
    ):
        send_all(writer, keyed(first, count))


@pytest.mark.parametrize("options", [{}, {"batching": False}, {"batcher_builder": BatcherBuilder.KEY_BASED}])
@pytest.mark.parametrize("strict", [False, True])
def test_a_replay_sends_only_what_no_segment_has(broker, client, options, strict, caplog):
    segments = Segments(broker, 2)
    run(client, 0, 20, BATCH - 1, **options)
    begin(client, 20, 20, **options)
    segments.split_first()
    begin(client, 20, 30, **options)
    segments.merge(*segments.active[:2])
    segments.publish()
    assert run(client, 20, 60, sends=3, task=task_of(client, strict=strict), **options) == 0
    assert_once_in_order(segments, 80)
    assert not caplog.messages


def test_rows_are_found_in_a_segment_that_ended_with_an_empty_ledger(broker, client, caplog):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    task = task_of(client)
    with closing(task), open_segments(client, dedup=task, batching_max_messages=4) as writer:
        send_all(writer, keyed(20, 20))
        broker.script(Type.SEND, [without_answer, silence])
        writer.send(keyed(40, 8))
        broker.wait_for_command(Type.SEND, 5 + 5 + 2)
        segments.topic(segments.all[0]).roll()  # as a broker does after a restart
        segments.split_first()
        writer.flush()
    assert run(client, 20, 40) == 0
    assert_once_in_order(segments, 60)
    assert not caplog.messages


def test_rows_without_keys_are_found_in_any_segment(broker, client, caplog):
    segments = Segments(broker, 2)
    values = [b"%d" % number for number in range(60)]
    for end in (30, 60):
        with (
            closing(task_of(client)) as task,
            open_segments(client, dedup=task, batching_max_messages=4) as writer,
        ):
            send_all(writer, columns(values[:end]))
        segments.split_first()
    with closing(task_of(client)) as task, open_segments(client, dedup=task) as writer:
        send_all(writer, columns(values))
        assert writer.sent == {}
    assert sorted(value for each in segments.values() for value in each) == sorted(values)
    assert not caplog.messages


def test_new_rows_that_a_strict_task_holds_go_to_the_segments_of_a_later_layout(broker, client):
    segments = Segments(broker)
    begin(client, 0, 20)
    with closing(task_of(client, strict=True)) as task, open_segments(client, dedup=task) as writer:
        writer.send(keyed(20, 20))
        segments.split_first()
        send_all(writer, keyed(0, 20))
    assert_once_in_order(segments, 40)
    assert len(segments.values()[0]) == 20


@pytest.mark.parametrize("ledgers", [1, 2, 3])
def test_the_first_micro_batch_is_found_in_sealed_segments(broker, client, ledgers, caplog):
    segments = Segments(broker)
    begin(client, 0, 30, 0)
    for _ in range(1, ledgers):  # a broker begins one at each restart
        segments.topic(segments.all[0]).roll()
        broker.publish(segments.name(segments.all[0]), section_of(b"other"))
    segments.split_first()
    assert run(client, 0, 50, 0) == 0
    assert_once_in_order(segments, 50)
    assert not caplog.messages


def test_the_first_micro_batch_is_found_by_the_next_attempt_of_the_task(broker, client):
    segments = Segments(broker)
    origin = new_origin(0, 0, 0)
    for count in (30, 50):
        task = DedupTask(client, NAME, origin, SECRET, required=False)
        with closing(task), open_segments(client, dedup=task) as writer:
            send_all(writer, keyed(0, count))
        segments.split_first()
    assert_once_in_order(segments, 50)


@pytest.mark.parametrize("has_empty_ledger", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_rows_that_moved_to_another_task_are_told(broker, client, has_empty_ledger, strict):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    if has_empty_ledger:  # as after a restart of the broker
        segments.topic(segments.all[0]).roll()
    segments.split_first()
    other = task_of(client, task=1, strict=strict)
    if strict:
        with pytest.raises(DuplicatesError, match="another task has stored equal rows"):
            run(client, 20, 20, task=other)
    else:
        assert run(client, 20, 20, task=other) == 20


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


def become_scalable(broker, client):
    """Two partitions get two micro-batches, and end; gives the segments that follow them."""
    classic = TopicName.parse("persistent://public/default/st")
    broker.create(classic, partitions=2)
    for batch, first in ((BATCH - 1, 0), (BATCH, 20)):
        task = task_of(client, batch)
        with closing(task), TopicWriter(client, classic, producing(), dedup=task) as writer:
            send_all(writer, keyed(first, 20))
    segments = Segments(broker, partitions=2)
    for name in (str(classic.of_partition(number)) for number in range(2)):
        segments.all.append(segment(len(segments.all) - 1, 0, 0xFFFF, sealed=True, legacy=name))
        segments.all[-1].sealed_at_epoch = 0
        broker.terminate(broker.topics[name])
    segments.publish()
    return segments


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("is_removed", [False, True])
def test_rows_that_partitions_have_stored_before_their_topic_became_scalable_are_found(
    broker, client, is_removed, strict, caplog
):
    segments = become_scalable(broker, client)
    if is_removed:  # from the layout only, as brokers do soon
        del segments.all[1:]
        segments.publish()
    assert run(client, 20, 40, task=task_of(client, strict=strict)) == 0
    assert sum(map(len, segments.values())) == 20
    assert not caplog.messages


def test_partitions_that_were_deleted_after_their_topic_became_scalable_may_have_had_rows(
    broker, client, caplog
):
    segments = become_scalable(broker, client)
    del segments.all[1:]
    segments.publish()
    del broker.partitions["persistent://public/default/st"]
    assert run(client, 20, 20) == 20
    assert any("segments that they may be in were deleted" in each for each in caplog.messages)


def test_a_run_that_cannot_be_a_replay_searches_no_segment(broker, client):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    segments.split_first()
    run(client, 20, 20)  # the process sees the layout
    before = len(broker.seen(Type.SUBSCRIBE))
    run(client, 40, 20, BATCH + 1, task=task_of(client, BATCH + 1, may_be_replay=False))
    assert len(broker.seen(Type.SUBSCRIBE)) == before
    assert_once_in_order(segments, 60)


def test_a_stage_that_spark_repeats_after_a_split_is_noticed(broker, client):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    segments.split_first()
    run(client, 20, 30, task=task_of(client, may_be_replay=False))
    assert_once_in_order(segments, 50)


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

        def refuse(connection, frame):
            is_old = frame.command.subscribe.topic == old
            (answer if is_old else pass_on)(connection, frame)

        broker.script(Type.SUBSCRIBE, [refuse] * 99)
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
    ("error", "text", "told"),
    [(pb.AuthorizationError, "no right", "no right"), (pb.TopicNotFound, "no topic {}", "were deleted")],
)
def test_many_segments_that_cannot_be_searched_are_told_once(broker, client, error, text, told, caplog):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    for _ in range(5):
        segments.split_first()

    def refuse(connection, frame):
        name = frame.command.subscribe.topic
        (refuses(error, text.format(name)) if name in sealed else pass_on)(connection, frame)

    sealed = {str(segments.name(each)) for each in segments.all if each.state == pb.SEALED}
    broker.script(Type.SUBSCRIBE, [refuse] * 99)
    with (
        closing(task_of(client)) as task,
        open_segments(client, dedup=task) as writer,
    ):
        send_all(writer, keyed(20, 30))
    assert sum(each.unread > 0 for each in task.run_of(TOPIC).partitions.values()) == len(sealed)
    assert sum(told in each for each in caplog.messages) == 1


def test_a_strict_task_closes_all_segments_that_it_has_searched(broker, client):
    segments = Segments(broker)
    begin(client, 0, 30_000, batching_max_messages=1000)  # more than one block
    for _ in range(4):
        segments.split_first()
    sealed = [str(segments.name(each)) for each in segments.all if each.state == pb.SEALED]

    def refuse(connection, frame):
        is_refused = frame.command.subscribe.topic == sealed[1]  # searched beside the first, which has rows
        (refuses(pb.AuthorizationError, "no right") if is_refused else pass_on)(connection, frame)

    broker.script(Type.SUBSCRIBE, [refuse] * 99)
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

    def hold(connection, frame):
        (held if frame.command.subscribe.topic in others else pass_on)(connection, frame)

    sealed = [each for each in segments.all if each.state == pb.SEALED]
    others = {str(segments.name(each)) for each in sealed[:-1]}
    broker.script(Type.SUBSCRIBE, [hold] * 99)
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
        assert any("segments that they may be in were deleted" in each for each in caplog.messages)


def test_a_segment_that_ends_before_the_first_receipt_gives_all_rows_back(broker, client):
    segments = Segments(broker)
    task = task_of(client)
    with closing(task), open_segments(client, dedup=task, batching_max_messages=4) as writer:
        broker.script(Type.SEND, [silence])
        sending = threading.Thread(target=writer.send, args=(keyed(0, 30),))
        sending.start()
        broker.wait_for_command(Type.SEND)
        segments.split(segments.active[0])
        broker.script(Type.SEND, [])
        segments.publish()
        sending.join()
        writer.send(keyed(30, 10))
        writer.flush()
    assert segments.values()[0] == []
    assert_once_in_order(segments, 40)


@pytest.mark.parametrize("at", [1, 2])
def test_deduplication_is_proven_over_a_split(broker, client, at):
    segments = Segments(broker)
    task = task_of(client, required=True, may_be_replay=False)

    def split(connection, frame):
        segments.split_first()
        pass_on(connection, frame)

    broker.script(Type.PRODUCER, [*[pass_on] * at, split])
    with closing(task), open_segments(client, dedup=task, batching_max_messages=4) as writer:
        send_all(writer, keyed(0, 30))
    assert_once_in_order(segments, 30)
    assert task.deduplicates()


def test_copies_of_a_task_exclude_each_other(broker, client):
    segments = Segments(broker, 2)
    with client_of(broker, operation_timeout=0.5) as other:
        first = task_of(client)
        with closing(first), open_segments(client, dedup=first) as writer:
            send_all(writer, keyed(0, 20))
            with pytest.raises(BusyError):
                run(other, 0, 20)
            segments.split_first()
            send_all(writer, keyed(20, 20))
            with pytest.raises(BusyError):
                run(other, 0, 40)
    assert_once_in_order(segments, 40)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_copy_that_was_overtaken_writes_no_more(broker, client, is_sealed):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    first = task_of(client)
    with closing(first), open_segments(client, dedup=first, batching_max_messages=4) as writer:
        send_all(writer, keyed(20, 20))
        segments.split_first()
        with client_of(broker) as other:
            run(other, 20, 40)
        if is_sealed:
            segments.merge(*segments.active)
            segments.publish()
        with pytest.raises(SendError, match="another run of this task"):
            send_all(writer, keyed(40, 20))
    assert_once_in_order(segments, 60)


def test_a_writer_that_is_opened_again_goes_on(broker, client):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 30)
    segments.split_first()
    task = task_of(client)
    with closing(task):
        for first in (20, 40):
            with open_segments(client, dedup=task, batching_max_messages=4) as writer:
                send_all(writer, keyed(first, 20))
            segments.merge(*segments.active[:2])
            segments.publish()
            segments.split_first()
        task.finish()
    assert_once_in_order(segments, 60)
