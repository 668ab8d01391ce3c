"""Writing to a topic of which the broker takes so many bytes a second and no more: it takes long, no more."""

import logging
import time

import pytest

from integration.broker import Jvm, StandaloneBroker
from integration.chaos.messages import columns_of, number_of, numbered
from integration.helpers.peer import Peer
from pulsar_spark.client import Client, ClientOptions, ProducerOptions, TopicWriter
from pulsar_spark.ids import TopicName

pytestmark = pytest.mark.usefixtures("leaves_nothing")

RATE = 1_500_000
SIZE = 10_000


def throttle(admin, namespace):
    """Keep the topics of a namespace, and limit writing."""
    admin.set_retention(namespace, minutes=-1, megabytes=-1)
    admin.set_publish_rate(namespace, bytes_per_second=RATE)


def write(writer, first, count):
    for at in range(first, first + count, 100):
        writer.send(columns_of(numbered(100, first=at, size=SIZE)))


def assert_written_once(peer, topic, count):
    assert [number_of(record) for record in peer.read_all(topic)] == list(range(count))


def test_time_outs_run_from_the_last_sign_of_progress(
    cluster, admin, peer, namespace, own_topic, topic, caplog
):
    """All takes 16 s. Meanwhile other topics of the same connections are looked up, opened and written to."""
    throttle(admin, namespace)
    admin.create_topic(own_topic)  # in this order: a topic that is open takes a new limit over later
    caplog.set_level(logging.INFO)
    options = ClientOptions(service_url=cluster.service_url, connection_timeout=6.0, keep_alive_interval=3.0)
    slow = ProducerOptions(send_timeout=8.0)
    began = time.monotonic()
    with Client(options) as client, TopicWriter(client, TopicName.parse(own_topic), slow) as writer:
        write(writer, 0, 2400)
        with TopicWriter(client, TopicName.parse(topic), ProducerOptions()) as other:
            other.send(columns_of(numbered(10)))
            other.flush()
            writer.flush()
        assert time.monotonic() - began > 12.0  # or nothing was throttled
    assert "opening the producer again" not in caplog.text
    assert_written_once(peer, own_topic, 2400)
    assert_written_once(peer, topic, 10)


@pytest.mark.long
def test_with_all_defaults_100_mb_are_written_without_an_error(topic, caplog):
    """Such a broker keeps all that it has not taken yet in memory: those of other tests have too little."""
    caplog.set_level(logging.INFO)
    with StandaloneBroker(jvm=Jvm(heap="256m", direct_memory="768m", optimize=False)) as broker:
        throttle(broker.admin, "public/default")
        broker.admin.create_topic(topic)
        began = time.monotonic()
        with (
            Client(ClientOptions(service_url=broker.service_url)) as client,
            TopicWriter(client, TopicName.parse(topic), ProducerOptions()) as writer,
        ):
            write(writer, 0, 10_000)
            writer.flush()
        assert time.monotonic() - began > 60.0
        assert "opening the producer again" not in caplog.text
        with Peer(broker.service_url) as peer:
            assert_written_once(peer, topic, 10_000)
