"""Entries -> Arrow record batches of :func:`schema.arrow_schema`: the rows that Spark gets.

All columns but key and value must cost next to nothing. Must not know how entries are decoded, nor a Spark
session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.client import DecodedMessages, Entries, decode_entries
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, MAX_ROWS, METADATA_COLUMNS
from pulsar_spark.spark.rows.schema import arrow_schema

# A batch is closed at this or at MAX_ROWS. With half of it messages of 1 KiB are read a tenth slower.
MAX_BYTES = 6 * 1024 * 1024


def record_batches(
    topic: TopicName,
    entries: Iterable[Entries],
    start: MessageId | None = None,
    end: MessageId | None = None,
    *,
    columns: Sequence[str] = DEFAULT_METADATA_COLUMNS,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Turn whole entries into record batches of rows, in order.

    Args:
        topic: the topic partition they are from.
        entries: as :func:`pulsar_spark.client.read_range` gives them; chunked messages whole, and
            nothing encrypted.
        start: where this has a batch index, rows of its entry up to that index are left out.
        end: where this has a batch index, rows of its entry after that index are left out.
        columns: which of ``METADATA_COLUMNS`` follow the value.
        max_rows: a batch is closed when it has so many; with its last entry it never reaches twice as many.
        max_bytes: the same for the bytes of payloads; only a single row that is larger makes a larger batch.

    Raises:
        CorruptError: an entry cannot be decoded; topic and message id are in it.
    """
    assembler = _Assembler(topic, columns, max_rows, max_bytes)
    decoded = decode_entries(topic, entries, start, end, max_rows=max_rows, max_bytes=max_bytes)
    return chain.from_iterable(map(assembler.record_batches, decoded))


class _Assembler:
    """Makes record batches of the rows of one topic partition."""

    def __init__(self, topic: TopicName, columns: Sequence[str], max_rows: int, max_bytes: int) -> None:
        self._schema = arrow_schema(columns)
        self._makers = [METADATA_COLUMNS[name].maker(topic) for name in columns]
        self._max_rows = max_rows
        self._max_bytes = max_bytes

    def record_batches(self, messages: DecodedMessages) -> Iterator[pa.RecordBatch]:
        """Give the rows as one record batch, or as several that share memory where they are too many.

        Nothing is kept while rows are used, and none of them when the next are decoded: memory that is free
        again is in the processor's cache.
        """
        if not len(messages):
            return
        payloads = messages.value
        # The one place where payloads become a column of Spark's.
        columns = [payloads, *(make(messages) for make in self._makers)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        is_whole = len(messages) < 2 * self._max_rows and messages.size < 2 * self._max_bytes
        parts = [(0, len(messages))] if is_whole else list(_parts(payloads, self._max_rows, self._max_bytes))
        del messages, payloads, columns
        for first, count in parts:
            yield batch.slice(first, count)


def _parts(payloads: pa.BinaryArray, max_rows: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut rows that their last entry made more than twice too many, by the bytes of their payloads.

    Yields:
        The first row of each part, and how many it has: at least one.
    """
    ends = np.cumsum(pc.fill_null(pc.binary_length(payloads), 0).to_numpy(), dtype=np.int64)
    first = taken = 0
    while first < len(ends):
        fits = max(1, int(np.searchsorted(ends, taken + max_bytes, side="right")) - first)
        count = min(len(ends) - first, max_rows, fits)
        yield first, count
        first += count
        taken = ends[first - 1]
