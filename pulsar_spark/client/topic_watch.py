"""TopicWatch: receives reports of topics and partitions that were created or deleted in a namespace."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.retry import retry
from pulsar_spark.client.net.session import Session
from pulsar_spark.errors import AuthError, DeadlineError, PulsarError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.protocol.connection import Role
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import Frame

# Seconds after which all topics are listed, because the broker may not support watches, or an update between
# two brokers may be lost.
_LIST_INTERVAL = 60.0
# Seconds between two attempts to watch again.
_REOPEN_INTERVAL = 1.0
_CLOSE_TIMEOUT = 1.0
# Maximum deleted topics that are kept, because some may never be taken.
_MAX_DELETED = 10_000
# Maximum created or deleted topics that are named one by one; if there are more, all topics are listed.
_MAX_NAMED = 1000

_log = logging.getLogger(__name__)


class _Deleted:
    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._changed = threading.Condition()

    def add(self, names: Iterable[str]) -> None:
        with self._changed:
            self._names.update(dict.fromkeys(names))
            while len(self._names) > _MAX_DELETED:
                del self._names[next(iter(self._names))]
            self._changed.notify_all()

    def take(self, name: str, within: float) -> bool:
        with self._changed:
            found = self._changed.wait_for(lambda: name in self._names, within)
            self._names.pop(name, None)
            return found

    def forget(self, names: Iterable[str]) -> None:
        if self._names:  # mostly empty; saves the lock, because this is called at each trigger
            with self._changed:
                for name in names:
                    self._names.pop(name, None)


class _Updates:
    awaits_receipts = False

    def __init__(self, pattern: TopicPattern, deleted: _Deleted) -> None:
        self._pattern = pattern
        self._deleted = deleted
        # Number of changes, counted by the session's thread. From 1, so that the first call lists all topics.
        self.count = 1
        self.lost_by: PulsarError | None = None
        self._named: dict[TopicName, None] = {}
        self._lock = threading.Lock()

    def deliver(self, frames: list[Frame]) -> None:
        for frame in frames:
            update = frame.command.watchTopicUpdate
            gone, new = self._meant(update.deleted_topics), self._meant(update.new_topics)
            self._deleted.add(map(str, gone))
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

    def _meant(self, names: Iterable[str]) -> list[TopicName]:
        topics = map(TopicName.found, names)
        return [topic for topic in topics if topic is not None and self._pattern.matches(topic)]


class TopicWatch(Closing):
    """Watches the topics that match a pattern (WATCH_TOPIC_LIST); a context manager.

    A lost watch is opened again, on a short-lived thread, by ``take_changes``. If the broker does not support
    watches (by its feature flags), or the role may not watch, all topics must be listed once a minute.

    Args:
        pattern: pattern of the topics, all of one namespace.
        may_list: whether to watch a pattern that cannot be sent to the broker
            (:attr:`TopicPattern.broker_regex`). The broker then lists all topics of the namespace.

    Raises:
        BrokerError: the broker refused, or no broker answered within the operation timeout.
    """

    def __init__(self, client: Client, pattern: TopicPattern, *, may_list: bool = True) -> None:
        self._client = client
        self._is_watched = may_list or pattern.broker_regex is not None
        self._pattern = pattern
        self._lock = threading.Lock()
        self._deleted = _Deleted()
        self._updates = _Updates(pattern, self._deleted)
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

        Deletions while the watch was lost are not known.

        Args:
            within: seconds to wait for the broker's report, because other requests may show the deletion
                earlier.
        """
        return self._deleted.take(str(topic), within)

    def forget_deleted(self, topics: Iterable[TopicName]) -> None:
        """Drops the reported deletions of some partitions; see :meth:`take_deleted`."""
        self._deleted.forget(map(str, topics))

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
        updates, watcher_id = _Updates(self._pattern, self._deleted), self._client.new_id()
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
