"""Ranges that end in what is never delivered, over what is gone, and over what compaction left."""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import BEGINNING, last_message, number_of, numbered, records_of
from integration.fixtures.own_broker import own_cluster
from integration.helpers.cluster import SHORT_LEDGERS
from integration.helpers.peer import Record
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.transactions import SETTINGS, Coordinator
from pulsar_spark.client import Consumer
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId, TopicName
from tests.ranges import read_range

pytestmark = pytest.mark.usefixtures("leaves_nothing")


BROKER = SETTINGS | SHORT_LEDGERS

cluster = own_cluster


@pytest.fixture
def name(admin, topic):
    """A topic with a subscription that holds its data."""
    admin.create_held_topic(topic)
    return TopicName.parse(topic)


def read(client, name, start, end, **options):
    """Ids and payloads of a range; one that nothing but its time-out ends does not end in these tests."""
    groups = read_range(client, name, start, end, poll_timeout=600.0, **options)
    return [(MessageId(each.ledger, each.entry), bytes(each.payload)) for group in groups for each in group]


def borders(ids):
    """All positions from before the first of the ids to after the last, in ledgers of five entries."""
    ledgers = sorted({each.ledger for each in ids})
    return [MessageId(ledger, entry) for ledger in ledgers for entry in range(-1, 8)]


def assert_reads(client, name, written, **options):
    """Check that ranges with any border give what was written between them, and come to an end."""
    everything = borders(list(written))
    pairs = [(BEGINNING, end) for end in everything] + [(start, everything[-1]) for start in everything]

    def check(pair):
        start, end = pair
        expected = [(each, value) for each, value in sorted(written.items()) if start < each <= end]
        assert read(client, name, start, end, visible=False, **options) == expected, pair

    with ThreadPoolExecutor(16) as pool:  # an end that never comes takes a while, but no work
        list(pool.map(check, pairs))


# ---- transactions


def test_ranges_end_in_markers_and_aborted_messages(client, cluster, name):
    with RawConnection(cluster.service_url) as connection:
        coordinator, producer = Coordinator(client), RawProducer(connection, str(name))
        written = {producer.send(b"plain"): b"plain"}
        for end_transaction in (coordinator.commit, coordinator.abort):
            txn = coordinator.begin([str(name)])
            sent = {producer.send(value, txn=txn): value for value in (b"1", b"2")}
            end_transaction(txn)
            written |= sent if end_transaction == coordinator.commit else {}
        assert_reads(client, name, written)
        written[producer.send(b"after")] = b"after"
        assert last_message(client, name) in written
        assert_reads(client, name, written)


def test_a_range_does_not_wait_for_an_open_transaction(client, cluster, name):
    with RawConnection(cluster.service_url) as connection:
        coordinator, producer = Coordinator(client), RawProducer(connection, str(name))
        first = producer.send(b"first")
        txn = coordinator.begin([str(name)])
        opened = producer.send(b"in it", txn=txn)
        after = producer.send(b"after it")
        assert last_message(client, name) == first
        for end in (first, opened, after):
            assert read(client, name, BEGINNING, end, visible=end == first) == [(first, b"first")]
        coordinator.commit(txn)
        everything = [(first, b"first"), (opened, b"in it"), (after, b"after it")]
        assert read(client, name, BEGINNING, after) == everything
        assert read(client, name, first, opened) == everything[1:2]


# ---- ledgers


def test_ranges_begin_and_end_anywhere_in_any_ledger(client, peer, name):
    ids = peer.produce(str(name), numbered(12))
    written = {
        MessageId(each.ledger_id(), each.entry_id()): record.value or b""
        for each, record in zip(ids, numbered(12), strict=True)
    }
    assert len({each.ledger for each in written}) >= 3
    assert_reads(client, name, written)
    assert_reads(client, name, written, begins=MessageId(min(written).ledger, -1))


# ---- lost data


