"""Messages as tests compare them: Record (integration.helpers.peer) here, our client's entries there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from integration.broker.waiting import HANG
from integration.helpers.peer import Record
from pulsar_spark.client import Client, Consumer, SubscriptionOptions
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire.columns.entry_messages import decode_batches, decode_singles
from pulsar_spark.wire.columns.message_columns import DecodedColumns, MessageColumns
from pulsar_spark.wire.entry.codecs import decompress
from pulsar_spark.wire.entry.entries import Entries, Entry
from tests.ranges import read_range

BEGINNING = MessageId(-1, -1)

_LIMIT = 1 << 24


def columns_of(records: Sequence[Record]) -> MessageColumns:
    """The records as our writers take them; `partition` is left out, and so is what no record has."""
    times = [record.event_time or None for record in records]
    properties = [list(record.properties) for record in records]
    keys = [None if record.key is None else record.key.encode() for record in records]
    return MessageColumns(
        value=pa.array([record.value for record in records], pa.binary()),
        key=pa.array(keys, pa.binary()),
        event_time=pa.array(times, pa.int64()) if any(times) else None,
        properties=pa.array(properties, pa.map_(pa.string(), pa.string())) if any(properties) else None,
    )


def decoded(entry: Entry) -> DecodedColumns:
    """The messages of one entry."""
    metadata = entry.metadata
    payload = decompress(metadata.compression, entry.payload, metadata.uncompressed_size, _LIMIT)
    if metadata.HasField("num_messages_in_batch"):
        return decode_batches([payload], [metadata.num_messages_in_batch]).columns
    return decode_singles(Entries.of([entry]), [payload])


def records_of(entries: Iterable[Entry], partition: int = 0) -> list[Record]:
    """The messages of the entries, in their order."""
    return [record for entry in entries for record in _records(decoded(entry), partition)]


def read_partition(
    client: Client, topic: TopicName, start: MessageId = BEGINNING, end: MessageId | None = None
) -> Iterator[Entry]:
    """Give the entries after `start` up to `end`, or to what is the last one now."""
    for group in read_range(client, topic, start, end or last_message(client, topic), poll_timeout=HANG):
        yield from group


def read_topic(client: Client, topic: str) -> list[Record]:
    """Read all that is there, partition after partition."""
    partitions = client.partitions(TopicName.parse(topic))
    return [
        record
        for number, partition in enumerate(partitions)
        for record in records_of(read_partition(client, partition), number)
    ]


def last_message(client: Client, topic: TopicName) -> MessageId:
    """Ask for the last message that is there now, through a subscription that is gone afterwards."""
    with Consumer(client, topic, SubscriptionOptions(name="last-message", durable=False)) as consumer:
        return consumer.last_message_id().last


def numbered(count: int, *, first: int = 0, keys: int = 0, size: int = 0) -> list[Record]:
    """Make messages whose values say their numbers; with `keys`, number n has key n modulo `keys`."""
    return [
        Record(b"%d " % number + b"." * size, key=f"key-{number % keys}" if keys else None)
        for number in range(first, first + count)
    ]


def number_of(record: Record) -> int:
    """The number that `numbered` gave a message."""
    assert record.value is not None
    return int(record.value.split(b" ", 1)[0])


def by_key(records: Iterable[Record]) -> dict[str, list[bytes | None]]:
    """The values of each key, in order; messages without a key, which have no order, are left out."""
    found: dict[str, list[bytes | None]] = {}
    for record in records:
        if record.key is not None:
            found.setdefault(record.key, []).append(record.value)
    return found


def assert_complete(
    records: Iterable[Record], count: int, group: Callable[[Record], object] = lambda record: record.partition
) -> int:
    """Check what at-least-once promises for numbers 0 to `count` - 1; return the number of duplicates.

    Each number is there, and within a group (the partition) the first appearances are in order.
    """
    seen: Counter[int] = Counter()
    latest: dict[object, int] = {}
    for record in records:
        number, name = number_of(record), group(record)
        if number not in seen:
            assert number > latest.get(name, -1), f"{number} came after {latest[name]} in {name}"
            latest[name] = number
        seen[number] += 1
    missing = set(range(count)) - seen.keys()
    assert not missing, f"{len(missing)} of {count} messages are missing, such as {min(missing)}"
    assert len(seen) == count, "there are messages that nobody wrote"
    return seen.total() - count


def _records(columns: DecodedColumns, partition: int) -> Iterator[Record]:
    count = len(columns)
    times = columns.event_time.to_pylist() if columns.event_time is not None else [None] * count
    properties = columns.properties.to_pylist() if columns.properties is not None else [[]] * count
    rows = zip(columns.value.to_pylist(), columns.key.to_pylist(), times, properties, strict=True)
    for value, key, time, pairs in rows:
        text = None if key is None else key.decode()
        yield Record(value, text, tuple(sorted(pairs)), time or 0, partition=partition)
