"""The rules of data loss, for topics and subscriptions that have changed since a query's last state.

Pure, except :class:`LossReporter`.

Only the query moves its durable subscription, with one exception: if the broker removes a consumed ledger,
the subscription stands at (next ledger, -1). A truncated topic or a backlog quota also moves it there, and
the broker does not report the cause. So the end of the ledger with the processed position decides.

If the subscription stands anywhere else after the processed position, another program has skipped messages.
If the topic begins after the last processed message, the skipped messages are lost.

:func:`judge_restart`, when a query with a checkpoint starts; the first matching row applies:

    found                                                     judged as
    the topic ends before a message that the query has        SET_BACK: the topic was recreated, or its
    processed; the subscription stands before that message    broker was restored from an older state
    the subscription is missing                               MOVED or LOST
    it stands at or before the processed position             FINE
    it stands at an entry after the processed position, or    MOVED or LOST
    the processed position is within a batch
    it stands before a later ledger                           by the ledger's end, below

:func:`judge_answer`, while the query runs:

    the subscription stands                                   judged as
    before a message that the query has processed, and the    SET_BACK
    topic ends before that message
    at or before the acknowledged position                    FINE: a broker that crashed lost the last ack
    at another processed message                              FINE or UNSURE, see the next paragraph
    before another processed ledger                           FINE
    before a later ledger; no known message was skipped, and  FINE: the broker removed a consumed ledger,
    acknowledgements were sent up to the processed position   which so ended at the processed position
    elsewhere                                                 MOVED or LOST

If another program has acknowledged messages of the micro-batch, this is FINE while the topic begins at or
before the query's own acknowledgement. Otherwise it is UNSURE: these messages may be deleted, but
tasks report only messages that were deleted after planning.

MOVED or LOST, after the caller has requested the stored entries (ASK):

    the topic begins                                          judged as
    at or before the processed position, or at the next       MOVED: it is moved back, nothing is lost
    ledger, if the position's ledger was consumed
    after the processed position                              LOST: from there to the topic's beginning

The end of the processed position's ledger, which the caller requests, too:

    known                                                     judged as
    no entry was ever stored after the position               FINE
    the position is before a ledger's first entry, and the    FINE: brokers remove empty ledgers
    broker knows no message at all
    the ledger is stored, and ends at the position            FINE
    the ledger is stored, and ends after it                   MOVED
    the ledger is gone, and so is every stored entry          LOST
    the ledger is gone                                        UNSURE: it ended at the position, and the broker
                                                              removed it; or later messages are lost

The end of a topic is its last visible message. A query may begin at a transaction marker after that end; a
subscription at or after the processed position shows that the topic's log extends that far.

UNSURE is a warning, because brokers remove consumed ledgers all the time. SET_BACK is an error or a warning,
like loss, because it is unknown which of the topic's messages were processed. After the warning the query
continues from the topic's end.

LOST while the query runs is RECREATED, and no loss, if the broker has reported that the topic was deleted,
and all known messages were processed.

A topic that is deleted while the query runs (:func:`lost_by_deletion`): LOST if messages after the processed
position were known. A topic that was deleted while the query was stopped (:func:`judge_deleted`):

    the query                                                 judged as
    had planned messages after the processed position         LOST: the micro-batch did not finish
    names the topic                                           LOST: messages may have been published meanwhile
    reads it by a pattern                                     UNSURE: all messages may have been processed
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from pulsar_spark.client import LostRange
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId, TopicName

_log = logging.getLogger(__name__)

_WHILE_STOPPED = "its subscription was moved by somebody else"
_MISSING = "its subscription was removed, or the topic was deleted and created again"
_LEDGER_GONE = (
    "while the query was stopped, the broker removed the ledger of the last message that is processed. It "
    "does so by itself if that message was the ledger's last one, and then nothing is lost. It also does so "
    "if somebody truncates the topic or skips messages, or if a backlog quota or a message TTL drops them"
)
_MEANWHILE = (
    "a message TTL, a backlog quota or somebody else moved the subscription over them before the query "
    "acknowledged them, and the broker deleted them. Tasks report those that they did not find"
)
_DELETED = "the topic was deleted while the query was stopped"
_WHILE_RUNNING = (
    "its subscription was removed or moved by somebody else, or the topic was deleted and created again"
)


class LossVerdict(Enum):
    """The possible judgements of a partition."""

    FINE = "the subscription has an expected position"
    ASK = "the stored entries decide"
    MOVED = "the subscription was moved or removed; nothing is lost"
    LOST = "messages that were not processed are gone"
    UNSURE = "the processed ledger is gone; later messages in it may be gone, too"
    RECREATED = "the topic was deleted and created again; nothing that was seen is lost"
    SET_BACK = "the topic ends before the processed position"


class Stored(NamedTuple):
    """The range of entries that a partition stores.

    Attributes:
        begin: the position before its first entry.
        end: last entry that the broker knows, stored or not; ``(ledger, -1)`` of the newest ledger if it
            knows none.
        ledger_end: number of the last entry in the processed position's ledger; None if that ledger is gone.
    """

    begin: MessageId
    end: MessageId
    ledger_end: int | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on one partition.

    Attributes:
        why: evidence, if the subscription was moved or removed.
        lost: messages that are, or may be, deleted; None unless the verdict is LOST or UNSURE.
        was_removed: whether the subscription was removed, and opening created it again. If the query fails,
            the subscription is removed, so that the next start finds the same state.
        is_all_seen_processed: whether the query has processed all messages that it knew.
    """

    verdict: LossVerdict
    why: str = ""
    lost: LostRange | None = None
    was_removed: bool = False
    is_all_seen_processed: bool = False

    def of_deleted(self, was_deleted: Callable[[], bool]) -> Judgement:
        """Returns RECREATED instead of LOST if the topic was deleted and all seen messages were processed."""
        if self.verdict is LossVerdict.LOST and self.is_all_seen_processed and was_deleted():
            return Judgement(LossVerdict.RECREATED, "the topic was deleted and created again")
        return self

    def elsewhere(self, position: MessageId, why: str) -> Judgement:
        """Returns LOST instead of FINE or MOVED if this may be another cluster, for the reason ``why``."""
        if not why or self.verdict not in (LossVerdict.FINE, LossVerdict.MOVED):
            return self
        return replace(self, verdict=LossVerdict.LOST, why=why, lost=LostRange(position, None, why))


