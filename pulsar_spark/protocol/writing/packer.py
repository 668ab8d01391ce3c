"""Packer: makes one producer's entries: sequence ids, metadata, compression, chunks, size limits.

PartitionWriter sends the entries, and passes the broker's answers to registrations to the Packer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import CryptoError, SendError
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.writing.batcher import Batch, SequenceIds
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing, SplitMessage
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import EncodedSingle, EncodedSingles
from pulsar_spark.wire.entry.codecs import compress
from pulsar_spark.wire.entry.encode_metadata import (
    batch_metadata,
    entry_hash_fields,
    first_message,
    schema_version_field,
    single_metadata_head,
    single_metadata_tail,
    transaction_fields,
)
from pulsar_spark.wire.frames import encode_section_head

# Bytes of the broker's maximum message size that are reserved for an entry's metadata and bookies' fields.
METADATA_ROOM = 1024

# Bytes of METADATA_ROOM for the keys of a batch's first message, which are copied into the batch's metadata.
_KEY_ROOM = METADATA_ROOM // 2


class Encryption(Protocol):
    """Encrypts payloads."""

    @property
    def room(self) -> int:
        """Additional bytes of an encrypted entry."""

    def seal(self, payload: Buffer) -> tuple[bytes, Buffer]:
        """Encrypts a payload; returns fields to append to the entry's metadata, and the encrypted payload."""


