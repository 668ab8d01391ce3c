"""A broker with TLS and logins, and both clients: who gets in, who is told what, what is renewed."""

import json
import re
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass

import pytest

from integration.broker.waiting import FAR_AWAY, promptly, wait_until
from integration.chaos.leaks import nothing_left
from integration.chaos.messages import columns_of, numbered, read_topic
from integration.helpers.clients import reader
from integration.helpers.proxies import LookupProxy
from integration.helpers.secured import (
    ADMIN,
    CLERK,
    PASSWORD,
    USER,
    Issuer,
    Pem,
    TokenMaker,
    server_context,
)
from pulsar_spark.cli import main
from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Credentials,
    Producer,
    ProducerOptions,
    SubscriptionOptions,
    TlsOptions,
    TopicWriter,
    register_schema,
)
from pulsar_spark.errors import AuthError, ConnectError, PulsarError, TlsError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from tests.client.net.test_transport import server
from tests.writes import write_all


@pytest.fixture(autouse=True)
def leaves_nothing(secured):
    with nothing_left():
        yield


@pytest.fixture
def name(secured, topic):
    """A topic that exists."""
    secured.broker.admin.create_topic(topic)
    return TopicName.parse(topic)


def connect(secured, credentials, *, url=None, timeout=FAR_AWAY, **tls):
    """A client whose time-outs are far away: what is wrong must be told at once."""
    options = TlsOptions(**{"trust_certs": secured.authority.file, **tls})
    return Client(
        ClientOptions(
            service_url=url or secured.tls_url,
            operation_timeout=timeout,
            connection_timeout=timeout,
            tls=options,
            credentials=credentials,
        )
    )


def token(secured, role=ADMIN, seconds=None):
    return Credentials("token", f"token:{secured.tokens.token(role, seconds)}")


# ---- who gets in


@dataclass(frozen=True, slots=True)
class Way:
    """One way to log in."""

    credentials: Credentials | None
    certificate: Pem | None = None


@pytest.fixture(
    params=["token", "token file", "token variable", "basic", "certificate", "certificate by params"]
)
def way(request, secured, tmp_path, monkeypatch):
    text = secured.tokens.token(ADMIN)
    certificate = secured.authority.issue(ADMIN)
    (tmp_path / "token").write_text(f"{text}\n")
    monkeypatch.setenv("PULSAR_SPARK_TEST_TOKEN", text)
    paths = f"tlsCertFile:{certificate.certificate},tlsKeyFile:{certificate.key}"
    return {
        "token": Way(Credentials("token", text)),
        "token file": Way(Credentials("token", f"file://{tmp_path}/token")),
        "token variable": Way(Credentials("token", "env:PULSAR_SPARK_TEST_TOKEN")),
        "basic": Way(Credentials("basic", json.dumps({"userId": USER, "password": PASSWORD}))),
        "certificate": Way(None, certificate),
        "certificate by params": Way(Credentials("tls", paths)),
    }[request.param]


def test_writes_and_reads(secured, name, way):
    files = {} if way.certificate is None else way.certificate._asdict()
    with connect(secured, way.credentials, **files) as client:
        write_and_read(client, name)


def write_and_read(client, name):
    sent = numbered(100)
    write_all(TopicWriter(client, name, ProducerOptions(send_timeout=FAR_AWAY)), columns_of(sent))
    assert read_topic(client, str(name)) == sent


def test_by_oauth2(secured, name, tmp_path):
    with Issuer(secured.tokens) as issuer:
        params = issuer.params(issuer.key_file(tmp_path / "key.json"), audience="urn:pulsar", scope="all")
        with connect(secured, Credentials("oauth2", params)) as client:
            write_and_read(client, name)
        assert [(form["audience"], form["scope"]) for form in issuer.asked] == [("urn:pulsar", "all")]


def test_the_cpp_client_and_ours_read_each_other(secured, name):
    """In frames of many TLS records, and of a part of one."""
    with secured.peer() as peer, connect(secured, token(secured)) as client:
        sent = [*numbered(5000), *numbered(20, size=300_000)]
        peer.produce(str(name), sent, batch_size=500)
        assert read_topic(client, str(name)) == sent
        write_all(TopicWriter(client, name, ProducerOptions(send_timeout=FAR_AWAY)), columns_of(sent))
        assert peer.read_all(str(name)) == [*sent, *sent]


@pytest.mark.parametrize("tls", [True, False])
def test_through_a_proxy(secured, name, tls):
    """TLS ends at the proxy; brokers are reached through it only, by their names in CONNECT."""
    context = server_context(secured.authority.issue("proxy", host="127.0.0.1")) if tls else None
    broker = secured.broker.service_url
    with LookupProxy(broker, context) as proxy:
        with connect(secured, token(secured), url=proxy.service_url) as client:
            write_and_read(client, name)
        # A connection to ask, and one to the broker for writing and one for reading.
        assert sorted(proxy.named) == ["", *[broker.removeprefix("pulsar://")] * 2]


# ---- who is told what


