"""Session: one connection to a broker, with one thread that owns its socket. SessionPool reuses sessions.

Callers never use the socket: they queue bytes and wake the thread. So the thread never blocks, and answers
each PING in time.
"""

from __future__ import annotations

import itertools
import logging
import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from copy import copy
from enum import Enum
from typing import Any, Protocol

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.client.net.auth import Identity
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.transport import explain_closed, open_transport
from pulsar_spark.errors import AuthError, ClosedError, ConnectError, PulsarError
from pulsar_spark.protocol.connection import (
    Answer,
    Challenged,
    Connected,
    Connection,
    Event,
    FrameFor,
    Role,
    SendMark,
    Silent,
)
from pulsar_spark.protocol.lookup import Address
from pulsar_spark.wire import pulsar_pb2 as pb

_SEND_BUFFERS = 64  # maximum buffers taken from the queue at once, and written by one system call
_SEND_SIZE = 2 << 20  # maximum bytes taken from the queue for writing

# Maximum seconds to wait for the broker's answer when a consumer or producer is closed.
CLOSE_TIMEOUT = 5.0

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """Receives the frames of a session, on the session's thread; its methods must not block."""

    @property
    def awaits_receipts(self) -> bool:
        """Whether receipts are pending. If so, silence may be throttling, and does not end the session."""

    def deliver(self, frames: list[Any]) -> None:
        """Processes frames in the order of receipt; one ``Messages`` or ``Receipts`` has many frames."""

    def lost(self, error: PulsarError) -> None:
        """Records that the session has ended; no more frames follow."""


