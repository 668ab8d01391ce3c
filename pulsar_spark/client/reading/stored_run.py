"""Reads what earlier runs of a task have stored of a micro-batch in a topic partition.

Its entries are found by their origins. They are decoded as a reader of the topic decodes them, so batches,
compression and chunks may differ from those of this run.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.client.client import Client
from pulsar_spark.client.encryption import Decryptor
from pulsar_spark.client.reading.backward_search import search_back
from pulsar_spark.client.reading.decode import decode_entries
from pulsar_spark.client.reading.decoded_messages import DecodedMessages
from pulsar_spark.client.reading.entry_range import RangeOptions, read_entries
from pulsar_spark.client.reading.message_range import whole_messages
from pulsar_spark.errors import AuthError, CryptoError, DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.run_search import OwnEntry, RunSearch, RunToFind, RunVerdict
from pulsar_spark.protocol.replay.stored_rows import Rows, StoredBlock, extras_of
from pulsar_spark.wire.columns.batches import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin, decode_origin, has_begin, metadata_before, rows_of_origin
from pulsar_spark.wire.wire_schema import from_wire_version

# Bytes that may be in flight from the broker if nothing else is read, and rows that are decoded at a time.
_WINDOW_BYTES = 4 << 20
_ROWS = 10_000

# How much further back each step of the search goes: little is read in vain.
_GROWTH = 1.25

# Entries that are searched if the broker does not know the producer's name, and of the first step back if it
# knows an id that the query cannot have used.
_LAST_ENTRIES = 64

_log = logging.getLogger(__name__)


class _Opened(Iterator[StoredBlock]):
    """Blocks of which the first one is read already; ``close`` it."""

    def __init__(self, blocks: Generator[StoredBlock, None, None]) -> None:
        self._blocks = blocks
        self._first = next(blocks, None)

    def __next__(self) -> StoredBlock:
        first, self._first = self._first, None
        return next(self._blocks) if first is None else first

    def close(self) -> None:
        """Stop reading."""
        self._first = None
        self._blocks.close()


@dataclass(slots=True)
class StoredRun:
    """What was found.

    Attributes:
        begin: id of the first entry that the task stored in the micro-batch; None if there is none.
        newest: highest sequence id of an entry that was found; -1 if there is none.
        version: number of the schema version of the first entry; None if it has none.
        unread: why messages that are stored may be missing; None if all were read so far.
        blocks: the messages, which are read as they are taken.
    """

    begin: MessageId | None = None
    newest: int = -1
    version: int | None = None
    unread: str | None = None
    blocks: Iterator[StoredBlock] = field(default_factory=lambda: iter(()))

    def close(self) -> None:
        """Stop reading."""
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
    """Search for the stored messages of a micro-batch, and begin to read them.

    The search takes at most one operation timeout. ``window_bytes`` may be in flight, and about as many are
    decoded at a time.

    Raises:
        PulsarError: the topic cannot be read. A missing permission, a missing key and a search that takes too
            long are not raised: they are ``unread``.
    """
    found = StoredRun()
    reader = _RunReader(client, topic, run, window_bytes)
    try:
        reader.read(found, decryptor)
    except (AuthError, DeadlineError) as error:
        if run.is_claimed or found.begin is not None:
            found.unread = error.what
        else:
            _log.info("%s: the end of the topic was not searched for stored messages: %s", topic, error)
    return found


def count_stored_run(client: Client, topic: TopicName, run: RunToFind) -> int:
    """How many messages of a run a topic partition has, at most; raises what reading it raises."""
    return _RunReader(client, topic, run, _WINDOW_BYTES).count()


class _RunReader:
    """Searches and reads the entries of one run; what a search wants is itself."""

    def __init__(self, client: Client, topic: TopicName, run: RunToFind, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self._client = client
        self._topic = topic
        self._secret = run.secret
        self._is_claimed = run.is_claimed
        self._is_forgotten = run.last_sequence_id < 0 and not run.is_claimed
        self._search = RunSearch(run)
        self._end = MessageId.EARLIEST
        self._first: MessageId | None = None

    def read(self, found: StoredRun, decryptor: Decryptor) -> None:
        """Search, read the first messages, and fill ``found``."""
        verdict = self._search.verdict(is_hidden=not self._search_back())
        found.unread = _WHY.get(verdict)
        found.newest, found.begin = self._search.newest, self._search.begin
        begin = found.begin
        if begin is None:
            return
        blocks = self._blocks(found, begin, decryptor)
        found.blocks = _Opened(blocks)
        if found.unread is None and (self._first is None or self._first > begin):
            found.unread = "the broker has deleted some of them"

    def count(self) -> int:
        """How many messages of the run are stored."""
        self._search_back()
        begin = self._search.begin
        if begin is None:
            return 0
        own = self._own(self._entries(begin))
        return sum(int(np.maximum(entries.messages, 1).sum()) for entries in own)

    # ---- what the search wants

    @property
    def is_passed(self) -> bool:
        """Whether entries further back need not be read."""
        return self._search.is_passed

    @property
    def is_complete(self) -> bool:
        """Whether entries that become visible later need not be waited for."""
        return self._search.is_newest_known

    @property
    def is_expected(self) -> bool:
        """Whether an entry is there that is not visible yet."""
        return self._search.is_newest_expected

    def take(self, entries: Entries) -> None:
        """Take entries of the topic partition."""
        last = entries.sequence_id + np.maximum(entries.messages, 1) - 1
        names = entries.texts(EntryField.PRODUCER_NAME)
        own = []
        origins, numbers = self._origins(entries)
        for row, number in enumerate(numbers.tolist()):
            origin = origins[number]
            if origin is not None:
                place = _id_of(entries, row)
                name = (names[row].as_py() or b"").decode(errors="replace")
                own.append(OwnEntry(place, origin, name, int(last[row]), bool(entries.chunked[row])))
                self._end = max(self._end, place)
        self._search.take(own)

    def _search_back(self) -> bool:
        """Search for the begin; return whether nothing of the run can be hidden."""
        return search_back(
            self._client,
            self._topic,
            self,
            self._client.operation(),
            first_step=1 if self._is_claimed else _LAST_ENTRIES,
            growth=_GROWTH,
            max_steps=1 if self._is_forgotten else None,
        )

    # ---- the entries of the run

    def _options(self) -> RangeOptions:
        # A gap is no error: others' entries may be anything, and the run's own are compared anyway.
        return RangeOptions(
            poll_timeout=self._client.options.operation_timeout,
            visible=False,
            fail_on_data_loss=False,
            window_bytes=self._window_bytes,
        )

    def _entries(self, begin: MessageId) -> Generator[Entries, None, None]:
        """All entries from the begin to the newest one of the query."""
        return read_entries(self._client, self._topic, begin.previous, self._end, self._options())

    def _messages(
        self, found: StoredRun, begin: MessageId, decryptor: Decryptor
    ) -> Generator[DecodedMessages, None, None]:
        own = self._own(self._entries(begin))
        start, end = begin.previous, self._end
        whole = whole_messages(self._client, self._topic, start, end, own, self._options(), None, decryptor)
        left = 0  # messages that were read and not decoded

        def counted() -> Iterator[Entries]:
            nonlocal left
            for entries in whole:
                left += int(np.maximum(entries.messages, 1).sum())
                yield entries

        for messages in decode_entries(
            self._topic,
            counted(),
            max_rows=_ROWS,
            max_bytes=self._window_bytes,
            leave_out_corrupt=True,
            max_message_size=self._client.max_message_size,
        ):
            left -= len(messages)
            yield messages
        if left:
            found.unread = found.unread or "some of them cannot be decoded"

    def _own(self, stored: Generator[Entries, None, None]) -> Generator[Entries, None, None]:
        """Only the entries of the run; not those that are replicated in another way than it writes them."""
        with closing(stored):
            for entries in stored:
                origins, numbers = self._origins(entries)
                is_own: Flags = np.array([self._search.is_own(each) for each in origins], np.bool_)[numbers]
                is_own &= entries.texts(EntryField.REPLICATE_TO).is_null().to_numpy(zero_copy_only=False)
                rows = np.flatnonzero(is_own)
                if len(rows):
                    self._first = self._first or _id_of(entries, int(rows[0]))
                    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
                        yield entries[int(run[0]) : int(run[-1]) + 1]

    def _blocks(
        self, found: StoredRun, begin: MessageId, decryptor: Decryptor
    ) -> Generator[StoredBlock, None, None]:
        try:
            for messages in self._messages(found, begin, decryptor):
                block = self._block(messages, found)
                if len(block.through):
                    yield block
        except (AuthError, CryptoError) as error:
            found.unread = error.what

    def _block(self, messages: DecodedMessages, found: StoredRun) -> StoredBlock:
        columns = MessageColumns(
            value=messages.value,
            key=messages.key,
            event_time=messages.event_time,
            properties=messages.properties,
            ordering_key=messages.ordering_key,
        )
        versions, deliver_at, through = (
            np.concatenate([run.of_rows(column) for run in messages.runs])
            for column in (_versions_of, _deliver_at_of, _rows_of)
        )
        if found.version is None and len(versions) and versions[0] >= 0:
            found.version = int(versions[0])
        return StoredBlock(Rows(encode_batch_messages(columns), extras_of(versions, deliver_at)), through)

    def _origins(self, entries: Entries) -> tuple[list[Origin | None], Ints]:
        """Distinct origins and None; and the number among them of each entry's origin, int64[n].

        Entries that have none, or one that the query has not signed, have the number of a None.
        """
        secret, topic = self._secret, str(self._topic)
        fields, numbers = _distinct(entries, EntryField.ORIGIN)
        names_begin = np.array([field is None or has_begin(field) for field in fields], np.bool_)
        origins = [
            decode_origin(field, secret, topic) if field is not None and is_alike else None
            for field, is_alike in zip(fields, names_begin.tolist(), strict=True)
        ]
        for row in np.flatnonzero(~names_begin[numbers]).tolist():
            origins.append(self._origin_of_first(entries, row, fields[numbers[row]]))
            numbers[row] = len(origins) - 1
        return origins, numbers

    def _origin_of_first(self, entries: Entries, row: int, field: bytes) -> Origin | None:
        """The origin of a first entry: signed with its payload and, unless it is a chunk, its metadata."""
        entry = entries.one(row)
        metadata = b"" if entries.chunked[row] else metadata_before(field, entry.metadata)
        if metadata is None:
            return None
        return decode_origin(field, self._secret, str(self._topic), entry.payload, metadata)


def _distinct(entries: Entries, field: EntryField) -> tuple[list[Any], Ints]:
    """The distinct values of a field, None where it is not set; and the number of each entry's, int64[n]."""
    encoded = entries.texts(field).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def _id_of(entries: Entries, row: int) -> MessageId:
    return MessageId(int(entries.ledger[row]), int(entries.entry[row]))


def _rows_of(entries: Entries) -> Ints:
    """``Origin.rows`` of entries of the run, whose payloads may be decrypted and complete, int64[n]."""
    fields, numbers = _distinct(entries, EntryField.ORIGIN)
    return np.array([rows_of_origin(field) for field in fields], np.int64)[numbers]


def _versions_of(entries: Entries) -> Ints:
    """Numbers of schema versions, int64[n]; -1 for none."""
    fields, numbers = _distinct(entries, EntryField.SCHEMA_VERSION)
    versions = [from_wire_version(field or b"") for field in fields]
    return np.array([-1 if each is None else each for each in versions], np.int64)[numbers]


def _deliver_at_of(entries: Entries) -> Ints:
    """Times of delivery in ms since the epoch, int64[n]; -1 for none."""
    times, has = entries.numbers(EntryField.DELIVER_AT)
    return np.where(has, times, -1)
