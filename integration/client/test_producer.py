"""Writing against the real broker: how batches are cut, what is refused, and closing."""

import itertools

import pytest

from integration.broker.waiting import promptly
from integration.chaos.messages import columns_of, numbered, read_partition
from integration.helpers.clients import open_writer
from integration.helpers.peer import Record
from pulsar_spark.client import Client, ClientOptions, ProducerOptions, TopicWriter
from pulsar_spark.errors import BusyError, SendError
from pulsar_spark.ids import TopicName
from tests.writes import send_all, write_all

LATER = 60.0
MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("leaves_nothing")


def batch_sizes(peer, topic):
    """How many messages each entry holds, as the C++ client sees it."""
    places = [message.message_id() for message in peer.messages(topic)]
    entries = [(place.ledger_id(), place.entry_id()) for place in places]
    return [len(list(group)) for _, group in itertools.groupby(entries)]


# ---- batches


def test_a_batch_closes_by_count(client, peer, topic):
    with open_writer(client, topic, batching_max_messages=10, batching_max_publish_delay=LATER) as writer:
        for first, count in ((0, 4), (4, 30), (34, 1)):
            writer.send(columns_of(numbered(count, first=first)))
        writer.flush()
    assert batch_sizes(peer, topic) == [10, 10, 10, 5]


def test_a_batch_closes_by_bytes(client, peer, topic):
    with open_writer(client, topic, batching_max_bytes=1000, batching_max_publish_delay=LATER) as writer:
        writer.send(columns_of(numbered(7, size=300)))
        writer.send(columns_of(numbered(1, size=2000)))  # Larger than a batch: one of its own.
        send_all(writer, columns_of(numbered(2, size=300)))
    assert batch_sizes(peer, topic) == [3, 3, 1, 1, 2]


def test_without_a_limit_on_bytes_the_count_decides(client, peer, topic):
    """`batchingMaxBytes` 0 leaves the broker's largest message as the limit."""
    with open_writer(
        client, topic, batching_max_bytes=0, batching_max_messages=20, batching_max_publish_delay=LATER
    ) as writer:
        send_all(writer, columns_of(numbered(40, size=10_000)))
    assert batch_sizes(peer, topic) == [20, 20]


# ---- refusals


@pytest.mark.parametrize("batching", [True, False])
def test_a_message_larger_than_the_broker_takes_is_an_error(client, peer, topic, batching):
    with open_writer(client, topic, batching=batching) as writer:
        text = r"\[PULSAR_SEND\].*5242880 .*; topic .*maxMessageSize"
        with promptly(10.0), pytest.raises(SendError, match=text):
            send_all(writer, columns_of([Record(b"x" * (5 * MIB + 1))]))


@pytest.mark.parametrize("batching", [True, False])
def test_properties_larger_than_the_broker_takes_are_an_error(client, topic, batching):
    """The broker drops the connection at such a frame: it must not be sent, nor again and again."""
    too_large = columns_of([Record(b"x", properties=(("large", "x" * (6 * MIB)),))])
    with (
        open_writer(client, topic, batching=batching) as writer,
        promptly(10.0),
        pytest.raises(SendError, match="5242880"),
    ):
        send_all(writer, too_large)


def test_a_message_a_little_smaller_than_that_passes(client, peer, topic):
    """Not to the last byte: the bookie counts its own headers too, and a broker that it refuses loops."""
    large = Record(b"x" * (5 * MIB - 2048), "key", (("name", "value"),))
    write_all(open_writer(client, topic, batching=False), columns_of([large]))
    assert peer.read_all(topic) == [large]


def test_a_name_that_is_taken_is_an_error(client, cluster, admin, topic):
    with (
        open_writer(client, topic, name="taken"),
        Client(ClientOptions(service_url=cluster.service_url, operation_timeout=4.0)) as other,
    ):
        with pytest.raises(BusyError, match=r"\[PULSAR_BUSY\]"):
            open_writer(other, topic, name="taken")
        assert len(admin.stats(topic)["publishers"]) == 1
    assert admin.stats(topic)["publishers"] == []


def test_a_terminated_topic_is_an_error_at_once(client, peer, admin, topic):
    with open_writer(client, topic) as writer:
        send_all(writer, columns_of(numbered(5)))
        admin.terminate(topic)
        with promptly(10.0), pytest.raises(SendError, match="terminated"):
            send_all(writer, columns_of(numbered(5)))
    assert len(peer.read_all(topic)) == 5


# ---- closing


def test_closing_leaves_no_producer(client, admin, topic):
    admin.create_partitioned_topic(topic, 3)
    name = TopicName.parse(topic)
    with TopicWriter(client, name, ProducerOptions()) as writer:
        send_all(writer, columns_of(numbered(30, keys=9)))
        assert [len(admin.stats(str(name.of_partition(n)))["publishers"]) for n in range(3)] == [1, 1, 1]
    assert [admin.stats(str(name.of_partition(n)))["publishers"] for n in range(3)] == [[], [], []]


def entries_of(client, topic):
    return list(read_partition(client, TopicName.parse(topic)))


def test_short_lived_writers_without_keys_spread_their_rows(client, admin, peer, topic):
    """A writer lives for one task of one micro-batch, which is often less than a batch."""
    admin.create_partitioned_topic(topic, 4)
    for _ in range(24):
        write_all(open_writer(client, topic), columns_of(numbered(5)))
    assert len({record.partition for record in peer.read_all(topic)}) > 1
