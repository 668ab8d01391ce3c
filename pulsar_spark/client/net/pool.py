"""SessionPool: the connections of one client, one for each broker and purpose."""

from __future__ import annotations

import logging
import random
import threading
from enum import Enum

from pulsar_spark.client.net.auth import Identity
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.session import Session
from pulsar_spark.errors import ClosedError, ConnectError, PulsarError
from pulsar_spark.protocol.lookup import Address

_log = logging.getLogger(__name__)


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
    """Opens sessions on first use, and again when they have ended.

    Args:
        service: addresses of the service URL; a random one is tried first, then the next in order.
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
        # Waits until the deadline only: another thread may hold the lock while the broker does not answer.
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
