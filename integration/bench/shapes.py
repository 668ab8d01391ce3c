"""The three shapes of messages that are measured, made alike for Spark, for Arrow and for plain Python.

Value i is a slice of one text of words, key i one of 10,000: cheap to make everywhere, so that what is
measured is the way of the messages, and compressible about as much as real text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pulsar_spark.client import ProducerOptions
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns import MessageColumns

PARTITIONS = (1, 4)

_TEXT_SIZE = 256 * 1024
_STEP = 1021  # from value to value in the text, so that neighbours differ
_KEY_COUNT = 10_000
_KEY_SIZE = 8
CHUNK = 10_000
_REGION = ("region", "north")
_SENSOR = "sensor"  # the other property; its value is the key


@dataclass(frozen=True, slots=True)
class Shape:
    """How messages look, how they are sent, and how many are measured.

    Attributes:
        name: as on the command line.
        title: as in the tables.
        size: bytes of a value.
        batching: whether messages share entries; the limits are the connector's defaults.
        lz4: whether entries are compressed.
        properties: whether each message has two.
        reads: messages in the topic that is read through Spark.
        writes: messages written through Spark.
        client_reads: messages that pulsar-client reads.
        client_writes: messages that pulsar-client writes.
    """

    name: str
    title: str
    size: int
    batching: bool
    lz4: bool
    properties: bool
    reads: int
    writes: int
    client_reads: int
    client_writes: int

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
            "batched", "100 bytes, batched", 100, True, False, False, 4_000_000, 2_500_000, 1_000_000, 800_000
        ),
        Shape(
            "lz4", "1 KiB, LZ4, 2 properties", 1024, True, True, True, 2_000_000, 500_000, 300_000, 300_000
        ),
        Shape(
            "unbatched", "100 bytes, unbatched", 100, False, False, False, 300_000, 200_000, 200_000, 100_000
        ),
    )
}


def _text() -> bytes:
    """Words in a random order that is always the same."""
    choice = random.Random(0)
    words = [
        "".join(choice.choices("abcdefghijklmnopqrstuvwxyz", k=choice.randint(3, 9))) for _ in range(2000)
    ]
    text = " ".join(choice.choices(words, k=_TEXT_SIZE // 4))
    return text[:_TEXT_SIZE].encode()


_TEXT = _text()
_KEYS = b"".join(b"key-%04d" % number for number in range(_KEY_COUNT))


def value(shape: Shape, row: int) -> bytes:
    """The value of message ``row``."""
    at = row * _STEP % (_TEXT_SIZE - shape.size)
    return _TEXT[at : at + shape.size]


def key(row: int) -> str:
    """The key of message ``row``."""
    return f"key-{row % _KEY_COUNT:04d}"


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
    return MessageColumns(value=values, key=pa.array(keys).cast(pa.binary()), properties=maps)


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
    return spark.range(0, count, 1, partitions).select(*chosen)


def producer_options(shape: Shape) -> ProducerOptions:
    """The sink's default settings, with the shape's batching and compression."""
    return ProducerOptions(batching=shape.batching, compression=pb.LZ4 if shape.lz4 else pb.NONE)


def _slice(data: bytes, at: Column, size: int) -> Column:
    return f.substring(f.lit(data), at.cast("int"), f.lit(size))
