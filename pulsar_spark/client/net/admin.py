"""Admin: requests of Pulsar's admin REST API that have no command in the binary protocol."""

from __future__ import annotations

import json
import logging
import re
import ssl
import urllib.request
from http import HTTPStatus
from http.client import responses
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from pulsar_spark.client.net.auth import Identity
from pulsar_spark.client.net.http import MAX_ANSWER, HttpError, fetch, is_in_clear, parse_json
from pulsar_spark.client.net.tls import TlsOptions, tls_context
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    BusyError,
    ConnectError,
    NotAllowedError,
    OptionError,
    ProtocolError,
    TlsError,
    TopicNotFoundError,
)
from pulsar_spark.ids import TopicName

T = TypeVar("T")

_log = logging.getLogger(__name__)

_ADVICE = "Check the admin URL (admin.url, --admin-url): its port is the web port. Check the broker's health"

_CONTENT_TYPE = "Content-type"  # the spelling in the headers of urllib's requests

_KINDS: dict[int, type[BrokerError]] = {
    HTTPStatus.UNAUTHORIZED: AuthError,
    HTTPStatus.FORBIDDEN: AuthError,
    HTTPStatus.NOT_FOUND: TopicNotFoundError,
    HTTPStatus.METHOD_NOT_ALLOWED: NotAllowedError,  # the service does not know the path
    HTTPStatus.CONFLICT: NotAllowedError,  # the resource to create exists already
    HTTPStatus.PRECONDITION_FAILED: BusyError,  # the subscription has consumers
}


class Ledger(NamedTuple):
    """One ledger of a topic partition; its entries are numbered from 0 without gaps."""

    id: int
    entries: int
    size: int


class SubscriptionStats(NamedTuple):
    """One subscription of a topic partition; the backlog is a number of entries."""

    name: str
    durable: bool
    connected: bool
    backlog: int


def checked_admin_url(text: str) -> str:
    """Checks ``http(s)://host[:port][/path]``; returns it without a slash at its end.

    The OptionError for another form omits the URL, because it may contain a password.
    """
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        bare = not (url.username or url.password or url.query or url.fragment)
    except ValueError:
        valid = bare = False
    if not valid or not bare or "," in text or re.search(r"\s", text):
        raise OptionError(
            "the admin URL (admin.url) is not the http:// or https:// address of a Pulsar admin service",
            advice="Write http://host:8080, one host, without credentials",
        )
    return text.rstrip("/")


def namespace_parts(text: str) -> tuple[str, str]:
    """Returns tenant and name of a namespace, ``tenant/namespace``; raises OptionError for another form."""
    tenant, _, name = text.partition("/")
    if not (tenant and name) or "/" in name:
        raise OptionError(f"{text!r} is not a namespace", advice="Write it as tenant/namespace")
    return tenant, name


