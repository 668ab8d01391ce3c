"""SegmentWriter: rows over changes of segments, against the fake broker."""

import random
import threading
from collections import Counter

import pyarrow as pa
import pytest

from pulsar_spark.client import (
    AccessMode,
    TaskPlace,
    UserCode,
)
from pulsar_spark.errors import (
    ClosedError,
    OptionError,
    PulsarError,
    SendError,
    TerminatedError,
    UnsupportedError,
)
from pulsar_spark.protocol.writing.batcher import BatcherBuilder
from pulsar_spark.protocol.writing.routing import raw_hashes
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of, columns
from tests.client.writing.segments import Segments, assert_once_in_order, keyed, open_segments
from tests.client.writing.topic_writers import LATE
from tests.fake_broker import FakeBroker, knows_no_last_message, pass_on, refuses, silence, without_answer
from tests.fake_clients import Type
from tests.loops import a_few_of
from tests.writes import send_all


@pytest.fixture
def broker():
    with FakeBroker(has_segments=True) as broker:
        yield broker


def test_rows_go_to_the_segments_of_their_keys(broker, client):
    segments = Segments(broker, 4)
    with open_segments(client) as writer:
        send_all(writer, keyed(0, 100))
        assert sum(each.messages for each in writer.sent.values()) == 100
        assert {name.partition for name in writer.sent} <= {0, 1, 2, 3}
    assert_once_in_order(segments, 100)


def test_rows_without_a_key_take_turns(broker, client):
    segments = Segments(broker, 3)
    with open_segments(client, batching=False, place=TaskPlace(0, 0)) as writer:
        send_all(writer, columns([b"%d" % number for number in range(6)]))
    assert segments.values() == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]


def test_a_batch_has_one_bucket_and_says_its_hashes(broker, client):
    segments = Segments(broker, has_buckets=True)
    with open_segments(client) as writer:
        send_all(writer, keyed(0, 90))
    assert_once_in_order(segments, 90)
    assert len(segments.entries()) == 3
    for entry in segments.entries():
        keys = [value.partition(b":")[0] for value in entry.values]
        hashes = [int(each) & 0xFFFF for each in raw_hashes(pa.array(keys, pa.binary()))]
        found = entry.metadata.entry_hash_min, entry.metadata.entry_hash_max
        assert found == (min(hashes), max(hashes))
        assert len({(each >= 0x4000) + (each >= 0x9000) for each in hashes}) == 1


@pytest.mark.parametrize("options", [{"batching": False}, {"batcher_builder": BatcherBuilder.KEY_BASED}])
def test_entries_of_one_key_need_no_hashes(broker, client, options):
    segments = Segments(broker, has_buckets=True)
    with open_segments(client, **options) as writer:
        send_all(writer, keyed(0, 30))
    assert_once_in_order(segments, 30)
    for entry in segments.entries():
        assert not entry.metadata.HasField("entry_hash_min")
        assert {value.partition(b":")[0] for value in entry.values} == {entry.metadata.partition_key}


def test_producers_are_named_by_their_segment(broker, client):
    segments = Segments(broker, 2)
    with open_segments(client, name="me") as writer:
        send_all(writer, keyed(0, 20))
        segments.split_first()
        send_all(writer, keyed(20, 20))
    names = {entry.metadata.producer_name for entry in segments.entries()}
    assert names <= {b"me-seg-%d" % number for number in range(4)}
    assert_once_in_order(segments, 40)


@pytest.mark.parametrize("options", [{}, {"batching": False}, {"compression": pb.LZ4}])
def test_rows_that_a_sealed_segment_does_not_have_go_to_its_children(broker, client, options, caplog):
    segments = Segments(broker)
    with open_segments(client, batching_max_messages=10, **options) as writer:
        send_all(writer, keyed(0, 10))
        broker.script(Type.SEND, [pass_on, without_answer] + [silence] * 100)
        writer.send(keyed(10, 45))  # some stored without a receipt, some not stored, some not sent
        broker.wait_for_command(Type.SEND, 1 + 4 if options.get("batching", True) else 10 + 45)
        segments.split(segments.active[0])
        broker.script(Type.SEND, [])
        segments.publish()
        writer.send(keyed(55, 10))
        writer.flush()
        assert sum(each.messages for each in writer.sent.values()) == 65
    assert_once_in_order(segments, 65)
    assert not [each for each in caplog.messages if "duplicated" in each]


