"""Admin requests to a service that sends on, refuses, or is none; the real one is in integration/."""

import json
import socket
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client import Credentials, TlsOptions
from pulsar_spark.client.net import admin as admin_module
from pulsar_spark.client.net.admin import Admin, Ledger
from pulsar_spark.client.net.auth import Identity
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    BusyError,
    ConnectError,
    NotAllowedError,
    OptionError,
    ProtocolError,
    PulsarError,
    TopicNotFoundError,
)
from pulsar_spark.ids import TopicName
from tests.loops import for_each

TOPIC = TopicName.parse("persistent://a/b/c%2F d/é-partition-1")
PATH = "/admin/v2/persistent/a/b/c%252F%20d%2F%C3%A9-partition-1"


@contextmanager
def service(answer, pem=None, logins=None, asked=None):
    """An admin service; ``answer(method, path)`` gives status, body and headers.

    With ``pem`` it speaks TLS; the logins of requests, or None where there is none, are put into ``logins``,
    and methods and paths into ``asked``.
    """

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            if logins is not None:
                logins.append(self.headers.get("Authorization"))
            if asked is not None:
                asked.append((self.command, self.path))
            status, body, headers = answer(self.command, self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_DELETE = do_PUT = do_GET  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if pem is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"{'http' if pem is None else 'https'}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def says(status, body, asked=None):
    return service(lambda method, path: (status, body, {}), asked=asked)


@pytest.mark.parametrize("code", [302, 307])
def test_the_broker_that_serves_the_topic_is_asked_with_the_same_method(code):
    asked = []
    with (
        says(204, b"", asked) as owner,
        service(lambda method, path: (code, b"", {"Location": owner + path})) as first,
    ):
        Admin(first).remove_subscription(TOPIC, "na me/1")
    assert asked == [("DELETE", f"{PATH}/subscription/na%20me%2F1")]


@pytest.mark.parametrize(
    ("first_has_tls", "owner_has_tls", "is_repeated"),
    [(False, False, True), (True, True, True), (True, False, False), (False, True, True)],
)
def test_a_login_that_came_over_tls_is_not_repeated_without(pem, first_has_tls, owner_has_tls, is_repeated):
    asked, repeated = [], []
    identity = Identity(Credentials("token", "abc"), TlsOptions(trust_certs=pem))

    def here(method, path):
        return 200, b'["s"]', {}

    def there(method, path):
        return 307, b"", {"Location": owner + path}

    with (
        service(here, pem if owner_has_tls else None, repeated) as owner,
        service(there, pem if first_has_tls else None, asked) as first,
    ):
        assert Admin(first, identity=identity).subscriptions(TOPIC) == ["s"]
    assert asked == ["Bearer abc"]
    assert repeated == (["Bearer abc"] if is_repeated else [None])


@for_each(
    ("status", "kind"),
    [
        (401, AuthError),
        (403, AuthError),
        (404, TopicNotFoundError),
        (409, NotAllowedError),
        (412, BusyError),
        (500, BrokerError),
    ],
)
@for_each("body", [b'{"reason": "two\\nlines"}', b"<html>", b"", b'"two lines"'])
def test_refusals_are_coded(status, kind, body):
    with says(status, body) as url, pytest.raises(BrokerError) as caught:
        Admin(url).subscriptions(TOPIC)
    assert type(caught.value) is kind
    assert f"refused GET {PATH[10:]}/subscriptions: {status} " in str(caught.value)
    assert str(TOPIC) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ("two lines" in str(caught.value)) == (b"two" in body)


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        (Credentials("token", "s3cret"), "Bearer s3cret is no token"),
        (Credentials("basic", '{"userId": "me", "password": "s3cret"}'), "me:s3cret, s3cret, bWU6czNjcmV0"),
    ],
)
def test_a_login_that_the_service_repeats_is_not_shown(credentials, said):
    identity = Identity(credentials, TlsOptions())
    with says(401, json.dumps({"reason": said}).encode()) as url, pytest.raises(AuthError) as caught:
        Admin(url, identity=identity).subscriptions(TOPIC)
    assert "401 " in str(caught.value)
    assert "***" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "bWU6czNjcmV0" not in str(caught.value)
    moved = service(lambda method, path: (307, b"", {"Location": "http://host:s3cret/"}))
    with moved as url, pytest.raises(ConnectError) as unreachable:
        Admin(url, identity=identity).subscriptions(TOPIC)
    assert "s3cret" not in str(unreachable.value)


@pytest.mark.parametrize("body", [b"<html>", b"", b"{}", b"\xff", b'"a"'])
def test_what_is_no_pulsar_is_told(body):
    with says(200, body) as url, pytest.raises(ProtocolError, match="web port"):
        Admin(url).topics("public/default")


