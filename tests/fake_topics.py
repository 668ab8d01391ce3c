"""What a fake broker stores: topics with ledgers of entries, and the positions of their subscriptions.

No sockets and no threads here; `fake_broker` serves these topics. Entries are kept as the bytes of their
payload sections, as they came.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from google.protobuf.message import DecodeError

from pulsar_spark.ids import MessageId, TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_section_head
from pulsar_spark.wire.wire_values import from_wire_id

NO_MESSAGE = MessageId(-1, -1)

# Kinds of the markers that a broker writes itself when a transaction ends.
_COMMIT_MARKER, _ABORT_MARKER = 21, 22


@dataclass(frozen=True, slots=True)
class FakeEntry:
    """One stored entry; `metadata` is None where the bytes hold none that can be parsed."""

    id: MessageId
    section: bytes
    metadata: pb.MessageMetadata | None
    transaction: TxnId | None

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return max(1, self.permits)

    @property
    def permits(self) -> int:
        """What a broker takes out of a consumer's permits: it believes any number."""
        return 1 if self.metadata is None else self.metadata.num_messages_in_batch

    @property
    def values(self) -> list[bytes]:
        """The values of its messages, which are neither compressed nor encrypted."""
        metadata, payload = split_section(self.section)
        return values_of(metadata, payload)


