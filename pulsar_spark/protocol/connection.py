"""One connection to a broker, without its socket: handshake, request ids, keep-alive, routing.

    bytes in -> receive() -> events           commands out -> request(), outgoing.put() -> outgoing.take()
    time     -> tick()    -> events           next_deadline: when to call tick()

It must not know sockets or threads; ``now`` is a monotonic time in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from google.protobuf.message import Message

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import (
    ConnectError,
    DeadlineError,
    NotReadyError,
    ProtocolError,
    PulsarError,
    from_server,
)
from pulsar_spark.version import VERSION
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frame_runs import Messages, Receipts
from pulsar_spark.wire.frames import LIST_REQUESTS, Frame, FrameReader, Received, kind_of

CLIENT_VERSION = f"pulsar-spark {VERSION}"

_Type = pb.BaseCommand

# Type of a command that answers a request -> name of its body, a field of BaseCommand.
_ANSWERS: dict[int, str] = {
    _Type.SUCCESS: "success",
    _Type.ERROR: "error",
    _Type.PRODUCER_SUCCESS: "producer_success",
    _Type.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    _Type.LOOKUP_RESPONSE: "lookupTopicResponse",
    _Type.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    _Type.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    _Type.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    _Type.GET_OR_CREATE_SCHEMA_RESPONSE: "getOrCreateSchemaResponse",
    _Type.ACK_RESPONSE: "ackResponse",
    _Type.CONSUMER_STATS_RESPONSE: "consumerStatsResponse",
    _Type.WATCH_TOPIC_LIST_SUCCESS: "watchTopicListSuccess",
    _Type.TC_CLIENT_CONNECT_RESPONSE: "tcClientConnectResponse",
    _Type.NEW_TXN_RESPONSE: "newTxnResponse",
    _Type.ADD_PARTITION_TO_TXN_RESPONSE: "addPartitionToTxnResponse",
    _Type.END_TXN_RESPONSE: "endTxnResponse",
}


class Role(Enum):
    """The receiver of a frame that a broker sends without a request."""

    CONSUMER = auto()
    PRODUCER = auto()
    WATCHER = auto()  # watcher of topics, or of a scalable topic's segments


# Type of a command sent without a request -> receiver, the body's name, and the receiver's id in the body.
_UNREQUESTED: dict[int, tuple[Role, str, str]] = {
    _Type.MESSAGE: (Role.CONSUMER, "message", "consumer_id"),  # if not in a Messages object
    _Type.CLOSE_CONSUMER: (Role.CONSUMER, "close_consumer", "consumer_id"),
    _Type.ACTIVE_CONSUMER_CHANGE: (Role.CONSUMER, "active_consumer_change", "consumer_id"),
    _Type.REACHED_END_OF_TOPIC: (Role.CONSUMER, "reachedEndOfTopic", "consumer_id"),
    _Type.TOPIC_MIGRATED: (Role.CONSUMER, "topicMigrated", "resource_id"),  # a producer's is ignored
    _Type.SEND_RECEIPT: (Role.PRODUCER, "send_receipt", "producer_id"),  # if not in a Receipts object
    _Type.SEND_ERROR: (Role.PRODUCER, "send_error", "producer_id"),
    _Type.CLOSE_PRODUCER: (Role.PRODUCER, "close_producer", "producer_id"),
    _Type.WATCH_TOPIC_UPDATE: (Role.WATCHER, "watchTopicUpdate", "watcher_id"),
    _Type.SCALABLE_TOPIC_UPDATE: (Role.WATCHER, "scalableTopicUpdate", "session_id"),
    _Type.WATCH_SCALABLE_TOPICS_UPDATE: (Role.WATCHER, "watchScalableTopicsUpdate", "watch_id"),
}
_BODIES: dict[int, str] = {
    **_ANSWERS,
    **{kind: body for kind, (_, body, _) in _UNREQUESTED.items()},
    _Type.CONNECTED: "connected",
    _Type.AUTH_CHALLENGE: "authChallenge",
}

# Type of a command -> its text field. Logins are removed from texts, because a broker may repeat them.
_TEXT_FIELDS = {
    kind: name
    for kind, body in _BODIES.items()
    for name in ("message", "error_message")
    if name in getattr(pb.BaseCommand(), body).DESCRIPTOR.fields_by_name
}
# Maximum bytes of a received entry, because larger entries cannot be decoded, even if the broker allows them.
MAX_MESSAGE_SIZE = 128 * 1024 * 1024
# Minimum seconds between two logins. Brokers ask for a login when the last login has expired.
CHALLENGE_PAUSE = 1.0
# While a request has no answer: part of ``patience`` after which a silent peer gets a PING. If it is silent
# for as long after the PING, Silent has an error. Below 0.5, so that this precedes the request's timeout.
_PING_AFTER = 0.45
_PING = -1  # request id of a PING
_BY_LOOKUP_TIMEOUT = ("LOOKUP", "PARTITIONED_METADATA")
_KEPT_LOGINS = 4  # number of last logins that are removed from texts, because a broker may repeat them


@dataclass(frozen=True, slots=True)
class Connected:
    """The handshake is done.

    Attributes:
        max_message_size: the broker's limit in bytes, at most MAX_MESSAGE_SIZE.
        topic_watchers: whether the broker reports created and deleted topics (WATCH_TOPIC_LIST).
        scalable_topics: whether the broker has topics with segments (SCALABLE_TOPIC_LOOKUP).
    """

    server_version: str
    max_message_size: int
    topic_watchers: bool = False
    scalable_topics: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request: the answering command, or an error."""

    request_id: int
    result: pb.BaseCommand | PulsarError


