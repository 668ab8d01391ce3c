"""RunSearch: finds where a task began a micro-batch in a topic partition, and whether its rows are stored.

The search reads backwards from the end of the topic partition. Each entry of a query has an origin: a signed
field with its micro-batch, write, task and run, and as ``begin`` the id of the task's first entry in the
micro-batch; OriginReader verifies it. The first entry has no ``begin``, and is acknowledged before the task
sends another entry. So any later entry shows where the micro-batch began. An entry without ``begin`` proves
less:

    ============================================  ==========================================================
    origin of this task and micro-batch           the micro-batch began
    ============================================  ==========================================================
    names an entry                                at the named entry
    names none, and its entry is a chunk          here or earlier: the search continues. Other chunks of the
                                                  message, and earlier attempts to send it, lie before
    names none, and its entry has the producer's  here: it is the only entry. The signature covers the
    last sequence id, or a higher id              entry's sequence id and producer name
    names none otherwise                          here or earlier: the search continues. Another program may
                                                  have used the producer's name, or copied the entry
    ============================================  ==========================================================

Brokers do not report the last sequence id of a sealed segment. There the search ends at an entry that names
the first entry, or after more than ``COPIES`` entries of earlier micro-batches.

The verdict at the end of the search:

    ==========================================  ============================================================
    found                                       verdict
    ==========================================  ============================================================
    an entry of this task and micro-batch       FOUND
    none, and the last sequence id under the    NOTHING
    name is missing, or of an earlier
    micro-batch
    none, in a sealed segment                   NOTHING, or MISSING if the search was not complete
    none, and ``may_be_replay`` is false        NOTHING: an earlier write, or another program, has used the
                                                sequence ids
    none, and an entry of the query from an     NOTHING: brokers delete old entries first, so no entry of
    earlier write or micro-batch                the micro-batch was deleted
    none, and the query cannot have used the    NOTHING: another program has used the producer's name
    last sequence id under the name
    none, in any other case                     MISSING: the broker may have deleted the entries
    ==========================================  ============================================================

FOUND and the last two kinds of NOTHING become HIDDEN if the entry with the last sequence id was not found and
may become visible: an open transaction of another program may hide it, or a slow broker is still storing it.
In the first write of a micro-batch, NOTHING for a false ``may_be_replay`` also becomes HIDDEN, because Spark
does not report each repetition, such as the repetition of a whole stage.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.task_ids import first_sequence_id
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin, decode_origin, has_begin, metadata_before

# More entries of earlier micro-batches than this prove that a search has passed the micro-batch. Fewer do not
# prove it, because another program may have copied them to the end of the topic partition.
COPIES = 10


class RunVerdict(Enum):
    """Result of a search; see the module's second table."""

    FOUND = auto()
    HIDDEN = auto()
    NOTHING = auto()
    MISSING = auto()


class RunToFind(NamedTuple):
    """A task's run of a micro-batch, whose stored entries are searched.

    Attributes:
        origin: batch, task, write and run number; ``begin`` and ``is_again`` are ignored.
        secret: the query's secret, which signs origins.
        name: name of the producer.
        last_sequence_id: last id that the broker has stored under the producer's name; -1 for none.
        is_claimed: whether ``last_sequence_id`` is of this or a later micro-batch, so rows may be stored.
        may_be_replay: whether an earlier run may have written rows.
        may_be_own: whether the query can have used ``last_sequence_id``; see ``TaskIds``.
        is_sealed: whether the topic partition is a sealed segment. Then the last id is unknown, and
            ``is_claimed`` means that the query may have written there.
    """

    origin: Origin
    secret: bytes
    name: str
    last_sequence_id: int
    is_claimed: bool = True
    may_be_replay: bool = True
    may_be_own: bool = True
    is_sealed: bool = False


class OwnEntry(NamedTuple):
    """Entries of the query with the same valid origin; one entry if the origin has no ``begin``.

    Another program can copy an origin into its own entry. Only the signature of an origin without ``begin``
    also covers the producer's name and the sequence ids.

    Attributes:
        id: id of the first entry.
        origin: origin of the entries.
        name: name of the producer.
        last_sequence_id: highest sequence id.
        is_chunk: whether any of the entries is a chunk.
        newest: id of the last entry; None for one entry.
        messages: number of messages; a message in chunks is counted at its last chunk.
        is_open: whether the last entry is a chunk that does not complete its message.
    """

    id: MessageId
    origin: Origin
    name: str
    last_sequence_id: int
    is_chunk: bool = False
    newest: MessageId | None = None
    messages: int = 1
    is_open: bool = False


