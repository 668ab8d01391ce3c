"""Reads the messages of a micro-batch that earlier runs of a task, or of all tasks, have stored.

Spark runs a micro-batch again after a failure or a restart. The new run finds the stored entries by their
origins (signed metadata fields, :mod:`pulsar_spark.wire.entry.origin`), and decodes the entries as in any
read. So batches, compression and chunks may differ between the runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryptor
from pulsar_spark.client.reading.backward_search import search_back
from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
from pulsar_spark.client.reading.decoded_messages import DecodedMessages
from pulsar_spark.client.reading.entry_range import RangeOptions, read_entries
from pulsar_spark.client.reading.message_range import whole_messages
from pulsar_spark.errors import AuthError, CorruptError, CryptoError, DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.copies import SOURCE_POSITION
from pulsar_spark.protocol.replay.copy_search import CopySearch, copied_from
from pulsar_spark.protocol.replay.duplicates import BatchSearch
from pulsar_spark.protocol.replay.known_batch import KnownBatch
from pulsar_spark.protocol.replay.run_search import (
    OlderSearch,
    OriginReader,
    RunSearch,
    RunToFind,
    RunVerdict,
    distinct,
)
from pulsar_spark.protocol.replay.stored_rows import Rows, Words, extras_of, first_words
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin, task_of_origin
from pulsar_spark.wire.wire_values import from_wire_version

# Maximum rows decoded at a time.
_ROWS = 10_000

# Factor between the sizes of two steps back (``search_back``); small, so that few unneeded entries are read.
_GROWTH = 1.25

# Entries that the first step back reads. It reads 1 entry if the producer's last sequence id at the broker is
# of this micro-batch or later. If that id is missing, or of an earlier micro-batch of the query, the search
# ends after the first step, which finds rows that other tasks have stored.
_LAST_ENTRIES = 64

# Bytes that may be in flight while the rows of all tasks are read.
_BATCH_WINDOW = 4 << 20

_log = logging.getLogger(__name__)

# For each client: the last searched micro-batch, and its found entries by topic partition.
_known: WeakKeyDictionary[Client, tuple[object, dict[TopicName, KnownBatch]]] = WeakKeyDictionary()


class _Opened(Iterator[Rows]):
    def __init__(self, blocks: Generator[Rows, None, None]) -> None:
        self._blocks = blocks
        self._first = next(blocks, None)

    def __next__(self) -> Rows:
        first, self._first = self._first, None
        return next(self._blocks) if first is None else first

    def close(self) -> None:
        self._first = None
        self._blocks.close()


@dataclass(slots=True)
class StoredRun:
    """Stored messages of a task in one micro-batch.

    Attributes:
        begin: id of the first entry that the task stored in the micro-batch; None if there is none.
        newest: highest sequence id of an entry that was found; -1 if there is none.
        version: number of the schema version of the first entry; None if it has none.
        unread: reason why stored messages may be missing; None if all were read so far.
        copied_from: clusters in which the query has written the micro-batch before; replicators may still
            copy more of its messages from there.
        is_replay: whether an earlier run has stored rows of the micro-batch, by this task or another.
        is_again: whether an earlier run was itself a replay: it began after a run that had stored rows.
        is_late: whether the query has written a later micro-batch.
        has_older: whether an entry of an earlier micro-batch of the query was found.
        is_empty: whether the topic is a sealed segment without entries. Brokers may delete it at any time.
        blocks: the stored messages in blocks, which are read on demand.
    """

    begin: MessageId | None = None
    newest: int = -1
    version: int | None = None
    unread: str | None = None
    copied_from: Collection[str] = ()
    is_replay: bool = False
    is_again: bool = False
    is_late: bool = False
    has_older: bool = False
    is_empty: bool = False
    blocks: Iterator[Rows] = field(default_factory=lambda: iter(()))

    def close(self) -> None:
        """Stops reading."""
        if isinstance(self.blocks, _Opened):
            self.blocks.close()


_WHY = {
    RunVerdict.HIDDEN: "an open transaction hides them, or the broker is still storing some of them",
    RunVerdict.MISSING: "they were not found. The broker may have deleted them, or others have written "
    "so much since that the search took longer than pulsar.client.operationTimeoutMs",
}


def read_stored_run(
    client: Client, topic: TopicName, run: RunToFind, decryptor: Decryptor, window_bytes: int
) -> StoredRun:
    """Searches for the messages of a micro-batch that a task has stored, and begins to read them.

    The search ends when it has found no entry of the micro-batch for one operation timeout. The tasks of a
    process share the entries that they find.

    Args:
        window_bytes: maximum bytes in flight, and approximate bytes decoded at a time.

    Raises:
        PulsarError: the topic cannot be read. A missing permission, a missing key and a slow search are not
            raised, but are the reason in :attr:`StoredRun.unread`.
    """
    found = StoredRun()
    reader = _RunReader(client, topic, run, window_bytes)
    try:
        reader.read(found, decryptor)
    except (AuthError, DeadlineError) as error:
        if run.is_claimed or run.is_sealed or found.begin is not None:
            found.unread = error.what
        else:
            _log.info("%s: the end of the topic was not searched for stored messages: %s", topic, error)
    return found


def has_older_entries(client: Client, topic: TopicName, secret: bytes, batch: Origin) -> bool:
    """Whether an entry of an earlier micro-batch of the query is found within the operation timeout.

    Raises:
        PulsarError: the topic cannot be read.
    """
    search, origins = OlderSearch(batch), OriginReader(secret, topic)

    def take(entries: Entries) -> bool:
        own = origins.own(entries)
        known.add(own)
        return search.take(own)

    with _known_batch(client, topic, secret, batch) as known:
        search.take(known.entries)
        if not search.is_passed:
            search_back(client, topic, search, take, first_step=_LAST_ENTRIES, growth=_GROWTH, known=known)
    return search.is_passed


def find_stored_batch(client: Client, topic: TopicName, secret: bytes, batch: Origin) -> BatchSearch:
    """Finds the stored entries of a micro-batch, by any task; ``batch``: an origin of the micro-batch.

    Raises:
        PulsarError: the topic cannot be read, or no entry of the micro-batch was found for an operation
            timeout.
    """
    search, deadline, origins = BatchSearch(batch), client.operation(), OriginReader(secret, topic)

    def take(entries: Entries) -> bool:
        return search.take(origins.own(entries))

    if not search_back(client, topic, search, take, first_step=_LAST_ENTRIES, growth=_GROWTH):
        what = "the stored rows of the micro-batch were not found"
        raise deadline.error(what, topic=str(topic), advice="Raise pulsar.client.operationTimeoutMs")
    return search


def stored_digests(
    client: Client, topic: TopicName, secret: bytes, batch: Origin, decryptor: Decryptor
) -> tuple[Words, Ints]:
    """Returns the first 8 bytes of the digest of each row that earlier runs stored, and its task's number.

    A process reads the rows once for all tasks of the micro-batch.

    Raises:
        PulsarError: the rows cannot be read.
    """

    def is_wanted(origin: Origin | None) -> bool:
        return origin is not None and origin.when == batch.when and origin.run != batch.run

    with _known_batch(client, topic, secret, batch) as known:
        if known.digests is None:
            found = find_stored_batch(client, topic, secret, batch)
            words, tasks = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
            stored, origins = _StoredMessages(client, topic, _BATCH_WINDOW), OriginReader(secret, topic)
            if found.begin is not None:
                part = _Part(lambda each: _have_origin(each, origins, is_wanted), found.begin, found.end)
                for messages in stored.read(part, decryptor):
                    words.append(first_words(_rows_of(messages)[0]))
                    tasks += [run.of_rows(_tasks_of) for run in messages.runs]
            if stored.left:
                what = "rows that earlier runs have stored cannot be decoded"
                raise CorruptError(what, topic=str(topic))
            known.digests = np.concatenate(words), np.concatenate(tasks)
        return known.digests


@contextmanager
def _known_batch(client: Client, topic: TopicName, secret: bytes, origin: Origin) -> Iterator[KnownBatch]:
    """Yields the entries of a micro-batch that this process has found; none while another caller has them."""
    key = secret, origin.when, origin.run
    last, parts = _known.get(client, (None, {}))
    if last != key:
        parts = {}
        _known[client] = key, parts
    known = parts.pop(topic, None) or KnownBatch()
    try:
        yield known
    finally:
        parts[topic] = known


class _RunReader:
    def __init__(self, client: Client, topic: TopicName, run: RunToFind, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self._client = client
        self._topic = topic
        self._run = run
        self._origins = OriginReader(run.secret, topic)
        self._search = RunSearch(run)
        # The search ends after its first step if the broker's last sequence id is missing, or of an earlier
        # micro-batch of the query. In a sealed segment it continues if that step finds entries of this one.
        self._is_one_step = not run.is_claimed and (
            run.is_sealed or run.last_sequence_id < 0 or run.may_be_own
        )
        self._copied_from: set[str] = set()
        self._has_read = False

    def read(self, found: StoredRun, decryptor: Decryptor) -> None:
        """Searches for the run's entries, begins to read their messages, and sets the fields of ``found``."""
        search = self._search
        verdict = search.verdict(is_hidden=not self._search_shared())
        found.unread = _WHY.get(verdict)
        found.newest, found.begin = search.newest, search.begin
        found.is_replay, found.is_again, found.is_late = search.is_replay, search.is_again, search.is_late
        found.has_older = search.of_batches_before > 0
        found.is_empty = self._run.is_sealed and not self._has_read
        parts = [] if found.begin is None else [_Part(self._is_own, found.begin, search.end)]
        # ``is_again``: an earlier run found stored rows, which may be copies from other clusters.
        if self._copied_from or (search.is_again and not self._run.is_sealed):
            parts += self._copies(found)
        if not parts:
            return
        stored = _StoredMessages(self._client, self._topic, self._window_bytes)
        found.blocks = _Opened(self._blocks(stored, parts, found, decryptor))
        is_whole = found.begin is None or (parts[0].first or MessageId.LATEST) <= found.begin
        if found.unread is None and not is_whole:
            found.unread = "the broker has deleted some of them"

    def _copies(self, found: StoredRun) -> list[_Part]:
        """Searches for entries of the task that were replicated from other clusters in this micro-batch."""
        copies = CopySearch(self._run, self._topic)
        search_back(self._client, self._topic, copies, copies.take, first_step=_LAST_ENTRIES, growth=_GROWTH)
        found.copied_from = sorted(copies.copied_from | self._copied_from)
        found.is_replay |= bool(found.copied_from)
        return (
            [] if copies.begin is None else [_Part(copies.wanted, copies.begin, copies.end, is_copied=True)]
        )

    def _is_own(self, entries: Entries) -> Flags:
        return _have_origin(entries, self._origins, self._search.is_own)

    def _search_shared(self) -> bool:
        """Searches for the task's first entry; returns False if an entry may be invisible.

        Begins with the entries that this process knows. If Spark reports no replay, these are not used,
        because other tasks have added entries at the end.
        """
        run = self._run
        if run.is_claimed and not run.may_be_replay:
            return self._search_back(KnownBatch())
        with _known_batch(self._client, self._topic, run.secret, run.origin) as known:
            self._search.take(known.entries)
            self._copied_from = known.copied_from
            # One search by this process is enough, because earlier runs stored their rows before it. But an
            # attempt of the task may have written to a segment between that search and the sealing.
            is_known = self._is_one_step and known.has_read_end and not run.is_sealed
            is_searched = is_known or self._search_back(known)
            known.has_read_end |= self._is_one_step and is_searched
            if self._is_one_step and self._run.is_sealed and self._search.lowest < MessageId.LATEST:
                self._is_one_step = False
                is_searched = self._search_back(known)
            self._has_read = bool(known.parts)
            return is_searched

    def _search_back(self, known: KnownBatch) -> bool:
        def take(entries: Entries) -> bool:
            own = self._origins.own(entries)
            known.add(own)
            known.copied_from |= copied_from(entries, self._run, self._topic)
            return self._search.take(own)

        return search_back(
            self._client,
            self._topic,
            self._search,
            take,
            first_step=1 if self._run.is_claimed and not self._run.is_sealed else _LAST_ENTRIES,
            growth=_GROWTH,
            is_one_step=self._is_one_step,
            known=known,
            is_sealed=self._run.is_sealed,
        )

    def _blocks(
        self, stored: _StoredMessages, parts: Sequence[_Part], found: StoredRun, decryptor: Decryptor
    ) -> Generator[Rows, None, None]:
        try:
            read = ((part, messages) for part in parts for messages in stored.read(part, decryptor))
            for part, messages in read:
                rows, versions = _rows_of(messages, is_copied=part.is_copied)
                if found.version is None and len(versions) and versions[0] >= 0:
                    found.version = int(versions[0])
                if len(versions):
                    yield rows
            if stored.left:
                found.unread = found.unread or "some of them cannot be decoded"
        except (AuthError, CryptoError) as error:
            found.unread = error.what


