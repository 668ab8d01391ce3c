"""TopicWriter and partitions: where rows go, and when the producers of many partitions are opened."""

import threading

import pyarrow as pa
import pytest

from pulsar_spark.client import AccessMode, RoutingMode, TaskPlace, UserCode
from pulsar_spark.errors import AuthError, OptionError, PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.batcher import BatcherBuilder
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of, columns, numbered
from tests.client.writing.topic_writers import keys, open_writer, parted, stored, to_partitions
from tests.fake_broker import Held, pass_on, refuses
from tests.fake_clients import Type
from tests.writes import send_all, write_all

# ---- producers of many partitions


def asked_for(broker):
    """The numbers of the partitions whose producers were opened, in their order."""
    return [TopicName.parse(each.topic).partition for each in broker.seen(Type.PRODUCER)]


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
