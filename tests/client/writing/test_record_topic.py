"""A topic of records: the order of what its owner does, and what a message is taken for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_spark.client.consuming.consumer_link import LastMessageId
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.writing import record_topic
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import AccessMode, ProducerOptions
from pulsar_spark.client.writing.record_topic import RecordTopic, StoredRecord, append_record
from pulsar_spark.errors import (
    BusyError,
    ConnectError,
    DeadlineError,
    QuotaError,
    SendError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.writing.partition_writer import SentTotals
from pulsar_spark.protocol.writing.pending import SendTimeoutError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry

TOPIC = TopicName.parse("records")
PARTITION = TOPIC.of_partition(0)
NONE = MessageId(-1, -1)


def at(entry: int, ledger: int = 1) -> MessageId:
    return MessageId(ledger, entry)


# ---- what is done, with fakes of a producer, a consumer and a range of entries


class Fakes:
    """What a client gives, in memory; it records what is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.values: list[bytes] = []
        self.transactions: list[TxnId | None] = []
        self.mark = NONE
        self.seen: int | None = None  # the last visible message, where that is not the last one
        self.backlogs = [0]
        self.epoch = 0
        self.refusals = 0  # how many producers a quota keeps out
        self.busy = False
        self.has_positions = True  # of receipts
        self.options = self
        self.operation_timeout = 30.0
        self.subscription_prefix = "role"
        monkeypatch.setattr(record_topic, "_RecordProducer", lambda *a, **k: FakeProducer(self, *a, **k))
        monkeypatch.setattr(record_topic, "Consumer", lambda *args: FakeConsumer(self, *args))
        monkeypatch.setattr(record_topic, "read_entries", self.read_entries)

    def first_partition(self, topic: TopicName) -> TopicName:
        return topic.of_partition(0)

    def forget_first_partition(self, topic: TopicName) -> None:
        self.done.append(("forget", topic))

    def operation(self) -> Deadline:
        return Deadline(self.operation_timeout)

    def reader_name(self, use: str) -> str:
        return f"role-{use}"

    def entry(self, number: int) -> Entry:
        metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=1)
        if self.values[number]:
            metadata.properties.add(key=b"record", value=self.values[number])
        transaction = self.transactions[number] if number < len(self.transactions) else None
        if transaction is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = transaction
        return Entry(1, number, metadata, b"", None)

    def read_entries(self, client, topic, start, end, options):
        assert (topic, options.poll_timeout, options.visible) == (PARTITION, 30.0, False)
        assert not options.fail_on_data_loss
        self.done.append(("read", start, end))
        for number in range(start.entry + 1, end.entry + 1):
            yield Entries.of([self.entry(number)])


class FakeProducer:
    def __init__(self, fakes, client, topic, options, partitions, *, encryptor, may_repeat=False):
        assert (topic, partitions) == (PARTITION, 1)
        is_owner = options.access_mode is AccessMode.EXCLUSIVE_WITH_FENCING
        self.fakes, self.packer = fakes, SimpleNamespace(transaction=None)
        self.sent = SentTotals()
        self.whose = "owner's" if is_owner else "other's"
        self.topic_epoch = fakes.epoch if is_owner else None
        assert may_repeat is is_owner
        assert options.name is None, "others could use the sequence ids of a name"
        if fakes.refusals:
            fakes.refusals -= 1
            raise SendError("backlog exceeded")
        fakes.done.append(("open producer", self.whose, encryptor))

    def send_singles(self, messages):
        (message,) = messages
        head = pb.MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=1).SerializeToString()
        metadata = pb.MessageMetadata.FromString(head + bytes(message.metadata))
        (record,) = metadata.properties
        assert (record.key, bytes(message.payload)) == (b"record", b"")
        self.fakes.values.append(record.value)
        self.fakes.done.append(("send", record.value.decode(), self.packer.transaction))

    def flush(self):
        self.fakes.done.append(("flush", self.whose))
        if self.fakes.has_positions:
            self.sent = SentTotals(last_id=at(len(self.fakes.values) - 1))

    def close(self):
        self.fakes.done.append(("close producer", self.whose))


