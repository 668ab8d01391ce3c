"""ScalableTopicWatch: the scalable topics that match a pattern, kept up to date by the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.retry import retry
from pulsar_spark.client.net.session import Session
from pulsar_spark.errors import DeadlineError, PulsarError, UnsupportedError, from_server
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.protocol.connection import Role
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import Frame

# Seconds after which the topics are listed again, because an update between two brokers may be lost.
_LIST_INTERVAL = 60.0


class ScalableTopicWatch(Closing):
    """Watches a pattern of scalable topics (WATCH_SCALABLE_TOPICS); a context manager.

    Raises:
        UnsupportedError: the broker has no scalable topics.
    """

    def __init__(self, client: Client, pattern: TopicPattern) -> None:
        self._client = client
        self._pattern = pattern
        self._updates = _Updates(pattern)
        self._session: Session | None = None
        self._id = 0
        self._list_at = 0.0
        self._given: frozenset[TopicName] | None = None
        self.topics()

    @property
    def changed(self) -> bool:
        """Whether :meth:`topics` returns other topics, or must list them again. Makes no request."""
        updates = self._updates
        return (
            updates.error is not None
            or updates.topics is not self._given
            or time.monotonic() >= self._list_at
        )

    def topics(self) -> list[TopicName]:
        """Returns the topics that exist, sorted; lists them again after a loss. Raises as the constructor."""
        if self._updates.error is not None or time.monotonic() >= self._list_at:
            deadline = self._client.operation()
            retry(lambda: self._open(deadline), deadline)
        found = self._updates.topics
        assert found is not None
        self._given = found
        return sorted(found)

    def close(self) -> None:
        """Stops watching, without waiting for the broker."""
        session, self._session = self._session, None
        if session is not None and session.error is None:
            session.detach(Role.WATCHER, self._id)
            with suppress(PulsarError):  # the connection ended meanwhile, with the watch
                session.send(commands.watch_scalable_topics_close(self._id))

    def _open(self, deadline: Deadline) -> None:
        self.close()
        session = self._client.service(deadline)
        if not session.scalable_topics:
            raise UnsupportedError(
                f"the broker has no scalable topics, which the pattern {self._pattern} is for",
                advice="Scalable topics need Pulsar 5 and scalableTopicsEnabled=true. For topics of another "
                "kind write persistent://tenant/namespace/regex",
            )
        updates, self._id = _Updates(self._pattern), self._client.new_id()
        self._session = session
        try:
            session.attach(Role.WATCHER, self._id, updates)
            namespace = f"{self._pattern.tenant}/{self._pattern.namespace}"
            session.send(commands.watch_scalable_topics(self._id, namespace))
            session.ping()  # a silent connection ends, although this request has no id
            updates.await_first(deadline)
        except BaseException:  # also SystemExit, by which Spark ends the planner
            self.close()
            raise
        self._updates, self._list_at = updates, time.monotonic() + _LIST_INTERVAL


class _Updates:
    """The topics of one watch; the session's thread calls it."""

    awaits_receipts = False

    def __init__(self, pattern: TopicPattern) -> None:
        self._pattern = pattern
        self._changed = threading.Condition()
        self.topics: frozenset[TopicName] | None = None
        self.error: PulsarError | None = None

    def deliver(self, frames: list[Frame]) -> None:
        for frame in frames:
            update = frame.command.watchScalableTopicsUpdate
            if update.HasField("error"):
                self.lost(from_server(update.error, update.message))
            elif update.HasField("snapshot"):
                self._take(self._meant(update.snapshot.topics))
            elif self.topics is not None:
                self._take(self.topics - self._meant(update.diff.removed) | self._meant(update.diff.added))

    def _take(self, topics: frozenset[TopicName]) -> None:
        with self._changed:
            if topics != self.topics:  # most changes are of other topics
                self.topics = topics
            self._changed.notify_all()

    def _meant(self, names: Iterable[str]) -> frozenset[TopicName]:
        found = (TopicName.found(name, scalable=True) for name in names)
        return frozenset(topic for topic in found if topic is not None and self._pattern.matches(topic))

    def lost(self, error: PulsarError) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def await_first(self, deadline: Deadline) -> None:
        """Waits for the first list; raises the broker's error, or DeadlineError without an answer."""
        with self._changed:
            self._changed.wait_for(lambda: self.topics is not None or self.error is not None, deadline.left)
            if self.error is not None:
                raise self.error
            if self.topics is None:
                raise DeadlineError(f"the broker did not list the topics of {self._pattern}")
