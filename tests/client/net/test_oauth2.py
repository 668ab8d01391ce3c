"""OAuth2 client credentials against an issuer: what is asked, how long a token is kept, refusals."""

import base64
import json
import socket
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client import Credentials
from pulsar_spark.client.net import auth
from pulsar_spark.client.net.auth import authentication_of
from pulsar_spark.errors import AuthError, ConnectError

KEY = {"client_id": "me", "client_secret": "s3cret"}
KEY_URL = "data:application/json;base64," + base64.b64encode(json.dumps(KEY).encode()).decode()


class Issuer(ThreadingHTTPServer):
    """Notes the forms it gets; `answers` are (status, body) in turn, the last for ever."""

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.forms = []
        self.answers = list(answers)
        self.endpoint = self.url + "/token"
        self.moved = None
        self.issuer = self.url


class Handler(BaseHTTPRequestHandler):
    server: Issuer

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.server.moved is not None:
            self.send_response(307)
            self.send_header("Location", self.server.moved + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        assert self.path == "/.well-known/openid-configuration"
        described = {"issuer": self.server.issuer, "token_endpoint": self.server.endpoint}
        self.say(200, {name: text for name, text in described.items() if text is not None})

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.forms.append({name: value[0] for name, value in form.items()})
        answers = self.server.answers
        self.say(*(answers.pop(0) if len(answers) > 1 else answers[0]))

    def say(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def issuing(*answers):
    with Issuer(*answers) as issuer:
        thread = threading.Thread(target=issuer.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield issuer
        finally:
            issuer.shutdown()
            thread.join()


def login(issuer_url, key=KEY_URL, **more):
    params = json.dumps({"issuerUrl": issuer_url, "privateKey": key, **more})
    return authentication_of(Credentials("oauth2", params), 10.0)


def token(text, seconds=3600):
    return 200, {"access_token": text, "expires_in": seconds, "token_type": "Bearer"}


def test_what_is_asked(tmp_path):
    file = tmp_path / "key.json"
    file.write_text(json.dumps(KEY))
    with issuing(token("abc")) as issuer:
        asking = login(
            issuer.url + "/", f"file://{file}", audience="urn:a b", scope="x y", type="client_credentials"
        )
        assert asking.method == "token"
        assert asking.data() == b"abc"
        assert issuer.forms == [
            {**KEY, "grant_type": "client_credentials", "audience": "urn:a b", "scope": "x y"}
        ]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]"])
def test_a_secret_for_this_host_does_not_go_to_a_proxy(name, monkeypatch):
    """It may be on another host, and asks its own loopback."""
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with issuing(token("theirs")) as proxy, issuing(token("ours")) as issuer:
        monkeypatch.setenv("http_proxy", proxy.url)
        port = issuer.server_address[1]
        issuer.issuer = f"http://{name}:{port}"
        issuer.endpoint = f"http://{name}:{port}/token"
        # What the proxy is asked for is another URL's path.
        proxy.issuer, proxy.endpoint = issuer.issuer, issuer.endpoint
        if name == "[::1]":
            with pytest.raises(ConnectError):  # the issuer listens on the other loopback
                login(issuer.issuer).data()
        else:
            assert login(issuer.issuer).data() == b"ours"
        assert proxy.forms == []


def test_a_token_is_kept_while_it_lives():
    with issuing(token("one"), token("two")) as issuer:
        asking = login(issuer.url)
        assert [asking.data(), asking.data()] == [b"one", b"one"]
        assert len(issuer.forms) == 1


@pytest.mark.parametrize("seconds", [3600, "3599", 60.5])
def test_a_life_is_a_number_or_its_text(seconds):
    with issuing(token("one", seconds)) as issuer:
        asking = login(issuer.url)
        assert [asking.data(), asking.data()] == [b"one", b"one"]


@pytest.mark.parametrize(
    "answer",
    [token("one", 0), token("one", "soon"), token("one", float("nan")), (200, {"access_token": "one"})],
)
def test_a_token_without_a_life_is_asked_for_each_time(answer):
    with issuing(answer, token("two")) as issuer:
        asking = login(issuer.url)
        assert [asking.data(), asking.data()] == [b"one", b"two"]


def test_a_token_is_renewed_before_it_expires(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("pulsar_spark.client.net.auth.time.monotonic", lambda: now[0])
    with issuing(token("one", 100), token("two", 100)) as issuer:
        asking = login(issuer.url)
        assert asking.data() == b"one"
        now[0] += 89
        assert asking.data() == b"one"
        now[0] += 2
        assert asking.data() == b"two"


def test_a_key_may_stand_in_the_params():
    with issuing(token("abc")) as issuer:
        plain = "data:application/json," + json.dumps(KEY).replace(" ", "%20")
        assert login(issuer.url, plain).data() == b"abc"
        assert login(issuer.url).data() == b"abc"


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (
            (401, {"error": "invalid_client", "error_description": "not s3cret"}),
            AuthError,
            "401 (invalid_client)",
        ),
        ((400, {"error": "s3cret s3cret"}), AuthError, "answered with status 400."),
        ((400, b"<html>"), AuthError, "answered with status 400."),
        ((503, {"error": "temporarily_unavailable"}), ConnectError, "503 (temporarily_unavailable)"),
        ((429, b""), ConnectError, "429"),
        ((200, b"<html>"), AuthError, "not a JSON object"),
        ((200, []), AuthError, "not a JSON object"),
        ((200, {"token": "s3cret"}), AuthError, "no access token"),
        ((200, {"access_token": 5}), AuthError, "no access token"),
        ((200, b'{"access_token": "\\ud800"}'), AuthError, "no access token"),
        ((200, {"access_token": "two\nlines"}), AuthError, "no access token"),
    ],
)
def test_refusals(answer, kind, text):
    with issuing(answer) as issuer, pytest.raises(kind) as caught:
        login(issuer.url).data()
    assert text in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert issuer.url not in str(caught.value)


def test_an_issuer_without_an_endpoint():
    with issuing(token("abc")) as issuer:
        issuer.endpoint = "file:///etc/passwd"
        with pytest.raises(AuthError, match="names no usable token endpoint"):
            login(issuer.url).data()


@pytest.mark.parametrize(
    "key",
    [
        *("data:,s3cret", 'data:,{"client_id": "\\ud800", "client_secret": "s3cre"}', "data:,[]"),
        *("data:,{}", "data:x;base64,s3cre", "file:///no/such"),
    ],
)
def test_wrong_keys(key):
    with issuing(token("abc")) as issuer, pytest.raises(AuthError) as caught:
        login(issuer.url, key).data()
    assert "s3cre" not in str(caught.value)
    assert issuer.forms == []


@pytest.mark.parametrize("seconds", [10**400, -(10**400), "1e400", "soon", None, [], {}])
def test_a_lifetime_that_is_none_is_told_of_once(seconds):
    """A token of which it is not known how long it may be used is used once."""
    with issuing(token("one", seconds), token("two", seconds)) as issuer:
        asking = login(issuer.url)
        assert [asking.data(), asking.data()] == [b"one", b"two"]


@pytest.mark.parametrize("issuer_says", [None, 5, "", "https://127.0.0.1", "http://127.0.0.1/other"])
def test_the_description_must_be_that_of_the_issuer(issuer_says):
    """Otherwise whoever can answer for it would say where the secret goes."""
    with issuing(token("abc")) as issuer:
        issuer.issuer = issuer_says
        with pytest.raises(AuthError, match="names another issuer"):
            login(issuer.url).data()
        assert issuer.forms == []
        issuer.issuer = issuer.url + "/"
        assert login(issuer.url).data() == b"abc"


def test_an_error_code_that_repeats_the_secret_is_not_shown():
    key = "data:," + json.dumps({"client_id": "me", "client_secret": "a_secret"})
    with (
        issuing((401, {"error": "a_secret"})) as issuer,
        pytest.raises(AuthError, match="answered with status 401") as caught,
    ):
        login(issuer.url, key).data()
    assert "a_secret" not in str(caught.value)


def test_what_is_asked_on_this_machine_does_not_send_the_secret_elsewhere_in_clear():
    with issuing(token("abc")) as issuer:
        issuer.endpoint = "http://192.0.2.1/token"
        with pytest.raises(AuthError, match="names no usable token endpoint"):
            login(issuer.url).data()


ANYTHING = (
    st.none() | st.integers() | st.floats() | st.text(max_size=9) | st.just("\ud800") | st.lists(st.none())
)
ANSWERS = st.dictionaries(st.sampled_from(["access_token", "expires_in", "error"]), ANYTHING)


@given(
    st.sampled_from([200, 200, 401, 503, 307]),
    ANSWERS.map(json.dumps).map(str.encode) | ANYTHING.map(json.dumps).map(str.encode) | st.binary(),
    ANYTHING | st.sampled_from(["https://i/token", "http://i/token", "https://[", "file:///x"]),
)
def test_whatever_is_answered_is_a_token_or_refused(status, answer, endpoint):
    described = json.dumps({"issuer": "https://i", "token_endpoint": endpoint}).encode()
    answers = [(200, described), (status, answer)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "fetch", lambda request, **_: answers.pop(0))
        try:
            shown = login("https://i").data().decode("ascii")
        except (AuthError, ConnectError) as error:
            shown = str(error)
    assert "s3cret" not in shown


def test_an_issuer_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectError, match="the OAuth2 issuer does not answer"):
        login(f"http://127.0.0.1:{port}").data()


def test_a_secret_does_not_leave_tls(monkeypatch):
    """The issuer's description came over TLS, and names an endpoint without."""
    asked = []

    def answer(self, url, form=None):
        asked.append(url)
        return {"issuer": "https://issuer", "token_endpoint": "http://elsewhere/token", "access_token": "abc"}

    monkeypatch.setattr("pulsar_spark.client.net.auth.OAuth2._request", answer)
    with pytest.raises(AuthError, match="no usable token endpoint"):
        login("https://issuer").data()
    assert asked == ["https://issuer/.well-known/openid-configuration"]


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_redirect_does_not_leave_tls(pem, monkeypatch, has_tls):
    """Whoever answers without TLS would say where the secret goes."""
    monkeypatch.setenv("SSL_CERT_FILE", pem)
    with issuing(token("abc")) as plain, issuing(token("def")) as first:
        first.moved = plain.url
        plain.issuer = first.url
        url = first.url
        if has_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            first.socket = context.wrap_socket(first.socket, server_side=True)
            url = url.replace("http:", "https:")
            with pytest.raises(AuthError, match="answered with status 307"):
                login(url).data()
            assert plain.forms == []
        else:
            assert login(url).data() == b"abc"
