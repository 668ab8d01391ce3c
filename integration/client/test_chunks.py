"""Chunked messages: whole whatever range is read, wherever its borders are."""

import logging
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from integration.chaos.messages import BEGINNING, last_message
from integration.fixtures.own_broker import own_cluster
from integration.helpers.peer import CompressionType, Record
from integration.helpers.raw import RawConnection, RawProducer
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.chunk_assembler import ChunkLimits
from pulsar_spark.wire.entry.codecs import decompress
from tests.ranges import read_range

# Small messages, and ledgers of seven entries: chunks are cheap, and often in another ledger than the first.
BROKER = {
    "maxMessageSize": "10240",
    "managedLedgerMaxEntriesPerLedger": "7",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}

pytestmark = pytest.mark.usefixtures("leaves_nothing")


cluster = own_cluster


@pytest.fixture
def producer(cluster, topic):
    with RawConnection(cluster.service_url) as connection:
        yield Chunker(RawProducer(connection, topic))


class Message(NamedTuple):
    """A message as a range gives it: ids of its last and first chunk, and its value."""

    id: MessageId
    first: MessageId | None
    value: bytes


class Chunker:
    """Writes chunks one by one, of as many messages at a time as a test wants."""

    def __init__(self, producer):
        self._producer = producer

    def chunk(self, uuid, number, chunks, **fields):
        total = len(whole(uuid, chunks))
        usual = {"total_chunk_msg_size": total, "uncompressed_size": total, "num_chunks_from_msg": chunks}
        payload = fields.pop("payload", part(uuid, number))
        return self._producer.send(payload, uuid=uuid, chunk_id=number, **(usual | fields))

    def chunks(self, uuid, numbers, chunks):
        return [self.chunk(uuid, number, chunks) for number in numbers]

    def plain(self, value, **fields):
        return self._producer.send(value, **fields)


def part(uuid, number):
    return f"{uuid}.{number};".encode()


def whole(uuid, chunks):
    return b"".join(part(uuid, number) for number in range(chunks))


def read(client, topic, start=BEGINNING, end=None, **options):
    name = TopicName.parse(topic)
    end = end or last_message(client, name)
    groups = read_range(client, name, start, end, poll_timeout=600.0, visible=False, **options)
    return [message_of(entry) for group in groups for entry in group]


def message_of(entry):
    metadata = entry.metadata
    value = decompress(metadata.compression, entry.payload, metadata.uncompressed_size, 1 << 30)
    return Message(MessageId(entry.ledger, entry.entry), entry.first_chunk, bytes(value))


def assert_any_border(client, topic, entries, wanted):
    """Check that however the topic is cut in two or three, its parts hold each message once."""
    everything = [BEGINNING, *entries]

    def check(cut):
        first, second = everything[cut], everything[min(cut + 3, len(everything) - 1)]
        parts = [(BEGINNING, first), (first, second), (second, everything[-1])]
        found = [message for start, end in parts for message in read(client, topic, start, end)]
        assert sorted(found, key=lambda message: message.id) == found
        assert len(found) == len(wanted)
        assert set(found) == wanted
        for start, end in parts:
            assert all(start < message.id <= end for message in read(client, topic, start, end))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(len(everything))))


def value(name, size):
    return name.encode() + b" " + random.Random(name).randbytes(size)


def chunked(peer, topic, values, **options):
    """Write messages, in chunks where they are too large for one; return their ids."""
    ids = peer.produce(topic, [Record(each) for each in values], chunking_enabled=True, **options)
    return [MessageId(each.ledger_id(), each.entry_id()) for each in ids]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ---- as the C++ client writes them


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_any_border_between_chunked_and_plain_messages(client, peer, topic, compression):
    sizes = [100, 25_000, 10, 45_000, 30_000, 5, 5, 12_000]
    values = [value(str(number), size) for number, size in enumerate(sizes)]
    ids = chunked(peer, topic, values, compression=compression)
    found = read(client, topic)
    assert [message.value for message in found] == values
    assert [message.id for message in found] == ids
    for message, size in zip(found, sizes, strict=True):
        assert (message.first is not None) == (size > 10_240)
        assert message.first is None or message.first < message.id
    ledgers = range(ids[0].ledger, ids[-1].ledger + 1)
    entries = [MessageId(ledger, entry) for ledger in ledgers for entry in range(7)]
    assert_any_border(client, topic, [each for each in entries if each <= ids[-1]], set(found))


# ---- chunk by chunk