class OriginReader:
    """Decodes and verifies the origins of entries."""

    def __init__(self, secret: bytes, topic: TopicName) -> None:
        self._secret = secret
        self._topic = str(topic)

    def own(self, entries: Entries) -> list[OwnEntry]:
        """Returns the query's entries; entries with equal origins (see ``Origin``) become one item."""
        counts = np.maximum(entries.messages, 1)
        last = entries.last_sequence_id
        for row in np.flatnonzero(entries.chunked).tolist():
            chunk = entries.metadata(row)
            counts[row] = chunk.chunk_id + 1 == chunk.num_chunks_from_msg
        origins, numbers = self.origins(entries)
        names = entries.texts(EntryField.PRODUCER_NAME)
        found = []
        for number, origin in enumerate(origins):
            rows = np.flatnonzero(numbers == number).tolist()
            if origin is None or not rows:
                continue
            found.append(
                OwnEntry(
                    entries.id_of(rows[0]),
                    origin,
                    (names[rows[0]].as_py() or b"").decode(errors="replace"),
                    int(last[rows].max()),
                    bool(entries.chunked[rows].any()),
                    entries.id_of(rows[-1]),
                    int(counts[rows].sum()),
                    is_open=not counts[rows[-1]],
                )
            )
        return found

    def origins(self, entries: Entries) -> tuple[list[Origin | None], Ints]:
        """Returns the distinct origins, and for each entry the index of its origin, int64[n].

        The origin is None if an entry has no origin field, or the query has not signed the field.
        """
        fields, numbers = distinct(entries, EntryField.ORIGIN)
        names_begin = np.array([field is None or has_begin(field) for field in fields], np.bool_)
        origins = [
            decode_origin(field, self._secret, self._topic) if field is not None and is_alike else None
            for field, is_alike in zip(fields, names_begin.tolist(), strict=True)
        ]
        for row in np.flatnonzero(~names_begin[numbers]).tolist():
            origins.append(self._origin_of_first(entries, row, fields[numbers[row]]))
            numbers[row] = len(origins) - 1
        return origins, numbers

    def _origin_of_first(self, entries: Entries, row: int, field: bytes) -> Origin | None:
        """Returns the origin of an entry whose ``field`` has no ``begin``; None if the signature is wrong."""
        entry = entries.one(row)
        metadata = b"" if entries.chunked[row] else metadata_before(field, entry.metadata)
        if metadata is None:
            return None
        return decode_origin(field, self._secret, self._topic, entry.payload, metadata)


def distinct(entries: Entries, field: EntryField) -> tuple[list[Any], Ints]:
    """Returns a field's distinct values (None: not set), and the index of each entry's value, int64[n]."""
    encoded = entries.texts(field).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


class Unseen(NamedTuple):
    """Entries that the search has skipped.

    Attributes:
        after: position before the skipped entries.
        task: number of the task whose entries may be among them.
    """

    after: MessageId
    task: int


class OlderSearch:
    """The search for an entry of an earlier micro-batch of the query, backwards from the end.

    Attributes:
        is_passed: whether an entry was found.
    """

    is_newest_known = True
    is_newest_expected = is_passed = False
    jump = unseen = None

    def __init__(self, batch: Origin) -> None:
        self._batch = batch

    def take(self, entries: Collection[OwnEntry]) -> bool:
        """Processes entries of the query; returns False: ``search_back`` must not restart its timeout."""
        self.is_passed |= any(entry.origin.batch < self._batch.batch for entry in entries)
        return False