class FakeTopic:
    """One topic partition.

    Attributes:
        name: the full one.
        ledgers: entries by ledger, in order; the last ledger is the one that is written to.
        cursors: positions of subscriptions, by their names.
        stored_ids: the highest sequence id that is stored of each producer name, for deduplication.
        epoch: number of the last exclusive producer; -1 where there was none.
        is_terminated: whether it stores no more entries.
    """

    def __init__(self, name: str, new_ledger: Callable[[], int]) -> None:
        self.name = name
        self.ledgers: dict[int, list[FakeEntry]] = {new_ledger(): []}
        self.cursors: dict[str, FakeCursor] = {}
        self.stored_ids: dict[str, int] = {}
        self.epoch = -1
        self.is_terminated = False
        self._new_ledger = new_ledger
        self._open: set[TxnId] = set()
        self._aborted: set[TxnId] = set()

    def append(self, section: bytes, transaction: TxnId | None = None) -> FakeEntry:
        """Store an entry at the end."""
        ledger, entries = list(self.ledgers.items())[-1]
        try:
            metadata, _ = split_section(section)
        except (DecodeError, struct.error):
            metadata = None
        entry = FakeEntry(MessageId(ledger, len(entries)), section, metadata, transaction)
        entries.append(entry)
        if transaction is not None:
            self._open.add(transaction)
        return entry

    def store(self, producer_name: str, command: pb.CommandSend, section: bytes) -> FakeEntry | None:
        """Store what a producer sent; None where it is a duplicate.

        A broker compares the first sequence id of a batch; of a chunked message it judges the last chunk.
        """
        metadata, _ = split_section(section)
        highest = max(command.sequence_id, command.highest_sequence_id)
        is_judged = metadata.chunk_id == max(0, metadata.num_chunks_from_msg - 1)
        if is_judged and command.sequence_id <= self.stored_ids.get(producer_name, -1):
            return None
        if is_judged:
            self.stored_ids[producer_name] = max(highest, self.stored_ids.get(producer_name, -1))
        return self.append(section, transaction_of(command))

    def roll(self) -> None:
        """Close the ledger that is written to, and begin another."""
        self.ledgers[self._new_ledger()] = []

    def trim(self, ledger: int) -> None:
        """Forget a closed ledger, as retention does; cursors that stand in it are moved to its end."""
        entries = self.ledgers.pop(ledger)
        if entries:
            self.expire(entries[-1].id)

    def expire(self, position: MessageId) -> None:
        """Move all cursors over what is stored up to a position, as a message TTL does."""
        for cursor in self.cursors.values():
            cursor.skip_to(position)

    def leave_ledger_ends(self) -> None:
        """Move all cursors at the end of a ledger to the next one, as a broker does when it begins that."""
        for ledger, following in pairwise(self.ledgers):
            for cursor in self.cursors.values():
                if self.ledgers[ledger] and cursor.mark == self.ledgers[ledger][-1].id:
                    cursor.skip_to(MessageId(following, -1))

    def end(self, transaction: TxnId, *, commit: bool) -> None:
        """Show what belongs to a transaction, or hide it for ever; a marker is stored either way."""
        self._open.discard(transaction)
        if not commit:
            self._aborted.add(transaction)
        marker = _COMMIT_MARKER if commit else _ABORT_MARKER
        self.append(section_of(b"", producer_name="broker", marker_type=marker))

    @property
    def entries(self) -> list[FakeEntry]:
        """All that are stored, also those that no consumer is given."""
        return [entry for ledger in self.ledgers.values() for entry in ledger]

    @property
    def values(self) -> list[bytes]:
        """The values of all messages that consumers are given, in order."""
        return [value for entry in self.readable if self.is_visible(entry) for value in entry.values]

    @property
    def readable(self) -> list[FakeEntry]:
        """Entries before the first of an open transaction: that holds all readers back."""
        entries = self.entries
        first = next((at for at, entry in enumerate(entries) if entry.transaction in self._open), None)
        return entries[:first]

    def is_visible(self, entry: FakeEntry) -> bool:
        """Whether consumers are given it: no marker, not aborted, and its metadata can be parsed."""
        if entry.metadata is None or entry.metadata.HasField("marker_type"):
            return False
        return entry.transaction not in self._aborted

    @property
    def last_visible(self) -> MessageId:
        """The id of the last visible message; -1:-1 where there is none."""
        if self.hides_end:
            return NO_MESSAGE
        for entry in reversed(self.readable):
            if self.is_visible(entry):
                assert entry.metadata is not None
                is_batch = entry.metadata.HasField("num_messages_in_batch")
                return MessageId(entry.id.ledger, entry.id.entry, entry.messages - 1 if is_batch else -1)
        return NO_MESSAGE

    @property
    def hides_end(self) -> bool:
        """Whether it was terminated with an empty ledger, as after a restart: that is reported as the end."""
        return self.is_terminated and not list(self.ledgers.values())[-1]

    @property
    def end_position(self) -> MessageId:
        """The position of the last entry, visible or not."""
        return self.position_before(MessageId((1 << 63) - 1, (1 << 63) - 1))

    @property
    def reported_end(self) -> MessageId:
        """Where a reader of the end stands."""
        return MessageId(list(self.ledgers)[-1], -1) if self.hides_end else self.end_position

    def mark_of(self, body: Any) -> MessageId:
        """Where a new subscription begins: the position before its first entry."""
        if not body.durable and body.HasField("start_message_id"):
            start = from_wire_id(body.start_message_id)
            return self.reported_end if start == MessageId.LATEST else self.position_before(start)
        if body.initialPosition == pb.CommandSubscribe.Earliest:
            return self.position_before(NO_MESSAGE)
        return self.reported_end

    def position_before(self, position: MessageId) -> MessageId:
        """The position of the entry before `position`; entry -1 where the topic begins there."""
        entries = self.entries
        earlier = [entry.id for entry in entries if entry.id < position]
        if earlier:
            return earlier[-1]
        return MessageId(entries[0].id.ledger if entries else list(self.ledgers)[-1], -1)

    def position_before_time(self, time_ms: int) -> MessageId:
        """The position before the first entry that was published at `time_ms` or later."""
        for entry in self.entries:
            if entry.metadata is not None and entry.metadata.publish_time >= time_ms:
                return self.position_before(entry.id)
        return self.end_position


