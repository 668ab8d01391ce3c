"""The entries between two positions: what ends a range, corrupt entries, compaction and markers."""

import pytest

from pulsar_spark.client.reading import entry_range
from pulsar_spark.client.reading.entry_range import position_before
from pulsar_spark.errors import AuthError, CorruptError, DeadlineError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import START, TOPIC, batches, flat, ids_of, numbered, singles, values_in
from tests.client.reading import entry_ranges
from tests.client.reading.entry_ranges import before, in_transactions, read
from tests.fake_broker import HANG, Held, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.fake_topics import NO_MESSAGE, section_of
from tests.ranges import read_range

ids = entry_ranges.ids


# ---- whole ranges


@pytest.mark.parametrize(("first", "last"), [(-1, 29), (-1, 0), (0, 1), (3, 8), (9, 19), (8, 21), (28, 29)])
def test_all_after_the_start_up_to_and_with_the_end(broker, client, ids, first, last):
    start = START if first < 0 else ids[first]
    entries = read(client, start, ids[last])
    assert ids_of(entries) == ids[first + 1 : last + 1]
    assert values_in(entries) == numbered(last - first, first + 1)
    broker.wait_for(lambda: not broker.open_consumers)
    assert broker.topics[str(TOPIC)].cursors == {}


def test_within_a_ledger_the_broker_is_asked_for_no_entry_after_the_end(broker, client, ids):
    read(client, before(ids[10]), ids[16])
    (mine,) = broker.consumers
    assert mine.sent == ids[10:17]
    assert mine.granted == 7


def test_a_range_that_is_empty_asks_nobody(broker, client, ids):
    assert read(client, ids[5], ids[5]) == []
    assert broker.seen(Type.SUBSCRIBE) == []


@pytest.mark.parametrize(
    ("first", "last", "asked"), [(3, 4, 0), (3, 9, 0), (9, 10, 1), (8, 12, 1), (19, 29, 1)]
)
def test_where_reading_begins_is_asked_unless_the_next_entry_shows_it(
    client, broker, ids, first, last, asked
):
    assert ids_of(read(client, ids[first], ids[last])) == ids[first + 1 : last + 1]
    assert bool(broker.seen(Type.GET_LAST_MESSAGE_ID)) is bool(asked)


def test_entries_of_batches_are_whole(broker, client):
    ids = broker.publish(TOPIC, *batches(numbered(100), 10))
    entries = read(client, ids[1], MessageId(ids[4].ledger, ids[4].entry, 3))
    assert values_in(entries) == numbered(30, 20)


@pytest.mark.parametrize("at", [1, 7, 12, 29])
def test_connections_that_are_cut_change_nothing(broker, client, ids, at):
    entries = []
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1):
        entries += group
        if len(entries) == at:
            broker.cut()
    assert ids_of(entries) == ids
    assert values_in(entries) == numbered(30)


def test_nothing_comes_in_time(broker, client, ids):
    broker.script(Type.FLOW, [silence] * 99)
    with pytest.raises(DeadlineError):
        list(read_range(client, TOPIC, START, ids[0], poll_timeout=0.5))
    asked = broker.seen(Type.GET_LAST_MESSAGE_ID)
    assert len(asked) >= 2  # where reading begins, and after 0.2 s whether anything is left


# ---- ends that never come


def test_a_range_that_ends_with_what_is_never_delivered(broker, client, ids, topic):
    """Aborted messages and markers: the broker acknowledges them as it reads over them."""
    transaction = TxnId(0, 1)
    with broker.changed:
        entry = topic.append(section_of(b"aborted"), transaction)
        topic.end(transaction, commit=False)
        marker = topic.entries[-1].id
    for end in (entry.id, marker, MessageId(marker.ledger, marker.entry + 5)):
        entries = read(client, ids[24], end, visible=False)
        assert ids_of(entries) == ids[25:]


def test_the_last_message_before_an_open_transaction_ends_a_range(broker, client, ids, topic):
    with broker.changed:
        entry = topic.append(section_of(b"open"), TxnId(0, 1))
    assert ids_of(read(client, ids[27], entry.id, visible=False)) == ids[28:]


def test_questions_about_the_end_survive_a_lost_connection(broker, client, ids, topic):
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)
        marker = topic.entries[-1].id
    broker.script(Type.ACK, [cut])
    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, lose_answer, refuses(pb.MetadataError)])
    assert ids_of(read(client, ids[27], marker, visible=False)) == ids[28:]


