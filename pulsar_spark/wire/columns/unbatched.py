"""Entries that are not batches <-> MessageColumns.

The fields of such a message are in the entry's own MessageMetadata, and the whole payload is the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints, every, offsets_of, parts_by_size, with_nulls
from pulsar_spark.arrow.join import (
    EncodedField,
    big_endian,
    binary_of,
    bytes_field,
    join,
    lengths,
    shared_field,
    total_sizes,
)
from pulsar_spark.arrow.spans import gather, joined_buffer
from pulsar_spark.ids import TxnId
from pulsar_spark.wire import commands
from pulsar_spark.wire.columns import keys_and_texts
from pulsar_spark.wire.columns.encode_columns import (
    checksum_field,
    flag_field,
    number_field,
    properties_field,
    size_field,
)
from pulsar_spark.wire.columns.message_columns import DecodedColumns, MessageColumns, flag
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import NUMBERS, EntryField
from pulsar_spark.wire.frames import CHECKSUM_MAGIC, checked_head

_SMALL = 4096  # bytes
_UNCHECKED = 6  # bytes of a section that its checksum does not cover


class EncodedSingle(NamedTuple):
    """One message that is its own entry, before the producer adds its fields.

    Attributes:
        metadata: the message's MessageMetadata from field 4 on. Put fields 1 to 3 (producer name, sequence
            id, publish time) before it, and compression, schema version and so on after it.
        payload: uncompressed value.
        sequence_ids: the message's own sequence id, as first and last id; None: the producer's next id.
    """

    metadata: Buffer
    payload: Buffer
    sequence_ids: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SingleSections:
    """n payload sections; each has the metadata and the payload of one message.

    Attributes:
        data: bytes that the checksums cover: size of the metadata, metadata and payload of each section.
        offsets: bounds of the sections, int64[n + 1]; section i is ``data[offsets[i]:offsets[i + 1]]``.
        checksums: checksums, uint32[n].
    """

    data: memoryview
    offsets: Ints
    checksums: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.checksums)

    @property
    def size(self) -> int:
        """Bytes of all sections."""
        return int(self.offsets[-1] - self.offsets[0]) + _UNCHECKED * len(self)

    def fitting(self, size: int) -> int:
        """Returns the maximum number of first sections with at most ``size`` bytes together."""
        ends = self.offsets[1:] - self.offsets[0] + _UNCHECKED * np.arange(1, len(self) + 1)
        return int(np.searchsorted(ends, size, side="right"))

    def part(self, first: int, stop: int) -> SingleSections:
        """Returns the sections from ``first`` up to ``stop``, not copied."""
        return SingleSections(self.data, self.offsets[first : stop + 1], self.checksums[first:stop])

    def split(self) -> list[tuple[bytes, Buffer]]:
        """Returns each section's head, as ``encode_section_head`` makes it, and its payload."""
        parts: list[tuple[bytes, Buffer]] = []
        for checksum, (first, end) in zip(self.checksums, pairwise(self.offsets.tolist()), strict=True):
            payload = first + 4 + int.from_bytes(self.data[first : first + 4], "big")
            parts.append(
                (checked_head(int(checksum), bytes(self.data[first:payload])), self.data[payload:end])
            )
        return parts

    def frames(self, producer_id: int, sequence_id: int, transaction: TxnId | None) -> memoryview:
        """Returns the SEND frames, equal to those of ``commands.send`` and ``encode_command_head``.

        ``sequence_id``: id of the first message; the others have the ids after it.
        """
        before, after = commands.around_sent_id(producer_id, transaction)
        ids = pa.array(np.arange(sequence_id, sequence_id + len(self)))
        body = [*number_field(before, ids), shared_field(after)]
        body_sizes = total_sizes(body, len(self))
        command = [
            shared_field(commands.SEND_TAGS),
            size_field(b"", body_sizes),
            *body,
        ]
        command_sizes = total_sizes(command, len(self))
        sizes = np.diff(self.offsets)
        section = [
            shared_field(CHECKSUM_MAGIC),
            checksum_field(self.checksums),
            EncodedField(binary_of(self.data, self.offsets), sizes),
        ]
        frame_sizes = 4 + command_sizes + _UNCHECKED + sizes
        return join(
            [
                big_endian(frame_sizes),
                big_endian(command_sizes),
                *command,
                *section,
            ],
            len(self),
        ).buffer


