"""Consumer: one subscription to one topic partition, which recovers by itself from lost connections."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from types import TracebackType

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.retry import retry, wait_to_reopen
from pulsar_spark.client.net.session import Session
from pulsar_spark.client.reading.inbox import Inbox
from pulsar_spark.client.reading.subscription_options import LastMessageId, SubscriptionOptions
from pulsar_spark.errors import (
    CorruptError,
    DeadlineError,
    NotReadyError,
    PulsarError,
    SubscriptionLimitError,
    UnsupportedError,
    from_server,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.acks import AckTracker
from pulsar_spark.protocol.permits import Permits
from pulsar_spark.protocol.reopening import Reopening
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entries import Entries, decode
from pulsar_spark.wire.messages import Messages, group_for_decoding

_ACK_TIMEOUT = 5.0
_CLOSE_TIMEOUT = 5.0

_log = logging.getLogger(__name__)


class Consumer:
    """A consumer on one topic partition; not thread-safe.

    It subscribes again by itself after a cut connection, a restart or an unload. It then begins after the
    last entry that it gave out, so no entry is duplicated or missed.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        options: the subscription.
        permits: grants messages; None for a consumer that only sends requests and acknowledges.
        on_arrival: called on the connection's thread when entries have come, or the consumer was lost; it
            must not block.

    Raises:
        TopicNotFoundError: there is no such topic, and ``options.create`` is false.
        BusyError: another consumer holds the subscription.
        BrokerError: the broker did not accept it within the operation timeout.
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
        self._client = client
        self._options = options
        self._permits = permits
        self._on_arrival = on_arrival
        self._acks = AckTracker()
        self._reopening = Reopening()
        self._id = client.new_id()
        self._last: MessageId | None = None
        self._openings = 0
        self._is_moved = False
        self._corrupt: CorruptError | None = None
        self._session: Session | None = None
        self._inbox = Inbox()
        self._received: deque[list[Messages]] = deque()  # taken from the inbox, not yet decoded
        deadline = client.operation()
        retry(lambda: self._open(deadline), deadline)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def receive(
        self, deadline: Deadline, remaining_entries: int | None = None, idle: float | None = None
    ) -> Entries:
        """Wait for entries and return some that have come, in order, each once.

        Args:
            deadline: for the first of them.
            remaining_entries: how many the caller still needs, or None; limits the permits.
            idle: seconds of silence on a living connection after which it returns none.

        Raises:
            DeadlineError: none came.
            CorruptError: an entry cannot be parsed; the error names the message. Earlier entries are given
                out first.
            TopicNotFoundError, AuthError, ...: the subscription cannot be made again.
        """
        if self._corrupt is not None:
            raise self._corrupt
        while self._received or not deadline.passed:
            try:
                self._flush_due_acks()
                self._grant(remaining_entries)
                quiet = deadline if idle is None else deadline.at_most(idle)
                if not self._received:
                    self._received.extend(group_for_decoding(self._inbox.take(self._time_to_wait(quiet))))
            except PulsarError as error:
                if not error.retriable:
                    raise error.located(str(self.topic)) from error
                _log.info("%s: subscribing again: %s", self.topic, error)
                retry(lambda: self._open(deadline), deadline)
                continue
            if self._received:
                self._reopening.yielded()
                entries = self._new_entries(self._received.popleft())
                if len(entries):
                    return entries
                if self._corrupt is not None:
                    raise self._corrupt
            elif quiet.passed and not deadline.passed:
                return Entries.of([])
        raise deadline.error("no message was received", topic=str(self.topic))

    def ask_for(self, entries: int) -> None:
        """Grant the permits for ``entries`` more entries, without waiting for them.

        Does nothing if the consumer is :attr:`lost`.

        Raises:
            PulsarError: the connection has ended just now.
        """
        self._grant(entries)

    @property
    def holds_entries(self) -> bool:
        """Whether ``receive`` would return entries immediately; makes no request."""
        return bool(self._received) or self._inbox.holds_messages

    def take_arrived(self) -> Entries:
        """The entries that have come, maybe none; makes no request and does not wait.

        Raises:
            CorruptError: as ``receive``.
            PulsarError: no entries are left, and the consumer is lost.
        """
        if not self._received and self._corrupt is None:
            self._received.extend(group_for_decoding(self._inbox.take(0.0)))
        entries = self._new_entries(self._received.popleft()) if self._received else Entries.of([])
        if not len(entries) and self._corrupt is not None:
            raise self._corrupt
        return entries

    @property
    def has_permits(self) -> bool:
        """Whether the broker may send one more entry after those that were taken; makes no request."""
        return self._permits is None or self._permits.is_open

    @property
    def newest_arrived(self) -> MessageId | None:
        """The last entry that has come and was not taken; makes no request."""
        return self._inbox.newest

    @property
    def lost(self) -> bool:
        """Whether the broker or the connection was lost since the last call; makes no request."""
        return self._inbox.error is not None

    def last_message_id(self, deadline: Deadline | None = None) -> LastMessageId:
        """Ask for the last visible message and the subscription's position (GET_LAST_MESSAGE_ID).

        Args:
            deadline: for reaching the broker; None: one operation timeout.

        A broker that was reached may take two operation timeouts for its answer: while it restores a topic's
        transactions after a restart it answers after 30 s or more.
        """
        patience = Deadline(2 * self._client.options.operation_timeout)
        return LastMessageId.of(
            self._request(
                commands.get_last_message_id, deadline=deadline, patience=patience, ends_with_consumer=True
            )
        )

    def begin_last_message_id(self) -> Callable[[float], LastMessageId | None]:
        """Ask for the last message id without waiting, so that one thread can ask many consumers.

        Returns:
            Gives the answer, after waiting for at most so many seconds. None: it has not come, or is an
            error; then call :meth:`last_message_id`, which retries and raises.
        """
        answer = self._begin(commands.get_last_message_id)

        def wait(seconds: float) -> LastMessageId | None:
            found = _answer_within(answer, seconds)
            return None if found is None else LastMessageId.of(found)

        return wait

    def backlog(self) -> int:
        """Ask for the entries between the subscription's position and the topic's end (CONSUMER_STATS).

        The broker also counts entries that it never delivers: markers of transactions, and aborted messages.
        """
        answer = self._request(commands.consumer_stats, ends_with_consumer=True).consumerStatsResponse
        if answer.HasField("error_code"):
            raise from_server(answer.error_code, answer.error_message, topic=str(self.topic))
        return commands.from_wire_count(answer.msgBacklog)

    def ack_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge all entries up to ``message_id``; returns with the broker's receipt (ACK_RESPONSE)."""
        self._acks.add_cumulative(message_id, time.monotonic())
        self.flush_acks()

    def begin_ack_cumulative(self, message_id: MessageId) -> Callable[[float], bool]:
        """Acknowledge all entries up to ``message_id`` without waiting; only if no other acks are pending.

        Returns:
            Whether the broker has confirmed it, after waiting for at most so many seconds. If not, call
            :meth:`ack_cumulative`, which retries and raises.
        """
        answer = self._begin(
            lambda request_id, consumer_id: commands.ack(
                request_id, consumer_id, [message_id], cumulative=True
            )
        )

        def wait(seconds: float) -> bool:
            found = _answer_within(answer, seconds)
            return found is not None and not found.ackResponse.HasField("error")

        return wait

    def ack_unconfirmed(self, message_id: MessageId) -> None:
        """Acknowledge all entries up to ``message_id``, without a receipt and without retries.

        Does nothing if the consumer is :attr:`lost`.

        Raises:
            PulsarError: the connection has ended just now.
        """
        if self._session is not None and self._inbox.error is None:
            self._session.send(commands.ack(None, self._id, [message_id], cumulative=True))

    def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge one entry, together with others when due: here, in ``receive``, or on closing."""
        self._acks.add(message_id, time.monotonic())
        self._flush_due_acks()

    def flush_acks(self) -> None:
        """Send the pending acks; return with the broker's receipt."""
        group = self._acks.take()
        try:
            if group.cumulative is not None:
                self._ack([group.cumulative], cumulative=True)
            if group.individual:
                self._ack(group.individual, cumulative=False)
        except PulsarError:
            self._acks.put_back(group, time.monotonic())
            raise

    def seek(self, target: MessageId | int) -> None:
        """Move to ``target``, inclusive: a message id, or a publish time in ms for durable subscriptions.

        Raises:
            UnsupportedError: a time on a non-durable subscription, whose cursor SEEK would remove.
        """
        if self._options.durable:
            self._request(lambda request_id, consumer_id: commands.seek(request_id, consumer_id, target))
        elif isinstance(target, MessageId):
            self._options = replace(self._options, start=target)
        else:
            raise UnsupportedError("a reader cannot seek to a time", topic=str(self.topic))
        self._last = None
        self._corrupt = None
        self._acks = AckTracker()
        self._received.clear()
        self._reopening.reset()
        self._inbox = Inbox()
        self._inbox.lost(NotReadyError("the subscription was moved"))
        self._is_moved = True

    def unsubscribe(self, deadline: Deadline | None = None) -> None:
        """Remove the subscription and its position at the broker, and close.

        Args:
            deadline: for the request; None for one operation timeout.
        """
        self._request(commands.unsubscribe, deadline=deadline)
        self._release(Deadline(_CLOSE_TIMEOUT))

    def close(self) -> None:
        """Send the pending acks and close; a broker that cannot be reached notices the lost connection."""
        try:
            if self._session is not None and self._session.error is None:
                self.flush_acks()
        except PulsarError as error:
            _log.warning("%s: acknowledgements did not reach the broker: %s", self.topic, error)
        finally:
            self._release(Deadline(_CLOSE_TIMEOUT))

    def _flush_due_acks(self) -> None:
        due = self._acks.due_at
        if due is not None and due <= time.monotonic():
            self.flush_acks()

    def _time_to_wait(self, deadline: Deadline) -> float:
        due = self._acks.due_at
        return deadline.left if due is None else max(0.0, min(due - time.monotonic(), deadline.left))

    def _ack(self, message_ids: list[MessageId], *, cumulative: bool) -> None:
        def build(request_id: int, consumer_id: int) -> bytes:
            return commands.ack(request_id, consumer_id, message_ids, cumulative=cumulative)

        answer = self._request(build, attempt_timeout=_ACK_TIMEOUT, ends_with_consumer=True).ackResponse
        if answer.HasField("error"):
            raise from_server(answer.error, answer.message, topic=str(self.topic))

    def _request(
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
                self._inbox.lost(NotReadyError("the broker did not answer"))
                raise NotReadyError("the broker did not answer an acknowledgement") from error

        try:
            return retry(attempt, until)
        except PulsarError as error:
            raise error.located(str(self.topic)) from error

    def _begin(self, build: Callable[[int, int], bytes]) -> Future[pb.BaseCommand] | None:
        """Send a request without waiting; None if the consumer would have to subscribe again."""
        session, consumer_id = self._session, self._id
        if session is None or self._inbox.error is not None:
            return None
        try:
            return session.ask(
                lambda request_id: build(request_id, consumer_id),
                self._client.options.operation_timeout,
                consumer_id=consumer_id,
            )
        except PulsarError as error:
            _log.info("%s: the request could not be sent and is repeated: %s", self.topic, error)
            return None

    def _opened(self, deadline: Deadline) -> Session:
        if self._session is None or self._inbox.error is not None:
            self._open(deadline)
        assert self._session is not None
        return self._session

    def _open(self, deadline: Deadline) -> None:
        """Find the broker and subscribe: one attempt."""
        self._received.clear()
        self._release(deadline)
        wait_to_reopen(self._reopening, deadline, "the consumer")
        if self._inbox.error is not None and not self._is_moved:
            self._client.forget_reader_session(self.topic)
        session = self._client.reader_session(self.topic, deadline)
        # A new id each time: frames in flight for the old one are dropped.
        consumer_id, inbox = self._client.new_id(), Inbox(self._on_arrival)
        session.attach_consumer(consumer_id, inbox)
        try:
            session.request(lambda request_id: self._subscribe(request_id, consumer_id), deadline)
        except PulsarError as error:
            session.detach_consumer(consumer_id)
            self._client.forget_reader_session(self.topic)
            if isinstance(error, DeadlineError) and session.error is None:
                session.ask(lambda request_id: commands.close_consumer(request_id, consumer_id), 1.0)
            if self._options.is_reader_again(self._openings) and isinstance(error, SubscriptionLimitError):
                # The broker counts the reader's last subscription until it has removed it.
                advice = f"It was retried until the timeout. {error.advice}"
                raise NotReadyError(error.what, topic=str(self.topic), advice=advice) from error
            raise error.located(str(self.topic)) from error
        self._session, self._id, self._inbox = session, consumer_id, inbox
        self._is_moved = False
        self._openings += 1
        self._reopening.opened(time.monotonic())

    def _subscribe(self, request_id: int, consumer_id: int) -> bytes:
        return self._options.subscribe_command(
            request_id,
            consumer_id,
            self.topic,
            openings=self._openings,
            last=self._last,
            consumer_name=self._client.options.consumer_name,
        )

    def _release(self, deadline: Deadline) -> None:
        """Close the consumer; if the connection is alive, the broker may not know that it is lost."""
        session, self._session = self._session, None
        if self._permits is not None:
            self._permits.lost()
        if session is not None and session.error is None:
            consumer_id = self._id
            session.detach_consumer(consumer_id)
            within = deadline.at_most(_CLOSE_TIMEOUT)
            try:
                session.request(lambda request_id: commands.close_consumer(request_id, consumer_id), within)
            except PulsarError as error:
                _log.info(
                    "%s: the consumer was closed without a response of the broker: %s", self.topic, error
                )

    def _grant(self, remaining_entries: int | None) -> None:
        session = self._session
        if self._permits is None or session is None or self._inbox.error is not None:
            return
        # An entry may say that it holds more messages than one FLOW makes up for.
        while granted := self._permits.grant(remaining_entries):
            session.send(commands.flow(self._id, granted))

    def _new_entries(self, received: list[Messages]) -> Entries:
        """Decode messages, and leave out those given out before."""
        entries, corrupt, corrupt_id = decode(received)
        count = len(entries)
        if corrupt is not None:
            self._corrupt = corrupt.located(str(self.topic), str(corrupt_id))
            self._received.clear()
        if count and self._permits is not None:
            held = int(np.maximum(entries.messages, 1).sum(dtype=np.int64))
            self._permits.used(held, int(entries.sizes.sum()), count)
        last = (-1, -1) if self._last is None else (self._last.ledger, self._last.entry)
        entries = _new_after(entries, last)
        if len(entries):
            self._last = MessageId(int(entries.ledger[-1]), int(entries.entry[-1]))
        return entries


def _answer_within(answer: Future[pb.BaseCommand] | None, seconds: float) -> pb.BaseCommand | None:
    """The answer to a request; None if it is late, or an error."""
    try:
        return None if answer is None else answer.result(seconds)
    except (PulsarError, FutureTimeoutError) as error:
        _log.info("a request is sent again: %s", error or "no answer yet")
        return None


def _new_after(entries: Entries, last: tuple[int, int]) -> Entries:
    """The entries after ``last``, each also after all before it."""
    ledger, entry = entries.ledger, entries.entry
    older = np.zeros(len(entries), np.bool_)
    older[1:] = (ledger[1:] < ledger[:-1]) | ((ledger[1:] == ledger[:-1]) & (entry[1:] <= entry[:-1]))
    if not older.any() and len(entries) and (int(ledger[0]), int(entry[0])) > last:
        return entries
    new = []
    for one in entries:
        if (one.ledger, one.entry) > last:
            new.append(one)
            last = one.ledger, one.entry
    return Entries.of(new)
