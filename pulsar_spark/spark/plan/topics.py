"""Topics: which topic partitions a query reads, at its start and as topics and partitions come and go."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import partial

from pulsar_spark.client import PlanningClient, TopicWatch, run_all
from pulsar_spark.errors import PulsarError, TopicNotFoundError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.spark.options.source import SourceOptions

_log = logging.getLogger(__name__)

# Seconds for which a report that a topic was deleted is waited for, where messages seem lost.
_REPORT_TIMEOUT = 2.0

# So many times as long as a list of topics was waited for in vain the topics that are known are read.
_REST = 10

# Topics of one namespace that are watched one by one; the partitions of more are looked up once a minute.
_MAX_WATCHES = 100


def find_partitions(client: PlanningClient, options: SourceOptions) -> list[TopicName]:
    """All partitions of all topics that are to be read now, each once.

    Raises:
        TopicNotFoundError: a topic that was named does not exist, and the query does not wait for it.
        BrokerError: no broker could be asked.
    """
    listed = [] if options.pattern is None else client.topics_matching(options.pattern)
    names = [*options.topics, *dict.fromkeys(topic.base for topic in listed)]
    found: dict[TopicName, None] = {}
    answers = run_all([partial(client.partitions, name) for name in names])
    for name, partitions in zip(names, answers, strict=True):
        if isinstance(partitions, TopicNotFoundError):
            if name in options.topics and not options.wait_for_topics:
                raise partitions
            # What is listed exists: a topic without partitions may have a name as if it were one of them.
            partitions = [topic for topic in listed if topic.base == name]
        elif isinstance(partitions, PulsarError):
            raise partitions
        found.update(dict.fromkeys(partitions))
    return list(found)


def first_contact(client: PlanningClient, options: SourceOptions) -> list[TopicName]:
    """:func:`find_partitions` at the start of a read: a wrong address is an error in seconds.

    A pattern that no topic matches is warned of.

    Raises:
        TopicNotFoundError: a topic that was named does not exist, and the query does not wait for it.
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
        client: where to list topics.
        options: they name the topics, or have the pattern.
        found: what :func:`find_partitions` gave at the start.

    Attributes:
        partitions: as far as known now.
    """

    def __init__(self, client: PlanningClient, options: SourceOptions, found: Iterable[TopicName]) -> None:
        self.partitions = list(found)
        self._client = client
        self._options = options
        self._patterns = _patterns(options)
        self._watches: list[TopicWatch] = []
        self._stale = False
        self._again_at = 0.0

    def refresh(self) -> None:
        """List the partitions again, if some came or went, or the last time is a minute ago.

        A broker that does not answer is logged and asked again later: an exception would end the query. The
        known partitions are read meanwhile, for ten times as long as the vain wait.
        """
        began = self._client.now()
        if began < self._again_at:
            return
        try:
            may_list = self._options.pattern is not None
            # Those that were opened before one could not be are kept.
            for pattern in self._patterns[len(self._watches) :]:
                self._watches.append(self._client.watch_topics(pattern, may_list=may_list))
            changed = [watch.changed for watch in self._watches]
            if any(changed) or self._stale:
                self._stale = True
                self.partitions = find_partitions(self._client, self._options)
                self._stale = False
        except TopicNotFoundError as error:
            # The planner finds out which of its partitions are gone, and whether that is loss.
            _log.warning("a topic of this query does not exist at the moment: %s", error)
            self._stale = False
        except PulsarError as error:
            if not error.is_passing:
                raise
            _log.warning("the topics could not be listed; this is retried: %s", error)
            now = self._client.now()
            self._again_at = now + _REST * (now - began)

    def take_deleted(self, topic: TopicName) -> bool:
        """Whether a partition was deleted since the last call; it may exist again.

        Waits a moment for the broker's report, so call it only if much depends on it.
        """
        watches = [
            watch
            for pattern, watch in zip(self._patterns, self._watches, strict=False)
            if pattern.matches(topic)
        ]
        return any(watch.take_deleted(topic, _REPORT_TIMEOUT) for watch in watches)

    def forget_deleted(self, topics: Collection[TopicName]) -> None:
        """Leave out of :meth:`take_deleted` what was reported up to now."""
        for watch in self._watches:
            watch.forget_deleted(topics)

    def drop(self, topic: TopicName) -> None:
        """Stop reading ``topic``, unless it is found again."""
        self.partitions = [each for each in self.partitions if each != topic]

    def close(self) -> None:
        """Stop watching."""
        for watch in self._watches:
            watch.close()


def _patterns(options: SourceOptions) -> list[TopicPattern]:
    """What to watch: the pattern, or each of the topics that are named; together where they are many."""
    if options.pattern is not None:
        return [options.pattern]
    places: dict[tuple[str, str], list[TopicPattern]] = defaultdict(list)
    for topic in dict.fromkeys(topic.base for topic in options.topics):
        places[topic.tenant, topic.namespace].append(TopicPattern.of(topic))
    patterns: list[TopicPattern] = []
    for place, named in places.items():
        if len(named) > _MAX_WATCHES:
            names = "|".join(each.regex.pattern for each in named)
            named = [TopicPattern(*place, re.compile(names))]
        patterns += named
    return patterns
