"""ConsumerLink: a consumer's subscription on one connection at a time, opened again where it was lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from functools import partial

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.inbox import Inbox
from pulsar_spark.client.consuming.subscription_options import SubscriptionOptions
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.pool import Purpose
from pulsar_spark.client.net.retry import retry, wait_to_reopen
from pulsar_spark.client.net.session import Session
from pulsar_spark.errors import DeadlineError, NotReadyError, PulsarError, SubscriptionLimitError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.connection import Role
from pulsar_spark.protocol.pauses import Reopening
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import Messages

CLOSE_TIMEOUT = 5.0
_MIN_HELD = 8 << 20  # bytes that may wait for any consumer

_log = logging.getLogger(__name__)


class ConsumerLink:
    """Finds the broker, subscribes, and sends what the consumer asks; not thread-safe.

    Each subscription has an id and its own inbox, so late frames of an older one do not reach the
    consumer. Messages that were not taken when it subscribes again are dropped: the broker sends them again.

    Its arguments are those of ``Consumer``.

    Attributes:
        inbox: of the last subscription.
        last: the last entry that the consumer gave out. A non-durable subscription opened again begins
            after it; None: at the start that the options say.

    Raises:
        PulsarError: as `open`.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        options: SubscriptionOptions,
        permits: Permits | None,
        on_arrival: Callable[[], object] | None,
    ) -> None:
        self.inbox = Inbox()
        self.last: MessageId | None = None
        self._client = client
        self._topic = topic
        self._options = options
        self._permits = permits
        self._on_arrival = on_arrival
        self._reopening = Reopening()
        self._id = client.new_id()
        self._openings = 0
        self._is_moved = False
        self._session: Session | None = None
        self.open(client.operation())

    def open(self, deadline: Deadline) -> None:
        """Find the broker and subscribe; retries until the deadline.

        Raises:
            TopicNotFoundError: there is no such topic, and ``SubscriptionOptions.create`` is false.
            BusyError: another consumer holds the subscription.
            BrokerError: the broker did not accept it before the deadline.
        """
        retry(lambda: self._open(deadline), deadline)

    @property
    def is_open(self) -> bool:
        """Whether the connection is alive; makes no request."""
        return self._session is not None and self._session.error is None

    @property
    def is_lost(self) -> bool:
        """Whether the broker or the connection was lost since the last call; makes no request."""
        return self.inbox.error is not None

    # ---- messages

    def take_group(self, timeout: float) -> list[Messages]:
        """Messages to decode together, after waiting for the first; empty if none came in time.

        Raises:
            PulsarError: the consumer was lost, and all messages before that were taken.
        """
        group = self.inbox.take_group(timeout)
        if group:
            self._reopening.yielded()
        return group

    def grant(self, remaining_entries: int | None) -> None:
        """Grant the permits that are due (FLOW); does nothing if the consumer is lost.

        Raises:
            PulsarError: the connection has ended just now.
        """
        session = self._live_session
        if self._permits is None or session is None:
            return
        # An entry may say that it holds more messages than one FLOW makes up for.
        while granted := self._permits.grant(remaining_entries):
            session.send(commands.flow(self._id, granted))

    # ---- requests

    def request(
        self,
        build: Callable[[int, int], bytes],
        *,
        deadline: Deadline | None = None,
        attempt_timeout: float | None = None,
        patience: Deadline | None = None,
        ends_with_consumer: bool = False,
    ) -> pb.BaseCommand:
        """Send a request to the broker; subscribe again if the consumer was lost.

        Args:
            build: makes the command from a request id and the consumer id.
            deadline: for all attempts; None for one operation timeout.
            attempt_timeout: seconds without an answer after which the consumer counts as lost: the broker
                does not answer an ACK for a consumer that it has closed.
            patience: the deadline once a broker is reached; None: the operation timeout.
            ends_with_consumer: whether a broker that closes the consumer may leave it without an answer. (It
                closes the consumer that is moved by SEEK, and answers all the same.)
        """
        until = Deadline((deadline or self._client.operation()).left)

        def attempt() -> pb.BaseCommand:
            session = self._opened(until)
            if patience is not None:
                until.at, until.seconds = patience.at, patience.seconds
            consumer_id = self._id
            within = until if attempt_timeout is None else until.at_most(attempt_timeout)
            try:
                return session.request(
                    lambda request_id: build(request_id, consumer_id),
                    within,
                    consumer_id=consumer_id if ends_with_consumer else None,
                )
            except DeadlineError as error:
                if attempt_timeout is None:
                    raise
                self.lose(NotReadyError("the broker did not answer"))
                raise NotReadyError("the broker did not answer an acknowledgement") from error

        try:
            return retry(attempt, until)
        except PulsarError as error:
            raise error.located(str(self._topic)) from error

    def begin(
        self, build: Callable[[int, int], bytes], timeout: float | None = None
    ) -> Future[pb.BaseCommand] | None:
        """Send a request without waiting; None if the consumer would have to subscribe again.

        Args:
            build: makes the command from a request id and the consumer id.
            timeout: seconds until the future ends with a DeadlineError; None for one operation timeout.
        """
        session, consumer_id = self._live_session, self._id
        if session is None:
            return None
        try:
            return session.ask(
                lambda request_id: build(request_id, consumer_id),
                self._client.options.operation_timeout if timeout is None else timeout,
                consumer_id=consumer_id,
            )
        except PulsarError as error:
            _log.info("%s: the request could not be sent: %s", self._topic, error)
            return None

    def send(self, build: Callable[[int], bytes]) -> None:
        """Send a command that has no answer, made from the consumer id; does nothing if it is lost.

        Raises:
            PulsarError: the connection has ended just now.
        """
        session = self._live_session
        if session is not None:
            session.send(build(self._id))

    # ---- other subscriptions

    def moved(self, start: MessageId | None = None) -> None:
        """Subscribe again before the next request: the subscription has another position.

        Args:
            start: of a non-durable subscription, inclusive; None: the broker has it.
        """
        if start is not None:
            self._options = replace(self._options, start=start)
        self.last = None
        if self._permits is not None:
            self._permits.moved()
        self._reopening.reset()
        self.inbox = Inbox()
        self.inbox.lost(NotReadyError("the subscription was moved"))
        self._is_moved = True

    def renew(self) -> None:
        """Subscribe again before the next request, after what was taken: the broker's permits are wrong.

        It adds up in 32 bits, and may send far too much, or nothing more.
        """
        if self._permits is not None:
            self._permits.moved()
        self._reopening.reset()
        self.lose(NotReadyError("an entry has changed the permits"))
        self._is_moved = True

    def lose(self, why: PulsarError) -> None:
        """Subscribe again before the next request: the broker seems to have lost the consumer."""
        self.inbox.lost(why)

    def close(self) -> None:
        """Close the consumer; a broker that cannot be reached notices the lost connection."""
        self._release(Deadline(CLOSE_TIMEOUT))

    def begin_close(self) -> Future[pb.BaseCommand] | None:
        """Close the consumer without waiting; None if the connection has ended.

        The future ends with the broker's answer, or with an error within 5 s.
        """
        session, self._session = self._session, None
        if self._permits is not None:
            self._permits.lost()
        if session is None or session.error is not None:
            return None
        session.detach(Role.CONSUMER, self._id)
        return _begin_close(session, self._id)

    @property
    def _live_session(self) -> Session | None:
        """The session of a consumer that is not lost."""
        return None if self.is_lost else self._session

    def _opened(self, deadline: Deadline) -> Session:
        if self._live_session is None:
            self._open(deadline)
        assert self._session is not None
        return self._session

    def _open(self, deadline: Deadline) -> None:
        """Find the broker and subscribe: one attempt."""
        was_lost = self.is_lost and not self._is_moved
        self._release(deadline)
        if not self.is_lost:
            # Should this opening fail, the next call must try again.
            self.inbox.lost(NotReadyError("the consumer could not be opened again"))
        wait_to_reopen(self._reopening, deadline, "the consumer")
        if was_lost:
            self._client.forget_session(self._topic, Purpose.READ)
        session = self._client.kept_session(self._topic, Purpose.READ, deadline)
        # A new id each time: frames in flight for the old one are dropped.
        consumer_id = self._client.new_id()
        inbox = Inbox(self._on_arrival, self._max_held, partial(_begin_close, session, consumer_id))
        session.attach(Role.CONSUMER, consumer_id, inbox)
        try:
            session.request(lambda request_id: self._subscribe(request_id, consumer_id), deadline)
        except PulsarError as error:
            session.detach(Role.CONSUMER, consumer_id)
            self._client.forget_session(self._topic, Purpose.READ)
            if isinstance(error, DeadlineError) and session.error is None:
                session.ask(lambda request_id: commands.close_consumer(request_id, consumer_id), 1.0)
            if self._options.is_reader_again(self._openings) and isinstance(error, SubscriptionLimitError):
                # The broker counts the reader's last subscription until it has removed it.
                advice = f"It was retried until the timeout. {error.advice}"
                raise NotReadyError(error.what, topic=str(self._topic), advice=advice) from error
            raise error.located(str(self._topic)) from error
        self._session, self._id, self.inbox = session, consumer_id, inbox
        self._is_moved = False
        self._openings += 1
        self._reopening.opened(time.monotonic())

    @property
    def _max_held(self) -> int:
        """Bytes that may wait for the consumer."""
        return _MIN_HELD if self._permits is None else max(_MIN_HELD, self._permits.max_bytes)

    def _subscribe(self, request_id: int, consumer_id: int) -> bytes:
        return self._options.subscribe_command(
            request_id,
            consumer_id,
            self._topic,
            openings=self._openings,
            last=self.last,
            consumer_name=self._client.options.consumer_name,
        )

    def _release(self, deadline: Deadline) -> None:
        """Close the consumer; if the connection is alive, the broker may not know that it is lost."""
        answer = self.begin_close()
        if answer is not None:
            try:
                answer.result(deadline.at_most(CLOSE_TIMEOUT).left)
            except (PulsarError, FutureTimeoutError) as error:
                _log.info(
                    "%s: the consumer was closed without a response of the broker: %s",
                    self._topic,
                    error or "no answer yet",
                )


def _begin_close(session: Session, consumer_id: int) -> Future[pb.BaseCommand] | None:
    """Let a broker send no more to a consumer, without waiting for that."""
    try:
        return session.ask(lambda request_id: commands.close_consumer(request_id, consumer_id), CLOSE_TIMEOUT)
    except PulsarError as error:
        _log.debug("the connection of a consumer has ended before it was closed: %s", error)
        return None
