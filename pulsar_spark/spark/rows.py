"""Entries -> Arrow record batches of :data:`schema.ARROW_SCHEMA`: the hot path of reading.

All columns but key and value must cost next to nothing: what is the same in all rows is a slice of an array
made before, what is the same in an entry is made for all entries of an output batch in one kernel call. No
Python object is made for a message of a batch. No Spark session and no client is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import CorruptError, PulsarError, UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.schema import ARROW_SCHEMA, EVENT_TIME, PROPERTIES, PUBLISH_TIME
from pulsar_spark.wire.batches import DecodedBatches, decode_batches
from pulsar_spark.wire.codecs import decompress
from pulsar_spark.wire.columns import MessageColumns
from pulsar_spark.wire.entries import Entry
from pulsar_spark.wire.singles import decode_singles

_Ints: TypeAlias = "npt.NDArray[np.int64]"
T = TypeVar("T")

# An output batch is closed at either. More bytes than a cache holds are slower to decode together.
MAX_ROWS = 10_000
MAX_BYTES = 3 * 1024 * 1024

# The most bytes that one entry may decompress to and the most messages it may hold, far above what producers
# send: 2 KB can be made to decompress to gigabytes, and to say that they are millions of rows.
MAX_UNCOMPRESSED = 128 * 1024 * 1024
MAX_MESSAGES = 1_000_000

# Columns that are the same in all rows are kept up to this length; longer ones are made when they are needed.
_KEPT_ROWS = 10 * MAX_ROWS

_MAX_MS = (1 << 63) // 1000 - 1  # the latest time in ms that fits into microseconds
_EMPTY = pa.scalar(b"", pa.binary())


def record_batches(
    topic: TopicName,
    entries: Iterable[Sequence[Entry]],
    start: MessageId | None = None,
    end: MessageId | None = None,
    *,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Turn whole entries into record batches of rows, in order.

    Args:
        topic: the topic partition they are from.
        entries: as :func:`pulsar_spark.client.read_range` gives them.
        start: where this has a batch index, rows of its entry up to that index are left out.
        end: where this has a batch index, rows of its entry behind that index are left out.
        max_rows: a batch is closed when it has so many; with its last entry it never reaches twice as many.
        max_bytes: the same for the bytes of payloads; only a single row that is larger makes a larger batch.

    Raises:
        CorruptError: an entry cannot be decoded; topic and message id are in it.
        UnsupportedError: a chunked or encrypted message.
    """
    rows = _Rows(topic, start, end)
    for group in entries:
        for entry in group:
            rows.add(entry)
            if rows.count >= max_rows or rows.bytes >= max_bytes:
                yield from rows.take(max_rows, max_bytes)
    yield from rows.take(max_rows, max_bytes)


