"""Peers that never come to an end: how often they are asked, and what they hold up, is bounded.

Each case is one peer on a socket of this machine: a broker that redirects, challenges or closes again and
again, an admin service whose answer is mostly structure, and clients of the monitoring page that send
nothing.
"""

from __future__ import annotations

import http.client
import resource
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from integration.hostile.frames import UndocumentedError
from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Credentials,
    Deadline,
    HttpAnswer,
    PageServer,
    SubscriptionOptions,
)
from pulsar_spark.client.net.http import MAX_ANSWER, parse_json
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.frames import FrameReader, encode_command

_TOPIC = TopicName.parse("persistent://a/b/t")
_READER = SubscriptionOptions(name="r", durable=False)
_JSON_MEMORY = 200 << 20  # bytes
_CLOSES_WITHIN = 2.0  # seconds

Reply = Callable[[pb.BaseCommand, "Peer"], bytes]


def run(seconds: float) -> Iterator[int]:
    """Let each peer have a client for so long; gives how many have had one.

    Raises:
        UndocumentedError: a bound does not hold; the text has the figures.
    """
    for number, case in enumerate((_redirects, _challenges, _message_and_end, _structure, _slow_clients), 1):
        case(seconds)
        yield number


def _check(what: str, found: float, least: float, most: float) -> None:
    if not least <= found <= most:
        raise UndocumentedError(f"{what}: {found:g}, which is not from {least:g} to {most:g}")


# ---- brokers


