"""Watches: the broker reports changes of topics and segments, so that clients need not list them often.

TopicWatch is for the topics of a pattern, ScalableTopicWatch for the scalable topics of a pattern, and
SegmentWatch for the segments of one topic.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.net.deadline import Deadline, retry
from pulsar_spark.client.net.session import Session
from pulsar_spark.errors import (
    AuthError,
    DeadlineError,
    NotReadyError,
    PulsarError,
    TopicNotFoundError,
    UnsupportedError,
    from_server,
)
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.protocol.connection import Role
from pulsar_spark.protocol.segments import TopicLayout, read_layout
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import Frame

# Seconds after which topics are listed again, because the broker may not support watches, or an update
# between two brokers may be lost.
_LIST_INTERVAL = 60.0
# Seconds between two attempts to open a TopicWatch again.
_REOPEN_INTERVAL = 1.0
_CLOSE_TIMEOUT = 1.0
# Maximum deleted topics that are remembered until ``take_deleted``, which may never be called for some.
_MAX_DELETED = 10_000
# Maximum topics that ``take_changes`` returns; after more changes all topics must be listed.
_MAX_NAMED = 1000

_log = logging.getLogger(__name__)


class _NamedUpdates:
    awaits_receipts = False

    def __init__(self, pattern: TopicPattern, on_deleted: Callable[[list[TopicName]], None]) -> None:
        self._pattern = pattern
        self._on_deleted = on_deleted
        # Number of changes + 1. A new watch has ``_seen`` 0, so its first ``take_changes`` returns None.
        self.count = 1
        self.lost_by: PulsarError | None = None
        self._named: dict[TopicName, None] = {}
        self._lock = threading.Lock()

    def deliver(self, frames: list[Frame]) -> None:
        for frame in frames:
            update = frame.command.watchTopicUpdate
            gone, new = (
                _matching(self._pattern, names) for names in (update.deleted_topics, update.new_topics)
            )
            self._on_deleted(gone)
            if gone or new:
                with self._lock:
                    self._named.update(dict.fromkeys(topic.base for topic in (*gone, *new)))
                self.count += 1

    def lost(self, error: PulsarError) -> None:
        self.lost_by = error
        self.count += 1

    def take_named(self) -> list[TopicName]:
        with self._lock:
            named, self._named = self._named, {}
        return list(named)


def _matching(pattern: TopicPattern, names: Iterable[str], *, scalable: bool = False) -> list[TopicName]:
    """Returns the topics that match a pattern; skips invalid names."""
    topics = (TopicName.found(name, scalable=scalable) for name in names)
    return [topic for topic in topics if topic is not None and pattern.matches(topic)]


class TopicWatch(Closing):
    """Watches the topics that match a pattern (WATCH_TOPIC_LIST); a context manager.

    A lost watch is opened again, on a short-lived thread, by ``take_changes``. If the broker does not support
    watches (by its feature flags), or the role may not watch, all topics must be listed once a minute.

    ``may_list``: whether to watch, too, if the pattern has no :attr:`TopicPattern.broker_regex`. The broker
    then sends the names of all topics of the namespace.

    Raises:
        BrokerError: the broker refused, or no broker answered within the operation timeout.
    """

    def __init__(self, client: Client, pattern: TopicPattern, *, may_list: bool = True) -> None:
        self._client = client
        self._is_watched = may_list or pattern.broker_regex is not None
        self._pattern = pattern
        self._lock = threading.Lock()
        self._deleted: dict[TopicName, None] = {}
        self._deletion = threading.Condition()
        self._updates = _NamedUpdates(pattern, self._add_deleted)
        self._seen = 0
        self._session: Session | None = None
        self._id = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._reopen_at = self._list_at = 0.0
        deadline = client.operation()
        retry(lambda: self._open(deadline), deadline)

    def take_changes(self) -> list[TopicName] | None:
        """Returns the topics that were created or deleted, or got partitions, since the last call.

        Makes no request. Topics are returned without their partitions. Returns None if all topics must be
        listed: at the first call, after the watch was lost or opened again, once a minute, and after many
        changes.
        """
        now = time.monotonic()
        with self._lock:
            updates, seen = self._updates, self._seen
            self._seen = updates.count
            if updates.lost_by is not None and not self._closed and now >= self._reopen_at:
                self._reopen_at = now + _REOPEN_INTERVAL
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._reopen, name="pulsar watch", daemon=True)
                    self._thread.start()
            named = updates.take_named()
            # A watch does not name topics that changed before it was open, or after it was lost.
            is_unnamed = self._seen != seen and (seen == 0 or updates.lost_by is not None)
            if not is_unnamed and now < self._list_at and len(named) <= _MAX_NAMED:
                return named
            self._list_at = now + _LIST_INTERVAL
            return None

    def take_deleted(self, topic: TopicName, within: float = 0.0) -> bool:
        """Whether a topic partition was deleted since the last call, even if it exists now; makes no request.

        Misses deletions while the watch was lost. ``within``: seconds to wait for the broker's report,
        which may arrive after another request has shown the deletion.
        """
        with self._deletion:
            found = self._deletion.wait_for(lambda: topic in self._deleted, within)
            self._deleted.pop(topic, None)
            return found

    def forget_deleted(self, topics: Iterable[TopicName]) -> None:
        """Drops the reported deletions of some partitions; see :meth:`take_deleted`."""
        if self._deleted:  # mostly empty; saves the lock, because this is called at each trigger
            with self._deletion:
                for topic in topics:
                    self._deleted.pop(topic, None)

    def _add_deleted(self, topics: list[TopicName]) -> None:
        with self._deletion:
            self._deleted.update(dict.fromkeys(topics))
            while len(self._deleted) > _MAX_DELETED:
                del self._deleted[next(iter(self._deleted))]
            self._deletion.notify_all()

    def close(self) -> None:
        """Stops watching, without waiting for the broker."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        if session is not None:
            self._close_watch(session, self._id)

    def _reopen(self) -> None:
        try:
            self._open(self._client.operation())
        except PulsarError as error:
            _log.info("topics of %s are not watched at the moment: %s", self._pattern, error)

    def _open(self, deadline: Deadline) -> None:
        session = self._client.service(deadline)
        updates, watcher_id = _NamedUpdates(self._pattern, self._add_deleted), self._client.new_id()
        namespace = f"{self._pattern.tenant}/{self._pattern.namespace}"
        watched: Session | None = None
        if session.topic_watchers and self._is_watched:
            session.attach(Role.WATCHER, watcher_id, updates)
            try:
                session.request(
                    lambda request_id: commands.watch_topic_list(
                        request_id, watcher_id, namespace, self._pattern.broker_regex
                    ),
                    deadline,
                )
            except PulsarError as error:
                session.detach(Role.WATCHER, watcher_id)
                if isinstance(error, DeadlineError) and session.error is None:
                    self._close_watch(session, watcher_id)
                if not isinstance(error, AuthError):
                    raise
                # A role with permission on a topic may have no permission on its namespace.
                _log.info("topics of %s are listed once a minute: %s", self._pattern, error)
            else:
                watched = session
        with self._lock:
            if not self._closed:
                self._updates, self._seen, self._session, self._id = updates, 0, watched, watcher_id
                return
        if watched is not None:
            self._close_watch(watched, watcher_id)

    def _close_watch(self, session: Session, watcher_id: int) -> None:
        session.detach(Role.WATCHER, watcher_id)
        try:
            session.ask(
                lambda request_id: commands.watch_topic_list_close(request_id, watcher_id), _CLOSE_TIMEOUT
            )
        except PulsarError as error:
            _log.debug("the connection of a watch of topics has ended before it was closed: %s", error)


