"""Decoded messages by column: a column is made when requested, so unused columns cost nothing.

Owns the columns of messages and of their entries. Must not depend on the decoding of entries, nor on the use
of the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.ids import TopicName
from pulsar_spark.wire.columns.message_columns import DecodedColumns, to_strings
from pulsar_spark.wire.columns.message_ids import serialize_chunked_id, serialize_ids
from pulsar_spark.wire.entry.entries import Entries, Floats, items_per_byte
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.wire_values import from_wire_version

_Array = TypeVar("_Array", Ints, Flags, Floats)

NO_VERSION = "the message has no schema version: it was written by a producer without a schema"
EXTERNAL = "the message's schema is not stored in Pulsar, but in an external schema registry"


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """m messages of n consecutive entries, which are all batches, or all have one message each.

    Attributes:
        entries: the entries, in parts.
        columns: the messages.
        counts: rows of each entry, int64[n].
        batch_index: function that returns each row's index in its batch, int64[m]; None if the entries are no
            batches, so each has one row.
        topics: topic partitions of the entries, in order, each with its number of entries.
    """

    entries: Sequence[Entries]
    columns: DecodedColumns
    counts: Ints
    batch_index: Callable[[], Ints] | None
    topics: Sequence[tuple[TopicName, int]]

    def __len__(self) -> int:
        return len(self.columns)

    def of_entries(self, column: Callable[[Entries], Ints]) -> Ints:
        """Calls ``column`` for each part of the entries; returns all values in order, int64[n]."""
        parts = [column(part) for part in self.entries]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def of_rows(self, column: Callable[[Entries], Ints]) -> Ints:
        """Returns the result of :meth:`of_entries`, repeated for each row of an entry, int64[m]."""
        return self.repeated(self.of_entries(column))

    def rows_of_topics(self) -> Iterator[tuple[TopicName, int]]:
        """Yields the topic partitions of the rows, in order, each with its number of rows."""
        first = 0
        for topic, count in self.topics:
            yield topic, int(self.counts[first : first + count].sum())
            first += count

    def repeated(self, values: _Array) -> _Array:
        """Repeats the value of each entry for each of its rows: [n] -> [m]."""
        return values if self.batch_index is None else np.repeat(values, self.counts)


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    """m decoded messages, one row each, partition after partition, in the order of the partition.

    A column is computed each time that it is read, with a few Arrow calls for all rows. A column whose type
    includes None is None if no message has the field.

    Attributes:
        size: bytes of the entries, uncompressed, with metadata.
    """

    runs: Sequence[DecodedRun]
    size: int

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    @property
    def topic(self) -> TopicName:
        """Returns the topic partition of the first message."""
        return self.runs[0].topics[0][0]

    @property
    def topics(self) -> list[tuple[TopicName, int]]:
        """Topic partitions of the messages, in order, each with its number of rows."""
        if all(len(run.topics) == 1 and run.topics[0][0] is self.topic for run in self.runs):
            return [(self.topic, len(self))]
        return [each for run in self.runs for each in run.rows_of_topics()]

    @property
    def value(self) -> pa.BinaryArray:
        """``binary``; null for a tombstone."""
        return self._column(lambda run: run.columns.value)

    @property
    def is_null(self) -> pa.BooleanArray:
        """Returns which messages are tombstones; null-free."""
        return self._column(lambda run: run.columns.value.is_null())

    @property
    def key(self) -> pa.BinaryArray:
        """``binary``; null if the message has no key."""
        return self._column(lambda run: run.columns.key)

    @property
    def ordering_key(self) -> pa.BinaryArray | None:
        """``binary``, null where unset."""
        return self._optional(lambda columns: columns.ordering_key, partial(pa.nulls, type=pa.binary()))

    @property
    def event_time(self) -> pa.Int64Array | None:
        """``int64`` in ms since the epoch, null where unset."""
        return self._optional(lambda columns: columns.event_time, _no_numbers)

    @property
    def properties(self) -> pa.MapArray | None:
        """``map<string, string>``, null-free."""
        return self._optional(lambda columns: columns.properties, _no_properties)

    @property
    def sequence_id(self) -> pa.Int64Array:
        """``int64``, the message's own sequence id, or its entry's if it has none; null-free."""
        return self._column(_sequence_ids)

    @property
    def ledger(self) -> pa.Int64Array:
        """``int64``, the ledger id of each message's entry, or of a chunked message's last entry."""
        return self._column(lambda run: pa.array(run.of_rows(lambda part: part.ledger)))

    @property
    def entry(self) -> pa.Int64Array:
        """``int64``, the entry id of each message's entry, or of a chunked message's last entry."""
        return self._column(lambda run: pa.array(run.of_rows(lambda part: part.entry)))

    @property
    def batch_index(self) -> pa.Int64Array | None:
        """``int64``, each message's index in its batch, null if the entry is no batch."""
        if all(run.batch_index is None for run in self.runs):
            return None
        return self._column(
            lambda run: _no_numbers(len(run)) if run.batch_index is None else pa.array(run.batch_index())
        )

    @property
    def broker_index(self) -> pa.Int64Array:
        """``int64``, the broker's index of each message; null if the broker sends none."""
        return self._column(_broker_indexes)

    @property
    def broker_time(self) -> pa.Int64Array:
        """``int64``, time when the broker stored each message's entry, in ms; null if unknown."""
        return self._column(_broker_times)

    @property
    def message_id(self) -> pa.BinaryArray:
        """``binary``, serialized MessageIdData."""
        return self._column(_message_ids)

    @property
    def items_per_byte(self) -> Floats | None:
        """Returns the maximum items for each byte of a message's value, float64[m]; None: no maximum.

        It bounds the work of decoding lists and maps; see :mod:`pulsar_spark.wire.entry.entries`.
        """
        entries = [part for run in self.runs for part in run.entries]
        sizes = np.concatenate([part.sizes for part in entries])
        rates = items_per_byte(sizes, np.concatenate([part.plain_sizes for part in entries]))
        if rates is None:
            return None
        return np.repeat(rates, np.concatenate([run.counts for run in self.runs]))

    def entry_field(self, field: EntryField, convert: Callable[[Ints], Ints] | None = None) -> pa.Array:
        """Returns a field of the metadata of each message's entry: ``int64``, ``string`` or ``binary``.

        Null if it is not set. Malformed parts of text become U+FFFD. Unsigned numbers beyond 2**63 - 1 are
        negative, as in Java. ``convert``: function that converts a number for each entry, before the numbers
        are repeated for each row.
        """
        if field.is_number:
            return self._column(lambda run: _numbers_of_entries(run, field, convert))
        return self._column(lambda run: _texts_of_entries(run, field))

    def _column(self, column: Callable[[DecodedRun], pa.Array]) -> pa.Array:
        return _joined([column(run) for run in self.runs])

    def _optional(
        self, column: Callable[[DecodedColumns], pa.Array | None], unset: Callable[[int], pa.Array]
    ) -> pa.Array | None:
        arrays = [column(run.columns) for run in self.runs]
        if all(array is None for array in arrays):
            return None
        return _joined(
            [
                unset(len(run)) if array is None else array
                for run, array in zip(self.runs, arrays, strict=True)
            ]
        )


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _no_numbers(count: int) -> pa.Int64Array:
    return pa.nulls(count, pa.int64())


