"""Entries -> Arrow record batches of :class:`schema.RowColumns`: the rows that Spark reads.

Columns other than key and value must cost next to nothing. This module must not know how entries are decoded,
nor use a Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.client import DecodedMessages, Entries, decode_entries, parts_by_size
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.rows.metadata_columns import MAX_ROWS
from pulsar_spark.spark.rows.schema import RowColumns
from pulsar_spark.spark.rows.values import PayloadReader, RawValues

# A batch is closed at this size or at MAX_ROWS. Half this size reads messages of 1 KiB 10 % slower.
MAX_BYTES = 6 * 1024 * 1024


_DEFAULT_COLUMNS = RowColumns()


def record_batches(
    topic: TopicName,
    entries: Iterable[Entries],
    start: MessageId | None = None,
    end: MessageId | None = None,
    *,
    columns: RowColumns = _DEFAULT_COLUMNS,
    values: PayloadReader | None = None,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    leave_out_corrupt: bool = False,
    max_message_size: Callable[[], int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Turn whole entries into record batches of rows, in order.

    Args:
        topic: topic partition of the entries.
        entries: entries as :func:`pulsar_spark.client.read_ranges` gives them: chunked messages assembled,
            nothing encrypted.
        start: start position. If it has a batch index, rows of its entry up to and including that index are
            left out.
        end: end position. If it has a batch index, rows of its entry after that index are left out.
        columns: columns of the rows.
        values: makes the columns of the payloads; None: the column ``value`` holds their bytes.
        max_rows: a batch is closed once it has this many rows. Its last entry never takes it to twice as
            many.
        max_bytes: the same limit for the bytes of its entries, uncompressed, with their metadata. Only a
            single larger row makes a larger batch.
        leave_out_corrupt: whether an entry that cannot be decoded is left out with a WARNING that names it.
        max_message_size: returns the cluster's maximum message size in bytes, once entries have been read;
            None for the default.

    Raises:
        CorruptError: an entry cannot be decoded, and ``leave_out_corrupt`` is false. It names topic and
            message id.
        UnsupportedError: an entry holds records of Kafka.
        PulsarError: an error that ``values`` raises.
    """
    assembler = _Assembler(topic, columns, values or RawValues(columns), max_rows, max_bytes)
    decoded = decode_entries(
        topic,
        entries,
        start,
        end,
        max_rows=max_rows,
        max_bytes=max_bytes,
        leave_out_corrupt=leave_out_corrupt,
        max_message_size=max_message_size,
    )
    return chain.from_iterable(map(assembler.record_batches, decoded))


class _Assembler:
    """Makes record batches from the rows of one topic partition."""

    def __init__(
        self, topic: TopicName, columns: RowColumns, values: PayloadReader, max_rows: int, max_bytes: int
    ) -> None:
        self._schema = columns.arrow_schema
        self._values = values
        self._makers = columns.makers(topic)
        self._max_rows = max_rows
        self._max_bytes = max_bytes

    def record_batches(self, messages: DecodedMessages) -> Iterator[pa.RecordBatch]:
        """Yield the rows as one record batch, or as several that share memory if they are too many.

        No reference to a batch is kept while its rows are used, and none to its rows while the next are
        decoded: freed memory that is used again is still in the processor's cache.
        """
        if not len(messages):
            return
        count, first = len(messages), 0
        ends = [count]
        # The size read counts, not the size of the columns made from it.
        if count >= 2 * self._max_rows or messages.size >= 2 * self._max_bytes:
            sizes = pc.fill_null(pc.binary_length(messages.value), 0).to_numpy()
            offsets = np.append(0, np.cumsum(sizes, dtype=np.int64))
            ends = [stop for _, stop in parts_by_size(offsets, self._max_bytes, self._max_rows)]
        made: dict[str, pa.Array] = {}
        read = self._values.read(messages)
        while first < count:
            rows, columns, left_out = next(read)
            for name in self._schema.names:
                if name not in columns and name not in made:
                    made[name] = self._makers[name](messages)
            arrays = [
                columns[name] if name in columns else made[name].slice(first, rows)
                for name in self._schema.names
            ]
            batch = (
                pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else _without_columns(rows)
            )
            del arrays
            del columns
            if first + rows == count:
                del messages, read, made
            for begin, end in pairwise([0, *(end - first for end in ends if 0 < end - first < rows), rows]):
                part = batch if end - begin == rows else batch.slice(begin, end - begin)
                yield part if left_out is None else part.filter(pa.array(~left_out[begin:end]))
            first += rows
            del batch, part, left_out


def _without_columns(rows: int) -> pa.RecordBatch:
    """Rows of which Spark takes only the number."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