@pytest.mark.parametrize("body", ["[3]", "[null]", '[["a"]]'])
def test_names_of_topics_that_are_no_texts_are_told(body):
    with says(200, body.encode()) as url, pytest.raises(ProtocolError, match="a topic name that is not text"):
        Admin(url).topics("public/default")


@pytest.mark.parametrize("name", ["persistent://a/b c/d", "\ud800", "t", "persistent://a/b/t\nu", "\x1b[31m"])
def test_names_of_topics_that_are_invalid_are_left_out(name, caplog):
    """Any producer may have chosen one: it must not hide the others."""
    body = json.dumps([name, "persistent://a/b/t"])
    with says(200, body.encode()) as url:
        assert Admin(url).topics("a/b") == [TopicName.parse("persistent://a/b/t")]
    (record,) = caplog.records
    assert repr(name) in record.getMessage()


@pytest.mark.parametrize("name", [".", "..", ""])
def test_names_that_would_name_something_else_are_refused(name):
    """Servers take ``x/subscription/..`` for ``x``, which is the topic."""
    asked = []
    with says(204, b"", asked) as url:
        admin = Admin(url)
        for act in (
            lambda: admin.remove_subscription(TOPIC, name),
            lambda: admin.remove_subscription(TOPIC._replace(local=name), "s"),
            lambda: admin.subscriptions(TOPIC._replace(local=name)),
            lambda: admin.stats(TOPIC._replace(namespace=name)),
            lambda: admin.ledgers(TOPIC._replace(tenant=name)),
            lambda: admin.topics(f"a/{name}"),
            lambda: admin.topics(f"{name}/b"),
        ):
            with pytest.raises(OptionError):
                act()
    assert asked == []


@pytest.mark.parametrize("body", ["[3]", "[null]", '[{"a": 1}]', '["\\ud800"]'])
def test_names_of_subscriptions_that_are_no_texts_are_told(body):
    with says(200, body.encode()) as url, pytest.raises(ProtocolError, match="a subscription name that"):
        Admin(url).subscriptions(TOPIC)


ONE = '{"isDurable": true, "consumers": [], "msgBacklog": 1}'


@pytest.mark.parametrize(
    "subscriptions",
    [
        *("3", "[]", '{"s": 3}', '{"s": {}}', '{"s": null}'),
        *(
            f'{{"s": {ONE.replace(*odd)}}}'
            for odd in [("true", '"yes"'), ("[]", "{}"), ("1", "1.5"), ("1", "true")]
        ),
    ],
)
def test_stats_of_other_types_are_told(subscriptions):
    body = f'{{"subscriptions": {subscriptions}}}'.encode()
    with says(200, body) as url, pytest.raises(ProtocolError, match="stats without"):
        Admin(url).stats(TOPIC)


BAD_LEDGERS = [
    f'{{"ledgers": [{{"ledgerId": {value}, "entries": 1, "size": 1}}]}}'.encode()
    for value in ('"3"', "null", "true", "1e300", "-1", str(2**63), "[]", "NaN")
]


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"ledgers": [{}]}', b'{"ledgers": 3}', b'{"ledgers": [3]}', b'{"ledgers": {}}', *BAD_LEDGERS],
)
def test_stats_without_ledgers_are_told(body):
    with says(200, body) as url, pytest.raises(ProtocolError, match="internalStats"):
        Admin(url).ledgers(TOPIC)


@pytest.mark.parametrize(("entries", "last"), [(7, Ledger(5, 7, 70)), (0, Ledger(5, 0, 0))])
def test_the_open_ledger_is_counted_elsewhere(entries, last):
    ledgers = [{"ledgerId": 3, "entries": 9, "size": 90}, {"ledgerId": 5, "entries": 0, "size": 0}]
    stats = {"ledgers": ledgers, "currentLedgerEntries": entries, "currentLedgerSize": 10 * entries}
    with says(200, json.dumps(stats).encode()) as url:
        assert Admin(url).ledgers(TOPIC) == [Ledger(3, 9, 90), last]


# The port is that of nobody, and none.
BAD_PLACES = [
    *("http://[", "http://[::1", "http://", "http:///x", "//", "http://a:b/", "http://127.0.0.1:99999/"),
    *("http://127.0.0.1:-1/", "ftp://127.0.0.1/x", "file:///etc/passwd", "data:,x", "pulsar://x", "\xff://x"),
    *("http://" + "a" * 70 + ".b/", "http://a..b/", "http://\xe4\xff/", "http://%00/", "http://x y/", "x:y"),
]


@for_each("place", BAD_PLACES)
def test_a_redirect_to_nowhere_is_told(place):
    with (
        service(lambda method, path: (307, b"", {"Location": place})) as url,
        pytest.raises(ConnectError, match="does not answer"),
    ):
        Admin(url, timeout=5).subscriptions(TOPIC)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