class Admin:
    """Requests to the admin service of a cluster; thread-safe, keeps no connection.

    All methods raise ConnectError without an answer, AuthError, TopicNotFoundError (also for a namespace,
    tenant or subscription), NotAllowedError (the resource to create exists), ProtocolError if the answer is
    not Pulsar's, and BrokerError for other errors of the broker.

    Args:
        url: URL for :func:`checked_admin_url`.
        timeout: seconds for one request, from connecting to its last byte.
        identity: login and TLS settings, read at each request. None: no login, and default TLS settings.
    """

    def __init__(self, url: str, timeout: float = 30.0, *, identity: Identity | None = None) -> None:
        self.url = checked_admin_url(url)
        self._timeout = timeout
        self._identity = identity or Identity(None, TlsOptions())

    def topics(self, namespace: str) -> list[TopicName]:
        """Returns the persistent topics of ``tenant/namespace``, each partition by its own name, sorted."""
        tenant, name = namespace_parts(namespace)
        names = self._get(f"persistent/{_part(tenant)}/{_part(name)}", list)
        try:
            found = {_checked(each, str): TopicName.found(each) for each in names}
        except TypeError:
            raise _invalid_answer("a topic name that is not text", None) from None
        for text in sorted(text for text, topic in found.items() if topic is None):
            _log.warning("a topic is left out because its name is invalid: %r", text[:500])
        return sorted(topic for topic in found.values() if topic is not None)

    def subscriptions(self, topic: TopicName) -> list[str]:
        """Returns the names of all subscriptions of a topic partition."""
        names = self._get(f"{_path(topic)}/subscriptions", list, topic)
        try:
            return [_checked(name, str).encode().decode() for name in names]
        except (TypeError, UnicodeEncodeError):
            raise _invalid_answer("a subscription name that is not text", topic) from None

    def stats(self, topic: TopicName) -> list[SubscriptionStats]:
        """Returns statistics of each subscription of a topic partition."""
        stats = self._get(f"{_path(topic)}/stats", dict, topic)
        try:
            return [
                SubscriptionStats(
                    name,
                    _checked(each["isDurable"], bool),
                    bool(_checked(each["consumers"], list)),
                    _checked(each["msgBacklog"], int),
                )
                for name, each in _checked(stats["subscriptions"], dict).items()
            ]
        except (KeyError, TypeError) as error:
            raise _invalid_answer(f"stats without {error}", topic) from error

    def ledgers(self, topic: TopicName) -> list[Ledger]:
        """Returns the ledgers of a topic partition, oldest first; the open ledger with its present size."""
        stats = self._get(f"{_path(topic)}/internalStats", dict, topic)
        try:
            ledgers = [
                Ledger(*(_count(each[name]) for name in ("ledgerId", "entries", "size")))
                for each in _checked(stats["ledgers"], list)
            ]
            if ledgers and ledgers[-1].entries == 0:
                # The list lacks the entries and size of the open ledger, which are separate fields.
                entries, size = (_count(stats[f"currentLedger{name}"]) for name in ("Entries", "Size"))
                ledgers[-1] = Ledger(ledgers[-1].id, entries, size)
        except (KeyError, TypeError) as error:
            raise _invalid_answer(f"internalStats without {error}", topic) from error
        return ledgers

    def remove_subscription(self, topic: TopicName, name: str) -> None:
        """Removes a durable subscription from a topic partition; raises BusyError if it has a consumer."""
        self._request("DELETE", f"{_path(topic)}/subscription/{_part(name)}", topic)

    def call(self, method: str, *parts: str, query: str = "", body: object = None) -> Any:
        """Sends any other request; returns the JSON of the answer, or None for an empty answer.

        ``parts``: unescaped segments of the path below ``admin/v2``; a topic has four segments.
        """
        path = "/".join(map(_part, parts))
        answer = self._request(method, f"{path}?{query}" if query else path, None, body)
        try:
            return parse_json(answer) if answer.strip() else None
        except ValueError as error:
            raise _invalid_answer(f"unusable JSON: {error}", None) from error

    def create_scalable(self, topic: TopicName, segments: int) -> None:
        """Creates a scalable topic with this number of segments.

        Raises TopicNotFoundError also if the broker does not support scalable topics.
        """
        self._request("PUT", f"{_scalable_path(topic)}?numInitialSegments={segments}", topic, {})

    def scalable_topics(self, tenant: str, namespace: str) -> list[TopicName]:
        """Returns the scalable topics of a namespace; raises as :meth:`create_scalable`."""
        names = self._get(f"scalable/{_part(tenant)}/{_part(namespace)}", list)
        try:
            return [TopicName.parse(_checked(name, str), scalable=True) for name in names]
        except (TypeError, OptionError) as error:
            raise _invalid_answer(f"a name of no topic: {error}", None) from error

    def hold_scalable(self, topic: TopicName, name: str) -> None:
        """Registers a subscription on a scalable topic, so the broker keeps unread segments for it.

        Does nothing if the subscription is registered already. Its cursors on segments are not moved.
        """
        self._request("PUT", f"{_scalable_subscription(topic, name)}?type=STREAM", topic)

    def scalable_subscriptions(self, topic: TopicName) -> dict[str, str]:
        """Returns the subscriptions of a scalable topic by name, each with its type.

        The type is STREAM after :meth:`hold_scalable`. A subscription that is not registered, but exists on a
        segment, is QUEUE.
        """
        # Raises TopicNotFoundError for a missing topic. The request below would be an internal error.
        self._get(_scalable_path(topic), dict, topic)
        stats = self._get(f"{_scalable_path(topic)}/stats", dict, topic)
        try:
            found = _checked(stats["subscriptions"], dict)
            return {name: _checked(each["type"], str) for name, each in found.items()}
        except (KeyError, TypeError) as error:
            raise _invalid_answer(f"stats without {error}", topic) from error

    def release_scalable(self, topic: TopicName, name: str) -> None:
        """Removes a subscription from a scalable topic, with its cursors on all segments."""
        self._request("DELETE", f"{_scalable_subscription(topic, name)}?type=STREAM", topic)

    def _get(self, path: str, kind: type, topic: TopicName | None = None) -> Any:
        answer = self._request("GET", path, topic)
        try:
            found = parse_json(answer)
        except ValueError as error:
            raise _invalid_answer(f"unusable JSON: {error}", topic) from error
        if not isinstance(found, kind):
            raise _invalid_answer(f"a {type(found).__name__}", topic)
        return found

    def _request(self, method: str, path: str, topic: TopicName | None, content: object = None) -> bytes:
        place = None if topic is None else str(topic)
        login = self._identity.login()
        blanked = str if login is None else login.blanked
        headers = self._identity.http_headers(login)
        data = None
        if content is not None:
            data, headers = json.dumps(content).encode(), {**headers, _CONTENT_TYPE: "application/json"}
        request = urllib.request.Request(
            f"{self.url}/admin/v2/{path}", data=data, headers=headers, method=method
        )
        try:
            # Uses no proxy, because the user names the cluster itself, and the environment's proxy is for
            # other hosts.
            status, body = fetch(
                request,
                redirect=_redirected,
                timeout=self._timeout,
                tls=lambda: tls_context(self._identity.tls),
            )
        except HttpError as error:
            if isinstance(error.cause, ssl.SSLCertVerificationError):
                what = f"the certificate of {self.url} was rejected: {error.cause.verify_message}"
                raise TlsError(what, topic=place) from None
            if error.is_too_large:
                raise ProtocolError(
                    f"the answer of {self.url} to {method} {path} is larger than {MAX_ANSWER >> 20} MiB",
                    topic=place,
                    advice="Name one partition, such as TOPIC-partition-0",
                ) from None
            what = blanked(str(error))
            raise ConnectError(
                f"the admin service at {self.url} does not answer: {what}", topic=place, advice=_ADVICE
            ) from None
        if status >= 300:
            kind = _KINDS.get(status, BrokerError)
            reason = " ".join(blanked(_reason(status, body)).split())[:300]
            raise kind(f"the admin service refused {method} {path}: {status} {reason}", topic=place)
        return body


