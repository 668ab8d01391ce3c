"""The rules of data loss, for topics and subscriptions that differ from what a query left. Mostly pure.

Only the query moves its durable subscription. The subscription has no permits, so the broker does not move
it, with one exception: after a consumed ledger was removed it may stand at (next ledger, -1). The messages
after a subscription's position still exist. So if the subscription stands anywhere else after the processed
position, somebody has skipped messages. The begin of the topic then shows whether they are gone. A topic that
begins after the last processed message may have lost some, or none if that message was the last of its
ledger; it counts as loss.

:func:`judge_restart`, when a query with a checkpoint starts; the first matching row applies:

    found                                                     judged as
    the topic ends in an older ledger than a message that     SET_BACK: it was made again, or its broker was
    the query has processed, and its subscription stands      restored from an older state
    before that
    the subscription is missing                               MOVED or LOST
    it stands at an entry after what is processed             MOVED or LOST
    it stands elsewhere                                       FINE

:func:`judge_answer`, while the query runs:

    the subscription stands                                   judged as
    before a message that the query has processed, and the    SET_BACK
    topic ends in an older ledger than that
    at or before what was acknowledged                        FINE: a broker that crashed forgot the last ack
    at or before what is processed                            FINE
    before a ledger, with nothing seen and skipped before     FINE: the broker removed a consumed ledger
    elsewhere                                                 MOVED or LOST

MOVED or LOST, for which the caller asks where the topic begins (ASK_BEGIN, until it is known):

    the topic begins                                          judged as
    at or before what is processed                            MOVED: put back, nothing is lost
    after what is processed                                   LOST: from there to where the topic begins

The end of a topic is its last visible message. Transaction markers may come after it, also in later ledgers,
and a query may begin at one of them. A subscription that then stands at or after the processed position shows
that the topic's log extends that far.

SET_BACK is an error or a warning, like loss. Nobody knows which of the topic's messages the query has
processed: after the error the user decides; with the warning the query continues from the topic's end.

LOST while the query runs is RECREATED, and no loss, if the broker has reported that the topic was deleted,
and all messages seen in it were processed: the topic was merely absent for a while.

A topic that is deleted while the query runs (:func:`lost_by_deletion`): LOST if messages after the processed
position were seen. While the query was stopped (:func:`lost_while_stopped`): LOST if it is still to be read,
because nobody knows which messages came meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from pulsar_spark.client import LostRange
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId, TopicName

_log = logging.getLogger(__name__)

_WHILE_STOPPED = "its subscription was moved by somebody else"
_MISSING = "its subscription was removed, or the topic was deleted and created again"
_WHILE_RUNNING = (
    "its subscription was removed or moved by somebody else, or the topic was deleted and created again"
)


class LossVerdict(Enum):
    """The judgement of a partition, in one word."""

    FINE = "the subscription stands where it may"
    ASK_BEGIN = "where the topic begins decides"
    MOVED = "the subscription was moved or removed; nothing is lost"
    LOST = "messages that were not processed are gone"
    RECREATED = "the topic was deleted and created again; nothing that was seen is lost"
    SET_BACK = "the topic ends before what was processed"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on one partition.

    Attributes:
        verdict: the verdict.
        why: how it is known, if the subscription was moved or removed.
        lost: the deleted messages; None unless the verdict is LOST.
        was_removed: whether the subscription was removed. An error must then remove it again, so that the
            next start finds the same state.
        is_all_seen_processed: whether only messages that were never seen are gone.
    """

    verdict: LossVerdict
    why: str = ""
    lost: LostRange | None = None
    was_removed: bool = False
    is_all_seen_processed: bool = False

    def of_deleted(self, was_deleted: Callable[[], bool]) -> Judgement:
        """The judgement if the topic may have been deleted and recreated, as ``was_deleted`` tells."""
        if self.verdict is LossVerdict.LOST and self.is_all_seen_processed and was_deleted():
            return Judgement(LossVerdict.RECREATED, "the topic was deleted and created again")
        return self


_FINE = Judgement(LossVerdict.FINE)


