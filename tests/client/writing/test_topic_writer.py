"""TopicWriter: rows to partitions, batches that close by themselves, failures that all later calls raise."""

import threading
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from pulsar_spark.client import (
    AccessMode,
    ProducerInterceptor,
    RoutingMode,
    TaskPlace,
    TopicWriter,
    Transaction,
    Transactions,
    UserCode,
)
from pulsar_spark.client.writing import producer_link, topic_writer
from pulsar_spark.errors import (
    AuthError,
    ClosedError,
    NotAllowedError,
    OptionError,
    PulsarError,
    QueueFullError,
    SendError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.writing.batcher import BatcherBuilder
from pulsar_spark.protocol.writing.pending import MemoryBudget
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import TOPIC, client_of, columns, numbered, producing, wait_until
from tests.fake_broker import HANG, FakeBroker, Held, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.writes import send_all, write_all

# A publish delay after which no test waits: batches close by count, bytes or flush.
LATE = 1000.0


def open_writer(client, topic=TOPIC, *, batching_max_publish_delay=LATE, **options):
    named = ("place", "look_again", "transaction", "code", "memory")
    own = {name: options.pop(name) for name in named if name in options}
    delay = batching_max_publish_delay
    return TopicWriter(client, topic, producing(batching_max_publish_delay=delay, **options), **own)


def keys(*texts):
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def longs(*numbers):
    return pa.array(numbers, pa.int64())


def parted(broker, count=3, name="parted"):
    broker.create(name, count)
    return TopicName.parse(name)


def stored(broker, topic, count=3):
    return [broker.topics[str(topic.of_partition(number))].values for number in range(count)]


def entries_of(broker, topic=TOPIC):
    """The values of each entry."""
    return [entry.values for entry in broker.topics[str(topic)].entries]


# ---- producers of many partitions


def asked_for(broker):
    """The numbers of the partitions whose producers were opened, in their order."""
    return [TopicName.parse(each.topic).partition for each in broker.seen(Type.PRODUCER)]


def to_partitions(*numbers):
    return columns(numbered(len(numbers)), partition=pa.array(numbers, pa.int32()))


def test_a_producer_is_opened_with_the_first_row_of_its_partition(broker, client):
    topic = parted(broker, 100)
    with open_writer(client, topic) as writer:
        assert asked_for(broker) == []
        for numbers in ((5,), (5, 5), (7, 5, 9)):
            send_all(writer, to_partitions(*numbers))
        assert asked_for(broker)[:1] == [5]
        assert sorted(asked_for(broker)) == [5, 7, 9]
    assert len(broker.seen(Type.LOOKUP)) == len(broker.seen(Type.CLOSE_PRODUCER)) == 3
    assert broker.open_producers == []


@pytest.mark.parametrize("options", [{}, {"batching": False}, {"batcher_builder": BatcherBuilder.KEY_BASED}])
def test_rows_of_partitions_that_come_later_are_stored_in_their_order(broker, client, options):
    topic, partitions = parted(broker, 8), [number * number % 7 + number // 30 for number in range(60)]
    with open_writer(client, topic, **options) as writer:
        for first in range(0, 60, 3):
            rows, numbers = numbered(3, first), pa.array(partitions[first : first + 3], pa.int32())
            writer.send(columns(rows, partition=numbers, key=keys(*"xyz")))
        writer.flush()
    found = stored(broker, topic, 8)
    values = [b"%d" % at for at in range(60)]
    assert [sorted(each, key=int) for each in found] == [
        [value for value, number in zip(values, partitions, strict=True) if number == part]
        for part in range(8)
    ]
    for part in found:
        for key in range(3):
            of_key = [int(value) for value in part if int(value) % 3 == key]
            assert of_key == sorted(of_key)
    assert sorted(asked_for(broker)) == sorted(set(partitions))


def test_a_partition_that_cannot_be_written_to_fails_with_its_first_row(broker, client):
    topic = parted(broker, 4)
    with open_writer(client, topic) as writer:
        send_all(writer, to_partitions(1))
        broker.script(Type.PRODUCER, [refuses(pb.AuthorizationError, "no right")])
        for _ in range(2):  # also without rows for it: rows are missing
            with pytest.raises(AuthError, match="no right"):
                writer.send(to_partitions(2))
        assert asked_for(broker) == [1, 2]
    assert broker.open_producers == []


def test_writers_of_one_name_exclude_each_other_by_the_first_partition(broker, client):
    """So no two of them have some names each, and wait for the others."""
    topic = parted(broker, 4)
    with open_writer(client, topic, name="me") as writer, client_of(broker, operation_timeout=0.5) as other:
        assert asked_for(broker) == [0]
        with pytest.raises(PulsarError, match="already connected"):
            open_writer(other, topic, name="me")
        assert set(asked_for(broker)) == {0}
        send_all(writer, to_partitions(3))
    assert stored(broker, topic, 4) == [[], [], [], [b"0"]]


@pytest.mark.parametrize("mode", [AccessMode.EXCLUSIVE, AccessMode.WAIT_FOR_EXCLUSIVE])
def test_partitions_that_no_one_else_may_write_to_are_claimed_at_once(broker, client, mode):
    """The first one alone, so no two writers have some each, and wait for the others."""
    topic, held = parted(broker, 8), Held(broker)
    broker.script(Type.PRODUCER, [held] * 8)
    opening = threading.Thread(target=lambda: open_writer(client, topic, access_mode=mode).close())
    opening.start()
    broker.wait_for_command(Type.PRODUCER)
    assert asked_for(broker) == [0]
    held.release()
    broker.wait_for_command(Type.PRODUCER, 8)
    held.release()
    opening.join()
    assert broker.open_producers == []


def test_new_partitions_are_claimed_when_they_are_found(broker, client):
    topic = parted(broker, 2)
    exclusive = {"access_mode": AccessMode.EXCLUSIVE, "look_again": 0.0}
    with open_writer(client, topic, **exclusive) as writer:
        broker.create("parted", 3)
        writer.send(to_partitions(0))
        assert sorted(asked_for(broker)) == [0, 1, 2]


def test_producers_are_closed_at_once(broker, client):
    topic, held = parted(broker, 8), Held(broker)
    broker.script(Type.CLOSE_PRODUCER, [held] * 8)
    writer = open_writer(client, topic)
    writer.send(to_partitions(*range(8)))
    closing = threading.Thread(target=writer.close)
    closing.start()
    broker.wait_for_command(Type.CLOSE_PRODUCER, 8)
    held.release()
    closing.join()
    assert broker.open_producers == []


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_producer_that_is_refused_leaves_no_other_open(broker, client, place):
    topic = parted(broker, 4)
    broker.script(Type.PRODUCER, [*[pass_on] * place, refuses(pb.AuthorizationError, "no right")])
    with pytest.raises(AuthError, match="no right"):
        open_writer(client, topic, access_mode=AccessMode.EXCLUSIVE)
    assert broker.open_producers == []


# ---- where rows go


def test_a_key_decides_as_in_java(broker, client):
    """The hash of "a" is 97, of "b" 98, and so on."""
    topic, names = parted(broker), "abcdefabc"
    write_all(open_writer(client, topic), columns(numbered(9), key=keys(*names)))
    expected = [[b"%d" % at for at, name in enumerate(names) if ord(name) % 3 == part] for part in range(3)]
    assert stored(broker, topic) == expected


def test_a_row_may_name_its_partition(broker, client):
    topic = parted(broker)
    partition = pa.array([2, 0, 2, 1, None], pa.int32())
    with open_writer(client, topic) as writer:
        send_all(writer, columns(numbered(5), key=keys("a", "a", "a", "a", "a"), partition=partition))
    assert stored(broker, topic) == [[b"1"], [b"3", b"4"], [b"0", b"2"]]


@pytest.mark.parametrize(("place", "first"), [((0, 0), 0), ((0, 5), 2), ((1, 0), 1), ((4, 1), 0)])
def test_with_a_place_rows_without_keys_go_by_count_alone(broker, client, place, first):
    topic = parted(broker)
    with open_writer(client, topic, place=TaskPlace(*place), batching_max_messages=2) as writer:
        for number in range(0, 8, 4):
            writer.send(columns(numbered(4, number)))
        writer.flush()
    rows = stored(broker, topic)
    assert rows[first] == [b"0", b"1", b"6", b"7"]
    assert rows[(first + 1) % 3] == [b"2", b"3"]
    assert rows[(first + 2) % 3] == [b"4", b"5"]


def test_without_batches_rows_without_keys_go_round(broker, client):
    topic = parted(broker)
    write_all(open_writer(client, topic, place=TaskPlace(0, 1), batching=False), columns(numbered(7)))
    assert stored(broker, topic) == [[b"2", b"5"], [b"0", b"3", b"6"], [b"1", b"4"]]


def test_a_router_of_the_users_own(broker, client):
    topic = parted(broker)
    code = UserCode(router=lambda keys, count: [count - 1] * len(keys))
    write_all(open_writer(client, topic, code=code, routing_mode=RoutingMode.CUSTOM), columns(numbered(3)))
    assert stored(broker, topic) == [[], [], numbered(3)]


def test_a_partition_that_is_not_there(broker, client):
    topic = parted(broker)
    with open_writer(client, topic) as writer:
        with pytest.raises(OptionError) as caught:
            writer.send(columns(numbered(1), partition=pa.array([3], pa.int32())))
        assert caught.value.topic == str(topic)
    assert stored(broker, topic) == [[], [], []]


def test_partitions_that_are_added_get_rows_too(broker, client):
    topic = parted(broker, 1)
    with open_writer(client, topic, look_again=0.0) as writer:
        writer.send(columns(numbered(1)))
        broker.script(Type.PARTITIONED_METADATA, [refuses(pb.AuthorizationError)])
        writer.send(columns(numbered(1, 1)))  # a look that fails does not stop the rows
        broker.create(topic, 3)
        send_all(writer, columns(numbered(3, 2), partition=pa.array([2, 1, 0], pa.int32())))
        sent = writer.sent
    assert stored(broker, topic) == [[b"0", b"1", b"4"], [b"3"], [b"2"]]
    assert {name.partition: part.messages for name, part in sent.items()} == {0: 3, 1: 1, 2: 1}


def test_partitions_are_not_looked_for_where_rows_must_stay(broker, client):
    topic = parted(broker, 1)
    with open_writer(client, topic, look_again=None) as writer:
        broker.create(topic, 3)
        send_all(writer, columns(numbered(4)))
    assert stored(broker, topic) == [numbered(4), [], []]
    assert len(broker.seen(Type.PARTITIONED_METADATA)) == 1


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


def test_writers_of_a_task_share_its_memory(broker, client):
    """Each partition has its part of the limit, and all together have no more than the limit."""
    held = Held(broker)
    broker.script(Type.SEND, [held] * 10**4)
    memory = MemoryBudget(5000, threading.Lock())
    topics = [parted(broker, 2, f"topic-{number}") for number in range(10)]
    writers = [
        open_writer(client, topic, memory=memory, batching=False, block_if_queue_full=False)
        for topic in topics
    ]
    for _ in range(20):
        for writer in writers:
            with suppress(QueueFullError):
                writer.send(columns([b"x" * 60]))
    sizes = pending_bytes(*writers)
    assert len(sizes) == 20
    assert 3000 < sum(sizes) <= 5000
    assert max(sizes) <= 250
    for writer in writers:
        writer.close()
    assert memory.part == 5000


def pending_bytes(*writers):
    """The bytes that are pending in each open producer."""
    producers = [producer for writer in writers for producer in writer._producers.values()]
    return [sum(entry.size for entry in producer.pending) for producer in producers]


@pytest.mark.parametrize("options", [{}, {"batching_max_bytes": 0, "batching_max_messages": 0}])
@pytest.mark.parametrize("is_keyed", [False, True])
def test_batches_are_no_larger_than_the_memory_of_their_partition(broker, client, options, is_keyed):
    """What four partitions have pending is never more than the limit, though each has room for a batch."""
    if is_keyed:
        options = {**options, "batcher_builder": BatcherBuilder.KEY_BASED}
    topic, limit, highest = parted(broker, 4), 40_000, 0
    with open_writer(client, topic, memory_limit=limit, **options) as writer:

        def look(connection, frame):
            nonlocal highest
            highest = max(highest, sum(pending_bytes(writer)))
            connection.handle(frame)

        broker.script(Type.SEND, [look] * 10**4)
        for _ in range(5):
            rows = [b"x" * 100] * 2000
            partition = pa.array([number % 4 for number in range(2000)], pa.int32())
            writer.send(columns(rows, partition=partition, key=keys(*["k"] * 2000)))
        writer.flush()
    assert [len(each) for each in stored(broker, topic, 4)] == [2500] * 4
    assert 0 < highest <= limit


def test_a_writer_that_has_more_than_its_part_waits_for_receipts_when_another_one_is_opened(broker, client):
    held = Held(broker)
    memory = MemoryBudget(10_000, threading.Lock())
    first, second = (parted(broker, 1, f"topic-{number}") for number in range(2))
    with open_writer(client, first, memory=memory, batching=False) as writer:
        broker.script(Type.SEND, [held] * 80)
        writer.send(columns([b"x" * 60] * 80))
        assert pending_bytes(writer)[0] > 5000
        with open_writer(client, second, memory=memory, batching=False):
            fitting = threading.Thread(target=writer.fit)
            fitting.start()
            fitting.join(0.05)
            assert fitting.is_alive()
            held.release()
            fitting.join(HANG)
            assert not fitting.is_alive()
            assert pending_bytes(writer)[0] <= 5000


def test_an_open_batch_that_is_more_than_its_part_is_sent(broker, client):
    memory = MemoryBudget(10_000, threading.Lock())
    first, second = (parted(broker, 1, f"topic-{number}") for number in range(2))
    with open_writer(client, first, memory=memory) as writer:
        writer.send(columns([b"x" * 600] * 9))
        with open_writer(client, second, memory=memory):
            writer.fit()
            assert len(broker.seen(Type.SEND)) == 1
            assert pending_bytes(writer) == [0]


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