def _redirected(request: urllib.request.Request, url: str) -> urllib.request.Request:
    """Returns the request that follows a broker's redirect (307), with the same method and body."""
    # All brokers accept the same login, so it is sent again. But after TLS it is never sent unencrypted.
    leaves_tls = request.type == "https" and not url.startswith("https:")
    trusted = not leaves_tls and (is_in_clear(request.full_url) or not is_in_clear(url))
    kept = {name: text for name, text in request.headers.items() if trusted or name == _CONTENT_TYPE}
    return urllib.request.Request(url, data=request.data, headers=kept, method=request.get_method())


def _checked(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} (it has a {type(value).__name__})")
    return value


def _count(value: Any) -> int:
    count = _checked(value, int)
    if not 0 <= count < 1 << 63:
        raise TypeError("a valid count")
    return count


def _path(topic: TopicName) -> str:
    return "/".join(map(_part, topic))


def _scalable_path(topic: TopicName) -> str:
    return f"scalable/{_part(topic.tenant)}/{_part(topic.namespace)}/{_part(topic.local)}"


def _scalable_subscription(topic: TopicName, name: str) -> str:
    return f"{_scalable_path(topic)}/subscriptions/{_part(name)}"


def _part(name: str) -> str:
    """Escapes a name for a path; raises OptionError for a name that cannot be escaped.

    Servers resolve ``.`` and ``..`` even if escaped, so the request would address another resource.
    """
    if name in ("", ".", ".."):
        raise OptionError(f"the admin service has no way to name {name!r}", advice="Use another name")
    return quote(name, safe="")


def _invalid_answer(what: str, topic: TopicName | None) -> ProtocolError:
    return ProtocolError(
        f"the admin service answered with {what}",
        topic=None if topic is None else str(topic),
        advice="Check that the admin URL names a Pulsar broker's web port",
    )


def _reason(status: int, body: bytes) -> str:
    """Returns the broker's text; if it is not readable, the text of the HTTP status."""
    try:
        found = parse_json(body)
    except ValueError:
        return responses.get(status, "")
    return str(found.get("reason", found) if isinstance(found, dict) else found)
