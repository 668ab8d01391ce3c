"""The proxy, against plain sockets: what it does, byte for byte."""

import socket
import threading
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from integration.broker.waiting import wait_until
from integration.helpers.proxy import Cut, Direction, Ending, Proxy

TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT


class EchoServer:
    """Sends back what it receives; notes how each connection ended."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = b""
        self.endings: list[str] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self):
        # Only a shutdown wakes a thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._echo, args=(connection,)))
            self._threads[-1].start()

    def _echo(self, connection):
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    self.received += data
                    connection.sendall(data)
                self.endings.append("fin")
            except OSError:
                self.endings.append("rst")


@pytest.fixture
def echo():
    with closing(EchoServer()) as server:
        yield server


@pytest.fixture
def proxy(echo):
    with Proxy(echo.url) as forwarder:
        yield forwarder


def connect(proxy):
    return socket.create_connection(("127.0.0.1", urlsplit(proxy.service_url).port or 0), timeout=60)


def read_exactly(client, count):
    data = b""
    while len(data) < count and (chunk := client.recv(count - len(data))):
        data += chunk
    return data


def read_to_end(client):
    data = b""
    while chunk := client.recv(1 << 16):
        data += chunk
    return data


def send_in_background(client, data):
    """Send while the caller reads; a cut connection may refuse the rest."""

    def send():
        try:
            client.sendall(data)
        except OSError:
            return

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_forwards_both_ways_and_counts(proxy, echo):
    data = bytes(range(256)) * 4096
    with connect(proxy) as client:
        sender = send_in_background(client, data)
        assert read_exactly(client, len(data)) == data
        sender.join()
        assert proxy.open_connections == 1
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert echo.received == data
    assert echo.endings == ["fin"]
    assert proxy.connections == 1
    assert proxy.forwarded == {TO_BROKER: len(data), TO_CLIENT: len(data)}
    wait_until(lambda: proxy.open_connections == 0)


def test_cuts_all_connections_with_fin(proxy, echo):
    with connect(proxy) as one, connect(proxy) as two:
        for client in (one, two):
            client.sendall(b"x")
            assert client.recv(1) == b"x"
        proxy.cut_all()
        assert proxy.open_connections == 0
        assert one.recv(1) == b""
        assert two.recv(1) == b""
    wait_until(lambda: echo.endings == ["fin", "fin"])


@pytest.mark.parametrize("count", [0, 1, 100, 70_000, 300_000])
def test_cuts_after_exactly_so_many_bytes_to_the_client(proxy, count):
    proxy.cut_next(Cut(count))
    with connect(proxy) as client:
        sender = send_in_background(client, b"x" * 500_000)
        assert len(read_to_end(client)) == count
    sender.join()
    assert proxy.forwarded[TO_CLIENT] == count


@pytest.mark.parametrize("count", [0, 1, 100, 70_000, 300_000])
def test_cuts_after_exactly_so_many_bytes_to_the_broker(proxy, echo, count):
    proxy.cut_next(Cut(count, TO_BROKER))
    with connect(proxy) as client:
        sender = send_in_background(client, b"x" * 500_000)
        read_to_end(client)
    sender.join()
    wait_until(lambda: echo.endings)
    assert len(echo.received) == count


def test_delivers_the_bytes_before_a_reset_to_the_broker(proxy, echo):
    proxy.cut_next(Cut(5, TO_BROKER, Ending.RST))
    with connect(proxy) as client:
        client.sendall(b"0123456789")
        with pytest.raises(ConnectionResetError):
            read_to_end(client)
    assert proxy.forwarded[TO_BROKER] == 5


@pytest.mark.parametrize("direction", Direction)
def test_stalls_one_direction_and_resumes(proxy, echo, direction):
    with connect(proxy) as client:
        proxy.stall(direction)
        client.sendall(b"x")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        if direction is TO_CLIENT:
            wait_until(lambda: echo.received == b"x")
        assert echo.received == (b"x" if direction is TO_CLIENT else b"")
        client.settimeout(60)
        proxy.resume()
        assert client.recv(1) == b"x"


def test_cuts_a_stalled_connection(proxy):
    with connect(proxy) as client:
        proxy.stall()
        client.sendall(b"x")
        wait_until(lambda: proxy.open_connections == 1)
        proxy.cut_all()
        assert client.recv(1) == b""


def test_passes_a_reset_on(proxy, echo):
    with connect(proxy) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wait_until(lambda: echo.endings)
    assert echo.endings == ["rst"]


def test_close_ends_everything(echo):
    threads = threading.active_count()
    proxy = Proxy(echo.url)
    with connect(proxy) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        proxy.close()
        proxy.close()
        assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    wait_until(lambda: threading.active_count() <= threads)
