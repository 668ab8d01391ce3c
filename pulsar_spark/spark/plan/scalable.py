"""The segments of scalable topics: SegmentOrder decides which may be read, ScalableTopics follows changes.

If two segments share a key, all messages of the older segment are earlier (:class:`TopicLayout`). A
micro-batch has no order between its tasks. So a segment is read in later micro-batches than the segments
that it follows. Each segment is in the first state that applies:

    state   condition                                    effect
    HELD    it follows a HELD or OPEN segment            it is not read yet
    OPEN    it is active, or not processed up to its     it is read up to its last message
            final end
    DONE    any other                                    its position in the offset is ``done``

The final end of a sealed segment is its last entry, visible or not, because an open transaction may still
make messages visible up to it. If all visible messages are processed, but not the final end, the broker is
asked for what follows (:func:`find_ended`). If only transaction markers follow, it is DONE. The final end
is unknown after a migration, because brokers report a topic's old partitions as sealed too early.

A broker removes a segment from the layout once the query's subscription has acknowledged all of it. Then it
holds no segment back. ``done`` stays in the offset until then: it alone shows that the segment was read.

A subscription that is registered on a scalable topic covers and retains all segments, also new ones. Brokers
delete a sealed segment once all registered subscriptions have read it; unregistered ones do not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pulsar_spark.client import (
    PROMPT,
    Calls,
    InitialPosition,
    Kind,
    PlanningClient,
    ScalableTopicWatch,
    Segment,
    SegmentWatch,
    TopicLayout,
    run_all,
)
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    DataLossError,
    NotReadyError,
    PulsarError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId, TopicName, TopicPattern
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.offsets import DONE, Offsets, done_in
from pulsar_spark.spark.plan.partition import Partition

_log = logging.getLogger(__name__)

_WHY = "brokers keep the segments of a scalable topic only for a subscription that is registered on it"


class SegmentOrder(NamedTuple):
    """The data that decides which segments of a scalable topic may be read.

    ``final_ends``: last entry of each sealed segment, or its last message if no message can follow.
    """

    layout: TopicLayout
    final_ends: Mapping[TopicName, MessageId]

    def held(self, processed: Mapping[TopicName, MessageId]) -> set[TopicName]:
        """Returns the HELD segments, which are not read until all segments that they follow are DONE.

        ``processed``: position up to which each segment is processed; missing segments are unprocessed.
        """
        held: set[TopicName] = set()
        older: list[Segment] = []  # HELD or OPEN segments
        for name, segment in self.layout.segments.items():
            position = processed.get(name, MessageId.EARLIEST)
            if position == DONE:  # first, because there may be hundreds of these
                continue
            if any(map(segment.follows, older)):
                held.add(name)
                older.append(segment)
            elif not self.is_done(name, position):
                older.append(segment)
        return held

    def unsure(self, processed: Mapping[TopicName, MessageId], held: Collection[TopicName]) -> set[TopicName]:
        """Returns the sealed segments, except ``held`` ones, that are not known to be read to their ends."""
        return {
            name
            for name, segment in self.layout.segments.items()
            if segment.is_sealed
            and name not in held
            and not self.is_done(name, processed.get(name, MessageId.EARLIEST))
        }

    def oldest_after(self, segment: TopicName, processed: Mapping[TopicName, MessageId]) -> MessageId:
        """Returns the smallest known position in segments that follow ``segment``; ``LATEST`` if none."""
        known, one = self.layout.segments, self.layout.segments[segment]
        later = (
            position
            for name, position in processed.items()
            if position.ledger >= 0 and name in known and _number(name) > _number(segment)
            if known[name].follows(one)
        )
        return min(later, default=MessageId.LATEST)

    def is_done(self, segment: TopicName, position: MessageId) -> bool:
        """Whether a segment, processed up to ``position``, is read to its final end."""
        if position == DONE:
            return True
        final = self.final_ends.get(segment)
        return final is not None and (not final.is_entry or position.last_whole_entry >= final)


def skipped(known: Iterable[TopicName], layout: TopicLayout) -> int:
    """Returns how many segments newer than ``known`` were removed, by the gaps in the segments' numbers."""
    newest = max(map(_number, known))
    later = [number for number in map(_number, layout.segments) if number > newest]
    return max(later, default=newest) - newest - len(later)


def _number(segment: TopicName) -> int:
    return max(segment.partition, 0)  # a migrated topic without partitions is segment 0