class Session:
    """A connection that has done its handshake.

    It closes itself after ``max_idle`` seconds without consumers, producers, watchers and open requests.

    Args:
        timeout: seconds for the connection, and as many for the handshake.
        patience: seconds after which a peer that owes an answer counts as silent; None: ``timeout``.

    Attributes:
        written_at: time when the peer last accepted bytes, in monotonic seconds.
        on_doubt: function that is called on the session's thread when an answer is late; it must not block.

    Raises:
        ConnectError: no server listens at the address, or it does not answer in time.
        TlsError: the broker cannot be trusted, or only one side uses TLS.
        ProtocolError, AuthError: the peer is not a broker, or it refuses this client.
    """

    def __init__(
        self,
        address: Address,
        identity: Identity,
        *,
        timeout: float,
        keep_alive: float,
        max_idle: float,
        patience: float | None = None,
    ) -> None:
        self.address = address
        self.max_message_size = 0
        self.topic_watchers = False
        self.scalable_topics = False
        self.error: PulsarError | None = None
        self.written_at = 0.0
        self._max_idle = max_idle
        self.on_doubt: Callable[[], object] = lambda: None
        self._used_at = time.monotonic()
        self._identity = identity
        login = identity.login()
        self._transport = open_transport(address, identity.tls, timeout)
        self._connection = Connection(
            time.monotonic(),
            keep_alive=keep_alive,
            timeout=timeout,
            patience=patience,
            peer=f"the broker at {address}",
            proxy_to=address.proxy_to,
            login=login,
        )
        self._lock = threading.Lock()
        self._out: deque[Buffer] = deque()
        self._out_size = 0
        self._is_full = False  # the transport accepted no bytes at the last attempt
        self._answers: dict[int, Future[pb.BaseCommand]] = {}
        self._handlers: dict[tuple[Role, int], Handler] = {}
        self._connected: Future[None] = Future()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._awake = False
        self._ending: PulsarError | None = None  # reason why this client must end the session, or None
        self._is_cut = False  # whether the peer has ended the session
        self._thread = threading.Thread(target=self._run, name=f"pulsar {address}", daemon=True)
        self._thread.start()
        self._await_handshake(timeout)

    def _await_handshake(self, timeout: float) -> None:
        try:
            self._connected.result()
        except ConnectError as error:
            # Tests whether the port expects TLS, because a restarting broker closes connections, too.
            reason = explain_closed(self.address, timeout) if self._is_cut else None
            raise reason or error from None
        except AuthError as error:
            raise self._identity.explain_refused(error) from None

    # ---- called by any thread

    def ask(
        self,
        build: Callable[[int], bytes],
        timeout: float,
        *,
        is_urgent: bool = False,
        consumer_id: int | None = None,
    ) -> Future[pb.BaseCommand]:
        """Sends a request; the future ends with its answer, or with a PulsarError after ``timeout``.

        If no bytes are received for half of the connection timeout, a PING is sent. If the other half passes
        without a PONG, the session ends with a ConnectError, so the caller can retry on a new connection.

        An urgent request is sent before all waiting frames. A request with a consumer id ends with a
        NotReadyError when the broker closes that consumer.
        """
        answer: Future[pb.BaseCommand] = Future()
        with self._lock:
            if self.error is not None:
                raise copy(self.error)
            request_id = self._connection.request(
                build, time.monotonic(), timeout, is_urgent=is_urgent, consumer_id=consumer_id
            )
            self._answers[request_id] = answer
        self._wake()
        return answer

    def request(
        self, build: Callable[[int], bytes], deadline: Deadline, *, consumer_id: int | None = None
    ) -> pb.BaseCommand:
        """Sends a request and waits for its answer; see ``ask``."""
        return self.ask(build, deadline.left, consumer_id=consumer_id).result()

    def send(self, *buffers: Buffer, mark: SendMark | None = None) -> None:
        """Queues whole frames as one group; raises the session's error if the session has ended.

        ``mark`` counts the group when it is queued, and again when it is taken for writing.
        """
        with self._lock:
            if self.error is not None:
                raise copy(self.error)
            self._connection.outgoing.put(buffers, mark)
        self._wake()

    def ping(self) -> None:
        """Sends a PING; the session ends if the peer does not answer in time, as with any request."""
        with self._lock:
            self._connection.ping(time.monotonic())
        self._wake()

    def attach(self, role: Role, handler_id: int, handler: Handler) -> None:
        """Delivers the frames for an id to ``handler`` from now on; raises the session's error."""
        with self._lock:
            if self.error is not None:
                raise copy(self.error)
            self._handlers[role, handler_id] = handler

    def detach(self, role: Role, handler_id: int) -> None:
        """Drops frames for an id from now on."""
        with self._lock:
            self._handlers.pop((role, handler_id), None)

    def close(self) -> None:
        """Closes the connection and waits for the thread's end."""
        self._ending = self._ending or ConnectError(
            f"the connection to {self.address} was closed by this client"
        )
        self._wake()
        self._thread.join()

    def _log_in(self) -> None:
        """Answers a challenge, on a separate thread; without a login, closes the connection."""
        login = None
        why = "there is no login"
        try:
            login = self._identity.login()
        except PulsarError as error:
            why = error.what
        finally:  # also after another exception of the user's plugin, whose traceback this thread prints
            with self._lock:
                if login is not None:
                    self._connection.log_in(login)
                else:
                    # Retriable, because a retry opens a connection, which raises the login's original error.
                    self._ending = self._ending or ConnectError(
                        f"the login at {self.address} was not renewed: {why}"
                    )
            self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            try:
                self._wake_sender.send(b"\0")
            except OSError:
                _log.debug("the session with %s ended before it was woken", self.address)

    # ---- the session's own thread

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._wake_receiver, selectors.EVENT_READ)
                selector.register(self._transport, selectors.EVENT_READ)
                while self._ending is None:
                    self._turn(selector)
            self._end(self._ending)
        except PulsarError as error:
            self._end(error)
        except OSError as error:
            self._is_cut = True
            self._end(ConnectError(f"the connection to {self.address} was lost: {error.strerror or error}"))
        finally:
            if self.error is None:  # a bug: its traceback is shown, and all callers get an error
                self._end(ConnectError(f"the connection to {self.address} failed inside this client"))

    def _turn(self, selector: selectors.BaseSelector) -> None:
        selector.modify(self._transport, self._transport.interest(has_output=bool(self._out)))
        for key, mask in selector.select(self._wait_time()):
            if key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(4096)
                self._awake = False
            elif mask & selectors.EVENT_READ or self._transport.read_wants_write:
                self._receive()
        now = time.monotonic()
        with self._lock:
            events = self._connection.tick(now)
            is_used = self._is_used
            if is_used:
                self._used_at = now
        if not is_used and now >= self._used_at + self._max_idle:
            raise ConnectError(
                f"the connection to {self.address} was closed by this client because it was not used"
            )
        self._handle(events)
        self._flush()

    def _wait_time(self) -> float:
        with self._lock:
            if self._connection.outgoing and not self._out:
                return 0.0
            wanted = self._connection.next_deadline
            if not self._is_used:
                wanted = min(wanted, self._used_at + self._max_idle)
            return max(0.0, wanted - time.monotonic())

    @property
    def _is_used(self) -> bool:
        """Whether a request is open or a handler is attached; call it with the lock held."""
        return bool(self._answers or self._handlers)

    def _receive(self) -> None:
        data = self._transport.receive()
        if data is None:
            return
        if not data:
            self._is_cut = True
            raise ConnectError(f"the broker at {self.address} closed the connection")
        with self._lock:
            events = self._connection.receive(data, time.monotonic())
        self._handle(events)

    def _flush(self) -> None:
        """Writes until the queue is empty or the transport accepts no more."""
        while True:
            now = time.monotonic()
            if len(self._out) < _SEND_BUFFERS and self._out_size < _SEND_SIZE:
                room = _SEND_SIZE - self._out_size
                with self._lock:
                    taken = self._connection.outgoing.take(_SEND_BUFFERS, room, now)
                self._out.extend(taken)
                self._out_size += sum(map(len, taken))
            if not self._out:
                return
            buffers = list(itertools.islice(self._out, _SEND_BUFFERS))
            sent = self._transport.send(buffers)
            if not sent:
                self._is_full = True
                return
            self.written_at = now
            self._out_size -= sent
            if self._is_full:
                self._is_full = False
                with self._lock:
                    self._connection.hear(now)
            for buffer in buffers:
                if sent < len(buffer):
                    self._out[0] = memoryview(buffer)[sent:]
                    break
                sent -= len(buffer)
                self._out.popleft()

    def _handle(self, events: Iterable[Event]) -> None:
        """Delivers events; frames of one read for the same handler are delivered in one call."""
        for target, group in itertools.groupby(events, key=_target):
            if target is None:
                for event in group:
                    self._settle(event)
                continue
            with self._lock:
                handler = self._handlers.get(target)
            if handler is not None:
                handler.deliver([event.frame for event in group if isinstance(event, FrameFor)])

    def _settle(self, event: Event) -> None:
        if isinstance(event, Connected):
            self.max_message_size = event.max_message_size
            self.topic_watchers = event.topic_watchers
            self.scalable_topics = event.scalable_topics
            self._connected.set_result(None)
        elif isinstance(event, Answer):
            with self._lock:
                answer = self._answers.pop(event.request_id)
            if isinstance(event.result, PulsarError):
                answer.set_exception(event.result)
            else:
                answer.set_result(event.result)
        elif isinstance(event, Challenged):
            # A login may be slow, so it must not block this thread.
            threading.Thread(target=self._log_in, name=f"pulsar login {self.address}", daemon=True).start()
        elif isinstance(event, Silent):
            self.on_doubt()
            with self._lock:
                is_throttled = any(handler.awaits_receipts for handler in self._handlers.values())
            if event.error is not None and not is_throttled:
                raise event.error

    def _end(self, error: PulsarError) -> None:
        """Closes the socket, then reports the end to each request and handler once."""
        self._transport.close()
        self._wake_receiver.close()
        with self._lock:
            self.error = error
            answers, self._answers = self._answers, {}
            handlers, self._handlers = self._handlers, {}
        self._wake_sender.close()
        for answer in answers.values():
            answer.set_exception(copy(error))
        for handler in handlers.values():
            handler.lost(copy(error))
        if not self._connected.done():
            self._connected.set_exception(error)


