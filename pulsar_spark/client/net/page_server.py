"""PageServer: an HTTP server for pages about a process, which answers GET requests in its own threads.

Anybody on the network may connect, so no client may delay the process or other clients. The number of clients
and the bytes of their answers are limited, each client has one deadline for its whole request, and
``close()`` ends all clients. Answers are made one after the other, because making one may need 100 MB.
"""

from __future__ import annotations

import io
import ipaddress
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseRequestHandler, TCPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

# Seconds from a client's connection to the last byte of its answer.
_TIMEOUT = 10.0
# Maximum clients at one time. A further client replaces the oldest one.
_MAX_CLIENTS = 64
# Maximum bytes of answers that are being sent. A further answer ends the clients with the oldest answers.
_MAX_SENT = 64 << 20
# Maximum bytes of a request, which has no body.
_MAX_REQUEST = 1 << 16
# Maximum seconds that close() waits for the threads of ended clients.
_CLOSE_TIMEOUT = 1.0

_log = logging.getLogger(__name__)


class HttpAnswer(NamedTuple):
    """The answer to a GET request."""

    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


class PageServer:
    """An HTTP server; it answers as soon as it is made.

    It refuses requests whose Host header names another host, to prevent DNS rebinding: a web page's host name
    could resolve to this server, and a browser would read from it. Allowed are localhost, loopback addresses
    and ``allowed_hosts``. A server that listens beyond the loopback also allows ``host``, this machine's host
    name, and any IP address, because an IP address is not resolved.

    ``answer`` returns the answer for a path without its query, or None if there is no such page.
    """

    def __init__(
        self,
        answer: Callable[[str], HttpAnswer | None],
        host: str,
        port: int,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        is_local = _is_loopback(str(address[0]))
        names = ["localhost", *allowed_hosts] + ([] if is_local else [host, socket.gethostname()])
        allowed = _Allowed(frozenset(name.lower().rstrip(".") for name in names), is_local)
        self._server = _Server(family, (str(address[0]), port), _handler_class(answer, allowed))
        bound, number = self._server.server_address[:2]
        text = f"[{bound!s}]" if family is socket.AF_INET6 else str(bound)
        self.url = f"http://{text}:{number}/"
        # A daemon thread, so that a program ends even if it does not close the server.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the server and ends all clients' connections; takes less than two seconds."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.end_clients()


class _Allowed(NamedTuple):
    names: frozenset[str]
    is_loopback_only: bool

    def has(self, header: str) -> bool:
        """Whether requests with this ``Host`` header are allowed."""
        try:
            host = (urlsplit(f"//{header}").hostname or "").rstrip(".")
        except ValueError:
            host = ""
        if host in self.names:
            return True
        return _is_loopback(host) if self.is_loopback_only else _is_address(host)


class _Server(TCPServer):
    allow_reuse_address = True
    request_queue_size = 1024  # waiting connections; further clients try again after a second

    def __init__(self, family: int, address: tuple[str, int], handler: type[BaseRequestHandler]) -> None:
        self.address_family = family
        # Guards the next three collections. A client's socket is shut down only with this lock held and while
        # ``_deadlines`` or ``_sent`` has the client, so never after the socket was closed.
        self._lock = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}  # each client's deadline, in the order of connecting
        self._threads: set[threading.Thread] = set()
        self._sent: dict[socket.socket, int] = {}  # bytes of each client's answer, the oldest answer first
        self._making = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers the request in its own thread."""
        with self._lock:
            if len(self._deadlines) >= _MAX_CLIENTS:
                self._end_client(next(iter(self._deadlines)))
            # The threads are limited, too, because threads of ended clients may still be making an answer.
            if len(self._threads) >= 2 * _MAX_CLIENTS:
                raise ConnectionAbortedError("too many clients")
            thread = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
            thread.start()
            self._deadlines[request] = time.monotonic() + _TIMEOUT
            self._threads.add(thread)

    def answer(self, request: socket.socket, make: Callable[[], HttpAnswer | None]) -> HttpAnswer | None:
        """Makes an answer; ends clients, oldest answers first, while all answers have too many bytes."""
        with self._making:
            with self._lock:
                is_over = request not in self._deadlines
            if is_over:
                raise ConnectionAbortedError("its time was over before its answer was made")
            found = make()
            with self._lock:
                self._sent[request] = 0 if found is None else len(found.body)
                while sum(self._sent.values()) > _MAX_SENT and len(self._sent) > 1:
                    oldest = next(iter(self._sent))
                    del self._sent[oldest]
                    self._end_client(oldest)
        return found

    def service_actions(self) -> None:
        """Ends the clients whose time is over; called every 0.1 s."""
        now = time.monotonic()
        with self._lock:
            for client in [client for client, deadline in self._deadlines.items() if deadline <= now]:
                self._end_client(client)

    def end_clients(self) -> None:
        """Ends all clients, and waits at most a second for their threads."""
        with self._lock:
            for client in list(self._deadlines):
                self._end_client(client)
            threads = list(self._threads)
        until = time.monotonic() + _CLOSE_TIMEOUT
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        gone = isinstance(sys.exc_info()[1], OSError)
        level = logging.DEBUG if gone else logging.WARNING  # clients often hang up
        _log.log(level, "a request from %s failed", client_address, exc_info=True)

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001 - it is logged, and the thread ends
            self.handle_error(request, client_address)
        finally:
            with self._lock:
                self._deadlines.pop(request, None)
                self._sent.pop(request, None)
                self._threads.discard(threading.current_thread())
            self.shutdown_request(request)

    def _end_client(self, client: socket.socket) -> None:
        """Makes the client's thread fail at its next read or write; call it with the lock held."""
        self._deadlines.pop(client, None)
        try:
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            _log.debug("a client hung up before it was ended")


def _handler_class(
    answer: Callable[[str], HttpAnswer | None], allowed: _Allowed
) -> type[BaseHTTPRequestHandler]:
    class _Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "pulsar_spark", ""

        def handle(self) -> None:
            """Answers one request; limits its size, because the standard library would read up to 6 MiB."""
            head = b""
            with self.rfile as received:
                while b"\n\r\n" not in head and b"\n\n" not in head:
                    some = received.read1(_MAX_REQUEST)
                    head += some
                    if not some or len(head) > _MAX_REQUEST:
                        return
            self.rfile = io.BytesIO(head)
            self.handle_one_request()

        def do_GET(self) -> None:
            if not allowed.has(self.headers.get("Host", "")):
                self.send_error(HTTPStatus.FORBIDDEN, "Host not allowed", "See allowed_hosts of serve()")
                return
            try:
                path: str | None = urlsplit(self.path).path
            except ValueError:  # not a URL
                path = None
            assert isinstance(self.server, _Server)
            found = None if path is None else self.server.answer(self.request, partial(answer, path))
            if found is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            self.send_response(HTTPStatus.OK)
            headers = {
                "Content-Type": found.content_type,
                "Content-Length": str(len(found.body)),
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                **found.headers,
            }
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(found.body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
            _log.debug("%s: %r", self.address_string(), format % args)

    return _Handler


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
