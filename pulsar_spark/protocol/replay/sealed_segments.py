"""Chooses the sealed segments that may have rows of a micro-batch. Pure.

A query writes its micro-batches one after the other. So if it wrote an earlier micro-batch to a segment, all
segments that were sealed before its creation have no rows of the micro-batch. Origins are signed for
their segment, so nobody else can make such an entry.
"""

from __future__ import annotations

from collections.abc import Collection

from pulsar_spark.protocol.segments import Segment, have_each_hash_once


class SeenEpochs:
    """For the last two micro-batches: the first epoch of a topic's layout that this process saw.

    Writes of one micro-batch do not count by themselves: when the first one is repeated, an earlier run may
    have stored rows of the second one already.
    """

    def __init__(self) -> None:
        self._batch = -1
        self._epoch = self._before = -1  # of the newest micro-batch, and of the one before

    def see(self, batch: int, epoch: int) -> int:
        """Records the epoch that a micro-batch has seen.

        Returns:
            The first epoch of the micro-batch before; -1: none. Segments sealed by then have no rows of this
            one.
        """
        if batch < self._batch or epoch < self._epoch:  # the checkpoint was set back, or the topic is new
            self._batch = self._epoch = -1
        if batch != self._batch:
            self._before, self._batch, self._epoch = self._epoch, batch, epoch
        return self._before


def to_search(segments: Collection[Segment], since: int) -> list[Segment]:
    """Returns the sealed segments that may have rows of a micro-batch, the last sealed first.

    ``since``: epoch of a layout when, or after which, the query wrote an earlier micro-batch; -1: unknown.
    """
    sealed = [each for each in segments if _sealed_at(each) > since and each.is_sealed]
    return sorted(sealed, key=_sealed_at, reverse=True)


def has_gap(segments: Collection[Segment], since: int) -> bool:
    """Whether a segment is missing that got messages at or after the epoch ``since``.

    Brokers remove sealed segments. At each time one segment has each hash, so a missing one leaves a gap.
    """
    ordered = sorted(segments, key=lambda each: each.first_hash)
    since = max(since, 0)
    changes = {since, *(each.created_at for each in ordered), *(each.sealed_at or 0 for each in ordered)}
    return not all(
        have_each_hash_once([each for each in ordered if each.created_at <= epoch < _sealed_at(each)])
        for epoch in changes
        if epoch >= since
    )


def _sealed_at(segment: Segment) -> float:
    return float("inf") if segment.sealed_at is None else segment.sealed_at
