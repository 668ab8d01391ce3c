"""A blocking connection that sends whatever a test wants: entries with any metadata, any command.

with RawConnection(cluster.service_url) as connection:
    producer = RawProducer(connection, topic)
    producer.send(b"part", uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=8)
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from queue import SimpleQueue
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import commands, wire_values
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entry
from pulsar_spark.wire.frame_runs import Receipts
from pulsar_spark.wire.frames import (
    Frame,
    FrameReader,
    Received,
    encode_command,
    encode_section_head,
)

_TIMEOUT = 60.0


class RawConnection:
    """One TCP connection, on which one request at a time is asked and answered.

    A thread answers pings: the broker closes a connection that is silent for a minute.
    """

    def __init__(self, service_url: str) -> None:
        address = urlsplit(service_url)
        self._socket = socket.create_connection((address.hostname, address.port or 6650), _TIMEOUT)
        self._socket.settimeout(None)
        self._sending = threading.Lock()
        self._reader = FrameReader()
        self._commands: SimpleQueue[pb.BaseCommand | OSError] = SimpleQueue()
        self._ids = itertools.count(1)
        self._receiving = threading.Thread(target=self._receive)
        self._receiving.start()
        connected = self.exchange(commands.connect("raw")).connected
        self._reader.max_message_size = connected.max_message_size

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the broker may have closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._receiving.join()
        self._socket.close()

    def new_id(self) -> int:
        """An id for a request or a producer."""
        return next(self._ids)

    def ask(self, request: pb.BaseCommand) -> pb.BaseCommand:
        """Send a command without payload and return its answer; see :meth:`exchange`."""
        return self.exchange(encode_command(request))

    def exchange(self, *frame: Buffer) -> pb.BaseCommand:
        """Send a frame and return the next command that comes, but for pings.

        Raises:
            RuntimeError: it is an error, or holds one.
            ConnectionError: the broker closed the connection.
        """
        self._send(b"".join(frame))
        command = self._commands.get(timeout=_TIMEOUT)
        if isinstance(command, OSError):
            raise command
        _, body = command.ListFields()[-1]
        if command.type == pb.BaseCommand.ERROR or (
            "error" in body.DESCRIPTOR.fields_by_name and body.HasField("error")
        ):
            raise RuntimeError(f"{pb.ServerError.Name(body.error)}: {body.message}")
        return command

    def look_up(self, topic: str) -> None:
        """Make the broker own a topic: it refuses what concerns one that was not looked up."""
        self.exchange(commands.lookup(self.new_id(), topic, authoritative=False))

    def _send(self, data: bytes) -> None:
        with self._sending:  # a pong must not come into the middle of a frame
            self._socket.sendall(data)

    def _receive(self) -> None:
        try:
            while data := self._socket.recv(1 << 16):
                for command in map(_command_of, self._reader.feed(data)):
                    if command.type == pb.BaseCommand.PING:
                        self._send(commands.pong())
                    else:
                        self._commands.put(command)
            self._commands.put(ConnectionError("the broker closed the connection"))
        except OSError as error:
            self._commands.put(error)


def _command_of(frame: Received) -> pb.BaseCommand:
    if isinstance(frame, Receipts):  # one, as one request is open at a time
        (sequence_id,), (ledger,), (entry,) = frame[1:]
        receipt = pb.CommandSendReceipt(
            producer_id=frame.producer_id,
            sequence_id=sequence_id,
            message_id=wire_values.to_wire_id(MessageId(ledger, entry)),
        )
        return pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt)
    assert isinstance(frame, Frame)  # there are no consumers
    return frame.command


class RawProducer:
    """Writes entries with the metadata that a test wants, and waits for each receipt."""

    def __init__(self, connection: RawConnection, topic: str, name: str | None = None) -> None:
        self._connection = connection
        self._id = connection.new_id()
        self._sequence_ids = itertools.count()
        connection.look_up(topic)
        answer = connection.exchange(commands.producer(connection.new_id(), self._id, topic, name, 0))
        self.name: str = answer.producer_success.producer_name

    def close(self) -> None:
        """Let others use the name."""
        self._connection.exchange(commands.close_producer(self._id, self._connection.new_id()))

    def send(
        self, payload: bytes, *, txn: tuple[int, int] | None = None, after: bytes = b"", **fields: Any
    ) -> MessageId:
        """Write one entry.

        Args:
            payload: as it is to be stored.
            txn: most and least bits of the transaction that it belongs to.
            after: bytes at the end of the metadata.
            fields: of MessageMetadata; what is required is set where it is not among them. Texts may be str.
        """
        sequence_id = next(self._sequence_ids)
        usual: dict[str, Any] = {
            "producer_name": self.name,
            "sequence_id": sequence_id,
            "publish_time": int(time.time() * 1000),
            "uncompressed_size": len(payload),
        }
        wanted: dict[str, Any] = {
            name: value.encode() if isinstance(value, str) else value
            for name, value in (usual | fields).items()
        }
        metadata = pb.MessageMetadata(**wanted)
        send = commands.send(self._id, (sequence_id, sequence_id), 1)
        if txn is not None:
            for place in (metadata, send.send):
                place.txnid_most_bits, place.txnid_least_bits = txn
        return self._exchange(send, metadata.SerializeToString() + after, payload)

    def copy(self, entry: Entry, sequence_id: int) -> MessageId:
        """Write an entry again as it is, with fields that nobody knows, but with another sequence id."""
        metadata = pb.MessageMetadata()
        metadata.CopyFrom(entry.metadata)
        metadata.sequence_id, ids = sequence_id, (sequence_id, sequence_id)
        if metadata.HasField("highest_sequence_id"):
            count = metadata.num_messages_in_batch
            metadata.highest_sequence_id, ids = (
                sequence_id + count - 1,
                (sequence_id, sequence_id + count - 1),
            )
        return self._exchange(commands.send(self._id, ids, 1), metadata.SerializeToString(), entry.payload)

    def _exchange(self, send: pb.BaseCommand, metadata: bytes, payload: Buffer) -> MessageId:
        head = encode_section_head(metadata, payload)
        frame_head = encode_command(send, len(head) + len(payload))
        answer = self._connection.exchange(frame_head, head, payload)
        if not answer.HasField("send_receipt"):
            raise RuntimeError(f"no receipt: {answer}")
        return wire_values.from_wire_id(answer.send_receipt.message_id)