class FakeCursor:
    """The position of one subscription.

    Attributes:
        mark: the mark-delete position: all up to here is acknowledged.
        is_durable: whether it outlives its consumer.
    """

    def __init__(self, topic: FakeTopic, mark: MessageId, *, is_durable: bool) -> None:
        self.mark = mark
        self.is_durable = is_durable
        self._topic = topic
        self._acked: set[MessageId] = set()
        self._read_to = mark

    def rewind(self, mark: MessageId | None = None) -> None:
        """Read again from the mark on, or from another one that is set now."""
        if mark is not None:
            self.mark = mark
            self._acked.clear()
        self._read_to = self.mark

    def read(self, count: int) -> list[FakeEntry] | None:
        """Read up to `count` entries, and give those that a consumer is to get; None at the end.

        What no consumer is given is acknowledged here, as brokers do.
        """
        found = [entry for entry in self._topic.readable if entry.id > self._read_to][:count]
        if not found:
            return None
        self._read_to = found[-1].id
        given = [one for one in found if self._topic.is_visible(one) and one.id not in self._acked]
        self.ack(entry.id for entry in found if not self._topic.is_visible(entry))
        return given

    def ack(self, ids: Iterable[MessageId]) -> None:
        """Acknowledge single entries."""
        self._acked.update(one for one in ids if one > self.mark)
        for entry in self._topic.entries:
            if entry.id in self._acked:
                self._acked.remove(entry.id)
                self.mark = entry.id
            elif entry.id > self.mark:
                break

    def ack_to(self, position: MessageId) -> None:
        """Acknowledge all up to `position`; one before the mark or after the topic's end is ignored."""
        if self.mark < position <= self._topic.end_position:
            self.mark = position
            self._acked = {one for one in self._acked if one > position}
            self.ack(())

    def skip_to(self, position: MessageId) -> None:
        """Acknowledge all up to `position`, and read on after it."""
        self._read_to = max(self._read_to, position)
        self.mark = max(self.mark, position)
        self._acked = {one for one in self._acked if one > self.mark}
        self.ack(())

    @property
    def backlog(self) -> int:
        """Entries after the mark that are not acknowledged, also those that are never delivered."""
        return sum(entry.id > self.mark and entry.id not in self._acked for entry in self._topic.entries)


def section_of(
    payload: bytes,
    *,
    producer_name: str = "fake",
    sequence_id: int = 0,
    publish_time: int = 1000,
    **more: object,
) -> bytes:
    """The payload section of one entry; `more` are fields of its MessageMetadata."""
    metadata = pb.MessageMetadata(
        producer_name=producer_name.encode(),
        sequence_id=sequence_id,
        publish_time=publish_time,
        **more,  # type: ignore[arg-type]
    )
    return encode_section_head(metadata.SerializeToString(), payload) + payload


def batch_section(values: Iterable[bytes], **metadata: Any) -> bytes:
    """The payload section of a batch."""
    values = list(values)
    body = b""
    for value in values:
        single = pb.SingleMessageMetadata(payload_size=len(value)).SerializeToString()
        body += struct.pack(">I", len(single)) + single + value
    return section_of(body, num_messages_in_batch=len(values), **metadata)


def chunk_sections(value: bytes, parts: int, uuid: str, **metadata: int) -> list[bytes]:
    """The payload sections of one message in chunks."""
    size = -(-len(value) // parts)
    return [
        section_of(
            value[number * size : (number + 1) * size],
            uuid=uuid.encode(),
            chunk_id=number,
            num_chunks_from_msg=parts,
            total_chunk_msg_size=len(value),
            **metadata,  # type: ignore[arg-type]
        )
        for number in range(parts)
    ]


def split_section(section: bytes) -> tuple[pb.MessageMetadata, bytes]:
    """The metadata and the payload of a section, whose checksum is not looked at."""
    at = 6 if section[:2] == b"\x0e\x01" else 0
    (size,) = struct.unpack_from(">I", section, at)
    metadata = pb.MessageMetadata.FromString(section[at + 4 : at + 4 + size])
    return metadata, section[at + 4 + size :]


def signed_metadata(metadata: pb.MessageMetadata) -> bytes:
    """What the origin of a first entry is signed with, besides its payload."""
    if metadata.num_chunks_from_msg > 1:
        return b""
    known = pb.MessageMetadata()
    known.CopyFrom(metadata)
    known.DiscardUnknownFields()
    return known.SerializeToString(deterministic=True)


def values_of(metadata: pb.MessageMetadata, payload: bytes | bytearray | memoryview) -> list[bytes]:
    """The values of an entry's messages, in order."""
    if not metadata.HasField("num_messages_in_batch"):
        return [bytes(payload)]
    values, at = [], 0
    for _ in range(metadata.num_messages_in_batch):
        (size,) = struct.unpack_from(">I", payload, at)
        single = pb.SingleMessageMetadata.FromString(bytes(payload[at + 4 : at + 4 + size]))
        at += 4 + size + single.payload_size
        values.append(bytes(payload[at - single.payload_size : at]))
    return values


def transaction_of(command: pb.CommandSend) -> TxnId | None:
    """The transaction that a SEND belongs to."""
    if not command.HasField("txnid_least_bits"):
        return None
    return TxnId(command.txnid_most_bits, command.txnid_least_bits)
