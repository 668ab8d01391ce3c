"""HTTP requests with one time limit for the whole request, and one size limit for the answer.

The timeout of ``urllib`` starts again with each byte, so a server that sends a byte now and then could block
a request for ever. Here a timer shuts the request's connections down when the time limit is reached.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import string
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urljoin, urlsplit

# Makes the request that follows a redirect, from the redirected request and the new URL; None: the redirect
# is the answer.
Redirect: TypeAlias = Callable[[urllib.request.Request, str], urllib.request.Request | None]

C = TypeVar("C", bound=HTTPConnection)

# Maximum bytes of an answer; a namespace of 60,000 topics takes about 6 MB.
MAX_ANSWER = 1 << 24

_MAX_VALUES = 1_000_000  # maximum in a JSON text; Python needs up to 60 bytes for a value of 5 bytes
_MAX_OBJECTS = 200_000  # maximum in a JSON text; Python needs up to 240 bytes for one of 7 bytes

_BLOCK = 1 << 14

_MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)


class HttpError(Exception):
    """A request got no usable answer; the text has the reason, ``cause`` is the original error or None."""

    def __init__(self, what: str, cause: BaseException | None = None, *, is_too_large: bool = False) -> None:
        super().__init__(what)
        self.cause = cause
        self.is_too_large = is_too_large


def fetch(
    request: urllib.request.Request,
    *,
    redirect: Redirect,
    timeout: float,
    environment_proxy: bool = False,
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    max_size: int = MAX_ANSWER,
) -> tuple[int, bytes]:
    """Sends a request and returns the status and the body of its answer, whatever the status.

    Args:
        redirect: function that decides whether to follow a redirect to an HTTP URL; see ``Redirect``.
        timeout: seconds for connecting, redirects, headers and body together.
        environment_proxy: whether to go through the proxy that the environment names.
        tls: function that makes the context of connections with TLS, also after a redirect.

    Raises:
        HttpError: the answer is not complete in time, is not HTTP or is too large, or there is a redirect to
            an invalid URL, or too many redirects.
    """
    guard = _Guard(timeout)
    # Not build_opener, because it also handles files and FTP.
    opener = urllib.request.OpenerDirector()
    proxy = urllib.request.ProxyHandler(None if environment_proxy else {})
    for handler in (_Connections(guard, tls), urllib.request.UnknownHandler(), proxy):
        opener.add_handler(handler)
    try:
        with guard:
            status, body = _answer(opener, request, redirect, timeout, max_size)
    except (OSError, HTTPException, ValueError, OverflowError) as error:  # overflow: a port above 65535
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        if not guard.is_over:
            raise HttpError(str(why), why if isinstance(why, BaseException) else error) from error
    if guard.is_over:
        raise HttpError(f"no complete response within {timeout:g} s")
    if len(body) > max_size:
        raise HttpError(f"a response of more than {max_size} bytes", is_too_large=True)
    return status, body


def is_in_clear(url: str) -> bool:
    """Whether others can read a request to a URL, because it has no TLS and leaves this host."""
    try:
        return urlsplit(url).scheme != "https" and not is_on_this_host(url)
    except ValueError:  # not a URL
        return True


def is_on_this_host(url: str) -> bool:
    """Whether a URL names this host's loopback."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # not a URL, or its host is a name and not an IP address
        return False


def parse_json(data: bytes) -> Any:
    """Parses JSON; raises ValueError if it is invalid, nested too deeply, or needs too much memory."""
    objects = data.count(b"[") + data.count(b"{")
    if objects > _MAX_OBJECTS or objects + data.count(b",") > _MAX_VALUES:
        raise ValueError("JSON with too many values")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _answer(
    opener: urllib.request.OpenerDirector,
    request: urllib.request.Request,
    redirect: Redirect,
    timeout: float,
    max_size: int,
) -> tuple[int, bytes]:
    for _ in range(_MAX_REDIRECTS + 1):
        response: HTTPResponse = opener.open(request, timeout=timeout)
        with response:
            following = None
            place = response.headers["Location"] if response.status in _REDIRECTS else None
            if place is not None:
                # The header was decoded as Latin-1 whatever its encoding; this restores its bytes.
                url = urljoin(request.full_url, quote(place, string.punctuation, "iso-8859-1"))
                if urlsplit(url).scheme not in ("http", "https"):
                    raise ValueError("a redirect to a URL that is not HTTP")
                following = redirect(request, url)
            if following is None:
                # Read in blocks, because the standard library keeps all chunks of an answer as objects, even
                # of a byte each. The rest of a body that is larger than ``max_size`` is not read.
                body = bytearray()
                while len(body) <= max_size and (block := response.read(_BLOCK)):
                    body += block
                return response.status, bytes(body)
            request = following
    raise ValueError(f"more than {_MAX_REDIRECTS} redirects")


class _Guard:
    """Ends a request's connections at its time limit; a context manager.

    It keeps a duplicate descriptor of each socket, because TLS takes over the original one.
    """

    def __init__(self, timeout: float) -> None:
        self._timer = threading.Timer(timeout, self._end)
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_over = False

    def __enter__(self) -> None:
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        for each in self._sockets:
            each.close()

    def watched(self, connection: C) -> C:
        """Lets a connection open its socket through this guard."""
        connection._create_connection = self._connect  # type: ignore[attr-defined]  # http.client's own hook
        return connection

    def _connect(self, *args: Any, **more: Any) -> socket.socket:
        """Opens a socket and remembers it, so that the guard can shut it down."""
        opened = socket.create_connection(*args, **more)
        with self._lock:
            self._sockets.append(opened.dup())
            if self.is_over:
                self._shut_down()
        return opened

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            self._shut_down()

    def _shut_down(self) -> None:
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the peer has closed it already


class _Connections(urllib.request.AbstractHTTPHandler):
    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def __init__(self, guard: _Guard, tls: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self._guard = guard
        # The context is made on first use, because requests without TLS need no authorities.
        self._tls = tls

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(lambda host, **more: self._guard.watched(HTTPConnection(host, **more)), req)

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(
            lambda host, **more: self._guard.watched(HTTPSConnection(host, context=self._tls(), **more)), req
        )
