"""Chooses the sealed segments that may have rows of a micro-batch. Pure.

A query writes its micro-batches one after the other. So if it wrote an earlier micro-batch to a segment, the
segments that were sealed before this segment was created have no rows of the current micro-batch. Such a
write is proven by an entry in the segment with a valid origin, the signed field of a query's entries.

The epoch of a topic is the version number of its layout, which grows with each change of its segments.
"""

from __future__ import annotations

from collections.abc import Collection

from pulsar_spark.protocol.segments import HASHES, Segment


class SeenEpochs:
    """Remembers the first epoch of a topic that this process saw in each of the last two micro-batches.

    The epoch of an earlier write of the same micro-batch proves nothing: if the micro-batch is repeated, an
    earlier run may already have stored rows of the next write.
    """

    def __init__(self) -> None:
        self._batch = -1
        self._epoch = self._before = -1  # first epochs of ``_batch``, and of the micro-batch before

    def see(self, batch: int, epoch: int) -> int:
        """Records that this process saw an epoch in a micro-batch.

        Returns:
            The first epoch that it saw in the micro-batch before; -1: none. Segments that were sealed in that
            epoch or before have no rows of ``batch``.
        """
        if batch < self._batch or epoch < self._epoch:  # an older checkpoint was restored, or a new topic
            self._batch = self._epoch = -1
        if batch != self._batch:
            self._before, self._batch, self._epoch = self._epoch, batch, epoch
        return self._before


def to_search(segments: Collection[Segment], since: int) -> list[Segment]:
    """Returns the sealed segments that may have rows of a micro-batch, the last sealed first.

    ``since``: an epoch that the topic had when an earlier micro-batch was written; -1: unknown.
    """
    sealed = [each for each in segments if _sealed_at(each) > since and each.is_sealed]
    return sorted(sealed, key=_sealed_at, reverse=True)


def has_gap(segments: Collection[Segment], since: int) -> bool:
    """Whether brokers have removed a segment that got messages at or after the epoch ``since``.

    In each epoch, every key hash belongs to exactly one segment. So if no segment was removed, the sizes of
    the segments' hash ranges add up to HASHES in each epoch.
    """
    if since < 0 and lacks_partitions(segments):
        return True
    since = max(since, 0)
    end = 1 + max(epoch for each in segments for epoch in (since, each.created_at, each.sealed_at or 0))
    counted = sum(
        (each.last_hash - each.first_hash + 1)
        * max(min(_sealed_at(each), end) - max(each.created_at, since), 0)
        for each in segments
    )
    return counted != HASHES * (end - since)


def lacks_partitions(segments: Collection[Segment]) -> bool:
    """Whether the lowest segment numbers are missing: former partitions, or the topic's first segments."""
    first = min((each.topic.partition for each in segments if not each.is_legacy), default=0)
    return sum(each.is_legacy for each in segments) < first


def _sealed_at(segment: Segment) -> float:
    return float("inf") if segment.sealed_at is None else segment.sealed_at