@pytest.fixture
def trimmed(client, peer, admin, name):
    """A topic of which the first 12 messages are gone and 3 are left: its first id, and that of the 12th."""
    ids = peer.produce(str(name), numbered(12))
    admin.unload(str(name))  # a new ledger begins
    trim(admin, str(name), ids[-1].ledger_id())
    peer.produce(str(name), numbered(3, first=12))
    first, last = ids[0], ids[-1]
    return MessageId(first.ledger_id(), first.entry_id()), MessageId(last.ledger_id(), last.entry_id())


def trim(admin, topic, ledger):
    """Take the hold away, and with it all ledgers up to and with `ledger`."""
    admin.delete_subscription(topic, "hold")
    wait_until(lambda: is_trimmed(admin, topic, ledger))


def is_trimmed(admin, topic, ledger):
    """Have the broker drop what nothing holds, and say whether a ledger and all before it are gone."""
    admin.trim(topic)
    return all(each["ledgerId"] > ledger for each in admin.internal_stats(topic)["ledgers"])


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_beginning_that_is_gone(client, name, trimmed, caplog):
    first, _ = trimmed
    last = last_message(client, name)
    begins = MessageId(first.ledger, -1)
    for start in (BEGINNING, begins, first):
        with pytest.raises(DataLossError, match="the remaining messages start after") as raised:
            read(client, name, start, last, begins=begins)
        assert raised.value.topic == str(name)
    assert warnings(caplog) == []
    left = read(client, name, BEGINNING, last, begins=begins, fail_on_data_loss=False)
    assert [int(value.split()[0]) for _, value in left] == [12, 13, 14]
    [warning] = warnings(caplog)
    assert f"{name}: messages in ({begins}, " in warning


def test_where_a_subscription_holds_the_data_a_later_beginning_is_no_loss(client, name, trimmed, caplog):
    """As after a restart of a stream: what was acknowledged is gone."""
    assert len(read(client, name, trimmed[1], last_message(client, name))) == 3
    assert warnings(caplog) == []


@pytest.mark.parametrize("begins", [None, BEGINNING])
def test_an_end_that_is_gone(client, name, trimmed, begins, caplog):
    first, end = trimmed
    begins = None if begins is None else MessageId(first.ledger, -1)
    with pytest.raises(DataLossError, match=rf"\({first}, {end}\] are lost"):
        read(client, name, first, end, begins=begins)
    assert read(client, name, first, end, begins=begins, fail_on_data_loss=False) == []
    [warning] = warnings(caplog)
    assert f"{name}: messages in ({first}, {end}] are lost" in warning


@pytest.mark.parametrize(("start", "last"), [(-1, 4), (0, 2), (3, 4)])
def test_a_part_of_a_range_is_lost_with_its_messages(client, name, trimmed, start, last):
    ledger = trimmed[0].ledger
    positions = MessageId(ledger, start), MessageId(ledger, last)
    part: dict[str, Any] = {"begins": MessageId(ledger, -1), "visible": False, "followed": True}
    with pytest.raises(DataLossError, match=rf"\({positions[0]}, {positions[1]}\] are lost"):
        read(client, name, *positions, **part)
    assert read(client, name, *positions, **part, fail_on_data_loss=False) == []


@pytest.mark.parametrize("end", [9, 11])
def test_a_reader_that_the_broker_moves_from_the_end_of_a_ledger_has_lost_nothing(
    client, peer, admin, name, monkeypatch, end
):
    ids = numbers_written(peer, str(name), 12)
    ask = Consumer.last_message_id
    moved = 0

    def ask_when_moved(reader, deadline=None):
        nonlocal moved
        if ask(reader).mark_delete == ids[4]:
            peer.produce(str(name), numbered(5))  # a new ledger begins
            wait_until(lambda: ask(reader).mark_delete == ids[5].ledger_start)
            moved += 1
        return ask(reader, deadline)

    monkeypatch.setattr(Consumer, "last_message_id", ask_when_moved)
    for options in ({}, {"begins": ids[4]}, {"begins": ids[0].ledger_start, "visible": False}):
        assert len(read(client, name, ids[4], ids[end], **options)) == end - 4
    assert moved >= 3
    assert ids[0].ledger in {each["ledgerId"] for each in admin.internal_stats(str(name))["ledgers"]}