def _no_properties(count: int) -> pa.MapArray:
    none = pa.array([], pa.string())
    return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), none, none)


def _batch_sizes(entries: Entries) -> Ints:
    return entries.messages.astype(np.int64)


def _sequence_ids(run: DecodedRun) -> pa.Int64Array:
    of_entry = pa.array(run.of_rows(lambda part: part.sequence_id))
    own = run.columns.sequence_id
    return of_entry if own is None else pc.coalesce(own, of_entry)


def _broker_times(run: DecodedRun) -> pa.Int64Array:
    times = run.of_rows(lambda part: part.broker_time)
    return pa.array(times, mask=times < 0)


def _broker_indexes(run: DecodedRun) -> pa.Int64Array:
    """Returns the broker's index of each message; an entry has the index of its last message."""
    index = run.of_rows(lambda part: part.index)
    is_known = index >= 0
    if run.batch_index is not None:
        index = index - run.of_rows(_batch_sizes) + 1 + run.batch_index()
    return pa.array(index, mask=None if is_known.all() else ~is_known)


def _numbers_of_entries(
    run: DecodedRun, field: EntryField, convert: Callable[[Ints], Ints] | None
) -> pa.Int64Array:
    parts = [part.numbers(field) for part in run.entries]
    values, has = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
    values = values if convert is None else convert(values)
    return pa.array(run.repeated(values), mask=None if has.all() else run.repeated(~has))


