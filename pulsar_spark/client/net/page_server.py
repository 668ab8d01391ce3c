"""PageServer: answers GET requests in threads of its own, for pages that show what a process does."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

# Seconds that a client may take for a request, and for taking the answer.
_TIMEOUT = 10.0

_log = logging.getLogger(__name__)


class HttpAnswer(NamedTuple):
    """The answer to a GET request.

    Attributes:
        content_type: of the body.
        body: its bytes.
        headers: besides the usual ones.
    """

    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


class PageServer:
    """An HTTP server; it answers as soon as it is made.

    On the loopback it answers only requests whose host is the loopback: otherwise any web page could make a
    browser read it by a name that resolves to the loopback (DNS rebinding).

    Args:
        answer: gives the answer for a path without its query; None if there is no such page. Several threads
            may call it at the same time.
        host: address or name to listen on.
        port: to listen on; 0: any that is free.

    Attributes:
        url: of its root.

    Raises:
        OSError: it cannot listen there.
    """

    def __init__(self, answer: Callable[[str], HttpAnswer | None], host: str, port: int) -> None:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._server = _server_class(family)(
            (str(address[0]), port), _handler_class(answer, is_loopback=_is_loopback(str(address[0])))
        )
        bound, number = self._server.server_address[:2]
        text = f"[{bound!s}]" if family is socket.AF_INET6 else str(bound)
        self.url = f"http://{text}:{number}/"
        # A daemon thread: a program that forgets to close the server ends all the same.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; requests that are being answered are waited for."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _server_class(family: int) -> type[ThreadingHTTPServer]:
    class _Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = False  # so that close() waits for them

        def server_bind(self) -> None:
            # Not HTTPServer's own, which asks for the host's name.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()

        def handle_error(self, request: Any, client_address: Any) -> None:
            gone = isinstance(sys.exc_info()[1], OSError)
            level = logging.DEBUG if gone else logging.WARNING  # clients often hang up
            _log.log(level, "a request from %s failed", client_address, exc_info=True)

    return _Server


def _handler_class(
    answer: Callable[[str], HttpAnswer | None], *, is_loopback: bool
) -> type[BaseHTTPRequestHandler]:
    class _Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT
        server_version, sys_version = "pulsar_spark", ""

        def do_GET(self) -> None:
            if is_loopback and not _is_loopback(_host_of(self.headers.get("Host", ""))):
                self.send_error(HTTPStatus.FORBIDDEN, "This server only answers requests from the same host")
                return
            found = answer(urlsplit(self.path).path)
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
            _log.debug("%s: %s", self.address_string(), format % args)

    return _Handler


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