def test_an_empty_topic_has_lost_its_end(client, peer, admin, name):
    last = peer.produce(str(name), numbered(3))[-1]
    admin.unload(str(name))
    trim(admin, str(name), last.ledger_id())
    with pytest.raises(DataLossError):
        read(client, name, BEGINNING, MessageId(last.ledger_id(), last.entry_id()))


def test_ledgers_that_go_away_under_a_reader(client, peer, admin, name, caplog):
    ids = peer.produce(str(name), numbered(60))
    begins = MessageId(ids[0].ledger_id(), -1)

    def begin(**options):
        end = MessageId(last.ledger, last.entry)
        groups = read_range(
            client, name, BEGINNING, end, poll_timeout=600.0, begins=begins, window_bytes=1, **options
        )
        return groups, [number_of(record) for record in records_of(next(groups))]

    trim_behind = ids[-1].ledger_id()
    admin.unload(str(name))
    peer.produce(str(name), numbered(2, first=60))
    last = last_message(client, name)
    careful, read_careful = begin()
    careless, read_careless = begin(fail_on_data_loss=False)
    assert read_careful[0] == 0
    trim(admin, str(name), trim_behind)
    with pytest.raises(DataLossError, match="while it was read"):
        list(careful)
    rest = [number_of(record) for group in careless for record in records_of(group)]
    assert rest[-2:] == [60, 61]
    assert len(read_careless) + len(rest) < 62
    assert len(warnings(caplog)) == 1


# ---- a message TTL moves readers, too


def expire(admin, topic, subscriptions, position):
    """Move subscriptions over all up to a position, and wait until the broker says so."""
    for each in subscriptions:
        backlog = admin.backlog(topic, each)
        admin.expire_to(topic, each, position.ledger, position.entry)
        wait_until(lambda each=each, backlog=backlog: admin.backlog(topic, each) < backlog)


def readers(admin, topic):
    """The subscriptions that hold nothing."""
    return set(admin.subscriptions(topic)) - set(admin.durable_subscriptions(topic))


def numbers_written(peer, topic, count):
    """Write so many entries of one message each."""
    return [MessageId(each.ledger_id(), each.entry_id()) for each in peer.produce(topic, numbered(count))]


@pytest.mark.parametrize("expired", [38, 39, 59])
@pytest.mark.parametrize(("end", "is_batch"), [(59, False), (59, True), (39, False), (31, False)])
def test_a_reader_that_a_message_ttl_moves_gives_what_it_was_moved_over(
    client, peer, admin, name, expired, end, is_batch
):
    ids = numbers_written(peer, str(name), 60)
    begins = MessageId(ids[0].ledger, -1) if is_batch else None
    groups = read_range(client, name, BEGINNING, ids[end], poll_timeout=600.0, window_bytes=1, begins=begins)
    taken = list(next(groups))
    assert len(taken) < 30
    expire(admin, str(name), readers(admin, str(name)), ids[expired])
    taken += [entry for group in groups for entry in group]
    assert [MessageId(entry.ledger, entry.entry) for entry in taken] == ids[: end + 1]


def test_a_reader_that_is_moved_between_the_markers_of_transactions(client, cluster, admin, name):
    ids = []
    with RawConnection(cluster.service_url) as connection:
        coordinator, producer = Coordinator(client), RawProducer(connection, str(name))
        for _ in range(20):
            txn = coordinator.begin([str(name)])
            ids += [producer.send(b"in one", txn=txn) for _ in range(3)]
            coordinator.commit(txn)
    for start in (BEGINNING, ids[2]):
        groups = read_range(client, name, start, ids[-1], poll_timeout=600.0, window_bytes=1)
        taken = list(next(groups))
        wait_until(lambda: len(readers(admin, str(name))) == 1)  # the one before may not be gone yet
        expire(admin, str(name), readers(admin, str(name)), ids[40])
        taken += [entry for group in groups for entry in group]
        expected = [one for one in ids if one > start]
        assert [MessageId(entry.ledger, entry.entry) for entry in taken] == expected