def judge_restart(
    position: MessageId,
    *,
    last: MessageId,
    mark_delete: MessageId,
    was_missing: bool,
    is_message: bool,
    begin: MessageId | None = None,
) -> Judgement:
    """Judge what happened to a partition while the query was stopped.

    Args:
        position: position up to which the checkpoint has processed the partition.
        last: last visible message of the partition.
        mark_delete: position of the subscription right after it was opened; the end if it was missing.
        was_missing: whether the broker did not have the subscription.
        is_message: whether ``position`` is a message that the query has processed; otherwise it is the user's
            start, or the position before the first message of a ledger.
        begin: position before the topic's first entry; None if it was not requested yet.
    """
    if is_message and _is_set_back(position, last, mark_delete):
        return Judgement(LossVerdict.SET_BACK, was_removed=was_missing)
    if was_missing:
        return _judge_moved(position, begin, _MISSING, was_removed=True)
    if mark_delete.is_message and mark_delete > position.last_whole_entry:
        return _judge_moved(position, begin, _WHILE_STOPPED, was_removed=False)
    return _FINE


def judge_answer(
    position: MessageId,
    *,
    acknowledged: MessageId,
    last_seen: MessageId,
    last: MessageId,
    mark_delete: MessageId,
    is_message: bool,
    begin: MessageId | None = None,
) -> Judgement:
    """Judge whether somebody moved or removed the subscription while the query runs.

    A removed subscription is created again, at the end, when its consumer subscribes again.

    Args:
        position: position up to which the query has processed the partition.
        acknowledged: position up to which the query has acknowledged the partition.
        last_seen: last visible message of the previous answer.
        last: last visible message now.
        mark_delete: position of the subscription now.
        is_message: as in :func:`judge_restart`.
        begin: position before the topic's first entry; None if it was not requested yet.
    """
    if is_message and _is_set_back(position, last, mark_delete):
        return Judgement(LossVerdict.SET_BACK)
    if mark_delete <= acknowledged or mark_delete <= position.last_whole_entry:
        return _FINE
    has_skipped = position < last_seen < mark_delete
    if not mark_delete.is_message and not has_skipped:
        return _FINE
    found = _judge_moved(position, begin, _WHILE_RUNNING, was_removed=not mark_delete.is_message)
    return replace(found, is_all_seen_processed=lost_by_deletion(position, last_seen) is None)


def _is_set_back(position: MessageId, last: MessageId, mark_delete: MessageId) -> bool:
    return last.is_message and last.ledger < position.ledger and mark_delete < position.last_whole_entry


def _judge_moved(position: MessageId, begin: MessageId | None, why: str, *, was_removed: bool) -> Judgement:
    if begin is None:
        return Judgement(LossVerdict.ASK_BEGIN)
    if begin <= position.last_whole_entry:
        return Judgement(LossVerdict.MOVED, why, was_removed=was_removed)
    return Judgement(LossVerdict.LOST, why, LostRange(position, begin, why), was_removed)


def lost_by_deletion(position: MessageId, last_seen: MessageId) -> LostRange | None:
    """The loss from a topic, or one partition, that was deleted while the query runs."""
    return LostRange(position, last_seen, "the topic was deleted") if position < last_seen else None


def lost_while_stopped(position: MessageId, *, is_read: bool) -> LostRange | None:
    """The loss from a deleted partition of the checkpoint; None if the query no longer reads it."""
    return LostRange(position, None, "the topic was deleted while the query was stopped") if is_read else None


class LossReporter:
    """Reports the losses in one run of a query: as an error, or as a WARNING that is counted.

    Args:
        fail_on_data_loss: whether a loss is an error.

    Attributes:
        count: number of losses reported as warnings.
    """

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        self.count = 0
        self._is_error = fail_on_data_loss

    def lost(self, topic: TopicName, lost: LostRange) -> None:
        """Report lost messages of a partition; the query then continues with the remaining ones.

        Raises:
            DataLossError: if a loss is an error; it has the topic and the range.
        """
        self._report(
            DataLossError(
                f"messages that this query had not processed are lost: {lost.why}",
                topic=str(topic),
                message_id=str(lost),
            )
        )

    def set_back(self, topic: TopicName, position: MessageId, last: MessageId) -> None:
        """Report a partition that ends at ``last``, before ``position``, which was processed.

        Raises:
            DataLossError: if it is an error; otherwise the query continues from ``last``.
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
        _log.warning("%s", error.facts)  # its advice is to set what is set
