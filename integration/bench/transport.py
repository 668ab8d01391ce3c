"""Spark's transport alone: a source that repeats one Arrow batch, and sinks that drop what they get.

The same entry points as our source and sink, with nothing behind them. Spark's workers import this module.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from integration.bench import shapes
from integration.bench.shapes import SHAPES, Shape
from pulsar_spark.spark.rows.read import MAX_BYTES
from pulsar_spark.spark.rows.schema import EVENT_TIME, MAX_ROWS, PROPERTIES, PUBLISH_TIME, RowColumns
from pulsar_spark.spark.spark_api import (
    DataSourceStreamArrowWriter,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

_ARROW_SCHEMA = RowColumns().arrow_schema
_TOPIC = "persistent://public/default/bench"
_PUBLISHED = 1_700_000_000_000_000  # microseconds


class Transport(DataSource):
    """Options: ``shape``, ``rows`` and ``partitions`` of a read; a write needs none."""

    @classmethod
    def name(cls) -> str:
        return "bench_transport"

    def schema(self) -> StructType:
        return shapes.row_columns(SHAPES[self.options["shape"]]).schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return Repeat(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _StreamDrop()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _BatchDrop()


@dataclass
class Rows(InputPartition):
    """So many rows of the same batch, for the partition of a topic with that number."""

    count: int
    number: int


class Repeat(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives all rows in the second micro-batch; the first is empty, as our source's is."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = dict(options)
        self.shape = SHAPES[options["shape"]]
        self._rows = int(options["rows"])
        self._partitions = int(options["partitions"])
        self._fresh = True

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        if self._fresh:
            self._fresh = False
            return start
        return {"rows": self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        if start == end:
            return []
        each = (end["rows"] - start["rows"]) // self._partitions
        return [Rows(each, number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        batch = repeated_batch(self.shape)
        left = partition.count
        while left > 0:
            yield batch if batch.num_rows <= left else batch.slice(0, left)
            left -= batch.num_rows


class _BatchDrop(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drop(iterator)


class _StreamDrop(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _drop(iterator)


def repeated_batch(shape: Shape) -> pa.RecordBatch:
    """A batch of as many rows as our source makes, with like values in the shape's columns."""
    count = min(MAX_ROWS, MAX_BYTES // shape.size)
    made = shapes.columns(shape, 0, count)
    if shape.value_only:
        return pa.RecordBatch.from_arrays([made.value], schema=shapes.row_columns(shape).arrow_schema)
    none = pa.MapArray.from_arrays([0] * (count + 1), pa.array([], pa.string()), pa.array([], pa.string()))
    ids = pa.array([b"\x08\xff\x01\x10%c\x20%c\x30\xe8\x07" % (row & 127, row & 127) for row in range(count)])
    time_type = _ARROW_SCHEMA.field(EVENT_TIME).type
    if made.event_time is None:
        event_time = pa.nulls(count, time_type)
    else:
        event_time = pc.multiply(made.event_time, 1000).cast(time_type)
    columns = [
        made.value,
        made.key,
        pa.repeat(pa.scalar(_TOPIC), count),
        ids,
        pa.array([_PUBLISHED] * count).cast(_ARROW_SCHEMA.field(PUBLISH_TIME).type),
        event_time,
        (none if made.properties is None else made.properties).cast(_ARROW_SCHEMA.field(PROPERTIES).type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def _drop(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in iterator:
        pass
    return WriterCommitMessage()