def test_what_a_message_ttl_has_taken_is_lost(client, peer, admin, name):
    """It moves the subscription that holds the data, too: what is trimmed cannot be read any more."""
    ids = numbers_written(peer, str(name), 60)
    groups = read_range(client, name, BEGINNING, ids[-1], poll_timeout=600.0, window_bytes=1)
    taken = list(next(groups))
    expire(admin, str(name), admin.subscriptions(str(name)), ids[40])
    wait_until(lambda: is_trimmed(admin, str(name), ids[35].ledger))
    with pytest.raises(DataLossError, match="while it was read"):
        taken += (entry for group in groups for entry in group)
    assert [MessageId(entry.ledger, entry.entry) for entry in taken] == ids[: len(taken)]


# ---- compaction


@pytest.mark.parametrize("batch_size", [0, 6])
def test_a_compacted_topic(client, peer, admin, name, batch_size):
    """Superseded values and deleted keys are gone, the end among them; what follows is read as it is."""
    records = [Record(b"old", key=f"key-{number}") for number in range(6)]
    records += [Record(b"new", key=f"key-{number}") for number in range(3)]
    records += [Record(None, key="key-0"), Record(b"new", key="key-5"), Record(None, key="key-1")]
    first = peer.produce(str(name), records, batch_size=batch_size)[0].ledger_id()
    end = last_message(client, name)
    admin.compact(str(name))
    wait_until(lambda: admin.compaction_status(str(name)) == "SUCCESS")

    def kept(end, **options):
        groups = read_range(client, name, BEGINNING, end, poll_timeout=600.0, read_compacted=True, **options)
        return [(each.key, each.value) for group in groups for each in records_of(group)]

    expected = {("key-2", b"new"), ("key-3", b"old"), ("key-4", b"old"), ("key-5", b"new")}
    if batch_size == 0 and admin.version().startswith("4.0."):  # it keeps the null values of deleted keys
        expected |= {("key-0", None), ("key-1", None)}
    assert set(kept(end)) == expected
    assert len(kept(end)) == len(expected)
    assert len(read(client, name, BEGINNING, end)) == (len(records) // batch_size if batch_size else 12)
    peer.produce(str(name), [Record(b"newer", key="key-2")])
    expected.add(("key-2", b"newer"))
    assert set(kept(last_message(client, name))) == expected
    if first < end.ledger:  # the compacted messages outlive those they were made of
        trim(admin, str(name), first)
        begins = MessageId(first, -1)
        assert set(kept(last_message(client, name), begins=begins)) == expected


# Metadata that the broker cannot parse: it gives such an entry to nobody. What only protobuf refuses: a field
# of number 0. What both accept, a batch of nothing, is left to those who decode it.
STRANGE: list[dict[str, Any]] = [{"after": b"\x22\0"}, {"after": b"\0\0"}, {"num_messages_in_batch": -1}]


def test_strange_entries_among_others_have_nothing_lost(client, cluster, name, caplog):
    given: list[MessageId] = []
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, str(name))
        for number in range(60):
            given.append(producer.send(b"good"))
            more = STRANGE[number % 3]
            strange = producer.send(b"strange", **more)
            given += [] if "after" in more else [strange]
        given.append(producer.send(b"last"))
    with caplog.at_level(logging.WARNING):
        found = read(client, name, BEGINNING, given[-1], fail_on_data_loss=False)
    assert [place for place, _ in found] == given
    assert "are lost" not in caplog.text
    assert caplog.text.count("an entry that cannot be decoded is left out") == 20


def test_entries_that_overflow_the_permits_do_not_end_the_reading(client, cluster, name):
    """The broker takes an entry's number of messages out of the permits, in 32 bits."""
    given: list[MessageId] = []
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, str(name))
        for claimed in (-(1 << 31), -(1 << 30), -(1 << 30), 1 - (1 << 31)):
            given += [producer.send(b"good") for _ in range(50)]
            given.append(producer.send(b"strange", num_messages_in_batch=claimed))
        given += [producer.send(b"good") for _ in range(50)]
    groups = read_range(client, name, BEGINNING, given[-1], poll_timeout=15.0, fail_on_data_loss=False)
    assert [MessageId(one.ledger, one.entry) for group in groups for one in group] == given