def refusal(client, name):
    """The error at once, with a code and no secret."""
    with client, promptly(10.0), pytest.raises(PulsarError) as caught:
        client.partitions(name)
    assert "ey" + "J" not in str(caught.value)  # how a JWT begins
    return caught.value


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (lambda secured: None, "Failed to authenticate"),
        (lambda secured: token(secured, seconds=-60), r"the token expired \d+ s ago. Renew the token"),
        (lambda secured: Credentials("token", TokenMaker().token(ADMIN)), "Check pulsar.client.auth"),
        (lambda secured: Credentials("token", "no-jwt"), "Check pulsar.client.auth"),
        (
            lambda secured: Credentials("basic", '{"userId": "basic-user", "password": "no"}'),
            "Failed to auth",
        ),
    ],
    ids=["nobody", "expired token", "strange token", "no token", "wrong password"],
)
def test_wrong_credentials(secured, topic, credentials, text):
    error = refusal(connect(secured, credentials(secured)), TopicName.parse(topic))
    assert isinstance(error, AuthError)
    assert re.search(text, str(error))


@pytest.mark.parametrize(("days", "of_stranger"), [(-1, False), (1, True)], ids=["expired", "strange"])
def test_wrong_certificates_of_this_client(secured, topic, days, of_stranger):
    authority = secured.stranger if of_stranger else secured.authority
    files = authority.issue(ADMIN, days=days)._asdict()
    error = refusal(connect(secured, None, **files), TopicName.parse(topic))
    assert isinstance(error, AuthError)
    assert "rejected this client's certificate" in str(error)
    assert ("certificate expired" in str(error)) == (not of_stranger)


def test_wrong_trust(secured, topic):
    for trust in (secured.stranger.file, None):
        error = refusal(connect(secured, token(secured), trust_certs=trust), TopicName.parse(topic))
        assert isinstance(error, TlsError)
        assert "was issued by an untrusted authority" in str(error)


def test_a_wrong_host(secured, name):
    """The certificate names 127.0.0.1, not localhost; lookups answer with the former."""
    url = secured.tls_url.replace("127.0.0.1", "localhost")
    error = refusal(connect(secured, token(secured), url=url), name)
    assert isinstance(error, TlsError)
    assert "does not name that host" in str(error)
    with connect(secured, token(secured), url=url, verify_hostname=False) as client:
        assert client.partitions(name) == [name]
    with connect(secured, token(secured), url=url, trust_certs=None, allow_insecure=True) as client:
        assert client.partitions(name) == [name]


def test_an_expired_certificate_of_a_broker(secured, topic):
    """No real broker starts with one, and the client goes no further than the handshake."""
    context = server_context(secured.authority.issue("server", host="127.0.0.1", days=-1))

    def talk(connection):
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1)

    with server(talk) as address:
        client = connect(secured, token(secured), url=f"pulsar+ssl://{address}")
        error = refusal(client, TopicName.parse(topic))
    assert isinstance(error, TlsError)
    assert "has expired" in str(error)


def test_plain_text_and_tls_taken_for_each_other(secured, topic):
    plain_to_tls = secured.tls_url.replace("+ssl", "")
    error = refusal(connect(secured, token(secured), url=plain_to_tls), TopicName.parse(topic))
    assert isinstance(error, TlsError)
    assert "requires TLS, but the connection was opened without TLS. Write pulsar+ssl://" in str(error)
    tls_to_plain = secured.broker.service_url.replace("pulsar:", "pulsar+ssl:")
    error = refusal(connect(secured, token(secured), url=tls_to_plain), TopicName.parse(topic))
    assert isinstance(error, TlsError)
    assert "does not speak TLS. Write pulsar://" in str(error)


def test_an_oauth2_issuer_that_refuses_or_is_gone(secured, topic, tmp_path):
    with Issuer(secured.tokens) as issuer:
        params = issuer.params(issuer.key_file(tmp_path / "key.json"))
        issuer.refuse = (401, "invalid_client")
        error = refusal(connect(secured, Credentials("oauth2", params)), TopicName.parse(topic))
        assert isinstance(error, AuthError)
        assert "401 (invalid_client)" in str(error)
        assert len(issuer.asked) == 1
    error = refusal(connect(secured, Credentials("oauth2", params), timeout=1.0), TopicName.parse(topic))
    assert isinstance(error, ConnectError)
    assert "the OAuth2 issuer does not answer" in str(error)


def test_what_is_not_allowed_is_named_and_not_tried_again(secured, name):
    other = TopicName.parse(f"{name}-other")
    secured.broker.admin.create_topic(str(other))
    secured.grant(str(name), CLERK, "consume")
    with connect(secured, token(secured, CLERK)) as client, promptly(10.0):
        Consumer(client, name, reader()).close()
        for operation, topic, action in (
            ("Produce", name, lambda: Producer(client, name, ProducerOptions(), 1)),
            ("Lookup", other, lambda: Consumer(client, other, reader())),
            ("Get Partition Metadata", other, lambda: client.partitions(other)),
        ):
            with pytest.raises(AuthError, match=f"not authorized to {operation} .*topic {topic}. .*grant"):
                action()
        with pytest.raises(AuthError, match=r"GetTopicsOfNamespace .*; namespace public/default"):
            client.topics_of_namespace("public", "default")


