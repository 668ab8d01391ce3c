"""Reads a topic partition backwards from its end, until the wanted entries are found.

Each step back reads the entries directly before the entries of the previous step. Steps grow by a factor.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from math import ceil
from typing import Protocol

import numpy as np
import pyarrow.compute as pc

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.reading.entry_range import (
    RangeOptions,
    position_back,
    position_before,
    positions_before,
    read_entries,
    stored_end,
)
from pulsar_spark.client.reading.probe import reader_options, visible_end
from pulsar_spark.errors import DeadlineError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.replay.known_batch import KnownBatch
from pulsar_spark.protocol.replay.run_search import Unseen
from pulsar_spark.protocol.writing.pending import Outgoing
from pulsar_spark.protocol.writing.stored_ids import StoredProof
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField

# Minimum entries that the first step back reads, in a search for entries without the broker's receipt.
_FIRST_STEP = 64

_SETTLING = 2.0  # seconds to wait for entries that the broker is still writing
_PAUSE = 0.1  # seconds between two requests

# Maximum bytes in flight, because a task may search in hundreds of topic partitions at once.
_WINDOW_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class Wanted(Protocol):
    """Decides how far a search must read, based on the entries that were read so far."""

    @property
    def is_passed(self) -> bool:
        """Whether the search need not read further back."""

    @property
    def is_newest_known(self) -> bool:
        """Whether the search need not wait for entries that are stored and not visible yet."""

    @property
    def is_newest_expected(self) -> bool:
        """Whether the search waits until its deadline, because a wanted entry must still become visible."""

    @property
    def jump(self) -> MessageId | None:
        """Returns an entry before which to continue; entries in between are skipped. None: skip none."""

    @property
    def unseen(self) -> Unseen | None:
        """Returns skipped entries among which a wanted one may be; None: no skipped entry is wanted."""


def find_stored(client: Client, topic: TopicName, proof: StoredProof) -> None:
    """Searches for the entries of ``proof``, which have no receipt; passes found entries to ``proof``.

    Calls ``proof.cut_short`` if the search is not complete within one operation timeout.
    """
    step = max(_FIRST_STEP, proof.count)
    proven = _Proven(proof)
    if not search_back(client, topic, proven, proven.take, first_step=step, growth=2.0):
        proof.cut_short()


def find_in_sealed(client: Client, topic: TopicName, proof: StoredProof) -> Mapping[Outgoing, MessageId]:
    """Returns the entries of ``proof`` that a sealed segment (one without new entries) has stored, with ids.

    If the segment cannot be searched completely, one WARNING says how many messages may be duplicated.
    """
    wanted = _Proven(proof)
    search = _Search(client, topic, wanted, wanted.take, KnownBatch())
    try:
        search.run_sealed(max(_FIRST_STEP, proof.count), 2.0, after=proof.after)
    except PulsarError as error:
        _log.warning(
            "%s: %d messages may be duplicated: they were not acknowledged when the segment was sealed, and "
            "the segment cannot be searched for them: %s",
            *(topic, proof.missing, error),
        )
    return proof.found


def search_back(
    client: Client,
    topic: TopicName,
    wanted: Wanted,
    take: Callable[[Entries], bool],
    *,
    first_step: int,
    growth: float,
    is_one_step: bool = False,
    known: KnownBatch | None = None,
    is_sealed: bool = False,
) -> bool:
    """Reads backwards from the end of a topic partition until all wanted entries were read.

    Returns True if the search was complete in time, and no wanted entry can be invisible.

    The search waits for stored entries that are not visible yet: the broker is still writing them, or they
    follow the first message of an open transaction. Deleted entries are not found. The search lasts at most
    one operation timeout, which restarts whenever ``take`` returns True.

    Args:
        take: function that processes read entries, in order within a call; it returns whether the timeout
            restarts.
        growth: factor between the sizes of two steps back.
        is_one_step: whether the search ends after ``first_step`` entries, not at the topic's beginning.
        known: parts of the topic partition that are not read again; parts that are read now are added.
        is_sealed: whether ``topic`` is a sealed segment, which gets no new entries, so no wait is needed.
    """
    search = _Search(client, topic, wanted, take, known or KnownBatch())
    try:
        if is_sealed:
            search.run_sealed(first_step, growth, is_one_step=is_one_step)
            return True
        return search.run(first_step, growth, is_one_step=is_one_step)
    except DeadlineError as error:
        _log.info("%s: the search for stored messages timed out: %s", topic, error)
        return False


class _Proven:
    is_newest_expected = False  # waits _SETTLING s for an entry; if it comes later, Spark retries the task
    jump = unseen = None

    def __init__(self, proof: StoredProof) -> None:
        self._proof = proof
        self._has_older = False

    @property
    def is_passed(self) -> bool:
        return self._has_older or self._proof.is_passed

    @property
    def is_newest_known(self) -> bool:
        return self._proof.is_found

    def take(self, entries: Entries) -> bool:
        proof = self._proof
        names = entries.texts(EntryField.PRODUCER_NAME)
        ours = pc.equal(names, proof.producer_name.encode()).to_numpy(zero_copy_only=False)
        last = entries.last_sequence_id
        # A lower sequence id of the producer lies before all wanted entries, so the search can end there.
        self._has_older = self._has_older or bool((ours & (last < proof.first_sequence_id)).any())
        is_wanted = ours & (last >= proof.first_sequence_id) & (last <= proof.last_sequence_id)
        for row in np.flatnonzero(is_wanted).tolist():
            proof.take(entries.one(row))
        return False


class _Search:
    def __init__(
        self,
        client: Client,
        topic: TopicName,
        wanted: Wanted,
        take: Callable[[Entries], bool],
        known: KnownBatch,
    ) -> None:
        self._client = client
        self._topic = topic
        self._wanted = wanted
        self._take = take
        self._known = known
        self._deadline = client.operation()

    def run(self, first_step: int, growth: float, *, is_one_step: bool) -> bool:
        with self._reader() as consumer:
            end, stored = self._ends(consumer)
            if end.is_entry:
                self._jump_back(end, first_step, growth)
                self._look_between(end)
                if not self._wanted.is_passed:
                    self._backwards(end, first_step, growth, is_one_step=is_one_step)
            patience = self._deadline.at_most(_SETTLING)
            while not self._wanted.is_newest_known:
                visible = self._visible_now(consumer)
                if visible > end:
                    self._between(end, visible)
                    end = visible
                    continue
                is_hidden = end < stored or self._wanted.is_newest_expected
                if (self._deadline if is_hidden else patience).passed:
                    return not is_hidden
                time.sleep(_PAUSE)
        return True

    def _reader(self) -> Consumer:
        return Consumer(self._client, self._topic, reader_options(self._client, "replay", MessageId.LATEST))

    def _ends(self, consumer: Consumer) -> tuple[MessageId, MessageId]:
        """Asks a new reader for the last visible entry, and for the last entry, visible or not.

        For a terminated topic the broker may report neither; see ``stored_end``.
        """
        visible, stored = (each.whole_entry for each in consumer.last_message_id())
        is_reported = visible.is_entry or stored.is_entry
        if not is_reported:
            stored = position_before(self._client, self._topic, stored.next_entry)
        if stored.is_entry and (self._topic.is_segment or not is_reported):
            visible = visible_end(
                self._client, self._topic, visible, stored, _SETTLING, patience=self._deadline.left
            )
        return visible, stored

    def _visible_now(self, consumer: Consumer) -> MessageId:
        if not self._topic.is_segment:
            return consumer.last_message_id().last.whole_entry
        with self._reader() as again:
            return self._ends(again)[0]

    def run_sealed(
        self, first_step: int, growth: float, *, is_one_step: bool = False, after: MessageId | None = None
    ) -> None:
        """Reads a sealed segment backwards; raises PulsarError if an entry cannot be read in time.

        Reads nothing if the segment ends at ``after`` or before. The end is found by a reader at LATEST,
        because brokers may report an older entry as the last message. Brokers do not deliver entries after
        the first message of an open transaction, so reading them times out.
        """
        end = stored_end(self._client, self._topic)
        if end.is_entry and (after is None or end > after.whole_entry):
            self._backwards(end, first_step, growth, is_one_step=is_one_step)

    def _jump_back(self, end: MessageId, first_step: int, growth: float) -> None:
        step = first_step = max(first_step, 2)  # one entry is too few if tasks write at the same time
        while self._wanted.jump is not None:
            positions = positions_before(self._client, self._topic, end.next_entry, step)
            start = next((each for each in positions if each < end), None)
            if start is None:
                return
            self._between(start, end)
            jump = self._wanted.jump
            is_far = jump is not None and jump <= start
            end, step = (jump.previous, first_step) if jump and is_far else (start, ceil(step * growth))

    def _look_between(self, end: MessageId) -> None:
        while self._wanted.unseen is not None:
            part = self._known.likely(self._wanted.unseen, end)
            if part is None:
                return
            self._between(*part, is_quick=True)

    def _backwards(self, end: MessageId, first_step: int, growth: float, *, is_one_step: bool) -> None:
        known = self._known
        if known.parts:  # first read the entries that were stored since the last search
            self._between(known.parts[-1][1], end)
        low = known.parts[-1][0] if known.parts else end
        if is_one_step:
            self._between(position_back(self._client, self._topic, low, first_step), low)
            return
        for start in positions_before(self._client, self._topic, low.next_entry, first_step, growth):
            if self._wanted.is_passed:
                return
            self._between(start, low)
            low = start

    def _between(self, start: MessageId, end: MessageId, *, is_quick: bool = False) -> None:
        """Reads unread entries in ``(start, end]``; ``is_quick``: stops when ``wanted.unseen`` is None."""
        options = RangeOptions(
            poll_timeout=self._deadline.left,
            visible=False,
            fail_on_data_loss=False,
            window_bytes=_WINDOW_BYTES,
        )
        for first, last in self._known.unread(start, end):
            for entries in read_entries(self._client, self._topic, first, last, options):
                if self._take(entries):
                    self._deadline = self._client.operation()
                self._known.has_read(first, entries.id_of(-1))
                if self._deadline.passed:
                    raise self._deadline.error("the entries were not found")
                if is_quick and self._wanted.unseen is None:
                    return
            self._known.has_read(first, last)