_FINE = Judgement(LossVerdict.FINE)


def judge_restart(
    position: MessageId,
    *,
    last: MessageId,
    mark_delete: MessageId,
    was_missing: bool,
    is_processed: bool,
    stored: Stored | None = None,
) -> Judgement:
    """Judges changes of a partition while the query was stopped.

    Args:
        mark_delete: position of the subscription right after opening; the end if the subscription was
            missing.
        is_processed: whether the query has processed the message at ``position``; otherwise ``position`` is
            the user's start, or the position before the first entry of a ledger.
    """
    if is_processed and _is_set_back(position, last, mark_delete):
        return Judgement(LossVerdict.SET_BACK, was_removed=was_missing)
    if was_missing:
        return replace(_judge_moved(position, stored, _MISSING), was_removed=True)
    if mark_delete <= position.last_whole_entry:
        return _FINE
    if mark_delete.is_entry or position.batch_index >= 0:
        return _judge_moved(position, stored, _WHILE_STOPPED)
    return _judge_ledger(position, mark_delete, stored)


def judge_answer(
    position: MessageId,
    *,
    acknowledged: MessageId,
    asked: MessageId,
    last_seen: MessageId,
    next_seen: MessageId,
    last: MessageId,
    mark_delete: MessageId,
    is_processed: bool,
    goes_on: MessageId = MessageId.EARLIEST,
    stored: Stored | None = None,
) -> Judgement:
    """Judges whether the subscription was moved or removed while the query runs.

    If the subscription was removed, the consumer's next SUBSCRIBE creates it at the end.

    Args:
        acknowledged: last known position of the subscription.
        asked: position up to which acknowledgements were sent before the request, confirmed or not.
        next_seen: first known message after ``position``; ``position`` or an earlier one if none is known.
        goes_on: position before the next ledger, if the broker removed the consumed ledger of ``position``.
    """
    if is_processed and _is_set_back(position, last, mark_delete):
        return Judgement(LossVerdict.SET_BACK)
    own = max(acknowledged, asked, goes_on)
    if mark_delete <= position.last_whole_entry:
        if not is_processed or not mark_delete.is_entry or mark_delete <= own:
            return _FINE
        if stored is None:
            return Judgement(LossVerdict.ASK)
        lost = LostRange(own, stored.begin, _MEANWHILE)
        return _FINE if stored.begin <= own else Judgement(LossVerdict.UNSURE, _MEANWHILE, lost)
    if mark_delete <= acknowledged:
        return _FINE
    has_skipped = position < next_seen < mark_delete
    # Brokers remove only acknowledged ledgers. If the query acknowledged less, another program did it.
    is_unasked = is_processed and asked < min(position, last_seen).last_whole_entry
    if not mark_delete.is_entry and not has_skipped and not is_unasked:
        return _FINE
    found = _judge_moved(position, stored, _WHILE_RUNNING, goes_on)
    return replace(found, is_all_seen_processed=lost_by_deletion(position, max(last_seen, next_seen)) is None)


def _is_set_back(position: MessageId, last: MessageId, mark_delete: MessageId) -> bool:
    is_before = last.is_entry and last.whole_entry < position.whole_entry
    return is_before and mark_delete < position.last_whole_entry


