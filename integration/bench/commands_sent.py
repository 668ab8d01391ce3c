"""Which commands this process's clients send: each frame is counted by its type when it is put to go out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.protocol.connection import OutgoingQueue, SendMark
from pulsar_spark.wire import pulsar_pb2 as pb

_UNCONFIRMED_ACK = "ACK without receipt"
# Brokers send nothing back to these.
UNANSWERED = ("FLOW", "PING", "PONG", _UNCONFIRMED_ACK)


@contextmanager
def counted_commands() -> Iterator[Counter[str]]:
    """Count all frames by the names of their types, such as ``FLOW``, until the end; see also UNANSWERED."""
    found: Counter[str] = Counter()
    lock = threading.Lock()
    put, put_urgent = OutgoingQueue.put, OutgoingQueue.put_urgent

    def take(buffers: Sequence[Buffer]) -> None:
        data, start = b"".join(buffers), 0
        while start < len(data):
            size, length = (int.from_bytes(data[at : at + 4], "big") for at in (start, start + 4))
            command = pb.BaseCommand.FromString(data[start + 8 : start + 8 + length])
            name = pb.BaseCommand.Type.Name(command.type)
            if command.HasField("ack") and not command.ack.HasField("request_id"):
                name = _UNCONFIRMED_ACK
            with lock:
                found[name] += 1
            start += 4 + size

    def counting_put(self: OutgoingQueue, buffers: Sequence[Buffer], mark: SendMark | None = None) -> None:
        take(buffers)
        put(self, buffers, mark)

    def counting_put_urgent(self: OutgoingQueue, frame: bytes) -> None:
        take([frame])
        put_urgent(self, frame)

    OutgoingQueue.put, OutgoingQueue.put_urgent = counting_put, counting_put_urgent  # type: ignore[method-assign]
    try:
        yield found
    finally:
        OutgoingQueue.put, OutgoingQueue.put_urgent = put, put_urgent  # type: ignore[method-assign]
