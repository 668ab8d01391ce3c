"""SegmentWatch: the segments of a scalable topic, kept up to date by the broker."""

from __future__ import annotations

import threading
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
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.connection import Role
from pulsar_spark.protocol.segments import TopicLayout, read_layout
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import Frame


class SegmentWatch(Closing):
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
        self._create = create
        self._client = client
        self._topic = topic
        self._updates = _Updates(topic, 0)
        self._session: Session | None = None
        self._id = 0
        self._given: int | None = None  # epoch of the last returned layout
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
            retry(lambda: self._open(deadline), deadline)
        latest = self._updates.latest
        assert latest is not None
        self._given = latest.epoch
        return latest

    def await_change(self, seconds: float) -> None:
        """Waits at most so long until ``changed``."""
        self._updates.await_other(self._given, seconds)

    def close(self) -> None:
        """Ends the lookup session, without waiting for the broker."""
        session, self._session = self._session, None
        if session is not None and session.error is None:
            session.detach(Role.WATCHER, self._id)
            with suppress(PulsarError):  # the connection ended meanwhile, with the lookup session
                session.send(commands.scalable_topic_close(self._id))

    def _open(self, deadline: Deadline) -> None:
        self.close()
        session = self._client.service(deadline)
        if not session.scalable_topics:
            raise UnsupportedError(
                "the broker has no scalable topics",
                topic=str(self._topic),
                advice="Scalable topics need Pulsar 5 and scalableTopicsEnabled=true. For a topic of another "
                "kind write persistent://tenant/namespace/topic",
            )
        # A broker may answer with an older layout, which lacks segments that the query has read already. So
        # the epoch of the last layout is kept.
        self._updates, self._id = _Updates(self._topic, self._updates.epoch), self._client.new_id()
        self._session = session
        try:
            session.attach(Role.WATCHER, self._id, self._updates)
            session.send(commands.scalable_topic_lookup(self._id, str(self._topic), create=self._create))
            session.ping()  # a silent connection ends, although this request has no id
            self._updates.await_first(deadline)
        except BaseException as error:  # also SystemExit, by which Spark ends the planner
            self.close()
            if isinstance(error, TopicNotFoundError):  # another topic of this name begins with a lower epoch
                self._updates.epoch = 0
            raise


class _Updates:
    """The newest layout of one lookup session; the session's thread calls it.

    Attributes:
        epoch: epoch of the newest layout of this lookup session and the sessions before it.
    """

    awaits_receipts = False

    def __init__(self, topic: TopicName, epoch: int) -> None:
        self.epoch = epoch
        self._topic = topic
        self._changed = threading.Condition()
        self.latest: TopicLayout | None = None
        self.error: PulsarError | None = None

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
            # Brokers repeat older layouts.
            if layout.epoch > self.epoch or (self.latest is None and layout.epoch == self.epoch):
                self.latest, self.epoch = layout, layout.epoch
                self._changed.notify_all()
            elif self.latest is None:
                what = f"the broker knows the segments of epoch {layout.epoch}, and others knew {self.epoch}"
                self.error = NotReadyError(
                    what,
                    topic=str(self._topic),
                    advice="If this stays so, the topic was created again: restart the query",
                )
                self._changed.notify_all()

    def lost(self, error: PulsarError) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def await_other(self, epoch: int | None, seconds: float) -> None:
        """Waits at most so long for a layout of another epoch, or the session's end."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or self.epoch != epoch, seconds)

    def await_first(self, deadline: Deadline) -> None:
        """Waits for the first layout; raises the broker's error, or DeadlineError without an answer."""
        with self._changed:
            self._changed.wait_for(lambda: self.latest is not None or self.error is not None, deadline.left)
            if self.error is not None:
                raise self.error
            if self.latest is None:
                raise DeadlineError("the broker did not answer a lookup of segments", topic=str(self._topic))
