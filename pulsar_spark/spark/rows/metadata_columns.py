"""The metadata columns of rows: one maker for each, from decoded entries to an Arrow array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.rows import schema
from pulsar_spark.wire import entry_fields as mf
from pulsar_spark.wire import keys_and_texts
from pulsar_spark.wire.entries import Entries
from pulsar_spark.wire.field_spans import Ints
from pulsar_spark.wire.message_columns import MessageColumns
from pulsar_spark.wire.message_ids import serialize_chunked_id, serialize_ids

MAX_ROWS = 10_000  # of an output batch

# Columns that are the same in all rows are kept up to this length; longer ones are made when they are needed.
KEPT_ROWS = 10 * MAX_ROWS

_MAX_MS = (1 << 63) // 1000 - 1  # the latest time in ms that fits into microseconds
_ARROW_TYPES = {field.name: field.type for field in schema.arrow_schema(tuple(schema.METADATA_COLUMNS))}
_NULL = pa.scalar(None, pa.binary())


@dataclass(frozen=True, slots=True)
class DecodedEntries:
    """Decoded messages of some entries: of batches, or of entries of one message each.

    Attributes:
        entries: n entries, in parts.
        columns: their messages, m rows.
        counts: int64[n], rows of each entry.
        batch_index: int64[m], each row's index in its batch; -1 where the entry is no batch.
    """

    entries: Sequence[Entries]
    columns: MessageColumns
    counts: Ints
    batch_index: Ints

    def of_entries(self, column: Callable[[Entries], Ints]) -> Ints:
        """A column of the entries, int64[n]."""
        parts = [column(part) for part in self.entries]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def of_rows(self, column: Callable[[Entries], Ints]) -> Ints:
        """A column of the entries for each row, int64[m]."""
        return np.repeat(self.of_entries(column), self.counts)

    @property
    def is_batches(self) -> bool:
        """Whether the entries are batches."""
        return bool(self.entries[0].messages[0])


Maker: TypeAlias = "Callable[[list[DecodedEntries], int], pa.Array]"


class Repeated:
    """A column that is the same in all rows, of any length: a slice of an array that grows to a limit."""

    def __init__(self, make: Callable[[int], pa.Array]) -> None:
        self._make = make
        self._array = make(0)

    def of(self, length: int) -> pa.Array:
        """The column for so many rows."""
        if length > KEPT_ROWS:
            return self._make(length)
        if length > len(self._array):
            self._array = self._make(max(length, MAX_ROWS))
        return self._array.slice(0, length)


NO_TIME = Repeated(lambda n: pa.nulls(n, pa.int64()))
NO_BYTES = Repeated(lambda n: pa.nulls(n, pa.binary()))
NO_PROPERTIES = Repeated(
    lambda n: pa.MapArray.from_arrays(
        pa.array(np.zeros(n + 1, np.int32)), pa.array([], pa.string()), pa.array([], pa.string())
    )
)


def joined(arrays: list[pa.Array]) -> pa.Array:
    """One array of several."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _whole(column: Callable[[DecodedEntries], pa.Array]) -> Callable[[TopicName], Maker]:
    """A maker that makes its column piece by piece, whatever the topic."""
    return lambda topic: lambda pieces, count: joined([column(piece) for piece in pieces])


def _same(value: Callable[[TopicName], pa.Scalar]) -> Callable[[TopicName], Maker]:
    """A maker of a column that is the same in all rows of a topic partition."""

    def maker(topic: TopicName) -> Maker:
        scalar = value(topic)
        column = Repeated(lambda n: pa.repeat(scalar, n))
        return lambda pieces, count: column.of(count)

    return maker


def _message_ids(topic: TopicName) -> Maker:
    return lambda pieces, count: joined([_ids_of(piece, topic.partition) for piece in pieces])


def _ids_of(piece: DecodedEntries, partition: int) -> pa.BinaryArray:
    if not piece.is_batches and any(part.chunked.any() for part in piece.entries):
        singles = [part[row : row + 1] for part in piece.entries for row in range(len(part))]
        return pa.concat_arrays([_single_id(single, partition) for single in singles])
    ledger, entry = piece.of_entries(ledger_of), piece.of_entries(entry_of)
    sizes = piece.of_entries(_messages)
    ids = serialize_ids(ledger, entry, sizes, partition)
    if len(ids) == len(piece.columns):
        return ids
    first = np.repeat(np.cumsum(sizes) - sizes, piece.counts)
    return ids.take(pa.array(first + piece.batch_index))


def ledger_of(entries: Entries) -> Ints:
    """Ledger ids."""
    return entries.ledger


def entry_of(entries: Entries) -> Ints:
    """Entry ids."""
    return entries.entry


def _messages(entries: Entries) -> Ints:
    return entries.messages.astype(np.int64)


def _single_id(entry: Entries, partition: int) -> pa.BinaryArray:
    first = entry.first_chunk(0)
    if first is None:
        return serialize_ids(entry.ledger, entry.entry, np.zeros(1, np.int64), partition)
    last = MessageId(int(entry.ledger[0]), int(entry.entry[0]))
    return pa.array([serialize_chunked_id(last, first, partition)], pa.binary())


