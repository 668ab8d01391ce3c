"""What is data loss, when topics and subscriptions are not as a query left them. Pure, but for the report.

Nobody but the query moves its durable subscription: it has no permits, so the broker does not either, but for
one thing: where a consumed ledger was removed it may stand at (next ledger, -1). What lies after a
subscription's position is there. So where it stands anywhere else after what is processed, somebody has
skipped messages. Where the topic begins then shows whether they are gone: a topic that begins after the last
processed message may have lost some, or none where that was the last of its ledger; it counts as loss.

:func:`judge_restart`, when a query with a checkpoint starts; the first row that fits holds:

    found                                                     judged as
    the topic ends in an older ledger than a message that     SET_BACK: it was made again, or its broker was
    the query has processed, and its subscription stands      restored from an older state
    before that
    the subscription is missing                               MOVED or LOST
    it stands at an entry after what is processed             MOVED or LOST
    it stands elsewhere                                       FINE

:func:`judge_answer`, under the running query:

    the subscription stands                                   judged as
    before a message that the query has processed, and the    SET_BACK
    topic ends in an older ledger than that
    at or before what was acknowledged                        FINE: a broker that crashed forgot the last ack
    at or before what is processed                            FINE
    before a ledger, with nothing seen and skipped before     FINE: the broker removed a consumed ledger
    elsewhere                                                 MOVED or LOST

MOVED or LOST, for which the caller asks where the topic begins (ASK_BEGIN, until it knows):

    the topic begins                                          judged as
    at or before what is processed                            MOVED: put back, nothing is lost
    after what is processed                                   LOST: from there to where the topic begins

The end of a topic is its last visible message. Markers of transactions may lie after it, in later ledgers,
too, and a query may begin at one of them. There a subscription that stands at or after what is processed
shows that the topic's log goes so far.

SET_BACK is an error or a warning, as loss is. Nobody knows which of the topic's messages the query has had:
after the error the user decides, and with the warning the query goes on from the topic's end.

LOST under the running query is RECREATED, and no loss, where the broker has reported that the topic was
deleted, and all that was seen of it is processed: it is as if the topic had been gone for a while.

A topic that is gone, under the running query (:func:`lost_by_deletion`): LOST if messages after what is
processed were seen. While the query was stopped (:func:`lost_while_stopped`): LOST if it is still to be read,
since nobody knows what came meanwhile.
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
    """What a partition is judged as."""

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
        verdict: what it is.
        why: how that is known, where the subscription was moved or removed.
        lost: the messages that are gone; None unless the verdict is LOST.
        was_removed: whether the subscription was removed, so that an error must remove it again: the next
            start then finds the same.
        is_all_seen_processed: whether only messages are gone that were never seen.
    """

    verdict: LossVerdict
    why: str = ""
    lost: LostRange | None = None
    was_removed: bool = False
    is_all_seen_processed: bool = False

    def of_deleted(self, was_deleted: Callable[[], bool]) -> Judgement:
        """The judgement where the topic may have been deleted and made again, which ``was_deleted`` tells."""
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
        position: up to where the checkpoint has processed it.
        last: the last visible message of the partition.
        mark_delete: where the subscription stands, just opened; at the end where it was missing.
        was_missing: whether the broker did not have the subscription.
        is_message: whether ``position`` is a message that the query has processed; else it is where the user
            let it begin, or before the first message of a ledger.
        begin: the position before the topic's first entry; None where that was not asked yet.
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
    """Judge whether somebody moved or removed the subscription under the running query.

    One that was removed is made again, at the end, when its consumer subscribes again.

    Args:
        position: up to where the query has processed the partition.
        acknowledged: up to where it has acknowledged it.
        last_seen: the last visible message of the answer before.
        last: the last visible message now.
        mark_delete: where the subscription stands now.
        is_message: as in :func:`judge_restart`.
        begin: the position before the topic's first entry; None where that was not asked yet.
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
    """The loss with a topic, or one partition, that was deleted under the running query."""
    return LostRange(position, last_seen, "the topic was deleted") if position < last_seen else None


def lost_while_stopped(position: MessageId, *, is_read: bool) -> LostRange | None:
    """The loss with a deleted partition of the checkpoint; None if it is no longer to be read."""
    return LostRange(position, None, "the topic was deleted while the query was stopped") if is_read else None


class LossReporter:
    """Reports what is lost in one run of a query: as an error, or as a WARNING that is counted.

    Args:
        fail_on_data_loss: whether it is an error.

    Attributes:
        count: how many losses were warned of.
    """

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        self.count = 0
        self._is_error = fail_on_data_loss

    def lost(self, topic: TopicName, lost: LostRange) -> None:
        """Report lost messages of a partition; the query then continues with the remaining ones.

        Raises:
            DataLossError: where it is an error; it has the topic and the range.
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
            DataLossError: if it is an error; else the query continues from ``last``.
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
        _log.warning("%s", error)