def test_a_segment_that_cannot_be_searched_may_have_rows_that_are_stored_again(broker, client, caplog):
    segments = Segments(broker)
    with open_segments(client, batching_max_messages=10) as writer:
        send_all(writer, keyed(0, 10))
        broker.script(Type.SEND, [without_answer])
        writer.send(keyed(10, 10))
        broker.wait_for_command(Type.SEND, 2)
        broker.script(Type.SUBSCRIBE, [refuses(pb.AuthorizationError, "no right")])
        segments.split_first()
        writer.flush()
    stored = Counter(value for values in segments.values() for value in values)
    assert sorted(stored.values()) == [1] * 10 + [2] * 10
    assert any("10 messages may be duplicated" in each for each in caplog.messages)


def test_an_old_last_message_of_a_sealed_segment_hides_no_entry(broker, client, caplog):
    segments = Segments(broker)
    with open_segments(client, batching_max_messages=10) as writer:
        broker.script(Type.SEND, [without_answer, silence])
        broker.script(Type.GET_LAST_MESSAGE_ID, [knows_no_last_message] * 9)
        writer.send(keyed(0, 20))
        broker.wait_for_command(Type.SEND, 2)
        segments.split_first()
        writer.flush()
    assert_once_in_order(segments, 20)
    assert len(segments.values()[0]) == 10
    assert not caplog.messages


def test_a_message_in_chunks_that_was_sent_again_is_stored_in_one_segment():
    """It is stored, and is sent again under another name; the segment ends before the broker drops it."""
    with (
        FakeBroker(has_segments=True, deduplicates=True, max_message_size=4000) as broker,
        client_of(broker) as client,
    ):
        segments = Segments(broker)
        with open_segments(client, batching=False, chunking=True) as writer:
            broker.script(Type.SEND, [*[without_answer] * 3, *[silence] * 3])
            writer.send(columns([b"x" * 8000]))
            broker.wait_for_command(Type.SEND, 3)
            broker.cut()
            flushing = threading.Thread(target=writer.flush)
            flushing.start()
            broker.wait_for_command(Type.SEND, 6)
            segments.split_first()
            flushing.join()
            assert [each.messages for each in writer.sent.values()] == [1]
        assert [sum(map(len, values)) for values in segments.values()] == [8000, 0, 0]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_segment_that_ends_before_it_is_opened_gets_no_rows(broker, client, is_deleted):
    segments = Segments(broker)
    ended = segments.all[0]
    with open_segments(client) as writer:
        segments.seal(ended)
        if is_deleted:
            broker.script(Type.PRODUCER, [refuses(pb.TopicNotFound, "no such topic")])
        sent = threading.Thread(target=send_all, args=(writer, keyed(0, 20)))
        sent.start()
        broker.wait_for_command(Type.PRODUCER)
        segments._add(0, 0xFFFF)
        if is_deleted:
            segments.all.remove(ended)
        segments.publish()
        sent.join()
    assert segments.topic(ended).entries == []
    assert_once_in_order(segments, 20)


def test_no_segment_in_place_of_a_sealed_one_is_an_error_after_the_send_timeout(broker, client):
    segments = Segments(broker)
    with open_segments(client, send_timeout=0.3) as writer:
        send_all(writer, keyed(0, 10))
        segments.seal(segments.all[0])
        with pytest.raises(SendError, match=r"no other segment|not acknowledged"):
            send_all(writer, keyed(10, 10))
        with pytest.raises(SendError):
            writer.flush()


def test_a_broker_that_is_away_for_longer_than_an_operation_is_awaited(broker):
    def refuse(connection, frame):
        session = frame.command.scalableTopicLookup.session_id
        connection.send(
            Type.SCALABLE_TOPIC_UPDATE, session_id=session, error=pb.ServiceNotReady, message="starting"
        )

    segments = Segments(broker)
    with client_of(broker, operation_timeout=0.3) as client, open_segments(client) as writer:
        send_all(writer, keyed(0, 10))
        broker.script(Type.SCALABLE_TOPIC_LOOKUP, [refuse] * 8)
        broker.cut()
        send_all(writer, keyed(10, 10))
    assert_once_in_order(segments, 20)


def test_segments_that_end_as_soon_as_they_are_opened_are_an_error_after_the_send_timeout(broker, client):
    segments = Segments(broker)
    sealed = []

    def end_first(connection, frame):
        sealed.append(segments.active[0])
        segments.rebucket(segments.active[0])
        segments.publish()
        pass_on(connection, frame)

    broker.script(Type.PRODUCER, [end_first] * 10_000)
    with pytest.raises(TerminatedError), open_segments(client, send_timeout=0.3) as writer:
        send_all(writer, keyed(0, 20))
    assert len(sealed) > 1


