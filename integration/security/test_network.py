"""A broker that has another name outside, behind a proxy that reads names in TLS; stores, and suites."""

import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.broker.waiting import FAR_AWAY, promptly
from integration.chaos.leaks import nothing_left
from integration.chaos.messages import columns_of, numbered, read_topic
from integration.fixtures.spark import PulsarInSpark
from integration.helpers.clients import open_writer, reader
from integration.helpers.proxies import SniProxy
from integration.helpers.secured import ADMIN, Secured, open_secured, outside_settings
from pulsar_spark.client import Address, Client, ClientOptions, Consumer, Credentials, KeyStore, TlsOptions
from pulsar_spark.client.net.session import Purpose
from pulsar_spark.errors import ConnectError, PulsarError, TlsError
from pulsar_spark.ids import TopicName
from pulsar_spark_broker.java import java
from tests.writes import write_all

# By which no name server knows it: only the proxy does.
OUTSIDE = "broker.pulsar.test"
PASSWORD = "store-password-16180"
_TLS_1_2, _TLS_1_3 = 0x0303, 0x0304


class Network(NamedTuple):
    """A broker with two listeners.

    Attributes:
        secured: it; `internal` is at 127.0.0.1, `external` at `OUTSIDE`.
        port: of TLS.
    """

    secured: Secured
    port: int

    @property
    def outside_url(self):
        return f"pulsar+ssl://{OUTSIDE}:{self.port}"

    def proxy(self):
        """One that finds the broker."""
        return SniProxy(OUTSIDE, f"pulsar+ssl://127.0.0.1:{self.port}")

    def client(self, url, *, tls=None, token=True, listener_name=None, timeout=FAR_AWAY):
        """A client with the administrator's token that trusts the authority, unless told otherwise."""
        login = Credentials("token", f"token:{self.secured.tokens.token(ADMIN)}")
        return Client(
            ClientOptions(
                service_url=url,
                operation_timeout=timeout,
                connection_timeout=timeout,
                listener_name=listener_name,
                tls=tls or TlsOptions(trust_certs=self.secured.authority.file),
                credentials=login if token else None,
            )
        )


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    settings = outside_settings(OUTSIDE)
    with open_secured(tmp_path_factory.mktemp("network"), settings, name=OUTSIDE) as opened:
        yield Network(opened, int(settings["brokerServicePortTls"]))


@pytest.fixture
def name(network, topic):
    """A topic that exists."""
    network.secured.broker.admin.create_topic(topic)
    return TopicName.parse(topic)


@pytest.fixture(autouse=True)
def leaves_nothing(request, network):
    """But for Spark, which stays for other tests."""
    with nothing_left() if "spark" not in request.fixturenames else nullcontext():
        yield


# ---- listeners


def found_by(client, name):
    """Where the client goes to the topic's broker, and which broker a proxy there is asked for.

    A standalone broker says of itself that it is reached through the service URL, wherever it is.
    """
    address = client.locate(name, Purpose.READ, client.operation()).address
    return str(address), address.proxy_to


@pytest.mark.parametrize("listener", [None, "internal", "external"])
def test_look_ups_are_answered_with_the_listeners_address(network, name, listener):
    inside, outside = f"127.0.0.1:{network.port}", f"{OUTSIDE}:{network.port}"
    with network.client(network.secured.tls_url, listener_name=listener) as client:
        assert found_by(client, name) == (inside, outside if listener == "external" else None)


def test_without_tls_listeners_have_other_addresses(network, name):
    plain = network.secured.broker.service_url
    inside = plain.removeprefix("pulsar://")
    with network.client(plain, listener_name="external") as client:
        assert found_by(client, name) == (inside, inside.replace("127.0.0.1", "localhost"))


def test_a_listener_that_there_is_none_of(network, name):
    with (
        network.client(network.secured.tls_url, listener_name="none", timeout=3.0) as client,
        promptly(10.0),
        pytest.raises(PulsarError, match="none") as caught,
    ):
        Consumer(client, name, reader())
    assert caught.value.topic == str(name)


# ---- a proxy that goes by names


def test_all_connections_go_through_the_proxy_by_the_brokers_name(network, name):
    records = numbered(1000, keys=10)
    with network.proxy() as proxy:
        tls = TlsOptions(trust_certs=network.secured.authority.file, proxy=address_of(proxy))
        with network.client(network.outside_url, tls=tls, listener_name="external") as client:
            assert found_by(client, name) == (f"{OUTSIDE}:{network.port}", None)
            write_all(open_writer(client, str(name)), columns_of(records))
            assert read_topic(client, str(name)) == records
        # One connection that reads, one that writes.
        assert [each.host for each in proxy.seen] == [OUTSIDE] * 2


def test_a_name_that_the_proxy_does_not_know(network, name):
    with network.proxy() as proxy:
        tls = TlsOptions(trust_certs=network.secured.authority.file, proxy=address_of(proxy))
        url = network.outside_url.replace(OUTSIDE, "other.pulsar.test")
        with (
            network.client(url, tls=tls, timeout=2.0) as client,
            promptly(10.0),
            pytest.raises(ConnectError, match=r"other\.pulsar\.test.*through the proxy"),
        ):
            client.partitions(name)


def address_of(proxy):
    host, _, port = proxy.service_url.removeprefix("pulsar+ssl://").rpartition(":")
    return Address(host, int(port), tls=True)


# ---- what is spoken


