"""ConsumerLink: a consumer's subscription on one connection at a time; subscribes again after a loss.

SubscriptionOptions has the settings of SUBSCRIBE; LastMessageId is the answer to GET_LAST_MESSAGE_ID.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing
from pulsar_spark.client.consuming.inbox import Inbox
from pulsar_spark.client.net.deadline import Deadline, retry, retry_attempts, wait_to_reopen
from pulsar_spark.client.net.session import CLOSE_TIMEOUT, Purpose, Session
from pulsar_spark.client.pending_calls import MappedFuture
from pulsar_spark.errors import (
    ConnectError,
    DeadlineError,
    NotReadyError,
    PulsarError,
    SubscriptionLimitError,
    UnsupportedError,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.connection import Role
from pulsar_spark.protocol.pauses import Reopening
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import commands, wire_values
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.commands import InitialPosition
from pulsar_spark.wire.frame_runs import Messages


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """The contents of SUBSCRIBE.

    Attributes:
        name: name of the exclusive subscription. A number is appended when a non-durable subscription is
            opened again.
        durable: whether the broker keeps position and unacknowledged messages without a connected consumer.
        start: first wanted entry, inclusive; non-durable subscriptions only.
        create: whether the first SUBSCRIBE may create the topic, for example a partition that the broker has
            deleted because it was inactive.
        is_replicated: whether the broker replicates the position to the other clusters of the topic; None:
            the namespace's policy decides.
    """

    name: str
    durable: bool
    initial: InitialPosition = InitialPosition.LATEST
    start: MessageId | None = None
    create: bool = False
    read_compacted: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    is_replicated: bool | None = None

    def is_reader_again(self, openings: int) -> bool:
        """Whether the subscription is non-durable, and an earlier SUBSCRIBE has or may have opened it."""
        return not self.durable and openings > 0

    def subscribe_command(
        self,
        request_id: int,
        consumer_id: int,
        topic: TopicName,
        *,
        openings: int,
        last: MessageId | None,
        consumer_name: str | None,
    ) -> bytes:
        """Returns the SUBSCRIBE command.

        Args:
            openings: number of earlier successful SUBSCRIBEs of this consumer. With a :attr:`start`, it
                includes SUBSCRIBEs that the broker did not answer.
            last: last returned entry; a non-durable subscription begins after it. None: it begins at
                :attr:`start`.
        """
        is_new = openings == 0
        start = self.start if last is None else MessageId(last.ledger, last.entry + 1)
        return commands.subscribe(
            request_id,
            consumer_id,
            str(topic),
            # A reopened non-durable subscription gets a new name. Else a broker that still removes the old
            # subscription might remove the new one, too, and the consumer would receive no messages.
            f"{self.name}-{openings + 1}" if self.is_reader_again(openings) else self.name,
            durable=self.durable,
            # If a durable subscription was removed, SUBSCRIBE creates it again. With LATEST its position is
            # then the end of the topic, so the caller can detect the removal.
            initial=self.initial if is_new else InitialPosition.LATEST,
            start=None if self.durable else start,
            create=self.create and is_new,
            read_compacted=self.read_compacted,
            consumer_name=consumer_name,
            properties=self.properties,
            is_replicated=self.is_replicated,
        )


class LastMessageId(NamedTuple):
    """Answer to GET_LAST_MESSAGE_ID.

    Attributes:
        last: last visible message; entry -1 if the topic has none.
        mark_delete: position up to which all messages are acknowledged; right after SUBSCRIBE, the position
            before the first message to read.
    """

    last: MessageId
    mark_delete: MessageId

    @classmethod
    def of(cls, command: pb.BaseCommand) -> LastMessageId:
        """Reads the broker's answer; raises UnsupportedError if it lacks the subscription's position."""
        answer = command.getLastMessageIdResponse
        if not answer.HasField("consumer_mark_delete_position"):
            raise UnsupportedError("the broker is too old: it does not report a subscription's position")
        return cls(
            wire_values.from_wire_id(answer.last_message_id),
            wire_values.from_wire_id(answer.consumer_mark_delete_position),
        )


_MIN_HELD = 8 << 20  # minimum of an inbox's ``max_bytes``, in bytes

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ConsumerLink(Closing):
    """The subscription of a :class:`Consumer`, which has the same arguments; not thread-safe.

    Finds the broker, subscribes, and sends requests. Each SUBSCRIBE has a new id and a new inbox, so late
    frames for an earlier SUBSCRIBE do not reach the consumer. A new SUBSCRIBE also drops received messages
    that were not returned yet, because the broker sends them again.

    Attributes:
        last: last entry that the consumer returned. A non-durable subscription that is opened again begins
            after this entry; None: at the start in the options.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        options: SubscriptionOptions,
        permits: Permits | None = None,
        on_arrival: Callable[[], object] | None = None,
    ) -> None:
        self.topic = topic
        self.inbox = Inbox()
        self.last: MessageId | None = None
        self._client = client
        self._options = options
        self._permits = permits
        self._on_arrival = on_arrival
        self._reopening = Reopening()
        self._id = client.new_id()
        self._openings = 0
        self._is_moved = False
        self._session: Session | None = None
        self._open_in_time(client.operation())

    @property
    def lost(self) -> bool:
        """Whether the consumer must subscribe again before its next request; makes no request."""
        return self.inbox.error is not None

    # ---- messages

    def ask_for(self, entries: int | None) -> None:
        """Sends permits (FLOW) for ``entries`` more entries, None for any number; does not wait for entries.

        Does nothing if the consumer is :attr:`lost`; raises PulsarError if the connection has ended just now.
        """
        session = self._live_session
        if self._permits is None or session is None:
            return
        # Sends several FLOWs if an entry claimed more messages than one FLOW can grant.
        while granted := self._permits.grant(entries):
            session.send(commands.flow(self._id, granted))

    def _take_group(self, timeout: float) -> list[Messages]:
        """Returns messages to decode in one call; see :meth:`Inbox.take_group`."""
        group = self.inbox.take_group(timeout)
        if group:
            self._reopening.yielded()
        return group

    # ---- requests

    def _request(
        self,
        build: Callable[[int, int], bytes],
        *,
        deadline: Deadline | None = None,
        attempt_timeout: float | None = None,
        patience: Deadline | None = None,
        ends_with_consumer: bool = False,
    ) -> pb.BaseCommand:
        """Sends a request to the broker; subscribes again if the consumer was lost.

        Args:
            build: function that makes the command from a request id and the consumer id.
            deadline: deadline of all attempts; None: one operation timeout.
            attempt_timeout: seconds without an answer after which the consumer counts as lost, because a
                broker does not answer an ACK for a consumer that it has closed.
            patience: deadline that replaces ``deadline`` once the consumer is open; None: no replacement.
            ends_with_consumer: True: the request fails when the broker closes the consumer, because the
                broker may not answer it any more. False for SEEK, which it answers after closing.
        """
        until = Deadline((deadline or self._client.operation()).left)

        def attempt() -> pb.BaseCommand:
            if self._live_session is None:
                self._open(until)
            session, consumer_id = self._session, self._id
            assert session is not None
            if patience is not None:
                until.at, until.seconds = patience.at, patience.seconds
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
            raise error.located(str(self.topic)) from error

    def _begin(
        self,
        build: Callable[[int, int], bytes],
        read: Callable[[pb.BaseCommand], T],
        timeout: float | None = None,
    ) -> MappedFuture[T] | None:
        """Sends a request without waiting; None if it cannot be sent on the present connection.

        Args:
            read: function that makes the future's result from the broker's answer.
            timeout: seconds until the future ends with a DeadlineError; None: one operation timeout.
        """
        session, consumer_id = self._live_session, self._id
        if session is None:
            return None
        try:
            answer = session.ask(
                lambda request_id: build(request_id, consumer_id),
                self._client.options.operation_timeout if timeout is None else timeout,
                consumer_id=consumer_id,
            )
        except PulsarError as error:
            _log.info("%s: the request could not be sent: %s", self.topic, error)
            return None
        return MappedFuture(answer, read)

    # ---- opening again, and closing

    def _moved(self, start: MessageId | None = None) -> None:
        """Subscribes again before the next request, because the subscription has another position.

        ``start``: start of a non-durable subscription, inclusive; None: the broker knows the position.
        """
        if start is not None:
            self._options = replace(self._options, start=start)
        self.last = None
        self.inbox = Inbox()
        self._renew(NotReadyError("the subscription was moved"))

    def _renew(self, why: PulsarError) -> None:
        """Subscribes again before the next request, without a pause; the first FLOW grants few permits."""
        if self._permits is not None:
            self._permits.moved()
        self._reopening.reset()
        self.lose(why)
        self._is_moved = True

    def lose(self, why: PulsarError) -> None:
        """Subscribes again before the next request, because the broker seems to have lost the consumer."""
        self.inbox.lost(why)

    def begin_close(self) -> Future[pb.BaseCommand] | None:
        """Closes the consumer; neither repeats an acknowledgement nor waits for the broker's answer.

        Returns a future that ends with the answer, or with an error within 5 s; None if the connection has
        ended.
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
        return None if self.lost else self._session

    def _open_in_time(self, deadline: Deadline) -> None:
        retry_attempts(self._open, deadline, self._client.options.operation_timeout)

    def _open(self, deadline: Deadline) -> None:
        """Finds the broker and subscribes; makes one attempt."""
        was_lost = self.lost and not self._is_moved
        self._release(deadline)
        if not self.lost:
            # If this opening fails, the next call must try again.
            self.inbox.lost(NotReadyError("the consumer could not be opened again"))
        wait_to_reopen(self._reopening, deadline, "the consumer")
        if was_lost:
            self._client.forget_session(self.topic, Purpose.READ)
        session = self._client.kept_session(self.topic, Purpose.READ, deadline)
        # A new id each time, so that frames in flight for the old id are dropped.
        consumer_id = self._client.new_id()
        max_held = max(_MIN_HELD, 0 if self._permits is None else self._permits.max_bytes)
        inbox = Inbox(self._on_arrival, max_held, partial(_begin_close, session, consumer_id))
        session.attach(Role.CONSUMER, consumer_id, inbox)
        try:
            session.request(
                lambda request_id: self._options.subscribe_command(
                    request_id,
                    consumer_id,
                    self.topic,
                    openings=self._openings,
                    last=self.last,
                    consumer_name=self._client.options.consumer_name,
                ),
                deadline,
            )
        except PulsarError as error:
            session.detach(Role.CONSUMER, consumer_id)
            self._client.forget_session(self.topic, Purpose.READ)
            if isinstance(error, (ConnectError, DeadlineError)) and self._options.start is not None:
                self._openings += 1  # gives the next SUBSCRIBE a new name: the old one may be removed
            if isinstance(error, DeadlineError) and session.error is None:
                session.ask(lambda request_id: commands.close_consumer(request_id, consumer_id), 1.0)
            if self._options.is_reader_again(self._openings) and isinstance(error, SubscriptionLimitError):
                # Retriable, because the limit counts this consumer's old subscription until it is removed.
                advice = f"It was retried until the timeout. {error.advice}"
                raise NotReadyError(error.what, topic=str(self.topic), advice=advice) from error
            raise error.located(str(self.topic)) from error
        self._session, self._id, self.inbox = session, consumer_id, inbox
        self._is_moved = False
        self._openings += 1
        self._reopening.opened(time.monotonic())

    def _release(self, deadline: Deadline) -> None:
        """Closes the consumer at the broker, if the connection is alive, and waits for the answer."""
        answer = self.begin_close()
        if answer is not None:
            try:
                answer.result(deadline.at_most(CLOSE_TIMEOUT).left)
            except (PulsarError, FutureTimeoutError) as error:
                _log.info(
                    "%s: the consumer was closed without a response of the broker: %s",
                    self.topic,
                    error or "no answer yet",
                )


def _begin_close(session: Session, consumer_id: int) -> Future[pb.BaseCommand] | None:
    try:
        return session.ask(lambda request_id: commands.close_consumer(request_id, consumer_id), CLOSE_TIMEOUT)
    except PulsarError as error:
        _log.debug("the connection of a consumer has ended before it was closed: %s", error)
        return None
