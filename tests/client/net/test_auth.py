"""Logins: what params mean, that data is asked for anew at each use, and that nothing secret is told."""

import base64
import json
import pickle
import sys
import time
import types
from pathlib import Path

import pytest

from pulsar_spark.client import Client, ClientOptions, Credentials, TlsOptions, check_identity
from pulsar_spark.client.net.auth import _KNOWN, Basic, Identity, Token, authentication_of
from pulsar_spark.errors import AuthError, OptionError
from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.wire.commands import Login
from tests.loops import for_each

JAVA = "org.apache.pulsar.client.impl.auth."
SECRET = "s3cret"
TLS = TlsOptions(certificate="c.pem", key="k.pem")


def made(plugin, params):
    return authentication_of(Credentials(plugin, params))


@pytest.mark.parametrize(
    ("plugin", "params", "method", "data"),
    [
        ("token", "token:abc", "token", b"abc"),
        ("token", "abc", "token", b"abc"),
        ("token", '{"token": "abc"}', "token", b"abc"),
        ("Token", "token:abc\n", "token", b"abc"),
        (JAVA + "AuthenticationToken", "abc", "token", b"abc"),
        ("basic", '{"userId": "u", "password": "p:w"}', "basic", b"u:p:w"),
        (JAVA + "AuthenticationBasic", '{"userId": "u", "password": "p"}', "basic", b"u:p"),
        ("tls", "", "tls", b""),
        (JAVA + "AuthenticationTls", "tlsCertFile:/c,tlsKeyFile:/k", "tls", b""),
    ],
)
def test_what_is_said(plugin, params, method, data):
    authentication = made(plugin, params)
    assert (authentication.method, authentication.data()) == (method, data)


def test_each_login_is_in_the_text_of_its_option_and_on_its_page():
    (option,) = (each for each in CONNECTION if each.name == "pulsar.client.authPluginClassName")
    page = (Path(__file__).parents[3] / "docs/security.md").read_text()
    for name in _KNOWN:
        assert f"`{name}`" in option.doc
        assert f"\n| `{name}` |" in page


def test_a_token_file_is_read_at_each_use(tmp_path):
    file = tmp_path / "to ken"
    authentications = [made("token", f"file://{tmp_path}/to%20ken"), made("token", f"file:{file}")]
    for text in ("one", "two\n"):
        file.write_text(text)
        assert [each.data() for each in authentications] == [text.strip().encode()] * 2


def test_an_environment_variable_is_read_at_each_use(monkeypatch):
    authentication = made("token", "env:PULSAR_SPARK_TOKEN")
    for text in ("one", "two"):
        monkeypatch.setenv("PULSAR_SPARK_TOKEN", text)
        assert authentication.data() == text.encode()
    monkeypatch.delenv("PULSAR_SPARK_TOKEN")
    with pytest.raises(AuthError, match=r"\[PULSAR_AUTH\] the environment variable .* is not set"):
        authentication.data()


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\xff"])
def test_a_token_file_that_is_no_good_is_an_error_of_its_use(tmp_path, content):
    authentication = made("token", f"file://{tmp_path}/{SECRET}")
    if content is not None:
        (tmp_path / SECRET).write_bytes(content)
    with pytest.raises(AuthError) as caught:
        authentication.data()
    assert SECRET not in str(caught.value)


@for_each(
    ("plugin", "params"),
    [
        ("token", ""),
        ("token", "token:"),
        ("token", '{"tok": "s3cret"}'),
        ("token", '{"token": "s3cret"'),
        ("basic", "u:s3cret"),
        ("basic", '["u", "s3cret"]'),
        ("basic", '{"userId": "u", "passwd": "s3cret"}'),
        ("basic", '{"userId": "u", "password": 5}'),
        ("tls", "tlsCert:/s3cret"),
        ("oauth2", "s3cret"),
        ("oauth2", '{"issuerUrl": "https://h"}'),
        ("oauth2", '{"issuerUrl": "s3cret", "privateKey": "file:///k"}'),
        ("oauth2", '{"issuerUrl": "https://h", "privateKey": "s3cret"}'),
        ("oauth2", '{"issuerUrl": "https://h", "privateKey": "file:///k", "credentials": "s3cret"}'),
        ("tokn", "token:s3cret"),
        (JAVA + "AuthenticationSasl", "s3cret"),
        ("no.such.module", "s3cret"),
        ("json.dumps", "s3cret"),
        ("string.digits", "s3cret"),
        ("h.s3cret.s", "token"),
        ("token:s3cret", ""),
    ],
)
def test_wrong_ones_are_told_without_their_text(plugin, params):
    with pytest.raises(OptionError) as caught:
        made(plugin, params)
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert SECRET not in shown
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_nothing_shows_what_is_secret():
    options = ClientOptions(service_url="pulsar://h", credentials=Credentials("token", f"token:{SECRET}"))
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    with Client(options) as client:
        for each in (
            options,
            again,
            client,
            options.credentials,
            made("token", SECRET),
            Login("t", b"s3cret"),
        ):
            assert SECRET not in f"{each!r} {each}"


def test_other_credentials_are_other_options():
    one, two = (ClientOptions(service_url="pulsar://h", credentials=Credentials("token", t)) for t in "ab")
    assert one != two


class Own:
    """A provider as users write one."""

    method = "mine"

    def __init__(self, params):
        self.params = params

    def data(self):
        return self.params.encode()


def test_a_class_of_ones_own(monkeypatch):
    module = types.ModuleType("some_users_module")
    vars(module)["Own"] = Own
    monkeypatch.setitem(sys.modules, "some_users_module", module)
    identity = Identity(Credentials("some_users_module.Own", "abc"), TlsOptions())
    assert identity.login() == Login("mine", b"abc")


