"""The entries between two positions: what ends a range, and what of it is data loss."""

import logging

import pytest

from pulsar_spark.client import position_before
from pulsar_spark.client.reading import entry_range
from pulsar_spark.errors import AuthError, CorruptError, DataLossError, DeadlineError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import START, TOPIC, batches, flat, ids_of, numbered, singles, values_in
from tests.fake_broker import HANG, Held, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.fake_topics import NO_MESSAGE, section_of
from tests.ranges import read_range


@pytest.fixture
def ids(broker, topic):
    """30 entries in three ledgers of ten, each of one message that says its number."""
    ids = []
    for first in (0, 10, 20):
        ids += broker.publish(TOPIC, *singles(numbered(10, first)))
        topic.roll()
    return ids


def read(client, start, end, **options):
    return list(flat(read_range(client, TOPIC, start, end, poll_timeout=HANG, **options)))


def before(first):
    """The position before a ledger's first entry."""
    return MessageId(first.ledger, -1)


# ---- whole ranges


@pytest.mark.parametrize(("first", "last"), [(-1, 29), (-1, 0), (0, 1), (3, 8), (9, 19), (8, 21), (28, 29)])
def test_all_after_the_start_up_to_and_with_the_end(broker, client, ids, first, last):
    start = START if first < 0 else ids[first]
    entries = read(client, start, ids[last])
    assert ids_of(entries) == ids[first + 1 : last + 1]
    assert values_in(entries) == numbered(last - first, first + 1)
    assert broker.open_consumers == []
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


# ---- loss

LOSSES = {
    # name: ledgers trimmed, start, end, options, what is lost and what is still read
    "the end, and it was a message": ((0, 1), 3, 19, {}, (3, 19), (0, 0)),
    "the end, without anything after it": ((0, 1, 2), 3, 29, {}, (3, 29), (0, 0)),
    "the beginning, which nothing holds": ((0,), 3, 24, {"begins": -1}, (3, 10), (10, 25)),
    "all, which nothing holds": ((0, 1), 3, 15, {"begins": -1, "visible": False}, (3, 15), (0, 0)),
    "the first messages of a stream's range": ((0,), 3, 24, {"begins": 3}, (3, 10), (10, 25)),
    "the same, after the last message of a ledger": ((0, 1), 9, 24, {"begins": 9}, (9, 20), (20, 25)),
    "a part": ((0, 1), 11, 15, {"begins": 3, "visible": False, "followed": True}, (11, 15), (0, 0)),
}


def position(ids, number):
    return before(ids[0]) if number < 0 else ids[number]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("fails", [True, False])
def test_what_was_removed_is_lost(broker, client, ids, topic, caplog, name, fails):
    trimmed, first, last, options, lost, left = LOSSES[name]
    options = dict(options)
    if "begins" in options:
        options["begins"] = position(ids, options["begins"])
    for ledger in trimmed:
        topic.trim(ids[10 * ledger].ledger)
    if fails:
        with pytest.raises(DataLossError) as caught:
            read(client, ids[first], ids[last], **options)
        assert f"messages in ({ids[lost[0]]}, " in str(caught.value)
        assert caught.value.topic == str(TOPIC)
    else:
        with caplog.at_level(logging.WARNING):
            entries = read(client, ids[first], ids[last], fail_on_data_loss=False, **options)
        assert ids_of(entries) == ids[left[0] : left[1]]
        assert f"messages in ({ids[lost[0]]}, " in caplog.text


