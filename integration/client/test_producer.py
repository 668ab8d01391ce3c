"""Writing against the real broker: what is refused, and closing."""

import pytest

from integration.broker.waiting import promptly
from integration.chaos.messages import columns_of, numbered
from integration.helpers.clients import entries_of, open_writer
from integration.helpers.peer import Record
from pulsar_spark.client import Client, ClientOptions, ProducerOptions, TopicWriter
from pulsar_spark.errors import BusyError, SendError
from pulsar_spark.ids import TopicName
from tests.writes import send_all, write_all

MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_without_a_limit_on_bytes_the_count_decides(client, topic):
    """`batchingMaxBytes` 0 leaves the broker's largest message as the limit."""
    with open_writer(
        client, topic, batching_max_bytes=0, batching_max_messages=20, batching_max_publish_delay=60.0
    ) as writer:
        send_all(writer, columns_of(numbered(40, size=10_000)))
    assert [entry.metadata.num_messages_in_batch for entry in entries_of(client, topic)] == [20, 20]


# ---- refusals


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
