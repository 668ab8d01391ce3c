"""Entries that are ready to be sent, and the chunks of one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.writing.batcher import Batch
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle
from pulsar_spark.wire.entry.encode_metadata import chunk_fields
from pulsar_spark.wire.frames import encode_command, encode_section_head, is_intact, metadata_of_head


class EntryKind(Enum):
    """The content of an entry."""

    BATCH = "batch"
    SINGLE = "single"
    CHUNK = "chunk"
    LAST_CHUNK = "last chunk"

    @property
    def is_chunk(self) -> bool:
        """Whether the entry is a part of a message."""
        return self in (EntryKind.CHUNK, EntryKind.LAST_CHUNK)


# Globals, because reading an attribute of an enum takes longer.
_CHUNK, _LAST_CHUNK = EntryKind.CHUNK, EntryKind.LAST_CHUNK


@dataclass(slots=True, eq=False)
class Outgoing:
    """One entry, ready to be framed for any connection.

    Attributes:
        sequence_id: id of its first message, and of the entry in SEND_RECEIPT.
        highest_sequence_id: id of its last message.
        messages: number of messages; a chunk counts as one.
        head: checksum and metadata, which precede the payload in the frame.
        transaction: its transaction, as in its metadata; None for none.
        message: the message of a chunk, or None.
        rows: the entry's rows, to send them to another segment if this one is sealed before they are stored.
            Of all chunks of a message, only the last one has them. None: the topic has no segments.
        size: bytes of the payload section.
        held: bytes in memory, including ``rows``.
    """

    sequence_id: int
    highest_sequence_id: int
    messages: int
    head: bytes
    payload: Buffer
    kind: EntryKind
    transaction: TxnId | None = None
    message: SplitMessage | None = None
    rows: Batch | EncodedSingle | None = field(default=None, init=False)
    size: int = field(init=False)
    held: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.held = len(self.head) + len(self.payload)

    def keep(self, rows: Batch | EncodedSingle, size: int) -> None:
        """Keeps the entry's rows, which have ``size`` bytes besides the payload."""
        self.rows = rows
        self.held += size

    def put_head(self, head: bytes) -> None:
        """Replaces the checksum and metadata."""
        before, self.head = len(self.head), head
        self.size += len(head) - before
        self.held += len(head) - before

    def frame(self, producer_id: int) -> tuple[Buffer, Buffer, Buffer]:
        """Returns the SEND frame: command, head and payload."""
        ids = self.sequence_id, self.highest_sequence_id
        is_chunk = self.kind is _CHUNK or self.kind is _LAST_CHUNK
        if self.transaction is None and not is_chunk:
            return commands.send_head(producer_id, ids, self.messages, self.size), self.head, self.payload
        command = commands.send(producer_id, ids, self.messages, self.transaction, is_chunk=is_chunk)
        return encode_command(command, self.size), self.head, self.payload

    @property
    def metadata(self) -> pb.MessageMetadata:
        """Parses the metadata in ``head``."""
        return metadata_of_head(self.head)

    @property
    def intact(self) -> bool:
        """Whether the bytes still match their checksum."""
        return is_intact(self.head, self.payload)


class SplitMessage:
    """One message in chunks, which all have its metadata.

    Readers identify the chunks by a common uuid, made from name and attempt. A uuid must not be used again
    after a chunk was sent, because readers drop a message if they receive one of its chunks twice.

    Args:
        name: name of the message within its topic.
        attempt: name of this attempt to send it; all attempts have names of one length.
        sequence_ids: first and highest sequence id of each entry, both the message's id.
        payload: payload of the message, already compressed.
        max_size: maximum bytes of a chunk's metadata and payload before encryption.
        seal: function that encrypts a part; returns metadata fields for its entry, and the encrypted part.

    Attributes:
        entries: chunks in their order; unencrypted payloads are views.

    Raises:
        ValueError: the metadata leaves no room for a payload.
    """

    def __init__(
        self,
        name: str,
        attempt: str,
        sequence_ids: tuple[int, int],
        metadata: bytes,
        payload: Buffer,
        max_size: int,
        transaction: TxnId | None = None,
        seal: Callable[[Buffer], tuple[bytes, Buffer]] | None = None,
    ) -> None:
        self._name = name
        self._metadata = metadata
        self._total = total = len(payload)
        room = max_size - len(metadata) - len(chunk_fields(f"{name}-{attempt}", total, total, total))
        if room <= 0:
            raise ValueError(f"{max_size} bytes are too few for a chunk")
        parts: list[Buffer] = [memoryview(payload)[start : start + room] for start in range(0, total, room)]
        self._own = [b""] * len(parts)
        if seal is not None:
            sealed = [seal(part) for part in parts]
            self._own, parts = [fields for fields, _ in sealed], [part for _, part in sealed]
        kinds = [EntryKind.CHUNK] * (len(parts) - 1) + [EntryKind.LAST_CHUNK]
        self.entries = [
            Outgoing(*sequence_ids, 1, b"", part, kind, transaction, self)
            for part, kind in zip(parts, kinds, strict=True)
        ]
        self.rename(attempt)

    def rename(self, attempt: str) -> None:
        """Sets the name of another attempt, which readers treat as another message."""
        for number, entry in enumerate(self.entries):
            fields = chunk_fields(f"{self._name}-{attempt}", number, len(self.entries), self._total)
            entry.put_head(encode_section_head(self._metadata + fields + self._own[number], entry.payload))
