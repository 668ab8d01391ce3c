"""Probing: entries, times, ledgers' ends, watches for arrivals; with short ledgers and the broker's index."""

import bisect
import threading
import time
from dataclasses import dataclass

import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import BEGINNING, last_message, numbered
from integration.fixtures.own_broker import own_proxied
from integration.helpers.peer import Record
from integration.helpers.raw import RawConnection, RawProducer
from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    EntryInfo,
    EntryProbe,
    PlanningClient,
    SubscriptionOptions,
    Tail,
)
from pulsar_spark.errors import DeadlineError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire.commands import InitialPosition

BROKER = {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "maxMessageSize": "102400",
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}
HELD = SubscriptionOptions(name="hold", durable=True, initial=InitialPosition.EARLIEST)
MUCH = 1 << 40


pytestmark = pytest.mark.usefixtures("leaves_nothing")


cluster = own_proxied


@dataclass
class Filled:
    """A topic with some ledgers of all kinds of entries, and what is in it."""

    name: TopicName
    facts: list[EntryInfo]

    @property
    def ids(self):
        return [entry.id for entry in self.facts]


@pytest.fixture
def filled(client, peer, admin, topic):
    """Two dozen entries; nothing but the subscription that holds them may be there when the test ends."""
    admin.create_held_topic(topic)
    for number in range(3):
        peer.produce(topic, numbered(4))
        peer.produce(topic, numbered(12), batch_size=4 + number)
    peer.produce(topic, [Record(b"x" * 250_000)], chunking_enabled=True)
    peer.produce(topic, numbered(3), batch_size=3)
    name = TopicName.parse(topic)
    yield Filled(name, all_facts(client, name))
    wait_until(lambda: admin.subscriptions(topic) == ["hold"])


def all_facts(client, topic):
    """What a consumer of everything sees."""
    found: list[EntryInfo] = []
    options = SubscriptionOptions(name="everything", durable=False, start=BEGINNING)
    with Consumer(client, topic, options, Permits(1 << 20)) as consumer:
        end = consumer.last_message_id().last.whole_entry
        while not found or found[-1].id < end:
            found += [facts(entry) for entry in consumer.receive(client.operation())]
    return found


def facts(entry):
    metadata = entry.metadata
    chunks = metadata.num_chunks_from_msg
    return EntryInfo(
        MessageId(entry.ledger, entry.entry),
        metadata.num_messages_in_batch,
        len(entry.payload) + metadata.ByteSize(),
        metadata.publish_time,
        entry.broker_index,
        chunks > 1 and metadata.chunk_id + 1 < chunks,
        chunks > 1,
    )


# ---- facts


def test_the_topic_is_what_these_tests_need(filled):
    assert len({place.ledger for place in filled.ids}) >= 5
    assert {entry.messages for entry in filled.facts} >= {1, 3, 4, 5, 6}
    assert [entry.chunk for entry in filled.facts if entry.chunked] == [True, True, False]


def test_the_broker_tells_the_index_of_each_entry_s_last_message(filled):
    count, expected = -1, []
    for entry in filled.facts:
        count += entry.messages
        expected.append(count)
    assert [entry.index for entry in filled.facts] == expected


def test_a_peek_finds_the_entry_at_or_behind_a_position(client, filled):
    ids = filled.ids
    ledgers = sorted({place.ledger for place in ids})
    positions = [
        *(BEGINNING, MessageId(0, 0), ids[0], ids[7], ids[-1]),
        *(MessageId(ledgers[1], -1), MessageId(ledgers[1], 5), MessageId(ledgers[2], 1 << 40)),
        *(MessageId(ledgers[3] - 1, 0), MessageId(ledgers[-1], 0)),
    ]
    for position in positions:
        expected = filled.facts[bisect.bisect_left(ids, position)]
        assert PlanningClient(client).probe_entry(filled.name, position) == expected, position


def test_a_peek_at_nothing_ends(cluster, filled):
    with Client(ClientOptions(service_url=cluster.service_url, operation_timeout=3.0)) as client:
        with pytest.raises(DeadlineError):
            PlanningClient(client).probe_entry(filled.name, MessageId(filled.ids[-1].ledger, 1000))
        with pytest.raises(TopicNotFoundError):
            PlanningClient(client).probe_entry(filled.name._replace(local="none"), BEGINNING)


