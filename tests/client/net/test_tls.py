"""Contexts of TLS: files that are used and files that cannot be, and a server that wants a certificate."""

import pickle
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from pulsar_spark.client.net.tls import (
    PROTOCOLS,
    KeyStore,
    TlsOptions,
    context_without_files,
    has_suite,
    restrict,
    tls_context,
)
from pulsar_spark.errors import LibraryError, OptionError, TlsError
from tests.loops import for_each

HANG = 120.0
PASSWORD = "store-password-27182"


@pytest.fixture(scope="module")
def client_key(pem):
    return serialization.load_pem_private_key(Path(pem).read_bytes(), None)


@pytest.fixture(scope="module")
def files(pem, client_key, tmp_path_factory):
    """The key under a passphrase, and a store of key and certificate and one of the certificate."""
    folder = tmp_path_factory.mktemp("stores")
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    (folder / "key.pem").write_bytes(
        client_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    certificate = x509.load_pem_x509_certificate(Path(pem).read_bytes())
    for name, key, own, others in (
        ("key.p12", client_key, certificate, None),
        ("trust.p12", None, None, [certificate]),
    ):
        store = pkcs12.serialize_key_and_certificates(b"name", key, own, others, encryption)
        (folder / name).write_bytes(store)
    (folder / "old.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (folder / "old.jceks").write_bytes(b"\xce\xce\xce\xce\0\0\0\2")
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "empty").touch()
    return folder


@contextmanager
def server_that_wants_a_certificate(pem, shown):
    """Notes the certificate, in DER, that the one client shows; gives the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.load_verify_locations(pem)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_REQUIRED

    def serve():
        connection, _ = listener.accept()
        connection.settimeout(HANG)
        with context.wrap_socket(connection, server_side=True) as wrapped:
            shown.append(wrapped.getpeercert(True))
            wrapped.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(HANG)
            assert not thread.is_alive()


WAYS = {
    "files": lambda pem, files: {
        "trust_certs": pem,
        "certificate": pem,
        "key": str(files / "key.pem"),
        "key_password": PASSWORD,
    },
    "stores": lambda pem, files: {
        "trust_store": KeyStore(str(files / "trust.p12"), PASSWORD),
        "key_store": KeyStore(str(files / "key.p12"), PASSWORD),
    },
    "stores, passwords by place": lambda pem, files: {
        "trust_store": KeyStore(str(files / "trust.p12"), f"file://{files / 'password'}"),
        "key_store": KeyStore(str(files / "key.p12"), "env:PASSWORD_OF_STORE"),
    },
    "one store for both": lambda pem, files: {
        "trust_store": KeyStore(str(files / "key.p12"), PASSWORD),
        "key_store": KeyStore(str(files / "key.p12"), PASSWORD),
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_both_sides_trust_each_other(pem, files, way, monkeypatch):
    monkeypatch.setenv("PASSWORD_OF_STORE", PASSWORD)
    options = TlsOptions(**WAYS[way](pem, files))
    assert options.has_certificate
    shown = []
    with server_that_wants_a_certificate(pem, shown) as port:
        context = tls_context(options)
        with (
            socket.create_connection(("127.0.0.1", port)) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as wrapped,
        ):
            assert wrapped.recv(1) == b"x"
    certificate = x509.load_pem_x509_certificate(Path(pem).read_bytes())
    assert shown == [certificate.public_bytes(serialization.Encoding.DER)]


def test_a_key_of_a_store_leaves_nothing_readable(files, tmp_path, monkeypatch, client_key):
    """The file that OpenSSL reads is removed, for nobody else's eyes, and has a passphrase of its own."""
    seen = []
    load = ssl.SSLContext.load_cert_chain

    def noted(context, certfile, keyfile=None, password=None):
        file = Path(certfile)
        seen.append((file, file.stat().st_mode & 0o777, file.read_bytes(), password))
        load(context, certfile, keyfile, password)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noted)
    for _ in range(2):
        tls_context(TlsOptions(key_store=KeyStore(str(files / "key.p12"), PASSWORD)))
    assert list(tmp_path.iterdir()) == []
    passphrases = {password for _, _, _, password in seen}
    assert len(passphrases) == 2
    assert min(map(len, passphrases)) >= 32
    for file, mode, content, _ in seen:
        assert (file.parent, mode) == (tmp_path, 0o600)
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in content
        assert b"BEGIN PRIVATE KEY" not in content