def without_done(
    offsets: Offsets, old: Collection[TopicName], partitions: Mapping[TopicName, Partition]
) -> Offsets:
    """Returns the offset with the last visible messages of done segments instead of ``done``.

    Leaves out the segments ``old``, which were done before the micro-batch.
    """
    done = done_in(offsets.positions)
    if not done and not old:
        return offsets
    positions = {
        topic: partitions[topic].last if topic in done and topic in partitions else position
        for topic, position in offsets.positions.items()
        if topic not in old
    }
    return Offsets(offsets.subscription, positions)


def find_ended(
    client: PlanningClient, calls: Calls[Partition], segments: Iterable[Partition], *, waits: bool
) -> set[Partition]:
    """Asks the brokers which sealed segments have ended; warns once of each that has not.

    ``segments``: sealed segments that are processed up to their last visible messages.
    """
    pending, now = calls[Kind.FINAL_END], client.now()
    asked = {
        each: partial(client.has_ended, each.topic, each.position_or_start)
        for each in segments
        if waits or pending.pauses.is_over(each, now)
    }
    ended = set()
    for segment, answer in pending.run(asked, None if waits else PROMPT).items():
        if answer is True:
            pending.pauses.succeeded(segment)
            ended.add(segment)
            continue
        level = logging.WARNING if pending.pauses.failed(segment, client.now()) else logging.INFO
        _log.log(level, "%s", answer if isinstance(answer, PulsarError) else not_ended(segment.topic))
    return ended


def not_ended(segment: TopicName) -> NotReadyError:
    """Returns the error for a sealed segment that has not ended, so that later segments are not read."""
    return NotReadyError(
        "the segment is sealed and read to its last message, but the broker does not say that it has ended; "
        "segments after it are not read before that",
        topic=str(segment),
        advice="End or abort open transactions. Start the query again if it has stopped",
    )


