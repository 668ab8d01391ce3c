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

from pulsar_spark.client.net.tls import TlsOptions
from pulsar_spark.client.net.transport import open_transport
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
    sizes = [chance.choice([1, 100, 16_384, 200_000, 1_000_000]) for _ in range(40)]
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
    with pytest.raises(TlsError, match="does not name that host"):
        open_at_localhost(pem, TlsOptions(trust_certs=pem))
    open_at_localhost(pem, TlsOptions(trust_certs=pem, verify_hostname=False))


def test_a_certificate_that_nobody_vouches_for_is_refused(pem):
    with pytest.raises(TlsError, match="issued by an untrusted authority"):
        open_at_localhost(pem, TlsOptions(verify_hostname=False))
    open_at_localhost(pem, TlsOptions(allow_insecure=True))


def test_a_peer_that_says_nothing_is_given_up_in_time():
    silent = server(lambda connection: connection.recv(1 << 16) and connection.recv(1))
    error = pytest.raises(ConnectError, match=r"the TLS handshake with .* did not finish within 0.2 s")
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


# ---- a proxy that goes by the name in the handshake


def by_name(pem, named):
    """A server that notes which host a client names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.sni_callback = lambda wrapped, name, _: named.append(name)

    def serve(connection):
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.sendall(wrapped.recv(1))

    return serve


def test_a_proxy_is_connected_to_and_the_broker_named(pem):
    named = []
    with server(by_name(pem, named)) as proxy:
        options = TlsOptions(trust_certs=pem, proxy=proxy)
        transport = open_transport(Address("broker.test", 6651, tls=True), options, HANG)
        try:
            assert exchange(transport, [b"x"]) == b"x"
        finally:
            transport.close()
    assert named == ["broker.test"]


def test_the_certificate_behind_a_proxy_is_the_brokers(pem):
    """A name of the proxy's will not do."""
    with server(by_name(pem, [])) as proxy:
        options = TlsOptions(trust_certs=pem, proxy=proxy)
        match = rf"certificate of other.test:6651 \(through the proxy 127.0.0.1:{proxy.port}\) does not name"
        with pytest.raises(TlsError, match=match):
            open_transport(Address("other.test", 6651, tls=True), options, HANG)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_proxy_finds_no_broker_without_a_name(pem, host):
    options = TlsOptions(trust_certs=pem, proxy=Address("localhost", 1, tls=True))
    with pytest.raises(TlsError, match=r"the proxy localhost:1 cannot find .*advertisedListeners") as caught:
        open_transport(Address(host, 6651, tls=True), options, HANG)
    assert not caught.value.retriable


def test_a_proxy_that_cannot_be_reached(pem):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    options = TlsOptions(trust_certs=pem, proxy=Address("127.0.0.1", port, tls=True))
    with pytest.raises(ConnectError, match=f"cannot connect to 127.0.0.1:{port}: .*proxyServiceUrl"):
        open_transport(Address("broker.test", 6651, tls=True), options, HANG)


def test_a_proxy_that_knows_no_such_broker_closes_the_connection(pem):
    def close_twice(connection):
        """The second connection is how the client finds out what is spoken here."""
        connection.close()
        listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: close_twice(listener.accept()[0]))
        thread.start()
        proxy = Address("127.0.0.1", listener.getsockname()[1], tls=True)
        with pytest.raises(ConnectError, match=r"through the proxy .* closed the connection"):
            open_transport(
                Address("broker.test", 6651, tls=True), TlsOptions(trust_certs=pem, proxy=proxy), HANG
            )
        thread.join()


def test_without_tls_a_proxy_is_not_used():
    options = TlsOptions(proxy=Address("127.0.0.1", 1, tls=True))
    with server(lambda connection: connection.recv(1)) as address:
        open_transport(Address(address.host, address.port), options, HANG).close()


# ---- connections that fail


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
