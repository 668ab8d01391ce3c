"""A query's move to another cluster: copies of the query's last entries show its positions there.

A move is a micro-batch without rows, from the positions in the old cluster to the positions in the new one.
So each other micro-batch lies in one cluster, and its offsets alone define its messages. A micro-batch that
did not finish in the old cluster runs again first: it reads the copies of its entries. See
:mod:`pulsar_spark.protocol.reading.copies`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from pulsar_spark.client import (
    Copied,
    CopyRange,
    LostRange,
    PlanningClient,
    Range,
    StoredEntry,
    Witness,
    position_of,
)
from pulsar_spark.errors import OtherClusterError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.clusters.witnesses import MovedError, copied_partition, iso_time
from pulsar_spark.spark.plan.loss_check import Checkpoint, LossCheck
from pulsar_spark.spark.plan.offsets import Left, Offsets
from pulsar_spark.spark.plan.ranges import plan_ranges
from pulsar_spark.spark.plan.resolve import run_for_each

_log = logging.getLogger(__name__)

# Maximum partitions that a warning names.
_MAX_LISTED = 10

_GONE = "this cluster has no copy of a message up to there: retention has deleted it, or it was never copied"
_LATE = "the micro-batch did not finish, and these messages have not been copied to this cluster"


class Moves:
    """Moves a query from its checkpoint's cluster to this one, and reports messages without copies here."""

    def __init__(self, client: PlanningClient, options: SourceOptions, loss_check: LossCheck) -> None:
        self._client = client
        self._options = options
        self._margin_ms = round(1000 * options.publish_time_margin)
        self._loss_check = loss_check

    def moved(self, start: Offsets, error: MovedError, existing: Collection[TopicName]) -> Offsets:
        """Returns where the query continues in this cluster; ``start``: last offset in the old cluster.

        A query that was in this cluster before continues where it left, because later entries may have had
        no copies in the other cluster.

        Raises:
            DataLossError: copies of unread messages may be gone.
            BrokerError: the broker did not answer.
        """
        left = {topic: each for topic, each in start.positions.items() if topic in existing}
        for topic in sorted(start.positions.keys() - left.keys()):
            Checkpoint.finished(start).report_absent(self._loss_check, topic)
        self._loss_check.has_moved, cluster, here = True, error.cluster, error.before
        now = Left(cluster, self._now_ms(), left, start.witness)
        if here is not None:
            _log.warning(
                "the query returns from cluster %r to cluster %r, and continues where it left that. Messages "
                "of %r since then are read again if they had been copied%s",
                *(cluster, here.cluster, here.cluster, "" if cluster else ", and those of the other cluster"),
            )
            back = {topic: each for topic, each in here.positions.items() if topic in left}
            return Offsets(start.subscription, back, here.witness, now)
        calls = {topic: partial(self._search, cluster, topic, each) for topic, each in left.items()}
        positions, told, witness = {}, [], None
        for topic, (begin, copied, newest) in run_for_each(calls).items():
            self._require_copies(topic, copied, left[topic])
            positions[topic] = begin
            told.append(f"{topic}: {_told(newest.last_read)}")
            if witness is None and copied.last_read is not None:
                witness = Witness.of(topic, copied.last_read)
        more = f"; and {len(told) - _MAX_LISTED} more" if len(told) > _MAX_LISTED else ""
        _log.warning(
            "the query moves from cluster %r to the one of %s. The last message of %r that has been copied "
            "there: %s%s. Messages after it are read when they arrive. Messages of all other clusters are "
            "read again if they were published at most %g s before the last copy that the query had read, "
            "or later, or if there is no such copy; if some took longer to reach %r, they may be left out: "
            "set publishTimeMargin",
            *(cluster, self._options.client.service_url, cluster, "; ".join(sorted(told)[:_MAX_LISTED])),
            *(more, self._options.publish_time_margin, cluster),
        )
        return Offsets(start.subscription, positions, witness, now)

    def replay(
        self, start: Offsets, end: Offsets, error: MovedError, existing: Collection[TopicName]
    ) -> list[Range]:
        """Returns the ranges of copies of a micro-batch that did not finish in another cluster.

        Raises:
            OtherClusterError: it is the query's first micro-batch.
            DataLossError: messages of the micro-batch were not copied, or their copies are gone.
            BrokerError: the broker did not answer.
        """
        cluster = error.cluster
        if not cluster:
            raise OtherClusterError("a micro-batch did not finish on another cluster, whose name is unknown")
        if start.subscription != end.subscription:
            raise OtherClusterError(
                f"the checkpoint is of cluster {cluster!r}, where the first micro-batch did not finish",
                advice="Nothing is processed: start the query with a new checkpointLocation",
            )
        asked = plan_ranges(start, end, dict.fromkeys(end.positions, MessageId.EARLIEST))
        for each in asked:
            if each.topic not in existing:
                Checkpoint.unfinished(start, end).report_absent(self._loss_check, each.topic)
        asked, ranges = [each for each in asked if each.topic in existing], []
        # The first fields of a range are topic, start and end.
        found = run_for_each({each.topic: partial(self._search, cluster, *each[:3]) for each in asked})
        back = {} if error.before is None else error.before.positions
        for each in asked:
            begin, before, after = found[each.topic]
            last = after.last_read
            if error.before is None:
                self._require_copies(each.topic, before, each.start)
            if not after.has_arrived(each.end):
                copied = max(each.start, position_of(last) or each.start)
                self._loss_check.reporter.lost(each.topic, LostRange(copied, each.end, _LATE))
            begin = max(begin, back.get(each.topic, begin))
            if last is not None and last.id > begin:
                copies = CopyRange(cluster, each.start, self._now_ms(), each.end)
                ranges.append(Range(each.topic, begin, last.id, copies=copies))
        _log.warning(
            "a micro-batch that did not finish on cluster %r runs again, on copies of its messages", cluster
        )
        return ranges

    def _now_ms(self) -> int:
        return self._client.time_ms() + self._margin_ms

    def _require_copies(self, topic: TopicName, copied: Copied, position: MessageId) -> None:
        if not copied.is_complete(position):
            self._loss_check.reporter.lost(topic, LostRange(position, None, _GONE))

    def _search(
        self, cluster: str, topic: TopicName, start: MessageId, end: MessageId = MessageId.LATEST
    ) -> tuple[MessageId, Copied, Copied]:
        """Returns where to continue here, and the copies of entries around ``start`` and ``end``."""
        here = copied_partition(self._client, topic, cluster)
        before = here.around(start)
        return here.start_after(before, self._margin_ms), before, here.around(end)


def _told(last: StoredEntry | None) -> str:
    return "none" if last is None else f"{position_of(last)}, published {iso_time(last.publish_time)}"
