"""Topics: the topic partitions that a query reads, at its start and as topics are created and deleted."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from pulsar_spark.client import PROMPT, PendingCalls, PlanningClient, TopicWatch, run_all
from pulsar_spark.errors import PulsarError, TopicMigratedError, TopicNotFoundError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.scalable import ScalableTopics

_log = logging.getLogger(__name__)

# Seconds to wait for the broker's report that a topic was deleted, if messages seem lost.
_REPORT_TIMEOUT = 2.0

_LIST = "list"  # the only key of the pending calls

# Maximum topics of a namespace that have a watch each. If there are more, their partitions are listed once a
# minute instead.
_MAX_WATCHES = 100


def find_partitions(
    client: PlanningClient,
    options: SourceOptions,
    if_missing: Callable[[TopicNotFoundError, TopicName], Iterable[TopicName]] | None = None,
    scalable: ScalableTopics | None = None,
) -> list[TopicName]:
    """Returns all partitions of all topics to read now, each once.

    Args:
        if_missing: function that returns the partitions of a missing topic; None: a missing topic is an
            error.
        scalable: watches of a streaming query, which list scalable topics and their segments without a
            request; None: the client lists them.

    Raises:
        TopicNotFoundError: a named topic does not exist, and the query does not wait for it.
    """
    names: Iterable[TopicName] = options.topics
    if options.pattern is not None:
        list_topics = client.topics_matching if scalable is None else scalable.matching
        names = list_topics(options.pattern)

    def partitions_of(topic: TopicName) -> Sequence[TopicName]:
        if scalable is None or not topic.is_scalable:
            return client.partitions(topic)
        return scalable.segments_of(topic)

    found: dict[TopicName, None] = {}
    for name, partitions in _answers([*names], partitions_of).items():
        if isinstance(partitions, TopicNotFoundError):
            if not options.must_exist:
                continue
            if if_missing is None:
                raise partitions
            partitions = list(if_missing(partitions, name))
        found.update(dict.fromkeys(partitions))
    return list(found)


def _answers(
    names: Sequence[TopicName], partitions_of: Callable[[TopicName], Sequence[TopicName]]
) -> dict[TopicName, Sequence[TopicName] | TopicNotFoundError]:
    """Returns the partitions of each topic, or its TopicNotFoundError; raises the first of other errors."""
    found: dict[TopicName, Sequence[TopicName] | TopicNotFoundError] = {}
    answers = run_all([partial(partitions_of, name) for name in names])
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, PulsarError) and not isinstance(answer, TopicNotFoundError):
            raise answer
        found[name] = answer
    return found


class PatternTopics:
    """The topics of a pattern and their partitions; requests only the partitions of changed topics."""

    def __init__(self, client: PlanningClient, pattern: TopicPattern) -> None:
        self._client = client
        self._pattern = pattern
        # By topic: its partitions in the last list (None: only a watch named it), and all looked up.
        self._known: dict[TopicName, tuple[frozenset[TopicName] | None, Sequence[TopicName]]] = {}

    def list(self, changed: Collection[TopicName] | None) -> list[TopicName]:
        """Lists the partitions of all topics that exist.

        Args:
            changed: topics that may have changed since the last list. None: list all topics, and request the
                number of partitions of each topic whose listed partitions have changed.
        """
        asked: dict[TopicName, frozenset[TopicName] | None]
        if changed is None:
            listed = self._client.topics_matching(self._pattern)
            known = {name: each for name, each in self._known.items() if each[0] == listed.get(name, 0)}
            asked = {name: parts for name, parts in listed.items() if name not in known}
        else:
            asked = dict.fromkeys(changed)
            known = {name: each for name, each in self._known.items() if name not in asked}
        for name, partitions in _answers([*asked], self._client.partitions).items():
            if not isinstance(partitions, TopicNotFoundError):
                known[name] = (asked[name], partitions)
        self._known = known
        return [topic for _, partitions in known.values() for topic in partitions]


def migrated(client: PlanningClient, topics: Iterable[TopicName]) -> list[TopicMigratedError]:
    """Returns the topics that were migrated to scalable topics, where new messages go.

    Readers receive no other sign of a migration. Only the first 100 topics are checked, because each costs a
    request.
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
    """Returns the partitions at the start of a read. A wrong address is an error within seconds.

    A pattern that matches no topic is logged as a WARNING.
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
    """The partitions that a streaming query reads."""

    def __init__(
        self,
        client: PlanningClient,
        options: SourceOptions,
        scalable: ScalableTopics,
        found: Iterable[TopicName],
    ) -> None:
        self.partitions = list(found)
        self._client = client
        self._options = options
        self._patterns = _patterns(options)
        pattern = options.pattern
        self._pattern = None if pattern is None or pattern.is_scalable else PatternTopics(client, pattern)
        self._to_ask: set[TopicName] = set()  # topics to list again, because a partition was dropped
        self._watches: list[TopicWatch] = []
        self._stale = False
        self._missing: set[TopicName] = set()
        self._dropped: set[TopicName] = set()  # the last list may still name these partitions
        self._listing: PendingCalls[str] = PendingCalls()
        self._pauses = self._listing.pauses  # pauses after failed lists and failed lookups of scalable topics
        self._scalable = scalable
        # Scalable topics are listed again here, by watches: only watches look up the ends of sealed segments,
        # and this may be the only list of the run.
        if options.has_scalable_topics:
            self.renew()
        self._migrated: set[str | None] = set()  # topics already named in a warning
        self._looking: PendingCalls[str] = PendingCalls()
        self._looked_at = 0  # index of the next topic to check
        self._warn_of_migrated(looks=True)

    def refresh(self) -> None:
        """Lists the partitions again, if topics have changed, or the last list is a minute old.

        Waits for the list for at most 1 s, and uses a late list at a later call. A failure is logged and the
        list is requested again later, because an exception would end the query. The known partitions are read
        meanwhile.
        """
        calls = {}
        # While a list is pending, watches keep their reports, because the list may lack these changes.
        if not self._listing.has_more and self._pauses.is_over(_LIST, self._client.now()):
            changed = self._take_changes()
            has_segments = [self._may_have_segments(topic) for topic in self._scalable.names]
            has_changed = self._scalable.has_other_names or any(has_segments)
            self._stale = changed is None or bool(changed) or has_changed
            if self._stale:
                calls = {_LIST: partial(self._list, changed)}
                self._dropped.clear()
        for found in self._listing.run(calls, PROMPT).values():
            self._take(found)
        self._warn_of_migrated(looks=bool(calls))

    def _take_changes(self) -> set[TopicName] | None:
        """Returns the topics that may have changed since the last list; None if all must be listed."""
        changes = [watch.take_changes() for watch in self._watches]
        changed, self._to_ask = self._to_ask, set()
        for each in changes:
            changed.update(each or ())
        must_list = self._stale or None in changes or len(self._watches) < len(self._patterns)
        return None if must_list else changed

    def _may_have_segments(self, topic: TopicName) -> bool:
        """Whether a topic's segments may have changed; False for a while after a list without the topic."""
        # The fast check is first, because most of a pattern's thousands of topics have not changed.
        may_have = self._scalable.may_have_changed(topic)
        return may_have and self._pauses.is_over(str(topic), self._client.now())

    def _list(self, changed: Collection[TopicName] | None) -> list[TopicName]:
        """Watches the patterns that are not watched yet, and lists all partitions; runs on a thread."""
        may_list = self._options.pattern is not None
        # If a watch cannot be opened, earlier watches are kept.
        for pattern in self._patterns[len(self._watches) :]:
            watch = self._client.watch_topics(pattern, may_list=may_list)
            watch.take_changes()  # drops changes so far, because the list includes them
            self._watches.append(watch)
        if self._pattern is not None:
            return self._pattern.list(changed)
        missing, self._missing = self._missing, set()

        def known(error: TopicNotFoundError, name: TopicName) -> list[TopicName]:
            """Returns the known partitions of a missing topic; the planner checks later if data is lost."""
            self._missing.add(name)
            if name not in missing:
                _log.warning("a topic of this query does not exist at the moment: %s", error)
            return [topic for topic in self.partitions if name in (topic, topic.base)]

        return find_partitions(self._client, self._options, known, self._scalable)

    def renew(self) -> None:
        """Lists all partitions again; raises the errors of :func:`find_partitions`."""
        self.partitions = find_partitions(self._client, self._options, scalable=self._scalable)

    def _warn_of_migrated(self, *, looks: bool) -> None:
        """Warns once of each topic found to be migrated. ``looks``: whether to begin to check more topics."""
        calls = {_LIST: self._look_at_next} if looks else {}
        for found in self._looking.run(calls, PROMPT).values():
            if isinstance(found, PulsarError):
                _log.info("not known whether topics were migrated: %s", found)
                continue
            for error in found:
                if error.topic not in self._migrated:
                    self._migrated.add(error.topic)
                    _log.warning("%s", error)

    def _look_at_next(self) -> list[TopicMigratedError]:
        """Returns the migrated topics among the next topics to check; runs on a thread."""
        if not self._client.has_scalable_topics():
            return []  # skips the loop over thousands of names
        read = _classic([*self._options.topics, *self.partitions])
        names = [name for name in read if str(name) not in self._migrated]
        begin = self._looked_at % max(len(names), 1)
        self._looked_at = begin + _MAX_WATCHES
        return migrated(self._client, names[begin:] + names[:begin])

    def _take(self, found: list[TopicName] | PulsarError) -> None:
        """Replaces ``partitions`` by the list; logs a temporary error, raises any other."""
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
        for topic in self._scalable.names:
            if topic in self._scalable.missing:
                self._pauses.failed(str(topic), self._client.now())
            else:
                self._pauses.succeeded(str(topic))

    def take_deleted(self, topic: TopicName) -> bool:
        """Whether a partition was deleted since the last call; the partition may exist again.

        Waits up to 2 s for the broker's report, so call this only if messages seem lost.
        """
        watches = [
            watch
            for pattern, watch in zip(self._patterns, self._watches, strict=False)
            if pattern.matches(topic)
        ]
        return any(watch.take_deleted(topic, _REPORT_TIMEOUT) for watch in watches)

    def forget_deleted(self, topics: Collection[TopicName]) -> None:
        """Drops the deletions of ``topics`` that were reported so far, for :meth:`take_deleted`."""
        for watch in self._watches:
            watch.forget_deleted(topics)

    def drop(self, topic: TopicName) -> None:
        """Stops reading ``topic``, unless a list that begins later contains it again."""
        self._dropped.add(topic)
        if self._pattern is not None:
            self._to_ask.add(topic.base)
        if self._scalable.forget(topic):
            self._stale = True  # list again: segments that waited for this partition can be read
        self.partitions = [each for each in self.partitions if each != topic]

    def close(self) -> None:
        """Closes all watches."""
        self._close_watches()
        self._listing.leave(_LIST, lambda _: self._close_watches())

    def _close_watches(self) -> None:
        while self._watches:
            self._watches.pop().close()
        self._scalable.close()


def _classic(topics: Iterable[TopicName]) -> list[TopicName]:
    """Returns the classic topics, except those that ``topics`` also contains as scalable topics."""
    names = dict.fromkeys(topic.base for topic in topics)
    return [name for name in names if not name.is_scalable and name.scalable not in names]


def _patterns(options: SourceOptions) -> list[TopicPattern]:
    """Returns the patterns to watch: the user's, or one per named topic; many of a namespace share one."""
    if options.pattern is not None:
        return [] if options.pattern.is_scalable else [options.pattern]
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