@dataclass(slots=True)
class _Part:
    """A part of a topic partition with stored messages.

    Attributes:
        wanted: function that returns flags of the entries to decode, bool[n].
        begin: id of the first entry, which may have been deleted.
        end: id of the last entry.
        is_copied: whether a replicator has stored the entries.
        first: id of the first wanted entry that was read; None before that.
    """

    wanted: Callable[[Entries], Flags]
    begin: MessageId
    end: MessageId
    is_copied: bool = False
    first: MessageId | None = None


@dataclass(slots=True)
class _StoredMessages:
    """Reads messages that a query has stored; ``left``: number of read messages that were not decoded."""

    client: Client
    topic: TopicName
    window_bytes: int
    left: int = 0

    def read(self, part: _Part, decryptor: Decryptor) -> Generator[DecodedMessages, None, None]:
        start, end = part.begin.previous, part.end
        # A missing entry is no error here, because the later comparison of rows detects missing rows.
        options = RangeOptions(
            poll_timeout=self.client.options.operation_timeout,
            visible=False,
            fail_on_data_loss=False,
            window_bytes=self.window_bytes,
        )
        own = self._own(part, read_entries(self.client, self.topic, start, end, options))
        whole = whole_messages(self.client, self.topic, start, end, own, options, None, decryptor)

        def counted() -> Iterator[Entries]:
            for entries in whole:
                self.left += int(np.maximum(entries.messages, 1).sum())
                yield entries

        for messages in decode_entries(
            [RangeEntries(self.topic, counted())],
            max_rows=_ROWS,
            max_bytes=self.window_bytes,
            leave_out_corrupt=True,
            max_message_size=self.client.max_message_size,
        ):
            self.left -= len(messages)
            yield messages

    def _own(self, part: _Part, stored: Generator[Entries, None, None]) -> Generator[Entries, None, None]:
        """Yields the wanted entries, except entries whose producer set REPLICATE_TO, unlike this query."""
        with closing(stored):
            for entries in stored:
                is_own = part.wanted(entries)
                is_own &= entries.texts(EntryField.REPLICATE_TO).is_null().to_numpy(zero_copy_only=False)
                rows = np.flatnonzero(is_own)
                if len(rows):
                    part.first = part.first or entries.id_of(int(rows[0]))
                    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
                        yield entries[int(run[0]) : int(run[-1]) + 1]


