"""CPU a row of each stage of our code, in one process without a broker: where reading and writing spend it.

    python3 -m integration bench stages

A stage is measured alone, with what the stages before it have made; the best of a few times counts, so that
other load on the machine matters little. Freed memory is kept as in a worker that Spark reuses. What is sent
and received goes through a local TCP connection; the thread at its other end is not counted.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from integration.bench import shapes
from integration.bench.shapes import SHAPES, Shape
from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.client import Entries, ProducerOptions, RangeEntries
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.batcher import Batch, Batcher, stable_order
from pulsar_spark.protocol.writing.outgoing import Outgoing
from pulsar_spark.protocol.writing.packer import Packer
from pulsar_spark.protocol.writing.routing import Router
from pulsar_spark.spark.processes import keep_freed_memory
from pulsar_spark.spark.rows.read import record_batches
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.batches import encode_batch_messages
from pulsar_spark.wire.entry.codecs import compress
from pulsar_spark.wire.entry.entries import decode
from pulsar_spark.wire.frame_runs import Messages
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE, FrameReader, encode_command_head

_TOPIC = TopicName.parse("bench-partition-0")
_MEBIBYTES = 12  # of values
_RECEIVE_SIZE = 1 << 20
_BUFFERS = 64  # of one write
_TIMES = 9
_PARTITIONS = 4


class Stage(NamedTuple):
    """A part of reading or of writing.

    Attributes:
        name: of it.
        cpu: ns a row.
    """

    name: str
    cpu: float


def main() -> int:
    """Measure and print a table for each shape."""
    keep_freed_memory()
    for name in ("batched", "value", "lz4"):
        shape = SHAPES[name]
        if not shape.value_only:
            _print(f"write, {shape.title}", writing(shape))
        _print(f"read, {shape.title}", reading(shape))
    return 0


def writing(shape: Shape) -> list[Stage]:
    """From columns to bytes on a socket."""
    count = _count(shape)
    chunks = list(shapes.chunks(shape, count))
    parts = [_router().route(columns, columns.key, _PARTITIONS, 0.0) for columns in chunks]
    encoded = [encode_batch_messages(columns) for columns in chunks]
    batches = _cut(shape, encoded)
    payloads = [b"".join(batch.parts) for batch in batches]
    outgoing = list(_packed(shape, batches))

    def encode_each() -> None:
        """Memory of each result is freed before the next, as once it is sent."""
        for columns, part in zip(chunks, parts, strict=True):
            encode_batch_messages(columns, order=stable_order(part))

    stages = [
        _stage(
            "route",
            count,
            lambda: [_router().route(columns, columns.key, _PARTITIONS, 0.0) for columns in chunks],
        ),
        _stage("encode, sorted by partition", count, encode_each),
        _stage("cut batches", count, lambda: _cut(shape, encoded)),
    ]
    packed = _stage("metadata and checksum", count, lambda: list(_packed(shape, batches)))
    if shape.lz4:
        compressed = _stage("compress", count, lambda: [compress(pb.LZ4, payload) for payload in payloads])
        stages.append(compressed)
        packed = packed._replace(cpu=max(0.0, packed.cpu - compressed.cpu))
    buffers = [part for entry in outgoing for part in (entry.head, entry.payload)]
    return [*stages, packed, Stage("send", _send(buffers, count))]


def reading(shape: Shape) -> list[Stage]:
    """From bytes on a socket to record batches."""
    count = _count(shape)
    data = b"".join(_frames(_packed(shape, _batches(shape))))
    pieces = [data[at : at + _RECEIVE_SIZE] for at in range(0, len(data), _RECEIVE_SIZE)]
    messages = _messages(pieces)
    entries = decode(messages).entries
    columns = shapes.row_columns(shape)

    def rows() -> int:
        return sum(
            batch.num_rows
            for batch in record_batches([RangeEntries(_TOPIC, _groups(entries))], columns=columns)
        )

    assert rows() == count
    return [
        Stage("receive", _receive(data, count)),
        _stage("cut frames", count, lambda: _messages(pieces)),
        _stage("checksum and metadata", count, lambda: decode(messages)),
        _stage("decompress, decode, columns" if shape.lz4 else "decode, columns", count, rows),
    ]


def _print(title: str, stages: Sequence[Stage]) -> None:
    print(f"\n{title}: ns of CPU a row")
    for stage in [*stages, Stage("together", sum(stage.cpu for stage in stages))]:
        print(f"  {stage.name:40} {stage.cpu:7.0f}", flush=True)


def _count(shape: Shape) -> int:
    return (_MEBIBYTES << 20) // shape.size


def _stage(name: str, count: int, call: Callable[[], object]) -> Stage:
    best = float("inf")
    for _ in range(_TIMES):
        began = time.thread_time()
        call()
        best = min(best, time.thread_time() - began)
    return Stage(name, best / count * 1e9)


def _router() -> Router:
    options = ProducerOptions()
    return Router(
        options.routing_mode, options.hashing_scheme, None, start=0, block=shapes.CHUNK, switch_after=None
    )


def _batches(shape: Shape) -> list[Batch]:
    return _cut(shape, [encode_batch_messages(columns) for columns in shapes.chunks(shape, _count(shape))])


def _cut(shape: Shape, encoded: Sequence[EncodedMessages]) -> list[Batch]:
    options = shapes.producer_options(shape)
    batcher = Batcher(options.batching_max_messages, options.batching_max_bytes, 1.0)
    closed = [batch for each in encoded for batch in batcher.add(each.buffer, each.offsets, 0.0)]
    return closed + batcher.take()


def _packed(shape: Shape, batches: Sequence[Batch]) -> Iterator[Outgoing]:
    kind = pb.LZ4 if shape.lz4 else pb.NONE
    packer = Packer(str(_TOPIC), kind, chunking=False, chunk_max_message_size=None)
    packer.producer_name, packer.max_message_size = "bench", DEFAULT_MAX_MESSAGE_SIZE
    return (packer.batch(batch, 1_700_000_000_000) for batch in batches)


def _frames(entries: Iterator[Outgoing]) -> Iterator[bytes]:
    """MESSAGE commands as a broker sends them."""
    for number, entry in enumerate(entries):
        place = pb.MessageIdData(ledgerId=7, entryId=number, partition=0)
        command = pb.BaseCommand(
            type=pb.BaseCommand.MESSAGE, message=pb.CommandMessage(consumer_id=1, message_id=place)
        )
        section = entry.head + bytes(entry.payload)
        yield encode_command_head(command, len(section)) + section


def _messages(pieces: Sequence[bytes]) -> list[Messages]:
    reader = FrameReader()
    found = [frame for piece in pieces for frame in reader.feed(piece)]
    return [frame for frame in found if isinstance(frame, Messages)]


def _groups(entries: Entries) -> Iterator[Entries]:
    """As a consumer gives them: about a megabyte together."""
    each = max(1, len(entries) // _MEBIBYTES)
    for first in range(0, len(entries), each):
        yield entries[first : first + each]


def _send(buffers: Sequence[Buffer], count: int) -> float:
    """CPU of writing, ns a row."""

    def call(ours: socket.socket) -> None:
        for first in range(0, len(buffers), _BUFFERS):
            _send_all(ours, buffers[first : first + _BUFFERS])

    return _beside(call, _drain, count)


def _receive(data: bytes, count: int) -> float:
    """CPU of reading, ns a row."""

    def call(ours: socket.socket) -> None:
        left = len(data)
        while left:
            left -= len(ours.recv(_RECEIVE_SIZE))

    return _beside(call, lambda theirs: theirs.sendall(data), count)


def _send_all(ours: socket.socket, buffers: Sequence[Buffer]) -> None:
    left = [memoryview(each).cast("B") for each in buffers]
    while left:
        sent = ours.sendmsg(left)
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if left:
            left[0] = left[0][sent:]


def _drain(theirs: socket.socket) -> None:
    while theirs.recv(_RECEIVE_SIZE):
        pass


def _beside(
    call: Callable[[socket.socket], None], other: Callable[[socket.socket], None], count: int
) -> float:
    best = float("inf")
    for _ in range(_TIMES):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        with theirs:
            thread = threading.Thread(target=other, args=(theirs,))
            thread.start()
            with ours:
                began = time.thread_time()
                call(ours)
                best = min(best, time.thread_time() - began)
            thread.join()
    return best / count * 1e9