def _target(event: Event) -> tuple[Role, int] | None:
    return (event.role, event.id) if isinstance(event, FrameFor) else None


class Purpose(Enum):
    """Purposes of connections, separate because throttled publishing blocks a whole connection."""

    READ = "read"
    WRITE = "write"


class _Slot:
    """Holds one session; opening it locks only this slot, so other sessions stay available."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Session | None = None


class SessionPool:
    """Opens sessions on first use, and again after they have ended.

    ``service``: addresses of the service URL. A random address is tried first, then the following addresses.
    """

    def __init__(
        self,
        service: tuple[Address, ...],
        identity: Identity,
        *,
        connection_timeout: float,
        keep_alive: float,
        max_idle: float,
    ) -> None:
        self._service = service
        self._identity = identity
        self._preferred = random.randrange(len(service))
        self._connection_timeout = connection_timeout
        self._keep_alive = keep_alive
        self._max_idle = max_idle
        self._lock = threading.Lock()
        self._slots: dict[tuple[Address, Purpose], _Slot] = {}
        self._closed = False

    def get(self, address: Address, purpose: Purpose, deadline: Deadline) -> Session:
        """Returns the session with one broker; raises as ``Session``."""
        with self._lock:
            slot = self._slots.get((address, purpose))
            if slot is None:
                slot = self._slots[address, purpose] = _Slot()
        # Waits only until the deadline, because another thread may hold the lock while a broker is silent.
        if not slot.lock.acquire(timeout=deadline.left):
            raise ConnectError(f"the broker at {address} did not answer within {deadline.seconds:.1f} s")
        try:
            if self._closed:
                raise ClosedError("this client has been closed")
            if slot.session is None or slot.session.error is not None:
                timeout = min(self._connection_timeout, max(deadline.left, 0.001))
                slot.session = Session(
                    address,
                    self._identity,
                    timeout=timeout,  # for this attempt only; the session lives longer
                    patience=self._connection_timeout,
                    keep_alive=self._keep_alive,
                    max_idle=self._max_idle,
                )
                slot.session.on_doubt = self._ping_all
            return slot.session
        finally:
            slot.lock.release()

    def service(self, purpose: Purpose, deadline: Deadline) -> Session:
        """Returns a session with the first address that answers; raises the first error if none answers."""
        failures: list[PulsarError] = []
        for left in range(len(self._service), 0, -1):
            address = self._service[self._preferred]
            try:
                return self.get(address, purpose, deadline.at_most(deadline.left / left))
            except PulsarError as error:
                self._preferred = (self._preferred + 1) % len(self._service)
                _log.info("a host of service.url cannot be reached: %s", error)
                failures.append(error)
        raise failures[0]

    def _ping_all(self) -> None:
        """Pings all sessions, because the cause of one session's silence may affect others."""
        with self._lock:
            sessions = [slot.session for slot in self._slots.values() if slot.session is not None]
        for session in sessions:
            session.ping()

    def close(self) -> None:
        """Closes all sessions, and opens no more."""
        with self._lock:
            self._closed = True
            slots = list(self._slots.values())
        for slot in slots:
            with slot.lock:
                if slot.session is not None:
                    slot.session.close()