class FakeConsumer:
    holds_entries = False

    def __init__(self, fakes, client, topic, options, permits=None):
        if fakes.busy:
            raise BusyError("another one has it")
        assert (options.durable, options.name) == (
            (False, "role-reader") if permits is None else (True, "role-owner")
        )
        self.fakes = fakes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def last_message_id(self):
        last = len(self.fakes.values) - 1 if self.fakes.seen is None else self.fakes.seen
        self.fakes.seen = None  # the next time all are visible
        return LastMessageId(at(last), self.fakes.mark)

    def ack_cumulative(self, position):
        self.fakes.done.append(("acknowledge", position))

    def ask_for(self, entries):
        self.fakes.done.append(("ask for", entries))

    def backlog(self):
        return self.fakes.backlogs.pop(0)

    def close(self):
        self.fakes.done.append(("close consumer",))


@pytest.fixture
def fakes(monkeypatch) -> Fakes:
    return Fakes(monkeypatch)


def test_somebody_else_appends_a_record(fakes):
    append_record(fakes, TOPIC, b"opened", encryptor=fakes)
    assert fakes.done == [
        ("open producer", "other's", fakes),
        ("send", "opened", None),
        ("flush", "other's"),
        ("close producer", "other's"),
    ]


def test_records_go_into_their_transactions(fakes):
    records = RecordTopic(fakes, TOPIC, "owner", encryptor=fakes)
    assert not fakes.done  # who only reads shuts nobody out
    transaction = TxnId(1, 2)
    records.append(b"a", transaction=transaction)
    records.append(b"b")
    records.flush()
    records.close()
    assert fakes.done == [
        ("open producer", "owner's", fakes),
        ("send", "a", transaction),
        ("send", "b", None),
        ("flush", "owner's"),
        ("close producer", "owner's"),
        ("close consumer",),
    ]


def test_an_owner_that_has_only_read_has_nothing_to_flush(fakes):
    records = RecordTopic(fakes, TOPIC, "owner")
    records.flush()
    records.close()
    assert fakes.done == [("close consumer",)]


def test_how_many_owners_have_written_before(fakes):
    fakes.epoch = 7
    records = RecordTopic(fakes, TOPIC, "owner")
    assert records.owners_before == 0
    records.open_for_writing()
    records.open_for_writing()
    assert records.owners_before == 7
    assert fakes.done == [("open producer", "owner's", None)]


def test_a_producer_that_has_failed_is_replaced(fakes, monkeypatch):
    """The owner may append the same records again, and is no owner before itself."""
    fakes.epoch = 7
    records = RecordTopic(fakes, TOPIC, "owner")
    records.append(b"a")
    with monkeypatch.context() as patch:
        patch.setattr(FakeProducer, "flush", time_out)
        with pytest.raises(SendTimeoutError):
            records.flush()
    fakes.epoch = 8
    records.append(b"a")
    records.flush()
    assert records.owners_before == 7
    assert [done[0] for done in fakes.done] == [
        *("open producer", "send", "close producer", "open producer", "send", "flush")
    ]


def time_out(_: FakeProducer) -> None:
    raise SendTimeoutError("1 messages were not acknowledged")


def test_records_are_read_once(fakes):
    records = RecordTopic(fakes, TOPIC, "owner")
    assert records.topic == PARTITION
    assert records.read() == []
    fakes.values += [b"a", b"b"]
    assert records.read() == [StoredRecord(at(0), b"a"), StoredRecord(at(1), b"b")]
    assert records.read_to == at(1)
    assert records.read() == []
    fakes.values.append(b"c")
    assert records.read() == [StoredRecord(at(2), b"c")]
    assert [done for done in fakes.done if done[0] == "read"] == [
        ("read", NONE, at(1)),
        ("read", at(1), at(2)),
    ]


def test_what_is_acknowledged_is_read_on_demand_only(fakes):
    fakes.values += [b"a", b"b"]
    fakes.mark = at(0)
    records = RecordTopic(fakes, TOPIC, "owner")
    assert [record.value for record in records.read()] == [b"b"]
    assert [record.value for record in records.read_all()] == [b"a", b"b"]
    assert records.read() == []


