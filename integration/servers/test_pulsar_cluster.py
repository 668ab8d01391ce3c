"""Several brokers and bookies: topics that another broker serves, brokers and bookies that are killed."""

import random
import uuid

import pytest

from integration.broker.waiting import wait_until
from integration.chaos.cluster import Fault, bookie_killed, broker_killed, bundle_split, copy
from integration.chaos.messages import columns_of, numbered, read_topic
from integration.helpers.clients import open_writer
from integration.helpers.peer import Peer
from integration.helpers.raw import RawConnection
from pulsar_spark.client import Client, ClientOptions
from pulsar_spark.client.net.admin import Admin
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb

# Six servers take half a minute of all cores.
pytestmark = pytest.mark.long

_REDIRECT, _CONNECT = pb.CommandLookupTopicResponse.Redirect, pb.CommandLookupTopicResponse.Connect

# In a minute or two; the chaos run has them all.
_FAULTS: tuple[Fault, ...] = (broker_killed, bookie_killed, bundle_split)


@pytest.fixture
def leader(pulsar_cluster):
    """The broker that decides who serves a bundle that nobody serves; all brokers know that it is there."""
    brokers = pulsar_cluster.brokers

    def named():
        return {broker.admin.request("GET", "brokers/leaderBroker")["serviceUrl"] for broker in brokers}

    def is_known(leader):
        # A broker that believes the leader to be gone chooses by itself.
        return named() == {leader.admin.url} and all(
            leader.name in broker.admin.request("GET", "brokers/cluster") for broker in brokers
        )

    wait_until(lambda: any(is_known(broker) for broker in brokers))
    return next(broker for broker in brokers if broker.admin.url in named())


@pytest.fixture
def others(pulsar_cluster, leader):
    """The brokers that ask the leader."""
    return [broker for broker in pulsar_cluster.brokers if broker is not leader]


def test_a_look_up_is_answered_with_the_broker_that_serves_the_topic(pulsar_cluster, others, topic):
    asked, owner = others
    _serve(pulsar_cluster, topic, owner)
    with RawConnection(asked.service_url) as connection:
        # A broker that has not heard of the new owner yet sends a client to the leader.
        wait_until(lambda: _look_up(connection, topic).response == _CONNECT)
        assert _look_up(connection, topic).brokerServiceUrl == owner.service_url
    _write_and_read(asked, topic)


def test_a_look_up_is_redirected_from_broker_to_broker(leader, others):
    """Nobody has ever served the bundle: the broker that is asked names another one, as a rule the leader."""
    namespace = f"public/unserved-{uuid.uuid4().hex[:8]}"
    leader.admin.create_namespace(namespace)
    asked, topic = others[0], f"persistent://{namespace}/t"
    with RawConnection(asked.service_url) as connection:
        answer = _look_up(connection, topic)
    assert answer.response == _REDIRECT
    assert answer.brokerServiceUrl in {leader.service_url, others[1].service_url}
    _write_and_read(asked, topic)


def test_requests_to_the_admin_service_reach_the_broker_that_serves_the_topic(pulsar_cluster, others, topic):
    asked, owner = others
    _serve(pulsar_cluster, topic, owner)
    pulsar_cluster.admin.create_subscription(topic, "held")
    admin, name = Admin(asked.admin.url), TopicName.parse(topic)
    assert admin.subscriptions(name) == ["held"]
    assert len(admin.ledgers(name)) == 1
    admin.remove_subscription(name, "held")
    assert admin.subscriptions(name) == []


def test_queries_while_a_broker_and_a_bookie_are_killed_and_bundles_split(pulsar_cluster, tmp_path):
    """At least once, effectively once and transactional: see integration/chaos/cluster.py."""
    doubled = copy(pulsar_cluster, tmp_path, _FAULTS, random.Random(1), rows=20_000, partitions=3)
    assert doubled["effectively-once"] == doubled["transactional"] == 0


def _serve(pulsar_cluster, topic, owner):
    """Make a topic, and let one broker serve it."""
    admin = pulsar_cluster.admin
    admin.create_topic(topic)

    def is_served():
        if admin.owner_of(topic) == owner.service_url:
            return True
        # A broker that has just lost its leader may take a bundle back at once.
        admin.unload_bundle("public/default", admin.bundle_of(topic), owner.name)
        return False

    wait_until(is_served, interval=1)


def _look_up(connection, topic):
    request = commands.lookup(connection.new_id(), topic, authoritative=False)
    return connection.exchange(request).lookupTopicResponse


def _write_and_read(asked, topic):
    """Write and read with a client that knows one broker only; the C++ client finds the same."""
    records = numbered(1000, keys=10)
    with Client(ClientOptions(service_url=asked.service_url)) as client:
        with open_writer(client, topic) as writer:
            writer.send(columns_of(records))
            writer.flush()
        assert read_topic(client, topic) == records
    with Peer(asked.service_url) as peer:
        assert peer.read_all(topic) == records