class ScalableTopics:
    """The scalable topics that a streaming query reads.

    Attributes:
        names: the named topics, or the topics of the pattern at the last list.
        subscription: name of the query's subscription, if registered on the topics.
    """

    def __init__(self, client: PlanningClient, options: SourceOptions) -> None:
        self.names: Collection[TopicName] = options.scalable_topics
        self.subscription: str | None = None
        self.missing: set[TopicName] = set()
        self._client = client
        self._options = options
        self._listing: ScalableTopicWatch | None = None
        self._layouts: dict[TopicName, SegmentWatch] = {}
        self._orders: dict[TopicName, SegmentOrder] = {}
        self._legacy: dict[TopicName, dict[TopicName, Segment]] = {}  # partitions of migrated topics
        self._lacks_legacy = False
        # Segments that were deleted while the subscription was not registered, with their last known entries.
        self._unheld: dict[TopicName, MessageId | None] = {}
        self._skipped: dict[TopicName, int] = {}

    @property
    def _orders_now(self) -> list[SegmentOrder]:
        """Returns the segment orders of all topics, as a copy, because a listing thread may add orders."""
        return [*self._orders.values()]

    @property
    def topics(self) -> list[TopicName]:
        """Returns the topics that existed at their last lookup."""
        return [*self._orders]

    def matching(self, pattern: TopicPattern) -> Collection[TopicName]:
        """Lists the topics that match the query's pattern, and drops the data of other topics."""
        if self._listing is None:
            self._listing = self._client.watch_scalable_topics(pattern)
        self.names = self._listing.topics()
        for gone in self._layouts.keys() - {*self.names}:
            self._layouts.pop(gone).close()
            self._orders.pop(gone, None)
        return self.names

    @property
    def has_other_names(self) -> bool:
        """Whether the pattern's topics may differ from the last list; sends no request."""
        return self._listing is not None and self._listing.changed

    def may_have_changed(self, topic: TopicName) -> bool:
        """Whether a topic's segments may differ from the last list; sends no request."""
        watch = self._layouts.get(topic)
        return watch is None or watch.changed

    def segments_of(self, topic: TopicName) -> Sequence[TopicName]:
        """Looks up the segments of a topic, and the data that decides their order."""
        known = self._orders.get(topic)
        watch = self._layouts.get(topic)
        is_changed = watch is not None and watch.changed
        is_unheld = known is not None and is_changed and self._hold_again(topic, known)
        layout = self._with_legacy(topic, self._layout(topic))
        if known is None and self.subscription is not None:
            self._hold(topic, self.subscription)
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
        ends = run_all([partial(self._client.stored_end, name) for name in new])
        final = {name: before[name] for name in sealed if name in before}
        for name, end in zip(new, ends, strict=True):
            if isinstance(end, MessageId):
                if not layout.segments[name].is_legacy:  # a migrated partition is sealed before it ends
                    final[name] = end
            elif not isinstance(end, TopicNotFoundError):  # brokers may remove a segment at any time
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
        """Keeps reading classic partitions of a checkpoint after their topic was migrated.

        Brokers remove the partitions from the layout as if they were read, but delete no messages in them.
        """
        for name in positions:
            if not name.is_segment and name.scalable in self._layouts:
                legacy = self._legacy.setdefault(name.scalable, {})
                self._lacks_legacy = self._lacks_legacy or name not in legacy
                legacy[name] = Segment(name, True, 0, 0xFFFF, is_legacy=True)

    def _with_legacy(self, topic: TopicName, layout: TopicLayout) -> TopicLayout:
        """Returns the layout with all known classic partitions of the topic as its oldest segments."""
        legacy = self._legacy.setdefault(topic, {})
        legacy |= {name: segment for name, segment in layout.segments.items() if segment.is_legacy}
        return layout._replace(segments=legacy | dict(layout.segments))

    def is_registered(self, topic: TopicName, name: str) -> bool | None:
        """Whether a subscription is registered on a scalable topic; None for a missing topic.

        False without the URL of an admin service. The cursors of segments do not show this, because a cursor
        created only on a segment retains nothing.
        """
        if self._options.admin_url is None:
            return False
        try:
            admin = self._client.admin(self._options.admin_url)
            return admin.scalable_subscriptions(topic).get(name) == "STREAM"
        except TopicNotFoundError:
            return None
        except PulsarError as error:
            raise error.noting(_WHY) from error

    def register(self, topics: Iterable[TopicName], name: str) -> None:
        """Registers a subscription on those scalable topics on which it is not registered yet.

        Does nothing without the URL of an admin service. If the subscription does not exist on an active
        segment, the broker creates it there, at the segment's first message.
        """
        if self._options.admin_url is not None:
            for topic in topics:
                try:
                    self._client.admin(self._options.admin_url).hold_scalable(topic, name)
                except PulsarError as error:
                    raise error.noting(_WHY) from error

    def unregister(self, topics: Iterable[TopicName], name: str) -> None:
        """Removes a subscription from scalable topics. Failures are logged."""
        if self._options.admin_url is not None:
            for topic in topics:
                try:
                    self._client.admin(self._options.admin_url).release_scalable(topic, name)
                except PulsarError as error:
                    _log.warning("subscription %s cannot be removed from topic %s: %s", name, topic, error)

    def _hold_again(self, topic: TopicName, known: SegmentOrder) -> bool:
        """Registers the subscription again if it was removed; returns True in this case.

        Brokers may have deleted unread segments meanwhile; the segments in the next layout are retained.
        """
        name = self.subscription
        try:
            if name is None or self.is_registered(topic, name) is not False:
                return False
            _log.warning("subscription %s was removed from %s; it is registered again", name, topic)
            self._unheld |= {each: known.final_ends.get(each) for each in known.layout.segments}
        except BrokerError as error:
            raise _as_retriable(error) from error
        self._hold(topic, name)
        return True

    def _hold(self, topic: TopicName, name: str) -> None:
        try:
            self.register([topic], name)
        except BrokerError as error:
            raise _as_retriable(error) from error

    def is_unread(self, segment: TopicName, position: MessageId, name: str) -> bool:
        """Whether a removed segment may have had later messages that subscription ``name`` did not retain."""
        order = self._orders.get(segment.base)
        final = None if order is None else order.final_ends.get(segment)
        if segment in self._unheld:
            final = self._unheld[segment]
        elif self.is_registered(segment.base, name) is not False:
            return False
        return final is None or (final.is_entry and position.last_whole_entry < final)

    def skipped_after(
        self, positions: Collection[TopicName], held: Collection[TopicName]
    ) -> dict[TopicName, int]:
        """Returns, by topic, how many segments were created and removed since the newest of ``positions``.

        Leaves out topics in ``held``, because brokers keep their segments until the query has read them.
        """
        found = {}
        for topic, order in [*self._orders.items()]:
            known = [each for each in positions if each.scalable == topic]
            if known and topic not in held and (count := skipped(known, order.layout)):
                found[topic] = count
        return found

    def take_skipped(self) -> dict[TopicName, int]:
        """Returns how many segments were created and removed while the subscription was not registered."""
        found, self._skipped = self._skipped, {}
        return {topic: count for topic, count in found.items() if count}

    def take_changed(self) -> bool:
        """Whether segments may differ from the last list; True once if ``keep_legacy`` added partitions."""
        lacks_legacy, self._lacks_legacy = self._lacks_legacy, False
        watches = [*self._layouts.values()]
        return lacks_legacy or self.has_other_names or any(watch.changed for watch in watches)

    @property
    def empty(self) -> set[TopicName]:
        """Returns the sealed segments without entries, in which brokers may find no earliest position."""
        ends = (each for order in self._orders_now for each in order.final_ends.items())
        return {name for name, end in ends if not end.is_entry}

    def initial_positions(
        self, topics: Iterable[TopicName], at_end: Container[TopicName] = ()
    ) -> dict[TopicName, InitialPosition]:
        """Returns at which position to create the subscription on partitions that do not have it.

        The position is latest for partitions in ``at_end`` and for empty segments, otherwise earliest.
        """
        empty = self.empty
        return {
            topic: InitialPosition.LATEST if topic in at_end or topic in empty else InitialPosition.EARLIEST
            for topic in topics
        }

    def is_ordered(self, topic: TopicName) -> bool:
        """Whether the topic is a segment or migrated partition, whose end is expected and not reported."""
        return topic.is_segment or any(topic in order.layout.segments for order in self._orders_now)

    def check_done(
        self, done: Collection[TopicName], processed: Mapping[TopicName, MessageId] = MappingProxyType({})
    ) -> None:
        """Checks segments with the position ``done``; ``processed``: positions of the other segments.

        Raises:
            DataLossError: a segment was recreated with the same name. It is not sealed any more, or its
                ledgers are newer than ledgers of a later segment. ``failOnDataLoss`` makes no difference.
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
        """Returns the segments that are HELD (see the top of the module): older ones must be read first."""
        if not self._orders:
            return set()
        orders = self._orders_now
        known = {name for order in orders for name in order.layout.segments}
        # A segment that is in no known layout is HELD, because it may follow any unread segment.
        named = {*partitions, *processed}
        held = {name for name in named if name.is_segment and name not in known}
        return held.union(*(order.held(processed) for order in orders))

    def unsure(self, processed: Mapping[TopicName, MessageId], held: Collection[TopicName]) -> set[TopicName]:
        """Returns the sealed segments, except ``held`` ones, that are not known to be read to their ends."""
        return set().union(*(order.unsure(processed, held) for order in self._orders_now))

    def note_end(self, segment: TopicName, position: MessageId) -> None:
        """Records that a sealed segment has no message after a position."""
        for topic, order in [*self._orders.items()]:
            if segment in order.layout.segments:
                final_ends = {**order.final_ends, segment: position.last_whole_entry}
                self._orders[topic] = order._replace(final_ends=final_ends)

    def with_done(
        self, planned: dict[TopicName, MessageId], start: Offsets, partitions: Iterable[TopicName]
    ) -> dict[TopicName, MessageId]:
        """Returns the ends of a micro-batch, with ``DONE`` for segments that it reads to their final ends."""
        if not self._orders:
            return planned
        orders = self._orders_now
        ends = {
            topic: DONE if any(order.is_done(topic, end) for order in orders) else end
            for topic, end in planned.items()
        }
        # A segment stays ``done`` while it exists (``partitions``) or is not acknowledged (``planned``).
        return ends | dict.fromkeys(done_in(start.positions) & {*partitions, *planned}, DONE)

    def forget(self, partition: TopicName) -> bool:
        """Drops a partition of a migrated topic; returns whether segments waited for it."""
        return self._legacy.get(partition.scalable, {}).pop(partition, None) is not None

    def close(self) -> None:
        """Stops watching the pattern and the segments."""
        listing, self._listing = self._listing, None
        if listing is not None:
            listing.close()
        while self._layouts:
            self._layouts.popitem()[1].close()


def _as_retriable(error: BrokerError) -> BrokerError:
    """Returns an error as retriable, except an AuthError, because a query's broker may be restarting."""
    if error.is_passing or isinstance(error, AuthError):
        return error
    return NotReadyError(error.what, topic=error.topic, advice=error.advice)
