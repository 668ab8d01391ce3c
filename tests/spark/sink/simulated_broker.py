"""A broker with transactions and topics in memory, at which a fault can strike between any two effects.

It stands where the sink meets the client: ``plug_in`` puts it in the place of ``Transactions``,
``RecordTopic`` and ``append_record``, and what the sink takes for a ``Client`` is the broker itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

import pytest

from pulsar_spark.client import Deadline, StoredRecord
from pulsar_spark.errors import DeadlineError, NotReadyError, SendError, TransactionError
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.spark.sink import commit_log, transactional
from pulsar_spark.spark.sink.commit_records import CommittedRecord, Intent, OpenedRecord, decode_record

T = TypeVar("T")


class Crash(BaseException):
    """The process has died."""


class Fault(Enum):
    """What goes wrong at one effect."""

    CRASH_BEFORE = auto()
    CRASH_AFTER = auto()
    ERROR_BEFORE = auto()  # the broker cannot be reached
    ERROR_AFTER = auto()  # its answer is lost, and no other comes
    LOST_ANSWER = auto()  # its answer to a commit or abort is lost, and asked again it says that it had ended
    TIME_IS_OVER = auto()  # the time of all open transactions is over right before
    ERROR_AND_TIME_IS_OVER = auto()  # the broker cannot be reached for so long


class Stored(NamedTuple):
    position: MessageId
    value: bytes | None
    transaction: TxnId | None


class SimulatedBroker:
    """The state that outlives processes.

    Attributes:
        effects: what has changed the state or was asked of the broker, in order, as tuples of a name and what
            it concerned.
        states: of transactions: "open", "committed" or "aborted".
        has_quota: whether a backlog quota keeps producers out of topics that hold what is ``old``.
        old: the last message that is older than the quota allows.
    """

    def __init__(self) -> None:
        self.effects: list[tuple[Any, ...]] = []
        self.states: dict[TxnId, str] = {}
        self._lock = threading.RLock()
        self._topics: dict[TopicName, list[Stored]] = {}
        self._parts: dict[TxnId, set[TopicName]] = {}
        self._released: dict[TopicName, MessageId] = {}
        self._owners: dict[TopicName, int] = {}
        self._next = 0
        self.has_quota = False
        self.old = MessageId(-1, -1)
        self.start_process()

    def start_process(self, fault: Fault | None = None, at: int = 0) -> None:
        """Begin the life of a process, in which ``fault`` strikes at the effect number ``at``."""
        self._fault, self._at, self._count, self._is_dead = fault, at, 0, False

    @property
    def has_struck(self) -> bool:
        """Whether this process has come as far as to its fault."""
        return self._count > self._at

    def effect(self, name: str, *what: Any, apply: Callable[[], T]) -> T:
        """Let the process do something at the broker."""
        with self._lock:
            if self._is_dead:
                raise Crash
            fault = self._fault if self._count == self._at else None
            self._count += 1
            if fault in (Fault.TIME_IS_OVER, Fault.ERROR_AND_TIME_IS_OVER):
                self.expire()
            if fault is Fault.ERROR_AND_TIME_IS_OVER:
                self.effects.append(("time is over",))
                raise NotReadyError("the broker cannot be reached")
            self._strike(fault, Fault.CRASH_BEFORE, Fault.ERROR_BEFORE)
            result = apply()
            self.effects.append((name, *what))
            self._strike(fault, Fault.CRASH_AFTER, Fault.ERROR_AFTER)
            if fault is Fault.LOST_ANSWER and name in ("commit", "abort"):
                raise TransactionError("whether it has ended is unknown: the answer was lost")
            return result

    def _strike(self, fault: Fault | None, crash: Fault, error: Fault) -> None:
        if fault is crash:
            self._is_dead = True
            raise Crash
        if fault is error:
            raise NotReadyError("the broker cannot be reached")

    # ---- transactions

    def begin(self) -> TxnId:
        transaction = TxnId(0, len(self.states))
        self.states[transaction], self._parts[transaction] = "open", set()
        return transaction

    def add(self, transaction: TxnId, topics: Sequence[TopicName]) -> None:
        self._check_open(transaction)
        self._parts[transaction].update(topics)

    def end(self, transaction: TxnId, state: str) -> None:
        self._check_open(transaction)
        self.states[transaction] = state

    def expire(self) -> None:
        """The time of all open transactions is over."""
        for transaction, state in self.states.items():
            if state == "open":
                self.states[transaction] = "aborted"

    def holding_readers(self) -> set[TxnId]:
        """The open transactions that are a part of some topic."""
        return {each for each, state in self.states.items() if state == "open" and self._parts[each]}

    def _check_open(self, transaction: TxnId) -> None:
        if self.states[transaction] != "open":
            raise TransactionError(f"transaction {transaction} is not there")

    # ---- topics

    def store(self, topic: TopicName, value: bytes | None, transaction: TxnId | None) -> None:
        if transaction is not None:
            self._check_open(transaction)
            assert topic in self._parts[transaction], "it would never end there"
        self._next += 1
        self._topics.setdefault(topic, []).append(Stored(MessageId(1, self._next), value, transaction))

    def visible(self, topic: TopicName, *, with_released: bool = False) -> Iterator[Stored]:
        """What a reader gets: not what was aborted or released, and nothing from an open transaction on."""
        released = MessageId(-1, -1) if with_released else self._released.get(topic, MessageId(-1, -1))
        for stored in self._topics.get(topic, []):
            state = "committed" if stored.transaction is None else self.states[stored.transaction]
            if state == "open":
                return
            if state == "committed" and stored.position > released:
                yield stored

    def open_for_writing(self, topic: TopicName) -> int:
        """Open an exclusive producer, and return how many there were before."""
        self.check_quota(topic)
        self._owners[topic] = self._owners.get(topic, 0) + 1
        return self._owners[topic] - 1

    def check_quota(self, topic: TopicName) -> None:
        """Refuse a producer as a backlog quota does."""
        if self.has_quota and any(each for each in self.visible(topic) if each.position <= self.old):
            raise SendError("the broker refused the request: backlog quota exceeded")

    def grow_old(self) -> None:
        """What is stored up to now is older than the backlog quota allows."""
        self.old = MessageId(1, self._next)

    def trim(self, topic: TopicName) -> None:
        """Remove what is released, as brokers do with whole ledgers."""
        self._topics[topic] = list(self.visible(topic))

    def delete(self, topic: TopicName) -> None:
        """Delete a topic, with all that the broker knows of it."""
        for known in (self._topics, self._released, self._owners):
            known.pop(topic, None)

    def release(self, topic: TopicName, position: MessageId) -> None:
        self._released[topic] = position


class SimulatedTransactions:
    """In the place of ``Transactions``."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def begin(self, ttl: float) -> TxnId:
        return self._broker.effect("begin", ttl, apply=self._broker.begin)

    def add(self, transaction: TxnId, topics: Sequence[TopicName]) -> None:
        self._broker.effect("add", transaction, apply=lambda: self._broker.add(transaction, topics))

    def commit(self, transaction: TxnId, deadline: Deadline | None = None) -> None:
        self._end("commit", transaction, "committed")

    def abort(self, transaction: TxnId) -> None:
        self._end("abort", transaction, "aborted")

    def _end(self, name: str, transaction: TxnId, state: str) -> None:
        self._broker.effect(name, transaction, apply=lambda: self._broker.end(transaction, state))