@pytest.mark.parametrize(("messages", "size"), [(1, MUCH), (7, MUCH), (10**6, MUCH), (10**6, 1), (9, 200)])
@pytest.mark.parametrize("first", [0, 1, 11])
def test_a_scout_gives_each_entry_once(client, filled, messages, size, first):
    after = BEGINNING if first == 0 else filled.ids[first - 1]
    end = filled.ids[-2]
    found: list[EntryInfo] = []
    with EntryProbe(client, filled.name, after) as scout:
        while scout.position < end:
            step = scout.read(messages, size, end)
            assert scout.position == step[-1].id
            assert step[-1].id == end or enough(step, messages, size)
            assert not enough(step[:-1], messages, size)
            found += step
        assert scout.read(messages, size, end) == []
        assert scout.read(messages, size, filled.ids[-1]) == filled.facts[-1:]
    assert found == filled.facts[first:-1]


def enough(entries, messages, size):
    complete = sum(entry.messages for entry in entries if not entry.chunk)
    return complete >= messages or sum(entry.size for entry in entries) >= size


def test_a_scout_is_sent_no_more_messages_than_were_asked_for(client, peer, admin, topic):
    admin.create_held_topic(topic)
    peer.produce(topic, numbered(60))
    name = TopicName.parse(topic)
    end = last_message(client, name)
    with EntryProbe(client, name, BEGINNING) as scout:
        for count in (1, 5, 20):
            assert len(scout.read(count, MUCH, end)) == count

        def scouting():
            subscriptions = admin.stats(topic)["subscriptions"]
            (found,) = (value for name, value in subscriptions.items() if name != "hold")
            return found

        wait_until(lambda: scouting()["msgOutCounter"] >= 26)  # counted after they are sent
        assert scouting()["msgOutCounter"] == 26
        assert scouting()["consumers"][0]["availablePermits"] == 0


# ---- times and ledgers


def test_the_first_entry_from_a_time_on(client, filled):
    times = [entry.publish_time for entry in filled.facts]
    assert times == sorted(times)
    asked = {time + step for time in times for step in (0, 1)} | {0, times[0] - 1}
    for time_ms in sorted(asked):
        number = bisect.bisect_left(times, time_ms)
        expected = filled.ids[number] if number < len(times) else None
        for margin in (0, 2, 60_000):
            assert (
                PlanningClient(client).first_at(filled.name, time_ms, margin, BEGINNING, filled.ids[-1])
                == expected
            )


def test_where_ledgers_end(client, admin, filled):
    last = filled.ids[-1]
    entries = {
        ledger["ledgerId"]: ledger["entries"] for ledger in admin.internal_stats(str(filled.name))["ledgers"]
    }
    ledgers = [ledger for ledger in entries if ledger <= last.ledger]
    for ledger in ledgers[:-1]:
        for entry in (-1, 0, 2, entries[ledger]):
            found = PlanningClient(client).ledger_end(filled.name, MessageId(ledger, entry), last)
            assert found == entries[ledger] - 1
    assert PlanningClient(client).ledger_end(filled.name, last, last) == last.entry
    gap = next(ledger for ledger in range(ledgers[0] - 1, last.ledger) if ledger not in entries)
    assert PlanningClient(client).ledger_end(filled.name, MessageId(gap, 3), last) == -1


def test_the_backlog_counts_entries(client, filled):
    with Consumer(client, filled.name, HELD) as consumer:
        assert consumer.backlog() == len(filled.ids)
        consumer.ack_cumulative(filled.ids[9])
        assert consumer.backlog() == len(filled.ids) - 10
        consumer.ack_cumulative(filled.ids[-1])
        assert consumer.backlog() == 0


# ---- tails


def nothing():
    """What a tail calls on another thread, where the test asks the tail itself."""


def is_reached(tail, end):
    assert tail.follow(end)
    return tail.reached >= end


