"""Producer: what cannot be stored once and in order is an error, for all that is pending."""

import time

import pytest

from pulsar_spark.client.reading import backward_search
from pulsar_spark.client.reading.backward_search import find_stored
from pulsar_spark.client.writing import producer as producer_module
from pulsar_spark.errors import AuthError, CryptoError, SendError, TopicNotFoundError
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.pauses import Reopening
from pulsar_spark.protocol.writing.packer import Packer
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages, encode_singles
from tests.client.clients import TOPIC, client_of, columns, hurry, numbered
from tests.client.writing.producers import open_producer, send, send_batch, sent_ids, store
from tests.fake_broker import (
    HANG,
    FakeBroker,
    accept_and_close,
    cut,
    lose_answer,
    pass_on,
    refuses,
    silence,
    without_answer,
)
from tests.fake_clients import Type
from tests.fake_topics import section_of


@pytest.fixture(autouse=True)
def hurry_searches(monkeypatch):
    """The fake broker stores an entry before it is acknowledged."""
    monkeypatch.setattr(backward_search, "_SETTLING", 0.05)


# ---- what fails


def test_without_receipts_all_that_is_pending_fails_together(broker, client, topic):
    broker.script(Type.SEND, [silence] * 9)
    producer = open_producer(client, send_timeout=0.2)
    send(producer, numbered(3))
    with pytest.raises(SendError, match=r"3 messages were not acknowledged within 0\.2 s") as caught:
        producer.flush()
    assert caught.value.topic == str(TOPIC)
    for call in (producer.flush, producer.check, lambda: send(producer, numbered(1))):
        with pytest.raises(SendError):
            call()
    assert len(producer.pending) == 3
    producer.close()


def test_a_broker_that_stays_away_is_the_reason_for_the_timeout(broker, client, topic):
    producer = open_producer(client, send_timeout=0.5)
    broker.script(Type.SEND, [cut])
    broker.script(Type.CONNECT, [cut] * 999)
    send(producer, numbered(2))
    with pytest.raises(SendError, match=r"2 messages were .* within 0\.5 s: .* closed the connection"):
        producer.flush()
    producer.close()


@pytest.mark.parametrize("kind", [Type.CONNECT, Type.LOOKUP, Type.PRODUCER])
def test_a_broker_that_does_not_answer_is_asked_again_within_the_send_timeout(client, broker, topic, kind):
    """As after a restart: it accepts the request, and does not answer until the topic is loaded."""
    producer = open_producer(client, send_timeout=HANG)
    hurry(client, 0.3)
    broker.script(Type.SEND, [cut])
    broker.script(kind, [silence] * 2)
    store(producer, numbered(4), closes=True)
    assert topic.values == numbered(4)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pb.TopicTerminatedError, SendError),
        (pb.AuthorizationError, AuthError),
        (pb.TopicNotFound, TopicNotFoundError),
    ],
)
def test_what_the_broker_refuses_for_good_fails(broker, client, topic, error, kind):
    broker.script(Type.SEND, [pass_on, refuses(error, "no")])
    producer = open_producer(client)
    send(producer, numbered(3))
    with pytest.raises(kind, match="the broker refused the request: no") as caught:
        producer.flush()
    assert caught.value.topic == str(TOPIC)
    with pytest.raises(kind):
        send(producer, numbered(1))
    producer.close()


@pytest.mark.parametrize("error", [pb.PersistenceError, pb.ChecksumError])
def test_what_passes_is_sent_again(broker, client, topic, error):
    """A checksum that was right when the entry was made: it was damaged on the way."""
    broker.script(Type.SEND, [pass_on, refuses(error), silence, silence])
    producer = open_producer(client)
    store(producer, numbered(4), closes=True)
    assert topic.values == numbered(4)


@pytest.mark.parametrize(
    "action", [cut, refuses(pb.PersistenceError, "not enough bookies")], ids=["cut", "refused"]
)
def test_what_is_refused_or_cut_again_and_again_fails_after_the_send_timeout(broker, client, topic, action):
    producer = open_producer(client, send_timeout=0.6)
    broker.script(Type.SEND, [action] * 20)  # it would take them in the end
    send(producer, numbered(2))
    with pytest.raises(SendError, match=r"2 messages were not acknowledged within 0\.6 s"):
        producer.flush()
    producer.close()


def test_what_is_pending_is_sent_again_without_asking_for_keys(broker, client, topic, monkeypatch):
    def no_keys(*_given):
        raise CryptoError("the key reader fails")

    producer = open_producer(client)
    broker.script(Type.SEND, [cut])
    monkeypatch.setattr(Packer, "shared_size", no_keys)
    store(producer, numbered(2), closes=True)
    assert topic.values == numbered(2)


def test_the_open_batch_stays_when_the_connection_is_cut(broker, client, topic):
    producer = open_producer(client)
    encoded = encode_batch_messages(columns(numbered(2)))
    producer.send_rows(encoded.buffer, encoded.offsets)
    broker.script(Type.SEND, [cut])
    store(producer, [b"before it"])
    producer.send_open_batch()
    store(producer, closes=True)
    assert topic.values == [b"before it", *numbered(2)]


