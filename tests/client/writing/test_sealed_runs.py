"""DedupTask over the segments of a scalable topic, against the fake broker."""

import threading
from contextlib import closing

import pytest

from pulsar_spark.client import (
    BatcherBuilder,
    Decryptor,
    DedupTask,
    Encryptor,
    KeyFolder,
    TopicWriter,
    UserCode,
)
from pulsar_spark.errors import BusyError, DuplicatesError, SendError
from pulsar_spark.ids import TopicName
from tests.client.clients import client_of, columns, producing
from tests.client.test_encryption import put_key
from tests.client.writing import segment_tasks
from tests.client.writing.dedup_tasks import NAME, SECRET
from tests.client.writing.segment_tasks import BATCH, begin, run, task_of
from tests.client.writing.segments import Segments, assert_once_in_order, keyed, open_segments
from tests.client.writing.told import new_origin
from tests.fake_broker import pass_on, silence, without_answer
from tests.fake_clients import Type
from tests.fake_topics import section_of
from tests.protocol.test_segments import segment
from tests.writes import send_all

broker = segment_tasks.broker


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


def test_rows_before_many_entries_of_others_are_found(broker, client, caplog):
    segments = Segments(broker)
    begin(client, 0, 30)
    for _ in range(200):
        broker.publish(segments.name(segments.all[0]), section_of(b"other"))
    segments.split_first()
    assert run(client, 0, 50) == 0
    del segments.topic(segments.all[0]).entries[-200:]
    assert_once_in_order(segments, 50)
    assert not caplog.messages


def test_encrypted_rows_are_found(broker, client, tmp_path, caplog):
    put_key(tmp_path, "own")
    keys, segments = KeyFolder(tmp_path), Segments(broker)
    code, sent = UserCode(encryptor=Encryptor(keys, ["own"])), []
    for count in (20, 50):
        task = task_of(client, decryptor=Decryptor(keys))
        with closing(task), open_segments(client, dedup=task, code=code) as writer:
            send_all(writer, keyed(0, count))
            sent.append(sum(each.messages for each in writer.sent.values()))
        segments.split_first()
    assert sent == [20, 30]
    assert not caplog.messages


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


def test_a_stage_that_spark_repeats_after_a_split_is_noticed(broker, client):
    segments = Segments(broker)
    run(client, 0, 20, BATCH - 1)
    begin(client, 20, 20)
    segments.split_first()
    run(client, 20, 30, task=task_of(client, may_be_replay=False))
    assert_once_in_order(segments, 50)


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