class RunSearch:
    """The search for the entries of one task and micro-batch in a topic partition.

    Attributes:
        begin: id of the task's first entry, found or named by a later entry; None if no entry was found.
        newest: highest sequence id of the task's entries; -1 if no entry was found.
        end: id of the task's last entry.
        lowest: id of the micro-batch's first entry of any task, found or named by a later entry.
        is_replay: whether an earlier run or attempt has stored entries of the micro-batch.
        is_again: whether an earlier run or attempt had itself found entries of an even earlier run.
        is_late: whether the query has written a later micro-batch.
        of_batches_before: number of found entries of earlier micro-batches.
    """

    def __init__(self, run: RunToFind) -> None:
        self.end = MessageId.EARLIEST
        self.lowest = MessageId.LATEST
        self.is_replay = False
        self.is_again = False
        self.is_late = False
        self._is_open = False  # whether the entry at ``end`` is a chunk of an incomplete message
        self._run = run.origin
        self._wanted = run
        self._is_begin_certain = False
        self._has_chunks = False  # whether a chunk was found whose origin has no ``begin``
        # "Last entry": an entry under the producer's name with ``last_sequence_id`` or a higher id.
        self._has_last = False  # whether a last entry without ``begin`` was found
        self._has_own_last = False  # whether a last entry was found whose id the query may have used
        self._newest_of_task = -1  # the task's highest sequence id, in any micro-batch or write
        self._oldest = MessageId.LATEST  # lowest message id of the task's entries in the micro-batch
        self.newest = -1
        self.of_batches_before = 0
        self._has_older = False  # an entry of an earlier write or micro-batch was found
        self.begin: MessageId | None = None

    def is_own(self, origin: Origin | None) -> bool:
        """Whether an origin has the wanted micro-batch and task."""
        run = self._run
        return origin is not None and (origin.when, origin.task) == (run.when, run.task)

    def take(self, entries: Collection[OwnEntry]) -> bool:
        """Adds entries of the query, in any order; returns whether any belongs to the micro-batch."""
        run = self._run
        for entry in entries:
            origin = entry.origin
            if origin.task == run.task:
                self._newest_of_task = max(self._newest_of_task, entry.last_sequence_id)
            self.is_late |= origin.batch > run.batch
            if origin.when != run.when:
                self._has_older |= origin.when < run.when
                self.of_batches_before += origin.batch < run.batch
                continue
            self.lowest = min(self.lowest, origin.begin or entry.id)
            # The micro-batch is a replay if another run has written the entry, if this task has (in an
            # earlier attempt), or if the entry's task has found rows of an earlier run.
            self.is_replay |= origin.run != run.run or origin.task == run.task or origin.is_again
            self.is_again |= origin.is_again and (origin.run != run.run or origin.task == run.task)
            if origin.task != run.task:
                continue
            self.newest = max(self.newest, entry.last_sequence_id)
            self._oldest = min(self._oldest, entry.id)
            end = entry.newest or entry.id
            if end > self.end:
                self.end, self._is_open = end, entry.is_open
            named, wanted = origin.begin, self._wanted
            is_last = entry.name == wanted.name and entry.last_sequence_id >= wanted.last_sequence_id
            self._has_own_last |= is_last and wanted.may_be_own
            if named is not None:
                self.begin, self._is_begin_certain = named, True
            elif not self._is_begin_certain:
                self._has_chunks |= entry.is_chunk
                self._has_last |= is_last
                self.begin = entry.id if self.begin is None else min(self.begin, entry.id)
        return any(entry.origin.when == run.when for entry in entries)

    @property
    def is_passed(self) -> bool:
        """Whether entries further back need not be read.

        While ``is_newest_expected``, the search continues back to ``begin``, because another program may have
        copied the entry that names ``begin`` to a position after the expected entry.
        """
        has_all = self.begin is None or self._oldest <= self.begin or not self.is_newest_expected
        return self.is_begin_known and has_all

    @property
    def is_begin_known(self) -> bool:
        """Whether it is known where the micro-batch began, or that it has not begun."""
        if self._wanted.is_sealed:
            return self._is_begin_certain or self.of_batches_before > COPIES
        if self._has_older and not (self._wanted.may_be_replay and self._wanted.is_claimed):
            return True
        return self._is_begin_certain or (self._has_last and not self._has_chunks)

    @property
    def jump(self) -> MessageId | None:
        """Returns ``lowest`` if the search may skip to the entries before it; None if it must not skip.

        If tasks ran one after the other, each jump skips the entries of one other task. The skipped entries
        may include entries of this task; ``unseen`` returns them.
        """
        is_wanted = self._wanted.may_be_replay and self._wanted.is_claimed
        is_near = self.begin is not None  # the task was found; ``begin`` is near its entry
        return self.lowest if is_wanted and not (self._has_older or is_near) else None

    @property
    def unseen(self) -> Unseen | None:
        """Returns entries of the task that the search may have skipped; None if there are none.

        An entry proves that the task has no newer entries only if it has the producer's name and last
        sequence id, because another program may have copied any entry under another name or id.
        """
        may_be = self._wanted.may_be_replay and self._wanted.is_claimed
        if self.begin is None:
            after, is_wanted = self.lowest, may_be and self.lowest < MessageId.LATEST
        else:
            after, is_wanted = self.end, may_be and (not self._has_own_last or self._is_open)
        return Unseen(after, self._run.task) if is_wanted else None

    @property
    def is_newest_known(self) -> bool:
        """Whether no newer entry of the micro-batch can become visible."""
        run, last = self._run, self._wanted.last_sequence_id
        is_of_write_before = bool(run.write) and self._has_older and self.begin is None
        # If no earlier run has written, another program used a later micro-batch's id: do not wait for it.
        is_of_later_batch = last >= first_sequence_id(run.batch + 1)
        if not self._wanted.may_be_replay and (is_of_write_before or is_of_later_batch):
            return True
        return self._newest_of_task >= last or not self._wanted.is_claimed

    @property
    def is_newest_expected(self) -> bool:
        """Whether an entry of the query with the last sequence id must exist, but was not found yet.

        True if the query may have used the id and an older entry was found: brokers delete old entries first.
        """
        has_others = self._has_older or self.begin is not None
        is_of_query = self._wanted.may_be_replay and self._wanted.may_be_own
        return has_others and is_of_query and not self.is_newest_known

    def verdict(self, *, is_hidden: bool) -> RunVerdict:
        """Returns the verdict at the end of the search; ``is_hidden``: whether entries may be invisible."""
        wanted = self._wanted
        is_hidden = is_hidden and (wanted.is_sealed or not self.is_newest_known)
        if self.begin is not None:
            return RunVerdict.HIDDEN if is_hidden else RunVerdict.FOUND
        if wanted.is_sealed:
            return RunVerdict.MISSING if is_hidden else RunVerdict.NOTHING
        if not self._wanted.is_claimed:
            return RunVerdict.NOTHING
        if not self._wanted.may_be_replay:
            return RunVerdict.HIDDEN if is_hidden and not self._run.write else RunVerdict.NOTHING
        if self._wanted.may_be_own and not self._has_older:
            return RunVerdict.MISSING
        return RunVerdict.HIDDEN if is_hidden else RunVerdict.NOTHING