def test_bytes_that_change_in_memory_are_an_error(broker, client, topic):
    value = bytearray(b"value")
    message = encode_singles(columns([bytes(value)]))[0]._replace(payload=memoryview(value))
    producer = open_producer(client)

    def damage(connection, frame):
        value[0] ^= 1
        refuses(pb.ChecksumError)(connection, frame)

    broker.script(Type.SEND, [damage])
    producer.send_singles([message])
    with pytest.raises(SendError, match="changed in memory"):
        producer.flush()
    producer.close()


def test_one_that_is_opened_again_and_refused_fails(broker, client, topic):
    producer = open_producer(client)
    broker.script(Type.SEND, [cut])
    broker.script(Type.PRODUCER, [refuses(pb.AuthorizationError, "no right")])
    send(producer, numbered(2))
    with pytest.raises(AuthError, match="no right"):
        producer.flush()
    producer.close()


def test_a_message_that_is_too_large_is_refused_before_it_is_sent():
    with FakeBroker(max_message_size=10_000) as broker, client_of(broker) as client:
        producer = open_producer(client)
        with pytest.raises(SendError, match="does not fit into the broker's limit of 10000 bytes"):
            producer.packer.check_singles(encode_singles(columns([b"x" * 10_000])))
        with pytest.raises(SendError, match="does not fit"):
            send(producer, [b"x" * 10_000])
        assert broker.seen(Type.SEND) == []
        producer.close()


@pytest.mark.parametrize("closes", ["the connection", "the producer"])
def test_a_broker_that_accepts_and_closes_is_not_asked_again_and_again(broker, client, topic, closes):
    broker.script(Type.SEND, [silence] * 10**5)
    producer = open_producer(client, send_timeout=1.5)
    send(producer, numbered(2))
    broker.wait_for_command(Type.SEND, 2)
    accept = accept_and_close(broker, TOPIC, cuts=closes == "the connection")
    broker.script(Type.PRODUCER, [accept] * 10**5)
    broker.cut()
    with pytest.raises(SendError, match="2 messages were not acknowledged"):
        producer.flush()
    producer.close()
    assert 3 <= len(broker.seen(Type.PRODUCER)) <= 10


def test_after_a_receipt_a_producer_is_opened_again_at_once(broker, client, topic, monkeypatch):
    pause, pauses = Reopening.pause, []

    def noted(*given):
        pauses.append(pause(*given))
        return pauses[-1]

    monkeypatch.setattr(Reopening, "pause", noted)
    producer = open_producer(client)
    broker.script(Type.SEND, [action for _ in range(19) for action in (pass_on, lose_answer)])
    for first in range(20):
        store(producer, numbered(1, first))
    producer.close()
    assert len(pauses) == 20, "one for each opening"
    assert not any(pauses)


# ---- sequence ids


@pytest.mark.parametrize(
    ("stored", "initial", "first", "expected"),
    [
        (None, None, None, 0),
        (None, 7, None, 8),
        (None, None, 20, 20),
        (None, 30, 20, 31),
        (4, None, None, 5),
        (4, 2, None, 5),
        (4, 9, None, 10),
        (4, None, 3, 5),
    ],
)
def test_ids_begin_after_all_that_is_known(stored, initial, first, expected):
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        if stored is not None:
            topic.stored_ids["me"] = stored
        producer = open_producer(client, name="me", initial_sequence_id=initial, first_sequence_id=first)
        assert producer.last_sequence_id == (-1 if stored is None else stored)
        store(producer, numbered(2), closes=True)
        assert sent_ids(broker) == [[expected, expected + 1]]
        assert topic.values == numbered(2)


def lose_connection_with_pending(broker, client, change, *, batch=False):
    """Send 4 messages, of which the broker stores none, and let it have changed when it is there again."""
    broker.script(Type.SEND, [pass_on, *[silence] * 9])
    producer = open_producer(client, name="me")
    store(producer, [b"first"])
    (send_batch if batch else send)(producer, numbered(4))
    broker.wait_for_command(Type.SEND, 2)
    broker.script(Type.SEND, [])
    with broker.changed:
        change(broker.topics[str(TOPIC)])
        broker.cut()
    try:
        producer.flush()
    finally:
        producer.close()


def test_a_batch_that_is_not_stored_is_sent_again():
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        lose_connection_with_pending(broker, client, lambda topic: None, batch=True)
        assert broker.topics[str(TOPIC)].values == [b"first", *numbered(4)]


def stored_by_somebody_else(topic, *sequence_ids):
    for sequence_id in sequence_ids:
        section = section_of(b"other", producer_name="me", sequence_id=sequence_id)
        topic.store("me", pb.CommandSend(producer_id=0, sequence_id=sequence_id), section)