def _offsets(piece: DecodedEntries) -> pa.StringArray:
    """``ledger:entry``, and ``:batch`` behind it for messages of batches."""
    parts = [piece.of_rows(ledger_of), piece.of_rows(entry_of)]
    if piece.is_batches:
        parts.append(piece.batch_index)
    return pc.binary_join_element_wise(*(pa.array(part).cast(pa.string()) for part in parts), ":")


def _publish_times(topic: TopicName) -> Maker:
    def make(pieces: list[DecodedEntries], count: int) -> pa.TimestampArray:
        times = np.concatenate([piece.of_rows(lambda part: part.publish_time) for piece in pieces])
        times = np.where(times < 0, _MAX_MS, np.minimum(times, _MAX_MS)) * 1000  # negative is beyond 2**63
        return pa.array(times).view(_ARROW_TYPES[schema.PUBLISH_TIME])

    return make


def _event_times(topic: TopicName) -> Maker:
    def make(pieces: list[DecodedEntries], count: int) -> pa.TimestampArray:
        kind = _ARROW_TYPES[schema.EVENT_TIME]
        if all(piece.columns.event_time is None for piece in pieces):
            return NO_TIME.of(count).view(kind)
        times = joined([_or_nothing(piece.columns.event_time, NO_TIME, piece) for piece in pieces])
        # 0 is Pulsar's unset; what does not fit into microseconds becomes the earliest or latest that does.
        times = pc.if_else(pc.equal(times, 0), pa.scalar(None, pa.int64()), times)
        times = pc.min_element_wise(times, _MAX_MS, skip_nulls=False)
        times = pc.max_element_wise(times, -_MAX_MS, skip_nulls=False)
        return pc.multiply(times, 1000).view(kind)

    return make


def _properties(topic: TopicName) -> Maker:
    def make(pieces: list[DecodedEntries], count: int) -> pa.MapArray:
        if all(piece.columns.properties is None for piece in pieces):
            return NO_PROPERTIES.of(count)
        maps = joined([_or_nothing(piece.columns.properties, NO_PROPERTIES, piece) for piece in pieces])
        return maps.cast(_ARROW_TYPES[schema.PROPERTIES])

    return make


def _sequence_ids(piece: DecodedEntries) -> pa.Int64Array:
    """The message's own, or else its entry's."""
    of_entry = pa.array(piece.of_rows(lambda part: part.sequence_id))
    own = piece.columns.sequence_id
    return of_entry if own is None else pc.coalesce(own, of_entry)


def _indexes(piece: DecodedEntries) -> pa.Int64Array:
    """The broker's index counts messages; an entry has that of its last one."""
    index = piece.of_rows(lambda part: part.index)
    known = index >= 0
    if piece.is_batches:
        index = index - piece.of_rows(_messages) + 1 + piece.batch_index
    return pa.array(index, mask=None if known.all() else ~known)


def _of_entry(number: int, *, text: bool = False) -> Callable[[TopicName], Maker]:
    """A maker of a field of the entry's metadata."""

    def column(piece: DecodedEntries) -> pa.Array:
        values = joined([part.texts(number) for part in piece.entries])
        if text:
            values = keys_and_texts.to_strings(values)
        return values.take(pa.array(np.repeat(np.arange(len(values)), piece.counts)))

    return _whole(column)


def _or_nothing(column: pa.Array | None, nothing: Repeated, piece: DecodedEntries) -> pa.Array:
    return nothing.of(len(piece.columns)) if column is None else column


def _partition(topic: TopicName) -> pa.Scalar:
    return pa.scalar(None if topic.partition < 0 else topic.partition, pa.int32())


# How each column is made, given the topic partition.
MAKERS: dict[str, Callable[[TopicName], Maker]] = {
    schema.KEY: _whole(lambda piece: piece.columns.key),
    schema.TOPIC: _same(lambda topic: pa.scalar(str(topic))),
    schema.MESSAGE_ID: _message_ids,
    schema.PUBLISH_TIME: _publish_times,
    schema.EVENT_TIME: _event_times,
    schema.PROPERTIES: _properties,
    schema.PARTITION: _same(_partition),
    schema.OFFSET: _whole(_offsets),
    schema.ORDERING_KEY: _whole(lambda piece: _or_nothing(piece.columns.ordering_key, NO_BYTES, piece)),
    schema.SEQUENCE_ID: _whole(_sequence_ids),
    schema.PRODUCER_NAME: _of_entry(mf.PRODUCER_NAME, text=True),
    schema.SCHEMA_VERSION: _of_entry(mf.SCHEMA_VERSION),
    schema.REPLICATED_FROM: _of_entry(mf.REPLICATED_FROM, text=True),
    schema.IS_NULL: _whole(lambda piece: piece.columns.value.is_null()),
    schema.INDEX: _whole(_indexes),
}