@pytest.mark.parametrize("password", [None, "wrong-password"])
def test_a_key_with_another_passphrase_is_an_error_and_no_question(pem, files, password):
    options = TlsOptions(certificate=pem, key=str(files / "key.pem"), key_password=password)
    with pytest.raises(
        TlsError, match=r"named by .*tlsKeyFilePath .*requires pulsar\.client\.tlsKeyPassword"
    ) as caught:
        tls_context(options)
    assert_tells_nothing(caught.value, files)


def test_a_passphrase_that_openssl_does_not_take(pem, files):
    options = TlsOptions(certificate=pem, key=str(files / "key.pem"), key_password="x" * 2000)
    with pytest.raises(TlsError, match=r"password cannot be longer than 102[34] bytes"):
        tls_context(options)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_files_of_trust_that_are_no_good(tmp_path, content):
    file = tmp_path / "trust.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TlsError, match="tlsTrustCertsFilePath cannot be used"):
        tls_context(TlsOptions(trust_certs=str(file)))


@pytest.mark.parametrize(
    ("kind", "name"), [("trust_store", "tlsTrustStorePath"), ("key_store", "tlsKeyStorePath")]
)
@pytest.mark.parametrize(
    ("file", "password", "match"),
    [
        ("none.p12", PASSWORD, "cannot be used: No such file"),
        ("empty", PASSWORD, "cannot be used: it is not a PKCS#12 store, or its password is wrong"),
        ("key.p12", "wrong-password", "cannot be used: it is not a PKCS#12 store, or its password is wrong"),
        ("key.p12", None, "cannot be used: it is not a PKCS#12 store, or its password is wrong"),
        ("old.jks", PASSWORD, "JKS or JCEKS.*keytool -importkeystore .*-deststoretype PKCS12"),
        ("old.jceks", PASSWORD, "JKS or JCEKS.*keytool -importkeystore"),
        ("key.p12", "file:///no/such/file", "the file that tls(Trust|Key)StorePassword names cannot be read"),
        ("key.p12", "env:NO_SUCH_VARIABLE", "variable that tls(Trust|Key)StorePassword names is not set"),
    ],
)
def test_stores_that_are_no_good(files, kind, name, file, password, match):
    store = KeyStore(str(files / file), password)
    options = TlsOptions(key_store=store) if kind == "key_store" else TlsOptions(trust_store=store)
    with pytest.raises(TlsError, match=match) as caught:
        tls_context(options)
    assert_tells_nothing(caught.value, files)
    assert name[: -len("Path")] in str(caught.value)


def test_a_store_of_trust_that_holds_no_key(files):
    with pytest.raises(TlsError, match="tlsKeyStorePath cannot be used: it contains no private key"):
        tls_context(TlsOptions(key_store=KeyStore(str(files / "trust.p12"), PASSWORD)))


def assert_tells_nothing(error, folder):
    assert str(folder) not in str(error)
    assert PASSWORD not in str(error)
    assert "wrong-password" not in str(error)
    assert error.__suppress_context__ or error.__context__ is None


def test_options_hide_their_passwords():
    options = TlsOptions(
        key_password="abc", trust_store=KeyStore("/t", "abc"), key_store=KeyStore("/k", "abc")
    )
    assert "abc" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_stores_need_an_extra(files, monkeypatch):
    options = TlsOptions(trust_store=KeyStore(str(files / "trust.p12"), PASSWORD))
    monkeypatch.delitem(sys.modules, "pulsar_spark.client.net.key_stores", raising=False)
    monkeypatch.delattr("pulsar_spark.client.net.key_stores", raising=False)
    for name in [*sys.modules]:
        if name.partition(".")[0] == "cryptography":
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LibraryError, match="require the package cryptography, which is not installed"):
        tls_context(options)


def test_protocols_and_suites_that_do_not_go_together_are_found_without_files():
    options = TlsOptions(
        trust_certs="/no/such/file", protocols=("TLSv1.3",), ciphers=("TLS_RSA_WITH_AES_128_CBC_SHA",)
    )
    with pytest.raises(OptionError, match="no cipher suite of tlsCiphers"):
        context_without_files(options)


def test_what_may_be_spoken_is_set():
    options = TlsOptions(protocols=("TLSv1.2",), ciphers=("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",))
    context = tls_context(options)
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert "ECDHE-RSA-AES256-GCM-SHA384" in {each["name"] for each in context.get_ciphers()}


NEW = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
OLD = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