class _Updates:
    """Receives the broker's reports to one watch, on the session's thread."""

    awaits_receipts = False

    def __init__(self, silence: str, topic: TopicName | None = None) -> None:
        self._silence = DeadlineError(silence, topic=None if topic is None else str(topic))
        self._changed = threading.Condition()
        self.has_first = False
        self.error: PulsarError | None = None

    def lost(self, error: PulsarError) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def await_first(self, deadline: Deadline) -> None:
        """Waits for the first report; raises the broker's error, or DeadlineError without an answer."""
        with self._changed:
            self._changed.wait_for(lambda: self.has_first or self.error is not None, deadline.left)
            if self.error is not None:
                raise self.error
            if not self.has_first:
                raise self._silence

    @abstractmethod
    def deliver(self, frames: list[Frame]) -> None: ...


class _Watch(Closing):
    """A watch on one session at a time; a context manager."""

    def __init__(self, client: Client, begin: Callable[[int], bytes], end: Callable[[int], bytes]) -> None:
        self._client = client
        self._begin = begin
        self._end = end
        self._session: Session | None = None
        self._id = 0

    def close(self) -> None:
        """Stops watching, without waiting for the broker."""
        session, self._session = self._session, None
        if session is not None and session.error is None:
            session.detach(Role.WATCHER, self._id)
            with suppress(PulsarError):  # the connection has ended, and the watch with it
                session.send(self._end(self._id))

    def _open(self, updates: _Updates, deadline: Deadline, unsupported: UnsupportedError) -> None:
        self.close()
        session = self._client.service(deadline)
        if not session.scalable_topics:
            raise unsupported
        self._id = self._client.new_id()
        self._session = session
        try:
            session.attach(Role.WATCHER, self._id, updates)
            session.send(self._begin(self._id))
            session.ping()  # detects a silent connection: without a request id, the command has no timeout
            updates.await_first(deadline)
        except BaseException:  # also SystemExit, by which Spark ends the planner
            self.close()
            raise