def test_a_question_about_the_end_that_is_refused(broker, client, ids, topic):
    with broker.changed:
        topic.end(TxnId(0, 1), commit=True)
        marker = topic.entries[-1].id
    broker.script(Type.ACK, [refuses(pb.AuthorizationError, "no right")])
    with pytest.raises(AuthError, match="no right"):
        read(client, ids[27], marker, visible=False)


def test_an_end_beyond_its_ledger_is_passed_by_what_comes_next(broker, client, ids):
    beyond = MessageId(ids[9].ledger, 55)
    assert ids_of(read(client, ids[6], beyond, visible=False)) == ids[7:10]


# ---- corrupt entries, and what compaction left


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("index", [-1, 0, 3])
def test_a_corrupt_entry_at_the_end(broker, client, topic, index, fails, caplog):
    """Also where the range ends within it, at a message of its batch."""
    bad = bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    ids = broker.publish(TOPIC, *singles(numbered(5)), bytes(bad))
    end = MessageId(ids[5].ledger, ids[5].entry, index)
    if fails:
        with pytest.raises(CorruptError):
            read(client, START, end)
    else:
        assert values_in(read(client, START, end, fail_on_data_loss=False)) == numbered(5)
        assert "an entry that cannot be decoded is left out" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_a_corrupt_entry(broker, client, topic, fails, caplog):
    bad = bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    ids = broker.publish(TOPIC, *singles(numbered(5)), bytes(bad), *singles(numbered(5, 5)))
    if fails:
        ranges = flat(read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG))
        assert values_in([next(ranges) for _ in range(5)]) == numbered(5)
        with pytest.raises(CorruptError) as caught:
            next(ranges)
        assert caught.value.message_id == str(ids[5])
    else:
        assert values_in(read(client, START, ids[-1], fail_on_data_loss=False)) == numbered(10)
        assert (
            f"left out: [PULSAR_CORRUPT] an entry's checksum does not match its bytes; topic {TOPIC}"
            in caplog.text
        )
        assert "failOnDataLoss" not in caplog.text, "it is set"


def test_corrupt_entries_do_not_have_all_that_is_in_flight_sent_again(broker, client, topic):
    """Whoever may produce can write metadata that the broker takes and protobuf refuses."""
    bad = bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    sections = [each for number in range(100) for each in (*singles(numbered(20, 20 * number)), bytes(bad))]
    ids = broker.publish(TOPIC, *sections)
    assert values_in(read(client, START, ids[-1], fail_on_data_loss=False)) == numbered(2000)
    assert sum(len(each.sent) for each in broker.consumers) < 5 * len(ids)


@pytest.mark.parametrize("claimed", [0, -1])
def test_batches_of_no_messages_do_not_have_others_sent_again(broker, client, claimed):
    """Whoever may produce can write many, of a few bytes each."""
    strange = section_of(b"", num_messages_in_batch=claimed)
    sections = [each for number in range(50) for each in (*singles(numbered(3, 3 * number)), strange)]
    ids = broker.publish(TOPIC, *sections)
    assert ids_of(read(client, START, ids[-1])) == ids
    (mine,) = broker.consumers
    assert mine.sent == ids


@pytest.mark.parametrize("claimed", [(-(1 << 31),), (-(1 << 30), -(1 << 30)), (1 - (1 << 31), -9)])
def test_entries_that_overflow_the_permits_do_not_end_the_reading(broker, client, claimed):
    """A broker takes an entry's number of messages out of the permits, in 32 bits."""
    strange = [section_of(b"", num_messages_in_batch=count) for count in claimed]
    sections = [*singles(numbered(3)), *strange, *singles(numbered(2000, 3))]
    ids = broker.publish(TOPIC, *sections)
    assert ids_of(read(client, START, ids[-1])) == ids
    assert sum(len(each.sent) for each in broker.consumers) < 3 * len(ids)


def test_a_corrupt_entry_after_the_end_is_no_concern(broker, client, topic):
    """Where the end is beyond its ledger, what follows is asked for, too."""
    bad = bytearray(section_of(b"bad"))
    bad[-1] ^= 1
    ids = broker.publish(TOPIC, *singles(numbered(5)))
    topic.roll()
    broker.publish(TOPIC, bytes(bad))
    assert ids_of(read(client, START, MessageId(ids[4].ledger, 99), visible=False)) == ids


def test_where_compaction_ran_what_is_missing_is_no_loss(broker, client, ids, topic):
    topic.trim(ids[0].ledger)
    entries = read(client, START, ids[14], begins=before(ids[0]), read_compacted=True)
    assert ids_of(entries) == ids[10:15]
    assert broker.seen(Type.SUBSCRIBE)[0].read_compacted


