"""Entries -> Arrow record batches of :func:`schema.arrow_schema`: the hot path of reading.

All columns but key and value must cost next to nothing: what is the same in all rows is a slice of an array
made before, what is the same in an entry is made for all entries of an output batch in one kernel call. No
Python object is made for a message. No Spark session and no client is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import CorruptError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.rows.metadata_columns import (
    MAKERS,
    MAX_ROWS,
    DecodedEntries,
    entry_of,
    joined,
    ledger_of,
)
from pulsar_spark.spark.rows.schema import DEFAULT_METADATA_COLUMNS, arrow_schema
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.batches import DecodedBatches, decode_batches, decode_joined
from pulsar_spark.wire.codecs import decompress, decompress_together
from pulsar_spark.wire.entries import Entries
from pulsar_spark.wire.field_spans import Flags, Ints
from pulsar_spark.wire.frames import Buffer
from pulsar_spark.wire.singles import decode_singles

# A batch is closed at this or at MAX_ROWS. With half of it messages of 1 KiB are read a tenth slower.
MAX_BYTES = 6 * 1024 * 1024

# The most bytes that one entry may decompress to and the most messages it may hold, far above what producers
# send: 2 KB can be made to decompress to gigabytes, and to say that they are millions of rows.
MAX_UNCOMPRESSED = 128 * 1024 * 1024
MAX_MESSAGES = 1_000_000
# The same for chunked messages, of which so much has come that they may be as large as Arrow can hold.
MAX_CHUNKED = 2**31 - 1


def record_batches(
    topic: TopicName,
    entries: Iterable[Entries],
    start: MessageId | None = None,
    end: MessageId | None = None,
    *,
    columns: Sequence[str] = DEFAULT_METADATA_COLUMNS,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Turn whole entries into record batches of rows, in order.

    Args:
        topic: the topic partition they are from.
        entries: as :func:`pulsar_spark.client.read_range` gives them; chunked messages whole, and
            nothing encrypted.
        start: where this has a batch index, rows of its entry up to that index are left out.
        end: where this has a batch index, rows of its entry behind that index are left out.
        columns: which of ``METADATA_COLUMNS`` follow the value.
        max_rows: a batch is closed when it has so many; with its last entry it never reaches twice as many.
        max_bytes: the same for the bytes of payloads; only a single row that is larger makes a larger batch.

    Raises:
        CorruptError: an entry cannot be decoded; topic and message id are in it.
    """
    rows = _Rows(topic, start, end, columns)
    for group in entries:
        counts = np.maximum(group.messages, 1).astype(np.int64)
        sizes = np.where(group.compression == 0, group.payload_sizes, group.uncompressed_size)
        rows.check(group, sizes)
        for first, last, is_full in _cuts(counts, sizes, rows.count, rows.bytes, max_rows, max_bytes):
            if rows.count and rows.bytes + int(sizes[first:last].sum()) >= 2 * max_bytes:
                yield from rows.take(max_rows, max_bytes)  # what is huge is joined with nothing
            rows.add(group[first:last], int(counts[first:last].sum()), int(sizes[first:last].sum()))
            if is_full:
                yield from rows.take(max_rows, max_bytes)
    yield from rows.take(max_rows, max_bytes)


def _cuts(
    counts: Ints, sizes: Ints, rows: int, size: int, max_rows: int, max_bytes: int
) -> Iterator[tuple[int, int, bool]]:
    """Cut entries where the rows or the bytes since the last cut reach their limit.

    Args:
        counts: rows of each entry.
        sizes: bytes of each entry.
        rows: how many there are already.
        size: likewise.
        max_rows: limit.
        max_bytes: likewise.
    """
    row_ends, ends = np.cumsum(counts), np.cumsum(sizes)
    first = 0
    while first < len(counts):
        full = min(
            int(np.searchsorted(row_ends, max_rows - rows)), int(np.searchsorted(ends, max_bytes - size))
        )
        is_full = full < len(counts)
        last = full + 1 if is_full else full
        # A large entry behind small ones makes a batch of its own.
        if is_full and full > first and sizes[full] >= max_bytes:
            last = full
        yield first, last, is_full
        rows, size, first = -int(row_ends[last - 1]), -int(ends[last - 1]), last


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


