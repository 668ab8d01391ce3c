"""Record batches that Spark writes -> message columns of each topic, all rows at once by Arrow."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pulsar_spark.client import IN_PARALLEL, MessageColumns, ValueEncoder, epoch_ms
from pulsar_spark.errors import OptionError, SchemaError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.schema import (
    EVENT_TIME,
    KEY,
    METADATA_COLUMNS,
    ORDERING_KEY,
    PARTITION,
    PROPERTIES,
    SEQUENCE_ID,
    TOPIC,
    ValueFormat,
)
from pulsar_spark.spark.rows.write_values import SinkValues, ValueColumns, raw_value, to_binary, value_columns

# Metadata columns that only the sink has.
DELIVER_AT = "__deliverAt"
DELIVER_AFTER = "__deliverAfter"

_MAP = pa.map_(pa.string(), pa.string())


class Encoders(Protocol):
    """The encoders of rows into values, for topics that have a schema."""

    def of(self, topic: TopicName) -> ValueEncoder:
        """Returns the encoder of a topic's rows; raises PulsarError if the topic has no encoder."""
        ...

    def prepare(self, topics: Sequence[TopicName]) -> None:
        """Prepares the encoders of ``topics``, with parallel requests."""
        ...


@dataclass(frozen=True, slots=True)
class MessageShape:
    """The meaning of each column of the rows; made by :func:`message_shape`.

    Attributes:
        value: name of the column that holds the bytes of the value, or the columns from which a schema makes
            values.
        topic: topic of all rows, even if rows name other topics; None: each row names its topic.
        ignored: names of columns that only the source has, which are not written.
        upsert: True if each row must have a key, because a compacted topic keeps the last message of each
            key.
    """

    value: str | ValueColumns
    topic: TopicName | None
    reserved: frozenset[str]
    ignored: tuple[str, ...]
    upsert: bool

    @property
    def allows_joined_batches(self) -> bool:
        """Whether record batches may be joined: messages and their order do not depend on the batches.

        A replay may join other batches. So batches are not joined if rows name topics, because each batch
        opens and closes writers; nor with delivery times, which decide whether a batch is grouped by key.
        Encoded values are not joined, because they may be far larger than their columns.
        """
        has_times = not self.reserved.isdisjoint((DELIVER_AT, DELIVER_AFTER))
        return self.topic is not None and isinstance(self.value, str) and not has_times

    def messages(
        self, batch: pa.RecordBatch, encoders: Encoders | None = None
    ) -> Iterator[tuple[TopicName, MessageColumns]]:
        """Yields the messages of a batch by topic, each topic's in the order of the rows.

        Raises:
            OptionError: a row has no topic or an invalid topic, no key although ``upsert`` needs a key, two
                delivery times, or two keys.
            SchemaError: a row does not fit the schema of its topic.
        """
        columns = self._columns(batch)
        rows = None if isinstance(self.value, str) else self.value.rows(batch)
        if self.topic is not None:
            yield self.topic, self._encoded(self.topic, columns, rows, encoders)
            return
        topics, number_of_row = _by_topic(batch.column(TOPIC))
        in_order = np.argsort(number_of_row, kind="stable")
        bounds = np.searchsorted(number_of_row[in_order], np.arange(len(topics) + 1))
        for number, topic in enumerate(topics):
            if encoders is not None and number % IN_PARALLEL == 0:
                encoders.prepare(topics[number : number + IN_PARALLEL])
            of_topic = in_order[bounds[number] : bounds[number + 1]]
            if len(of_topic) == len(columns):
                yield topic, self._encoded(topic, columns, rows, encoders)
            else:
                indexes = pa.array(of_topic)
                own = None if rows is None else rows.take(indexes)
                yield topic, self._encoded(topic, columns.take(indexes), own, encoders)

    def _encoded(
        self, topic: TopicName, columns: MessageColumns, rows: pa.Array | None, encoders: Encoders | None
    ) -> MessageColumns:
        if rows is not None:
            assert encoders is not None
            encode = encoders.of(topic)
            try:
                encoded = encode(rows)
            except SchemaError as error:
                raise error.located(str(topic)) from error
            columns = replace(columns, value=encoded.values)
            if encoded.keys is not None:
                if columns.key.null_count < len(columns):
                    raise OptionError(
                        f"rows have {KEY}, but with keyValueEncoding=SEPARATED the key comes from the key "
                        "columns",
                        topic=str(topic),
                        advice=f"Leave {KEY} out: .drop({KEY!r})",
                    )
                columns = replace(columns, key=encoded.keys)
        if self.upsert and columns.key.null_count:
            raise OptionError(
                f"option upsert is true, but a row has no key: its {KEY} is null",
                advice="Give each row a key, or remove rows without one",
            )
        return columns

    def _columns(self, batch: pa.RecordBatch) -> MessageColumns:
        def reserved(name: str, convert: Callable[[pa.Array], pa.Array]) -> pa.Array | None:
            return convert(batch.column(name)) if name in self.reserved else None

        none = pa.nulls(batch.num_rows, pa.binary())
        key = reserved(KEY, to_binary)
        return MessageColumns(
            value=to_binary(batch.column(self.value)) if isinstance(self.value, str) else none,
            key=none if key is None else key,
            event_time=reserved(EVENT_TIME, _milliseconds),
            properties=reserved(PROPERTIES, _properties),
            ordering_key=reserved(ORDERING_KEY, to_binary),
            sequence_id=reserved(SEQUENCE_ID, lambda ids: ids.cast(pa.int64())),
            deliver_at=_delivery_times(
                reserved(DELIVER_AT, _milliseconds), reserved(DELIVER_AFTER, _integers)
            ),
            partition=reserved(PARTITION, _integers),
        )


