"""Entries -> decoded messages: the hot path of reading, with bounds on memory.

Owns decompression, decoding, the bounds on both, and the error that names a corrupt entry. No Python object
is made for a message, and one call decodes many small entries. Must not depend on the source of entries, nor
on the use of the columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints
from pulsar_spark.client.net.deadline import now
from pulsar_spark.client.reading.decoded_messages import DecodedMessages, DecodedRun
from pulsar_spark.errors import CorruptError, UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import CopyRange, source_of
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import (
    DecodedBatches,
    decode_batches,
    decode_singles,
)
from pulsar_spark.wire.columns.message_columns import DecodedColumns
from pulsar_spark.wire.entry.codecs import decompress, decompress_together
from pulsar_spark.wire.entry.entries import FREE_MESSAGES, Entries, Entry, max_messages
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE

# Maximum bytes that one entry may decompress to, far above real entries. Because 2 KB can decompress to
# gigabytes, a second limit is MAX_RATIO times the received bytes plus MAX_MESSAGE_SIZES times the maximum
# message size.
MAX_UNCOMPRESSED = 128 * 1024 * 1024
MAX_RATIO = 100
MAX_MESSAGE_SIZES = 4
# Maximum messages of an entry; small entries have lower limits, see ``max_messages``.
MAX_MESSAGES = 1_000_000
# Maximum bytes of a chunked message, uncompressed, which may be larger than an entry: an Arrow array's limit.
MAX_CHUNKED = 2**31 - 1
# Seconds that entries of short ranges wait for entries of the next ranges, to be decoded in one call.
_JOINED_SECONDS = 0.1
# Fewer unbatched entries than this are decoded with the next entries, because each call has a fixed cost.
_FEW = 24
# The property by which Kafka-on-Pulsar marks entries that it stores in another format than Pulsar's.
_FORMAT = b"entry.format"


_log = logging.getLogger(__name__)


class RangeEntries(NamedTuple):
    """The entries of one range of a topic partition.

    Attributes:
        entries: entries of :func:`pulsar_spark.client.read_ranges`; chunked messages are assembled,
            and entries are decrypted.
        start: last position before the range; with a batch index, the later rows of its entry are wanted.
        end: last position of the range; with a batch index, the later rows of its entry are not wanted.
        copies: filter of copied entries if the query was moved here from another cluster; None: no filter.
    """

    topic: TopicName
    entries: Iterable[Entries]
    start: MessageId | None = None
    end: MessageId | None = None
    copies: CopyRange | None = None


def decode_entries(
    ranges: Iterable[RangeEntries],
    *,
    max_rows: int,
    max_bytes: int,
    leave_out_corrupt: bool = False,
    max_message_size: Callable[[], int] | None = None,
    clock: Callable[[], float] = now,
) -> Iterator[DecodedMessages]:
    """Decodes entries in order, and groups their messages for record batches.

    Messages are collected until their entries reach ``max_rows`` or ``max_bytes``. The entry that reaches the
    limit is included, so a group has up to twice the limit, or more if a single entry has more. Short ranges
    are collected together, because each call has a fixed cost. But the first range is not delayed, and later
    ranges at most 0.1 s, so that a slow task has rows early. Yields nothing if all rows lie before the start
    or after the end.

    Args:
        ranges: ranges; the entries of each are consumed before the next range is requested.
        max_bytes: limit of the entries' bytes, uncompressed, with metadata.
        leave_out_corrupt: whether an entry that cannot be decoded is skipped with a WARNING that names it.
        max_message_size: function that returns the cluster's maximum message size; None: the default.

    Raises:
        CorruptError: an entry cannot be decoded, or would need far more memory than its size, and
            ``leave_out_corrupt`` is false; the error has topic and message id.
        UnsupportedError: an entry holds records of Kafka.
    """
    collected = _Collected()
    is_first, began = True, 0.0
    for each in ranges:
        source = _Range(each, max_message_size, leave_out_corrupt=leave_out_corrupt)
        for group, sizes in source.accepted():
            counts = np.maximum(group.messages, 1).astype(np.int64)
            rows, size = int(counts.sum()), int(sizes.sum())
            began = began if collected.rows else clock()
            if rows and collected.rows + rows < max_rows and collected.size + size < max_bytes:
                collected.add(source, group, rows, size)  # below both limits, so no cut is needed
                continue
            for first, last, is_full in _cuts(
                counts, sizes, collected.rows, collected.size, max_rows, max_bytes
            ):
                rows, size = int(counts[first:last].sum()), int(sizes[first:last].sum())
                if collected.rows and collected.size + size >= 2 * max_bytes:
                    yield from collected.messages()  # a huge entry is decoded alone
                collected.add(source, group[first:last], rows, size)
                if is_full:
                    yield from collected.messages()
        if collected.rows and (is_first or clock() - began >= _JOINED_SECONDS):
            is_first = False
            yield from collected.messages()
    if collected.rows:
        yield from collected.messages()


def _cuts(
    counts: Ints, sizes: Ints, rows: int, size: int, max_rows: int, max_bytes: int
) -> Iterator[tuple[int, int, bool]]:
    """Cuts entries into parts whose rows or bytes reach the limit; the last part may have fewer.

    ``counts``, ``sizes``: rows and bytes of each entry. ``rows``, ``size``: rows and bytes collected before.
    Yields the index of a part's first entry, the index after its last, and whether it reaches the limit.
    """
    row_ends, ends = np.cumsum(counts), np.cumsum(sizes)
    first = 0
    while first < len(counts):
        full = min(
            int(np.searchsorted(row_ends, max_rows - rows)), int(np.searchsorted(ends, max_bytes - size))
        )
        is_full = full < len(counts)
        last = full + 1 if is_full else full
        # An entry that alone reaches the byte limit begins a new part.
        if is_full and full > first and sizes[full] >= max_bytes:
            last = full
        yield first, last, is_full
        rows, size, first = -int(row_ends[last - 1]), -int(ends[last - 1]), last


class _Collected:
    """Checked entries that wait for more entries, to be decoded in one call."""

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self._parts: list[_Part] = []

    def add(self, source: _Range, entries: Entries, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size
        is_batch = entries.messages > 0
        bounds = [0, *(np.flatnonzero(is_batch[1:] != is_batch[:-1]) + 1).tolist(), len(entries)]
        self._parts += [_Part(source, entries[first:last]) for first, last in pairwise(bounds)]

    def messages(self) -> Iterator[DecodedMessages]:
        """Decodes and removes all entries; yields nothing if no row is wanted and readable."""
        parts, size = self._parts, self.size
        self._parts, self.rows, self.size = [], 0, 0
        runs: list[DecodedRun] = []
        for kind, group in groupby(parts, _kind_of):
            runs += _run(_batches if kind is _BATCHES else _singles, list(group))
        if runs:
            yield DecodedMessages(runs, size)


class _Part(NamedTuple):
    """Entries of one range that are all batches, or all have one message each."""

    source: _Range
    entries: Entries


# Group keys; one call decodes neighbouring parts of batches, or parts of fewer than _FEW unbatched entries.
_BATCHES, _FEW_SINGLES = object(), object()


def _kind_of(part: _Part) -> object:
    """Returns the key by which neighbouring parts are grouped, to be decoded in one call."""
    if part.entries.messages[0]:
        return _BATCHES
    return _FEW_SINGLES if len(part.entries) < _FEW else part.entries


class _Range:
    """Entries of a range that are small enough to be decoded, and their wanted rows.

    Attributes:
        cuts: (ledger, entry id) of each entry that is wanted in part -> two batch indexes. Rows after the
            first index, up to the second, are wanted.
    """

    def __init__(
        self, asked: RangeEntries, max_message_size: Callable[[], int] | None, *, leave_out_corrupt: bool
    ) -> None:
        self.topic = asked.topic
        self.cuts: dict[tuple[int, int], tuple[int, int]] = {}
        start, end = asked.start, asked.end
        if start is not None and start.batch_index >= 0:
            self._cut(start.ledger, start.entry, start.batch_index, MAX_MESSAGES)
        if end is not None and end.batch_index >= 0:
            self._cut(end.ledger, end.entry, -1, end.batch_index)
        self._entries = self._wanted(asked.entries, asked.copies) if asked.copies else asked.entries
        self._max_message_size = max_message_size or (lambda: DEFAULT_MAX_MESSAGE_SIZE)
        self._leave_out_corrupt = leave_out_corrupt

    def _wanted(self, groups: Iterable[Entries], copies: CopyRange) -> Iterator[Entries]:
        """Yields the entries that ``copies`` does not exclude; cuts copies that are wanted in part."""
        for entries in groups:
            first, times = 0, entries.publish_time.astype(np.uint64)
            for row in np.flatnonzero(entries.copied).tolist():
                rows = copies.rows_of(source_of(entries.metadata(row)), int(times[row]))
                if rows is not None:
                    self._cut(int(entries.ledger[row]), int(entries.entry[row]), *rows)
                    continue
                if row > first:
                    yield entries[first:row]
                first = row + 1
            if first < len(entries):
                yield entries[first:]

    def _cut(self, ledger: int, entry: int, after: int, up_to: int) -> None:
        if after >= 0 or up_to < MAX_MESSAGES:
            old = self.cuts.get((ledger, entry), (-1, MAX_MESSAGES))
            self.cuts[ledger, entry] = max(old[0], after), min(old[1], up_to)

    def accepted(self) -> Iterator[tuple[Entries, Ints]]:
        """Yields the entries that are small enough to be decoded, and the bytes that each needs in columns.

        The bytes are the declared uncompressed size of the payload, and the size of the metadata. Fields that
        each row repeats, such as the producer's name, also count once for each message.
        """
        for entries in self._entries:
            chunked, messages = entries.chunked, entries.messages
            stored, sizes = entries.payload_sizes, entries.plain_sizes
            texts = messages * entries.text_sizes
            taken = sizes + texts + entries.sizes - stored
            # Entries up to this size are accepted without a check of their compression ratio. Most topics
            # have no larger entries.
            small = min(MAX_MESSAGE_SIZES * self._max_message_size(), MAX_UNCOMPRESSED)
            largest = np.maximum(sizes, texts).max(initial=0)
            few = min(FREE_MESSAGES, MAX_MESSAGES)
            is_usual = messages.min(initial=0) >= 0 and messages.max(initial=0) <= few
            if largest <= small and is_usual and not chunked.any():
                yield entries, taken
                continue
            for_received = MAX_RATIO * entries.sizes + MAX_MESSAGE_SIZES * self._max_message_size()
            limits = np.minimum(for_received, np.where(chunked, MAX_CHUNKED, MAX_UNCOMPRESSED))
            is_refused = (sizes > limits) | (messages > _max_messages(entries)) | (messages < 0)
            is_refused |= (texts > for_received) | (chunked & (messages > 0))
            refused = np.flatnonzero(is_refused)
            first = 0
            for row in refused.tolist():
                self._refuse(entries, row, int(sizes[row]), int(limits[row]))
                if row > first:
                    yield entries[first:row], taken[first:row]
                first = row + 1
            if first < len(entries):
                yield entries[first:], taken[first:]

    def _refuse(self, entries: Entries, row: int, size: int, limit: int) -> None:
        messages = entries.messages
        if messages[row] < 0:
            refused = CorruptError("a batch of no messages, which no producer sends")
        elif messages[row] and entries.chunked[row]:
            refused = CorruptError("a batch in a chunked message, which no producer sends")
        elif messages[row] > (most := int(_max_messages(entries)[row])):
            refused = CorruptError(f"a batch of {messages[row]} messages; the maximum is {most}")
        elif size > limit:
            refused = CorruptError(f"a payload of {size} bytes uncompressed; the maximum is {limit}")
        else:
            texts = int(entries.text_sizes[row])
            refused = CorruptError(
                f"a batch of {messages[row]} messages, each with {texts} bytes of names and schema versions"
            )
        self.leave_out(refused, entries, row)

    def leave_out(self, error: CorruptError, entries: Entries, row: int) -> None:
        """Logs that an entry cannot be decoded, or raises the error if no entry may be skipped."""
        if entries.messages[row] > 0:
            _check_format(entries.one(row), str(self.topic))
        located = error.located(str(self.topic), f"{entries.ledger[row]}:{entries.entry[row]}")
        if not self._leave_out_corrupt:
            raise located from error
        _log.warning("an entry that cannot be decoded is left out: %s", located.facts)


def _run(decode: Callable[[list[_Part]], DecodedRun], parts: list[_Part]) -> list[DecodedRun]:
    try:
        return [decode(parts)]
    except CorruptError:
        good = _good(decode, parts)
        if _count(good) == _count(parts):
            raise
    return [decode(good)] if good else []


def _good(decode: Callable[[list[_Part]], object], parts: list[_Part]) -> list[_Part]:
    """Returns the entries that can be decoded; raises or logs the error of each bad entry.

    The entries are halved again and again, because one bad entry must not slow down thousands of others.
    """
    good = []
    for half in _halves(parts):
        try:
            decode(half)
        except CorruptError as error:
            if _count(half) > 1:
                good += _good(decode, half)
            else:
                half[0].source.leave_out(error, half[0].entries, 0)
        else:
            good += half
    return good


def _batches(parts: list[_Part]) -> DecodedRun:
    entries = [part.entries for part in parts]
    decoded = _decoded(entries)
    inside = _inside(parts, decoded)
    if inside is None:
        return _run_of(parts, entries, decoded.columns, decoded.remaining, lambda: decoded.batch_index)
    entry_of_row = np.repeat(np.arange(len(decoded.remaining)), decoded.remaining)[inside]
    batch_index = decoded.batch_index[inside]
    return _run_of(
        parts,
        entries,
        decoded.columns.rows(np.flatnonzero(inside)),
        np.bincount(entry_of_row, minlength=len(decoded.remaining)),
        lambda: batch_index,
    )


def _singles(parts: list[_Part]) -> DecodedRun:
    entries = parts[0].entries
    if len(parts) > 1:
        entries = Entries.of([one for part in parts for one in part.entries])
    payloads = _plain(entries) if entries.compression.any() else None
    columns = decode_singles(entries, payloads)
    return _run_of(parts, [entries], columns, np.ones(len(entries), np.int64), None)


def _decoded(parts: list[Entries]) -> DecodedBatches:
    counts = np.concatenate([part.messages for part in parts])
    if all((part.compression == pb.LZ4).all() for part in parts):
        sizes = np.concatenate([part.uncompressed_size for part in parts])
        blocks = [payload for part in parts for payload in part.payloads]
        payloads = decompress_together(blocks, sizes.tolist())
        if payloads is not None:
            return decode_batches(payloads, counts)
    return decode_batches([payload for part in parts for payload in _plain(part)], counts)


def _inside(parts: list[_Part], decoded: DecodedBatches) -> Flags | None:
    """Returns flags of the wanted rows by ``_Range.cuts``, bool[m]; None: all rows are wanted."""
    inside = None
    begin = 0  # index of the part's first entry among the entries of all parts
    for source, entries in parts:
        cut = [number for _, number in source.cuts]
        for number in np.flatnonzero(np.isin(entries.entry, cut)).tolist() if cut else ():
            place = int(entries.ledger[number]), int(entries.entry[number])
            if place in source.cuts:
                first = int(decoded.remaining[: begin + number].sum())
                rows = slice(first, first + int(decoded.remaining[begin + number]))
                if inside is None:
                    inside = np.ones(len(decoded.columns), np.bool_)
                after, up_to = source.cuts[place]
                index = decoded.batch_index[rows]
                inside[rows] = (index > after) & (index <= up_to)
        begin += len(entries)
    return inside


def _plain(entries: Entries) -> list[Buffer]:
    payloads, kinds = entries.payloads, entries.compression
    sizes, chunked = entries.uncompressed_size, entries.chunked
    for row in np.flatnonzero(kinds):
        limit = MAX_CHUNKED if chunked[row] else MAX_UNCOMPRESSED
        payloads[row] = decompress(int(kinds[row]), payloads[row], int(sizes[row]), limit)
    return payloads


def _check_format(batch: Entry, topic: str) -> None:
    """Raises UnsupportedError if a property of the batch marks records of Kafka."""
    for one in batch.metadata.properties:
        if one.key == _FORMAT:
            raise UnsupportedError(
                f"an entry has Kafka-on-Pulsar's format {one.value[:40].decode(errors='replace')}",
                topic=topic,
                message_id=f"{batch.ledger}:{batch.entry}",
                advice="Read it with a Kafka client. For new ones set entryFormat=pulsar in Kafka-on-Pulsar",
            )


def _run_of(
    parts: Sequence[_Part],
    entries: Sequence[Entries],
    columns: DecodedColumns,
    counts: Ints,
    batch_index: Callable[[], Ints] | None,
) -> DecodedRun:
    topics = [(source.topic, _count(group)) for source, group in groupby(parts, lambda part: part.source)]
    return DecodedRun(entries, columns, counts, batch_index, topics)


def _count(parts: Iterable[_Part]) -> int:
    return sum(len(part.entries) for part in parts)


def _halves(parts: Sequence[_Part]) -> list[list[_Part]]:
    left = _count(parts) // 2
    halves: list[list[_Part]] = [[], []]
    for source, entries in parts:
        cut = min(left, len(entries))
        left -= cut
        for half, some in zip(halves, (entries[:cut], entries[cut:]), strict=True):
            if len(some):
                half.append(_Part(source, some))
    return [half for half in halves if half]


def _max_messages(entries: Entries) -> Ints:
    return np.minimum(max_messages(entries.sizes), MAX_MESSAGES)
