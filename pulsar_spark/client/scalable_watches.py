"""SegmentWatch of a scalable topic, and ScalableTopicWatch of a pattern: the broker keeps both up to date."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.retry import retry
from pulsar_spark.client.net.session import Session
from pulsar_spark.errors import (
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

# Seconds after which topics are listed again, because an update between two brokers may be lost.
_LIST_INTERVAL = 60.0


class _Updates:
    """The broker's reports to one watch; the session's thread delivers them."""

    awaits_receipts = False

    def __init__(self) -> None:
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
                raise self.silence()

    @abstractmethod
    def deliver(self, frames: list[Frame]) -> None: ...

    @abstractmethod
    def silence(self) -> DeadlineError: ...


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
    """Watches a pattern of scalable topics (WATCH_SCALABLE_TOPICS); a context manager.

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
        """Whether :meth:`topics` returns other topics, or must list them again. Makes no request."""
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
        super().__init__()
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
            if topics != self.topics:  # most changes are of other topics
                self.topics = topics
            self.has_first = True
            self._changed.notify_all()

    def _meant(self, names: Iterable[str]) -> frozenset[TopicName]:
        found = (TopicName.found(name, scalable=True) for name in names)
        return frozenset(topic for topic in found if topic is not None and self._pattern.matches(topic))

    def silence(self) -> DeadlineError:
        return DeadlineError(f"the broker did not list the topics of {self._pattern}")


class SegmentWatch(_Watch):
    """A lookup session of one topic (SCALABLE_TOPIC_LOOKUP); a context manager.

    Args:
        topic: scalable topic, by any of its names; a classic topic has one segment for each partition.
        create: whether the broker may create a missing topic by its policy.

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
        # A broker may answer with an older layout, which lacks segments that the query has read already. So
        # the epoch of the last layout is kept.
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
        super().__init__()
        self.epoch = epoch
        self._topic = topic
        self.latest: TopicLayout | None = None

    def deliver(self, frames: list[Frame]) -> None:
        for frame in frames:
            update = frame.command.scalableTopicUpdate
            if update.HasField("error"):
                self.lost(from_server(update.error, update.message, topic=str(self._topic)))
                continue
            try:
                layout = read_layout(update, self._topic)
            except PulsarError as error:
                self.lost(error)
                continue
            self._take(layout)

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

    def silence(self) -> DeadlineError:
        return DeadlineError("the broker did not answer a lookup of segments", topic=str(self._topic))
