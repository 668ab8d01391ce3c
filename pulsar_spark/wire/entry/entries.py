"""Received entries by column, before their payloads are decoded; limits of their messages and items.

Any producer can store a few bytes that decompress to millions of messages or items. Items are elements of
lists and maps, and fields found by name. A high compression ratio proves no attack, because equal rows also
compress well. Decoding takes several microseconds a message, and about one microsecond an item. So an
entry may have ITEMS_PER_BYTE items for each stored byte, and ITEMS_PER_UNCOMPRESSED for each uncompressed
byte, which is enough for ordinary values. Further items use an allowance that all entries of a task share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints, gather
from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import MessageId
from pulsar_spark.unparsable import UNPARSABLE
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entry_fields import EntryField, fields_of, read_sections
from pulsar_spark.wire.fields.field_spans import Fields
from pulsar_spark.wire.fields.field_walk import NotPlainError
from pulsar_spark.wire.frame_runs import Messages, joined
from pulsar_spark.wire.frames import decode_payload_section

_FEW = 24  # entries; fewer are parsed by protobuf, which takes less time than numpy's calls
_SMALL = 4096  # mean bytes; larger entries are parsed one by one by protobuf, without copying payloads

# Copied to globals, because access to an attribute of an enum takes longer.
_MESSAGES, _CHUNKS = EntryField.MESSAGES, EntryField.CHUNKS
_PUBLISH_TIME, _SEQUENCE_ID = EntryField.PUBLISH_TIME, EntryField.SEQUENCE_ID
_COMPRESSION, _UNCOMPRESSED_SIZE = EntryField.COMPRESSION, EntryField.UNCOMPRESSED_SIZE
_ENCRYPTION_KEYS, _REPLICATED_FROM = EntryField.ENCRYPTION_KEYS, EntryField.REPLICATED_FROM
_TEXTS_OF_MESSAGES = (
    EntryField.PRODUCER_NAME,
    EntryField.REPLICATED_FROM,
    EntryField.SCHEMA_VERSION,
    EntryField.SCHEMA_ID,
)


class Entry(NamedTuple):
    """One received entry, or a complete chunked message.

    Attributes:
        payload: stored bytes, still compressed; a batch if ``num_messages_in_batch`` is set.
        broker_index: the broker's index of the entry's last message; None if the broker sends none.
        broker_time: arrival at the broker in ms since the epoch; None if the broker sends none.
        first_chunk: id of the first chunk, if this is a complete chunked message; then all attributes but
            ``payload`` are the last chunk's.
    """

    ledger: int
    entry: int
    metadata: pb.MessageMetadata
    payload: Buffer
    broker_index: int | None
    broker_time: int | None = None
    first_chunk: MessageId | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    """The data of n entries; an :class:`Entries` is a block, or some consecutive rows of it.

    Attributes:
        sizes: bytes of metadata and payload, int64[n].
        index: the broker's indexes, int64[n]; -1 for none.
        broker_time: arrival times at the broker in ms since the epoch, int64[n]; -1 for none.
        fields: positions of the metadata's fields in ``heads``, and of payloads (``value``) in ``data``.
        heads: bytes of the metadata of all entries.
        data: bytes that contain the payloads; None: each is in ``payloads``.
        metadata: parsed metadata; None: valid metadata is in ``heads``, from ``fields.start`` to the payload.
        payloads: payload of each entry; None: all are in ``data``.
        first_chunks: ids of first chunks, by row, for complete chunked messages.
        messages: messages of each entry, as in ``Entries.messages``; kept, because readers use it repeatedly.
    """

    ledger: Ints
    entry: Ints
    sizes: Ints
    index: Ints
    broker_time: Ints
    fields: Fields
    heads: bytes
    data: bytes | None
    metadata: Sequence[pb.MessageMetadata] | None
    payloads: Sequence[Buffer] | None
    first_chunks: dict[int, MessageId]
    messages: np.ndarray[tuple[int], np.dtype[np.int32]]


class Entries:
    """n entries in order; slices share their memory. Constructors: :func:`decode` and :meth:`of`."""

    __slots__ = ("_block", "_first", "_stop")

    def __init__(self, block: _Block, first: int, stop: int) -> None:
        self._block = block
        self._first = first
        self._stop = stop

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Entries:
        """Converts single entries to columns; payloads are not copied."""
        return _of(entries, [one.metadata.ByteSize() + len(one.payload) for one in entries])

    def __len__(self) -> int:
        return self._stop - self._first

    def __getitem__(self, rows: slice) -> Entries:
        first, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("entries are sliced in their order, without gaps")
        return Entries(self._block, self._first + first, self._first + max(first, stop))

    def __iter__(self) -> Iterator[Entry]:
        return (self.one(row) for row in range(len(self)))

    @property
    def ledger(self) -> Ints:
        """Ledger ids, int64[n]."""
        return self._block.ledger[self._first : self._stop]

    @property
    def entry(self) -> Ints:
        """Entry ids, int64[n]."""
        return self._block.entry[self._first : self._stop]

    @property
    def sizes(self) -> Ints:
        """Bytes of metadata and payload as sent, int64[n]."""
        return self._block.sizes[self._first : self._stop]

    @property
    def index(self) -> Ints:
        """The broker's index of each entry's last message, int64[n]; -1 if it sends none."""
        return self._block.index[self._first : self._stop]

    @property
    def broker_time(self) -> Ints:
        """Arrival times at the broker in ms since the epoch, int64[n]; -1 if it sends none."""
        return self._block.broker_time[self._first : self._stop]

    @property
    def messages(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """``num_messages_in_batch``, int32[n]; 0: no batch; negative: a batch without messages."""
        return self._block.messages[self._first : self._stop]

    @property
    def publish_time(self) -> Ints:
        """Publish times in ms since the epoch, int64[n]; values above 2**63 - 1 are negative."""
        return self.numbers(_PUBLISH_TIME)[0]

    @property
    def sequence_id(self) -> Ints:
        """Sequence ids (a batch's first), int64[n]; values above 2**63 - 1 are negative."""
        return self.numbers(_SEQUENCE_ID)[0]

    @property
    def last_sequence_id(self) -> Ints:
        """Sequence id of each entry's last message; a batch has consecutive ids, int64[n]."""
        ids: Ints = self.sequence_id + np.maximum(self.messages, 1) - 1
        return ids

    @property
    def chunked(self) -> Flags:
        """Whether entries are chunks, or complete chunked messages, bool[n]."""
        return self.numbers(_CHUNKS)[0].astype(np.int32) > 1

    @property
    def compression(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Returns the CompressionType of each payload, int32[n]; may be an unknown number."""
        return self.numbers(_COMPRESSION)[0].astype(np.int32)

    @property
    def uncompressed_size(self) -> Ints:
        """Declared uncompressed sizes in bytes, int64[n]."""
        return self.numbers(_UNCOMPRESSED_SIZE)[0] & 0xFFFFFFFF

    @property
    def encrypted(self) -> Flags:
        """Whether entries have encryption keys, bool[n]."""
        return self._has(_ENCRYPTION_KEYS)

    @property
    def copied(self) -> Flags:
        """Whether each entry is a replicator's copy from another cluster, bool[n]."""
        return self._has(_REPLICATED_FROM)

    @property
    def payload_sizes(self) -> Ints:
        """Bytes of the stored payloads, int64[n]."""
        if self._block.payloads is not None:
            return np.array([len(one) for one in self._block.payloads[self._first : self._stop]], np.int64)
        at, end = self._block.fields.value
        return (end - at)[self._first : self._stop]

    @property
    def plain_sizes(self) -> Ints:
        """Decompressed size of each payload in bytes, int64[n]; the declared size if it is compressed."""
        stored, compression = self.payload_sizes, self.compression
        return np.where(compression == 0, stored, self.uncompressed_size) if compression.any() else stored

    @property
    def metadata_sizes(self) -> Ints:
        """Bytes of the entries' metadata, int64[n]."""
        metadata = self._block.metadata
        if metadata is not None:
            return np.array([one.ByteSize() for one in metadata[self._first : self._stop]], np.int64)
        return (self._block.fields.value[0] - self._block.fields.start)[self._first : self._stop]

    @property
    def text_sizes(self) -> Ints:
        """Bytes of the fields that each row of an entry repeats, such as the producer's name, int64[n]."""
        sizes, rows = np.zeros(len(self), np.int64), slice(self._first, self._stop)
        for field in _TEXTS_OF_MESSAGES:
            if field in self._block.fields.spans:
                at, end, _ = self._block.fields.spans[field]
                sizes += end[rows] - at[rows]
        return sizes

    @property
    def payloads(self) -> list[Buffer]:
        """The stored payloads, still compressed, without copies."""
        if self._block.data is None:
            assert self._block.payloads is not None
            return list(self._block.payloads[self._first : self._stop])
        view = memoryview(self._block.data)
        at, end = (bound[self._first : self._stop].tolist() for bound in self._block.fields.value)
        return [view[first:last] for first, last in zip(at, end, strict=True)]

    @property
    def fields(self) -> tuple[bytes, Fields]:
        """The bytes that contain the fields' spans, and the fields by ``EntryField`` number."""
        return self._block.heads, self._block.fields.rows(self._first, self._stop)

    @property
    def body(self) -> bytes | None:
        """The bytes that contain the payloads (``value`` of the fields); None if payloads are separate."""
        return self._block.data

    def numbers(self, field: EntryField) -> tuple[Ints, Flags]:
        """Returns a numeric field, int64[n], 0 if unset; and whether each entry has the field, bool[n]."""
        numbers = self._block.fields.numbers
        if field not in numbers:
            return np.zeros(len(self), np.int64), np.zeros(len(self), np.bool_)
        values, has = numbers[field]
        return values[self._first : self._stop], has[self._first : self._stop]

    def texts(self, field: EntryField) -> pa.BinaryArray:
        """Returns a field of bytes; null if unset."""
        heads, fields = self.fields
        if field not in fields.spans:
            return pa.nulls(len(self), pa.binary())
        return gather(pa.py_buffer(heads), *fields.spans[field], None)

    def id_of(self, row: int) -> MessageId:
        """Returns the id of one entry."""
        return MessageId(int(self.ledger[row]), int(self.entry[row]))

    def first_chunk(self, row: int) -> MessageId | None:
        """Returns the id of a complete chunked message's first chunk; None for other entries."""
        return self._block.first_chunks.get(self._first + row)

    def one(self, row: int) -> Entry:
        """Returns one entry, with its metadata parsed."""
        place = range(self._first, self._stop)[row]
        block = self._block
        index, time = int(block.index[place]), int(block.broker_time[place])
        return Entry(
            int(block.ledger[place]),
            int(block.entry[place]),
            self.metadata(row),
            self[row : row + 1 or None].payloads[0],
            None if index < 0 else index,
            None if time < 0 else time,
            block.first_chunks.get(place),
        )

    def metadata(self, row: int) -> pb.MessageMetadata:
        """Returns the parsed metadata of one entry, in a fraction of the time of :meth:`one`."""
        place, block = range(self._first, self._stop)[row], self._block
        if block.metadata is not None:
            return block.metadata[place]
        first, last = int(block.fields.start[place]), int(block.fields.value[0][place])
        return pb.MessageMetadata.FromString(block.heads[first:last])

    def _has(self, field: EntryField) -> Flags:
        spans = self._block.fields.spans
        if field not in spans:
            return np.zeros(len(self), np.bool_)
        return spans[field][2][self._first : self._stop]


class Decoded(NamedTuple):
    """The entries before the first corrupt entry, and that entry's error and id; None: none is corrupt."""

    entries: Entries
    corrupt: CorruptError | None = None
    corrupt_id: MessageId | None = None


def decode(parts: Sequence[Messages]) -> Decoded:
    """Decodes payload sections and verifies their checksums; at least one part, all for one consumer."""
    count = sum(len(part.at) for part in parts)
    size = sum(int(part.end[-1] - part.at[0]) for part in parts)
    if count < _FEW or size > _SMALL * count:
        return _decode_each(parts)
    messages = joined(parts)
    try:
        fields, index, time = read_sections(messages)
    except NotPlainError:
        return _decode_each([messages])
    data, sizes = messages.data, messages.end - messages.at
    metadata = None
    if _ENCRYPTION_KEYS in fields.spans:  # only protobuf verifies the contents of encryption keys
        metadata = _parsed(data, fields)
        if metadata is None:
            return _decode_each([messages])
    ids = messages.ledger, messages.entry
    counts = _messages(fields, count)
    block = _Block(*ids, sizes, index, time, fields, data, data, metadata, None, {}, counts)
    return Decoded(Entries(block, 0, count))


def _parsed(data: bytes, fields: Fields) -> list[pb.MessageMetadata] | None:
    bounds = zip(fields.start.tolist(), fields.value[0].tolist(), strict=True)
    try:
        metadata = [pb.MessageMetadata.FromString(data[first:last]) for first, last in bounds]
    except UNPARSABLE:
        return None
    return metadata if all(one.IsInitialized() for one in metadata) else None


def _decode_each(parts: Sequence[Messages]) -> Decoded:
    entries: list[Entry] = []
    sizes: list[int] = []
    for part in parts:
        view = memoryview(part.data)
        for ledger, entry, first, last in zip(*(column.tolist() for column in part[2:]), strict=True):
            try:
                stored = decode_payload_section(view[first:last])
            except CorruptError as error:
                return Decoded(_of(entries, sizes), error, MessageId(ledger, entry))
            entries.append(Entry(ledger, entry, *stored))
            sizes.append(last - first)
    return Decoded(_of(entries, sizes))


def _of(entries: Sequence[Entry], sizes: Sequence[int]) -> Entries:
    heads, fields = fields_of([one.metadata for one in entries])
    indexes = [-1 if one.broker_index is None else one.broker_index for one in entries]
    times = [-1 if one.broker_time is None else one.broker_time for one in entries]
    block = _Block(
        ledger=np.array([one.ledger for one in entries], np.int64),
        entry=np.array([one.entry for one in entries], np.int64),
        sizes=np.array(sizes, np.int64),
        index=np.array(indexes, np.int64),
        broker_time=np.array(times, np.int64),
        fields=fields,
        heads=heads,
        data=None,
        metadata=[one.metadata for one in entries],
        payloads=[one.payload for one in entries],
        first_chunks={row: one.first_chunk for row, one in enumerate(entries) if one.first_chunk is not None},
        messages=_messages(fields, len(entries)),
    )
    return Entries(block, 0, len(entries))


def _messages(fields: Fields, count: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    if _MESSAGES not in fields.numbers:
        return np.zeros(count, np.int32)
    values, has = fields.numbers[_MESSAGES]
    counts = values.astype(np.int32)
    if not counts.all():
        counts[has & (counts == 0)] = -1
    return counts


Floats: TypeAlias = npt.NDArray[np.float64]

# Maximum items of an entry for each stored byte, and further items for each uncompressed byte.
ITEMS_PER_BYTE, ITEMS_PER_UNCOMPRESSED = 8, 1 / 32
# Maximum messages of an entry that do not depend on its size, and further messages for each stored byte.
FREE_MESSAGES, MESSAGES_PER_BYTE = 100_000, 0.5


def max_messages(stored: Ints) -> Ints:
    """Returns the maximum number of messages of each entry, by its stored bytes, int64[n]."""
    return (FREE_MESSAGES + MESSAGES_PER_BYTE * stored).astype(np.int64)


def items_per_byte(stored: Ints, uncompressed: Ints) -> Floats | None:
    """Returns the number of items that an entry may have for each byte of its decompressed payload.

    Args:
        stored: stored bytes of each entry, int64[n].
        uncompressed: bytes of each decompressed payload, int64[n].

    Returns:
        float64[n], infinite for entries without a limit; None if no entry has a limit.
    """
    paid = ITEMS_PER_BYTE * stored
    is_checked = uncompressed > paid
    if not is_checked.any():
        return None
    own = paid / np.maximum(uncompressed, 1) + ITEMS_PER_UNCOMPRESSED
    rates: Floats = np.where(is_checked, own, np.inf)
    return rates
