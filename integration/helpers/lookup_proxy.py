"""A proxy as clients see Pulsar's own: TLS in front, plain text behind, and lookups that name the proxy.

Pulsar's own (`pulsar_proxy`) has jars of its own, and tells nobody what it was asked. Like it this one takes
a connection whose CONNECT names a broker to that broker, and answers the lookups of the others with
`proxy_through_service_url`; all else it passes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct

from integration.helpers.relay import Relay, until_one_ends
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_command


class LookupProxy(Relay):
    """Stands in front of one broker; a context manager.

    Attributes:
        service_url: what clients use.
        named: the brokers that were named in CONNECT, one for each connection; "" for those without.
    """

    def __init__(self, broker_url: str, context: ssl.SSLContext | None = None) -> None:
        """Forward to `broker_url`; with `context` clients have to speak TLS."""
        super().__init__(is_tls=context is not None, context=context)
        self._broker = broker_url.partition("://")[2]
        self.named: list[str] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on to the broker that CONNECT names, or to the one that this stands in front of."""
        command = _command(await _frame(reader))
        broker = command.connect.proxy_to_broker_url
        self.named.append(broker)
        command.connect.ClearField("proxy_to_broker_url")
        host, _, port = (broker or self._broker).rpartition(":")
        from_broker, to_broker = await asyncio.open_connection(host, int(port))
        with contextlib.closing(to_broker):
            to_broker.write(encode_command(command))
            await until_one_ends(
                _pass_on(reader, to_broker), _pass_on(from_broker, writer, answers=not broker)
            )


async def _pass_on(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool = False
) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            frame = await _frame(source)
            target.write(_sent_back(frame) if answers else frame)
            await target.drain()


def _sent_back(frame: bytes) -> bytes:
    command = _command(frame)
    if command.type != pb.BaseCommand.LOOKUP_RESPONSE:
        return frame
    response = command.lookupTopicResponse
    # The proxy names the broker as it reaches it itself, whatever the client speaks.
    response.brokerServiceUrlTls = response.brokerServiceUrl
    response.proxy_through_service_url = True
    return encode_command(command)


async def _frame(source: asyncio.StreamReader) -> bytes:
    head = await source.readexactly(4)
    return head + await source.readexactly(struct.unpack(">I", head)[0])


def _command(frame: bytes) -> pb.BaseCommand:
    (size,) = struct.unpack_from(">I", frame, 4)
    return pb.BaseCommand.FromString(frame[8 : 8 + size])