def test_who_may_consume_reads_schemas_and_who_may_not_write_registers_none(secured, name):
    schema = Schema(SchemaType.STRING)
    with connect(secured, token(secured)) as client:
        assert register_schema(client, name, schema) == 0
    secured.grant(str(name), CLERK, "consume")
    with connect(secured, token(secured, CLERK)) as client, promptly(10.0):
        latest = client.schemas.latest(name)
        assert latest is not None
        assert latest == (0, client.schemas.at(name, 0))
        assert latest.schema.type is SchemaType.STRING
        other = TopicName.parse(f"{name}-other")
        with pytest.raises(AuthError, match=f"not authorized to .*topic {other}. .*grant"):
            register_schema(client, other, schema)
        with pytest.raises(AuthError, match=f"not authorized to Produce .*topic {name}. .*grant"):
            Producer(client, name, ProducerOptions(schema=schema), 1)


def test_the_admin_service_wants_the_same_login(secured, name):
    with connect(secured, token(secured)) as client:
        for url in (secured.broker.tls_admin_url, secured.broker.admin_url):
            assert name in client.admin(url).topics("public/default")
    with connect(secured, None, **secured.authority.issue(ADMIN)._asdict()) as client:
        assert name in client.admin(secured.broker.tls_admin_url).topics("public/default")
    with connect(secured, token(secured, seconds=-1)) as client, pytest.raises(AuthError):
        client.admin(secured.broker.tls_admin_url).topics("public/default")


def test_the_command_line_logs_in(secured, name, tmp_path, capsys):
    with connect(secured, token(secured)) as client:
        options = SubscriptionOptions(name=f"spark-pulsar-{uuid.uuid4()}", durable=True)
        Consumer(client, name, options).close()
    (tmp_path / "token").write_text(secured.tokens.token(ADMIN))
    url = secured.broker.tls_admin_url
    command = ["subscriptions", "--admin-url", url, "--topic", str(name)]
    command += ["--tls-trust-cert-path", secured.authority.file]
    assert main(command) == 1
    assert "[PULSAR_AUTH]" in capsys.readouterr().err
    assert main([*command, "--auth-plugin", "token", "--auth-params", f"file://{tmp_path}/token"]) == 0
    assert f"{options.name} {name} 1 no" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--auth-params", "file:///token"])


# ---- what is renewed


class Short:
    """A provider of one's own: tokens of a few seconds; `asked` counts how many there were."""

    method = "token"
    asked = 0
    tokens: TokenMaker

    def __init__(self, params):
        self._seconds = float(params)

    def data(self):
        Short.asked += 1
        return Short.tokens.token(ADMIN, self._seconds).encode()


def test_a_connection_outlives_its_token(secured, name):
    Short.tokens, Short.asked = secured.tokens, 0
    own = Credentials("integration.security.test_client.Short", "4")
    with connect(secured, own) as client, Consumer(client, name, reader()) as consumer:

        def has_outlived():
            """The broker asked again, and went on with the same connection afterwards."""
            session, asked = client.service(client.operation()), Short.asked
            wait_until(lambda: Short.asked > asked or session.error is not None)
            # What is asked now is answered behind the broker's look at the new token.
            consumer.last_message_id()
            return session.error is None and client.service(client.operation()) is session

        wait_until(has_outlived)


def test_a_token_that_is_not_renewed_ends_with_its_reason(secured, name):
    with (
        connect(secured, token(secured, seconds=6)) as client,
        pytest.raises(AuthError, match=r"the token expired \d+ s ago"),
        Consumer(client, name, reader()) as consumer,
    ):
        wait_until(lambda: consumer.last_message_id() is None)


def test_files_are_read_again_for_each_connection(secured, name, tmp_path):
    trust, token_file = tmp_path / "trust.pem", tmp_path / "token"
    pem = Pem(str(tmp_path / "client.pem"), str(tmp_path / "client.key"))

    def use(certificate):
        for file, place in zip(certificate, pem, strict=True):
            shutil.copy(file, place)

    shutil.copy(secured.stranger.file, trust)
    with connect(secured, None, trust_certs=str(trust), **pem._asdict()) as client:
        use(secured.authority.issue(ADMIN, days=-1, file="old"))
        with pytest.raises(TlsError, match="untrusted"):
            client.partitions(name)
        shutil.copy(secured.authority.file, trust)
        with pytest.raises(AuthError, match="certificate expired"):
            client.partitions(name)
        use(secured.authority.issue(ADMIN))
        assert client.partitions(name) == [name]
    with connect(secured, Credentials("token", f"file://{token_file}")) as client:
        with pytest.raises(AuthError, match="cannot be read"):
            client.partitions(name)
        token_file.write_text(secured.tokens.token(ADMIN, -1))
        with pytest.raises(AuthError, match="the token expired"):
            client.partitions(name)
        token_file.write_text(secured.tokens.token(ADMIN))
        assert client.partitions(name) == [name]