def _judge_moved(
    position: MessageId, stored: Stored | None, why: str, goes_on: MessageId = MessageId.EARLIEST
) -> Judgement:
    if stored is None:
        return Judgement(LossVerdict.ASK)
    if stored.begin <= max(position.last_whole_entry, goes_on):
        return Judgement(LossVerdict.MOVED, why)
    return Judgement(LossVerdict.LOST, why, LostRange(position, stored.begin, why))


def _judge_ledger(position: MessageId, mark_delete: MessageId, stored: Stored | None) -> Judgement:
    if stored is None:
        return Judgement(LossVerdict.ASK)
    if stored.end <= position or not (position.is_entry or stored.end.is_entry):
        return _FINE
    if stored.begin <= position:
        is_end = stored.ledger_end == position.entry
        return _FINE if is_end else Judgement(LossVerdict.MOVED, _WHILE_STOPPED)
    if stored.end < mark_delete:
        return Judgement(LossVerdict.LOST, _WHILE_STOPPED, LostRange(position, stored.begin, _WHILE_STOPPED))
    return Judgement(LossVerdict.UNSURE, _LEDGER_GONE, LostRange(position, stored.begin, _LEDGER_GONE))


def lost_by_deletion(position: MessageId, last_seen: MessageId) -> LostRange | None:
    """Returns the lost messages of a topic, or one partition, that was deleted while the query runs."""
    return LostRange(position, last_seen, "the topic was deleted") if position < last_seen else None


def judge_deleted(position: MessageId, planned: MessageId, *, is_named: bool) -> Judgement:
    """Judges a partition of the checkpoint that was deleted while the query was stopped.

    Args:
        planned: end of the checkpoint's last micro-batch, finished or not.
        is_named: whether the options name the partition or its topic; otherwise a pattern matches.
    """
    is_lost = is_named or (planned.is_entry and position < planned)
    verdict = LossVerdict.LOST if is_lost else LossVerdict.UNSURE
    return Judgement(verdict, _DELETED, LostRange(position, None, _DELETED))


class LossReporter:
    """Reports the losses in one run of a query, as errors or as counted WARNINGs.

    Attributes:
        count: number of losses reported as warnings.
        deleted: partitions deleted while the query ran, without lost messages; at most the last 1000.
    """

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        self.count = 0
        self.possible: dict[TopicName, LostRange] = {}
        self.deleted: deque[TopicName] = deque(maxlen=1000)  # limited, because Spark's progress lists all
        self._unwarned: list[TopicName] = []
        self._has_warned = False
        self._is_error = fail_on_data_loss

    def lost(self, topic: TopicName, lost: LostRange) -> None:
        """Reports lost messages of a partition; the query then continues with the remaining messages.

        Raises DataLossError: losses are errors; the error has the topic and the range.
        """
        self._report(
            DataLossError(
                f"messages that this query had not processed are lost: {lost.why}",
                topic=str(topic),
                message_id=str(lost),
            )
        )

    def unsure(self, topic: TopicName, lost: LostRange) -> None:
        """Records messages that may be lost; ``log_noted`` reports them."""
        self.possible[topic] = lost
        self._unwarned.append(topic)

    def log_noted(self) -> None:
        """Warns of possible losses since the last call; once per run, also warns of deleted partitions.

        Neither is an error, nor counted as a loss.
        """
        if self.deleted and not self._has_warned:
            self._has_warned, more = True, len(self.deleted) - 1
            what = f"{self.deleted[0]} and {more} more partitions" if more else str(self.deleted[0])
            seen = "all messages that the query had seen are processed"
            _log.warning("%s: deleted; %s. The query's progress lists all, as deletedTopics", what, seen)
        topics, self._unwarned = self._unwarned, []
        if topics:
            topic, more = topics[0], len(topics) - 1
            lost, others = self.possible[topic], f", and of {more} more partitions" if more else ""
            listed = "The query's progress lists all, as possibleLoss"
            _log.warning("%s: messages in %s may be lost%s: %s. %s", topic, lost, others, lost.why, listed)

    def set_back(self, topic: TopicName, position: MessageId, last: MessageId) -> None:
        """Reports a partition that ends at ``last``, before ``position``, which was processed.

        Raises DataLossError: losses are errors; otherwise the query continues from ``last``.
        """
        self._report(
            DataLossError(
                f"the topic ends at {last}, before the position that this query has processed: the topic "
                "was deleted and created again, or its broker was restored from an older state",
                topic=str(topic),
                message_id=str(position),
                advice="Start a query with a new checkpoint to read all messages in the topic, or set "
                "failOnDataLoss=false to continue from the topic's end",
            )
        )

    def _report(self, error: DataLossError) -> None:
        if self._is_error:
            raise error
        self.count += 1
        _log.warning("%s", error.facts)  # without the advice to set failOnDataLoss=false, which is set
