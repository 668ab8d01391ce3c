"""The shapes of messages that are measured, made alike for Spark, for Arrow and for plain Python.

Value i is a slice of one log of orders in JSON, key i one of 10,000: cheap to make everywhere, so that what
is measured is the way of the messages, and compressible as such records are: LZ4 leaves about 40 %.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pulsar_spark.client import ProducerOptions
from pulsar_spark.spark.rows.schema import RowColumns
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.message_columns import MessageColumns

PARTITIONS = (1, 4)

_TEXT_SIZE = 256 * 1024
_STEP = 1021  # from value to value in the text, so that neighbours differ
_KEY_COUNT = 10_000
_KEY_SIZE = 8
CHUNK = 10_000
_REGION = ("region", "north")
_FIRST_EVENT = 1_700_000_000_000  # ms
_SENSOR = "sensor"  # the other property; its value is the key


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How messages look, how they are sent, and how many are measured.

    Attributes:
        name: as on the command line.
        title: as in the tables.
        size: bytes of a value.
        reads: messages in the topic that is read through Spark.
        writes: messages written through Spark.
        client_reads: messages that pulsar-client reads.
        client_writes: messages that pulsar-client writes.
        batching: whether messages share entries; the limits are the connector's defaults.
        lz4: whether entries are compressed.
        properties: whether each message has two.
        event_time: whether each message has one.
        value_only: whether nothing but values is read of them. Writing them is measured by another shape.
    """

    name: str
    title: str
    size: int
    reads: int
    writes: int
    client_reads: int
    client_writes: int
    batching: bool = True
    lz4: bool = False
    properties: bool = False
    event_time: bool = False
    value_only: bool = False

    def scaled(self, divisor: int) -> Shape:
        """The same shape with fewer messages."""
        return replace(
            self,
            reads=self.reads // divisor,
            writes=self.writes // divisor,
            client_reads=self.client_reads // divisor,
            client_writes=self.client_writes // divisor,
        )


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            name="batched",
            title="100 bytes, batched",
            size=100,
            reads=4_000_000,
            writes=2_500_000,
            client_reads=1_000_000,
            client_writes=800_000,
        ),
        Shape(
            name="value",
            title="100 bytes, batched, value only",
            size=100,
            value_only=True,
            reads=4_000_000,
            writes=2_500_000,
            client_reads=1_000_000,
            client_writes=800_000,
        ),
        Shape(
            name="whole",
            title="100 bytes, batched, 2 properties, event time",
            size=100,
            properties=True,
            event_time=True,
            reads=2_000_000,
            writes=1_500_000,
            client_reads=400_000,
            client_writes=400_000,
        ),
        Shape(
            name="lz4",
            title="1 KiB, LZ4",
            size=1024,
            lz4=True,
            reads=2_000_000,
            writes=2_000_000,
            client_reads=300_000,
            client_writes=300_000,
        ),
        Shape(
            name="lz4-whole",
            title="1 KiB, LZ4, 2 properties",
            size=1024,
            lz4=True,
            properties=True,
            reads=2_000_000,
            writes=1_000_000,
            client_reads=300_000,
            client_writes=300_000,
        ),
        Shape(
            name="unbatched",
            title="100 bytes, unbatched",
            size=100,
            batching=False,
            reads=1_200_000,
            writes=600_000,
            client_reads=200_000,
            client_writes=100_000,
        ),
    )
}


def _text() -> bytes:
    """Orders that differ in everything but their fields, always the same."""
    choice = random.Random(0)
    lines: list[str] = []
    while sum(map(len, lines)) < _TEXT_SIZE:
        order = {
            "time": f"2026-11-{choice.randint(1, 30):02d}T{choice.randint(0, 86_399_999):08d}Z",
            "order": f"{choice.getrandbits(64):016x}",
            "customer": choice.randint(1, 10_000_000),
            "site": choice.choice(("north", "south", "east", "west")),
            "status": choice.choice(("placed", "paid", "packed", "shipped")),
            "amount": round(choice.uniform(1, 500), 2),
            "currency": "EUR",
            "note": "".join(choice.choices(string.ascii_lowercase, k=20)),
        }
        lines.append(json.dumps(order) + "\n")
    return "".join(lines)[:_TEXT_SIZE].encode()


_TEXT = _text()
_KEYS = b"".join(b"key-%04d" % number for number in range(_KEY_COUNT))


def value(shape: Shape, row: int) -> bytes:
    """The value of message ``row``."""
    at = row * _STEP % (_TEXT_SIZE - shape.size)
    return _TEXT[at : at + shape.size]


def key(row: int) -> str:
    """The key of message ``row``."""
    return f"key-{row % _KEY_COUNT:04d}"


def event_time(row: int) -> int:
    """The event time of message ``row``, ms since 1970, for shapes that have one."""
    return _FIRST_EVENT + row


def properties(row: int) -> dict[str, str]:
    """The properties of message ``row``, for shapes that have them."""
    return dict((_REGION, (_SENSOR, key(row))))


def columns(shape: Shape, first: int, count: int) -> MessageColumns:
    """Messages ``first`` and on as Arrow columns."""
    rows = range(first, first + count)
    keys = [key(row) for row in rows]
    maps = None
    if shape.properties:
        names = pa.array([_REGION[0], _SENSOR] * count)
        items = pa.array([text for one in keys for text in (_REGION[1], one)])
        maps = pa.MapArray.from_arrays(pa.array(np.arange(0, 2 * count + 1, 2, dtype=np.int32)), names, items)
    values = pa.array([value(shape, row) for row in rows], pa.binary())
    times = pa.array([event_time(row) for row in rows], pa.int64()) if shape.event_time else None
    key_column = pa.array(keys).cast(pa.binary())
    return MessageColumns(value=values, key=key_column, properties=maps, event_time=times)


def chunks(shape: Shape, count: int) -> Iterator[MessageColumns]:
    """The first ``count`` messages, some thousands at a time, as Spark's sink gives them."""
    for first in range(0, count, CHUNK):
        yield columns(shape, first, min(CHUNK, count - first))


def rows_to_write(spark: SparkSession, shape: Shape, count: int, partitions: int) -> DataFrame:
    """The first ``count`` messages from ``spark.range``, in the columns that our sink takes."""
    row = f.col("id")
    at = row * _STEP % (_TEXT_SIZE - shape.size) + 1
    key_column = _slice(_KEYS, row % _KEY_COUNT * _KEY_SIZE + 1, _KEY_SIZE)
    chosen = [_slice(_TEXT, at, shape.size).alias("value"), key_column.alias("__key")]
    if shape.properties:
        texts = [*map(f.lit, (*_REGION, _SENSOR)), key_column.cast("string")]
        chosen.append(f.create_map(*texts).alias("__messageProperties"))
    if shape.event_time:
        chosen.append(f.timestamp_millis(row + _FIRST_EVENT).alias("__eventTime"))
    return spark.range(0, count, 1, partitions).select(*chosen)


def row_columns(shape: Shape) -> RowColumns:
    """The columns that are read."""
    return RowColumns(metadata=()) if shape.value_only else RowColumns()


def producer_options(shape: Shape) -> ProducerOptions:
    """The sink's default settings, with the shape's batching and compression."""
    return ProducerOptions(batching=shape.batching, compression=pb.LZ4 if shape.lz4 else pb.NONE)


def _slice(data: bytes, at: Column, size: int) -> Column:
    return f.substring(f.lit(data), at.cast("int"), f.lit(size))
