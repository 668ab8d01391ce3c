"""Arrow record batches that Spark writes -> message columns, a group for each topic. Kernels, no row loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

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

from pulsar_spark.client import MessageColumns, epoch_ms
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.metadata_columns import (
    EVENT_TIME,
    KEY,
    METADATA_COLUMNS,
    ORDERING_KEY,
    PARTITION,
    PROPERTIES,
    SEQUENCE_ID,
    TOPIC,
)

# Columns of rows to be written only.
DELIVER_AT = "__deliverAt"
DELIVER_AFTER = "__deliverAfter"

_MAP = pa.map_(pa.string(), pa.string())
_NO_PROPERTIES = pa.array([[]], _MAP)


@dataclass(frozen=True, slots=True)
class MessageShape:
    """Which column of the rows means what; made by :func:`message_shape`.

    Attributes:
        value: name of the value's column.
        topic: for all rows, or None where each row names its own.
        reserved: names of the reserved columns that the rows have.
        ignored: names of columns that only the source makes.
        upsert: whether each row must have a key, as a compacted topic keeps the last message of each.
    """

    value: str
    topic: TopicName | None
    reserved: frozenset[str]
    ignored: tuple[str, ...]
    upsert: bool

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicName, MessageColumns]]:
        """The messages of a batch by topic, each topic's in the order of the rows.

        Raises:
            OptionError: a row without a topic, with a bad one, or with another than the option's; one without
                a key where that is needed; one with two times of delivery.
        """
        columns = self._columns(batch)
        if TOPIC not in self.reserved:
            assert self.topic is not None
            yield self.topic, columns
            return
        topics, number_of_row = _by_topic(batch.column(TOPIC))
        in_order = np.argsort(number_of_row, kind="stable")
        bounds = np.searchsorted(number_of_row[in_order], np.arange(len(topics) + 1))
        for number, topic in enumerate(topics):
            if self.topic is not None and topic != self.topic:
                raise OptionError(
                    f"a row's {TOPIC} is {topic}, the option topic is {self.topic}",
                    advice=f"Leave one of them out, such as by .drop({TOPIC!r})",
                )
            rows = in_order[bounds[number] : bounds[number + 1]]
            yield topic, columns if len(rows) == len(columns) else columns.take(pa.array(rows))

    def _columns(self, batch: pa.RecordBatch) -> MessageColumns:
        def reserved(name: str, convert: Callable[[pa.Array], pa.Array]) -> pa.Array | None:
            return convert(batch.column(name)) if name in self.reserved else None

        key = reserved(KEY, _binary)
        if self.upsert and key is not None and key.null_count:
            raise OptionError(
                f"option upsert is true, and a row has no key: its {KEY} is null",
                advice="Give each row a key, or leave such rows out",
            )
        return MessageColumns(
            value=_binary(batch.column(self.value)),
            key=pa.nulls(batch.num_rows, pa.binary()) if key is None else key,
            event_time=reserved(EVENT_TIME, _milliseconds),
            properties=reserved(PROPERTIES, _properties),
            ordering_key=reserved(ORDERING_KEY, _binary),
            sequence_id=reserved(SEQUENCE_ID, lambda ids: ids.cast(pa.int64())),
            deliver_at=_delivery_times(
                reserved(DELIVER_AT, _milliseconds), reserved(DELIVER_AFTER, _integers)
            ),
            partition=reserved(PARTITION, _integers),
        )


# The types of the columns that a sink takes. All other metadata columns are made by the source only: a sink
# leaves them out, so that rows can be written as they were read.
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
_VALUE_TYPES = (StringType, BinaryType, NullType)


def message_shape(schema: StructType, topic: TopicName | None, *, upsert: bool = False) -> MessageShape:
    """Find out what the columns of rows to be written mean.

    Args:
        schema: of the rows.
        topic: the option ``topic``, if it is given.
        upsert: the option.

    Raises:
        OptionError: no topic, no value or several, a type that does not fit.
    """
    fields = {field.name: field for field in schema.fields}
    if len(fields) < len(schema.fields):
        raise OptionError(f"two columns have one name: {schema.simpleString()}", advice="Rename one of them")
    if topic is None and TOPIC not in fields:
        raise OptionError(
            "it is not said where rows go",
            advice=f'Set .option("topic", ...), or give rows a string column {TOPIC}',
        )
    if upsert and KEY not in fields:
        raise OptionError(f"option upsert is true, and rows have no column {KEY}", advice="Give them one")
    for name in _ALLOWED.keys() & fields.keys():
        _check_reserved(fields[name])
    ignored = tuple(name for name in fields if name in METADATA_COLUMNS and name not in _ALLOWED)
    values = [field for name, field in fields.items() if name not in _ALLOWED and name not in ignored]
    return MessageShape(
        value=_value_name(values),
        topic=topic,
        reserved=frozenset(_ALLOWED.keys() & fields.keys()),
        ignored=ignored,
        upsert=upsert,
    )


def _check_reserved(field: StructField) -> None:
    kind = field.dataType
    fits = isinstance(kind, _ALLOWED[field.name])
    if isinstance(kind, MapType):
        fits = isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not fits:
        names = [_ddl(allowed) for allowed in _ALLOWED[field.name] if allowed is not NullType]
        raise OptionError(
            f"column {field.name} is {kind.simpleString()}", advice=f"Cast it to {' or '.join(names)}"
        )


def _ddl(kind: type[DataType]) -> str:
    return "map<string,string>" if kind is MapType else kind().simpleString()


def _value_name(fields: list[StructField]) -> str:
    if not fields:
        raise OptionError("rows have no value", advice="Give them one binary or string column, such as value")
    if len(fields) > 1:
        names = ", ".join(field.name for field in fields)
        raise OptionError(
            f"one column is the value, these are {len(fields)}: {names}",
            advice=f"Make one of them: to_json(struct({names})) as value",
        )
    kind = fields[0].dataType
    if not isinstance(kind, _VALUE_TYPES):
        raise OptionError(
            f"the value column {fields[0].name} is {kind.simpleString()}",
            advice="Cast it to binary or string, or use to_json(struct(...))",
        )
    return fields[0].name


def _by_topic(names: pa.Array) -> tuple[list[TopicName], np.ndarray]:
    """The topics of rows, and for each row the number of its topic; short and full names are one topic."""
    if names.null_count:
        raise OptionError(f"a row has no topic: its {TOPIC} is null", advice="Fill the column")
    coded = names.dictionary_encode()
    topics = [_topic(text) for text in coded.dictionary.to_pylist()]
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    number_of = np.array([numbers[topic] for topic in topics], np.int32)
    return list(numbers), number_of[coded.indices.to_numpy()]


@lru_cache(maxsize=10_000)
def _topic(text: str) -> TopicName:
    return TopicName.parse(text)


def _binary(array: pa.Array) -> pa.BinaryArray:
    """Also from the large types, which Spark uses under spark.sql.execution.arrow.useLargeVarTypes."""
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    return array.cast(pa.binary())


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
    """When to deliver, by a time in ms or so many ms from now."""
    if after is None:
        return at
    from_now = pc.add(after.cast(pa.int64()), epoch_ms())
    if at is None:
        return from_now
    if pc.any(pc.and_(at.is_valid(), after.is_valid())).as_py():
        raise OptionError(f"a row has both {DELIVER_AT} and {DELIVER_AFTER}", advice="Leave one of them null")
    return at.fill_null(from_now)


def _properties(maps: pa.MapArray) -> pa.MapArray | None:
    """Maps without nulls; None where all are empty."""
    maps = maps.cast(_MAP)
    if maps.null_count:
        rows = np.where(maps.is_null().to_numpy(zero_copy_only=False), len(maps), np.arange(len(maps)))
        maps = pa.concat_arrays([maps, _NO_PROPERTIES]).take(pa.array(rows))
    offsets = maps.offsets
    return maps if offsets[0].as_py() < offsets[-1].as_py() else None
