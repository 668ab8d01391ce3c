"""An admin service in memory: topics, and the subscriptions that its REST interface lists and removes."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote

from pulsar_spark.ids import TopicName

_PREFIX = "/admin/v2/persistent/"


@dataclass(slots=True)
class FakeSubscription:
    """A subscription as `stats` shows it."""

    backlog: int = 0
    is_durable: bool = True
    is_connected: bool = False


class FakeAdmin:
    """The service; a context manager.

    Attributes:
        url: for clients.
        topics: subscriptions by name, of each topic partition.
        requests: method and path of all that came, and the value of the header Authorization.
        others: answers to other requests, by method and path below ``/admin/v2/``.
        refusals: statuses and reasons of requests that are refused, by method and path likewise.
        bodies: what came with requests that had a body.
        vanishing: paths, of which a request is answered 404 though another answer names them.
    """

    def __init__(self) -> None:
        self.topics: dict[TopicName, dict[str, FakeSubscription]] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.others: dict[tuple[str, str], object] = {}
        self.refusals: dict[tuple[str, str], tuple[int, str]] = {}
        self.bodies: list[object] = []
        self.vanishing: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="fake admin")
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeAdmin:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str) -> tuple[int, object]:
        """Status and body of the answer to a request."""
        if path in self.vanishing:
            return 404, {"reason": "it has gone"}
        other = method, path.removeprefix("/admin/v2/")
        if other in self.refusals:
            status, reason = self.refusals[other]
            return status, {"reason": reason}
        if other in self.others:
            return 200, self.others[other]
        tenant, namespace, *rest = map(unquote, path.removeprefix(_PREFIX).split("/"))
        if not rest:
            own = (topic for topic in self.topics if topic[1:3] == (tenant, namespace))
            return 200, [str(topic) for topic in own]
        subscriptions = self.topics.get(TopicName("persistent", tenant, namespace, rest[0]))
        if subscriptions is None:
            return 404, {"reason": "Topic not found"}
        if method == "DELETE":
            return _remove(subscriptions, rest[2])
        if rest[1] == "subscriptions":
            return 200, list(subscriptions)
        return 200, {"subscriptions": {name: _stats(one) for name, one in subscriptions.items()}}


def _stats(subscription: FakeSubscription) -> dict[str, object]:
    return {
        "isDurable": subscription.is_durable,
        "consumers": [{}] if subscription.is_connected else [],
        "msgBacklog": subscription.backlog,
    }


def _remove(subscriptions: dict[str, FakeSubscription], name: str) -> tuple[int, object]:
    if name not in subscriptions:
        return 404, {"reason": "Subscription not found"}
    if subscriptions[name].is_connected:
        return 412, {"reason": "Subscription has active connected consumers"}
    del subscriptions[name]
    return 204, None


def _handler_of(admin: FakeAdmin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

        def do_GET(self) -> None:
            admin.requests.append((self.command, self.path, self.headers["Authorization"]))
            if self.headers["Content-Type"] == "application/json":
                admin.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, found = admin.answer(self.command, self.path)
            body = b"" if found is None else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_DELETE = do_PUT = do_POST = do_GET  # noqa: N815 - the base class's names

    return Handler