class SimulatedRecordTopic:
    """In the place of ``RecordTopic``; what is not flushed dies with the process."""

    def __init__(self, broker: SimulatedBroker, topic: TopicName, name: str, *, encryptor: object) -> None:
        self.topic = topic
        self.read_to = MessageId(-1, -1)
        self.owners_before = 0
        self._is_open = False
        self._broker = broker
        self._pending: list[tuple[bytes, TxnId | None]] = []

    def close(self) -> None:
        pass

    def open_for_writing(self) -> None:
        if not self._is_open:
            self.owners_before = self._broker.open_for_writing(self.topic)
            self._is_open = True

    def append(self, value: bytes, *, transaction: TxnId | None = None) -> None:
        self.open_for_writing()
        self._pending.append((value, transaction))

    def flush(self) -> None:
        while self._pending:
            _store_record(self._broker, self.topic, *self._pending.pop(0))

    def read(self) -> list[StoredRecord]:
        found = self._broker.effect("read", apply=lambda: list(self._broker.visible(self.topic)))
        return self._taken(each for each in found if each.position > self.read_to)

    def read_all(self) -> list[StoredRecord]:
        return self._taken(self._broker.visible(self.topic, with_released=True))

    def read_through(self, value: bytes) -> list[StoredRecord]:
        self.append(value)
        self.flush()
        begin = self.read_to
        records = self.read()
        if all(record.value != value for record in records):
            self.read_to = begin
            raise DeadlineError("an open transaction holds readers back")
        return records

    @staticmethod
    def read_ends(broker: SimulatedBroker, topic: TopicName) -> Iterator[list[StoredRecord]]:
        """In the place of ``read_ends``; the first end is the last message."""
        records = [StoredRecord(*each) for each in broker.visible(topic, with_released=True)]
        yield records[-1:]
        yield records

    def open_after_release(self) -> None:
        self.open_for_writing()

    def release_all(self) -> None:
        self.release(self.read_to)

    def _taken(self, stored: Iterable[Stored]) -> list[StoredRecord]:
        records = [StoredRecord(*each) for each in stored]
        self.read_to = max([self.read_to, *(each.position for each in records)])
        return records

    def release(self, position: MessageId) -> None:
        self._broker.effect("release", apply=lambda: self._broker.release(self.topic, position))


def append_record(broker: SimulatedBroker, topic: TopicName, value: bytes, *, encryptor: object) -> None:
    """In the place of ``append_record``."""
    broker.check_quota(topic)
    _store_record(broker, topic, value, None)


def _store_record(broker: SimulatedBroker, topic: TopicName, value: bytes, transaction: TxnId | None) -> None:
    record = decode_record(value[value.index(b"{") :])
    if isinstance(record, Intent):
        effect: tuple[Any, ...] = ("intent", record.batch, record.transactions)
    elif isinstance(record, CommittedRecord):
        assert record.transaction == transaction, "a marker is a part of what it marks"
        effect = ("mark", record.transaction)
    elif isinstance(record, OpenedRecord):
        effect = ("announce", record.transaction)
    else:
        effect = ("token",)
    broker.effect(*effect, apply=lambda: broker.store(topic, value, transaction))


def plug_in(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    """Let the sink meet a new simulated broker, until the test ends."""
    monkeypatch.setattr(transactional, "Transactions", SimulatedTransactions)
    monkeypatch.setattr(commit_log, "RecordTopic", SimulatedRecordTopic)
    monkeypatch.setattr(commit_log, "append_record", append_record)
    return SimulatedBroker()