def _split(batch: pa.RecordBatch, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch that its last entry made more than twice too large; the parts share its memory."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(batch.column(0)), 0).to_numpy(), dtype=np.int64)
    first = taken = 0
    while first < batch.num_rows:
        left = batch.num_rows - first
        fits = max(1, int(np.searchsorted(ends, taken + max_bytes, side="right")) - first)
        count = min(left, max_rows, fits)
        yield batch.slice(first, count)
        first += count
        taken = ends[first - 1]


class _Piece(NamedTuple):
    """Decoded messages of some entries: of batches, or of entries of one message each.

    Attributes:
        columns: the messages.
        counts: rows of each entry.
        prefixes: for each entry, its serialized MessageIdData up to and with the partition.
        suffixes: for each row, what follows that.
        publish_times: ms, for each entry.
    """

    columns: MessageColumns
    counts: _Ints
    prefixes: list[bytes]
    suffixes: pa.BinaryArray
    publish_times: list[int]


class _Repeated:
    """A column that is the same in all rows, of any length: a slice of an array that grows to a limit."""

    def __init__(self, make: Callable[[int], pa.Array]) -> None:
        self._make = make
        self._array = make(0)

    def of(self, length: int) -> pa.Array:
        if length > _KEPT_ROWS:
            return self._make(length)
        if length > len(self._array):
            self._array = self._make(max(length, MAX_ROWS))
        return self._array.slice(0, length)


_NO_SUFFIX = _Repeated(lambda n: pa.repeat(_EMPTY, n))
_NO_EVENT_TIME = _Repeated(lambda n: pa.nulls(n, pa.int64()))
_NO_PROPERTIES = _Repeated(
    lambda n: pa.MapArray.from_arrays(
        pa.array(np.zeros(n + 1, np.int32)), pa.array([], pa.string()), pa.array([], pa.string())
    )
)
# Tags and values of MessageIdData.batch_index, for all indexes.
_INDEXES = _Repeated(lambda n: pa.array([b"\x20" + _varint(index) for index in range(n)], pa.binary()))


class _Rows:
    """Collects entries until their rows are taken as one record batch."""

    def __init__(self, topic: TopicName, start: MessageId | None, end: MessageId | None) -> None:
        self._topic = str(topic)
        self._topics = _Repeated(lambda n: pa.repeat(pa.scalar(str(topic)), n))
        self._partition = b"" if topic.partition < 0 else b"\x18" + _varint(topic.partition)
        self._start = start
        self._end = end
        self.count = 0
        self.bytes = 0
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """Take one entry in."""
        try:
            entry = self._plain(entry)
        except CorruptError as error:
            raise self._located(error, entry) from error
        self.count += entry.metadata.num_messages_in_batch  # 1 where it is no batch
        self.bytes += len(entry.payload)
        self._entries.append(entry)

    def take(self, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of all entries since the last call."""
        pieces = [
            self._batches(list(run)) if is_batch else self._singles(list(run))
            for is_batch, run in groupby(self._entries, _is_batch)
        ]
        count = sum(len(piece.columns) for piece in pieces)
        if count:
            batch = self._record_batch(pieces, count)
            whole = count < 2 * max_rows and self.bytes < 2 * max_bytes
            yield from [batch] if whole else _split(batch, max_rows, max_bytes)
        self.count = self.bytes = 0
        self._entries = []

    def _record_batch(self, pieces: list[_Piece], count: int) -> pa.RecordBatch:
        times = [min(time, _MAX_MS) for piece in pieces for time in piece.publish_times]
        counts = np.concatenate([piece.counts for piece in pieces])
        publish_times = np.repeat(np.array(times, np.int64) * 1000, counts)
        columns = [
            _joined([piece.columns.value for piece in pieces]),
            _joined([piece.columns.key for piece in pieces]),
            self._topics.of(count),
            _message_ids(pieces, counts),
            pa.array(publish_times).view(ARROW_SCHEMA.field(PUBLISH_TIME).type),
            _event_times(pieces, count),
            _properties(pieces, count),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)

    def _plain(self, entry: Entry) -> Entry:
        """The entry with its payload decompressed."""
        metadata = entry.metadata
        if metadata.num_messages_in_batch > MAX_MESSAGES:
            raise CorruptError(
                f"a batch of {metadata.num_messages_in_batch} messages, where {MAX_MESSAGES} are accepted"
            )
        if metadata.num_chunks_from_msg > 1:
            raise self._unsupported("chunked", entry)
        if metadata.encryption_keys:
            raise self._unsupported("encrypted", entry)
        if not metadata.compression:
            return entry
        plain = decompress(metadata.compression, entry.payload, metadata.uncompressed_size, MAX_UNCOMPRESSED)
        return entry._replace(payload=memoryview(plain))

    def _batches(self, entries: list[Entry]) -> _Piece:
        decoded = self._decode(entries, _decode_batches)
        sizes = [entry.metadata.num_messages_in_batch for entry in entries]
        columns, counts = decoded.columns, decoded.held
        suffixes = _joined([_suffixes(size) for size in sizes])
        rows = np.repeat(np.cumsum(sizes) - sizes, counts) + decoded.batch_index
        inside = self._inside(entries, counts, decoded.batch_index)
        if not inside.all():
            columns, rows = columns.take(pa.array(np.flatnonzero(inside))), rows[inside]
            entry_of_row = np.repeat(np.arange(len(entries)), counts)[inside]
            counts = np.bincount(entry_of_row, minlength=len(entries))
        if len(rows) < len(suffixes):
            suffixes = suffixes.take(pa.array(rows))
        return self._piece(entries, columns, counts, suffixes)

    def _inside(self, entries: list[Entry], counts: _Ints, index: _Ints) -> npt.NDArray[np.bool_]:
        """Which rows of batches lie behind the start and not behind the end, where one is inside a batch."""
        inside = np.ones(len(index), np.bool_)
        ends = np.cumsum(counts)
        for position in (self._start, self._end):
            if position is None or position.batch_index < 0:
                continue
            for number, entry in enumerate(entries):
                if (entry.ledger, entry.entry) == (position.ledger, position.entry):
                    rows = slice(ends[number] - counts[number], ends[number])
                    behind = index[rows] > position.batch_index
                    inside[rows] &= behind if position is self._start else ~behind
        return inside

    def _singles(self, entries: list[Entry]) -> _Piece:
        columns = self._decode(entries, decode_singles)
        return self._piece(entries, columns, np.ones(len(entries), np.int64), _NO_SUFFIX.of(len(entries)))

    def _piece(
        self, entries: list[Entry], columns: MessageColumns, counts: _Ints, suffixes: pa.BinaryArray
    ) -> _Piece:
        prefixes = [
            b"\x08" + _varint(entry.ledger) + b"\x10" + _varint(entry.entry) + self._partition
            for entry in entries
        ]
        times = [entry.metadata.publish_time for entry in entries]
        return _Piece(columns, counts, prefixes, suffixes, times)

    def _decode(self, entries: list[Entry], decode: Callable[[list[Entry]], T]) -> T:
        """Decode entries together; of a failure find the entry that it is about."""
        try:
            return decode(entries)
        except CorruptError:
            for entry in entries:
                try:
                    decode([entry])
                except CorruptError as error:
                    raise self._located(error, entry) from error
            raise

    def _located(self, error: PulsarError, entry: Entry) -> PulsarError:
        return error.located(self._topic, f"{entry.ledger}:{entry.entry}")

    def _unsupported(self, what: str, entry: Entry) -> PulsarError:
        return self._located(UnsupportedError(f"{what} messages cannot be read by this version"), entry)


def _is_batch(entry: Entry) -> bool:
    return entry.metadata.HasField("num_messages_in_batch")


def _decode_batches(entries: list[Entry]) -> DecodedBatches:
    return decode_batches(
        [entry.payload for entry in entries], [entry.metadata.num_messages_in_batch for entry in entries]
    )


def _message_ids(pieces: list[_Piece], counts: _Ints) -> pa.BinaryArray:
    """Serialize MessageIdData of all rows, with the fields and their order as in the C++ client."""
    prefixes = pa.array([prefix for piece in pieces for prefix in piece.prefixes], pa.binary())
    if len(prefixes) < counts.sum():
        prefixes = prefixes.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return pc.binary_join_element_wise(prefixes, _joined([piece.suffixes for piece in pieces]), _EMPTY)


def _suffixes(size: int) -> pa.BinaryArray:
    """batch_index and batch_size of MessageIdData for all messages of a batch of ``size``."""
    return _kept_suffixes(size) if size <= MAX_ROWS else _new_suffixes(size)


@lru_cache(maxsize=64)
def _kept_suffixes(size: int) -> pa.BinaryArray:
    return _new_suffixes(size)


def _new_suffixes(size: int) -> pa.BinaryArray:
    batch_size = pa.scalar(b"\x30" + _varint(size), pa.binary())
    return pc.binary_join_element_wise(_INDEXES.of(size), batch_size, _EMPTY)


def _event_times(pieces: list[_Piece], count: int) -> pa.TimestampArray:
    kind = ARROW_SCHEMA.field(EVENT_TIME).type
    if all(piece.columns.event_time is None for piece in pieces):
        return _NO_EVENT_TIME.of(count).view(kind)
    times = _joined([_or_nothing(piece.columns.event_time, _NO_EVENT_TIME, piece) for piece in pieces])
    # 0 is Pulsar's unset; what does not fit into microseconds becomes the earliest or latest that does.
    times = pc.if_else(pc.equal(times, 0), pa.scalar(None, pa.int64()), times)
    times = pc.min_element_wise(times, _MAX_MS, skip_nulls=False)
    times = pc.max_element_wise(times, -_MAX_MS, skip_nulls=False)
    return pc.multiply(times, 1000).view(kind)


def _properties(pieces: list[_Piece], count: int) -> pa.MapArray:
    if all(piece.columns.properties is None for piece in pieces):
        return _NO_PROPERTIES.of(count)
    maps = _joined([_or_nothing(piece.columns.properties, _NO_PROPERTIES, piece) for piece in pieces])
    return maps.cast(ARROW_SCHEMA.field(PROPERTIES).type)


def _or_nothing(column: pa.Array | None, nothing: _Repeated, piece: _Piece) -> pa.Array:
    return nothing.of(len(piece.columns)) if column is None else column


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _varint(value: int) -> bytes:
    """Base 128, least significant group first, as protobuf writes unsigned integers."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
