"""A query's move to another cluster: copies of the query's last entries show its positions there.

A move is a micro-batch without rows, from the positions in the old cluster to the positions in the new one.
So each other micro-batch lies in one cluster, and its offsets alone define its messages. A micro-batch that
did not finish in the old cluster runs again first: it reads the copies of its entries. See
:mod:`pulsar_spark.protocol.reading.translation`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from pulsar_spark.client import (
    Copied,
    CopyRange,
    LostRange,
    PlanningClient,
    Range,
    StoredEntry,
    Witness,
)
from pulsar_spark.errors import OtherClusterError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.clusters.witnesses import MovedError, copied_partition, iso_time
from pulsar_spark.spark.plan.loss_check import LossCheck
from pulsar_spark.spark.plan.offsets import Left, LeftCluster, Offsets
from pulsar_spark.spark.plan.ranges import plan_ranges
from pulsar_spark.spark.plan.resolve import run_for_each
from pulsar_spark.spark.plan.restart import Checkpoint

_log = logging.getLogger(__name__)

# Maximum partitions that a warning names.
_MAX_LISTED = 10

_GONE = "this cluster has no copy of a message up to there: retention has deleted it, or it was never copied"
_LATE = "the micro-batch did not finish, and these messages have not been copied to this cluster"


class _Place(NamedTuple):
    """The position where a partition continues.

    Attributes:
        position: position in this cluster after which reading continues.
        copied: copies around its position in the old cluster.
        last: copy of the last copied entry; None if no entry was copied.
    """

    position: MessageId
    copied: Copied
    last: StoredEntry | None


class Moves:
    """Moves a query from its checkpoint's cluster to this one.

    Args:
        client: client of the new cluster.
        options: options of the source.
        loss_check: reporter of messages that were not copied, or are gone.
    """

    def __init__(self, client: PlanningClient, options: SourceOptions, loss_check: LossCheck) -> None:
        self._client = client
        self._options = options
        self._margin_ms = round(1000 * options.publish_time_margin)
        self._loss_check = loss_check

    def moved(self, start: Offsets, found: MovedError, topics: Collection[TopicName]) -> Offsets:
        """Returns the positions in this cluster that continue a finished micro-batch; warns once.

        A query that returns continues where it left this cluster, because later entries may have had no
        copies in the other cluster.

        Args:
            start: end of the micro-batch.
            found: names of the micro-batch's cluster, and of this one if the query returns.
            topics: existing partitions.

        Raises:
            DataLossError: copies of unread messages may be gone.
            BrokerError: the broker did not answer.
        """
        left = {topic: each for topic, each in start.positions.items() if topic in topics}
        for topic in sorted(start.positions.keys() - left.keys()):
            Checkpoint.finished(start).report_absent(self._loss_check, topic)
        self._loss_check.has_moved, cluster = True, found.cluster
        others = {name: each for name, each in start.left.clusters.items() if name != found.here}
        now = Left(
            start.left.moves + 1,
            {**others, cluster: LeftCluster(self._now_ms(), left, start.witness)},
        )
        if found.here is not None:
            old = start.left.clusters[found.here]
            _log.warning(
                "the query returns from cluster %r to cluster %r, and continues where it left that. Messages "
                "of %r since then are read again if they had been copied to %r",
                *(cluster, found.here, found.here, cluster),
            )
            back = {topic: each for topic, each in old.positions.items() if topic in left}
            return Offsets(start.subscription, back, old.witness, now)
        places = run_for_each(
            {topic: partial(self._place, topic, cluster, each) for topic, each in left.items()}
        )
        for topic, place in places.items():
            self._require_copies(topic, place.copied, left[topic])
        self._warn(cluster, places)
        positions = {topic: place.position for topic, place in places.items()}
        return Offsets(start.subscription, positions, _witness(places), now)

    def replay(
        self, start: Offsets, end: Offsets, found: MovedError, topics: Collection[TopicName]
    ) -> list[Range]:
        """Returns the ranges of copies of a micro-batch that did not finish in another cluster.

        Args:
            start: start of the micro-batch.
            end: end of the micro-batch.
            found: names of the micro-batch's cluster, and of this one if the query returns.
            topics: existing partitions.

        Raises:
            OtherClusterError: it is the query's first micro-batch.
            DataLossError: messages of the micro-batch were not copied, or their copies are gone.
            BrokerError: the broker did not answer.
        """
        cluster = found.cluster
        if start.subscription != end.subscription:
            raise OtherClusterError(
                f"the checkpoint is of cluster {cluster!r}, where the first micro-batch did not finish",
                advice="Nothing is processed: start the query with a new checkpointLocation",
            )
        asked = plan_ranges(start, end, dict.fromkeys(end.positions, MessageId.EARLIEST))
        for each in asked:
            if each.topic not in topics:
                Checkpoint(end, start.positions, {}).report_absent(self._loss_check, each.topic)
        calls = {each.topic: partial(self._replayed, each, cluster) for each in asked if each.topic in topics}
        answers, ranges = run_for_each(calls), []
        back = {} if found.here is None else start.left.clusters[found.here].positions
        for each in asked:
            before, after, replayed = answers.get(each.topic, (None, None, None))
            if before is None or after is None:
                continue
            if found.here is None:
                self._require_copies(each.topic, before, each.start)
            if not after.has_arrived(each.end):
                copied = max(each.start, after.position or each.start)
                self._loss_check.reporter.lost(each.topic, LostRange(copied, each.end, _LATE))
            if replayed is not None:
                replayed = replayed._replace(start=max(replayed.start, back.get(each.topic, replayed.start)))
                ranges.append(replayed._replace(copies=(*copies_of(end.left, each.topic), *replayed.copies)))
        _log.warning(
            "a micro-batch that did not finish on cluster %r runs again, on copies of its messages", cluster
        )
        return ranges

    def _now_ms(self) -> int:
        return self._client.time_ms() + self._margin_ms

    def _require_copies(self, topic: TopicName, copied: Copied, position: MessageId) -> None:
        if not copied.is_complete(position):
            self._loss_check.reporter.lost(topic, LostRange(position, None, _GONE))

    def _place(self, topic: TopicName, cluster: str, position: MessageId) -> _Place:
        here = copied_partition(self._client, topic, cluster, self._client.bounds(topic))
        copied = here.around(position)
        return _Place(here.start_after(copied, self._margin_ms), copied, here.last_copy())

    def _replayed(self, each: Range, cluster: str) -> tuple[Copied, Copied, Range | None]:
        """Returns the copies around both ends, and the range between them.

        None if nothing in it was copied.
        """
        here = copied_partition(self._client, each.topic, cluster, self._client.bounds(each.topic))
        before, after = here.around(each.start), here.around(each.end)
        start = here.start_after(before, self._margin_ms)
        if after.last_read is None or after.last_read.id <= start:
            return before, after, None
        copies = CopyRange(cluster, each.start, self._now_ms(), each.end)
        return before, after, Range(each.topic, start, after.last_read.id, copies=(copies,))

    def _warn(self, cluster: str, places: Mapping[TopicName, _Place]) -> None:
        copied = [f"{topic}: {_told(place.last)}" for topic, place in sorted(places.items())[:_MAX_LISTED]]
        more = f"; and {len(places) - _MAX_LISTED} more" if len(places) > _MAX_LISTED else ""
        _log.warning(
            "the query moves from cluster %r to the one of %s. The last message of %r that has been copied "
            "there: %s%s. Messages after it are read when they arrive. Messages of all other clusters are "
            "read again if they were published at most %g s before the last copy that the query had read, "
            "or later, or if there is no such copy; if some took longer to reach %r, they may be left out: "
            "set publishTimeMargin",
            *(cluster, self._options.client.service_url, cluster, "; ".join(copied), more),
            *(self._options.publish_time_margin, cluster),
        )


def copies_of(left: Left, topic: TopicName) -> tuple[CopyRange, ...]:
    """Returns the copies that a query has not read yet, from clusters that it has left."""
    return tuple(
        CopyRange(cluster, each.positions[topic], each.time_ms)
        for cluster, each in left.clusters.items()
        if topic in each.positions
    )


def _told(last: StoredEntry | None) -> str:
    if last is None or last.source is None:
        return "none"
    return f"{last.source.position}, published {iso_time(last.publish_time)}"


def _witness(places: Mapping[TopicName, _Place]) -> Witness | None:
    for topic, place in places.items():
        if place.copied.last_read is not None:
            return Witness.of(topic, place.copied.last_read)
    return None