class Peer:
    """A broker: it answers each command by a function, and counts them.

    Attributes:
        seen: how many commands of each type have come.
    """

    def __init__(self, reply: Reply) -> None:
        self.seen: Counter[int] = Counter()
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Close all connections, and wait for their threads."""
        for each in (self._listener, *self._connections):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join()

    def send(self, data: bytes) -> None:
        """Send to all clients."""
        for each in self._connections:
            try:
                each.sendall(data)
            except OSError:
                continue

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    opened, _ = self._listener.accept()
                except OSError:
                    return
                self._connections.append(opened)
                self._threads.append(threading.Thread(target=self._serve, args=(opened,)))
                self._threads[-1].start()

    def _serve(self, opened: socket.socket) -> None:
        reader = FrameReader()
        with opened, suppress(OSError):
            while data := opened.recv(1 << 16):
                for frame in reader.feed(data):
                    command: pb.BaseCommand = frame.command
                    self.seen[command.type] += 1
                    opened.sendall(self._reply(command, self))


@contextmanager
def _client_of(reply: Reply, **options: object) -> Iterator[tuple[Client, Peer]]:
    peer = Peer(reply)
    try:
        with Client(ClientOptions(service_url=peer.url, **options)) as client:  # type: ignore[arg-type]
            yield client, peer
    finally:
        peer.close()


def _usual(command: pb.BaseCommand, peer: Peer) -> bytes:
    kind = pb.BaseCommand
    if command.type == kind.CONNECT:
        return encode_command(pb.BaseCommand(type=kind.CONNECTED, connected={"server_version": "4"}))
    if command.type == kind.LOOKUP:
        return _lookup(command, peer, pb.CommandLookupTopicResponse.Connect)
    if command.type in (kind.SUBSCRIBE, kind.CLOSE_CONSUMER):
        asked = command.subscribe if command.type == kind.SUBSCRIBE else command.close_consumer
        answer = {"request_id": asked.request_id}
        return encode_command(pb.BaseCommand(type=kind.SUCCESS, success=answer))
    return b""


def _lookup(command: pb.BaseCommand, peer: Peer, response: int) -> bytes:
    answer = {
        "request_id": command.lookupTopic.request_id,
        "response": response,
        "brokerServiceUrl": peer.url,
    }
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


def _redirects(seconds: float) -> None:
    def reply(command: pb.BaseCommand, peer: Peer) -> bytes:
        if command.type == pb.BaseCommand.LOOKUP:
            return _lookup(command, peer, pb.CommandLookupTopicResponse.Redirect)
        return _usual(command, peer)

    with _client_of(reply, operation_timeout=seconds) as (client, peer):
        try:
            Consumer(client, _TOPIC, _READER)
        except PulsarError:
            _check("lookups that are redirected", peer.seen[pb.BaseCommand.LOOKUP], 3, 12 + seconds)


def _challenges(seconds: float) -> None:
    challenge = encode_command(pb.BaseCommand(type=pb.BaseCommand.AUTH_CHALLENGE, authChallenge={}))
    with _client_of(_usual, credentials=Credentials("token", "t")) as (client, peer):
        client.check()
        until = Deadline(seconds)
        while not until.passed:
            peer.send(challenge * 100)
            time.sleep(0.01)
        _check("logins after challenges", peer.seen[pb.BaseCommand.AUTH_RESPONSE], 1, 2 + seconds)


def _message_and_end(seconds: float) -> None:
    entries = iter(range(10**9))

    def reply(command: pb.BaseCommand, peer: Peer) -> bytes:
        if command.type != pb.BaseCommand.FLOW:
            return _usual(command, peer)
        consumer = command.flow.consumer_id
        end = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
        end.close_consumer.consumer_id, end.close_consumer.request_id = consumer, 2**64 - 1
        return _message(consumer, next(entries)) + encode_command(end)

    with _client_of(reply) as (client, peer):
        consumer = Consumer(client, _TOPIC, _READER, Permits(1))
        until, patience = Deadline(seconds), Deadline(30)
        # A busy machine may do less than three in the time that a short run has.
        while not until.passed or (peer.seen[pb.BaseCommand.SUBSCRIBE] < 3 and not patience.passed):
            try:
                consumer.receive(Deadline(seconds), 1)
            except PulsarError:
                break
        subscribed = peer.seen[pb.BaseCommand.SUBSCRIBE]
        peer.close()
        consumer.close()
    _check("subscriptions that end after a message", subscribed, 3, 22 + 4 * seconds)


def _message(consumer: int, entry: int) -> bytes:
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=entry, publish_time=1).SerializeToString()
    checked = struct.pack(">I", len(metadata)) + metadata + b"value"
    section = b"\x0e\x01" + struct.pack(">I", crc32c(checked)) + checked
    message = {"consumer_id": consumer, "message_id": {"ledgerId": 1, "entryId": entry}}
    head = encode_command(pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message), len(section))
    return head + section


# ---- HTTP


def _structure(_: float) -> None:
    """Answers of an admin service that are much larger as objects than as text."""
    for item in (b"[],", b'{"":0},', b"[[1.5,{}],257],", b'"ab",'):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            parse_json(b"[" + item * (MAX_ANSWER // len(item)) + b"0]")
        except ValueError:
            pass
        else:
            raise UndocumentedError(f"an answer of {item!r} is parsed")
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        _check(f"bytes that an answer of {item!r} takes", taken, 0, _JSON_MEMORY)


def _slow_clients(seconds: float) -> None:
    server = PageServer(lambda path: HttpAnswer("text/plain", path.encode()), "127.0.0.1", 0)
    address = server.url.split("/")[2]
    with ExitStack() as stack:
        host, _, port = address.partition(":")
        clients = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10)) for _ in range(300)
        ]
        until = Deadline(seconds)
        while not until.passed:
            for dripping in clients[-10:]:
                try:
                    dripping.sendall(b"G")
                except OSError:
                    continue
            time.sleep(0.05)
            began = time.monotonic()
            connection = http.client.HTTPConnection(address, timeout=10)
            connection.request("GET", "/metrics")
            _check("status of the page among slow clients", connection.getresponse().status, 200, 200)
            connection.close()
            _check("seconds for the page among slow clients", time.monotonic() - began, 0, 2.0)
        began = time.monotonic()
        server.close()
        _check("seconds to close the page's server", time.monotonic() - began, 0, _CLOSES_WITHIN)
