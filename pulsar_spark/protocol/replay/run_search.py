"""RunSearch: finds where an earlier run of a task began to write to a topic partition, and judges the search.

Entries are searched backwards from the end of the topic partition, by their origins. The first entry of a
micro-batch is acknowledged before the task sends another one, and all later ones name its id. So the search
needs to find one of these, or the first entry itself if it is the only one:

    ============================================  ==========================================================
    an entry of this task and micro-batch         the micro-batch began
    ============================================  ==========================================================
    names its first entry                         there
    does not, and is a chunk                      here or earlier: the search continues. Other chunks of the
                                                  message lie before it, and earlier attempts to send it
    does not, and has the last id of the          here: it is the only entry. Its id and name are signed
    producer's name, or a higher one
    does not                                      here or earlier: the search continues. Others may have used
                                                  the producer's name, or copied the entry
    ============================================  ==========================================================

What the search has found at its end:

    ==========================================  ============================================================
    found                                       verdict
    ==========================================  ============================================================
    an entry of this task and micro-batch       FOUND
    none, and the broker does not know that     NOTHING
    the name has stored ids of the micro-batch
    none, and it cannot be a replay             NOTHING: the ids are those of an earlier write, or somebody
                                                else has used the producer's name
    none, and an entry of the query of an       NOTHING: the broker deletes old entries first, so it has
    earlier write or micro-batch                deleted none of the micro-batch
    none, and the query cannot have used the    NOTHING: somebody else has used the producer's name
    last id under the producer's name
    none, in any other case                     MISSING: the broker may have deleted the entries
    ==========================================  ============================================================

FOUND and the last two NOTHING become HIDDEN if there may be more: the entry with the last id was not found,
and an open transaction of somebody else hides newer entries, or a slow broker is still storing them. So does
the NOTHING of what cannot be a replay, for the first write of a micro-batch: Spark does not report each
repetition, such as one of a whole stage.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import NamedTuple

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.task_ids import first_sequence_id
from pulsar_spark.wire.entry.origin import Origin


class RunVerdict(Enum):
    """What a search has found; see the module's second table."""

    FOUND = auto()
    HIDDEN = auto()
    NOTHING = auto()
    MISSING = auto()


class RunToFind(NamedTuple):
    """A task's run of a micro-batch.

    Attributes:
        origin: its numbers; of no meaning are ``begin`` and ``is_again``.
        secret: that origins are signed with.
        name: of the producer.
        last_sequence_id: that the broker has stored under the producer's name; -1 if it knows none.
        is_claimed: whether that id is one of the micro-batch, or a later one.
        may_be_replay: whether an earlier run may have written rows.
        may_be_own: whether the query can have used that id; see ``TaskIds``.
    """

    origin: Origin
    secret: bytes
    name: str
    last_sequence_id: int
    is_claimed: bool = True
    may_be_replay: bool = True
    may_be_own: bool = True