class _Rows:
    """Collects entries until their rows are taken as one record batch."""

    def __init__(
        self, topic: TopicName, start: MessageId | None, end: MessageId | None, columns: Sequence[str]
    ) -> None:
        self._topic = str(topic)
        self._start = start
        self._end = end
        self._schema = arrow_schema(columns)
        self._makers = [MAKERS[name](topic) for name in columns]
        self.count = 0
        self.bytes = 0
        self._entries: list[Entries] = []

    def check(self, entries: Entries, sizes: Ints) -> None:
        """Refuse what cannot be read.

        Args:
            entries: any.
            sizes: bytes of their payloads as declared or, where they are not compressed, as they are.
        """
        messages, limits = entries.messages, np.where(entries.chunked, MAX_CHUNKED, MAX_UNCOMPRESSED)
        bad = np.flatnonzero((messages > MAX_MESSAGES) | (sizes > limits))
        if not len(bad):
            return
        row = int(bad[0])
        if messages[row] > MAX_MESSAGES:
            refused = CorruptError(f"a batch of {messages[row]} messages, where {MAX_MESSAGES} are accepted")
        else:
            refused = CorruptError(
                f"a payload of {sizes[row]} bytes uncompressed, where {limits[row]} are accepted"
            )
        raise self._located(refused, entries, row)

    def add(self, entries: Entries, count: int, size: int) -> None:
        """Take entries in.

        Args:
            entries: that were checked.
            count: rows they have.
            size: bytes of their payloads, decompressed.
        """
        self.count += count
        self.bytes += size
        is_batch = entries.messages > 0
        first = 0
        for last in [*(np.flatnonzero(is_batch[1:] != is_batch[:-1]) + 1).tolist(), len(entries)]:
            self._entries.append(entries[first:last])
            first = last

    def take(self, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of all entries since the last call."""
        runs, size = self._entries, self.bytes
        self._entries, self.count, self.bytes = [], 0, 0
        pieces = []
        for is_batch, run in groupby(runs, _is_batch):
            if is_batch:
                pieces.append(self._batches(list(run)))
            else:
                pieces += map(self._singles, run)
        del runs
        count = sum(len(piece.columns) for piece in pieces)
        if count:
            columns = [joined([piece.columns.value for piece in pieces])]
            columns += [make(pieces, count) for make in self._makers]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            del pieces, columns
            whole = count < 2 * max_rows and size < 2 * max_bytes
            yield from [batch] if whole else _split(batch, max_rows, max_bytes)

    def _batches(self, parts: list[Entries]) -> DecodedEntries:
        counts = np.concatenate([part.messages for part in parts])
        try:
            decoded = self._decoded(parts, counts)
        except CorruptError:
            payloads = [payload for part in parts for payload in self._plain(part)]
            self._find_corrupt(
                parts, lambda row: decode_batches(payloads[row : row + 1], counts[row : row + 1])
            )
            raise
        piece = DecodedEntries(parts, decoded.columns, decoded.held, decoded.batch_index)
        inside = self._inside(piece)
        if inside is None:
            return piece
        entry_of_row = np.repeat(np.arange(len(counts)), piece.counts)[inside]
        return DecodedEntries(
            parts,
            piece.columns.take(pa.array(np.flatnonzero(inside))),
            np.bincount(entry_of_row, minlength=len(counts)),
            piece.batch_index[inside],
        )

    def _inside(self, piece: DecodedEntries) -> Flags | None:
        """Which rows of batches lie behind the start and not behind the end; None where all do."""
        inside = None
        for position in (self._start, self._end):
            if position is None or position.batch_index < 0:
                continue
            ledger, entry = (piece.of_entries(each) for each in (ledger_of, entry_of))
            for number in np.flatnonzero((ledger == position.ledger) & (entry == position.entry)):
                first = int(piece.counts[:number].sum())
                rows = slice(first, first + int(piece.counts[number]))
                behind = piece.batch_index[rows] > position.batch_index
                if inside is None:
                    inside = np.ones(len(piece.batch_index), np.bool_)
                inside[rows] &= behind if position is self._start else ~behind
        return inside

    def _singles(self, entries: Entries) -> DecodedEntries:
        payloads = self._plain(entries) if entries.compression.any() else None
        try:
            columns = decode_singles(entries, payloads)
        except CorruptError:
            self._find_corrupt([entries], lambda row: decode_singles(entries[row : row + 1]))
            raise
        return DecodedEntries([entries], columns, np.ones(len(entries), np.int64), np.full(len(entries), -1))

    def _decoded(self, parts: list[Entries], counts: Ints) -> DecodedBatches:
        if all((part.compression == pb.LZ4).all() for part in parts):
            sizes = np.concatenate([part.uncompressed_size for part in parts])
            blocks = [payload for part in parts for payload in part.payloads]
            body = decompress_together(blocks, sizes.tolist())
            if body is not None:
                return decode_joined(body, sizes, counts)
        return decode_batches([payload for part in parts for payload in self._plain(part)], counts)

    def _plain(self, entries: Entries) -> list[Buffer]:
        """The payloads, decompressed."""
        payloads, kinds = entries.payloads, entries.compression
        sizes, chunked = entries.uncompressed_size, entries.chunked
        for row in np.flatnonzero(kinds):
            limit = MAX_CHUNKED if chunked[row] else MAX_UNCOMPRESSED
            try:
                payloads[row] = decompress(int(kinds[row]), payloads[row], int(sizes[row]), limit)
            except CorruptError as error:
                raise self._located(error, entries, int(row)) from error
        return payloads

    def _find_corrupt(self, parts: list[Entries], decode: Callable[[int], object]) -> None:
        """Decode entries one by one to find the one that could not be decoded among the others."""
        places = [(part, row) for part in parts for row in range(len(part))]
        for number, (part, row) in enumerate(places):
            try:
                decode(number)
            except CorruptError as error:
                raise self._located(error, part, row) from error

    def _located(self, error: PulsarError, entries: Entries, row: int) -> PulsarError:
        return error.located(self._topic, f"{entries.ledger[row]}:{entries.entry[row]}")


def _is_batch(entries: Entries) -> bool:
    return bool(entries.messages[0])