# What Java 17 offers by default, but for what OpenSSL lacks: static ECDH, and DSS.
OF_JAVA = [
    *NEW,
    *(
        f"TLS_{exchange}_WITH_{cipher}"
        for exchange, ciphers in {
            "ECDHE_ECDSA": ("AES_256_CBC_SHA384", "AES_128_CBC_SHA256", "CHACHA20_POLY1305_SHA256"),
            "ECDHE_RSA": ("AES_256_CBC_SHA384", "AES_128_CBC_SHA256", "CHACHA20_POLY1305_SHA256"),
            "DHE_RSA": ("AES_256_CBC_SHA256", "AES_128_CBC_SHA256", "CHACHA20_POLY1305_SHA256"),
            "RSA": ("AES_256_CBC_SHA256", "AES_128_CBC_SHA256"),
        }.items()
        for cipher in (
            *ciphers,
            "AES_256_GCM_SHA384",
            "AES_128_GCM_SHA256",
            "AES_256_CBC_SHA",
            "AES_128_CBC_SHA",
        )
    ),
]


def context_of(protocols=(), suites=()):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    restrict(context, protocols, suites)
    return context


def offered(context):
    """Names of OpenSSL, of TLS 1.2."""
    return [each["name"] for each in context.get_ciphers() if each["name"] not in NEW]


@for_each("name", OF_JAVA)
def test_what_java_offers_is_known(name):
    assert has_suite(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "TLS_",
        "TLS_AES_128_CCM_SHA256",
        "TLS_RSA_WITH_NULL_SHA",
        "TLS_RSA_WITH_RC4_128_MD5",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA256",  # of parts that there are
        "ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ALL",
        "SSL_RSA_WITH_3DES_EDE_CBC_SHA",
    ],
)
def test_what_is_not_known(name):
    assert not has_suite(name)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it compares with OpenSSL's command")
def test_the_names_are_those_of_openssl():
    """Another list of them: all that the command has and Java knows, by the standard's names."""
    said = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL"], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in said.stdout.splitlines()]
    names = {line[0]: line[2] for line in lines if len(line) > 2}
    compared = [name for name in OF_JAVA if name in names and name not in NEW]
    assert len(compared) > 20
    for name in compared:
        assert offered(context_of(suites=[name])) == [names[name]]


def test_by_default_openssl_chooses():
    context = context_of()
    assert (context.minimum_version, context.maximum_version) == (TLS_1_2, TLS_1_3)
    usual = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert context.get_ciphers() == usual.get_ciphers()


@pytest.mark.parametrize("name", PROTOCOLS)
def test_one_protocol(name):
    context = context_of([name])
    assert context.minimum_version == context.maximum_version == PROTOCOLS[name]


def test_suites_of_one_protocol_are_for_that_alone():
    context = context_of(suites=[OLD, "TLS_RSA_WITH_AES_128_CBC_SHA"])
    assert context.minimum_version == context.maximum_version == TLS_1_2
    assert offered(context) == ["ECDHE-RSA-AES128-GCM-SHA256", "AES128-SHA"]
    context = context_of(suites=NEW)
    assert context.minimum_version == context.maximum_version == TLS_1_3


def test_suites_of_both():
    context = context_of(suites=[*NEW, OLD])
    assert (context.minimum_version, context.maximum_version) == (TLS_1_2, TLS_1_3)
    assert offered(context) == ["ECDHE-RSA-AES128-GCM-SHA256"]
    context = context_of(["TLSv1.2"], [*NEW, OLD])
    assert context.maximum_version == TLS_1_2


def test_suites_that_python_cannot_leave_out_are_not_left_out_in_silence():
    with pytest.raises(OptionError, match="lacks TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256"):
        context_of(suites=["TLS_AES_256_GCM_SHA384", OLD])
    # Where TLS 1.3 is not spoken none of them is used.
    context_of(["TLSv1.2"], ["TLS_AES_256_GCM_SHA384", OLD])


@pytest.mark.parametrize(("protocol", "suites"), [("TLSv1.2", NEW), ("TLSv1.3", [OLD])])
def test_suites_of_another_protocol(protocol, suites):
    with pytest.raises(OptionError, match="no cipher suite of tlsCiphers belongs"):
        context_of([protocol], suites)


@pytest.mark.parametrize("others", [[], [OLD]])
def test_a_suite_that_this_openssl_lacks(others):
    """As where tasks have another OpenSSL than the driver."""
    with pytest.raises(
        OptionError, match="does not have these suites of tlsCiphers: ECDHE-RSA-AES256-SHA256"
    ):
        context_of(suites=["TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA256", *others])
