"""The least that a streaming Python data source takes: it hears of news over a socket, and makes one row.

Its planner waits for news in ``latestOffset``, as long as ours at most does: where it returned at once, Spark
would ask again 10 ms later, and news would wait so long. Spark's planner and workers import this module.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

_WAIT = 0.5  # seconds
_MAX_TOLD = 1024  # numbers at a time


class Floor(DataSource):
    """Option: ``socket``, the path of a Unix socket. Each byte that comes from it makes one more row.

    The one column ``value`` has the number of the row, from 1 on.
    """

    @classmethod
    def name(cls) -> str:
        return "bench_floor"

    def schema(self) -> StructType:
        return StructType([StructField("value", BinaryType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return FloorReader(self.options["socket"])


@dataclass
class Numbers(InputPartition):
    """The rows from ``first`` to ``last``."""

    first: int
    last: int


class FloorReader(DataSourceStreamReader):
    """Offsets are numbers of rows.

    Args:
        path: of the socket; it is opened by the first call of ``latestOffset``.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._told: socket.socket | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"number": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
        """The next end, or ``start`` if none has come after a while.

        Raises:
            EOFError: the other end of the socket is closed.
        """
        if self._told is None:
            self._told = socket.socket(socket.AF_UNIX)
            self._told.connect(self._path)
        if not select.select([self._told], [], [], _WAIT)[0]:
            return start
        told = len(self._told.recv(_MAX_TOLD))
        if not told:
            raise EOFError("nobody tells of news any more")
        return {"number": start["number"] + told}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [] if start == end else [Numbers(start["number"] + 1, end["number"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Numbers)
        values = [b"%d" % number for number in range(partition.first, partition.last + 1)]
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])

    def stop(self) -> None:
        if self._told is not None:
            self._told.close()