class Called:
    """Callable, and of no use: says that it was called."""

    method = "mine"

    def __init__(self, params=""):
        raise AssertionError("it was called")


class NoMethod(Called):
    def data(self):
        return b""


del Called.method


class NoData(Called):
    method = "mine"


class DataIsNoMethod(Called):
    method, data = "mine", b""


class Callable:
    """An object, not a class, with all that a plugin has."""

    method = "mine"

    def __call__(self, params):
        raise AssertionError("it was called")

    def data(self):
        return b""


an_object = Callable()


def test_no_command_is_run(tmp_path):
    """Of SQL's options one names what to call, and another the argument."""
    for plugin in ("os.system", "os.popen", "subprocess.Popen", "subprocess.getoutput", "os:system"):
        with pytest.raises(OptionError):
            made(plugin, f"touch {tmp_path}/here")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["Called", "NoMethod", "NoData", "DataIsNoMethod", "an_object"])
def test_what_is_no_plugin_is_not_called(name):
    with pytest.raises(OptionError, match=r"not an authentication plugin.* a class with an attribute"):
        made(f"{__name__}.{name}", SECRET)


# ---- who a client is


def test_nobody():
    assert Identity(None, TlsOptions()).login() is None


def test_a_certificate_is_a_login():
    assert Identity(None, TLS).login() == Login("tls", b"")


def test_a_token_beside_a_certificate():
    identity = Identity(Credentials("token", "abc"), TLS)
    assert identity.login() == Login("token", b"abc")
    assert identity.tls == TLS


@pytest.mark.parametrize(
    "params", ["tlsCertFile:/c,tlsKeyFile:/k", '{"tlsCertFile": "/c", "tlsKeyFile": "/k"}']
)
def test_certificates_may_be_named_in_the_params(params):
    identity = Identity(Credentials("tls", params), TlsOptions(trust_certs="/t"))
    assert identity.tls == TlsOptions(trust_certs="/t", certificate="/c", key="/k")


@pytest.mark.parametrize(
    ("credentials", "tls"),
    [
        (None, TlsOptions(certificate="c.pem")),
        (None, TlsOptions(key="k.pem")),
        (Credentials("tls"), TlsOptions()),
        (Credentials("tls", "tlsCertFile:/c"), TlsOptions()),
        (Credentials("token", "abc"), TlsOptions(key="k.pem")),
    ],
)
def test_half_a_certificate(credentials, tls):
    with pytest.raises(OptionError, match="both a certificate and its key"):
        Identity(credentials, tls)


def test_a_certificate_needs_tls():
    with pytest.raises(OptionError, match=r"requires TLS.*pulsar\+ssl://"):
        check_identity(ClientOptions(service_url="pulsar://h", tls=TLS))
    check_identity(ClientOptions(service_url="pulsar+ssl://h", tls=TLS))


@pytest.mark.parametrize(
    ("credentials", "headers"),
    [
        (None, {}),
        (Credentials("token", "abc"), {"Authorization": "Bearer abc"}),
        (Credentials("basic", '{"userId": "u", "password": "p"}'), {"Authorization": "Basic dTpw"}),
        (Credentials("tls", "tlsCertFile:/c,tlsKeyFile:/k"), {}),
    ],
)
def test_what_the_admin_service_is_told(credentials, headers):
    identity = Identity(credentials, TlsOptions())
    assert identity.http_headers(identity.login()) == headers


@pytest.mark.parametrize(
    "token", ["s3cr\xe9t", "s3cret\r\nHost: elsewhere", "s3cret\x00", "s3cret\x7f"], ids=ascii
)
def test_a_login_that_is_no_line_of_ascii_is_refused_and_not_repeated(token):
    """A line break would begin another header, and http.client's error would show the whole."""
    identity = Identity(Credentials("token", token), TlsOptions())
    with pytest.raises(AuthError, match="not a line of ASCII") as caught:
        identity.http_headers(identity.login())
    assert "s3c" not in f"{caught.value} {caught.value!r}"


def jwt(claims):
    return "h." + base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode() + ".s"


@pytest.mark.parametrize(
    ("token", "expired"),
    [
        (lambda: jwt({"exp": time.time() - 100}), True),
        (lambda: jwt({"exp": time.time() + 1000}), False),
        (lambda: jwt({"sub": "me"}), False),
        (lambda: jwt({"exp": "soon"}), False),
        (lambda: jwt({"exp": -(10**400)}), False),
        (lambda: jwt([]), False),
        (lambda: "opaque", False),
        (lambda: "a.b.c", False),
        (lambda: "a.\xe9.c", False),
    ],
)
def test_an_expired_token_is_told_of(token, expired):
    refused = AuthError("Failed to authenticate")
    told = Identity(Credentials("token", token()), TlsOptions()).explain_refused(refused)
    assert ("the token expired" in str(told)) == expired
    assert isinstance(told, AuthError)


def test_who_is_refused_without_a_login_is_told_so():
    told = Identity(None, TlsOptions()).explain_refused(AuthError("Failed to authenticate"))
    assert str(told).endswith("Failed to authenticate. Set the options authPluginClassName and authParams")


def test_a_fraction_of_a_second_does_not_keep_a_token_alive(monkeypatch):
    """The broker ignores it, and has refused such a token."""
    monkeypatch.setattr(time, "time", lambda: 1000.5)
    identity = Identity(Credentials("token", jwt({"exp": 1000.9})), TlsOptions())
    assert "the token expired 0 s ago" in str(identity.explain_refused(AuthError("Failed to authenticate")))


def test_the_classes_are_what_users_may_copy():
    assert Token("abc").method == "token"
    assert Basic('{"userId": "u", "password": "p"}').method == "basic"
