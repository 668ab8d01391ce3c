"""Producer: all that is sent is stored, in order, over lost connections."""

import threading

import pytest

from pulsar_spark.client import retry_count
from pulsar_spark.errors import QueueFullError, SendError
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages, encode_singles
from tests.client.clients import (
    START,
    TOPIC,
    client_of,
    columns,
    flat,
    hurry,
    numbered,
    values_in,
    wait_until,
)
from tests.client.writing.producers import open_producer, send, send_batch, sent_ids, store
from tests.fake_broker import (
    HANG,
    FakeBroker,
    Held,
    answer_and_cut,
    cut,
    lose_answer,
    pass_on,
    refuses,
    silence,
    without_answer,
)
from tests.fake_clients import Type
from tests.loops import for_each
from tests.ranges import read_range

# ---- sending


def test_what_is_sent_is_stored_in_order(broker, client, topic):
    receipts = []
    producer = open_producer(client, on_receipt=lambda entry, place: receipts.append(entry.sequence_id))
    send(producer, numbered(5))
    send_batch(producer, numbered(4, 5))
    store(producer, numbered(1, 9))
    assert topic.values == numbered(10)
    assert producer.pending == []
    assert producer.sent.messages == 10
    ledger = topic.entries[0].id.ledger
    assert (producer.sent.first_id, producer.sent.last_id) == (MessageId(ledger, 0), MessageId(ledger, 6))
    assert producer.sent.bytes == sum(len(entry.section) for entry in topic.entries)
    assert receipts == [0, 1, 2, 3, 4, 5, 9]
    assert [one.sequence_id for one in broker.seen(Type.SEND)] == receipts
    assert [one.highest_sequence_id for one in broker.seen(Type.SEND)] == [0, 0, 0, 0, 0, 8, 0]
    producer.close()
    assert broker.open_producers == []


def test_entries_say_who_sent_them(broker, client, topic):
    producer = open_producer(client, name="me", properties=(("k", "v"),))
    store(producer, [b"x"], closes=True)
    metadata = topic.entries[0].metadata
    assert (metadata.producer_name, metadata.sequence_id) == (b"me", 0)
    assert metadata.publish_time > 1_600_000_000_000
    (asked,) = broker.seen(Type.PRODUCER)
    assert (asked.producer_name, asked.user_provided_producer_name) == ("me", True)
    assert [(one.key, one.value) for one in asked.metadata] == [(b"k", b"v")]


def test_the_broker_chooses_a_name_where_none_is_given(broker, client, topic):
    producer = open_producer(client)
    for value in (b"x", b"y"):
        store(producer, [value])
        broker.cut()
    producer.close()
    first, second = broker.seen(Type.PRODUCER)
    assert not first.user_provided_producer_name
    names = [entry.metadata.producer_name.decode() for entry in topic.entries]
    assert names == [second.producer_name] * 2
    assert names[0]


# ---- lost connections