def test_any_border_between_interleaved_messages(client, topic, producer):
    """Also what a producer sends again after a reconnect, from the first chunk on or from a later one."""
    log = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("c", 0), ("a", 0), ("a", 1), ("b", 1), ("", 0)]
    log += [("b", 2), ("a", 2), ("c", 1), ("a", 3), ("c", 2), ("b", 3), ("b", 3), ("c", 3), ("", 1)]
    entries = [
        producer.chunk(uuid, number, 4) if uuid else producer.plain(b"plain %d" % number)
        for uuid, number in log
    ]
    wanted = {
        Message(entries[12], entries[5], whole("a", 4)),
        Message(entries[14], entries[1], whole("b", 4)),
        Message(entries[16], entries[4], whole("c", 4)),
        Message(entries[8], None, b"plain 0"),
        Message(entries[17], None, b"plain 1"),
    }
    assert_any_border(client, topic, entries, wanted)


def test_the_beginning_may_be_many_ledgers_before(client, topic, producer):
    first = producer.chunk("a", 0, 2)
    for number in range(30):
        before = producer.plain(b"%d" % number)
    last = producer.chunk("a", 1, 2)
    assert last.ledger > first.ledger + 3
    assert read(client, topic, before, last) == [Message(last, first, whole("a", 2))]


@pytest.fixture
def stranger(cluster, topic):
    """Another producer, of another name."""
    with RawConnection(cluster.service_url) as connection:
        yield Chunker(RawProducer(connection, topic))


def test_a_strangers_chunks_do_not_come_into_another_producers_message(client, topic, producer, stranger):
    """The row was half the stranger's, and named the other producer."""
    log = [(producer, 0), (stranger, 0), (stranger, 2), (producer, 1), (stranger, 1), (stranger, 1)]
    entries = [who.chunk("a", number, 3) for who, number in log]
    entries.append(producer.chunk("a", 2, 3))
    assert_any_border(client, topic, entries, {Message(entries[-1], entries[0], whole("a", 3))})
    last = stranger.chunk("a", 2, 3)
    own = {Message(entries[-1], entries[0], whole("a", 3)), Message(last, entries[1], whole("a", 3))}
    assert_any_border(client, topic, [*entries, last], own)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stranger_under_the_producers_name(client, topic, producer, stranger, number):
    """The broker checks no names, but all of a client's chunks have one time and one sequence id."""
    own: dict[str, Any] = {"producer_name": "victim", "publish_time": 1_700_000_000_000, "sequence_id": 7}
    entries = []
    for each in range(3):
        entries.append(producer.chunk("a", each, 3, **own))
        if each < 2:
            entries.append(stranger.chunk("a", number, 3, producer_name="victim", payload=b"?.0;"))
    assert len(part("a", number)) == len(b"?.0;")
    assert_any_border(client, topic, entries, {Message(entries[-1], entries[0], whole("a", 3))})


def test_what_was_cut_off_is_left_out(client, topic, producer, caplog):
    producer.chunks("cut", [0, 1], 3)
    producer.chunks("lost", [0, 2], 3)
    producer.chunks("late", [1, 2], 3)
    producer.chunks("later", [1], 3)
    plain = producer.plain(b"plain")
    start = producer.chunks("whole", [0, 1, 2], 3)[0]
    found = read(client, topic)
    assert [(message.value, message.first) for message in found] == [
        (b"plain", None),
        (whole("whole", 3), start),
    ]
    [warning] = warnings(caplog)
    assert f"{topic}: 2 incomplete chunked messages in (-1:-1, {found[-1].id}] are left out" in warning
    assert "1 because its first chunk is missing" in warning
    assert found[0].id == plain


def test_a_message_that_took_too_long_is_left_out(client, topic, producer, caplog):
    times = [1_700_000_000_000 + seconds * 1000 for seconds in (0, 30, 61)]
    entries = [producer.chunk("a", number, 3, publish_time=time) for number, time in enumerate(times)]
    for start in (BEGINNING, entries[1]):
        assert read(client, topic, start) == []
        assert len(read(client, topic, start, chunks=ChunkLimits(expire=70.0))) == 1
    assert len(warnings(caplog)) == 2


def test_more_messages_than_are_kept_in_the_making(client, topic, producer, caplog):
    """The oldest go, and are read again when their last chunks come, or are given up, as is asked for."""
    uuids = "abcd"
    for number in range(3):
        for uuid in uuids:
            producer.chunk(uuid, number, 3)
    found = read(client, topic, chunks=ChunkLimits(max_pending=2))
    assert [message.value for message in found] == [whole(uuid, 3) for uuid in uuids]
    assert warnings(caplog) == []
    kept = read(client, topic, chunks=ChunkLimits(max_pending=2, auto_ack_oldest=True))
    assert kept == found[2:]
    assert len(warnings(caplog)) == 1
