"""TopicWriter: batches that close by themselves, sequence ids, failures that all later calls raise."""

import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from pulsar_spark.client import ProducerInterceptor, TaskPlace, Transaction, Transactions, UserCode
from pulsar_spark.client.writing import producer_link, topic_writer
from pulsar_spark.errors import (
    AuthError,
    ClosedError,
    NotAllowedError,
    OptionError,
    SendError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import TOPIC, client_of, columns, numbered, wait_until
from tests.client.writing.topic_writers import longs, open_writer, parted, stored, to_partitions
from tests.fake_broker import HANG, FakeBroker, Held, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.writes import send_all, write_all


def entries_of(broker, topic=TOPIC):
    """The values of each entry."""
    return [entry.values for entry in broker.topics[str(topic)].entries]


# ---- batches


def test_batches_close_by_count_and_by_flush(broker, client):
    with open_writer(client, batching_max_messages=4) as writer:
        for first in range(0, 9, 3):
            writer.send(columns(numbered(3, first)))
        broker.wait_for(lambda: len(entries_of(broker)) == 2)
        writer.flush()
    assert entries_of(broker) == [numbered(4), numbered(4, 4), numbered(1, 8)]
    ids = [(one.sequence_id, one.highest_sequence_id) for one in broker.seen(Type.SEND)]
    assert ids == [(0, 3), (4, 7), (8, 0)]


def test_batches_close_by_time_while_the_caller_is_away(broker, client):
    with open_writer(client, batching_max_publish_delay=0.01) as writer:
        writer.send(columns(numbered(3)))
        broker.wait_for(lambda: entries_of(broker) == [numbered(3)])


def test_without_batches_each_row_is_an_entry(broker, client):
    write_all(open_writer(client, batching=False), columns(numbered(3)))
    assert entries_of(broker) == [[b"0"], [b"1"], [b"2"]]
    assert not any(
        entry.metadata.HasField("num_messages_in_batch") for entry in broker.topics[str(TOPIC)].entries
    )


def test_rows_with_a_time_of_delivery_are_alone(broker, client):
    write_all(open_writer(client), columns(numbered(6), deliver_at=longs(None, None, 5, 6, None, None)))
    assert entries_of(broker) == [[b"0", b"1"], [b"2"], [b"3"], [b"4", b"5"]]
    times = [entry.metadata.deliver_at_time for entry in broker.topics[str(TOPIC)].entries]
    assert times == [0, 5, 6, 0]


# ---- sequence ids of the rows' own


def test_rows_that_may_be_duplicates_share_no_batch_with_new_ones():
    """A broker drops a batch by its first id, with all that is new in it."""
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(TOPIC).stored_ids["me"] = 3
        with open_writer(client, name="me") as writer:
            writer.send(columns(numbered(7, 1), sequence_id=longs(1, 2, 3, 4, 5, 6, 7)))
            send_all(writer, columns([b"new"], sequence_id=longs(None)))
            assert writer.sent[TOPIC].messages == 8
        assert broker.topics[str(TOPIC)].values == [b"4", b"5", b"6", b"7", b"new"]
        ids = [(one.sequence_id, one.num_messages) for one in broker.seen(Type.SEND)]
        assert ids == [(1, 3), (4, 5)]


@pytest.mark.parametrize("batching", [True, False])
def test_rows_that_an_earlier_run_has_stored_are_dropped_with_a_warning(batching, caplog):
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        for ids in ((1, 2, 3), (2, 3, 4, 5)):
            with open_writer(client, name="me", batching=batching) as writer:
                send_all(writer, columns([b"%d" % one for one in ids], sequence_id=longs(*ids)))
                assert writer.sent[TOPIC].messages == len(ids)
        assert broker.topics[str(TOPIC)].values == numbered(5, 1)
    (text,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert text.startswith(f"{TOPIC}: the broker has dropped 2 messages of producer me: ")
    assert "not above 3" in text


@pytest.mark.parametrize("name", [None, "me"])
@pytest.mark.parametrize("batching", [True, False])
def test_rows_of_which_a_broker_drops_some_by_their_ids_are_an_error_in_each_run(batching, name):
    """Three producers' rows, as a copy of their topic has them."""
    ids = [number for number in range(100) for _ in range(3)]
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        for _ in range(2):
            with open_writer(client, batching=batching, name=name) as writer:
                with pytest.raises(SendError, match=r"do not ascend.*Drop the column"):
                    write_with_ids(writer, ids)
                assert writer.sent[TOPIC].messages == 1


def write_with_ids(writer, ids):
    send_all(writer, columns(numbered(len(ids)), sequence_id=longs(*ids)))


@pytest.mark.parametrize("batching", [True, False])
def test_ids_need_not_ascend_where_the_broker_does_not_deduplicate(broker, client, batching):
    with open_writer(client, batching=batching) as writer:
        write_with_ids(writer, [number for number in range(100) for _ in range(3)])
    assert broker.topics[str(TOPIC)].values == numbered(300)


@pytest.mark.parametrize("batching", [True, False])
def test_rows_say_their_ids(broker, client, batching):
    write_all(open_writer(client, batching=batching), columns(numbered(3), sequence_id=longs(10, 20, 30)))
    sent = [(one.sequence_id, one.highest_sequence_id) for one in broker.seen(Type.SEND)]
    assert sent == ([(10, 30)] if batching else [(10, 0), (20, 0), (30, 0)])


# ---- lost connections


@pytest.mark.parametrize("action", [cut, lose_answer])
def test_lost_connections_change_nothing_where_the_broker_deduplicates(action):
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = parted(broker)
        broker.script(Type.SEND, [pass_on, pass_on, action, pass_on, action])
        with open_writer(client, topic, place=TaskPlace(0, 0), batching_max_messages=2) as writer:
            for first in range(0, 60, 20):
                writer.send(columns(numbered(20, first)))
            writer.flush()
            assert sum(part.messages for part in writer.sent.values()) == 60
        rows = stored(broker, topic)
        assert rows == [[b"%d" % at for at in range(60) if at // 2 % 3 == part] for part in range(3)]


def test_producers_are_opened_again_while_the_caller_is_away(broker, client):
    broker.create(TOPIC)
    broker.script(Type.SEND, [cut])
    with open_writer(client, batching=False) as writer:
        writer.send(columns(numbered(2)))
        broker.wait_for(lambda: broker.topics[str(TOPIC)].values == numbered(2))


# ---- failures


@pytest.mark.parametrize("kind", [Type.LOOKUP, Type.PRODUCER])
def test_closing_does_not_wait_until_a_lost_producer_is_open_again(broker, client, kind, monkeypatch):
    for module in (producer_link, topic_writer):
        monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.1)
    broker.create(TOPIC)
    writer, opening, closing = open_writer(client, batching=False), Held(broker), Held(broker)
    broker.script(Type.SEND, [silence])
    writer.send(columns(numbered(1)))
    broker.wait_for_command(Type.SEND)
    broker.script(kind, [opening])
    broker.close_all(TOPIC)
    broker.wait_for(lambda: opening.count)
    broker.script(Type.CLOSE_PRODUCER, [closing])
    leaving = threading.Thread(target=writer.close)
    leaving.start()
    leaving.join(HANG / 4)
    assert not leaving.is_alive()
    opening.release()
    closing.release()
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("pulsar writer")])
    assert broker.open_producers == []
    assert len(broker.seen(Type.PRODUCER)) == (2 if kind == Type.PRODUCER else 1)


def test_a_failure_is_raised_by_all_later_calls(broker, client):
    broker.script(Type.SEND, [refuses(pb.TopicTerminatedError, "terminated")])
    with open_writer(client) as writer:
        writer.send(columns(numbered(1)))
        with pytest.raises(SendError, match="terminated"):
            writer.flush()
        for call in (writer.flush, lambda: writer.send(columns(numbered(1)))):
            with pytest.raises(SendError, match="terminated"):
                call()
    assert len(broker.seen(Type.SEND)) == 1


def test_a_failure_while_the_caller_is_away_is_raised_by_the_next_call(broker, client):
    broker.create(TOPIC)
    with open_writer(client, batching=False) as writer:
        broker.script(Type.SEND, [cut])
        broker.script(Type.PRODUCER, [pass_on, refuses(pb.AuthorizationError, "no right")])
        writer.send(columns(numbered(1)))
        broker.wait_for_command(Type.PRODUCER, 2)
        with pytest.raises(AuthError, match="no right"):
            wait_until(lambda: writer.send(columns([])))


def test_one_row_that_is_too_large_keeps_the_others_back():
    with FakeBroker(max_message_size=10_000) as broker, client_of(broker) as client:
        topic = parted(broker)
        for batching in (True, False):
            with open_writer(client, topic, batching=batching, place=TaskPlace(0, 0)) as writer:
                with pytest.raises(SendError, match="does not fit into the broker's limit"):
                    writer.send(columns([b"x", b"y", b"z" * 10_000]))
                with pytest.raises(SendError):
                    writer.flush()
        assert broker.seen(Type.SEND) == []


def test_a_partition_that_the_topic_does_not_have(broker, client):
    topic = parted(broker)
    with pytest.raises(TopicNotFoundError):
        open_writer(client, topic.of_partition(3))


# ---- the end


def test_after_the_end_nothing_is_sent(broker, client):
    writer = open_writer(client)
    writer.send(columns(numbered(3)))
    writer.close()
    for call in (writer.flush, lambda: writer.send(columns(numbered(1)))):
        with pytest.raises(ClosedError):
            call()
    assert broker.seen(Type.SEND) == []  # who does not flush does not want the open batch
    assert broker.open_producers == []


def test_flush_waits_for_all_receipts(broker, client):
    topic, held = parted(broker), Held(broker)
    broker.script(Type.SEND, [held] * 3)
    with open_writer(client, topic, place=TaskPlace(0, 0), batching=False) as writer:
        writer.send(columns(numbered(3)))
        thread = threading.Thread(target=writer.flush)
        thread.start()
        broker.wait_for(lambda: held.count == 3)
        thread.join(0.1)  # what does not wait has ended by then
        assert thread.is_alive()
        held.release()
        thread.join()
    assert stored(broker, topic) == [[b"0"], [b"1"], [b"2"]]


def test_rows_of_several_threads_are_all_stored(broker, client):
    with open_writer(client, batching_max_messages=7) as writer:
        threads = [
            threading.Thread(
                target=lambda first=first: [
                    writer.send(columns(numbered(10, first + at))) for at in range(0, 100, 10)
                ]
            )
            for first in range(0, 400, 100)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.flush()
    values = [int(value) for value in broker.topics[str(TOPIC)].values]
    assert sorted(values) == list(range(400))
    for first in range(0, 400, 100):
        own = [value for value in values if first <= value < first + 100]
        assert own == sorted(own)


# ---- interceptors


class Notes(ProducerInterceptor):
    def __init__(self):
        self.told = []

    def before_send(self, columns):
        return replace(columns, value=pa.array([b"<%s>" % one for one in columns.value.to_pylist()]))

    def on_send_acknowledgement(self, *told):
        self.told.append(told)


def test_interceptors_change_rows_and_learn_where_they_are(broker, client):
    notes = Notes()
    with open_writer(client, code=UserCode(interceptors=[notes]), batching_max_messages=2) as writer:
        send_all(writer, columns(numbered(3)))
    topic = broker.topics[str(TOPIC)]
    assert topic.values == [b"<0>", b"<1>", b"<2>"]
    first, second = (entry.id for entry in topic.entries)
    assert notes.told == [(str(TOPIC), 0, 2, first, None), (str(TOPIC), 2, 1, second, None)]
    assert isinstance(first, MessageId)


def test_rows_that_an_interceptor_could_not_change_are_not_sent(broker, client):
    class Masks(ProducerInterceptor):
        def before_send(self, columns):
            if b"3" in columns.value.to_pylist():
                raise ValueError("3 is personal")
            return columns

    with open_writer(client, code=UserCode(interceptors=[Masks()]), batching=False) as writer:
        send_all(writer, columns(numbered(2)))
        with pytest.raises(OptionError, match=r"interceptor .*Masks raised ValueError") as caught:
            writer.send(columns(numbered(2, 2)))
    assert caught.value.topic == str(TOPIC)
    assert "personal" not in str(caught.value)
    assert broker.topics[str(TOPIC)].values == numbered(2)


@pytest.mark.parametrize("is_intercepted", [True, False])
@pytest.mark.parametrize("batching", [True, False])
def test_a_property_that_is_not_utf8_is_refused_before_anything_is_sent(
    broker, client, batching, is_intercepted
):
    """A broker takes it, but readers get another text, and a replay does not know the row."""
    offsets, names, values = pa.array([0, 0, 1, 1], pa.int32()), pa.array(["n"]), pa.array([b"\xff"])
    properties = pa.MapArray.from_arrays(offsets, names, values.view(pa.string()))
    rows = columns(numbered(3))
    if not is_intercepted:
        rows = replace(rows, properties=properties)

    class Adds(ProducerInterceptor):
        def before_send(self, columns):
            return replace(columns, properties=properties)

    code = UserCode(interceptors=[Adds()] if is_intercepted else [])
    with (
        open_writer(client, code=code, batching=batching) as writer,
        pytest.raises(OptionError, match="row 1 of the batch: the value of the property b'n' is") as caught,
    ):
        writer.send(rows)
    assert caught.value.topic == str(TOPIC)
    assert broker.seen(Type.SEND) == []


def test_interceptors_learn_what_failed_or_was_given_up(broker, client):
    for end, kind in (("close", ClosedError), ("fail", SendError)):
        notes = Notes()
        answer = silence if end == "close" else refuses(pb.TopicTerminatedError)
        broker.script(Type.SEND, [answer])
        with open_writer(client, code=UserCode(interceptors=[notes]), batching=False) as writer:
            writer.send(columns(numbered(1)))
            if end == "fail":
                with pytest.raises(SendError):
                    writer.flush()
            assert notes.told == []
        ((topic, sequence_id, messages, place, error),) = notes.told
        assert (topic, sequence_id, messages, place) == (str(TOPIC), 0, 1, None)
        assert isinstance(error, kind)


# ---- transactions


def test_rows_of_a_transaction_show_when_it_is_committed():
    with FakeBroker(has_transactions=True) as broker, client_of(broker) as client:
        topic = parted(broker)
        transactions = Transactions(client)
        transaction = Transaction(transactions.begin(60.0), transactions)
        with open_writer(
            client, topic, place=TaskPlace(0, 0), transaction=transaction, batching=False
        ) as writer:
            send_all(writer, columns(numbered(6)))
        assert stored(broker, topic) == [[], [], []]
        transactions.commit(transaction.id)
        assert stored(broker, topic) == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]
        kinds = [each.command.type for each in broker.commands]
        assert kinds.index(Type.ADD_PARTITION_TO_TXN) < kinds.index(Type.SEND)


def test_ids_of_the_rows_own_do_not_go_with_transactions_of_a_named_producer():
    with FakeBroker(has_transactions=True) as broker, client_of(broker) as client:
        transactions = Transactions(client)
        transaction = Transaction(transactions.begin(60.0), transactions)
        with open_writer(client, transaction=transaction, name="me") as writer:
            with pytest.raises(OptionError, match="__sequenceId cannot be used with"):
                writer.send(columns(numbered(1), sequence_id=longs(1)))
            writer.send(columns(numbered(1)))  # the rows are refused, not the writer
            writer.flush()
        assert len(broker.seen(Type.SEND)) == 1


def test_a_topic_that_is_partitioned_meanwhile_is_an_error(broker, client):
    def partition(connection, frame):
        broker.create(TOPIC, 2)
        connection.handle(frame)

    broker.script(Type.PRODUCER, [partition])
    with open_writer(client) as writer, pytest.raises(NotAllowedError):
        writer.send(columns(numbered(1)))


def test_a_producer_that_is_opened_while_another_thread_closes_is_closed(broker, client):
    topic, held = parted(broker, 2), Held(broker)
    writer = open_writer(client, topic)
    broker.script(Type.PRODUCER, [held])
    sending = threading.Thread(target=lambda: writer.send(to_partitions(1)))
    closing = threading.Thread(target=writer.close)
    sending.start()
    broker.wait_for(lambda: held.count)
    closing.start()
    held.release()
    sending.join()
    closing.join()
    assert broker.open_producers == []