def _have_origin(entries: Entries, reader: OriginReader, is_wanted: Callable[[Origin | None], bool]) -> Flags:
    """Returns flags of the entries whose origin ``is_wanted`` accepts, bool[n]."""
    origins, numbers = reader.origins(entries)
    flags: Flags = np.array([is_wanted(each) for each in origins], np.bool_)[numbers]
    return flags


def _rows_of(messages: DecodedMessages, *, is_copied: bool = False) -> tuple[Rows, Ints]:
    """Returns messages as rows to be compared, and each message's schema version, -1 for none."""
    properties = messages.properties
    columns = MessageColumns(
        value=messages.value,
        key=messages.key,
        event_time=messages.event_time,
        properties=_without_position(properties) if is_copied and properties is not None else properties,
        ordering_key=messages.ordering_key,
    )
    versions, deliver_at = (
        np.concatenate([run.of_rows(column) for run in messages.runs])
        for column in (_versions_of, _deliver_at_of)
    )
    return Rows(encode_batch_messages(columns), extras_of(versions, deliver_at)), versions


def _without_position(properties: pa.MapArray) -> pa.MapArray:
    """Removes the property that replicators add to unbatched entries."""
    is_kept = pc.not_equal(properties.keys, SOURCE_POSITION)
    offsets = np.append(0, np.cumsum(is_kept.to_numpy(zero_copy_only=False)))[properties.offsets.to_numpy()]
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), properties.keys.filter(is_kept), properties.items.filter(is_kept)
    )


def _versions_of(entries: Entries) -> Ints:
    """Returns numbers of schema versions, int64[n]; -1 for none."""
    fields, numbers = distinct(entries, EntryField.SCHEMA_VERSION)
    versions = [from_wire_version(field or b"") for field in fields]
    return np.array([-1 if each is None else each for each in versions], np.int64)[numbers]


def _deliver_at_of(entries: Entries) -> Ints:
    """Returns delivery times in ms since the epoch, int64[n]; -1 for none."""
    times, has = entries.numbers(EntryField.DELIVER_AT)
    return np.where(has, times, -1)


def _tasks_of(entries: Entries) -> Ints:
    """Returns the number of the task that sent each entry, int64[n]."""
    fields, numbers = distinct(entries, EntryField.ORIGIN)
    return np.array([task_of_origin(field) for field in fields], np.int64)[numbers]
