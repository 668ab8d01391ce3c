"""Entries -> decoded messages: the hot path of reading, with bounds on memory.

Owns decompression, decoding, the bounds on both, and the error that names a corrupt entry. No Python object
is made for a message, and small entries are decoded together. Must not depend on the source of entries, nor
on the use of the columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from pulsar_spark.arrow.arrays import Buffer, Flags, Ints
from pulsar_spark.client.reading.decoded_messages import DecodedMessages, DecodedRun
from pulsar_spark.errors import CorruptError, UnsupportedError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import CopyRange, source_of
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.batches import DecodedBatches, decode_batches, decode_joined
from pulsar_spark.wire.columns.unbatched import decode_singles
from pulsar_spark.wire.entry import entry_limits
from pulsar_spark.wire.entry.codecs import SEPARATOR_SIZE, decompress, decompress_together
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE

# Maximum bytes that one entry may decompress to, far above real entries. Because 2 KB can decompress to
# gigabytes, the bytes are also bounded by a multiple of the received bytes plus a multiple of the maximum
# message size. Producers compare that size with the compressed bytes: an entry that is refused here is four
# times as large, and compresses to a hundredth.
MAX_UNCOMPRESSED = 128 * 1024 * 1024
MAX_RATIO = 100
MAX_MESSAGE_SIZES = 4
# Maximum messages of an entry; small entries have lower limits, see `entry_limits`.
MAX_MESSAGES = 1_000_000
# As MAX_UNCOMPRESSED, for chunked messages: Arrow's maximum, if enough bytes were received.
MAX_CHUNKED = 2**31 - 1
# The property by which Kafka-on-Pulsar marks entries that it stores in another format than Pulsar's.
_FORMAT = b"entry.format"


_log = logging.getLogger(__name__)


def decode_entries(
    topic: TopicName,
    entries: Iterable[Entries],
    start: MessageId | None = None,
    end: MessageId | None = None,
    *,
    max_rows: int,
    max_bytes: int,
    leave_out_corrupt: bool = False,
    max_message_size: Callable[[], int] | None = None,
    copies: Sequence[CopyRange] = (),
) -> Iterator[DecodedMessages]:
    """Decodes whole entries in order, and groups them for record batches.

    Messages are yielded together when their entries reach ``max_rows`` or ``max_bytes``, with the entry that
    reaches the limit. So their number exceeds the limit, but is less than twice the limit unless a single
    entry is larger. Yields no messages if all rows lie before the start or after the end.

    Args:
        topic: topic partition of the entries.
        entries: entries of :func:`pulsar_spark.client.read_ranges`; chunked messages are whole, and no entry
            is encrypted.
        start: position; if it has a batch index, rows of its entry up to that index are left out.
        end: position; if it has a batch index, rows of its entry after that index are left out.
        max_rows: limit of messages that are yielded together.
        max_bytes: limit of the entries' bytes, uncompressed, with metadata.
        leave_out_corrupt: whether an entry that cannot be decoded is left out with a WARNING that names it.
        max_message_size: function that returns the cluster's maximum message size in bytes; None: the
            default.
        copies: copies of other clusters' entries to read; all other copies are left out.

    Raises:
        CorruptError: an entry cannot be decoded, or would take far more memory than it has bytes, and
            ``leave_out_corrupt`` is false; the error has topic and message id.
        UnsupportedError: an entry holds records of Kafka.
    """
    decoder = _Decoder(topic, start, end, max_message_size, leave_out_corrupt=leave_out_corrupt)
    collected = _Collected()
    for group, sizes in decoder.accepted(decoder.unread(entries, copies) if copies else entries):
        counts = np.maximum(group.messages, 1).astype(np.int64)
        rows, size = int(counts.sum()), int(sizes.sum())
        if rows and collected.rows + rows < max_rows and collected.size + size < max_bytes:
            collected.add(group, rows, size)  # below both limits, so no cut is needed
            continue
        for first, last, is_full in _cuts(counts, sizes, collected.rows, collected.size, max_rows, max_bytes):
            rows, size = int(counts[first:last].sum()), int(sizes[first:last].sum())
            if collected.rows and collected.size + size >= 2 * max_bytes:
                yield from decoder.messages(*collected.take())  # a huge entry is decoded alone
            collected.add(group[first:last], rows, size)
            if is_full:
                yield from decoder.messages(*collected.take())
    if collected.rows:
        yield from decoder.messages(*collected.take())


def _cuts(
    counts: Ints, sizes: Ints, rows: int, size: int, max_rows: int, max_bytes: int
) -> Iterator[tuple[int, int, bool]]:
    """Cuts entries where the rows or the bytes since the last cut reach their limit.

    Args:
        counts: rows of each entry.
        sizes: bytes of each entry.
        rows: number of rows collected before these entries.
        size: number of bytes collected before these entries.
        max_rows: rows at which a cut is full.
        max_bytes: bytes at which a cut is full.

    Yields:
        Index of a cut's first entry, index after its last entry, and whether the cut is full.
    """
    row_ends, ends = np.cumsum(counts), np.cumsum(sizes)
    first = 0
    while first < len(counts):
        full = min(
            int(np.searchsorted(row_ends, max_rows - rows)), int(np.searchsorted(ends, max_bytes - size))
        )
        is_full = full < len(counts)
        last = full + 1 if is_full else full
        # An entry that reaches the limit by itself does not join the small entries before it.
        if is_full and full > first and sizes[full] >= max_bytes:
            last = full
        yield first, last, is_full
        rows, size, first = -int(row_ends[last - 1]), -int(ends[last - 1]), last


class _Collected:
    """Checked entries that wait for more entries, to be decoded together."""

    def __init__(self) -> None:
        self.rows = 0
        self.size = 0
        self._entries: list[Entries] = []

    def add(self, entries: Entries, rows: int, size: int) -> None:
        """Adds entries with a number of rows and uncompressed bytes."""
        self.rows += rows
        self.size += size
        is_batch = entries.messages > 0
        first = 0
        if len(entries) > 1:
            for last in (np.flatnonzero(is_batch[1:] != is_batch[:-1]) + 1).tolist():
                self._entries.append(entries[first:last])
                first = last
        self._entries.append(entries[first:])

    def take(self) -> tuple[list[Entries], int]:
        """Removes and returns the collected parts and their bytes; a part has only batches, or none."""
        entries, size = self._entries, self.size
        self._entries, self.rows, self.size = [], 0, 0
        return entries, size


class _Decoder:
    """Decodes entries of a topic partition, without rows up to ``start`` and after ``end``."""

    def __init__(
        self,
        topic: TopicName,
        start: MessageId | None,
        end: MessageId | None,
        max_message_size: Callable[[], int] | None,
        *,
        leave_out_corrupt: bool,
    ) -> None:
        self._topic = topic
        # By entry: only its rows after the first batch index, up to the second one, are wanted.
        self._cuts: dict[tuple[int, int], tuple[int, int]] = {}
        if start is not None and start.batch_index >= 0:
            self._cut(start.ledger, start.entry, start.batch_index, MAX_MESSAGES)
        if end is not None and end.batch_index >= 0:
            self._cut(end.ledger, end.entry, -1, end.batch_index)
        self._max_message_size = max_message_size or (lambda: DEFAULT_MAX_MESSAGE_SIZE)
        self._leave_out_corrupt = leave_out_corrupt

    def unread(self, groups: Iterable[Entries], copies: Sequence[CopyRange]) -> Iterator[Entries]:
        """Yields the entries without unwanted copies; records which rows of the other copies are wanted."""
        for entries in groups:
            first, times = 0, entries.publish_time.astype(np.uint64)
            for row in np.flatnonzero(entries.copied).tolist():
                source = source_of(entries.one(row).metadata)
                rows = [each.rows_of(source, int(times[row])) for each in copies]
                if None in rows:
                    if row > first:
                        yield entries[first:row]
                    first = row + 1
                for begin, end in filter(None, rows):
                    self._cut(int(entries.ledger[row]), int(entries.entry[row]), begin, end)
            if first < len(entries):
                yield entries[first:]

    def _cut(self, ledger: int, entry: int, after: int, up_to: int) -> None:
        if after >= 0 or up_to < MAX_MESSAGES:
            old = self._cuts.get((ledger, entry), (-1, MAX_MESSAGES))
            self._cuts[ledger, entry] = max(old[0], after), min(old[1], up_to)

    def accepted(self, groups: Iterable[Entries]) -> Iterator[tuple[Entries, Ints]]:
        """Yields the entries that are not too large to be decoded.

        Yields:
            Entries, and the bytes of each entry: the uncompressed payload (as declared), the metadata, and
            the names and schema version for each message, because columns repeat them.
        """
        for entries in groups:
            chunked, messages, compression = entries.chunked, entries.messages, entries.compression
            stored = sizes = entries.payload_sizes
            if compression.any():
                sizes = np.where(compression == 0, stored, entries.uncompressed_size)
            texts = messages * entries.text_sizes
            taken = sizes + texts + entries.sizes - stored
            # Entries up to this size are never refused, for any number of received bytes. Most topics have no
            # larger entries.
            small = min(MAX_MESSAGE_SIZES * self._max_message_size(), MAX_UNCOMPRESSED)
            largest = np.maximum(sizes, texts).max(initial=0)
            few = min(entry_limits.MESSAGES, MAX_MESSAGES)
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
        self._leave_out(refused, entries, row)

    def messages(self, entries: Sequence[Entries], size: int) -> Iterator[DecodedMessages]:
        """Decodes entries of :class:`_Collected`; yields no messages if all entries are left out."""
        runs: list[DecodedRun] = []
        for is_batch, parts in groupby(entries, _is_batch):
            if is_batch:
                runs += self._run(self._batches, list(parts))
            else:
                for part in parts:
                    runs += self._run(self._singles, [part])
        if runs:
            yield DecodedMessages(self._topic, runs, sum(map(len, runs)), size)

    def _run(self, decode: Callable[[list[Entries]], DecodedRun], parts: list[Entries]) -> list[DecodedRun]:
        try:
            return [decode(parts)]
        except CorruptError:
            good = self._good(decode, parts)
            if sum(map(len, good)) == sum(map(len, parts)):
                raise
        return [decode(good)] if good else []

    def _good(self, decode: Callable[[list[Entries]], object], parts: list[Entries]) -> list[Entries]:
        """Returns the entries that can be decoded; raises or logs the error of each bad entry.

        The entries are halved again and again, because one bad entry must not slow down thousands of others.
        """
        good = []
        for half in _halves(parts):
            try:
                decode(half)
            except CorruptError as error:
                if sum(map(len, half)) > 1:
                    good += self._good(decode, half)
                else:
                    self._leave_out(error, half[0], 0)
            else:
                good += half
        return good

    def _leave_out(self, error: CorruptError, entries: Entries, row: int) -> None:
        if entries.messages[row] > 0:
            _check_format(entries.one(row), str(self._topic))
        located = error.located(str(self._topic), f"{entries.ledger[row]}:{entries.entry[row]}")
        if not self._leave_out_corrupt:
            raise located from error
        _log.warning("an entry that cannot be decoded is left out: %s", located.facts)

    def _batches(self, parts: list[Entries]) -> DecodedRun:
        decoded = self._decoded(parts)
        inside = self._inside(parts, decoded)
        if inside is None:
            return DecodedRun(parts, decoded.columns, decoded.held, lambda: decoded.batch_index)
        entry_of_row = np.repeat(np.arange(len(decoded.held)), decoded.held)[inside]
        batch_index = decoded.batch_index[inside]
        return DecodedRun(
            parts,
            decoded.columns.rows(np.flatnonzero(inside)),
            np.bincount(entry_of_row, minlength=len(decoded.held)),
            lambda: batch_index,
        )

    def _singles(self, parts: list[Entries]) -> DecodedRun:
        entries = parts[0] if len(parts) == 1 else Entries.of([one for part in parts for one in part])
        payloads = self._plain(entries) if entries.compression.any() else None
        columns = decode_singles(entries, payloads)
        return DecodedRun([entries], columns, np.ones(len(entries), np.int64), None)

    def _decoded(self, parts: list[Entries]) -> DecodedBatches:
        counts = np.concatenate([part.messages for part in parts])
        if all((part.compression == pb.LZ4).all() for part in parts):
            sizes = np.concatenate([part.uncompressed_size for part in parts])
            blocks = [payload for part in parts for payload in part.payloads]
            body = decompress_together(blocks, sizes.tolist())
            if body is not None:
                return decode_joined(body, sizes, counts, SEPARATOR_SIZE)
        return decode_batches([payload for part in parts for payload in self._plain(part)], counts)

    def _inside(self, parts: list[Entries], decoded: DecodedBatches) -> Flags | None:
        """Returns flags of the wanted rows of batches; None: all rows are wanted."""
        if not self._cuts:
            return None
        inside = None
        ledger, entry = (
            np.concatenate(columns)
            for columns in zip(*((part.ledger, part.entry) for part in parts), strict=True)
        )
        cut = np.array([number for _, number in self._cuts])
        for number in np.flatnonzero(np.isin(entry, cut)).tolist():
            place = int(ledger[number]), int(entry[number])
            if place in self._cuts:
                first = int(decoded.held[:number].sum())
                rows = slice(first, first + int(decoded.held[number]))
                if inside is None:
                    inside = np.ones(len(decoded.columns), np.bool_)
                after, up_to = self._cuts[place]
                index = decoded.batch_index[rows]
                inside[rows] = (index > after) & (index <= up_to)
        return inside

    def _plain(self, entries: Entries) -> list[Buffer]:
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


def _halves(parts: Sequence[Entries]) -> list[list[Entries]]:
    left = sum(map(len, parts)) // 2
    halves: list[list[Entries]] = [[], []]
    for part in parts:
        cut = min(left, len(part))
        left -= cut
        for half, some in zip(halves, (part[:cut], part[cut:]), strict=True):
            if len(some):
                half.append(some)
    return [half for half in halves if half]


def _max_messages(entries: Entries) -> Ints:
    return np.minimum(entry_limits.max_messages(entries.sizes), MAX_MESSAGES)


def _is_batch(entries: Entries) -> bool:
    return bool(entries.messages[0])