def test_somebody_else_reads_the_end_first(fakes, monkeypatch):
    """The broker keeps all records of a ledger, of which the last few matter."""

    def positions_before(client, topic, position, step, growth):
        assert (client, topic, position, step, growth) == (fakes, PARTITION, at(10), 512, 16)
        return iter([at(7), at(1), at(-1)])

    monkeypatch.setattr(record_topic, "positions_before", positions_before)
    fakes.values += [b"%d" % number for number in range(10)]
    ends = RecordTopic.read_ends(fakes, TOPIC)
    assert [record.value for record in next(ends)] == [b"8", b"9"]
    assert fakes.done == [("close consumer",), ("read", at(7), at(9))]
    assert [len(records) for records in ends] == [8, 10]
    fakes.values.clear()
    assert list(RecordTopic.read_ends(fakes, TOPIC)) == []
    monkeypatch.setattr(record_topic, "Consumer", refuse_missing)
    assert list(RecordTopic.read_ends(fakes, TOPIC)) == []


def refuse_missing(*_: object) -> None:
    raise TopicNotFoundError("the topic does not exist")


def test_a_message_says_its_transaction_and_whether_it_is_a_record(fakes):
    fakes.values += [b"a", b""]
    fakes.transactions = [TxnId(1, 2), None]
    assert RecordTopic(fakes, TOPIC, "owner").read() == [
        StoredRecord(at(0), b"a", TxnId(1, 2)),
        StoredRecord(at(1), None),
    ]


def test_the_payload_of_a_message_is_no_record():
    metadata = pb.MessageMetadata()
    assert record_topic._stored(Entry(1, 0, metadata, b"text", None)) == StoredRecord(at(0), None)
    metadata.properties.add(key=b"record", value=b"a")
    assert record_topic._stored(Entry(1, 0, metadata, b"text", None)) == StoredRecord(at(0), b"a")
    metadata.replicated_from = b"c"
    copied = StoredRecord(at(0), b"a", cluster="c")
    assert record_topic._stored(Entry(1, 0, metadata, b"text", None)) == copied


def test_a_message_with_two_records_is_none():
    metadata = pb.MessageMetadata()
    metadata.properties.add(key=b"record", value=b"a")
    metadata.properties.add(key=b"other", value=b"b")
    assert record_topic._stored(Entry(1, 0, metadata, b"text", None)).value == b"a"
    metadata.properties.add(key=b"record", value=b"c")
    assert record_topic._stored(Entry(1, 0, metadata, b"text", None)).value is None


def test_reading_through_a_value_ends_when_it_is_visible(fakes):
    fakes.values += [b"a", b"b"]
    records = RecordTopic(fakes, TOPIC, "owner")
    records.read()
    fakes.values.append(b"c")
    fakes.done.clear()
    fakes.seen = 2  # not yet what is written now
    assert [record.value for record in records.read_through(b"token")] == [b"c", b"token"]
    assert records.read_to == at(3)
    assert fakes.done == [
        ("open producer", "owner's", None),
        ("send", "token", None),
        ("flush", "owner's"),
        ("read", at(1), at(2)),
    ]


def test_a_value_is_read_only_where_something_came_before_it(fakes):
    fakes.values += [b"a", b"b"]
    records = RecordTopic(fakes, TOPIC, "owner")
    assert records.read_through(b"one") == [
        StoredRecord(at(number), b) for number, b in [(0, b"a"), (1, b"b"), (2, b"one")]
    ]
    fakes.done.clear()
    assert records.read_through(b"two") == [StoredRecord(at(3), b"two")]
    assert records.read_to == at(3)
    assert fakes.done == [("send", "two", None), ("flush", "owner's")]
    fakes.values.append(b"c")
    assert [each.value for each in records.read_through(b"three")] == [b"c", b"three"]
    assert fakes.done[-1] == ("read", at(3), at(5))


def test_a_value_that_the_broker_had_stored_before_is_read(fakes):
    """Its receipt has no position; that of an earlier value must not be taken for it."""
    fakes.values.append(b"a")
    records = RecordTopic(fakes, TOPIC, "owner")
    records.read()
    records.append(b"one")
    records.flush()
    fakes.has_positions, fakes.seen = False, 1  # what is written now is not visible yet
    assert records.read_through(b"two") == [StoredRecord(at(1), b"one"), StoredRecord(at(2), b"two")]


