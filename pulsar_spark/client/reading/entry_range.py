"""The entries between two positions of a topic partition, as the broker delivers them."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.reading.probe import OPENS_COMPACTED_WITHIN, reader_options
from pulsar_spark.errors import CorruptError, DataLossError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import FIRST_ENTRIES, Permits
from pulsar_spark.protocol.reading.range_progress import Gap, LostRange, RangeProgress
from pulsar_spark.wire.entry.entries import Entries

WINDOW_BYTES = 16 * 1024 * 1024

_FIRST_IDLE = 0.2  # seconds without an entry until the broker is first asked whether entries are left
_MAX_IDLE = 1.0  # the seconds without an entry double with each request, up to this maximum

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """Settings for reading a range.

    Attributes:
        visible: whether the end was a visible message when the range was planned. If so, a missing end is
            data loss. Any other end may be a marker of a transaction, an aborted or compacted message, or a
            position after the end of its ledger.
        begins: position after which the broker had all entries when the range was planned. Data is lost if a
            reader can only begin later. None: unknown; then only a missing end is noticed.
        followed: whether a visible message followed the end when the range was planned. If so, a broker that
            has no such message has lost data, or belongs to another cluster.
        fail_on_data_loss: True: lost or corrupt data is an error. False: it is a WARNING, and reading
            continues after it.
        read_compacted: whether to read the compacted topic, where missing entries are not data loss.
        window_bytes: maximum bytes in flight from the broker.
        first_entries: maximum entries in flight until the size of entries is known.
    """

    poll_timeout: float
    visible: bool = True
    begins: MessageId | None = None
    followed: bool = False
    fail_on_data_loss: bool = True
    read_compacted: bool = False
    window_bytes: int = WINDOW_BYTES
    first_entries: int = FIRST_ENTRIES


def read_entries(
    client: Client, topic: TopicName, start: MessageId, end: MessageId, options: RangeOptions
) -> Generator[Entries, None, None]:
    """Yields all entries in ``(start, end]``, in order, each once.

    Raises as :func:`pulsar_spark.client.read_ranges`.
    """
    if start < end:
        subscription = reader_options(
            client, "reader", start.next_entry, read_compacted=options.read_compacted
        )
        permits = Permits(options.window_bytes, options.first_entries)
        consumer = Consumer(client, topic, subscription, permits)
        try:
            yield from _RangeReader(client, consumer, start, end, options).read()
        finally:
            # Does not wait for the answer, because a task may read thousands of partitions, and each wait
            # costs a switch of threads.
            consumer.begin_close()


def position_before(client: Client, topic: TopicName, position: MessageId) -> MessageId:
    """Returns the last entry before ``position``, which may be in an earlier ledger.

    At the topic's beginning, the entry id is -1. If the ledger of ``position`` is deleted, returns the
    position before the first remaining entry.
    """
    with Consumer(client, topic, reader_options(client, "reader", position)) as consumer:
        return consumer.last_message_id().mark_delete


def positions_before(
    client: Client, topic: TopicName, position: MessageId, step: int, growth: float = 2.0
) -> Iterator[MessageId]:
    """Yields ever earlier positions before an entry; the last is the topic's beginning.

    Args:
        position: id of the entry.
        step: number of entries between the entry and the first position.
        growth: factor from one step back to the next, within a ledger; above 1.
    """
    while True:
        while step < position.entry:
            yield position.back(step + 1)
            step = math.ceil(step * growth)
        yield position.ledger_start
        before = end_of_ledger_before(client, topic, position)
        if before is None:
            return
        position = before.next_entry


def position_back(client: Client, topic: TopicName, position: MessageId, entries: int) -> MessageId:
    """Returns the position ``entries`` entries before ``position``, across ledgers, or the beginning."""
    while position.entry + 1 < entries:
        before = end_of_ledger_before(client, topic, position)
        if before is None:
            break
        entries -= position.entry + 1
        position = before
    return position.back(entries)


def end_of_ledger_before(client: Client, topic: TopicName, position: MessageId) -> MessageId | None:
    """Returns the last entry before the ledger of ``position``; None if the topic begins with this ledger."""
    before = position_before(client, topic, position.ledger_start.next_entry)
    return before if before.ledger < position.ledger else None


def stored_end(client: Client, topic: TopicName) -> MessageId:
    """Returns the last entry of a partition, even a transaction marker or an aborted message.

    After a restart a broker opens an empty ledger. If the topic is terminated before its next message, the
    broker reports the empty ledger as the end, and no last message, although it has older entries.
    """
    latest = position_before(client, topic, MessageId.LATEST)
    return latest if latest.is_entry else position_before(client, topic, latest.next_entry)


def hidden_end(client: Client, topic: TopicName, reported: MessageId) -> MessageId:
    """Returns the last entry of a terminated topic for which the broker reports no message.

    Returns ``reported``, the broker's last message, for other topics; see :func:`stored_end`.
    """
    if reported.is_entry:
        return reported
    latest = position_before(client, topic, MessageId.LATEST)
    if latest.is_entry:  # the last ledger has entries, so the report is right: none of them is visible
        return reported
    end = position_before(client, topic, latest.next_entry)
    return end if end.is_entry else reported


class _RangeReader:
    def __init__(
        self, client: Client, consumer: Consumer, start: MessageId, end: MessageId, options: RangeOptions
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._acked = start
        self._options = options
        self._progress = RangeProgress(
            start,
            end,
            visible=options.visible,
            begins=options.begins,
            followed=options.followed,
            read_compacted=options.read_compacted,
        )

    def read(self) -> Iterator[Entries]:
        progress, entries = self._progress, self._first()
        # If the first entry directly follows the start, no entry is missing. Otherwise the broker is asked
        # where the reader began.
        is_direct = entries is not None and entries.id_of(0) == progress.position.next_entry
        if not (self._options.read_compacted or is_direct) and progress.opened(
            self._consumer.last_message_id().mark_delete
        ):
            self._probe(None)
        while not progress.is_done:
            try:
                entries = self._next() if entries is None else entries
            except CorruptError as error:
                self._skip(error)
                continue
            count = self._take(entries)
            if count:
                yield entries[:count]
            entries = None

    def _first(self) -> Entries | None:
        """Returns the first entries; None if none arrives in 0.2 s, or the range spans ledgers."""
        if self._progress.entries_left is not None and not self._options.read_compacted:
            with suppress(CorruptError):  # the next call raises it again
                deadline = Deadline(self._options.poll_timeout)
                return self._consumer.receive(deadline, self._progress.entries_left, _FIRST_IDLE) or None
        return None

    def _next(self) -> Entries:
        deadline, idle = Deadline(self._options.poll_timeout), _FIRST_IDLE
        while True:
            entries = self._consumer.receive(deadline, self._progress.entries_left, idle)
            if len(entries) or self._is_exhausted():
                return entries
            idle = min(2 * idle, _MAX_IDLE)

    def _take(self, entries: Entries) -> int:
        progress, end = self._progress, self._progress.end
        if not len(entries):
            self._report(progress.passed(None))
            return 0
        ledger, entry = entries.ledger, entries.entry
        is_inside = (ledger < end.ledger) | ((ledger == end.ledger) & (entry <= end.entry))
        count = int(np.count_nonzero(is_inside))
        gap = progress.first_gap(ledger[:count], entry[:count])
        if gap:
            progress.received(entries.id_of(gap - 1))
        if gap < count:
            if not self._is_empty_before(entries.id_of(gap)):
                return gap
            progress.received(entries.id_of(count - 1))
        if count < len(entries) and progress.position < end.whole_entry:
            found = entries.id_of(count)
            if self._is_empty_before(found):
                self._report(progress.passed(found))
        return count

    def _is_exhausted(self) -> bool:
        """Asks the broker; returns whether it will deliver no more entries of the range."""
        position = self._progress.position
        try:
            if position > self._acked:
                self._consumer.ack_cumulative(position)
                self._acked = position
            last, mark_delete = self._consumer.last_message_id()
        except PulsarError as error:
            if not error.is_passing:
                raise
            _log.info("%s: checking again whether messages are left: %s", self._consumer.topic, error)
            return False
        gap = self._judge_silence(last, mark_delete)
        return gap is not None and self._may_continue(gap, None)

    def _judge_silence(self, last: MessageId, mark_delete: MessageId) -> Gap | None:
        # Brokers with transactions may report an old last message of a segment. The range's end was visible
        # when it was planned, so it counts as the last message.
        topic = self._consumer.topic
        if topic.is_segment:
            last = self._progress.end
        elif not self._options.read_compacted:
            last = hidden_end(self._client, topic, last)
        return self._progress.judge_silence(last, mark_delete)

    def _is_empty_before(self, found: MessageId) -> bool:
        """Whether no visible entry lies between the last read entry and ``found``, the next received one."""
        if self._options.read_compacted or found == self._progress.position.next_entry:
            return True
        mark_delete = self._consumer.last_message_id(Deadline(self._options.poll_timeout)).mark_delete
        return self._may_continue(self._progress.judge_gap(mark_delete, found), found)

    def _may_continue(self, gap: Gap, found: MessageId | None) -> bool:
        """Whether reading continues with ``found``, after the gap; if not, the gap is read again."""
        match self._probe(found) if gap is Gap.UNKNOWN else gap:
            case Gap.EMPTY:
                return True
            case Gap.SKIPPED | Gap.UNKNOWN:
                return self._read_again(found)

    def _read_again(self, found: MessageId | None) -> bool:
        """Seeks to the start of the gap, or reports it as lost after several attempts; True: lost."""
        progress = self._progress
        lost = progress.repeat(found)
        if lost is not None:
            self._report(lost)
            return True
        position = self._acked = progress.position
        _log.info("%s: reading again from after %s", self._consumer.topic, position)
        self._consumer.seek(position.next_entry)
        return False

    def _probe(self, found: MessageId | None) -> Gap:
        """Judges a gap by the first entry of a second reader, which begins at the gap; reports lost messages.

        If the second reader begins in a later ledger, it seeks to the last read entry. If it cannot begin at
        that entry either, the ledger of that entry was deleted.
        """
        progress, topic = self._progress, self._consumer.topic
        options = reader_options(
            self._client, "reader", progress.position.next_entry, read_compacted=self._options.read_compacted
        )
        with Consumer(self._client, topic, options, Permits(1)) as second:
            begins = second.last_message_id().mark_delete
            first = self._first_of(second)
            if begins.ledger > progress.position.ledger and not begins.is_entry:
                second.seek(progress.position)
                begins = second.last_message_id().mark_delete
        probed = progress.judge_probe(begins, first, found)
        self._report(probed.lost)
        return probed.gap

    def _first_of(self, second: Consumer) -> MessageId | None:
        deadline = Deadline(self._options.poll_timeout)
        opening = deadline.at_most(OPENS_COMPACTED_WITHIN) if self._options.read_compacted else Deadline(0.0)
        while True:
            try:
                entries = second.receive(deadline, 1, _FIRST_IDLE)
            except CorruptError as error:
                return _corrupt_id(error)
            if len(entries):
                return entries.id_of(0)
            gap = self._judge_silence(*second.last_message_id())
            if gap is Gap.EMPTY or (gap is Gap.UNKNOWN and opening.passed):
                return None

    def _skip(self, error: CorruptError) -> None:
        found = _corrupt_id(error)
        if not self._is_empty_before(found):
            return
        if found > self._progress.end.whole_entry:
            self._report(self._progress.passed(found))
            return
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("an entry that cannot be decoded is left out: %s", error.facts)
        self._progress.skip(found)
        self._consumer.seek(found.next_entry)

    def _report(self, lost: LostRange | None) -> None:
        if lost is None:
            return
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"messages in {lost} are lost: {lost.why}",
                topic=str(self._consumer.topic),
                message_id=str(lost.end),
                advice="Check the topic's retention and message TTL, and who removed its subscription",
            )
        _log.warning("%s: messages in %s are lost: %s", self._consumer.topic, lost, lost.why)


def _corrupt_id(error: CorruptError) -> MessageId:
    assert error.message_id is not None  # the consumer sets the error's message id
    return MessageId.parse(error.message_id)