LEDGER = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("ledgerId", "entries", "size"), st.integers() | JSON)
)
STATS = st.fixed_dictionaries({}, optional=dict.fromkeys(("isDurable", "consumers", "msgBacklog"), JSON))
ANSWERS = {
    "topics": JSON | st.lists(st.just(str(TOPIC)) | JSON, max_size=3),
    "subscriptions": JSON | st.lists(st.text(max_size=3) | JSON, max_size=3),
    "stats": JSON | st.fixed_dictionaries({"subscriptions": st.dictionaries(st.just("s"), STATS | JSON)}),
    "ledgers": JSON
    | st.fixed_dictionaries(
        {"ledgers": st.lists(LEDGER, max_size=3)},
        optional=dict.fromkeys(("currentLedgerEntries", "currentLedgerSize"), JSON),
    ),
}


@pytest.mark.parametrize("method", ANSWERS)
@given(data=st.data())
def test_whatever_is_answered_is_read_or_refused(method, data):
    answer = data.draw(ANSWERS[method].map(json.dumps).map(str.encode) | st.binary(max_size=30))
    status = data.draw(st.sampled_from([200, 200, 200, 404, 500]))
    argument = "a/b" if method == "topics" else TOPIC
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admin_module, "fetch", lambda request, **_: (status, answer))
        try:
            found = getattr(Admin("http://localhost"), method)(argument)
        except PulsarError:
            return
    assert status == 200
    for one in found:
        if method == "ledgers":
            assert np.array(one, np.int64).min(initial=0) >= 0
        elif method == "stats":
            assert tuple(map(type, one)) == (str, bool, bool, int)
        else:
            str(one).encode()


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectError, match=r"admin\.url"):
            Admin(url, timeout=0.2).stats(TOPIC)
    with pytest.raises(ConnectError, match=r"admin\.url"):
        Admin(url).stats(TOPIC)


def test_the_environments_proxy_is_not_asked(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with says(200, b'["s"]') as url:
        assert Admin(f"{url}/").subscriptions(TOPIC) == ["s"]


@pytest.mark.parametrize("url", ["", "localhost:8080", "pulsar://localhost:6650", "http://", "file:///etc/x"])
def test_what_is_no_url(url):
    with pytest.raises(OptionError, match="the admin URL"):
        Admin(url)


@pytest.mark.parametrize("namespace", ["", "default", "a/b/c", "/b", "a/"])
def test_what_is_no_namespace(namespace):
    with pytest.raises(OptionError, match="is not a namespace"):
        Admin("http://localhost").topics(namespace)


def test_a_subscription_of_a_scalable_topic_is_registered_and_removed():
    asked = []
    topic = TopicName("topic", "a", "b", "c/d")
    with says(200, b'{"subscriptions": {"na me": {"type": "STREAM"}}}', asked) as url:
        Admin(url).hold_scalable(topic, "na me")
        assert Admin(url).scalable_subscriptions(topic) == {"na me": "STREAM"}
        Admin(url).release_scalable(topic, "na me")
    path = "/admin/v2/scalable/a/b/c%2Fd/subscriptions/na%20me?type=STREAM"
    place = "/admin/v2/scalable/a/b/c%2Fd"
    assert asked == [("PUT", path), ("GET", place), ("GET", f"{place}/stats"), ("DELETE", path)]


def test_the_subscriptions_of_a_missing_scalable_topic():
    """A broker answers the request for its statistics with 500."""
    with says(404, b'{"reason": "not found"}') as url, pytest.raises(TopicNotFoundError):
        Admin(url).scalable_subscriptions(TopicName("topic", "a", "b", "c"))


def test_the_scalable_topics_of_a_namespace():
    asked = []
    with says(200, b'["topic://a/b/c", "topic://a/b/d/e"]', asked) as url:
        found = Admin(url).scalable_topics("a", "b")
    assert found == [TopicName("topic", "a", "b", "c"), TopicName("topic", "a", "b", "d/e")]
    assert asked == [("GET", "/admin/v2/scalable/a/b")]
    for body in (b"{}", b"[1]", b'["topic://a"]'):
        with says(200, body) as url, pytest.raises(ProtocolError):
            Admin(url).scalable_topics("a", "b")


def test_a_scalable_topic_is_created():
    asked = []
    with says(204, b"", asked) as url:
        Admin(url).create_scalable(TopicName("topic", "a", "b", "c/d"), 3)
    assert asked == [("PUT", "/admin/v2/scalable/a/b/c%2Fd?numInitialSegments=3")]


def test_what_tells_no_subscriptions_of_a_scalable_topic():
    for body in (b"{}", b'{"subscriptions": []}', b'{"subscriptions": {"s": {}}}'):
        with says(200, body) as url, pytest.raises(ProtocolError):
            Admin(url).scalable_subscriptions(TopicName("topic", "a", "b", "c"))