def test_a_tail_moves_by_a_push_and_costs_nothing_before(client, peer, cluster, filled):
    with Tail(client, filled.name, filled.ids[-1], nothing) as tail:
        client.partitions(filled.name)  # what was on its way has arrived
        before = dict(cluster.proxy.forwarded)
        for _ in range(20):
            assert not tail.has_passed(filled.ids[-1])
            time.sleep(0.01)  # the time itself is what is tested
        assert cluster.proxy.forwarded == before
        peer.produce(str(filled.name), numbered(4))
        wait_until(lambda: tail.has_passed(filled.ids[-1]))
        assert not tail.has_chunks


def test_a_tail_follows(client, peer, filled):
    with Tail(client, filled.name, filled.ids[-1], nothing) as tail:
        for _ in range(10):
            end = last_message(client, filled.name).whole_entry
            peer.produce(str(filled.name), numbered(3))
            wait_until(lambda end=end: tail.has_passed(end))
            new = last_message(client, filled.name).whole_entry
            wait_until(lambda new=new: is_reached(tail, new))
            assert not tail.has_passed(new)


def test_what_a_tail_has_taken_in_is_no_backlog(client, peer, admin, filled):
    def backlogs():
        found = admin.stats(str(filled.name))["subscriptions"]
        return [each["msgBacklog"] for name, each in found.items() if "-tail-" in name]

    with Tail(client, filled.name, filled.ids[-1], nothing) as tail:
        for _ in range(3):
            peer.produce(str(filled.name), numbered(4))
            end = last_message(client, filled.name).whole_entry
            wait_until(lambda end=end: is_reached(tail, end))
            wait_until(lambda: backlogs() == [0])


def test_a_tail_goes_on_after_an_entry_that_says_it_holds_two_billion_messages(client, cluster, filled):
    with (
        Tail(client, filled.name, filled.ids[-1], nothing) as tail,
        RawConnection(cluster.direct_url) as connection,
    ):
        producer = RawProducer(connection, str(filled.name))
        for _ in range(3):
            wrong = producer.send(b"v", num_messages_in_batch=(1 << 31) - 1)
            wait_until(lambda wrong=wrong: is_reached(tail, wrong))
            new = producer.send(b"v")
            wait_until(lambda wrong=wrong: tail.has_passed(wrong))
            wait_until(lambda new=new: is_reached(tail, new))


def test_a_tail_sees_each_entry(client, filled):
    for number, entry in enumerate(filled.facts[1:], 1):
        with Tail(client, filled.name, filled.ids[number - 1], nothing) as tail:
            wait_until(lambda tail=tail, number=number: tail.has_passed(filled.ids[number - 1]))
            tail.take()
            assert tail.reached == filled.ids[number]
            assert tail.has_chunks == entry.chunked


def test_a_tail_that_is_lost_has_moved(client, admin, peer, filled):
    end = last_message(client, filled.name).whole_entry
    with Tail(client, filled.name, end, nothing) as tail:
        admin.unload(str(filled.name))
        wait_until(lambda: tail.is_lost)
        assert tail.has_passed(end)
        assert not tail.follow(end)
    with Tail(client, filled.name, end, nothing) as tail:
        assert not tail.has_passed(end)
        peer.produce(str(filled.name), numbered(1))
        wait_until(lambda: tail.has_passed(end))


def test_a_tail_survives_a_restart(cluster, client, admin, peer, topic):
    peer.produce(topic, numbered(3))
    name = TopicName.parse(topic)
    end = last_message(client, name).whole_entry
    with Tail(client, name, end, nothing) as tail:
        cluster.broker.stop()
        cluster.broker.start()
        wait_until(lambda: tail.is_lost)
    with Tail(client, name, end, nothing) as tail:
        assert not tail.has_passed(end)
        peer.produce(topic, numbered(1))
        wait_until(lambda: tail.has_passed(end))


# ---- patience


def test_the_last_message_id_may_take_longer_than_other_answers(cluster, topic):
    cluster.broker.admin.create_topic(topic)
    options = ClientOptions(service_url=cluster.service_url, operation_timeout=3.0)
    reader = SubscriptionOptions(name="reader", durable=False)
    with Client(options) as client, Consumer(client, TopicName.parse(topic), reader) as consumer:
        cluster.proxy.stall()
        with pytest.raises(DeadlineError):
            consumer.backlog()
        later = threading.Timer(4.0, cluster.proxy.resume)
        later.start()
        assert consumer.last_message_id().last.entry == -1
        later.join()