@pytest.mark.parametrize("foreign", [[1], [1, 2], [1, 2, 3, 4]])
def test_what_somebody_else_wrote_by_pending_ids_is_an_error(foreign):
    """The broker would take what is pending for duplicates, and drop it."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        with pytest.raises(SendError, match="has written under the producer name me"):
            lose_connection_with_pending(
                broker, client, lambda topic: stored_by_somebody_else(topic, *foreign)
            )
        assert broker.topics[str(TOPIC)].values == [b"first", *[b"other"] * len(foreign)]


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("name", ["me", None])
def test_what_was_stored_without_a_receipt_is_compared_and_not_stored_again(batch, name):
    """But for a name that the broker has chosen, which nobody else has: nothing is read then."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        producer = open_producer(client, name=name)
        broker.script(Type.SEND, [pass_on, without_answer, without_answer, lose_answer])
        for first in (0, 5, 10, 15):
            (send_batch if batch else send)(producer, numbered(5, first)[: 5 if batch else 1])
        store(producer, closes=True)
        assert topic.values == (numbered(20) if batch else numbered(20)[::5])
        assert bool(broker.seen(Type.SUBSCRIBE)) == (name is not None)


def test_a_comparison_that_takes_as_long_as_the_send_timeout_is_no_failure(monkeypatch):
    def find_slowly(*what):
        find_stored(*what)
        time.sleep(1.2)
        broker.cut()

    monkeypatch.setattr(producer_module, "find_stored", find_slowly)
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        producer = open_producer(client, name="me", send_timeout=1.0)
        broker.script(Type.SEND, [lose_answer])
        store(producer, numbered(3), closes=True)
        assert topic.values == numbered(3)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_comparison_that_runs_out_of_time_is_tried_again_within_the_send_timeout(goes_on):
    """The broker still opens the topic for readers."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        producer = open_producer(client, name="me", send_timeout=HANG if goes_on else 1.0)
        hurry(client, 0.4)
        broker.script(Type.SEND, [lose_answer])
        broker.script(Type.FLOW, [silence] * (1 if goes_on else 10**5))
        send(producer, numbered(3))
        if goes_on:
            producer.flush()
            assert topic.values == numbered(3)
        else:
            with pytest.raises(SendError, match=r"3 messages were not acknowledged within 1 s.*producer me"):
                producer.flush()
        producer.close()


def test_without_the_right_to_read_a_broker_may_ask_for_time_while_it_stores_an_earlier_copy():
    def stores_and_asks_for_time(connection, frame):
        without_answer(connection, frame)
        text = "Cannot determine whether the message is a duplicate at this time"
        refuses(pb.PersistenceError, text)(connection, frame)

    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = broker.create(TOPIC)
        producer = open_producer(client)
        broker.script(Type.SEND, [stores_and_asks_for_time])
        broker.script(Type.SUBSCRIBE, [refuses(pb.AuthorizationError, "no right to consume")] * 99)
        store(producer, numbered(2), closes=True)
        assert topic.values == numbered(2)


def test_without_the_right_to_read_a_name_of_ones_own_is_an_error_and_never_a_guess():
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(TOPIC)
        producer = open_producer(client, name="me")
        broker.script(Type.SEND, [lose_answer])
        broker.script(Type.SUBSCRIBE, [refuses(pb.AuthorizationError, "no right to consume")])
        send(producer, [b"a"])
        with pytest.raises(AuthError, match=r"producer name me.*no right to consume.*permission consume"):
            producer.flush()
        producer.close()


# ---- transactions


def test_what_belongs_to_a_transaction_says_so_twice(broker, client, topic):
    producer = open_producer(client, transaction=TxnId(0, 5))
    send(producer, numbered(2))
    producer.packer.transaction = None
    store(producer, numbered(1, 2), closes=True)
    assert [entry.transaction for entry in topic.entries] == [TxnId(0, 5), TxnId(0, 5), None]
    metadata = topic.entries[0].metadata
    assert (metadata.txnid_most_bits, metadata.txnid_least_bits) == (0, 5)


def test_what_may_be_stored_twice_is_sent_again_in_a_transaction(broker, client, topic):
    """As the records of a commit: a connection that is lost does not end their query."""
    producer = open_producer(client, transaction=TxnId(0, 5), may_repeat=True)
    broker.script(Type.SEND, [pass_on, lose_answer])
    store(producer, numbered(3))
    topic.end(TxnId(0, 5), commit=True)
    assert set(topic.values) == set(numbered(3))
    assert len(topic.values) > 3
    producer.close()


@pytest.mark.parametrize(
    ("deduplicates", "reason"), [(False, "not certain that the namespace"), (True, "cannot be read before")]
)
def test_what_a_transaction_may_have_stored_is_an_error(deduplicates, reason):
    """It would be stored twice where nothing drops duplicates; else an entry before it may be lost."""
    with FakeBroker(deduplicates=deduplicates) as broker, client_of(broker) as client:
        broker.create(TOPIC)
        producer = open_producer(client, transaction=TxnId(0, 5))
        broker.script(Type.SEND, [pass_on, lose_answer])
        send(producer, numbered(3))
        with pytest.raises(SendError, match=f"messages of a transaction .*{reason}"):
            producer.flush()
        producer.close()
        assert broker.open_producers == []
