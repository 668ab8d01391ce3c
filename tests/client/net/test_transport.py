"""TLS without blocking: handshakes that fail, and bytes that come through whole in both directions."""

import hashlib
import random
import selectors
import socket
import ssl
import struct
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pulsar_spark.client.net.transport import TlsOptions, open_transport
from pulsar_spark.errors import ConnectError, TlsError
from pulsar_spark.protocol.lookup import Address

HANG = 120.0
SOON = 5.0  # seconds; a busy machine needs a part of them


@contextmanager
def server(talk):
    """Let `talk` have the one connection that comes; gives the address."""

    def serve():
        connection, _ = listener.accept()
        # A client that closes before it has read TLS 1.3's session tickets resets the connection.
        with connection, suppress(ConnectionResetError):
            connection.settimeout(HANG)
            talk(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address("127.0.0.1", listener.getsockname()[1], tls=True)
        finally:
            thread.join(HANG)
            assert not thread.is_alive()


def over_tls(pem, talk, version):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.minimum_version = context.maximum_version = version

    def serve(connection):
        with context.wrap_socket(connection, server_side=True) as wrapped:
            talk(wrapped)

    return serve


def exchange(transport, sent):
    """Send all and take all that comes, as a session's thread does; returns what came."""
    came, out = [], list(sent)
    with selectors.DefaultSelector() as selector:
        selector.register(transport, selectors.EVENT_READ)
        while True:
            selector.modify(transport, transport.interest(has_output=bool(out)))
            for _, mask in selector.select(HANG):
                if mask & selectors.EVENT_READ or transport.read_wants_write:
                    data = transport.receive()
                    if data == b"":
                        return b"".join(came)
                    came.append(data or b"")
            while out and (taken := transport.send(out[:64])):
                while out and taken >= len(out[0]):
                    taken -= len(out.pop(0))
                if taken:
                    out[0] = memoryview(out[0])[taken:]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("seed", range(3))
def test_bytes_come_through_both_ways_at_once(pem, version, seed):
    chance = random.Random(seed)
    sizes = [chance.choice([1, 100, 16_384, 200_000, 3_000_000]) for _ in range(40)]
    sent = [chance.randbytes(size) for size in sizes]
    total = sum(sizes)
    digest = hashlib.sha256()

    def echo(wrapped):
        left = total
        while left:
            data = wrapped.recv(chance.choice([10, 5000, 100_000]))
            digest.update(data)
            wrapped.sendall(data)
            left -= len(data)

    with server(over_tls(pem, echo, version)) as address:
        transport = open_transport(address, TlsOptions(trust_certs=pem), HANG)
        try:
            came = exchange(transport, sent)
        finally:
            transport.close()
    assert hashlib.sha256(came).digest() == digest.digest() == hashlib.sha256(b"".join(sent)).digest()


def open_at_localhost(pem, options):
    """Open a connection to a server by a name that its certificate, for 127.0.0.1, does not have."""

    def talk(connection):
        with suppress(OSError):  # the client may break the handshake off
            over_tls(pem, lambda wrapped: wrapped.recv(1), ssl.TLSVersion.TLSv1_3)(connection)

    with server(talk) as address:
        open_transport(Address("localhost", address.port, tls=True), options, HANG).close()


def test_a_certificate_of_another_host_is_refused(pem):
    with pytest.raises(TlsError, match="is not made out for that host"):
        open_at_localhost(pem, TlsOptions(trust_certs=pem))
    open_at_localhost(pem, TlsOptions(trust_certs=pem, verify_hostname=False))


def test_a_certificate_that_nobody_vouches_for_is_refused(pem):
    with pytest.raises(TlsError, match="from an authority that is not trusted"):
        open_at_localhost(pem, TlsOptions(verify_hostname=False))
    open_at_localhost(pem, TlsOptions(allow_insecure=True))


def test_a_peer_that_says_nothing_is_given_up_in_time():
    silent = server(lambda connection: connection.recv(1 << 16) and connection.recv(1))
    error = pytest.raises(ConnectError, match=r"the TLS handshake with .* did not end within 0.2 s")
    with silent as address, error:
        began = time.monotonic()
        try:
            open_transport(address, TlsOptions(), 0.2)
        finally:
            assert time.monotonic() - began < SOON


def test_a_peer_that_answers_in_plain_text():
    plain = server(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with plain as address, pytest.raises(TlsError, match="does not speak TLS"):
        open_transport(address, TlsOptions(), HANG)


# No connection is tried where a file is no good.
NOWHERE = Address("host.invalid", 6651, tls=True)


def test_a_key_with_a_passphrase_is_an_error_and_no_question(pem, tmp_path):
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (tmp_path / "key.pem").write_bytes(key)
    options = TlsOptions(trust_certs=pem, certificate=pem, key=str(tmp_path / "key.pem"))
    with pytest.raises(TlsError, match=r"tlsKeyFilePath names.*without a passphrase") as caught:
        open_transport(NOWHERE, options, HANG)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_files_of_trust_that_are_no_good(tmp_path, content):
    file = tmp_path / "trust.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TlsError, match="tlsTrustCertsFilePath names cannot be used"):
        open_transport(NOWHERE, TlsOptions(trust_certs=str(file)), HANG)


def test_a_connection_that_is_reset_is_tried_again(pem):
    """By a broker that dies, or a load balancer with none behind it: before the handshake or within it."""

    def reset():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=reset)
        thread.start()
        try:
            address = Address("127.0.0.1", listener.getsockname()[1], tls=True)
            for _ in range(200):
                with pytest.raises(ConnectError) as caught:
                    open_transport(address, TlsOptions(trust_certs=pem), HANG)
                assert caught.value.retriable
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("tls", [False, True])
def test_addresses_that_do_not_work_leave_time_for_those_that_do(monkeypatch, pem, tls):
    """One of a family that this host does not have, one whose packets are dropped, one that is fine."""
    unknown = (socket.AF_UNSPEC + 999, socket.SOCK_STREAM, 0, "", ("", 0))
    # A full backlog: the kernel answers nothing more.
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.socket() as first,
        socket.socket() as more,
    ):
        first.connect(full.getsockname())
        more.setblocking(False)
        more.connect_ex(full.getsockname())
        dropping = (socket.AF_INET, socket.SOCK_STREAM, 0, "", full.getsockname())
        talk = over_tls(pem, lambda wrapped: wrapped.recv(1), ssl.TLSVersion.TLSv1_3)
        with server(talk if tls else lambda connection: connection.recv(1)) as address:
            good = (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address.host, address.port))
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown, dropping, good])
            options = TlsOptions(trust_certs=pem)
            transport = open_transport(Address(address.host, address.port, tls=tls), options, 3.0)
            monkeypatch.undo()
            transport.close()


def test_a_host_without_an_address_that_can_be_used(monkeypatch):
    unknown = (socket.AF_UNSPEC + 999, socket.SOCK_STREAM, 0, "", ("", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown])
    with pytest.raises(ConnectError, match="cannot connect to host:6650: Address family not supported"):
        open_transport(Address("host", 6650, tls=False), TlsOptions(), 1.0)