class Packer:
    """Packs messages with ids from ``next_sequence_id`` on.

    As in the Java client, a batch's metadata has the key of its first message. Without ``key_based`` the key
    is left out if there is no room for it, or if the payload is encrypted, because metadata is readable.

    Args:
        chunking: whether a single message that is too large becomes chunks.
        chunk_max_message_size: maximum bytes of a chunk; None, or a larger value: the broker's limit.
        key_based: whether all messages of a batch have one key, which must be in the entry's metadata.
        keeps_rows: whether entries keep their rows, because another segment gets them if this one is sealed.

    Attributes:
        max_message_size: the broker's limit in bytes.
        own_ids: checks the sequence ids that rows have in a column, and replaces nulls.
        version_field: encoded schema version of further entries; empty for none.
        origin: function that encodes an entry's origin from the stored payload and the other metadata (empty
            for a chunk); None: entries get no origin.
        attempt: part of chunked messages' names that differs for each connection.
    """

    def __init__(
        self,
        topic: str,
        compression: pb.CompressionType,
        *,
        chunking: bool,
        chunk_max_message_size: int | None,
        encryption: Encryption | None = None,
        key_based: bool = False,
        keeps_rows: bool = False,
    ) -> None:
        self._keeps_rows = keeps_rows
        self._key_based = key_based
        self._topic = topic
        self._compression = compression
        self._chunking = chunking
        self._chunk_max = chunk_max_message_size
        self._encryption = encryption
        self.producer_name = ""
        self.max_message_size = 0
        self.next_sequence_id = 0
        self.own_ids = SequenceIds(-1)
        self.transaction: TxnId | None = None
        self.version_field = b""
        self.origin: Callable[[Buffer, bytes], bytes] | None = None
        self.attempt = ""

    def number_from(self, first_sequence_id: int, last_sequence_id: int) -> None:
        """Sets the next message's id: the first id, or the last stored id (-1: none) + 1 if higher."""
        self.own_ids = SequenceIds(last_sequence_id)
        self.next_sequence_id = max(first_sequence_id, last_sequence_id + 1)

    def registered(self, name: str, max_message_size: int, schema_version: bytes) -> bool:
        """Applies the broker's answer to further entries; returns whether the schema version has changed.

        ``schema_version`` is empty without a schema.
        """
        before, self.version_field = self.version_field, schema_version_field(schema_version)
        self.producer_name, self.max_message_size = name, max_message_size
        return self.version_field != before

    def check_messages(self, body: memoryview, offsets: npt.NDArray[np.int64]) -> None:
        """Refuses messages too large for a batch that has no other message, before any message is sent.

        The i-th encoded message is at ``body[offsets[i]:offsets[i + 1]]``.

        Raises:
            SendError: a message is larger than the broker accepts.
        """
        for number in np.flatnonzero(np.diff(offsets) > self.shared_size(self.max_message_size)):
            start, end = int(offsets[number]), int(offsets[number + 1])
            message = body[start:end]
            room = self.max_batch_size - (_key_excess(first_message(message)) if self._key_based else 0)
            if len(message) > room and len(compress(self._compression, message)) > room:
                raise self._too_large(end - start)

    def check_singles(self, messages: EncodedSingles) -> None:
        """Refuses messages that fit into neither an entry nor chunks; raises as ``check_messages`` does."""
        max_size, sizes = self.max_batch_size, messages.sizes
        for number in np.flatnonzero(sizes > max_size).tolist():
            message = messages[number]
            fields = len(message.metadata)
            if self._chunking:
                fits = fields < self._max_chunk_size // 2
            else:
                fits = fields + len(compress(self._compression, message.payload)) <= max_size
            if not fits:
                raise self._too_large(int(sizes[number]))

    def batch(self, batch: Batch, publish_time: int) -> Outgoing:
        """Returns the entry of a batch; ``publish_time`` is in ms since the epoch.

        Raises:
            SendError: the entry is larger than the broker accepts.
            CryptoError: the entry cannot be encrypted.
        """
        body = batch.parts[0] if len(batch.parts) == 1 else b"".join(batch.parts)
        # The message whose keys are copied into the entry's metadata; None: no keys are copied.
        keyed_by = None if self._encryption is not None and not self._key_based else first_message(body)
        key_excess = 0 if keyed_by is None else _key_excess(keyed_by)
        compression, payload = self._packed(body, key_excess)
        if len(payload) + key_excess > self.max_batch_size and not self._key_based:
            keyed_by = None
        ids = self._ids(batch.sequence_ids, batch.messages)
        metadata = batch_metadata(
            self.producer_name, ids, publish_time, batch.messages, compression, batch.size, keyed_by
        )
        metadata += self._common()
        if batch.hashes is not None:
            metadata += entry_hash_fields(*batch.hashes)
        if self._encryption is not None:
            fields, payload = self._sealed(payload)
            metadata += fields
        metadata += self._origin_of(payload, metadata)
        head = encode_section_head(metadata, payload)
        entry = Outgoing(*ids, batch.messages, head, payload, EntryKind.BATCH, self.transaction)
        if entry.size > self.max_message_size:
            raise self._too_large(entry.size)
        if self._keeps_rows:
            # Keeps the joined bytes, not the slices, because a slice keeps the buffer of all rows in memory.
            entry.keep(batch._replace(parts=(body,)), 0 if payload is body else batch.size)
        return entry

    def singles(self, messages: Iterable[EncodedSingle], publish_time: int) -> Iterator[Outgoing]:
        """Yields one entry for each message, or for each of its chunks; raises as ``batch`` does."""
        compressed = self._compression != pb.NONE
        max_size = self._max_single_size
        for message in messages:
            fields, payload, given = message
            ids = self._ids(given, 1)
            head = single_metadata_head(self.producer_name, ids[0], publish_time)
            tail = b""
            # An empty value is not compressed, because the C++ client would drop it.
            if compressed and len(payload):
                compression, payload = self._packed(payload)
                tail = single_metadata_tail(compression, len(message.payload))
            metadata = b"".join((head, fields, tail, self._common()))
            if len(metadata) + len(payload) <= max_size:
                if self._encryption is not None:
                    sealed_by, payload = self._sealed(payload)
                    metadata += sealed_by
                metadata += self._origin_of(payload, metadata)
                section_head = encode_section_head(metadata, payload)
                entry = Outgoing(*ids, 1, section_head, payload, EntryKind.SINGLE, self.transaction)
                if self._keeps_rows:
                    entry.keep(message, 0 if payload is message.payload else len(message.payload))
                yield entry
            elif self._chunking:
                if not tail:
                    metadata += single_metadata_tail(pb.NONE, len(payload))
                entries = self._chunks(ids, metadata, payload)
                if self._keeps_rows:
                    entries[-1].keep(message, 0 if payload is message.payload else len(message.payload))
                yield from entries
            else:
                raise self._too_large(len(metadata) + len(payload))

    def _chunks(self, ids: tuple[int, int], metadata: bytes, payload: Buffer) -> list[Outgoing]:
        name = f"{self.producer_name}-{ids[0]}"
        try:
            message = SplitMessage(
                name,
                self.attempt,
                ids,
                metadata,
                payload,
                self._max_chunk_size,
                self.transaction,
                None if self._encryption is None and self.origin is None else self._chunk_of,
            )
        except ValueError:
            raise self._too_large(len(metadata) + len(payload)) from None
        return message.entries

    def _common(self) -> bytes:
        """Returns the metadata's last fields, which entries share: schema version and transaction."""
        if self.transaction is None:
            return self.version_field
        return self.version_field + transaction_fields(self.transaction)

    def _origin_of(self, payload: Buffer = b"", metadata: bytes = b"") -> bytes:
        return b"" if self.origin is None else self.origin(payload, metadata)

    def _chunk_of(self, part: Buffer) -> tuple[bytes, Buffer]:
        """Returns fields to append to a chunk's metadata, and its payload."""
        fields, payload = (b"", part) if self._encryption is None else self._sealed(part)
        return fields + self._origin_of(payload), payload

    def _sealed(self, payload: Buffer) -> tuple[bytes, Buffer]:
        assert self._encryption is not None
        try:
            return self._encryption.seal(payload)
        except CryptoError as error:
            raise error.located(self._topic) from None

    @property
    def room(self) -> int:
        """Bytes reserved for metadata and encryption in an entry; raises CryptoError as ``batch`` does."""
        if self._encryption is None:
            return METADATA_ROOM
        try:
            return METADATA_ROOM + self._encryption.room
        except CryptoError as error:
            raise error.located(self._topic) from None

    @property
    def max_batch_size(self) -> int:
        """Maximum uncompressed bytes of a batch that always fits into an entry; raises as ``room``."""
        return self.max_message_size - self.room

    def shared_size(self, max_size: int) -> int:
        """Returns the maximum bytes of a batch of two or more messages, in an entry of ``max_size`` bytes."""
        size = max_size - self.room
        return size // 2 if self._key_based else size

    @property
    def _max_single_size(self) -> int:
        """Maximum bytes of the metadata and payload of a message that is not sent in chunks."""
        # More than ``check_singles`` allows, because it does not count producer name, ids and origin.
        return self._max_chunk_size if self._chunking else self.max_batch_size + METADATA_ROOM // 2

    @property
    def _max_chunk_size(self) -> int:
        if self._chunk_max is None:
            return self.max_batch_size
        added = self.room - METADATA_ROOM + len(self._origin_of())
        return min(self._chunk_max - added, self.max_batch_size)

    def _ids(self, given: tuple[int, int] | None, messages: int) -> tuple[int, int]:
        following = self.next_sequence_id
        ids = given or (following, following + messages - 1)
        if ids[1] >= following:
            self.next_sequence_id = ids[1] + 1
        return ids

    def _packed(self, body: Buffer, key_excess: int = 0) -> tuple[pb.CompressionType, Buffer]:
        payload = compress(self._compression, body)
        if len(payload) > self.max_batch_size - key_excess >= len(body):
            return pb.NONE, body  # uncompressed, because incompressible data may grow past the limit
        return self._compression, payload

    def _too_large(self, size: int) -> SendError:
        return SendError(
            f"a message or batch of {size} bytes does not fit into the broker's limit of "
            f"{self.max_message_size} bytes, with {self.room} bytes for headers",
            topic=self._topic,
            advice="Send values in chunks (pulsar.producer.chunkingEnabled=true with batchingEnabled=false), "
            "compress, or raise the broker's maxMessageSize",
        )


def _key_excess(message: pb.SingleMessageMetadata) -> int:
    """Returns the bytes by which a message's keys exceed the _KEY_ROOM bytes reserved for them."""
    return max(0, len(message.partition_key) + len(message.ordering_key) - _KEY_ROOM)