class EncodedSingles(Sequence[EncodedSingle]):
    """n messages that are their own entries, by column. Items are made on request.

    Objects for all rows at once would cost as much time in Python's garbage collector as sending them.

    Args:
        metadata: metadata of all messages, one after the other.
        metadata_bounds: bounds of each message's metadata, int64[n + 1].
        payload: bytes that contain the payloads.
        payload_at: start of each payload, int64[n].
        payload_end: end of each payload, int64[n].
        ids: the messages' own sequence ids, int64[n], or None.
    """

    def __init__(
        self,
        metadata: Buffer,
        metadata_bounds: Ints,
        payload: Buffer,
        payload_at: Ints,
        payload_end: Ints,
        ids: Ints | None = None,
    ) -> None:
        self._metadata = metadata
        self._metadata_bounds = metadata_bounds
        self._payload = payload
        self._payload_at = payload_at
        self._payload_end = payload_end
        self._ids = ids

    @property
    def has_ids(self) -> bool:
        """Whether the messages have their own sequence ids."""
        return self._ids is not None

    @property
    def has_gaps(self) -> bool:
        """Whether there are bytes between payloads, as a null may have."""
        return not every(self._payload_end[:-1] == self._payload_at[1:])

    @property
    def sizes(self) -> Ints:
        """Bytes of each message's metadata and payload, int64[n]."""
        return np.diff(self._metadata_bounds) + self._payload_end - self._payload_at

    def sections(self, before: bytes, first_id: int, after: bytes, last: bytes) -> SingleSections:
        """Returns the messages' payload sections, with all fields of their metadata; no payload may be null.

        Args:
            before: first fields, and the tag of the sequence id.
            first_id: sequence id of the first message; the others have the ids after it.
            after: fields between the sequence id and the message's fields.
            last: fields after the message's fields.
        """
        count, bounds = len(self), self._metadata_bounds
        fields = [
            *number_field(before, pa.array(np.arange(first_id, first_id + count))),
            shared_field(after),
            EncodedField(binary_of(self._metadata, bounds), np.diff(bounds)),
            shared_field(last),
        ]
        ends = np.append(self._payload_at, self._payload_end[-1:])
        payloads = binary_of(self._payload, ends)
        return _sections(fields, EncodedField(payloads, np.diff(ends)), count)

    def blocks(self, count: int, size: int) -> Iterator[EncodedSingles]:
        """Cuts the messages into blocks of at most ``count`` and ``size`` bytes, and at least one message."""
        for first, stop in parts_by_size(np.append(0, np.cumsum(self.sizes)), size, count):
            yield self[first:stop]

    def __len__(self) -> int:
        return len(self._payload_at)

    def __iter__(self) -> Iterator[EncodedSingle]:
        metadata, payload = self._metadata, self._payload
        bounds = self._metadata_bounds.tolist()
        ids = repeat(None) if self._ids is None else zip(self._ids.tolist(), self._ids.tolist(), strict=True)
        spans = zip(
            bounds, bounds[1:], self._payload_at.tolist(), self._payload_end.tolist(), ids, strict=False
        )
        for first, last, at, end, own in spans:
            yield EncodedSingle(metadata[first:last], payload[at:end], own)

    @overload
    def __getitem__(self, index: int) -> EncodedSingle: ...

    @overload
    def __getitem__(self, index: slice) -> EncodedSingles: ...

    def __getitem__(self, index: int | slice) -> EncodedSingle | EncodedSingles:
        if isinstance(index, int):
            at = range(len(self))[index]
            (item,) = self[at : at + 1]
            return item
        first, stop, step = index.indices(len(self))
        assert step == 1, "messages are sent in their order"
        return EncodedSingles(
            self._metadata,
            self._metadata_bounds[first : max(first, stop) + 1],
            self._payload,
            self._payload_at[first:stop],
            self._payload_end[first:stop],
            None if self._ids is None else self._ids[first:stop],
        )

    def with_ids(self, ids: Ints) -> EncodedSingles:
        """Returns the same messages with their own sequence ids, int64[n]."""
        return EncodedSingles(
            self._metadata, self._metadata_bounds, self._payload, self._payload_at, self._payload_end, ids
        )


