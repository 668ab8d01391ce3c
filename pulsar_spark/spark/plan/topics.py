"""Topics: the topic partitions that a query reads, at its start and as topics and partitions come and go."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from pulsar_spark.client import (
    PROMPT,
    LayoutWatch,
    Pauses,
    PendingCalls,
    PlanningClient,
    Segment,
    TopicLayout,
    TopicWatch,
    run_all,
)
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    DataLossError,
    NotReadyError,
    PulsarError,
    TopicMigratedError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId, TopicName, TopicPattern
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.registration import is_registered, register
from pulsar_spark.spark.plan.segments import DONE, SegmentOrder, done_in, skipped

_log = logging.getLogger(__name__)

# Seconds to wait for a report that a topic was deleted, if messages seem lost.
_REPORT_TIMEOUT = 2.0

_LIST = "list"  # the one key of pending calls
# Seconds after which a list that takes long is looked for.
_LOOK_AGAIN = 0.1

# Maximum topics of one namespace that are watched one by one. The partitions of more are listed once a
# minute.
_MAX_WATCHES = 100


def find_partitions(
    client: PlanningClient,
    options: SourceOptions,
    if_missing: Callable[[TopicNotFoundError, TopicName], Iterable[TopicName]] | None = None,
    partitions_of: Callable[[TopicName], list[TopicName]] | None = None,
) -> list[TopicName]:
    """All partitions of all topics to read now, each once.

    Args:
        client: client that lists topics.
        options: options of the source, with the topics or the pattern.
        if_missing: what to read of a named topic that does not exist; None: that is an error.
        partitions_of: the partitions or segments of a topic; None: as the client finds them.

    Raises:
        TopicNotFoundError: a named topic does not exist, and the query does not wait for it.
        BrokerError: no broker answered.
    """
    listed = [] if options.pattern is None else client.topics_matching(options.pattern)
    names = [*options.topics, *dict.fromkeys(topic.base for topic in listed)]
    found: dict[TopicName, None] = {}
    answers = run_all([partial(partitions_of or client.partitions, name) for name in names])
    for name, partitions in zip(names, answers, strict=True):
        if isinstance(partitions, TopicNotFoundError):
            is_expected = name in options.topics and not options.wait_for_topics
            if is_expected and if_missing is None:
                raise partitions
            # Listed topics exist, so a topic without partitions may have a name like that of a partition.
            partitions = [
                *(if_missing(partitions, name) if is_expected and if_missing is not None else ()),
                *(topic for topic in listed if topic.base == name),
            ]
        elif isinstance(partitions, PulsarError):
            raise partitions
        found.update(dict.fromkeys(partitions))
    return list(found)


def migrated(client: PlanningClient, topics: Iterable[TopicName]) -> list[TopicMigratedError]:
    """The topics that were made scalable topics, where new messages go. Nothing else tells a reader.

    Only the first 100 are looked at: each takes a request.
    """
    names = _classic(topics)[:_MAX_WATCHES]
    if not names or not client.has_scalable_topics():
        return []
    found = []
    for name, layout in zip(names, run_all([partial(client.layout, name) for name in names]), strict=True):
        if isinstance(layout, PulsarError):
            _log.info("%s: not known whether the topic was migrated: %s", name, layout)
        elif layout.is_scalable:
            what = f"new messages of this topic are in {name.scalable}"
            found.append(TopicMigratedError(what, topic=str(name)))
    return found


def first_contact(client: PlanningClient, options: SourceOptions) -> list[TopicName]:
    """Call :func:`find_partitions` at the start of a read: a wrong address is an error in seconds.

    A pattern that matches no topic gives a warning.

    Raises:
        TopicNotFoundError: a named topic does not exist, and the query does not wait for it.
        BrokerError: no broker answers within seconds.
    """
    with client.impatient() as impatient:
        found = find_partitions(impatient, options)
    if options.pattern is not None and not found:
        _log.warning(
            "no topic of the namespace %s/%s matches topicsPattern %r, so nothing is read; a stream reads "
            "topics that match when they appear. The regular expression must match the whole local name of a "
            "topic",
            *(options.pattern.tenant, options.pattern.namespace, options.pattern.regex.pattern),
        )
    return found


class Topics:
    """The partitions that a streaming query reads.

    Args:
        client: client that lists topics.
        options: options of the source, with the topics or the pattern.
        found: result of :func:`find_partitions` at the start.

    Attributes:
        partitions: partitions known now.
        subscription: of the query, when it is registered on scalable topics.
    """

    def __init__(self, client: PlanningClient, options: SourceOptions, found: Iterable[TopicName]) -> None:
        self.partitions = list(found)
        self.subscription: str | None = None
        self._client = client
        self._options = options
        self._patterns = _patterns(options)
        self._watches: list[TopicWatch] = []
        self._stale = False
        self._missing: set[TopicName] = set()
        self._dropped: set[TopicName] = set()  # since the last list began, which may still name them
        self._listing: PendingCalls[str] = PendingCalls()
        self._pauses: Pauses[str] = Pauses()
        self._scalable = options.scalable_topics
        self._unknown: set[TopicName] = set()  # those that did not exist when they were looked up last
        self._layouts: dict[TopicName, LayoutWatch] = {}
        self._orders: dict[TopicName, SegmentOrder] = {}
        self._legacy: dict[TopicName, dict[TopicName, Segment]] = {}  # of topics that were made scalable
        self._lacks_legacy = False
        # Segments known when the subscription was found removed, and gone since; their last entries.
        self._unheld: dict[TopicName, MessageId | None] = {}
        self._skipped: dict[TopicName, int] = {}
        # From now on watched, and with the ends of sealed segments: a run may take this list alone.
        if self._scalable:
            self.partitions = find_partitions(client, options, partitions_of=self._partitions_of)
        self._migrated: set[str | None] = set()  # topics already named in a warning
        self._looking: PendingCalls[str] = PendingCalls()
        self._looked_at = 0  # how many were looked at
        self._warn_of_migrated(looks=True)

    def refresh(self) -> None:
        """List the partitions again, if some came or went, or the last list is a minute old.

        It waits for the list for at most 1 s, and takes it later if it takes longer. If a broker does not
        answer, that is logged, and it is asked again later: an exception would end the query. The known
        partitions are read meanwhile.
        """
        calls = {}
        # A list that has come and was not taken does not show what watches have reported since.
        if not self._listing.has_more and self._pauses.is_over(_LIST, self._client.now()):
            changed = [watch.changed for watch in self._watches]
            changed += [self._may_have_segments(topic) for topic in self._scalable]
            self._stale = self._stale or any(changed) or len(self._watches) < len(self._patterns)
            if self._stale:
                calls = {_LIST: self._list}
                self._dropped.clear()
        for found in self._listing.run(calls, PROMPT).values():
            self._take(found)
        self._warn_of_migrated(looks=bool(calls))

    def due_at(self, now: float) -> float:
        """When :meth:`refresh` may have a list that takes long, or lists again what failed or was missing."""
        return now + _LOOK_AGAIN if self._listing.has_more else self._pauses.due_at(now)

    def _may_have_segments(self, topic: TopicName) -> bool:
        """Whether a scalable topic may have other segments than listed; a missing one, after a pause."""
        watch = self._layouts.get(topic)
        is_new = watch is None or watch.changed
        return is_new and self._pauses.is_over(str(topic), self._client.now())

    def _list(self) -> list[TopicName]:
        """Watch what is not watched yet, and list all partitions; runs on a thread."""
        may_list = self._options.pattern is not None
        # If one cannot be opened, those opened before it are kept.
        for pattern in self._patterns[len(self._watches) :]:
            watch = self._client.watch_topics(pattern, may_list=may_list)
            _ = watch.changed  # the list shows what has changed by now
            self._watches.append(watch)
        missing, self._missing = self._missing, set()

        def known(error: TopicNotFoundError, name: TopicName) -> list[TopicName]:
            """The planner determines which of its partitions are gone, and whether that is loss."""
            self._missing.add(name)
            if name not in missing:
                _log.warning("a topic of this query does not exist at the moment: %s", error)
            return [topic for topic in self.partitions if name in (topic, topic.base)]

        return find_partitions(self._client, self._options, known, self._partitions_of)

    def _warn_of_migrated(self, *, looks: bool) -> None:
        """Warn of topics that were migrated, once each. If it ``looks``, at those that it looks at next."""
        calls = {}
        if looks:
            read = _classic([*self._options.topics, *self.partitions])
            names = [name for name in read if str(name) not in self._migrated]
            begin = self._looked_at % max(len(names), 1)
            self._looked_at = begin + _MAX_WATCHES
            calls = {_LIST: partial(migrated, self._client, names[begin:] + names[:begin])}
        for found in self._looking.run(calls, PROMPT).values():
            if isinstance(found, PulsarError):
                _log.info("not known whether topics were migrated: %s", found)
                continue
            for error in found:
                if error.topic not in self._migrated:
                    self._migrated.add(error.topic)
                    _log.warning("%s", error)

    def _partitions_of(self, topic: TopicName) -> list[TopicName]:
        """The partitions of a topic; of a scalable one its segments, with what decides their order."""
        if not topic.is_scalable:
            return self._client.partitions(topic)
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
        return list(layout.segments)

    # ---- segments

    def _layout(self, topic: TopicName) -> TopicLayout:
        self._unknown.discard(topic)
        try:
            if topic not in self._layouts:
                self._layouts[topic] = self._client.watch_layout(topic)
            return self._layouts[topic].layout()
        except TopicNotFoundError:
            self._unknown.add(topic)
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
        for topic, order in self._orders.items():
            known = [each for each in positions if each.scalable == topic]
            if known and topic not in held and (count := skipped(known, order.layout)):
                found[topic] = count
        return found

    def take_skipped(self) -> dict[TopicName, int]:
        """How many segments of a scalable topic came and went, while the subscription was not registered."""
        found, self._skipped = self._skipped, {}
        return {topic: count for topic, count in found.items() if count}

    def renew_segments(self) -> None:
        """List again if the segments of a scalable topic have changed; raises as :func:`find_partitions`."""
        if self._lacks_legacy or any(watch.changed for watch in list(self._layouts.values())):
            self._lacks_legacy = False
            self.partitions = find_partitions(self._client, self._options, partitions_of=self._partitions_of)

    @property
    def empty(self) -> set[TopicName]:
        """The sealed segments without entries: brokers may fail to find where such a one begins."""
        return {
            name
            for order in self._orders.values()
            for name, end in order.final_ends.items()
            if not end.is_message
        }

    def is_ordered(self, topic: TopicName) -> bool:
        """Whether it is a segment, of which an end is nothing to report."""
        orders = list(self._orders.values())
        return topic.is_segment or any(topic in order.layout.segments for order in orders)

    def check_done(self, done: Collection[TopicName]) -> None:
        """Check the segments that an offset calls done.

        Raises:
            DataLossError: one takes messages, so it is another one of that name, whatever the options say.
        """
        for order in self._orders.values():
            for name in order.layout.segments.keys() & done:
                if not order.layout.segments[name].is_sealed:
                    raise DataLossError(
                        "a segment that this query has read to its end takes messages: the scalable topic "
                        "was deleted and created again",
                        topic=str(name),
                        advice="Start a query with a new checkpoint to read all messages in the topic. If it "
                        "was not deleted, start this one again: a broker had old metadata",
                    )

    def held(self, processed: Mapping[TopicName, MessageId]) -> set[TopicName]:
        """The segments that are not read yet; see :mod:`segments`."""
        if not self._orders:
            return set()
        orders = list(self._orders.values())  # a list may add one meanwhile
        known = {name for order in orders for name in order.layout.segments}
        # A segment that is open and in no layout may follow any other.
        named = {*self.partitions, *processed}
        held = {name for name in named if name.is_segment and name not in known}
        return held.union(*(order.held(processed) for order in orders))

    def unsure(self, processed: Mapping[TopicName, MessageId], held: Collection[TopicName]) -> set[TopicName]:
        """The sealed segments that are read, those not ``held``, and not known to be read to their ends."""
        return set().union(*(order.unsure(processed, held) for order in self._orders.values()))

    def note_end(self, segment: TopicName, position: MessageId) -> None:
        """Note that a sealed segment has no message after a position."""
        for topic, order in self._orders.items():
            if segment in order.layout.segments:
                final_ends = {**order.final_ends, segment: position.last_whole_entry}
                self._orders[topic] = order._replace(final_ends=final_ends)

    def with_done(self, planned: dict[TopicName, MessageId], start: Offsets) -> dict[TopicName, MessageId]:
        """The ends of a micro-batch as its offset has them, with the segments that are done after it."""
        if not self._orders:
            return planned
        orders = list(self._orders.values())
        ends = {
            topic: DONE if any(order.is_done(topic, end) for order in orders) else end
            for topic, end in planned.items()
        }
        # One that has left its topic may be acknowledged without an answer yet.
        return ends | dict.fromkeys(done_in(start) & (set(self.partitions) | planned.keys()), DONE)

    def _take(self, found: list[TopicName] | PulsarError) -> None:
        """Use a list, or report why there is none."""
        if not isinstance(found, PulsarError):
            self.partitions = [topic for topic in found if topic not in self._dropped]
        elif not found.is_passing:
            raise found
        else:
            is_first = self._pauses.failed(_LIST, self._client.now())
            _log.log(
                logging.WARNING if is_first else logging.INFO,
                "the topics could not be listed; this is retried: %s",
                found,
            )
            return
        self._stale = len(self.partitions) < len(found)
        self._pauses.succeeded(_LIST)
        for topic in self._scalable:
            if topic in self._unknown:
                self._pauses.failed(str(topic), self._client.now())
            else:
                self._pauses.succeeded(str(topic))

    def take_deleted(self, topic: TopicName) -> bool:
        """Whether a partition was deleted since the last call; it may exist again.

        It waits a moment for the broker's report, so call it only if much depends on it.
        """
        watches = [
            watch
            for pattern, watch in zip(self._patterns, self._watches, strict=False)
            if pattern.matches(topic)
        ]
        return any(watch.take_deleted(topic, _REPORT_TIMEOUT) for watch in watches)

    def forget_deleted(self, topics: Collection[TopicName]) -> None:
        """Ignore all reports up to now in :meth:`take_deleted`."""
        for watch in self._watches:
            watch.forget_deleted(topics)

    def drop(self, topic: TopicName) -> None:
        """Stop reading ``topic``, unless a list that begins later has it again."""
        self._dropped.add(topic)
        if self._legacy.get(topic.scalable, {}).pop(topic, None) is not None:
            self._stale = True  # the others do not wait for it any more
        self.partitions = [each for each in self.partitions if each != topic]

    def close(self) -> None:
        """Stop watching."""
        self._close_watches()
        self._listing.leave(_LIST, lambda _: self._close_watches())

    def _close_watches(self) -> None:
        while self._watches:
            self._watches.pop().close()
        while self._layouts:
            self._layouts.popitem()[1].close()


def _classic(topics: Iterable[TopicName]) -> list[TopicName]:
    """The classic topics among some and their partitions, without those read as scalable ones."""
    names = dict.fromkeys(topic.base for topic in topics)
    return [name for name in names if not name.is_scalable and name.scalable not in names]


def _patterns(options: SourceOptions) -> list[TopicPattern]:
    """The patterns to watch: the user's, or one per named topic; one for all if there are many."""
    if options.pattern is not None:
        return [options.pattern]
    places: dict[tuple[str, str], list[TopicPattern]] = defaultdict(list)
    classic = [topic.base for topic in options.topics if not topic.is_scalable]
    for topic in dict.fromkeys(classic):
        places[topic.tenant, topic.namespace].append(TopicPattern.of(topic))
    patterns: list[TopicPattern] = []
    for place, named in places.items():
        if len(named) > _MAX_WATCHES:
            names = "|".join(each.regex.pattern for each in named)
            named = [TopicPattern(*place, re.compile(names))]
        patterns += named
    return patterns