def test_a_value_that_is_hidden_does_not_count_as_read(fakes, monkeypatch):
    """It is stored directly after what was read, and an open transaction hides it."""
    fakes.values.append(b"a")
    records = RecordTopic(fakes, TOPIC, "owner")
    records.read()
    fakes.operation_timeout = 0.0
    monkeypatch.setattr(FakeConsumer, "last_message_id", lambda _: LastMessageId(at(0), NONE))
    with pytest.raises(DeadlineError, match="an open transaction holds back readers"):
        records.read_through(b"token")
    assert records.read_to == at(0)


def test_a_record_in_a_transaction_is_always_read(fakes):
    """It is stored, and not visible if the transaction was aborted."""
    records = RecordTopic(fakes, TOPIC, "owner")
    records.read_through(b"intent")
    records.append(b"marker", transaction=TxnId(0, 1))
    records.flush()
    fakes.done.clear()
    records.read()
    assert fakes.done == [("read", at(0), at(1))]


def test_what_was_read_before_an_error_is_read_again(fakes, monkeypatch):
    fakes.values.append(b"a")
    records = RecordTopic(fakes, TOPIC, "owner")
    fakes.seen = 0
    turns = iter([None, ConnectError("the broker restarts")])
    ask = FakeConsumer.last_message_id

    def last_message_id(consumer):
        if (error := next(turns, None)) is not None:
            raise error
        return ask(consumer)

    monkeypatch.setattr(FakeConsumer, "last_message_id", last_message_id)
    with pytest.raises(ConnectError):
        records.read_through(b"token")
    assert [each.value for each in records.read_through(b"other")] == [b"a", b"token", b"other"]


def test_a_value_that_does_not_become_visible(fakes, monkeypatch):
    fakes.operation_timeout = 0.0
    monkeypatch.setattr(FakeConsumer, "last_message_id", lambda _: LastMessageId(at(-1), NONE))
    with pytest.raises(DeadlineError, match="an open transaction holds back readers") as raised:
        RecordTopic(fakes, TOPIC, "owner").read_through(b"token")
    assert raised.value.topic == str(PARTITION)


def test_what_is_released_is_acknowledged(fakes):
    records = RecordTopic(fakes, TOPIC, "owner")
    records.release(NONE)
    assert not fakes.done
    records.release(at(3))
    assert fakes.done == [("acknowledge", at(3))]


def test_all_is_released_when_the_broker_has_read_over_what_it_keeps_to_itself(fakes):
    fakes.values += [b"a", b"b"]
    fakes.backlogs = [2, 1, 0]
    records = RecordTopic(fakes, TOPIC, "owner")
    records.read()
    fakes.done.clear()
    records.release_all()
    assert fakes.done == [("acknowledge", at(1)), ("ask for", 1)]
    assert fakes.backlogs == []


def test_a_broker_may_count_for_a_moment_what_was_released(fakes, monkeypatch):
    records = RecordTopic(fakes, TOPIC, "owner")
    fakes.refusals = 3
    records.open_after_release()
    assert fakes.done == [("open producer", "owner's", None)]
    other = RecordTopic(fakes, TOPIC, "owner")
    monkeypatch.setattr(record_topic, "_STORED_WITHIN", 0.0)
    fakes.refusals = 99
    with pytest.raises(SendError, match="backlog exceeded"):
        other.open_after_release()
    assert fakes.refusals == 98


def test_an_owner_that_is_not_let_in_leaves_nothing_open(fakes):
    fakes.busy = True
    with pytest.raises(BusyError):
        RecordTopic(fakes, TOPIC, "owner")
    assert fakes.done == [("forget", TOPIC)]


def test_a_quota_is_an_error_at_once(monkeypatch):
    """It is the owner's own backlog: to wait for others would block for good."""

    def refuse(*_: object) -> None:
        raise QuotaError("the broker refused the request: backlog exceeded", topic="t")

    monkeypatch.setattr(Producer, "_open", refuse)
    with pytest.raises(SendError, match=r"backlog exceeded; topic t\. .*raise the backlog quota"):
        record_topic._RecordProducer(FakeClient(), PARTITION, ProducerOptions(), 1)  # type: ignore[arg-type]


class FakeClient:
    def operation(self) -> Deadline:
        return Deadline(30.0)
