"""A proxy as clients see Pulsar's own: TLS in front, plain text behind, and look-ups that name the proxy.

Pulsar's own (`pulsar_proxy`) has jars of its own, and tells nobody what it was asked. Like it this one takes
a connection whose CONNECT names a broker to that broker, and answers the look-ups of the others with
`proxy_through_service_url`; all else it passes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import threading
from types import TracebackType

from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_command


class LookupProxy:
    """Stands in front of one broker; a context manager.

    Attributes:
        service_url: what clients use.
        named: the brokers that were named in CONNECT, one for each connection; "" for those without.
    """

    def __init__(self, broker_url: str, context: ssl.SSLContext | None = None) -> None:
        """Forward to `broker_url`; with `context` clients have to speak TLS."""
        self._broker = broker_url.partition("://")[2]
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.service_url = ""
        self.named: list[str] = []

    def __enter__(self) -> LookupProxy:
        self._thread.start()
        opening = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        server = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        port = server.sockets[0].getsockname()[1]
        self.service_url = f"pulsar{'' if self._context is None else '+ssl'}://127.0.0.1:{port}"
        self._server = server
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError), contextlib.closing(writer):
            command = _command(await _frame(reader))
            broker = command.connect.proxy_to_broker_url
            self.named.append(broker)
            command.connect.ClearField("proxy_to_broker_url")
            host, _, port = (broker or self._broker).rpartition(":")
            from_broker, to_broker = await asyncio.open_connection(host, int(port))
            with contextlib.closing(to_broker):
                to_broker.write(encode_command(command))
                both = (
                    asyncio.ensure_future(_pass_on(reader, to_broker)),
                    asyncio.ensure_future(_pass_on(from_broker, writer, answers=not broker)),
                )
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for each in both:
                    each.cancel()


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