def _texts_of_entries(run: DecodedRun, field: EntryField) -> pa.Array:
    values = _joined([part.texts(field) for part in run.entries])
    if field.is_text:
        values = to_strings(values)
    return values if run.batch_index is None else values.take(pa.array(run.repeated(np.arange(len(values)))))


def _message_ids(run: DecodedRun) -> pa.BinaryArray:
    partitions, counts = zip(*((topic.partition, count) for topic, count in run.topics), strict=True)
    partition = partitions[0] if len(partitions) == 1 else np.repeat(partitions, counts)
    if run.batch_index is None and any(part.chunked.any() for part in run.entries):
        numbers = iter(np.broadcast_to(partition, len(run)).tolist())
        singles = [part[row : row + 1] for part in run.entries for row in range(len(part))]
        return pa.concat_arrays([_single_id(single, next(numbers)) for single in singles])
    sizes = run.of_entries(_batch_sizes)
    ledgers, entries = run.of_entries(lambda part: part.ledger), run.of_entries(lambda part: part.entry)
    ids = serialize_ids(ledgers, entries, sizes, partition)
    if len(ids) == len(run):
        return ids
    assert run.batch_index is not None  # an entry without a batch has one id and one row
    first = np.repeat(np.cumsum(sizes) - sizes, run.counts)
    return ids.take(pa.array(first + run.batch_index()))


def _single_id(entry: Entries, partition: int) -> pa.BinaryArray:
    first = entry.first_chunk(0)
    if first is None:
        return serialize_ids(entry.ledger, entry.entry, np.zeros(1, np.int64), partition)
    return pa.array([serialize_chunked_id(entry.id_of(0), first, partition)], pa.binary())


class SchemaVersions(NamedTuple):
    """The schema versions of m messages.

    Attributes:
        distinct: numbers of versions; for messages without a version, the reason as text.
        of_row: index in ``distinct`` of each message, int64[m]; None: all messages have the first.
    """

    distinct: Sequence[int | str]
    of_row: Ints | None


def schema_versions(messages: DecodedMessages) -> SchemaVersions:
    """Returns the schema versions of one or more messages; takes time for each entry, not each message."""
    parts = [part for run in messages.runs for part in run.entries]
    found = pa.concat_arrays([part.texts(EntryField.SCHEMA_VERSION) for part in parts]).dictionary_encode()
    distinct = [_version(text) for text in found.dictionary.to_pylist()]
    of_entry = found.indices.fill_null(len(distinct)).to_numpy().astype(np.int64)
    if found.null_count:
        distinct.append(NO_VERSION)
    has_id = [part.texts(EntryField.SCHEMA_ID).is_valid() for part in parts]
    if any(flags.true_count for flags in has_id):
        of_entry[pa.concat_arrays(has_id).to_numpy(zero_copy_only=False)] = len(distinct)
        distinct.append(EXTERNAL)
    if len(distinct) == 1:
        return SchemaVersions(distinct, None)
    return SchemaVersions(
        distinct, np.repeat(of_entry, np.concatenate([run.counts for run in messages.runs]))
    )


def _version(text: bytes) -> int | str:
    if not text:
        return NO_VERSION
    version = from_wire_version(text)
    return f"the message's schema version is not a number: {text[:16].hex()}" if version is None else version