# What happens to the 4th of 10 entries -> what a broker has stored that does not deduplicate.
LOSSES = {
    "before it is stored": (cut, [0, 1, 2, *range(3, 10)]),
    "before its receipt": (lose_answer, [0, 1, 2, 3, *range(3, 10)]),
    "after its receipt": (answer_and_cut, [0, 1, 2, 3, *range(4, 10)]),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("deduplicates", [False, True])
def test_after_a_loss_what_is_pending_goes_out_again_in_order(loss, deduplicates):
    action, stored = LOSSES[loss]
    with FakeBroker(deduplicates=deduplicates) as broker, client_of(broker) as client:
        broker.script(Type.SEND, [pass_on] * 3 + [action])
        producer = open_producer(client)
        store(producer, numbered(10), closes=True)
        expected = sorted(set(stored)) if deduplicates else stored
        assert broker.topics[str(TOPIC)].values == [b"%d" % number for number in expected]
        assert producer.sent.messages == 10
        first, second = sent_ids(broker)
        begin = 4 if action is answer_and_cut else 3
        assert first == list(range(4))
        assert second == list(range(begin, 10))
        assert [one.epoch for one in broker.seen(Type.PRODUCER)] == [0, 1]


def test_what_is_pending_goes_out_before_anything_new(broker, client, topic):
    broker.script(Type.SEND, [silence] * 3)
    producer = open_producer(client)
    send(producer, numbered(3))
    broker.wait_for_command(Type.SEND, 3)
    broker.cut()
    store(producer, numbered(3, 3), closes=True)
    assert topic.values == numbered(6)
    assert sent_ids(broker)[1] == list(range(6))


@pytest.mark.parametrize("again", [1, 3])
def test_a_connection_that_is_lost_again_and_again(broker, client, topic, again):
    broker.script(Type.SEND, ([pass_on, cut] * again))
    broker.script(Type.PRODUCER, [pass_on, refuses(pb.ServiceNotReady), cut])
    broker.script(Type.LOOKUP, [pass_on, refuses(pb.MetadataError)])
    producer = open_producer(client)
    store(producer, numbered(10), closes=True)
    assert topic.values == numbered(10)


def test_a_producer_that_the_broker_closes_is_opened_again_under_another_id(broker, client, topic):
    retries = retry_count()
    producer = open_producer(client)
    store(producer, numbered(2))
    assert retry_count() == retries, "nothing was repeated"
    held = Held(broker)
    broker.script(Type.SEND, [held])
    send(producer, numbered(1, 2))
    broker.wait_for(lambda: held.count)
    broker.close_all(TOPIC)
    held.release()  # to a producer that was closed: nothing is stored, and nothing is answered
    store(producer, numbered(2, 3), closes=True)
    assert topic.values == numbered(5)
    assert len(broker.seen(Type.CONNECT)) == 2  # one reads, one writes
    assert len({one.producer_id for one in broker.seen(Type.PRODUCER)}) == 2
    assert retry_count() == retries + 1


def test_mending_opens_a_lost_producer_without_a_call_that_sends(broker, client, topic):
    broker.script(Type.SEND, [silence] * 2)
    producer = open_producer(client)
    producer.reopen_lost()
    assert len(broker.seen(Type.PRODUCER)) == 1
    send(producer, numbered(2))
    broker.wait_for_command(Type.SEND, 2)
    broker.cut()
    wait_until(lambda: producer.reopen_lost() or len(broker.seen(Type.PRODUCER)) == 2)
    broker.wait_for(lambda: topic.values == numbered(2))
    store(producer, closes=True)


def test_an_idle_producer_that_is_lost_is_opened_when_it_sends(broker, client, topic):
    producer = open_producer(client)
    store(producer, numbered(1))
    broker.cut()
    producer.reopen_lost()
    assert len(broker.seen(Type.PRODUCER)) == 1
    store(producer, numbered(1, 1), closes=True)
    assert topic.values == numbered(2)


# ---- receipts


def test_a_receipt_that_comes_twice_is_ignored(broker, client, topic):
    def answers_twice(connection, frame):
        connection.handle(frame)
        ids = {"producer_id": frame.command.send.producer_id, "sequence_id": frame.command.send.sequence_id}
        connection.send(Type.SEND_RECEIPT, message_id=MessageId(9, 9), **ids)

    broker.script(Type.SEND, [answers_twice] * 4)
    producer = open_producer(client)
    store(producer, numbered(6), closes=True)
    assert producer.sent.messages == 6
    assert len(broker.seen(Type.PRODUCER)) == 1
    assert topic.values == numbered(6)


def test_a_receipt_that_is_missing_opens_the_connection_again():
    """A newer one came: what is pending is sent again from the oldest on."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.script(Type.SEND, [pass_on, without_answer])
        producer = open_producer(client)
        store(producer, numbered(5), closes=True)
        assert broker.topics[str(TOPIC)].values == numbered(5)
        assert sent_ids(broker)[-1] == [1, 2, 3, 4]
        assert len(broker.seen(Type.CONNECT)) == 3  # one reads, and two write
        assert producer.sent.messages == 5


def test_duplicates_count_as_sent_but_have_no_place():
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(TOPIC).stored_ids["me"] = 4
        producer = open_producer(client, name="me")
        assert producer.last_sequence_id == 4
        producer.send_singles(
            [
                one._replace(sequence_ids=(number, number))
                for number, one in enumerate(encode_singles(columns(numbered(7))))
            ]
        )
        store(producer, closes=True)
        topic = broker.topics[str(TOPIC)]
        assert topic.values == [b"5", b"6"]
        assert producer.sent.messages == 7
        assert producer.sent.first_id == topic.entries[0].id


# ---- room


def test_no_room_is_an_error_where_the_caller_does_not_wait(broker, client, topic):
    held = Held(broker)
    broker.script(Type.SEND, [held] * 9)
    producer = open_producer(client, max_pending_messages=3, block_if_queue_full=False)
    send(producer, numbered(3))
    with pytest.raises(QueueFullError) as caught:
        send(producer, numbered(1, 3))
    assert caught.value.topic == str(TOPIC)
    broker.wait_for(lambda: held.count == 3)
    held.release()
    producer.flush()
    assert topic.values == numbered(3)
    producer.close()


# How many of 10 messages of 100 bytes go out before a receipt comes: options, producers that share them.
ROOMS = [
    ({"max_pending_messages": 4}, 1, 4),
    ({"max_pending_messages": 4, "max_pending_messages_across_partitions": 9}, 3, 3),
    ({"max_pending_messages": 4, "max_pending_messages_across_partitions": 2}, 3, 1),
    ({"memory_limit": 300}, 1, 2),
    ({"memory_limit": 10}, 1, 1),
]


@pytest.mark.parametrize(("options", "partitions", "room"), ROOMS)
def test_a_send_waits_for_room(broker, client, topic, options, partitions, room):
    held, values = Held(broker), [b"%03d" % number + b"." * 97 for number in range(10)]
    broker.script(Type.SEND, [held] * 10)
    producer = open_producer(client, partitions, **options)
    thread = threading.Thread(target=send, args=(producer, values))
    thread.start()
    for count in range(room, 11, room):
        broker.wait_for(lambda count=count: held.count >= count)
        client.partitions(TOPIC)  # what else had room would have come
        assert held.count == count
        held.release()
    broker.wait_for(lambda: held.count == 10)
    held.release()
    thread.join(HANG)
    producer.flush()
    assert topic.values == values
    producer.close()


@pytest.mark.parametrize(
    ("options", "partitions", "most"),
    [
        ({"max_pending_messages": 100}, 1, 100),
        ({"max_pending_messages": 100, "batching_max_messages": 0}, 1, 100),
        ({"max_pending_messages_across_partitions": 100}, 4, 25),
        ({"max_pending_messages": 100, "batching_max_messages": 30}, 1, 100),
        ({"memory_limit": 20_000}, 1, 184),
    ],
)
def test_a_batch_is_no_larger_than_the_pending_window(broker, client, topic, options, partitions, most):
    """Else the window is no limit, because a batch that is larger than it is sent alone."""
    producer = open_producer(client, partitions, **options)
    pending, sizes = [], []

    def look(connection, frame):
        pending.append(sum(entry.messages for entry in producer.pending))
        sizes.append(sum(entry.size for entry in producer.pending))
        connection.handle(frame)

    broker.script(Type.SEND, [look] * 1000)
    encoded = encode_batch_messages(columns([b"." * 97] * 1000))
    producer.send_rows(encoded.buffer, encoded.offsets)
    producer.send_open_batch()
    store(producer, closes=True)
    assert len(topic.values) == 1000
    assert most / 2 < max(pending) <= most
    assert max(sizes) <= options.get("memory_limit", 1 << 26)


# ---- chunks

LARGE = bytes(range(256)) * 100


def read_all(client, topic):
    return values_in(flat(read_range(client, TOPIC, START, topic.end_position, poll_timeout=HANG)))


# What happens to which of three chunks -> how many messages of that value are stored, and how many attempts.
INTERRUPTIONS = [
    (0, cut, 1, 1),
    (0, lose_answer, 1, 2),
    (0, answer_and_cut, 1, 2),
    (1, cut, 1, 2),
    (1, lose_answer, 1, 2),
    (1, answer_and_cut, 1, 2),
    (2, cut, 1, 2),
    (2, lose_answer, 2, 2),
    (2, answer_and_cut, 1, 1),
]


@for_each("deduplicates", [False, True])
@for_each(("at", "action", "stored", "attempts"), INTERRUPTIONS)
def test_a_message_in_chunks_that_is_interrupted_begins_again_as_another(
    deduplicates, at, action, stored, attempts
):
    with (
        FakeBroker(deduplicates=deduplicates, max_message_size=10_000) as broker,
        client_of(broker) as client,
    ):
        topic = broker.create(TOPIC)
        broker.script(Type.SEND, [pass_on] * at + [action])
        producer = open_producer(client, batching=False, chunking=True)
        store(producer, [LARGE, b"small"], closes=True)
        assert producer.sent.messages == 2
        assert read_all(client, topic) == [LARGE] * (1 if deduplicates else stored) + [b"small"]
        assert len({entry.metadata.uuid for entry in topic.entries if entry.metadata.uuid}) == attempts


def test_a_message_whose_end_the_broker_would_drop_is_an_error():
    """A broker that restarts takes the first chunk of a message for all of it."""
    with FakeBroker(deduplicates=True, max_message_size=10_000) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        producer = open_producer(client, name="me", batching=False, chunking=True)
        store(producer, [b"small"])

        def restart(connection, frame):
            connection.cut()
            topic.stored_ids["me"] = 1

        broker.script(Type.SEND, [pass_on, restart])
        hurry(client, 0.5)
        send(producer, [LARGE])
        with pytest.raises(SendError, match="while a chunked message was sent"):
            producer.flush()
        producer.close()


# ---- a broker that is slow


def test_the_send_timeout_runs_from_the_last_receipt(broker, client, topic):
    """All of it takes longer than the timeout."""
    held = Held(broker)
    broker.script(Type.SEND, [held] * 8)
    producer = open_producer(client, send_timeout=2.0)
    send(producer, numbered(8))
    broker.wait_for(lambda: held.count == 8)
    thread = threading.Thread(target=producer.flush)
    thread.start()
    for _ in range(8):
        thread.join(0.35)
        held.release(1)
    thread.join(HANG)
    producer.check()
    assert producer.sent.messages == 8
    producer.close()