class ScalableTopicWatch(_Watch):
    """Watches the scalable topics that match a pattern (WATCH_SCALABLE_TOPICS); a context manager.

    Raises:
        UnsupportedError: the broker has no scalable topics.
        BrokerError: the broker refused, or no broker answered within the operation timeout.
    """

    def __init__(self, client: Client, pattern: TopicPattern) -> None:
        namespace = f"{pattern.tenant}/{pattern.namespace}"
        super().__init__(
            client,
            lambda watch: commands.watch_scalable_topics(watch, namespace),
            commands.watch_scalable_topics_close,
        )
        self._pattern = pattern
        self._updates = _TopicUpdates(pattern)
        self._list_at = 0.0
        self._given: frozenset[TopicName] | None = None
        self.topics()

    @property
    def changed(self) -> bool:
        """Whether :meth:`topics` will return other topics than before, or list again. Makes no request."""
        return self._must_list or self._updates.topics is not self._given

    def topics(self) -> list[TopicName]:
        """Returns the topics that exist, sorted; lists them again after a loss. Raises as the constructor."""
        if self._must_list:
            deadline = self._client.operation()
            retry(lambda: self._list(deadline), deadline)
        self._given = self._updates.topics
        return sorted(self._given)

    @property
    def _must_list(self) -> bool:
        return self._updates.error is not None or time.monotonic() >= self._list_at

    def _list(self, deadline: Deadline) -> None:
        updates = _TopicUpdates(self._pattern)
        unsupported = UnsupportedError(
            f"the broker has no scalable topics, which the pattern {self._pattern} is for",
            advice="Scalable topics need Pulsar 5 and scalableTopicsEnabled=true. For topics of another "
            "kind write persistent://tenant/namespace/regex",
        )
        self._open(updates, deadline, unsupported)
        self._updates, self._list_at = updates, time.monotonic() + _LIST_INTERVAL


class _TopicUpdates(_Updates):
    def __init__(self, pattern: TopicPattern) -> None:
        super().__init__(f"the broker did not list the topics of {pattern}")
        self._pattern = pattern
        self.topics: frozenset[TopicName] = frozenset()

    def deliver(self, frames: list[Frame]) -> None:
        for frame in frames:
            update = frame.command.watchScalableTopicsUpdate
            if update.HasField("error"):
                self.lost(from_server(update.error, update.message))
            elif update.HasField("snapshot"):
                self._take(self._meant(update.snapshot.topics))
            elif self.has_first:
                self._take(self.topics - self._meant(update.diff.removed) | self._meant(update.diff.added))

    def _take(self, topics: frozenset[TopicName]) -> None:
        with self._changed:
            if topics != self.topics:  # a report may be about topics that do not match the pattern
                self.topics = topics
            self.has_first = True
            self._changed.notify_all()

    def _meant(self, names: Iterable[str]) -> frozenset[TopicName]:
        return frozenset(_matching(self._pattern, names, scalable=True))


