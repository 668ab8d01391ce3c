"""Peers that are no broker, or a broken one: coded errors in time, and nothing left behind."""

import random
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from integration.broker.waiting import HANG, promptly
from integration.chaos.leaks import little_memory, nothing_left
from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    ProducerOptions,
    SubscriptionOptions,
    TopicWriter,
)
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_command

TOPIC = TopicName.parse("topic")
Talk = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def leaves_nothing():
    """Whatever a peer sends takes less than 100 MB, either."""
    with nothing_left(), little_memory(100):
        yield


class Server:
    """Accepts connections one after the other and lets `talk` have each; notes how many there were."""

    def __init__(self, talk):
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(HANG)
            assert not thread.is_alive()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection):
        with connection:
            try:
                self._talk(connection)
            except OSError:
                return
            finally:
                self._open.discard(connection)


def listen_on(connection):
    """Take what comes until the other side closes."""
    while connection.recv(1 << 16):
        pass


def silent(connection):
    listen_on(connection)


def closes(connection):
    del connection


def resets(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def says(data):
    def talk(connection):
        connection.sendall(data)
        listen_on(connection)

    return talk


def drips(connection):
    """One byte at a time of a frame that is never complete: not silent, and yet no answer."""
    connection.settimeout(0.05)
    connection.sendall(struct.pack(">II", 100_000, 90_000))
    while True:
        connection.sendall(b"\0")
        try:
            if not connection.recv(1 << 16):
                return
        except TimeoutError:
            continue


def command(kind, **fields):
    return encode_command(pb.BaseCommand(type=kind, **fields))


CONNECTED = command(
    pb.BaseCommand.CONNECTED, connected=pb.CommandConnected(server_version="fake", protocol_version=21)
)

HANDSHAKES: dict[str, Talk] = {
    "silence": silent,
    "close": closes,
    "reset": resets,
    "drip": drips,
    "http": says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "garbage": says(random.Random(7).randbytes(5000)),
    "zeros": says(bytes(1000)),
    "huge frame": says(struct.pack(">II", 0xFFFFFFFF, 10)),
    "frame over the limit": says(struct.pack(">I", 5 * 1024 * 1024 + 10 * 1024 + 1)),
    "command longer than its frame": says(struct.pack(">II", 8, 100) + b"abcd"),
    "no protobuf": says(struct.pack(">II", 8, 4) + b"\xff\xff\xff\xff"),
    "type without body": says(struct.pack(">II", 6, 2) + b"\x08\x03"),
    "unknown type": says(struct.pack(">II", 7, 3) + b"\x08\xc8\x01"),
    "half of CONNECTED": says(CONNECTED[:-3]),
    "CONNECTED twice": says(CONNECTED + CONNECTED),
    "a receipt before CONNECTED": says(
        command(pb.BaseCommand.SEND_RECEIPT, send_receipt=pb.CommandSendReceipt(producer_id=1, sequence_id=1))
    ),
    "an error before CONNECTED": says(
        command(
            pb.BaseCommand.ERROR,
            error=pb.CommandError(request_id=(1 << 64) - 1, error=pb.AuthenticationError, message="no"),
        )
    ),
    "silence after CONNECTED": says(CONNECTED),
    "close after CONNECTED": lambda connection: connection.sendall(CONNECTED),
    "garbage after CONNECTED": says(CONNECTED + b"\xff" * 100),
    "an unknown error code": says(
        CONNECTED
        + command(
            pb.BaseCommand.ERROR,
            error=pb.CommandError(request_id=0, error=pb.UnknownError, message="line 1\nline 2"),
        )
    ),
}

OPERATIONS: dict[str, Callable[[Client], object]] = {
    "partitions": lambda client: client.partitions(TOPIC),
    "consumer": lambda client: Consumer(client, TOPIC, SubscriptionOptions(name="s", durable=False)),
    "writer": lambda client: TopicWriter(client, TOPIC, ProducerOptions()),
}


# What is asked for matters only where the handshake succeeds.
@pytest.mark.parametrize(
    ("talk", "operation"),
    [
        (talk, operation)
        for talk in HANDSHAKES
        for operation in (
            OPERATIONS if "after CONNECTED" in talk or "unknown error" in talk else ["partitions"]
        )
    ],
)
def test_is_a_coded_error_in_time(talk, operation):
    with Server(HANDSHAKES[talk]) as server:
        options = ClientOptions(service_url=server.url, operation_timeout=0.4, connection_timeout=0.2)
        with Client(options) as client, promptly(15.0), pytest.raises(PulsarError) as caught:
            OPERATIONS[operation](client)
        assert str(caught.value).startswith("[PULSAR_")
        assert "\n" not in str(caught.value)
        assert server.connections >= 1