# The types of the metadata columns that the sink accepts. The sink leaves out the source's other metadata
# columns, so that rows can be written as they were read.
_ALLOWED: dict[str, tuple[type[DataType], ...]] = {
    TOPIC: (StringType,),
    KEY: (StringType, BinaryType, NullType),
    ORDERING_KEY: (StringType, BinaryType, NullType),
    EVENT_TIME: (TimestampType, LongType, NullType),
    PROPERTIES: (MapType,),
    PARTITION: (IntegerType, NullType),
    SEQUENCE_ID: (LongType, NullType),
    DELIVER_AT: (TimestampType, NullType),
    DELIVER_AFTER: (LongType, IntegerType, NullType),
}
_RAW = SinkValues()
# The columns of Spark's Kafka sink except the value, and the columns of this sink with the same meaning.
_OF_KAFKA = {
    "key": KEY,
    "headers": PROPERTIES,
    "topic": TOPIC,
    "timestamp": EVENT_TIME,
    "partition": PARTITION,
}


def written_types() -> dict[str, list[str]]:
    """Returns the accepted Spark SQL types of each of the sink's metadata columns, by column name."""
    return {name: _ddls(name) for name in _ALLOWED}


def message_shape(
    schema: StructType, topic: TopicName | None, *, upsert: bool = False, values: SinkValues = _RAW
) -> MessageShape:
    """Determines the meaning of each column of the rows to write.

    Raises OptionError: the rows have no topic, no value column or several, a column of a type that is not
    accepted, or an unknown column whose name begins with ``__``.
    """
    fields = {field.name: field for field in schema.fields}
    if len(fields) < len(schema.fields):
        raise OptionError(
            f"two columns have the same name: {schema.simpleString()}", advice="Rename one of them"
        )
    _check_kafka(fields, values)
    if topic is None and TOPIC not in fields:
        raise OptionError(
            "no topic is given for the rows",
            advice=f'Set .option("topic", ...), or add a string column {TOPIC} to the rows',
        )
    if upsert and KEY not in fields and not (values.key_columns or values.is_pair):
        raise OptionError(
            f"option upsert is true, but the rows have no column {KEY}", advice="Add the column"
        )
    for name in _ALLOWED.keys() & fields.keys():
        _check_reserved(fields[name])
    ignored = tuple(name for name in fields if name in METADATA_COLUMNS and name not in _ALLOWED)
    payload = [field for name, field in fields.items() if name not in _ALLOWED and name not in ignored]
    is_raw = values.format is ValueFormat.RAW
    _check_names(payload)
    return MessageShape(
        value=raw_value(payload) if is_raw else value_columns(payload, values),
        topic=topic,
        reserved=frozenset(_ALLOWED.keys() & fields.keys()),
        ignored=ignored,
        upsert=upsert,
    )


def _check_kafka(fields: Mapping[str, StructField], values: SinkValues) -> None:
    """Raises OptionError for columns of Spark's Kafka sink, which would become a part of the value."""
    names = fields.keys() - {*values.key_columns}
    has_payload = "value" in names and isinstance(fields["value"].dataType, StringType | BinaryType)
    found = [name for name in fields if name in names and name in _OF_KAFKA]
    if found and has_payload and (values.format is ValueFormat.RAW or names <= {"value", *_OF_KAFKA}):
        renamed = ", ".join(f"{name} to {_OF_KAFKA[name]}" for name in found)
        raise OptionError(
            f"columns of the rows have names of Kafka's sink: {', '.join(found)}",
            advice=f"Rename {renamed}. Fields of a record may have such names with valueFormat=struct, "
            "in the one struct column value",
        )