class OwnEntry(NamedTuple):
    """An entry of the query, or several ones that have the same origin, which names the first entry.

    Somebody may have copied it. Its name and the id of its last message are the query's own, as signed, only
    if the origin has no ``begin``.

    Attributes:
        id: of the entry; of several ones the first.
        origin: that it bears.
        name: of the producer.
        last_sequence_id: the highest one.
        is_chunk: whether it is a chunk, which is a part of a message.
        newest: id of the last entry; None if it is one.
        messages: that are complete with it.
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


class Unseen(NamedTuple):
    """Entries that a quick look has passed over.

    Attributes:
        after: position after which they lie.
        task: number of the task that has sent them.
    """

    after: MessageId
    task: int


class RunSearch:
    """The search for the entries of one task and micro-batch in a topic partition.

    Attributes:
        begin: where the micro-batch began, as far as it is known; None if no entry of it was found.
        newest: the highest sequence id of its entries; -1 if no entry of it was found.
        end: id of the last of its entries.
        lowest: id of the first entry of the micro-batch, by any task, as far as it is known.
        is_replay: whether an earlier run has stored entries of the micro-batch, or an earlier attempt.
        is_again: whether one of these was sent when an earlier one had stored rows.
        is_late: whether the query has written a later micro-batch.
    """

    def __init__(self, run: RunToFind) -> None:
        self.end = MessageId.EARLIEST
        self.lowest = MessageId.LATEST
        self.is_replay = False
        self.is_again = False
        self.is_late = False
        self._is_open = False  # the last of its entries
        self._run = run.origin
        self._wanted = run
        self._is_begin_certain = False
        self._has_chunks = False  # before the begin is certain
        self._has_last = False  # a first entry with the last id
        self._has_exact_last = False  # any entry with it, under the name that it is known of
        self._newest_of_task = -1  # also of other writes, under the same name
        self._oldest = MessageId.LATEST  # of its entries
        self.newest = -1
        self._has_older = False
        self.begin: MessageId | None = None

    def is_own(self, origin: Origin | None) -> bool:
        """Whether it is of the micro-batch and task that are looked for."""
        run = self._run
        return origin is not None and (origin.when, origin.task) == (run.when, run.task)

    def take(self, entries: Collection[OwnEntry]) -> bool:
        """Take entries of the query, in any order; return whether any is of the micro-batch."""
        run = self._run
        for entry in entries:
            origin = entry.origin
            if origin.task == run.task:
                self._newest_of_task = max(self._newest_of_task, entry.last_sequence_id)
            self.is_late |= origin.batch > run.batch
            if origin.when != run.when:
                self._has_older |= origin.when < run.when
                continue
            self.lowest = min(self.lowest, origin.begin or entry.id)
            # A task of this run may have found rows that this one does not see.
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
            self._has_exact_last |= is_last and wanted.may_be_own
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

        Somebody may have copied the begin into a newer entry than those of the query.
        """
        has_all = self.begin is None or self._oldest <= self.begin or not self.is_newest_expected
        return self.is_begin_known and has_all

    @property
    def is_begin_known(self) -> bool:
        """Whether it is known where the micro-batch began, or that it has not begun."""
        if self._has_older and not (self._wanted.may_be_replay and self._wanted.is_claimed):
            return True
        return self._is_begin_certain or (self._has_last and not self._has_chunks)

    @property
    def jump(self) -> MessageId | None:
        """The first known entry of the micro-batch: own entries are looked for before it; None: no more.

        Where tasks ran one after the other, this leads from each task to the one before it. What lies between
        is not read. So an own entry may be overlooked, and all must be read then.
        """
        is_wanted = self._wanted.may_be_replay and self._wanted.is_claimed
        is_near = self.begin is not None  # what lies after it tells whether it is the begin
        return self.lowest if is_wanted and not (self._has_older or is_near) else None

    @property
    def unseen(self) -> Unseen | None:
        """Own entries that were passed over; None if there is none.

        Somebody may have used the name, or copied an entry under another name or id. So only the entry with
        the last id, under the name, shows that there are no newer ones.
        """
        may_be = self._wanted.may_be_replay and self._wanted.is_claimed
        if self.begin is None:
            after, is_wanted = self.lowest, may_be and self.lowest < MessageId.LATEST
        else:
            after, is_wanted = self.end, may_be and (not self._has_exact_last or self._is_open)
        return Unseen(after, self._run.task) if is_wanted else None

    @property
    def is_newest_known(self) -> bool:
        """Whether no newer entry of the micro-batch can become visible."""
        run, last = self._run, self._wanted.last_sequence_id
        is_of_write_before = bool(run.write) and self._has_older and self.begin is None
        # Else a stranger could delay all micro-batches by one entry.
        is_of_later_batch = last >= first_sequence_id(run.batch + 1)
        if not self._wanted.may_be_replay and (is_of_write_before or is_of_later_batch):
            return True
        return self._newest_of_task >= last or not self._wanted.is_claimed

    @property
    def is_newest_expected(self) -> bool:
        """Whether the broker has, or is storing, the entry with the last id: the query has used that id.

        It has not deleted it if it has older entries.
        """
        has_others = self._has_older or self.begin is not None
        is_of_query = self._wanted.may_be_replay and self._wanted.may_be_own
        return has_others and is_of_query and not self.is_newest_known

    def verdict(self, *, is_hidden: bool) -> RunVerdict:
        """What was found, when nothing more can be read; entries that were not visible may be hidden."""
        is_hidden = is_hidden and not self.is_newest_known
        if self.begin is not None:
            return RunVerdict.HIDDEN if is_hidden else RunVerdict.FOUND
        if not self._wanted.is_claimed:
            return RunVerdict.NOTHING
        if not self._wanted.may_be_replay:
            return RunVerdict.HIDDEN if is_hidden and not self._run.write else RunVerdict.NOTHING
        if self._wanted.may_be_own and not self._has_older:
            return RunVerdict.MISSING
        return RunVerdict.HIDDEN if is_hidden else RunVerdict.NOTHING
