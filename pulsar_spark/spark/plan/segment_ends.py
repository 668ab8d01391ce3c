"""SegmentEnds: asks brokers whether sealed segments have ended where a query has read them to.

After the last message that readers are given there may be markers of transactions, or messages of one that is
open. And brokers tell of a migrated topic that its old partitions are sealed before they are. So a segment
has ended only if that is known of its last entry, or if the broker says so to a reader that has all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from pulsar_spark.client import PROMPT, Pauses, PendingCalls, PlanningClient
from pulsar_spark.errors import NotReadyError, PulsarError
from pulsar_spark.ids import MessageId, TopicName

_log = logging.getLogger(__name__)

_ADVICE = "End or abort open transactions. Start the query again if it has stopped"


class SegmentEnds:
    """The questions of one run of a query.

    Args:
        client: client of the cluster.
    """

    def __init__(self, client: PlanningClient) -> None:
        self._client = client
        self._calls: PendingCalls[TopicName] = PendingCalls()
        self._pauses: Pauses[TopicName] = Pauses()

    def find(self, positions: Mapping[TopicName, MessageId], *, waits: bool) -> set[TopicName]:
        """Those of sealed segments that have ended; there is one warning of each other one.

        Args:
            positions: up to where each is processed, its last visible message.
            waits: whether to wait for all answers.
        """
        now, busy = self._client.now(), self._calls.busy
        calls = {
            topic: partial(self._client.has_ended, topic, position)
            for topic, position in positions.items()
            if topic not in busy and (waits or self._pauses.is_over(topic, now))
        }
        ended = set()
        for topic, answer in self._calls.run(calls, None if waits else PROMPT).items():
            if answer is True:
                self._pauses.succeeded(topic)
                ended.add(topic)
                continue
            level = logging.WARNING if self._pauses.failed(topic, self._client.now()) else logging.INFO
            _log.log(level, "%s", answer if isinstance(answer, PulsarError) else not_ended(topic))
        return ended

    def due_at(self, now: float) -> float:
        """When :meth:`find` may find more."""
        return now if self._calls.has_more else self._pauses.due_at(now)


def not_ended(segment: TopicName) -> NotReadyError:
    """The error of a segment that others wait for."""
    return NotReadyError(
        "the segment is sealed and read to its last message, but the broker does not say that it has ended; "
        "segments after it are not read before that",
        topic=str(segment),
        advice=_ADVICE,
    )
