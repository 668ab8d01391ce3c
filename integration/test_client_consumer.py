"""Consumers and readers against the real broker: positions, permits, acknowledgements, closing."""

from __future__ import annotations

import random
import socket
import threading
import time
from typing import Any

import pytest

from integration.broker import Admin
from integration.broker.ports import free_port
from integration.broker.waiting import FAR_AWAY, HANG, promptly, wait_until
from integration.chaos.messages import (
    BEGINNING,
    last_message,
    number_of,
    numbered,
    read_partition,
    read_topic,
    records_of,
)
from integration.cluster import Cluster
from integration.peer import Peer
from pulsar_spark.client import Client, ClientOptions, Consumer, Deadline, SubscriptionOptions, read_range
from pulsar_spark.errors import (
    BusyError,
    ClosedError,
    ConnectError,
    DataLossError,
    DeadlineError,
    TopicNotFoundError,
    UnsupportedError,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.permits import Permits
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.entries import Entry

WINDOW = 1 << 20
ROLL_AT_ONCE = {"managedLedgerMinLedgerRolloverTimeMinutes": "0"}
DURABLE = SubscriptionOptions(name="held", durable=True, initial=InitialPosition.EARLIEST)


pytestmark = pytest.mark.usefixtures("leaves_nothing")


def reader(start: MessageId | None = None) -> SubscriptionOptions:
    return SubscriptionOptions(name="reader", durable=False, start=start)


def take(consumer: Consumer, count: int, seconds: float = HANG) -> list[Entry]:
    """Receive until there are `count` entries."""
    entries: list[Entry] = []
    deadline = Deadline(seconds)
    while len(entries) < count:
        entries += consumer.receive(deadline)
    assert len(entries) == count
    return entries


def id_of(entry: Entry) -> MessageId:
    return MessageId(entry.ledger, entry.entry)


def numbers(entries: list[Entry]) -> list[int]:
    return [number_of(record) for record in records_of(entries)]


def subscription(admin: Admin, topic: str, name: str = "held") -> dict[str, Any]:
    found: dict[str, Any] = admin.stats(topic)["subscriptions"][name]
    return found


def cursor(admin: Admin, topic: str, name: str = "held") -> dict[str, Any]:
    found: dict[str, Any] = admin.internal_stats(topic)["cursors"][name]
    return found


def entries_of(client: Client, topic: str) -> list[Entry]:
    return list(read_partition(client, TopicName.parse(topic)))


# ---- where reading begins


@pytest.mark.parametrize("batch_size", [0, 5])
def test_a_reader_begins_at_a_message_id(client: Client, peer: Peer, topic: str, batch_size: int) -> None:
    peer.produce(topic, numbered(50), batch_size=batch_size)
    entries = entries_of(client, topic)
    with Consumer(client, TopicName.parse(topic), reader(id_of(entries[3])), Permits(WINDOW)) as consumer:
        assert take(consumer, len(entries) - 3) == entries[3:]


def test_a_reader_without_an_id_begins_at_the_end(client: Client, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(5))
    with Consumer(client, TopicName.parse(topic), reader(), Permits(WINDOW)) as consumer:
        with pytest.raises(DeadlineError, match="no message came within"):
            consumer.receive(Deadline(0.2))
        peer.produce(topic, numbered(3, first=5))
        assert numbers(take(consumer, 3)) == [5, 6, 7]


def test_a_durable_subscription_keeps_its_position(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    peer.produce(topic, numbered(10))
    name = TopicName.parse(topic)
    with Consumer(client, name, DURABLE, Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        consumer.ack_cumulative(id_of(entries[5]))
    assert subscription(admin, topic)["consumers"] == []
    with Consumer(client, name, DURABLE, Permits(WINDOW)) as consumer:
        assert numbers(take(consumer, 4)) == [6, 7, 8, 9]


@pytest.mark.parametrize("batch_size", [0, 4])
def test_a_range_excludes_its_start_and_includes_its_end(
    client: Client, peer: Peer, topic: str, batch_size: int
) -> None:
    peer.produce(topic, numbered(80), batch_size=batch_size)
    entries = entries_of(client, topic)
    for first, last in ((0, 1), (0, len(entries) - 1), (7, 12), (len(entries) - 2, len(entries) - 1)):
        groups = read_range(
            client, TopicName.parse(topic), id_of(entries[first]), id_of(entries[last]), poll_timeout=HANG
        )
        assert [entry for group in groups for entry in group] == entries[first + 1 : last + 1]


def test_an_empty_range_asks_nothing(client: Client) -> None:
    nowhere = TopicName.parse("no-such-topic")
    assert list(read_range(client, nowhere, MessageId(3, 4), MessageId(3, 4), poll_timeout=1.0)) == []


def test_a_range_reaches_over_ledgers(client: Client, peer: Peer, admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    admin.create_subscription(topic, "hold")
    for first in range(0, 40, 10):
        peer.produce(topic, numbered(10, first=first))
        admin.unload(topic)
    entries = entries_of(client, topic)
    assert numbers(entries) == list(range(40))
    assert len({entry.ledger for entry in entries}) == 4
    middle = read_partition(client, TopicName.parse(topic), id_of(entries[4]), id_of(entries[34]))
    assert numbers(list(middle)) == list(range(5, 35))


# ---- the last message


def test_last_message_of_an_empty_topic(client: Client, admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    assert last_message(client, TopicName.parse(topic)).entry == -1
    assert read_topic(client, topic) == []


def test_last_message_without_batches(client: Client, peer: Peer, topic: str) -> None:
    ids = peer.produce(topic, numbered(3))
    last = last_message(client, TopicName.parse(topic))
    assert last == MessageId(ids[-1].ledger_id(), ids[-1].entry_id(), -1)


def test_last_message_in_a_batch(client: Client, peer: Peer, topic: str) -> None:
    ids = peer.produce(topic, numbered(6), batch_size=6)
    last = last_message(client, TopicName.parse(topic))
    assert last == MessageId(ids[-1].ledger_id(), ids[-1].entry_id(), 5)


def test_the_mark_tells_where_a_reader_begins(client: Client, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(10))
    entries = entries_of(client, topic)
    with Consumer(client, TopicName.parse(topic), reader(id_of(entries[4]))) as consumer:
        assert consumer.last_message_id() == (id_of(entries[9]), id_of(entries[3]))


# ---- permits


def test_a_planning_consumer_takes_no_messages(client: Client, peer: Peer, admin: Admin, topic: str) -> None:
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), DURABLE) as consumer:
        for _ in range(3):
            last = consumer.last_message_id().last
        consumer.ack_cumulative(last)
        assert consumer.last_message_id().mark_delete == last
        state = subscription(admin, topic)
        assert state["msgBacklog"] == 0
        assert state["consumers"][0]["availablePermits"] == 0
        assert state["msgOutCounter"] == 0


@pytest.mark.parametrize(("batch_size", "messages"), [(0, 20), (5, 100)])
def test_no_more_is_asked_for_than_the_range_holds(
    client: Client, peer: Peer, admin: Admin, topic: str, batch_size: int, messages: int
) -> None:
    ids = peer.produce(topic, numbered(200), batch_size=batch_size)
    ledger = ids[0].ledger_id()
    before = admin.stats(topic)["msgOutCounter"]
    groups = read_range(
        client, TopicName.parse(topic), MessageId(ledger, 4), MessageId(ledger, 24), poll_timeout=HANG
    )
    assert sum(len(group) for group in groups) == 20
    assert admin.stats(topic)["msgOutCounter"] - before == messages


def test_a_small_window_reads_it_all(client: Client, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(300), batch_size=3)
    end = last_message(client, TopicName.parse(topic))
    groups = read_range(client, TopicName.parse(topic), BEGINNING, end, poll_timeout=HANG, window_bytes=100)
    assert [number for group in groups for number in numbers(group)] == list(range(300))


def test_permits_return_when_a_durable_consumer_is_sent_the_same_again(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    """After an unload the broker repeats what is not acknowledged: none of it is given out, all costs."""
    peer.produce(topic, numbered(30))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(window_bytes=1)) as consumer:
        assert numbers(take(consumer, 30)) == list(range(30))
        admin.unload(topic)
        peer.produce(topic, numbered(5, first=30))
        assert numbers(take(consumer, 5)) == [30, 31, 32, 33, 34]


# ---- seeking


def test_a_durable_subscription_seeks_to_an_id(client: Client, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        consumer.ack_cumulative(id_of(entries[9]))
        consumer.seek(id_of(entries[6]))
        assert take(consumer, 4) == entries[6:]
        consumer.seek(id_of(entries[1]))
        assert take(consumer, 9) == entries[1:]


def test_a_durable_subscription_seeks_to_a_time(client: Client, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(5))
    between = int(time.time() * 1000) + 1
    wait_until(lambda: time.time() * 1000 > between + 1, interval=0.001)
    peer.produce(topic, numbered(5, first=5))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        take(consumer, 10)
        consumer.seek(between)
        assert numbers(take(consumer, 5)) == [5, 6, 7, 8, 9]


def test_a_reader_seeks_to_an_id(client: Client, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), reader(BEGINNING), Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        consumer.seek(id_of(entries[7]))
        assert take(consumer, 3) == entries[7:]
        with pytest.raises(UnsupportedError):
            consumer.seek(0)


# ---- acknowledgements


def test_a_cumulative_acknowledgement_is_at_the_broker(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    peer.produce(topic, numbered(10))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        consumer.ack_cumulative(id_of(entries[6]))
        assert consumer.last_message_id().mark_delete == id_of(entries[6])
        assert subscription(admin, topic)["msgBacklog"] == 3
        consumer.ack_cumulative(id_of(entries[2]))  # Never back.
        assert consumer.last_message_id().mark_delete == id_of(entries[6])


def test_single_acknowledgements_are_at_the_broker(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    peer.produce(topic, numbered(30), batch_size=3)
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        entries = take(consumer, 10)
        for index in (1, 2, 5, 9):
            consumer.acknowledge(id_of(entries[index]))
        consumer.flush_acks()
        assert subscription(admin, topic)["msgBacklog"] == 6
        assert consumer.last_message_id().mark_delete < id_of(entries[0])
        for index in (0, 3, 4):
            consumer.acknowledge(id_of(entries[index]))
        consumer.flush_acks()
        assert consumer.last_message_id().mark_delete == id_of(entries[5])
        assert subscription(admin, topic)["msgBacklog"] == 3
    assert cursor(admin, topic)["markDeletePosition"] == str(id_of(entries[5]))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        assert take(consumer, 3) == entries[6:9]


def test_acknowledgements_go_out_in_time_while_receiving(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    peer.produce(topic, numbered(5))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        for entry in take(consumer, 5):
            consumer.acknowledge(id_of(entry))
        with pytest.raises(DeadlineError):
            consumer.receive(Deadline(0.5))
        assert subscription(admin, topic)["msgBacklog"] == 0


def test_closing_sends_the_acknowledgements_that_wait(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    peer.produce(topic, numbered(5))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        for entry in take(consumer, 5):
            consumer.acknowledge(id_of(entry))
    state = subscription(admin, topic)
    assert state["msgBacklog"] == 0
    assert state["consumers"] == []


def test_acknowledges_more_than_one_group(client: Client, peer: Peer, admin: Admin, topic: str) -> None:
    peer.produce(topic, numbered(2500), max_pending_messages=3000)
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        for entry in take(consumer, 2500):
            consumer.acknowledge(id_of(entry))
    assert subscription(admin, topic)["msgBacklog"] == 0


# ---- closing


def test_closing_a_reader_leaves_no_subscription(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    peer.produce(topic, numbered(100))
    name = TopicName.parse(topic)
    with Consumer(client, name, reader(BEGINNING), Permits(WINDOW)):
        assert admin.subscriptions(topic) == ["reader"]
    assert admin.subscriptions(topic) == []
    groups = read_range(client, name, BEGINNING, last_message(client, name), poll_timeout=HANG)
    next(groups)
    assert len(admin.subscriptions(topic)) == 1
    groups.close()
    assert admin.subscriptions(topic) == []
    list(read_partition(client, name))
    assert admin.subscriptions(topic) == []


def test_unsubscribing_removes_the_subscription(client: Client, peer: Peer, admin: Admin, topic: str) -> None:
    peer.produce(topic, numbered(1))
    with Consumer(client, TopicName.parse(topic), DURABLE) as consumer:
        assert admin.subscriptions(topic) == ["held"]
        consumer.unsubscribe()
        assert admin.subscriptions(topic) == []


def test_closing_after_an_unload_leaves_no_consumer(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    """The acknowledgements that wait make it subscribe again, and that subscription must be closed."""
    peer.produce(topic, numbered(5))
    with Consumer(client, TopicName.parse(topic), DURABLE, Permits(WINDOW)) as consumer:
        entries = take(consumer, 5)
        admin.unload(topic)
        consumer.acknowledge(id_of(entries[0]))
    state = subscription(admin, topic)
    assert state["msgBacklog"] == 4
    assert state["consumers"] == []


def test_a_closed_client_does_not_connect_again(cluster: Cluster, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(1))
    client = Client(ClientOptions(service_url=cluster.service_url))
    consumer = Consumer(client, TopicName.parse(topic), reader(BEGINNING), Permits(WINDOW))
    take(consumer, 1)
    client.close()
    try:
        with pytest.raises(ClosedError):
            consumer.receive(Deadline(HANG))
    finally:
        client.close()


# ---- refusals


def test_a_second_exclusive_consumer_is_refused(
    client: Client, cluster: Cluster, admin: Admin, topic: str
) -> None:
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


def test_a_second_consumer_gets_its_turn(client: Client, cluster: Cluster, admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    name = TopicName.parse(topic)
    first = Consumer(client, name, DURABLE)
    timer = threading.Timer(0.5, first.close)
    timer.start()
    with Consumer(client, name, DURABLE) as second:
        assert second.last_message_id().last.entry == -1
    timer.join()


@pytest.mark.parametrize("missing", ["no-such-topic", "public/no-such-namespace/topic", "no-such-tenant/a/b"])
def test_a_missing_topic_is_an_error_at_once(client: Client, missing: str) -> None:
    name = TopicName.parse(missing)
    with promptly():
        with pytest.raises(TopicNotFoundError, match=missing):
            client.partitions(name)
        with pytest.raises(TopicNotFoundError, match=missing):
            Consumer(client, name, DURABLE)


def test_a_topic_that_is_deleted_under_a_reader_is_an_error(
    client: Client, peer: Peer, admin: Admin, topic: str
) -> None:
    peer.produce(topic, numbered(3))
    with Consumer(client, TopicName.parse(topic), reader(BEGINNING), Permits(WINDOW)) as consumer:
        take(consumer, 3)
        admin.delete_topic(topic)
        with pytest.raises(TopicNotFoundError):
            consumer.receive(Deadline(HANG))
    assert topic not in admin.topics()


def test_finds_partitions_and_topics(client: Client, admin: Admin, topic: str) -> None:
    admin.create_partitioned_topic(topic, 3)
    name = TopicName.parse(topic)
    partitions = [name.of_partition(number) for number in range(3)]
    assert client.partitions(name) == partitions
    assert client.partitions(partitions[1]) == [partitions[1]]
    found = client.topics_of_namespace("public", "default")
    assert set(partitions) <= set(found)
    assert client.topics_of_namespace("public", "no-such-namespace") == []


# ---- several hosts


def test_goes_past_dead_hosts(cluster: Cluster, admin: Admin, topic: str) -> None:
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


def test_only_dead_hosts_are_an_error(topic: str) -> None:
    url = f"pulsar://127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    text = r"cannot connect to 127.0.0.1:\d+: .*service\.url"
    with (
        Client(ClientOptions(service_url=url, operation_timeout=1.0)) as client,
        pytest.raises(ConnectError, match=text),
    ):
        client.partitions(TopicName.parse(topic))


# ---- what the broker forgot


def test_an_acknowledgement_is_made_good_when_the_broker_went_back(
    client: Client, admin: Admin, peer: Peer, topic: str
) -> None:
    """As after a crash, which loses the last position of a cursor."""
    admin.create_topic(topic)
    name = TopicName.parse(topic)
    with Consumer(client, name, DURABLE) as consumer:
        peer.produce(topic, numbered(10))
        last = consumer.last_message_id().last
        consumer.ack_cumulative(last)
        wait_until(lambda: admin.backlog(topic, "held") == 0)
        first = MessageId(last.ledger, 0)
        consumer.seek(first)
        assert consumer.last_message_id().mark_delete < first
    with Consumer(client, name, DURABLE) as consumer:
        consumer.ack_cumulative(last)
        assert consumer.last_message_id().mark_delete == last
        consumer.ack_cumulative(last)


def test_a_range_that_is_gone_is_an_error_at_once(broker_factory, topic: str) -> None:
    """Short ledgers and no retention: what no subscription holds is trimmed."""
    broker = broker_factory({"managedLedgerMaxEntriesPerLedger": "5", **ROLL_AT_ONCE})
    broker.admin.create_topic(topic)
    broker.admin.create_subscription(topic, "hold")
    name = TopicName.parse(topic)
    with Client(ClientOptions(service_url=broker.service_url)) as client, Peer(broker.service_url) as peer:
        peer.produce(topic, numbered(12))
        with Consumer(client, name, reader(BEGINNING)) as consumer:
            begins = consumer.last_message_id().mark_delete
        peer.produce(topic, numbered(13))
        broker.admin.delete_subscription(topic, "hold")
        broker.admin.unload(topic)
        broker.admin.trim(topic)
        gone = MessageId(begins.ledger, 4)
        wait_until(lambda: begins.ledger not in ledgers(broker.admin, topic))
        with pytest.raises(DataLossError, match=rf"{gone}\] are lost") as raised, promptly():
            list(read_range(client, name, begins, gone, poll_timeout=FAR_AWAY))
    assert raised.value.topic == topic


def ledgers(admin: Admin, topic: str) -> set[int]:
    return {ledger["ledgerId"] for ledger in admin.internal_stats(topic)["ledgers"]}


def test_a_first_host_that_is_silent_leaves_time_for_the_second(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "randrange", lambda count: 0)  # by this the first host is chosen
    with socket.create_server(("127.0.0.1", 0)) as silent:
        second = cluster.service_url.removeprefix("pulsar://")
        url = f"pulsar://127.0.0.1:{silent.getsockname()[1]},{second}"
        options = ClientOptions(service_url=url, operation_timeout=10.0, connection_timeout=10.0)
        with Client(options) as client:
            assert client.topics_of_namespace("public", "default") is not None
