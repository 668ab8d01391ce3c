"""Consumer: one subscription to one topic partition, which recovers by itself from lost connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import wait

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.consumer_link import ConsumerLink, LastMessageId, SubscriptionOptions
from pulsar_spark.client.consuming.inbox import TopicEnd
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.session import CLOSE_TIMEOUT
from pulsar_spark.client.pending_calls import MappedFuture
from pulsar_spark.errors import CorruptError, NotReadyError, PulsarError, UnsupportedError, from_server
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import commands, wire_values
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, decode
from pulsar_spark.wire.frame_runs import Messages

_ACK_TIMEOUT = 5.0

# Part of Pulsar 5's error text if the position is acknowledged already, for example by a message TTL. Older
# brokers report success.
_HAS_ACKED = "MarkDeletingMarkedPosition"

_log = logging.getLogger(__name__)


class Consumer(ConsumerLink):
    """A consumer on one topic partition; not thread-safe.

    It subscribes again by itself after a lost connection, a broker restart or a topic unload. It then begins
    after the last returned entry, so no entry is repeated or missed.

    Args:
        permits: permits for messages; None: the consumer only sends requests and acknowledges.
        on_arrival: function that is called on the connection's thread when entries are received, or when the
            consumer has ended; it must not block.

    Raises:
        TopicNotFoundError: there is no such topic, and ``options.create`` is false.
        BusyError: another consumer holds the subscription.
        BrokerError: the broker did not accept the consumer within the operation timeout.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        options: SubscriptionOptions,
        permits: Permits | None = None,
        on_arrival: Callable[[], object] | None = None,
    ) -> None:
        self._acked: MessageId | None = None  # position of the last acknowledgement
        self._is_acked = True  # whether the broker has confirmed ``_acked``
        self._corrupt: CorruptError | None = None
        super().__init__(client, topic, options, permits, on_arrival)

    def receive(
        self, deadline: Deadline, remaining_entries: int | None = None, idle: float | None = None
    ) -> Entries:
        """Waits for entries and returns the received ones, in order, each once.

        Args:
            remaining_entries: number of entries that the caller still needs, which limits the permits; None:
                unknown.
            idle: seconds without an entry, on an open connection, after which an empty result is returned.

        Raises:
            DeadlineError: no entry was received.
            CorruptError: an entry cannot be parsed; the error names the message. Earlier entries are returned
                first.
            TopicNotFoundError, AuthError, ...: the subscription cannot be opened again.
        """
        if self._corrupt is not None:
            raise self._corrupt
        # After the deadline, only entries received before it are returned, because new entries may arrive
        # without end.
        while self.inbox.holds_groups or not deadline.passed:
            try:
                self.ask_for(remaining_entries)
                quiet = deadline if idle is None else deadline.at_most(idle)
                group = self._take_group(quiet.left)
            except PulsarError as error:
                if not error.retriable:
                    raise error.located(str(self.topic)) from error
                _log.info("%s: subscribing again: %s", self.topic, error)
                self._open_in_time(deadline)
                continue
            if group:
                entries = self._new_entries(group)
                if len(entries):
                    return entries
            elif quiet.passed and not deadline.passed:
                return Entries.of([])
        raise deadline.error("no message was received", topic=str(self.topic))

    @property
    def holds_entries(self) -> bool:
        """Whether ``receive`` would return entries immediately; makes no request."""
        return self._corrupt is None and self.inbox.holds_messages

    def take_arrived(self) -> Entries:
        """Returns the received entries, maybe none; makes no request and does not wait.

        Raises:
            CorruptError: an entry cannot be parsed.
            PulsarError: no entries are left, and the consumer is lost.
        """
        if self._corrupt is not None:
            raise self._corrupt
        group = self._take_group(0.0)
        return self._new_entries(group) if group else Entries.of([])

    @property
    def has_permits(self) -> bool:
        """Whether the broker has a permit left for one more entry; makes no request."""
        return self._permits is None or self._permits.is_open

    @property
    def newest_arrived(self) -> MessageId | None:
        """Returns the id of the last received entry that was not returned yet, or None; makes no request."""
        return self.inbox.newest

    @property
    def topic_end(self) -> TopicEnd | None:
        """Returns the broker's reason why the topic gets no more messages, or None; makes no request."""
        return self.inbox.topic_end

    def last_message_id(self, deadline: Deadline | None = None) -> LastMessageId:
        """Asks for the last visible message and the subscription's position (GET_LAST_MESSAGE_ID).

        The broker must be reached before ``deadline``; None: within one operation timeout. Its answer may
        then take two operation timeouts, because a broker that restores a topic's transactions after a
        restart answers after 30 s or more.
        """
        patience = Deadline(2 * self._client.options.operation_timeout)
        return LastMessageId.of(
            self._request(
                commands.get_last_message_id, deadline=deadline, patience=patience, ends_with_consumer=True
            )
        )

    def begin_last_message_id(self) -> MappedFuture[LastMessageId] | None:
        """Asks for the last message id without waiting, so that one thread can ask many consumers.

        Never retries. The answer may take two operation timeouts, as in :meth:`last_message_id`. Returns None
        if the request cannot be sent on the present connection.
        """
        patience = 2 * self._client.options.operation_timeout
        return self._begin(commands.get_last_message_id, LastMessageId.of, patience)

    def backlog(self) -> int:
        """Asks for the entries between the subscription's position and the topic's end (CONSUMER_STATS).

        The broker also counts entries that it never delivers: markers of transactions, and aborted messages.
        """
        return self._backlog_in(self._request(commands.consumer_stats, ends_with_consumer=True))

    def begin_backlog(self) -> MappedFuture[int] | None:
        """Asks for the :meth:`backlog` without waiting; returns None if the request cannot be sent now."""
        return self._begin(commands.consumer_stats, self._backlog_in)

    def ack_cumulative(self, message_id: MessageId) -> None:
        """Acknowledges all entries up to ``message_id``; returns after the broker's receipt (ACK_RESPONSE).

        The position never moves back. For an earlier ``message_id`` the last acknowledged position is sent
        again, because the broker may have lost it in a crash. ``close`` sends it again if it has no receipt.
        """
        if self._acked is None or message_id > self._acked:
            self._acked = message_id
        self._is_acked = False
        self._ack()

    def begin_ack_cumulative(self, message_id: MessageId) -> MappedFuture[MessageId] | None:
        """Acknowledges all entries up to ``message_id`` without waiting.

        Returns:
            A future of ``message_id``, which fails with a DeadlineError if the broker has not confirmed it
            after 5 s; None if the request cannot be sent on the present connection.
        """

        def confirmed(command: pb.BaseCommand) -> MessageId:
            self._check_ack(command.ackResponse)
            return message_id

        return self._begin(
            lambda request_id, consumer_id: commands.ack(request_id, consumer_id, message_id),
            confirmed,
            _ACK_TIMEOUT,
        )

    def ack_unconfirmed(self, message_id: MessageId) -> None:
        """Acknowledges all entries up to ``message_id``, without a receipt and without retries.

        Does nothing if the consumer is :attr:`lost`.
        """
        session = self._live_session
        if session is not None:
            session.send(commands.ack(None, self._id, message_id))

    def seek(self, target: MessageId | int) -> None:
        """Moves to a message id, inclusive, or (durable subscriptions only) to a publish time in epoch ms.

        Raises UnsupportedError for a time on a non-durable subscription, because SEEK removes the cursor.
        """
        start = None
        if self._options.durable:
            self._request(lambda request_id, consumer_id: commands.seek(request_id, consumer_id, target))
        elif isinstance(target, MessageId):
            start = target
        else:
            raise UnsupportedError("a reader cannot seek to a time", topic=str(self.topic))
        self._corrupt = None
        self._acked, self._is_acked = None, True
        self._moved(start)

    def unsubscribe(self, deadline: Deadline | None = None) -> None:
        """Removes the subscription and its position at the broker, and closes the consumer."""
        self._request(commands.unsubscribe, deadline=deadline)
        self._release(Deadline(CLOSE_TIMEOUT))

    def close(self) -> None:
        """Sends the last acknowledgement again if it has no receipt, and closes the consumer.

        Raises no error if the broker is unreachable, because brokers remove consumers of lost connections.
        """
        try:
            if self._session is not None and self._session.error is None:
                self._ack()
        except PulsarError as error:
            _log.warning("%s: acknowledgements did not reach the broker: %s", self.topic, error)
        finally:
            self._release(Deadline(CLOSE_TIMEOUT))

    def _ack(self) -> None:
        """Sends the last acknowledgement if it has no receipt yet."""
        mark = self._acked
        if mark is None or self._is_acked:
            return
        answer = self._request(
            lambda request_id, consumer_id: commands.ack(request_id, consumer_id, mark),
            attempt_timeout=_ACK_TIMEOUT,
            ends_with_consumer=True,
        )
        self._check_ack(answer.ackResponse)
        self._is_acked = True

    def _backlog_in(self, command: pb.BaseCommand) -> int:
        answer = command.consumerStatsResponse
        if answer.HasField("error_code"):
            raise from_server(answer.error_code, answer.error_message, topic=str(self.topic))
        return wire_values.from_wire_count(answer.msgBacklog)

    def _check_ack(self, answer: pb.CommandAckResponse) -> None:
        if answer.HasField("error") and _HAS_ACKED not in answer.message:
            raise from_server(answer.error, answer.message, topic=str(self.topic))

    def _new_entries(self, received: list[Messages]) -> Entries:
        """Decodes new entries until one is corrupt; raises CorruptError if no new entry precedes that one."""
        entries, corrupt, corrupt_id = decode(received)
        count = len(entries)
        if corrupt is not None:
            self._corrupt = corrupt.located(str(self.topic), str(corrupt_id))
        if count and self._permits is not None:
            messages = entries.messages
            held = int(np.maximum(messages, 1).sum(dtype=np.int64))
            self._permits.used(held, int(entries.sizes.sum()), count)
            if messages.min() < -1:
                # Brokers subtract an entry's negative number of messages, so the permits grow. If permits
                # overflow 32 bits, far too many messages are sent, or none. A new SUBSCRIBE sets them to 0.
                self._renew(NotReadyError("an entry has changed the permits"))
        entries = _new_after(entries, self.last)
        if len(entries):
            self.last = entries.id_of(-1)
        elif self._corrupt is not None:
            raise self._corrupt
        return entries


def close_consumers(consumers: Iterable[Consumer]) -> None:
    """Closes consumers in parallel, within 5 s, without sending pending acks."""
    closing = [answer for each in consumers if (answer := each.begin_close()) is not None]
    _, silent = wait(closing, CLOSE_TIMEOUT)
    if silent:
        _log.info("%d consumers were closed without a response of the broker", len(silent))


def _new_after(entries: Entries, before: MessageId | None) -> Entries:
    """Returns the entries after ``before`` whose ids ascend; drops repeated and older entries."""
    last = (-1, -1) if before is None else (before.ledger, before.entry)
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
