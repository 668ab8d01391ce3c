"""Splits a message that is too large for one entry into chunks, one entry each."""

from __future__ import annotations

from collections.abc import Callable

from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.pending import EntryKind, Outgoing
from pulsar_spark.wire.encode_metadata import chunk_fields
from pulsar_spark.wire.frames import Buffer, encode_section_head


class SplitMessage:
    """One message in chunks, which all have its metadata.

    Readers identify them by a common uuid: name and attempt. It must not be used again once a part of the
    message was sent: readers drop a message if they receive one of its chunks twice.

    Args:
        name: of the message within its topic.
        attempt: distinguishes this attempt to send it from others; has the same length each time.
        sequence_ids: the id of the message, as first and as last id.
        metadata: MessageMetadata of the message.
        payload: of the message, compressed if it is to be.
        max_size: bytes that metadata and payload of a chunk may have in sum, before they are encrypted.
        transaction: that the message belongs to, as its metadata also says; None for none.
        seal: encrypts a part; returns metadata fields for its entry, and the encrypted part.

    Attributes:
        entries: the chunks in their order; their payloads are views if they are not encrypted.

    Raises:
        ValueError: the metadata leave no room for a payload.
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
        """Give the chunks the name of another attempt: for readers it is another message."""
        for number, entry in enumerate(self.entries):
            fields = chunk_fields(f"{self._name}-{attempt}", number, len(self.entries), self._total)
            entry.put_head(encode_section_head(self._metadata + fields + self._own[number], entry.payload))