def _check_names(payload: Sequence[StructField]) -> None:
    """Raises OptionError for unknown names with ``__``, because a mistyped name must not become a field."""
    known = {name.lower(): name for name in (*METADATA_COLUMNS, *_ALLOWED)}
    for name in (field.name for field in payload if field.name.startswith("__")):
        near = difflib.get_close_matches(name.lower(), known, n=1)
        if near:
            advice = f"Did you mean {known[near[0]]}? Otherwise rename it"
        elif len(payload) == 1:
            advice = f"If it is the value, rename it to value: .withColumnRenamed({name!r}, 'value')"
        else:
            advice = "Rename it: names that begin with __ are metadata columns, see docs/columns.md"
        raise OptionError(f"the sink has no column {name}", advice=advice)


def _check_reserved(field: StructField) -> None:
    kind = field.dataType
    fits = isinstance(kind, _ALLOWED[field.name])
    if isinstance(kind, MapType):
        fits = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not fits:
        raise OptionError(
            f"column {field.name} is {kind.simpleString()}",
            advice=f"Cast it to {' or '.join(_ddls(field.name))}",
        )


def _ddls(name: str) -> list[str]:
    kinds = (kind for kind in _ALLOWED[name] if kind is not NullType)
    return ["map<string,string>" if kind is MapType else kind().simpleString() for kind in kinds]


def _by_topic(names: pa.Array) -> tuple[list[TopicName], np.ndarray]:
    """Returns the topics, and the index of each row's topic. Short and full names are the same topic."""
    if names.null_count:
        raise OptionError(f"a row has no topic: its {TOPIC} is null", advice="Fill the column")
    coded = names.dictionary_encode()
    topics = [_topic(text) for text in coded.dictionary.to_pylist()]
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    number_of = np.array([numbers[topic] for topic in topics], np.int32)
    return list(numbers), number_of[coded.indices.to_numpy()]


@lru_cache(maxsize=10_000)
def _topic(text: str) -> TopicName:
    return TopicName.parse(text, scalable=True)


def _milliseconds(array: pa.Array) -> pa.Int64Array | None:
    if array.null_count == len(array):
        return None
    if pa.types.is_integer(array.type):
        return array
    micros = array.view(pa.int64())
    missing = micros.is_null().to_numpy(zero_copy_only=False) if micros.null_count else None
    return pa.array(pc.fill_null(micros, 0).to_numpy() // 1000, mask=missing)


def _integers(array: pa.Array) -> pa.Array | None:
    return None if array.null_count == len(array) else array


def _delivery_times(at: pa.Int64Array | None, after: pa.Array | None) -> pa.Int64Array | None:
    """Merges times (``at``, ms since 1970) and delays from now (``after``, ms) into ms since 1970."""
    if after is None:
        return at
    now = epoch_ms()
    longest = (1 << 63) - 1 - now  # a sum beyond int64 would become a time long ago
    from_now = pc.add(pc.min_element_wise(after.cast(pa.int64()), longest, skip_nulls=False), now)
    if at is None:
        return from_now
    if pc.any(pc.and_(at.is_valid(), after.is_valid())).as_py():
        raise OptionError(f"a row has both {DELIVER_AT} and {DELIVER_AFTER}", advice="Leave one of them null")
    return at.fill_null(from_now)


def _properties(maps: pa.MapArray) -> pa.MapArray | None:
    """Returns maps with an empty map for null, and without null values; None: all maps are empty."""
    maps = maps.cast(_MAP)
    if maps.null_count:
        rows = np.where(maps.is_null().to_numpy(zero_copy_only=False), len(maps), np.arange(len(maps)))
        maps = pa.concat_arrays([maps, pa.array([[]], _MAP)]).take(pa.array(rows))
    offsets = maps.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    values = maps.items.slice(first, last - first)
    if values.null_count:
        has_value = values.is_valid()
        held = np.append(0, np.cumsum(has_value.to_numpy(zero_copy_only=False)))
        offsets = held[offsets - first].astype(np.int32)
        names = maps.keys.slice(first, last - first).filter(has_value)
        maps = pa.MapArray.from_arrays(pa.array(offsets), names, values.filter(has_value))
        first, last = 0, int(offsets[-1])
    return maps if first < last else None