def test_a_closed_writer_waits_for_no_segment(broker, client):
    segments = Segments(broker)
    writer = open_segments(client)
    send_all(writer, keyed(0, 10))
    segments.seal(segments.all[0])
    failed = []

    def send():
        try:
            send_all(writer, keyed(10, 10))
        except PulsarError as error:
            failed.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    broker.wait_for_command(Type.PRODUCER, 2)
    writer.close()
    thread.join()
    assert isinstance(failed[0], ClosedError | SendError)


def test_a_missing_topic_is_created_by_the_brokers_policy(broker, client):
    Segments(broker)
    with open_segments(client):
        assert [each.create_if_missing for each in broker.seen(Type.SCALABLE_TOPIC_LOOKUP)] == [True]


def test_a_row_does_not_name_its_segment(broker, client):
    Segments(broker)
    with open_segments(client) as writer, pytest.raises(OptionError, match="__partition"):
        writer.send(columns([b"1"], partition=pa.array([0], pa.int32())))


def test_rows_have_no_ids_of_their_own(broker, client):
    Segments(broker)
    with open_segments(client) as writer, pytest.raises(OptionError, match="__sequenceId"):
        writer.send(columns([b"1"], sequence_id=pa.array([7])))


@pytest.mark.parametrize(
    "given",
    [
        {"initial_sequence_id": 3},
        {"access_mode": AccessMode.EXCLUSIVE},
        {"code": UserCode(router=lambda keys, count: [0] * len(keys))},
    ],
)
def test_options_that_a_change_of_segments_would_break_are_refused(broker, client, given):
    Segments(broker)
    with pytest.raises(UnsupportedError, match="cannot be used with a scalable topic"):
        open_segments(client, **given)
    assert broker.seen(Type.SCALABLE_TOPIC_LOOKUP) == []


def play(seed):
    """A random history of sends, lost receipts and changes; each row must be stored once, in order."""
    draw = random.Random(seed)
    deduplicates = draw.random() < 0.5
    options = {
        "batching": draw.random() < 0.7,
        "batching_max_messages": draw.choice([1, 3, 20, 1000]),
        "batcher_builder": draw.choice([*BatcherBuilder, BatcherBuilder.DEFAULT]),
        "compression": draw.choice([pb.NONE, pb.LZ4]),
        "max_pending_messages": draw.choice([3, 50, 10_000]),
        "name": draw.choice([None, "me"]),
        "delay": draw.choice([0.001, LATE]),
    }
    with FakeBroker(has_segments=True, deduplicates=deduplicates) as broker, client_of(broker) as client:
        segments = Segments(broker, draw.randint(1, 3), has_buckets=draw.random() < 0.5)
        written = 0
        with open_segments(client, **options) as writer:
            for _ in range(draw.randint(1, 5)):
                change = threading.Thread(target=_change, args=(broker, segments, draw.randrange(1 << 30)))
                change.start()
                for _ in range(draw.randint(1, 3)):
                    count = draw.randint(0, 30)
                    writer.send(keyed(written, count))
                    written += count
                change.join()
                if draw.random() < 0.3:
                    writer.flush()
                if deduplicates and draw.random() < 0.2:
                    broker.cut()
            writer.flush()
            assert sum(each.messages for each in writer.sent.values()) == written
        assert_once_in_order(segments, written)


def _change(broker, segments, seed):
    """Changes segments; perhaps all of them, after the receipts of the last entries were lost."""
    draw = random.Random(seed)
    loses = draw.random() < 0.6
    if loses:
        passed, stored = draw.randint(0, 9), draw.randint(0, 9)
        broker.script(Type.SEND, [*[pass_on] * passed, *[without_answer] * stored, *[silence] * 10_000])
    segments.let_others_write(draw)
    before = set(map(str, map(segments.name, segments.active)))
    segments.change(draw)
    while loses and before & set(map(str, map(segments.name, segments.active))):
        left = [each for each in segments.active if str(segments.name(each)) in before]
        segments.split(left[0])
    broker.script(Type.SEND, [])
    segments.publish()


@pytest.mark.parametrize("seed", a_few_of(30, 8))
def test_random_histories_store_each_row_once_in_order(seed, caplog):
    play(seed)
    assert not [each for each in caplog.messages if "duplicated" in each]


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_random_histories(part):
    for seed in range(1000 + 1000 * part, 2000 + 1000 * part):
        play(seed)
