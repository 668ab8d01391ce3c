"""What the real broker refuses, hosts that are dead or silent, and data that is gone."""

import random
import socket
import threading
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from integration.broker.admin import topic_path
from integration.broker.waiting import FAR_AWAY, HANG, promptly, wait_until
from integration.chaos.messages import BEGINNING, columns_of, numbered
from integration.helpers.clients import DURABLE, WINDOW, open_writer, reader, subscription, take
from pulsar_spark.client import Client, ClientOptions, Consumer, Deadline, Transactions
from pulsar_spark.errors import BusyError, NotAllowedError, SendError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark_broker.ports import free_port
from tests.writes import send_all, write_all

pytestmark = pytest.mark.usefixtures("leaves_nothing")


# ---- refusals


def test_a_second_exclusive_consumer_is_refused(client, cluster, admin, topic):
    admin.create_topic(topic)
    name = TopicName.parse(topic)
    with (
        Consumer(client, name, DURABLE),
        Client(ClientOptions(service_url=cluster.service_url, operation_timeout=4.0)) as other,
    ):
        began = time.monotonic()
        with pytest.raises(BusyError, match=r"\[PULSAR_BUSY\].*another name"):
            Consumer(other, name, DURABLE)
        assert time.monotonic() - began > 2.0
    assert subscription(admin, topic)["consumers"] == []


def test_a_second_consumer_gets_its_turn(client, cluster, admin, topic):
    admin.create_topic(topic)
    name = TopicName.parse(topic)
    first = Consumer(client, name, DURABLE)
    timer = threading.Timer(0.5, first.close)
    timer.start()
    with Consumer(client, name, DURABLE) as second:
        assert second.last_message_id().last.entry == -1
    timer.join()


@pytest.mark.parametrize("missing", ["no-such-topic", "public/no-such-namespace/topic", "no-such-tenant/a/b"])
def test_a_missing_topic_is_an_error_at_once(client, missing):
    name = TopicName.parse(missing)
    with promptly(10.0):
        with pytest.raises(TopicNotFoundError, match=missing):
            client.partitions(name)
        with pytest.raises(TopicNotFoundError, match=missing):
            Consumer(client, name, DURABLE)


def test_a_topic_that_is_deleted_under_a_reader_is_an_error(client, peer, admin, topic):
    peer.produce(topic, numbered(3))
    with Consumer(client, TopicName.parse(topic), reader(BEGINNING), Permits(WINDOW)) as consumer:
        take(consumer, 3)
        admin.delete_topic(topic)
        with pytest.raises(TopicNotFoundError):
            consumer.receive(Deadline(HANG))
    assert topic not in admin.topics()


def test_a_cluster_without_transactions(client):
    with pytest.raises(NotAllowedError, match="transactionCoordinatorEnabled"):
        Transactions(client).begin(1.0)


def test_a_row_above_the_topic_s_limit_of_sizes_is_an_error_about_sizes(client, admin, topic):
    admin.create_topic(topic)
    admin.request("POST", f"{topic_path(topic)}/maxMessageSize", 100)
    wait_until(lambda: is_refused(client, topic, value=pa.array([b"x" * 1000])))
    with pytest.raises(
        NotAllowedError, match=r"maximum message size .*maxMessageSize .*batchingMaxBytes"
    ) as caught:
        send(client, topic, value=pa.array([b"x" * 1000]))
    assert "subscription" not in str(caught.value)


def test_a_row_above_the_namespace_s_limit_of_delays_is_an_error_about_delays(
    client, admin, namespace, own_topic
):
    limit = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 60_000}
    admin.request("POST", f"namespaces/{namespace}/delayedDelivery", limit)
    at = pa.array([int(time.time() * 1000) + 3_600_000])
    wait_until(lambda: is_refused(client, own_topic, deliver_at=at))
    with pytest.raises(
        NotAllowedError, match=r"delivery delay .*maxDeliveryDelayInMillis.*__deliverAt"
    ) as caught:
        send(client, own_topic, deliver_at=at)
    assert "subscription" not in str(caught.value)


def is_refused(client, topic, **columns):
    """Whether a row is: a policy takes a while to arrive."""
    try:
        send(client, topic, **columns)
    except NotAllowedError:
        return True
    return False


def send(client, topic, **columns):
    write_all(open_writer(client, topic), replace(columns_of(numbered(1)), **columns))


def test_a_topic_that_is_created_again_under_a_task_is_an_error(client, admin, namespace, own_topic):
    """A task that reported all its rows as written would have lost the first ones."""
    admin.set_deduplication(namespace, True)
    for batch in range(2):
        with open_writer(client, own_topic, name="task", batching=False) as writer:
            send_all(writer, columns_of(numbered(1000)))
            if batch == 0:
                continue
            admin.delete_topic(own_topic)
            with pytest.raises(SendError, match=f"no longer knows .* producer task: .*; topic {own_topic}"):
                send_all(writer, columns_of(numbered(1000)))


# ---- several hosts


def test_goes_past_dead_hosts(cluster, admin, topic):
    """The first host is chosen at random, so of six clients one at least begins with a dead one."""
    admin.create_topic(topic)
    live = cluster.service_url.removeprefix("pulsar://")
    dead = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    for _ in range(6):
        url = "pulsar://" + ",".join([*dead, live])
        with Client(ClientOptions(service_url=url, operation_timeout=FAR_AWAY)) as client:
            assert client.partitions(TopicName.parse(topic)) == [TopicName.parse(topic)]
            with Consumer(client, TopicName.parse(topic), reader()) as consumer:
                assert consumer.last_message_id().last.entry == -1


def test_a_first_host_that_is_silent_leaves_time_for_the_second(cluster, monkeypatch):
    monkeypatch.setattr(random, "randrange", lambda count: 0)  # by this the first host is chosen
    with socket.create_server(("127.0.0.1", 0)) as silent:
        second = cluster.service_url.removeprefix("pulsar://")
        url = f"pulsar://127.0.0.1:{silent.getsockname()[1]},{second}"
        options = ClientOptions(service_url=url, operation_timeout=10.0, connection_timeout=10.0)
        with Client(options) as client:
            assert client.topics_of_namespace("public", "default") is not None
