"""Pending acknowledgements of a consumer, grouped: a cumulative one covers all entries up to its own."""

from __future__ import annotations

from typing import NamedTuple

from pulsar_spark.ids import MessageId

GROUP_TIME = 0.1
GROUP_SIZE = 1000


class AckGroup(NamedTuple):
    """What one flush sends: a cumulative mark or None, and single ids above it, in order."""

    cumulative: MessageId | None
    individual: list[MessageId]


class AckTracker:
    """Collects the acks of one consumer until they are due.

    Args:
        group_time: seconds that an ack may wait for others; 0 makes each due at once.
    """

    def __init__(self, group_time: float = GROUP_TIME) -> None:
        self._group_time = group_time
        self._mark: MessageId | None = None
        self._mark_pending = False
        self._individual: set[MessageId] = set()
        self._pending: set[MessageId] = set()
        self._since: float | None = None

    def add(self, message_id: MessageId, now: float) -> None:
        """Acknowledge one entry."""
        if not self.covers(message_id):
            self._individual.add(message_id)
            self._pending.add(message_id)
            self._began(now)

    def add_cumulative(self, message_id: MessageId, now: float) -> None:
        """Acknowledge everything up to ``message_id``; a mark never moves back.

        A mark that was sent before is sent again: after a crash a broker's position may be before it.
        """
        if self._mark is None or message_id > self._mark:
            self._mark = message_id
        self._mark_pending = True
        self._individual = {single for single in self._individual if single > message_id}
        self._pending &= self._individual
        self._began(now)

    def covers(self, message_id: MessageId) -> bool:
        """Whether a message is acknowledged already, so that a redelivery of it is a duplicate."""
        return (self._mark is not None and message_id <= self._mark) or message_id in self._individual

    @property
    def due_at(self) -> float | None:
        """When the pending acks must be sent; None if there are none."""
        if self._since is None:
            return None
        return self._since if len(self._pending) >= GROUP_SIZE else self._since + self._group_time

    def take(self) -> AckGroup:
        """Hand out what is pending."""
        group = AckGroup(self._mark if self._mark_pending else None, sorted(self._pending))
        self._mark_pending = False
        self._pending = set()
        self._since = None
        return group

    def put_back(self, group: AckGroup, now: float) -> None:
        """Make a group pending again: its receipt did not come."""
        if group.cumulative is not None and group.cumulative == self._mark:
            self._mark_pending = True
        self._pending |= self._individual.intersection(group.individual)
        if self._mark_pending or self._pending:
            self._began(now)

    def _began(self, now: float) -> None:
        if self._since is None:
            self._since = now