@pytest.mark.parametrize(
    ("protocols", "ciphers", "versions", "suites"),
    [
        (("TLSv1.3",), (), {_TLS_1_3}, {0x1301, 0x1302, 0x1303}),
        (
            (),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            {_TLS_1_2},
            {0xC02B, 0xC02F},
        ),
    ],
)
def test_protocols_and_suites_on_the_wire(network, name, protocols, ciphers, versions, suites):
    with network.proxy() as proxy:
        tls = TlsOptions(
            trust_certs=network.secured.authority.file,
            proxy=address_of(proxy),
            protocols=protocols,
            ciphers=ciphers,
        )
        with network.client(network.outside_url, tls=tls) as client:
            assert client.partitions(name) == [name]
        (hello,) = proxy.seen
    assert set(hello.versions) == versions or (not hello.versions and versions == {_TLS_1_2})
    # The last one says that renegotiation is safe, and is no suite (RFC 5746).
    assert set(hello.suites) - {0x00FF} == suites


def test_a_suite_that_the_brokers_certificate_cannot_use(network, name):
    """Its key is of an elliptic curve."""
    tls = TlsOptions(
        trust_certs=network.secured.authority.file, ciphers=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)
    )
    with (
        network.client(network.secured.tls_url, tls=tls) as client,
        promptly(10.0),
        pytest.raises(TlsError, match="aborted the TLS handshake: handshake failure"),
    ):
        client.partitions(name)


# ---- stores


@pytest.fixture(scope="module")
def stores(network, tmp_path_factory):
    """Made as users make them: by keytool in Java's two formats, by openssl, and a key with a passphrase."""
    folder = tmp_path_factory.mktemp("stores")
    client = network.secured.authority.issue(ADMIN)
    trust = ("-importcert", "-noprompt", "-alias", "ca", "-file", network.secured.authority.file)
    for kind in ("JKS", "PKCS12"):
        keytool(
            *trust, "-keystore", str(folder / f"trust.{kind}"), "-storetype", kind, "-storepass", PASSWORD
        )
    openssl(
        *("pkcs12", "-export", "-in", client.certificate, "-inkey", client.key, "-name", "client"),
        *("-certfile", network.secured.authority.file, "-out", str(folder / "key.PKCS12")),
        *("-passout", f"pass:{PASSWORD}"),
    )
    keytool(
        *("-importkeystore", "-srckeystore", str(folder / "key.PKCS12"), "-srcstorepass", PASSWORD),
        *("-destkeystore", str(folder / "key.JKS"), "-deststoretype", "JKS", "-deststorepass", PASSWORD),
    )
    openssl(
        "pkcs8", "-topk8", "-in", client.key, "-out", str(folder / "key.pem"), "-passout", f"pass:{PASSWORD}"
    )
    shutil.copy(client.certificate, folder / "cert.pem")
    return folder


def keytool(*arguments):
    run(str(Path(java()).resolve().with_name("keytool")), *arguments)


def openssl(*arguments):
    run("openssl", *arguments)


def run(*command):
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stores_of_keytool_and_openssl(network, name, stores):
    for tls in (
        TlsOptions(
            trust_store=KeyStore(str(stores / "trust.PKCS12"), PASSWORD),
            key_store=KeyStore(str(stores / "key.PKCS12"), PASSWORD),
        ),
        TlsOptions(
            trust_certs=network.secured.authority.file,
            certificate=str(stores / "cert.pem"),
            key=str(stores / "key.pem"),
            key_password=PASSWORD,
        ),
    ):
        with network.client(network.secured.tls_url, tls=tls, token=False) as client:
            assert client.partitions(name) == [name]
            # The admin service takes the same.
            assert name in client.admin(network.secured.broker.tls_admin_url).topics("public/default")


def test_stores_in_jks_after_the_conversion_that_the_error_tells(network, name, stores, tmp_path):
    def options(place, kind):
        return TlsOptions(
            trust_store=KeyStore(str(place / f"trust.{kind}"), PASSWORD),
            key_store=KeyStore(str(place / f"key.{kind}"), PASSWORD),
        )

    with (
        network.client(network.secured.tls_url, tls=options(stores, "JKS"), token=False) as client,
        pytest.raises(TlsError) as caught,
    ):
        client.partitions(name)
    _, found, command = str(caught.value).partition("keytool ")
    assert found
    for file in ("trust", "key"):
        told = command.replace("FILE.p12", str(tmp_path / f"{file}.p12")).replace(
            "FILE", str(stores / f"{file}.JKS")
        )
        keytool(*told.split(), "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    with network.client(network.secured.tls_url, tls=options(tmp_path, "p12"), token=False) as client:
        assert client.partitions(name) == [name]


# ---- all of it, in Spark


def test_a_batch_from_outside(network, spark, topic, stores, tmp_path):
    """Through the proxy, with stores whose password is in a file: nothing but options."""
    (tmp_path / "password").write_text(PASSWORD)
    here = PulsarInSpark(spark, network.outside_url)
    with network.proxy() as proxy:
        client = {
            "listenerName": "external",
            "proxyServiceUrl": proxy.service_url,
            "tlsTrustStorePath": str(stores / "trust.PKCS12"),
            "tlsTrustStorePassword": f"file://{tmp_path}/password",
            "tlsKeyStorePath": str(stores / "key.PKCS12"),
            "tlsKeyStorePassword": f"file://{tmp_path}/password",
            "tlsProtocols": "TLSv1.2",
            "tlsCiphers": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "lookupTimeoutMs": "20s",
            "maxLookupRedirects": "3",
            "connectionMaxIdleSeconds": "5",
        }
        options = {f"pulsar.client.{name}": text for name, text in client.items()}
        here.write(here.rows([(f"v{number}",) for number in range(100)], "value string"), topic, **options)
        found = here.read(topic, **options).select("value").collect()
        assert sorted(bytes(row.value).decode() for row in found) == sorted(f"v{n}" for n in range(100))
        assert {each.host for each in proxy.seen} == {OUTSIDE}
        assert {each.suites[0] for each in proxy.seen} == {0xC02C}