@dataclass(frozen=True, slots=True)
class FrameFor:
    """A frame, or several messages or receipts in order, for the consumer, producer or watcher ``id``."""

    role: Role
    id: int
    frame: Frame | Messages | Receipts


@dataclass(frozen=True, slots=True)
class Challenged:
    """The broker asks for a new login (AUTH_CHALLENGE); ``log_in`` answers it.

    A login may read files and ask a token issuer, so one login is made at a time. All challenges that are
    received during a login become one Challenged event after it.
    """


@dataclass(frozen=True, slots=True)
class Silent:
    """A request has no answer yet, so a PING is sent now.

    Attributes:
        error: error if nothing was received after the previous PING; otherwise None.
    """

    error: ConnectError | None


Event: TypeAlias = Connected | Answer | FrameFor | Challenged | Silent


class SendMark:
    """Counts the groups of frames that one sender has put into an OutgoingQueue.

    ``queued``: groups put; ``taken``: groups taken out; ``taken_at``: monotonic seconds of the last taking.
    """

    __slots__ = ("queued", "taken", "taken_at")

    def __init__(self) -> None:
        self.queued = 0
        self.taken = 0
        self.taken_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether a group is still in the queue."""
        return self.taken < self.queued


class OutgoingQueue:
    """The frames to send on a connection. A group is a sequence of buffers that no other frame interrupts.

    A broker that throttles publishing reads a connection slowly. Then producers' frames wait in this queue.
    Urgent frames are sent first; groups keep their order.
    """

    def __init__(self) -> None:
        self._urgent: list[Buffer] = []
        self._groups: deque[tuple[Sequence[Buffer], SendMark | None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._groups)

    def put(self, buffers: Sequence[Buffer], mark: SendMark | None = None) -> None:
        """Appends a group; ``mark`` is updated when the group is taken."""
        if mark is not None:
            mark.queued += 1
        self._groups.append((buffers, mark))

    def put_urgent(self, frame: bytes) -> None:
        """Puts a frame before all groups, unless it equals the last waiting urgent frame.

        So a peer that sends PINGs and does not read gets one PONG for all PINGs.
        """
        if self._urgent[-1:] != [frame]:
            self._urgent.append(frame)

    def take(self, count: int, size: int, now: float) -> list[Buffer]:
        """Takes all urgent frames, then whole groups up to about ``count`` buffers or ``size`` bytes.

        Taken groups should be sent soon. ``now``: monotonic seconds, for ``SendMark.taken_at``.
        """
        taken, self._urgent = self._urgent, []
        left = size - sum(map(len, taken))
        while self._groups and len(taken) < count and left > 0:
            buffers, mark = self._groups.popleft()
            taken += buffers
            left -= sum(map(len, buffers))
            if mark is not None:
                mark.taken += 1
                mark.taken_at = now
        return taken


class _Request(NamedTuple):
    name: str
    seconds: float
    deadline: float
    consumer_id: int | None  # closing this consumer ends the request


class Connection:
    """State of one connection, from CONNECT to its end.

    After ``keep_alive`` seconds without received bytes a PING is sent; after twice as many the peer is dead.
    While a request has no answer, a PING is sent sooner, and silence for about ``patience`` seconds (None:
    ``timeout``) is reported as :class:`Silent`. CONNECTED must be received within ``timeout`` seconds.
    ``proxy_to``: broker that CONNECT names to a proxy. ``peer``: the peer's name in errors.
    """

    def __init__(
        self,
        now: float,
        *,
        keep_alive: float,
        timeout: float,
        patience: float | None = None,
        peer: str = "the broker",
        proxy_to: str | None = None,
        login: commands.Login | None = None,
    ) -> None:
        self.outgoing = OutgoingQueue()
        self.outgoing.put_urgent(commands.connect(CLIENT_VERSION, proxy_to, login))
        self.connected = False
        self._reader = FrameReader()
        self._keep_alive = keep_alive
        self._timeout = timeout
        self._patience = timeout if patience is None else patience
        self._peer = peer
        self._opened_at = self._heard_at = self._pinged_at = now
        self._silent_since = now  # start of silence: last sign of life, or first request after that
        self._requests: dict[int, _Request] = {}
        self._expire_at = math.inf  # lower bound of the requests' deadlines
        self._pongs_due = 0
        self._lists: set[int] = set()  # requests for lists of topics; kept after their timeout until answered
        self._next_request = 0
        self._is_challenged = False  # whether an AUTH_CHALLENGE has no Challenged event yet
        self._is_logging_in = False
        self._next_challenge = now
        self._logins = deque([] if login is None else [login], _KEPT_LOGINS)

    def log_in(self, login: commands.Login) -> None:
        """Answers a challenge. The broker sends no reply; if it refuses, it closes the connection."""
        self._is_logging_in = False
        self._logins.append(login)
        self.outgoing.put_urgent(commands.auth_response(CLIENT_VERSION, login))

    def request(
        self,
        build: Callable[[int], bytes],
        now: float,
        seconds: float,
        *,
        is_urgent: bool = False,
        consumer_id: int | None = None,
    ) -> int:
        """Sends a command and returns its request id; an Answer, or an error, follows within ``seconds``.

        An urgent command is sent before all waiting frames. With a consumer id, the Answer is an error as
        soon as the broker closes the consumer (CLOSE_CONSUMER).
        """
        request_id = self._next_request
        request = build(request_id)
        if is_urgent:
            self.outgoing.put_urgent(request)
        else:
            self.outgoing.put((request,))
        kind = kind_of(request)
        if kind in LIST_REQUESTS:
            self._lists.add(request_id)
            self._reader.expects_list = True
        self._next_request += 1
        self._requests[request_id] = _Request(_Type.Type.Name(kind), seconds, now + seconds, consumer_id)
        self._expire_at = min(self._expire_at, now + seconds)
        self._note_request(now)
        return request_id

    def ping(self, now: float) -> None:
        """Sends a PING after all waiting frames, and counts it as a request until its PONG is received."""
        if self._pinged_at <= self._heard_at:
            self._note_ping(now)
        self.outgoing.put((commands.ping(),))
        self._pongs_due += 1
        self._requests[_PING] = _Request("PING", math.inf, math.inf, None)

    def _note_ping(self, now: float) -> None:
        self._pinged_at = now
        self._note_request(now)

    def _note_request(self, now: float) -> None:
        if self._silent_since <= self._heard_at:
            self._silent_since = now

    def hear(self, now: float) -> None:
        """Records a sign of life: received bytes, or a blocked peer that reads again."""
        self._heard_at = self._silent_since = now

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Processes received bytes; returns the events. After an error the connection must be closed.

        Raises:
            ProtocolError: the peer sent an invalid frame.
            BrokerError: the broker refused CONNECT.
        """
        self.hear(now)
        events: list[Event] = []
        for frame in self._reader.feed(data):
            event = self._event(frame)
            if event is not None:
                events.append(event)
            if self._requests and isinstance(event, FrameFor) and isinstance(event.frame, Frame):
                events += self._ended_with_consumer(event.frame.command)
        return events

    def tick(self, now: float) -> list[Event]:
        """Sends pings, ends requests that have timed out, and returns a postponed challenge if it is due.

        Raises:
            ConnectError: no sign of life for two keep-alive intervals, or no CONNECTED within the timeout.
        """
        if not self.connected and now >= self._opened_at + self._timeout:
            raise ConnectError(
                f"the peer did not answer CONNECT within {self._timeout:g} s",
                advice="Check that service.url names a Pulsar broker's binary port",
            )
        if now >= self._heard_at + 2 * self._keep_alive:
            raise ConnectError(f"nothing was received from {self._peer} for {2 * self._keep_alive:g} s")
        events = self._expire(now)
        if now >= self._ping_at():
            if self._requests:
                events.append(Silent(self._silence(now) if self._pinged_at > self._heard_at else None))
            self._note_ping(now)
            self.outgoing.put_urgent(commands.ping())
            self._pongs_due += 1
        if self._is_challenged and self._may_challenge(now):
            events.append(self._challenge(now))
        return events

    @property
    def next_deadline(self) -> float:
        """Time of the next call of ``tick``."""
        silence = self._heard_at + 2 * self._keep_alive
        handshake = silence if self.connected else self._opened_at + self._timeout
        challenge = [self._next_challenge] if self._is_challenged and not self._is_logging_in else []
        return min(self._ping_at(), silence, handshake, self._expire_at, *challenge)

    def _ping_at(self) -> float:
        if self._requests:
            pause = min(_PING_AFTER * self._patience, self._keep_alive)
            return max(self._silent_since, self._pinged_at) + pause
        return max(self._heard_at, self._pinged_at) + self._keep_alive

    def _silence(self, now: float) -> ConnectError:
        names = dict.fromkeys([*(request.name for request in self._requests.values()), "PING"])
        return ConnectError(
            f"{self._peer} has sent nothing for {now - self._silent_since:.1f} s, and answers no "
            f"{', '.join(names)}: this client closed the connection",
            advice="Check the network and the broker's health. pulsar.client.connectionTimeoutMs is the time "
            "that a silent connection is given",
        )

    def _ended_with_consumer(self, command: pb.BaseCommand) -> list[Event]:
        """Ends all requests of a consumer that the broker closes; returns an error for each request."""
        if command.type != _Type.CLOSE_CONSUMER:
            return []
        closed = command.close_consumer.consumer_id
        ended = [number for number, request in self._requests.items() if request.consumer_id == closed]
        for request_id in ended:
            del self._requests[request_id]
        return [Answer(request_id, NotReadyError("the broker closed the consumer")) for request_id in ended]

    def _expire(self, now: float) -> list[Event]:
        if now < self._expire_at:
            return []
        expired = [number for number, request in self._requests.items() if request.deadline <= now]
        events: list[Event] = [self._timed_out(request_id) for request_id in expired]
        self._expire_at = min((each.deadline for each in self._requests.values()), default=math.inf)
        return events

    def _timed_out(self, request_id: int) -> Answer:
        request = self._requests.pop(request_id)
        option = "lookupTimeoutMs" if request.name in _BY_LOOKUP_TIMEOUT else "operationTimeoutMs"
        error = DeadlineError(
            f"{self._peer} did not answer {request.name} within {request.seconds:.3g} s",
            advice=f"Check the broker's health, or raise pulsar.client.{option}",
        )
        return Answer(request_id, error)

    def _event(self, frame: Received) -> Event | None:
        if isinstance(frame, Messages):
            return FrameFor(Role.CONSUMER, frame.consumer_id, frame)
        if isinstance(frame, Receipts):
            return FrameFor(Role.PRODUCER, frame.producer_id, frame)
        command = frame.command
        kind = command.type
        field = _BODIES.get(kind)
        if field is not None and not command.HasField(field):
            raise ProtocolError(f"the peer sent a command of type {kind} without its body")
        if kind in _TEXT_FIELDS and self._logins:
            self._blank(getattr(command, _BODIES[kind]), _TEXT_FIELDS[kind])
        is_migrated = kind == _Type.TOPIC_MIGRATED
        if is_migrated and command.topicMigrated.resource_type != pb.CommandTopicMigrated.Consumer:
            return None
        if kind in _UNREQUESTED:
            role, body, id_name = _UNREQUESTED[kind]
            return FrameFor(role, getattr(getattr(command, body), id_name), frame)
        if kind in _ANSWERS:
            return self._answer(command, getattr(command, _ANSWERS[kind]).request_id)
        if kind == _Type.PING:
            self.outgoing.put_urgent(commands.pong())
        elif kind == _Type.PONG:
            self._note_pong()
        elif kind == _Type.CONNECTED:
            return self._connected(command.connected)
        elif kind == _Type.AUTH_CHALLENGE:
            if self._may_challenge(self._heard_at):
                return self._challenge(self._heard_at)
            self._is_challenged = True
        return None  # other unrequested commands are ignored

    def _note_pong(self) -> None:
        """Counts a PONG; if no other PONG is due, ends the request of ``ping``. PONGs have no request id."""
        self._pongs_due = max(0, self._pongs_due - 1)
        if not self._pongs_due:
            self._requests.pop(_PING, None)

    def _may_challenge(self, now: float) -> bool:
        return not self._is_logging_in and now >= self._next_challenge

    def _challenge(self, now: float) -> Challenged:
        self._is_challenged, self._is_logging_in = False, True
        self._next_challenge = now + CHALLENGE_PAUSE
        return Challenged()

    def _blank(self, body: Message, name: str) -> None:
        said = getattr(body, name)
        for login in self._logins:
            said = login.blanked(said)
        if said != getattr(body, name):
            setattr(body, name, said)

    def _connected(self, command: pb.CommandConnected) -> Connected:
        if self.connected:
            raise ProtocolError("the peer sent CONNECTED twice")
        self.connected = True
        if command.max_message_size > 0:
            self._reader.max_message_size = min(command.max_message_size, MAX_MESSAGE_SIZE)
        features = command.feature_flags
        return Connected(
            command.server_version,
            self._reader.max_message_size,
            topic_watchers=features.supports_topic_watchers,
            scalable_topics=features.supports_scalable_topics,
        )

    def _answer(self, command: pb.BaseCommand, request_id: int) -> Answer | None:
        if command.type == _Type.ERROR and not self.connected:
            raise from_server(command.error.error, command.error.message)
        if command.type == _Type.PRODUCER_SUCCESS and not command.producer_success.producer_ready:
            return None  # not the final answer, which follows when the producer gets exclusive access
        self._lists.discard(request_id)
        self._reader.expects_list = bool(self._lists)
        if self._requests.pop(request_id, None) is None:
            return None  # the request had timed out
        if command.type == _Type.ERROR:
            return Answer(request_id, from_server(command.error.error, command.error.message))
        return Answer(request_id, command)
