"""What a producer is told when it may not write, or not now: by the real broker, each case."""

import time
from threading import Timer

import pytest

from integration.broker.waiting import promptly, wait_until
from integration.chaos.messages import columns_of, numbered
from integration.helpers.clients import entries_of, open_writer
from pulsar_spark.client import AccessMode, Client, ClientOptions
from pulsar_spark.errors import BusyError, SchemaError, SendError

EXCLUSIVE = AccessMode.EXCLUSIVE

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def hasty(cluster):
    """A client that does not wait long for its turn."""
    with Client(ClientOptions(service_url=cluster.service_url, operation_timeout=2.0)) as opened:
        yield opened


def write(client, topic, records, **options):
    with open_writer(client, topic, **options) as writer:
        send_and_flush(writer, records)


def send_and_flush(writer, records):
    writer.send(columns_of(records))
    writer.flush()


# ---- access modes


def test_an_exclusive_producer_fails_at_once_beside_another(client, topic):
    with open_writer(client, topic) as first:
        send_and_flush(first, numbered(1))
        with promptly(10.0), pytest.raises(SendError, match=rf"\[PULSAR_SEND\].*{topic}"):
            open_writer(client, topic, access_mode=EXCLUSIVE)


def test_nobody_writes_beside_an_exclusive_producer(client, hasty, topic):
    text = r"\[PULSAR_BUSY\].*exclusive producer"
    with open_writer(client, topic, access_mode=EXCLUSIVE), pytest.raises(BusyError, match=text):
        write(hasty, topic, numbered(1))
    write(hasty, topic, numbered(1))


def test_waits_for_its_turn(client, peer, topic):
    first = open_writer(client, topic, access_mode=EXCLUSIVE)
    timer = Timer(0.5, first.close)
    timer.start()
    write(client, topic, numbered(3), access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    timer.join()
    assert peer.read_all(topic) == numbered(3)


def test_does_not_wait_for_ever(client, hasty, admin, topic):
    with open_writer(client, topic) as first:
        send_and_flush(first, numbered(1))
        text = rf"\[PULSAR_BUSY\] other producers did not leave .* 2 s; topic {topic}\. .*operationTimeoutMs"
        with pytest.raises(BusyError, match=text):
            open_writer(hasty, topic, access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
        assert len(admin.stats(topic)["publishers"]) == 1
    write(client, topic, numbered(1), access_mode=EXCLUSIVE)  # nobody stands in the queue any more


def test_a_fenced_producer_is_told_so(client, peer, topic):
    with open_writer(client, topic, access_mode=EXCLUSIVE) as old:
        send_and_flush(old, numbered(1))
        with open_writer(client, topic, access_mode=AccessMode.EXCLUSIVE_WITH_FENCING) as new:
            with promptly(10.0), pytest.raises(SendError, match=rf"\[PULSAR_SEND\].*{topic}"):
                send_and_flush(old, numbered(1, first=1))
            send_and_flush(new, numbered(1, first=2))
    assert peer.read_all(topic) == [*numbered(1), *numbered(1, first=2)]


# ---- names, ids, properties


def test_a_producer_has_its_name_and_its_properties(client, admin, topic):
    with open_writer(client, topic, name="orders", properties=(("team", "sales"), ("empty", ""))):
        (publisher,) = admin.stats(topic)["publishers"]
    assert publisher["producerName"] == "orders"
    assert publisher["metadata"] == {"team": "sales", "empty": ""}


def test_ids_begin_behind_the_initial_one(client, topic):
    write(client, topic, numbered(3), initial_sequence_id=41)
    (entry,) = entries_of(client, topic)
    assert (entry.metadata.sequence_id, entry.metadata.highest_sequence_id) == (42, 44)


def test_no_row_is_taken_for_a_duplicate(client, peer, admin, namespace, own_topic):
    admin.set_deduplication(namespace, True)
    for first in (0, 3):
        write(client, own_topic, numbered(3, first=first), name="orders", initial_sequence_id=9)
    assert peer.read_all(own_topic) == numbered(6)


# ---- the topic's policies


def fill_up(client, admin, namespace, topic, policy):
    """Reach the quota of a topic, with a subscription that takes nothing."""
    admin.create_topic(topic)
    admin.create_subscription(topic, "slow")
    write(client, topic, numbered(20, size=1000))
    admin.set_backlog_quota(namespace, limit_bytes=1000, policy=policy)
    wait_until(lambda: admin.stats(topic)["backlogQuotaLimitSize"] == 1000)


def test_waits_while_the_backlog_is_full(client, hasty, peer, admin, namespace, own_topic):
    fill_up(client, admin, namespace, own_topic, "producer_request_hold")
    with pytest.raises(BusyError, match=r"\[PULSAR_QUOTA\].*backlog quota.*raise the backlog quota"):
        write(hasty, own_topic, numbered(1))
    timer = Timer(0.5, admin.delete_subscription, [own_topic, "slow"])
    timer.start()
    write(client, own_topic, numbered(1, first=20))
    timer.join()
    assert peer.read_all(own_topic)[-1] == numbered(1, first=20)[0]


def test_a_full_backlog_is_an_error_at_once_where_that_is_the_policy(client, admin, namespace, own_topic):
    fill_up(client, admin, namespace, own_topic, "producer_exception")
    text = rf"\[PULSAR_SEND\].*backlog quota.*{own_topic}.*raise the backlog quota"
    with promptly(10.0), pytest.raises(SendError, match=text):
        write(client, own_topic, numbered(1))


@pytest.mark.parametrize("batching", [True, False])
def test_a_limit_on_publishing_slows_a_writer_down(client, peer, admin, namespace, own_topic, batching):
    # In this order: a topic that is open takes a new limit over later.
    admin.set_publish_rate(namespace, 50)
    admin.create_topic(own_topic)
    began = time.monotonic()
    write(client, own_topic, numbered(150), batching=batching, batching_max_messages=10)
    assert time.monotonic() - began > 0.5
    assert peer.read_all(own_topic) == numbered(150)


def test_bytes_are_refused_where_a_schema_is_enforced(client, admin, namespace, own_topic):
    # In this order: a topic that is open takes a new policy over later.
    admin.enforce_schemas(namespace)
    admin.create_topic(own_topic)
    path = own_topic.removeprefix("persistent://")
    admin.request("POST", f"schemas/{path}/schema", {"type": "STRING", "schema": "", "properties": {}})
    with promptly(10.0), pytest.raises(SchemaError, match=rf"\[PULSAR_SCHEMA\].*{own_topic}"):
        write(client, own_topic, numbered(1))
