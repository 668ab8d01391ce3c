"""A proxy before one broker that takes away requests of one kind about one topic, or all of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import struct

from integration.helpers.relay import Relay, until_one_ends
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_command

# The requests, and the field of the command that has what they say.
REQUESTS = {
    "ACK": "ack",
    "SUBSCRIBE": "subscribe",
    "GET_LAST_MESSAGE_ID": "getLastMessageId",
    "LOOKUP": "lookupTopic",
    "PARTITIONED_METADATA": "partitionMetadata",
}


class SilentProxy(Relay):
    """Passes on all else, and names itself in the answers to lookups; a context manager.

    Attributes:
        service_url: what clients use.
        unanswered: how many requests were taken away that brokers answer.
    """

    def __init__(self, broker_url: str) -> None:
        """Stand before the broker at `broker_url`."""
        super().__init__(is_tls=False)
        self._host, _, self._port = broker_url.partition("://")[2].rpartition(":")
        self._silenced: tuple[str, str] | None = None
        self._connections = self._silent = 0  # how many there were, and the first ones that are silent
        self.unanswered = 0

    def silence(self, request: str, topic: str) -> None:
        """Answer no such request about a topic partition (of PARTITIONED_METADATA: a topic) from now on."""
        self._silenced = request, topic

    def fall_silent(self) -> None:
        """Pass nothing on from now on, on the connections that there are; they stay open."""
        self._silent = self._connections

    def answer_all(self) -> None:
        """Pass all requests on from now on; those that were taken away are never answered."""
        self._silenced = None

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what one client and the broker say."""
        self._connections += 1
        number = self._connections
        from_broker, to_broker = await asyncio.open_connection(self._host, int(self._port))
        with contextlib.closing(to_broker):
            await until_one_ends(
                self._requests(number, reader, to_broker), self._answers(number, from_broker, writer)
            )

    async def _requests(
        self, number: int, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        topics: dict[int, str] = {}  # by consumer
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = await _frame(source)
                command = _command(frame)
                if command.HasField("subscribe"):
                    topics[command.subscribe.consumer_id] = command.subscribe.topic
                if number <= self._silent:
                    continue
                if self._is_silenced(command, topics):
                    self.unanswered += not command.HasField("ack") or command.ack.HasField("request_id")
                else:
                    target.write(frame)
                    await target.drain()

    def _is_silenced(self, command: pb.BaseCommand, topics: dict[int, str]) -> bool:
        if self._silenced is None or not command.HasField(REQUESTS[self._silenced[0]]):
            return False
        request, topic = self._silenced
        body = getattr(command, REQUESTS[request])
        asked = body.topic if "topic" in body.DESCRIPTOR.fields_by_name else topics.get(body.consumer_id)
        return bool(asked == topic)

    async def _answers(self, number: int, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = await _frame(source)
                if number <= self._silent:
                    continue
                command = _command(frame)
                if command.HasField("lookupTopicResponse"):
                    command.lookupTopicResponse.brokerServiceUrl = self.service_url
                    frame = encode_command(command)
                target.write(frame)
                await target.drain()


async def _frame(source: asyncio.StreamReader) -> bytes:
    head = await source.readexactly(4)
    return head + await source.readexactly(struct.unpack(">I", head)[0])


def _command(frame: bytes) -> pb.BaseCommand:
    (size,) = struct.unpack_from(">I", frame, 4)
    return pb.BaseCommand.FromString(frame[8 : 8 + size])