class SegmentWatch(_Watch):
    """Watches the segments of one topic (SCALABLE_TOPIC_LOOKUP); a context manager.

    Args:
        topic: scalable topic, by any of its names; a classic topic has one segment for each partition.
        create: whether the broker may create a missing topic, if its auto-creation policy allows this.

    Raises:
        UnsupportedError: the broker has no scalable topics.
        TopicNotFoundError: the topic does not exist.
        BrokerError: the broker refused, or no broker answered within the operation timeout.
    """

    def __init__(self, client: Client, topic: TopicName, *, create: bool = False) -> None:
        super().__init__(
            client,
            lambda watch: commands.scalable_topic_lookup(watch, str(topic), create=create),
            commands.scalable_topic_close,
        )
        self._topic = topic
        self._updates = _SegmentUpdates(topic, 0)
        self._given: int | None = None  # epoch (version) of the last returned layout
        self.layout()

    @property
    def changed(self) -> bool:
        """Whether :meth:`layout` returns a newer layout, or must look up again. Makes no request."""
        latest = self._updates.latest
        return self._updates.error is not None or latest is None or latest.epoch != self._given

    def layout(self) -> TopicLayout:
        """Returns the current segments; looks them up again after a loss. Raises as the constructor."""
        if self._session is None or self._updates.error is not None:
            deadline = self._client.operation()
            retry(lambda: self._look_up(deadline), deadline)
        latest = self._updates.latest
        assert latest is not None
        self._given = latest.epoch
        return latest

    def await_change(self, seconds: float) -> None:
        """Waits at most ``seconds`` until ``changed``."""
        self._updates.await_other(self._given, seconds)

    def _look_up(self, deadline: Deadline) -> None:
        # Keeps the epoch of the last layout, because another broker may answer with an older layout, which
        # lacks segments that the query has read already.
        updates = self._updates = _SegmentUpdates(self._topic, self._updates.epoch)
        unsupported = UnsupportedError(
            "the broker has no scalable topics",
            topic=str(self._topic),
            advice="Scalable topics need Pulsar 5 and scalableTopicsEnabled=true. For a topic of another "
            "kind write persistent://tenant/namespace/topic",
        )
        try:
            self._open(updates, deadline, unsupported)
        except TopicNotFoundError:  # accept a new topic of this name, whose epochs begin again
            updates.epoch = 0
            raise


class _SegmentUpdates(_Updates):
    """The newest layout of one lookup session.

    Attributes:
        epoch: epoch of the newest layout of this lookup session and the sessions before it.
    """

    def __init__(self, topic: TopicName, epoch: int) -> None:
        super().__init__("the broker did not answer a lookup of segments", topic)
        self.epoch = epoch
        self._topic = topic
        self.latest: TopicLayout | None = None

    def deliver(self, frames: list[Frame]) -> None:
        for frame in frames:
            update = frame.command.scalableTopicUpdate
            try:
                if update.HasField("error"):
                    raise from_server(update.error, update.message, topic=str(self._topic))
                self._take(read_layout(update, self._topic))
            except PulsarError as error:
                self.lost(error)

    def _take(self, layout: TopicLayout) -> None:
        with self._changed:
            # Older layouts are ignored, because brokers may send them again.
            if layout.epoch > self.epoch or (self.latest is None and layout.epoch == self.epoch):
                self.latest, self.epoch, self.has_first = layout, layout.epoch, True
            elif self.latest is None:
                what = f"the broker knows the segments of epoch {layout.epoch}, and others knew {self.epoch}"
                self.error = NotReadyError(
                    what,
                    topic=str(self._topic),
                    advice="If this stays so, the topic was created again: restart the query",
                )
            self._changed.notify_all()

    def await_other(self, epoch: int | None, seconds: float) -> None:
        """Waits at most ``seconds`` until the newest layout has another epoch, or the session has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or self.epoch != epoch, seconds)
