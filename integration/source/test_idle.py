"""What a query costs the broker while nothing comes, and that it sees what comes then."""

import time

import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import number_of, numbered
from integration.fixtures.own_broker import own_proxied
from integration.helpers.peer import Peer, Record
from integration.helpers.proxy import Direction
from integration.helpers.triggers import Triggers, partitions_of

# No request is shorter: two lengths, the type, the number of the command's field, its length, two ids.
REQUEST_BYTES = 14
# The requests a second and topic that a query may cost while nothing comes.
ALLOWED = 2
# Seconds of polling until a query has settled, and then those that are measured.
SETTLED = 1.0
MEASURED = 2.0


BROKER = dict[str, str]()

cluster = own_proxied


def requests_while_idle(broker, triggers, position):
    """The most requests that the bytes of a few seconds can be."""
    triggers.poll(position, SETTLED)
    before = broker.proxy.forwarded[Direction.TO_BROKER]
    triggers.poll(position, MEASURED)
    return (broker.proxy.forwarded[Direction.TO_BROKER] - before) / REQUEST_BYTES


def test_an_idle_query_asks_little_and_sees_what_comes(cluster, peer, topic):
    partitions = partitions_of(topic, 50)
    broker = cluster.broker
    broker.admin.create_partitioned_topic(topic, len(partitions))
    with Triggers(cluster.service_url, topic) as triggers:
        position = triggers.planner.initial()
        for number in range(2):
            assert requests_while_idle(cluster, triggers, position) <= ALLOWED * MEASURED
            peer.produce(str(partitions[7 * number]), numbered(1, first=number))
            produced = time.monotonic()
            batch = triggers.next_batch(position)
            print(f"seen after {(time.monotonic() - produced) * 1000:.0f} ms")
            ((_, _, value),) = triggers.rows(batch)
            assert number_of(Record(value)) == number
            position = batch.end
        assert cluster.proxy.open_connections <= 4


@pytest.mark.long
def test_hundreds_of_partitions_are_planned_at_once(cluster, topic):
    count = 500
    broker = cluster.broker
    broker.admin.create_partitioned_topic(topic, count)
    before = cluster.proxy.connections
    for loaded in (False, True):
        began = time.monotonic()
        with Triggers(cluster.service_url, topic) as triggers:
            position = triggers.planner.initial()
            assert triggers.planner.latest(position) == position
            assert len(position.positions) == count
            print(f"{count} partitions, loaded: {loaded}: {time.monotonic() - began:.2f} s")
    # One that gives up soon for the first contact, and one for all else that is kept.
    assert cluster.proxy.connections - before <= 3
    broker.admin.delete_partitioned_topic(topic)


def test_messages_that_wait_for_others_cost_little(cluster, peer, topic):
    peer.produce(topic, numbered(5))
    limits = {"minMessagesPerTrigger": "6", "maxTriggerDelay": "1h"}
    with Triggers(cluster.service_url, topic, **limits) as triggers:
        position = triggers.planner.initial()
        assert requests_while_idle(cluster, triggers, position) <= ALLOWED * MEASURED
        peer.produce(topic, numbered(1, first=5))
        assert len(triggers.rows(triggers.next_batch(position))) == 6


@pytest.mark.long
def test_what_comes_after_a_fault_in_idle_time_is_seen(cluster, peer, topic):
    broker = cluster.broker
    broker.admin.create_partitioned_topic(topic, 3)
    with Triggers(cluster.service_url, topic) as triggers:
        position = triggers.planner.initial()

        def unload():
            broker.admin.unload(topic)

        def restart():
            broker.kill()
            broker.start()

        for number, fault in enumerate((unload, cluster.proxy.cut_all, restart)):
            triggers.poll(position, SETTLED)
            fault()
            with Peer(broker.service_url) as peer:
                peer.produce(topic, numbered(1, first=number, keys=3))
            batch = triggers.next_batch(position)
            ((_, _, value),) = triggers.rows(batch)
            assert number_of(Record(value)) == number
            position = batch.end
        (subscription,) = broker.admin.durable_subscriptions(f"{topic}-partition-0")
        wait_until(lambda: backlog(broker, topic, subscription, triggers, position) == 0)


def backlog(broker, topic, subscription, triggers, position):
    """Entries of all three partitions that are not acknowledged yet, after one more trigger."""
    triggers.planner.latest(position)
    return sum(broker.admin.backlog(f"{topic}-partition-{number}", subscription) for number in range(3))