@pytest.mark.parametrize(("first", "last"), [(9, 15), (9, 29), (10, 12), (19, 29)])
@pytest.mark.parametrize("is_visible", [True, False])
def test_a_part_that_a_broker_knows_nothing_of_is_lost(broker, client, first, last, is_visible):
    """Two clusters have one name: this one has the topic, and older ledgers, if any."""
    ids = [MessageId(1000 + number // 10, number % 10) for number in range(30)]
    broker.publish(TOPIC, *singles(numbered(3)))
    with pytest.raises(DataLossError, match=f"messages in \\({ids[first]}, {ids[last]}\\] are lost"):
        read(client, ids[first], ids[last], begins=ids[0], visible=is_visible, followed=not is_visible)


def test_a_part_of_markers_and_aborted_messages_is_not_lost(broker, client, ids, topic):
    transaction = TxnId(0, 1)
    with broker.changed:
        topic.append(section_of(b"aborted"), transaction)
        topic.end(transaction, commit=False)
    end = topic.entries[-1].id
    broker.publish(TOPIC, *singles(numbered(1, 30)))
    options = {"begins": ids[0], "visible": False, "followed": True}
    assert ids_of(read(client, ids[25], end, **options)) == ids[26:]
    assert ids_of(read(client, ids[29], end, **options)) == []


# ---- a new ledger: the broker moves readers from the end of the one before


def leaving_ledger_ends(topic):
    """An action that does the usual, and then moves all cursors that stand at the end of a ledger."""

    def action(connection, frame):
        pass_on(connection, frame)
        topic.leave_ledger_ends()

    return action


@pytest.mark.parametrize("options", [{}, {"begins": 9}, {"begins": -1}, {"begins": 9, "visible": False}])
@pytest.mark.parametrize(("first", "last"), [(9, 12), (9, 29), (19, 29)])
def test_a_reader_that_begins_at_the_end_of_a_ledger_has_lost_nothing(
    broker, client, ids, topic, options, first, last
):
    """A broker moves it to the next ledger, and keeps the one before."""
    options = {name: position(ids, value) if name == "begins" else value for name, value in options.items()}
    broker.script(Type.SUBSCRIBE, [leaving_ledger_ends(topic)] * 99)
    assert ids_of(read(client, ids[first], ids[last], **options)) == ids[first + 1 : last + 1]


@pytest.mark.parametrize("begins", [None, -1])
@pytest.mark.parametrize("at", [10, 20])
def test_a_reader_that_subscribes_again_at_the_end_of_a_ledger_has_lost_nothing(
    broker, client, ids, topic, begins, at
):
    """As after a broker was killed."""
    entries = []
    begins = begins and position(ids, begins)
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1, begins=begins):
        entries += group
        if len(entries) == at:
            broker.script(Type.SUBSCRIBE, [leaving_ledger_ends(topic)] * 99)
            broker.cut()
    assert ids_of(entries) == ids


@pytest.mark.parametrize("fails", [True, False])
def test_a_ledger_that_is_removed_while_it_is_read_is_lost(broker, client, topic, fails, caplog):
    """The broker goes on with the next ledger and says nothing."""
    ids = broker.publish(TOPIC, *singles(numbered(20)))  # more than is asked for at first
    for first in (20, 25):
        topic.roll()
        ids += broker.publish(TOPIC, *singles(numbered(5, first)))
    options = {"begins": before(ids[0]), "fail_on_data_loss": fails, "window_bytes": 1}
    ranges = flat(read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, **options))
    entries = [next(ranges)]
    with broker.changed:
        topic.trim(ids[0].ledger)
        topic.trim(ids[20].ledger)
        broker.close_all(TOPIC)
    if fails:
        with pytest.raises(DataLossError, match="while it was read"):
            entries += ranges
        assert ids_of(entries) == ids[: len(entries)]
        assert len(entries) <= 20
    else:
        entries += ranges
        assert ids_of(entries) == ids[: len(entries) - 5] + ids[25:]
        assert "while it was read" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(("last", "removed"), [(15, 2), (19, 2), (29, 3)])
def test_a_range_that_is_removed_before_its_first_entry_comes_is_lost(
    broker, client, ids, topic, caplog, fails, last, removed
):
    """As by a topic that is truncated, or deleted and created again, when a reader has just begun."""

    def removes(connection, frame):
        for ledger in range(removed):
            topic.trim(ids[10 * ledger].ledger)
        pass_on(connection, frame)

    broker.script(Type.FLOW, [removes])
    if fails:
        with pytest.raises(DataLossError, match=f"messages in \\({ids[3]}, {ids[last]}\\] are lost"):
            read(client, ids[3], ids[last])
    else:
        assert read(client, ids[3], ids[last], fail_on_data_loss=False) == []
        assert caplog.text.count("are lost") == 1
        assert f"messages in ({ids[3]}, {ids[last]}] are lost" in caplog.text


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
    broker.script(Type.GET_LAST_MESSAGE_ID, [knows_no_message] * 9)
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