def knows_no_message(connection, frame):
    """As a broker answers a reader of what compaction left, before it has opened that."""
    connection.send(
        Type.GET_LAST_MESSAGE_ID_RESPONSE,
        request_id=frame.command.getLastMessageId.request_id,
        last_message_id=NO_MESSAGE,
        consumer_mark_delete_position=NO_MESSAGE,
    )


def test_what_compaction_left_is_not_taken_for_nothing_when_it_is_late(broker, client, ids):
    broker.script(Type.FLOW, [silence])
    broker.script(Type.GET_LAST_MESSAGE_ID, [knows_no_message])
    assert ids_of(read(client, START, ids[14], read_compacted=True)) == ids[:15]


def test_a_second_reader_waits_until_the_broker_has_opened_what_compaction_left(broker, client, ids):
    held = Held(broker)

    def opens(connection, frame):
        knows_no_message(connection, frame)
        held.release()

    broker.script(Type.FLOW, [silence, held])
    broker.script(Type.GET_LAST_MESSAGE_ID, [knows_no_message] * 3 + [opens])
    assert ids_of(read(client, START, ids[14], read_compacted=True)) == ids[:15]


def test_of_a_topic_of_which_compaction_left_nothing_nothing_is_read(broker, client, ids, monkeypatch):
    """All keys were deleted. Nothing is left for any reader, after the time that the broker gets."""
    monkeypatch.setattr(entry_range, "OPENS_COMPACTED_WITHIN", 0.5)
    broker.script(Type.FLOW, [silence] * 2)
    broker.script(Type.GET_LAST_MESSAGE_ID, [knows_no_message] * 99)
    assert read(client, START, ids[14], read_compacted=True) == []


def test_a_last_message_that_is_old_ends_no_range_of_a_segment(broker, client):
    """Brokers with transactions repeat their first answer."""
    segment = TopicName("topic", "public", "default", "topic").segment(0, 0xFFFF, 0)
    broker.create(segment)
    ids = broker.publish(segment, *singles(numbered(30)))
    held = Held(broker)
    broker.script(Type.FLOW, [held])
    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, knows_no_message, releasing(held)])
    assert ids_of(flat(read_range(client, segment, START, ids[-1], poll_timeout=HANG))) == ids


@pytest.mark.parametrize("visible", [True, False])
def test_a_terminated_topic_for_which_a_slow_broker_reports_no_message_is_read(
    broker, client, ids, topic, visible
):
    broker.terminate(topic)
    held = Held(broker)
    broker.script(Type.FLOW, [held])

    def is_last(connection, frame):
        pass_on(connection, frame)
        held.release()

    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, pass_on, pass_on, is_last])
    assert ids_of(read(client, START, ids[-1], visible=visible)) == ids


def releasing(held):
    """An action that names no message, and lets the broker do what it was asked for."""

    def action(connection, frame):
        knows_no_message(connection, frame)
        held.release()

    return action


# ---- markers of transactions


def test_gaps_of_markers_cost_a_question_for_what_came_together_and_no_second_reader(broker, client, topic):
    ids = in_transactions(broker, topic, 20, 2)
    assert ids_of(read(client, START, ids[-1])) == ids
    assert len(broker.seen(Type.SUBSCRIBE)) == 1
    assert len(broker.seen(Type.GET_LAST_MESSAGE_ID)) <= 4


def test_a_marker_at_the_beginning_is_told_from_a_message_by_a_second_reader(broker, client, topic):
    ids = in_transactions(broker, topic, 5, 2)
    assert ids_of(read(client, ids[1], ids[-1])) == ids[2:]
    assert len(broker.seen(Type.SUBSCRIBE)) == 2
    second = broker.consumers[1]
    assert second.sent == [ids[2]]


def test_entries_that_follow_one_another_cost_no_question(broker, client, topic):
    ids = broker.publish(TOPIC, *singles(numbered(500)))
    assert ids_of(read(client, START, ids[-1], window_bytes=1000)) == ids
    assert len(broker.seen(Type.GET_LAST_MESSAGE_ID)) == 1


# ---- the entry before a position


def test_the_position_before_another(broker, client, ids, topic):
    def found(position):
        return position_before(client, TOPIC, position)

    assert found(ids[5]) == ids[4]
    assert found(ids[10]) == ids[9]
    assert found(ids[0]) == before(ids[0])
    assert found(MessageId(ids[9].ledger, 77)) == ids[9]
    topic.trim(ids[0].ledger)
    assert found(ids[5]) == before(ids[10])
    broker.wait_for(lambda: not broker.open_consumers)
