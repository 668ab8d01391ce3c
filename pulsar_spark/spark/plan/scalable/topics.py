"""ScalableTopics: the segments of the scalable topics that a streaming query reads, as they come and go."""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pulsar_spark.client import (
    InitialPosition,
    PlanningClient,
    Segment,
    SegmentWatch,
    TopicLayout,
    run_all,
)
from pulsar_spark.errors import AuthError, BrokerError, DataLossError, NotReadyError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.scalable.registration import is_registered, register
from pulsar_spark.spark.plan.scalable.segments import DONE, SegmentOrder, done_in, skipped

_log = logging.getLogger(__name__)


class ScalableTopics:
    """The scalable topics that a streaming query reads.

    Args:
        client: client of the cluster.
        options: options of the source, with the topics.

    Attributes:
        subscription: name of the query's subscription, when it is registered on them.
        missing: topics that did not exist at the last lookup.
    """

    def __init__(self, client: PlanningClient, options: SourceOptions) -> None:
        self.subscription: str | None = None
        self.missing: set[TopicName] = set()
        self._client = client
        self._options = options
        self._layouts: dict[TopicName, SegmentWatch] = {}
        self._orders: dict[TopicName, SegmentOrder] = {}
        self._legacy: dict[TopicName, dict[TopicName, Segment]] = {}  # of topics that were made scalable
        self._lacks_legacy = False
        # Segments known when the subscription was found removed, and gone since; their last entries.
        self._unheld: dict[TopicName, MessageId | None] = {}
        self._skipped: dict[TopicName, int] = {}

    @property
    def _orders_now(self) -> list[SegmentOrder]:
        """All orders; a list that runs on a thread may add one meanwhile."""
        return [*self._orders.values()]

    def may_have_changed(self, topic: TopicName) -> bool:
        """Whether a topic may have other segments than listed last; makes no request."""
        watch = self._layouts.get(topic)
        return watch is None or watch.changed

    def segments_of(self, topic: TopicName) -> Sequence[TopicName]:
        """Look up the segments of a topic, with what decides their order.

        Raises:
            TopicNotFoundError: it does not exist.
            BrokerError: the broker refused, or none answered.
        """
        known = self._orders.get(topic)
        watch = self._layouts.get(topic)
        is_changed = watch is not None and watch.changed
        is_unheld = known is not None and is_changed and self._hold_again(topic, known)
        layout = self._with_legacy(topic, self._layout(topic))
        if known is not None and is_unheld:
            for name in layout.segments:
                self._unheld.pop(name, None)
            self._skipped[topic] = skipped(known.layout.segments, layout)
        before = {} if known is None else known.final_ends
        sealed = [name for name, segment in layout.segments.items() if segment.is_sealed]
        old = () if known is None else known.layout.segments
        new = [
            name
            for name in sealed
            if name not in before and not (layout.segments[name].is_legacy and name in old)
        ]
        ends = dict(zip(new, run_all([partial(self._client.stored_end, name) for name in new]), strict=True))
        final = {name: before[name] for name in sealed if name in before}
        for name, end in ends.items():
            if isinstance(end, MessageId):
                if not layout.segments[name].is_legacy:  # which may not have ended yet
                    final[name] = end
            elif not isinstance(end, TopicNotFoundError):  # the broker may just have removed it
                raise end
            elif layout.segments[name].is_legacy:
                self._legacy[topic].pop(name, None)
                layout = layout._replace(
                    segments={each: found for each, found in layout.segments.items() if each != name}
                )
        self._orders[topic] = SegmentOrder(layout, final)
        return tuple(layout.segments)

    def _layout(self, topic: TopicName) -> TopicLayout:
        self.missing.discard(topic)
        try:
            if topic not in self._layouts:
                self._layouts[topic] = self._client.watch_layout(topic)
            return self._layouts[topic].layout()
        except TopicNotFoundError:
            self.missing.add(topic)
            raise

    def keep_legacy(self, positions: Collection[TopicName]) -> None:
        """Also read the partitions of a checkpoint whose topics were made scalable topics.

        Brokers take them out of the layout as read, but delete nothing in them.
        """
        for name in positions:
            if not name.is_segment and name.scalable in self._layouts:
                legacy = self._legacy.setdefault(name.scalable, {})
                self._lacks_legacy = self._lacks_legacy or name not in legacy
                legacy[name] = Segment(name, True, 0, 0xFFFF, is_legacy=True)

    def _with_legacy(self, topic: TopicName, layout: TopicLayout) -> TopicLayout:
        """The layout with all partitions that the topic had, as far as known. They are the oldest."""
        legacy = self._legacy.setdefault(topic, {})
        legacy |= {name: segment for name, segment in layout.segments.items() if segment.is_legacy}
        return layout._replace(segments=legacy | dict(layout.segments))

    def _hold_again(self, topic: TopicName, known: SegmentOrder) -> bool:
        """Register the subscription if somebody removed it; return whether that was so.

        It holds the segments of a layout that is looked up after that.
        """
        name = self.subscription
        try:
            if name is None or is_registered(self._client, self._options, topic, name) is not False:
                return False
            _log.warning("subscription %s was removed from %s; it is registered again", name, topic)
            self._unheld |= {each: known.final_ends.get(each) for each in known.layout.segments}
            register(self._client, self._options, name)
        except BrokerError as error:
            if error.is_passing or isinstance(error, AuthError):
                raise
            # A broker that restarts. A running query tries again.
            raise NotReadyError(error.what, topic=error.topic, advice=error.advice) from error
        return True

    def is_unread(self, segment: TopicName, position: MessageId, name: str) -> bool:
        """Whether a segment that is gone may have had messages after a position, of which nobody knows.

        Raises:
            BrokerError: the admin service does not tell whether the subscription ``name`` held it.
        """
        final = self._orders[segment.base].final_ends.get(segment) if segment.base in self._orders else None
        if segment in self._unheld:
            final = self._unheld[segment]
        elif is_registered(self._client, self._options, segment.base, name) is not False:
            return False
        return final is None or (final.is_message and position.last_whole_entry < final)

    def skipped_after(
        self, positions: Collection[TopicName], held: Collection[TopicName]
    ) -> dict[TopicName, int]:
        """How many segments of topics that were not ``held`` came and went since a checkpoint."""
        found = {}
        for topic, order in [*self._orders.items()]:
            known = [each for each in positions if each.scalable == topic]
            if known and topic not in held and (count := skipped(known, order.layout)):
                found[topic] = count
        return found

    def take_skipped(self) -> dict[TopicName, int]:
        """How many segments of a scalable topic came and went, while the subscription was not registered."""
        found, self._skipped = self._skipped, {}
        return {topic: count for topic, count in found.items() if count}

    def take_changed(self) -> bool:
        """Whether a topic may have other segments than listed last."""
        lacks_legacy, self._lacks_legacy = self._lacks_legacy, False
        return lacks_legacy or any(watch.changed for watch in [*self._layouts.values()])

    @property
    def empty(self) -> set[TopicName]:
        """The sealed segments without entries: brokers may fail to find where such a one begins."""
        return {
            name for order in self._orders_now for name, end in order.final_ends.items() if not end.is_message
        }

    def initial_positions(
        self, topics: Iterable[TopicName], at_end: Container[TopicName] = ()
    ) -> dict[TopicName, InitialPosition]:
        """Where a subscription begins on partitions that lack it: at the first entry, or ``at_end``."""
        empty = self.empty
        return {
            topic: InitialPosition.LATEST if topic in at_end or topic in empty else InitialPosition.EARLIEST
            for topic in topics
        }

    def is_ordered(self, topic: TopicName) -> bool:
        """Whether it is a segment, of which an end is nothing to report."""
        return topic.is_segment or any(topic in order.layout.segments for order in self._orders_now)

    def check_done(
        self, done: Collection[TopicName], processed: Mapping[TopicName, MessageId] = MappingProxyType({})
    ) -> None:
        """Check the segments that an offset calls done; ``processed``: positions in those that follow them.

        Raises:
            DataLossError: one takes messages, or is newer than a position in one that follows it, because
                ledger ids grow. So it is another one of that name, whatever the options say.
            BrokerError: the broker does not tell where a segment begins.
        """
        for order in self._orders_now:
            for name in order.layout.segments.keys() & done:
                is_sealed = order.layout.segments[name].is_sealed
                read = order.oldest_after(name, processed)
                is_newer = order.final_ends.get(name, MessageId.EARLIEST).ledger > read.ledger
                if not is_sealed or (is_newer and self._client.bounds(name).begin.ledger > read.ledger):
                    why = "is newer than what it read after that" if is_sealed else "takes messages"
                    raise DataLossError(
                        f"a segment that this query has read to its end {why}: the scalable topic "
                        "was deleted and created again",
                        topic=str(name),
                        advice="Start a query with a new checkpoint to read all messages in the topic. If it "
                        "was not deleted, start this one again: a broker had old metadata",
                    )

    def held(
        self, partitions: Iterable[TopicName], processed: Mapping[TopicName, MessageId]
    ) -> set[TopicName]:
        """The segments among ``partitions`` that are not read yet; see :mod:`segments`."""
        if not self._orders:
            return set()
        orders = self._orders_now
        known = {name for order in orders for name in order.layout.segments}
        # A segment that is open and in no layout may follow any other.
        named = {*partitions, *processed}
        held = {name for name in named if name.is_segment and name not in known}
        return held.union(*(order.held(processed) for order in orders))

    def unsure(self, processed: Mapping[TopicName, MessageId], held: Collection[TopicName]) -> set[TopicName]:
        """The sealed segments that are read, those not ``held``, and not known to be read to their ends."""
        return set().union(*(order.unsure(processed, held) for order in self._orders_now))

    def note_end(self, segment: TopicName, position: MessageId) -> None:
        """Note that a sealed segment has no message after a position."""
        for topic, order in [*self._orders.items()]:
            if segment in order.layout.segments:
                final_ends = {**order.final_ends, segment: position.last_whole_entry}
                self._orders[topic] = order._replace(final_ends=final_ends)

    def with_done(
        self, planned: dict[TopicName, MessageId], start: Offsets, partitions: Iterable[TopicName]
    ) -> dict[TopicName, MessageId]:
        """The ends of a micro-batch as its offset has them, with the segments that are done after it."""
        if not self._orders:
            return planned
        orders = self._orders_now
        ends = {
            topic: DONE if any(order.is_done(topic, end) for order in orders) else end
            for topic, end in planned.items()
        }
        # One that has left its topic may be acknowledged without an answer yet.
        return ends | dict.fromkeys(done_in(start) & {*partitions, *planned}, DONE)

    def forget(self, partition: TopicName) -> bool:
        """Forget a partition of a topic that was made scalable; return whether segments waited for it."""
        return self._legacy.get(partition.scalable, {}).pop(partition, None) is not None

    def close(self) -> None:
        """Stop watching."""
        while self._layouts:
            self._layouts.popitem()[1].close()