def releasing(held):
    """An action that names no message, and lets the broker do what it was asked for."""

    def action(connection, frame):
        knows_no_message(connection, frame)
        held.release()

    return action


# ---- readers that the broker moves, as a message TTL does


def expiring(broker, topic, position):
    """An action that does the usual, and then moves all cursors over what is stored up to a position."""

    def action(connection, frame):
        pass_on(connection, frame)
        topic.expire(position)

    return action


@pytest.mark.parametrize("last", [29, 24, 8])
@pytest.mark.parametrize("expired", [0, 7, 8, 9, 20, 24, 25, 29])
@pytest.mark.parametrize("options", [{}, {"visible": False}, {"begins": -1}])
def test_what_a_reader_is_moved_over_before_it_begins_is_read(
    broker, client, ids, topic, options, expired, last
):
    options = {name: position(ids, value) if name == "begins" else value for name, value in options.items()}
    broker.script(Type.SUBSCRIBE, [expiring(broker, topic, ids[expired])])
    assert ids_of(read(client, START, ids[last], **options)) == ids[: last + 1]


@pytest.mark.parametrize("expired", [10, 17, 18, 22, 28, 29])
@pytest.mark.parametrize("at", [1, 16, 17, 25])
def test_what_a_reader_is_moved_over_while_it_reads_is_read_in_its_place(
    broker, client, ids, topic, at, expired
):
    entries = []
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1):
        entries += group
        if len(entries) == at:
            with broker.changed:
                topic.expire(ids[expired])
    assert ids_of(entries) == ids
    assert values_in(entries) == numbered(30)


@pytest.mark.parametrize("step", [1, 3])
def test_a_reader_that_is_moved_again_and_again_reads_on(broker, client, ids, topic, step):
    entries = []
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1):
        entries += group
        with broker.changed:
            topic.expire(ids[min(len(entries) + step, 29)])
    assert ids_of(entries) == ids


@pytest.mark.parametrize("fails", [True, False])
def test_what_no_reader_is_let_read_is_lost(broker, client, ids, topic, fails, caplog):
    """Retries have a bound: a broker that moves every reader at once gives nothing."""
    broker.script(Type.SUBSCRIBE, [expiring(broker, topic, ids[11])] * 99)
    if fails:
        with pytest.raises(DataLossError, match="6 readers did not receive them"):
            read(client, ids[3], ids[-1])
    else:
        assert ids_of(read(client, ids[3], ids[-1], fail_on_data_loss=False)) == ids[12:]
        assert f"messages in ({ids[3]}, {ids[11]}] are lost" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_what_a_reader_was_moved_over_and_is_gone_is_lost(broker, client, ids, topic, fails, caplog):
    """Nothing holds it any more: a message TTL moves the subscription that should."""
    options = {"window_bytes": 1, "fail_on_data_loss": fails}
    ranges = flat(read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, **options))
    entries = [next(ranges) for _ in range(14)]
    with broker.changed:
        topic.trim(ids[0].ledger)
        topic.trim(ids[10].ledger)
    if fails:
        with pytest.raises(DataLossError, match="while it was read"):
            entries += ranges
        assert ids_of(entries) == ids[:16]
    else:
        entries += ranges
        assert ids_of(entries) == ids[:16] + ids[20:]
        assert f"messages in ({ids[15]}, {before(ids[20])}] are lost" in caplog.text


def in_transactions(broker, topic, count, each):
    """Publish entries of transactions of `each` entries; the broker stores a marker after each."""
    ids = []
    with broker.changed:
        for number in range(count):
            transaction = TxnId(0, number)
            ids += [topic.append(section_of(b"in one"), transaction).id for _ in range(each)]
            topic.end(transaction, commit=True)
    return ids


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


@pytest.mark.parametrize("expired", range(0, 30, 3))
def test_a_reader_that_is_moved_in_a_topic_full_of_markers(broker, client, topic, expired):
    ids = in_transactions(broker, topic, 20, 2)
    entries = []
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1):
        entries += group
        if len(entries) == 16:
            with broker.changed:
                topic.expire(topic.entries[expired].id)
    assert ids_of(entries) == ids


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
    assert broker.open_consumers == []