def decode_singles(entries: Entries, payloads: Sequence[Buffer] | None = None) -> DecodedColumns:
    """Decodes entries with one message each, by the rules of :func:`batches.decode_batches`.

    Args:
        entries: entries, none of which is a batch.
        payloads: complete, decompressed payloads; None if the entries have them. A single payload is not
            copied.

    Raises:
        CorruptError: a key flagged as base64 is not base64.
    """
    heads, fields = entries.fields
    null = flag(fields, EntryField.NULL_VALUE)
    if payloads is None and entries.body is not None:
        value = gather(pa.py_buffer(entries.body), *fields.value, None if null is None else ~null)
    else:
        value = _values(entries.payloads if payloads is None else payloads, null)
    return DecodedColumns(pa.py_buffer(heads), fields, NUMBERS, value=value)


def encode_singles(columns: MessageColumns, *, key_bytes: bool = False) -> EncodedSingles:
    """Encodes each row as an unbatched message; arguments and rules as for ``encode_batch_messages``.

    ``sequence_id`` is not written, because the producer sets an entry's sequence id.

    Raises:
        OptionError: the properties contain a null, or there are more than 2 GiB of metadata at once.
    """
    keys, is_base64 = keys_and_texts.encode_keys(columns.key, as_bytes=key_bytes)
    value, count = columns.value, len(columns)
    is_null = value.is_null().to_numpy(zero_copy_only=False) if value.null_count else None
    fields = [
        *properties_field(b"\x22", columns.properties),
        *bytes_field(b"\x32", keys),
        *number_field(b"\x60", columns.event_time),
        *flag_field(b"\x88\x01", is_base64),
        *bytes_field(b"\x92\x01", columns.ordering_key),
        *number_field(b"\x98\x01", columns.deliver_at),
        *flag_field(b"\xc8\x01", is_null),
    ]
    metadata = join(fields, count)
    return EncodedSingles(bytes(metadata.buffer), metadata.offsets, *_payloads(value))


def _sections(metadata: Sequence[EncodedField], payload: EncodedField, count: int) -> SingleSections:
    """Joins sections and computes their checksums; raises OptionError for more than 2 GiB."""
    sized = [big_endian(total_sizes(metadata, count)), *metadata]
    data, offsets = (joined := join([*sized, payload], count)).buffer, joined.offsets
    checksums = [crc32c(data[first:end]) for first, end in pairwise(offsets.tolist())]
    return SingleSections(data, offsets, np.array(checksums, np.uint32))


def _values(payloads: Sequence[Buffer], null: Flags | None) -> pa.BinaryArray:
    offsets = np.zeros(len(payloads) + 1, np.int32)
    np.cumsum([len(payload) for payload in payloads], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), joined_buffer(payloads)]
    values = pa.Array.from_buffers(pa.binary(), len(payloads), buffers)
    return values if null is None else with_nulls(values, null)


def _payloads(values: pa.BinaryArray) -> tuple[Buffer, Ints, Ints]:
    """Returns the bytes of the rows, and start and end of each row; null is empty."""
    if len(values) == values.null_count:
        nowhere = np.zeros(len(values), np.int64)
        return b"", nowhere, nowhere
    starts = offsets_of(values).astype(np.int64)
    first, last = int(starts[0]), int(starts[-1])
    view = memoryview(values.buffers()[2]).cast("B")[first:last]  # Arrow declares its bytes as signed
    at = starts[:-1] - first
    # A slice of bytes is a copy, which costs less than a view of few bytes.
    payload = bytes(view) if len(view) < _SMALL * len(values) else view
    return payload, at, at + lengths(values)
