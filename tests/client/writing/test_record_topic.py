"""A topic of records: where a read starts, and the order of what its owner does."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.reading.consumer import LastMessageId
from pulsar_spark.client.writing import record_topic
from pulsar_spark.client.writing.record_topic import RecordTopic, StoredRecord, append_record, read_start
from pulsar_spark.errors import BusyError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entries import Entries, Entry

TOPIC = TopicName.parse("records")
PARTITION = TOPIC.of_partition(0)
NONE = MessageId(-1, -1)


def at(entry: int, ledger: int = 1) -> MessageId:
    return MessageId(ledger, entry)


# ---- where a read starts: read so far, last visible, acknowledged up to, start, whether all was released

STARTS = {
    "an empty topic": (NONE, MessageId(1, -1), MessageId(1, -1), None),
    "the first read": (NONE, at(5), MessageId(1, -1), (MessageId(1, -1), False)),
    "after what was released": (NONE, at(5), at(2), (at(2), False)),
    "after what was read": (at(4), at(5), at(2), (at(4), False)),
    "nothing new": (at(5), at(5), at(2), None),
    "nothing new, in a batch": (at(5), MessageId(1, 5, 0), at(2), None),
    "all was released": (NONE, at(5), at(5), (NONE, True)),
    "all was released, to a ledger without entries": (at(4), at(5), MessageId(2, -1), (NONE, True)),
}


@pytest.mark.parametrize(("read_to", "last", "mark", "expected"), STARTS.values(), ids=STARTS.keys())
def test_where_a_read_starts(read_to, last, mark, expected):
    assert read_start(read_to, last, mark) == expected


# ---- what is done, with fakes of a producer, a consumer and a range of entries


class Fakes:
    """What a client gives, in memory; it records what is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.values: list[bytes] = []
        self.batches: list[list[int]] = []  # the entries that each receive() of a consumer gives
        self.mark = NONE
        self.busy = False
        self.options = self
        self.operation_timeout = 30.0
        monkeypatch.setattr(record_topic, "Producer", lambda *args, **_: FakeProducer(self, *args))
        monkeypatch.setattr(record_topic, "Consumer", lambda *args: FakeConsumer(self, *args))
        monkeypatch.setattr(record_topic, "read_range", self.read_range)

    def partitions(self, topic: TopicName, *, create: bool) -> list[TopicName]:
        assert create
        return [topic.of_partition(number) for number in range(2)]

    def operation(self) -> Deadline:
        return Deadline(self.operation_timeout)

    def entries(self, first: int, last: int) -> Entries:
        metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=1)
        return Entries.of(
            [Entry(1, number, metadata, self.values[number], None) for number in range(first, last + 1)]
        )

    def read_range(self, client, topic, start, end, *, poll_timeout, visible):
        assert (topic, poll_timeout, visible) == (PARTITION, 30.0, False)
        self.done.append(("read range", start, end))
        first = start.entry + 1
        for number in range(first, end.entry + 1):
            yield self.entries(number, number)


class FakeProducer:
    def __init__(self, fakes, client, topic, options, partitions):
        assert (topic, partitions) == (PARTITION, 1)
        self.fakes, self.name, self.transaction = fakes, options.name, None

    def send_singles(self, messages):
        (message,) = messages
        self.fakes.values.append(bytes(message.payload))
        self.fakes.done.append(("send", bytes(message.payload), self.transaction))

    def flush(self):
        self.fakes.done.append(("flush", self.name))

    def close(self):
        self.fakes.done.append(("close producer", self.name))


class FakeConsumer:
    def __init__(self, fakes, client, topic, options, permits=None):
        if fakes.busy:
            raise BusyError("another one has it")
        self.fakes, self.options = fakes, options
        if not options.durable:
            fakes.done.append(("read from", options.start))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def last_message_id(self):
        return LastMessageId(at(len(self.fakes.values) - 1), self.fakes.mark)

    def receive(self, deadline):
        first, last = self.fakes.batches.pop(0)
        return self.fakes.entries(first, last)

    def ack_cumulative(self, position):
        self.fakes.done.append(("acknowledge", position))

    def close(self):
        self.fakes.done.append(("close consumer", self.options.durable))


@pytest.fixture
def fakes(monkeypatch) -> Fakes:
    return Fakes(monkeypatch)


def test_somebody_else_appends_a_record(fakes):
    append_record(fakes, TOPIC, b"opened")
    assert fakes.done == [("send", b"opened", None), ("flush", None), ("close producer", None)]


def test_records_go_into_their_transactions(fakes):
    records = RecordTopic(fakes, TOPIC, "owner")
    transaction = TxnId(1, 2)
    records.append(b"a", transaction=transaction)
    records.append(b"b")
    records.flush()
    records.close()
    assert fakes.done == [
        ("send", b"a", transaction),
        ("send", b"b", None),
        ("flush", "owner"),
        ("close producer", "owner"),
        ("close consumer", True),
    ]


def test_records_are_read_once(fakes):
    records = RecordTopic(fakes, TOPIC, "owner")
    assert records.topic == PARTITION
    assert records.read() == ([], False)
    fakes.values += [b"a", b"b"]
    assert records.read() == ([StoredRecord(at(0), b"a"), StoredRecord(at(1), b"b")], False)
    assert records.read_to == at(1)
    assert records.read() == ([], False)
    fakes.values.append(b"c")
    assert records.read().records == [StoredRecord(at(2), b"c")]


def test_what_was_released_by_somebody_else_is_read_and_said(fakes):
    fakes.values += [b"a", b"b"]
    fakes.mark = at(1)
    records, is_released = RecordTopic(fakes, TOPIC, "owner").read()
    assert [record.value for record in records] == [b"a", b"b"]
    assert is_released


def test_reading_through_a_value_ends_when_it_is_visible(fakes):
    fakes.values += [b"a", b"b"]
    records = RecordTopic(fakes, TOPIC, "owner")
    records.read()
    fakes.values += [b"c", b"d"]
    fakes.done.clear()
    fakes.batches = [[2, 2], [3, 4], [5, 5]]
    assert [record.value for record in records.read_through(b"token")] == [b"c", b"d", b"token"]
    assert records.read_to == at(4)
    assert fakes.done == [
        ("send", b"token", None),
        ("flush", "owner"),
        ("read from", at(2)),
        ("close consumer", False),
    ]


def test_what_is_released_is_acknowledged(fakes):
    records = RecordTopic(fakes, TOPIC, "owner")
    records.release(NONE)
    assert not fakes.done
    records.release(at(3))
    assert fakes.done == [("acknowledge", at(3))]


def test_an_owner_that_is_not_let_in_leaves_nothing_open(fakes):
    fakes.busy = True
    with pytest.raises(BusyError):
        RecordTopic(fakes, TOPIC, "owner")
    assert fakes.done == [("close producer", "owner")]
