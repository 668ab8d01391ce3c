"""Proxies that choose a server for each connection, or change and remove commands."""

from __future__ import annotations

import ssl
import struct
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass

from integration.helpers.proxy import Direction, Proxy
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_command

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _SUPPORTED_VERSIONS = 22, 1, 0, 43


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What a client says first.

    Attributes:
        host: the name of the server; "" without one.
        suites: the codes of the cipher suites that it offers.
        versions: of TLS, such as 0x0303 for 1.2; none where it has no list of them.
    """

    host: str
    suites: tuple[int, ...]
    versions: tuple[int, ...]


class SniProxy(Proxy):
    """Passes on the connections whose TLS names one host, and reads no further; others are closed.

    Apache Traffic Server, HAProxy and Envoy do so in front of Kubernetes and at the edge of networks.

    Attributes:
        seen: what was said in each connection, in their order.
    """

    def __init__(self, host: str, target: str) -> None:
        super().__init__(target)
        self._host = host
        self.seen: list[ClientHello] = []

    async def route(self, source: StreamReader, number: int) -> tuple[tuple[str, int], bytes] | None:
        head = await source.readexactly(5)
        kind, _, size = struct.unpack(">BHH", head)
        if kind != _HANDSHAKE:
            return None
        record = await source.readexactly(size)
        self.seen.append(_parsed(record))
        return (self._target, head + record) if self.seen[-1].host == self._host else None


def _parsed(record: bytes) -> ClientHello:
    """A ClientHello that is one record, as those of OpenSSL are (RFC 8446, 4.1.2)."""
    assert record[0] == _CLIENT_HELLO
    at = 4 + 2 + 32  # type and length, version, random
    at += 1 + record[at]  # session id
    (size,) = struct.unpack_from(">H", record, at)
    suites = struct.unpack_from(f">{size // 2}H", record, at + 2)
    at += 2 + size
    at += 1 + record[at]  # compression
    host, versions = "", ()
    at += 2
    while at < len(record):
        kind, size = struct.unpack_from(">HH", record, at)
        body = record[at + 4 : at + 4 + size]
        if kind == _SERVER_NAME:
            host = body[5:].decode()
        elif kind == _SUPPORTED_VERSIONS:
            versions = struct.unpack_from(f">{body[0] // 2}H", body, 1)
        at += 4 + size
    return ClientHello(host, suites, versions)


class _CommandProxy(Proxy):
    """Passes on frame by frame."""

    async def read(self, source: StreamReader) -> bytes:
        try:
            head = await source.readexactly(4)
            return head + await source.readexactly(struct.unpack(">I", head)[0])
        except IncompleteReadError:
            return b""


def _command(frame: bytes) -> pb.BaseCommand:
    (size,) = struct.unpack_from(">I", frame, 4)
    return pb.BaseCommand.FromString(frame[8 : 8 + size])


class LookupProxy(_CommandProxy):
    """A proxy as clients see Pulsar's own: TLS in front, plain text behind, and lookups that name the proxy.

    Pulsar's own (`pulsar_proxy`) does not report what it was asked. Like it, this proxy takes a connection
    whose CONNECT names a broker to that broker, and answers the lookups of other connections with
    `proxy_through_service_url`; it passes on everything else.
    """

    def __init__(self, broker_url: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__(broker_url, context=context)
        self._named: dict[int, str] = {}

    @property
    def named(self) -> list[str]:
        """The brokers that were named in CONNECT, one for each connection; "" for those without."""
        return list(self._named.values())

    async def route(self, source: StreamReader, number: int) -> tuple[tuple[str, int], bytes] | None:
        frame = await self.read(source)
        if not frame:  # the client has gone
            return None
        command = _command(frame)
        broker = self._named[number] = command.connect.proxy_to_broker_url
        command.connect.ClearField("proxy_to_broker_url")
        host, _, port = broker.rpartition(":")
        return (host, int(port)) if broker else self._target, encode_command(command)

    def change(self, data: bytes, direction: Direction, number: int) -> bytes:
        if direction is Direction.TO_BROKER or self._named[number]:
            return data
        command = _command(data)
        if command.type != pb.BaseCommand.LOOKUP_RESPONSE:
            return data
        response = command.lookupTopicResponse
        # The proxy names the broker as it reaches it itself, whatever the client speaks.
        response.brokerServiceUrlTls = response.brokerServiceUrl
        response.proxy_through_service_url = True
        return encode_command(command)


# The requests that SilentProxy takes away, and the field of the command that has what they say.
REQUESTS = {
    "ACK": "ack",
    "SUBSCRIBE": "subscribe",
    "GET_LAST_MESSAGE_ID": "getLastMessageId",
    "LOOKUP": "lookupTopic",
    "PARTITIONED_METADATA": "partitionMetadata",
}


class SilentProxy(_CommandProxy):
    """Takes away requests of one kind about one topic, or all of a connection; lookups name the proxy.

    Attributes:
        unanswered: how many requests were taken away that brokers answer.
    """

    def __init__(self, broker_url: str) -> None:
        super().__init__(broker_url)
        self._silenced: tuple[str, str] | None = None
        self._silent = 0  # how many of the first connections are silent
        self._topics: dict[tuple[int, int], str] = {}  # by connection and consumer
        self.unanswered = 0

    def silence(self, request: str, topic: str) -> None:
        """Answer no such request about a topic partition (of PARTITIONED_METADATA: a topic) from now on."""
        self._silenced = request, topic

    def fall_silent(self) -> None:
        """Pass nothing on from now on, on the connections that there are; they stay open."""
        self._silent = self.connections

    def answer_all(self) -> None:
        """Pass all requests on from now on; those that were taken away are never answered."""
        self._silenced = None

    def change(self, data: bytes, direction: Direction, number: int) -> bytes:
        if number <= self._silent:
            return b""
        command = _command(data)
        if command.HasField("lookupTopicResponse"):
            command.lookupTopicResponse.brokerServiceUrl = self.service_url
            return encode_command(command)
        if command.HasField("subscribe"):
            self._topics[number, command.subscribe.consumer_id] = command.subscribe.topic
        if direction is Direction.TO_BROKER and self._is_silenced(command, number):
            self.unanswered += not command.HasField("ack") or command.ack.HasField("request_id")
            return b""
        return data

    def _is_silenced(self, command: pb.BaseCommand, number: int) -> bool:
        if self._silenced is None or not command.HasField(REQUESTS[self._silenced[0]]):
            return False
        request, topic = self._silenced
        body = getattr(command, REQUESTS[request])
        if "topic" in body.DESCRIPTOR.fields_by_name:
            return bool(body.topic == topic)
        return self._topics.get((number, body.consumer_id)) == topic
