"""RowColumns: the columns of the source's rows, with their Spark and Arrow schema and their makers.

A maker is a function that makes a metadata column from decoded messages, with Arrow's kernels for all rows at
once. This module does not parse Pulsar's formats, which :class:`pulsar_spark.client.DecodedMessages` decodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pulsar_spark.client import DecodedMessages, EntryField
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.spark_api import TimeType, arrow_schema, arrow_type

KEY = "__key"
TOPIC = "__topic"
MESSAGE_ID = "__messageId"
PUBLISH_TIME = "__publishTime"
EVENT_TIME = "__eventTime"
PROPERTIES = "__messageProperties"
PARTITION = "__partition"
OFFSET = "__offset"
ORDERING_KEY = "__orderingKey"
SEQUENCE_ID = "__sequenceId"
PRODUCER_NAME = "__producerName"
SCHEMA_VERSION = "__schemaVersion"
SCHEMA_ID = "__schemaId"
REPLICATED_FROM = "__replicatedFrom"
IS_NULL = "__isNull"
INDEX = "__index"
BROKER_PUBLISH_TIME = "__brokerPublishTime"
CORRUPT_VALUE = "__corruptValue"

# A record batch is closed at this many rows. With 10,000, a Python worker uses 1.4 times the CPU to read
# messages of 100 bytes, because each batch has a fixed cost of 1.6 ms.
MAX_ROWS = 40_000
MAX_TYPED_ROWS = 10_000  # limit for values with a schema, which may use far more memory than their bytes

# Columns with the same value in all rows are cached up to this many rows; longer columns are made each time.
KEPT_ROWS = 2 * MAX_ROWS

_MAX_MS = (1 << 63) // 1000 - 1  # latest time in ms that fits into an int64 of microseconds
_TIMESTAMP, _PROPERTIES = TimestampType(), MapType(StringType(), StringType())
_ARROW_TIMESTAMP = arrow_type(_TIMESTAMP)
_ARROW_PROPERTIES = arrow_type(_PROPERTIES)

Maker: TypeAlias = Callable[[DecodedMessages], pa.Array]
_OfTopic: TypeAlias = Callable[[TopicName], "str | int | None"]


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """A column that is not a part of the payload, such as the key or the topic."""

    type: DataType
    make: Maker


class Repeated:
    """A column with the same value in all rows, sliced from a cached array, which grows up to KEPT_ROWS."""

    def __init__(self, make: Callable[[int], pa.Array]) -> None:
        self._make = make
        # Made at first use, because pyarrow's first array imports pandas, which planners do not need.
        self._array: pa.Array | None = None

    def of(self, length: int) -> pa.Array:
        """Returns the column for ``length`` rows."""
        if length > KEPT_ROWS:
            return self._make(length)
        array = self._array  # read once, because another thread may set a shorter array
        if array is None or length > len(array):
            double = 0 if array is None else 2 * len(array)
            self._array = array = self._make(min(max(length, double), KEPT_ROWS))
        return array.slice(0, length)


NO_TIME = Repeated(lambda n: pa.nulls(n, _ARROW_TIMESTAMP))
NO_BYTES = Repeated(lambda n: pa.nulls(n, pa.binary()))
NO_PROPERTIES = Repeated(
    lambda n: pa.MapArray.from_arrays(
        pa.array(np.zeros(n + 1, np.int32)), pa.array([], pa.string()), pa.array([], pa.string())
    ).cast(_ARROW_PROPERTIES)
)


def _of_topic(kind: pa.DataType, value: _OfTopic, messages: DecodedMessages) -> pa.Array:
    """Returns a column with the same value in all rows of a topic partition."""
    topics, counts = zip(*messages.topics, strict=True)
    if len(topics) == 1:
        return _repeated(kind, value, topics[0]).of(counts[0])
    values = pa.array(map(value, topics), kind)
    return values.take(pa.array(np.repeat(np.arange(len(topics)), counts)))


# Caches two columns, ``__topic`` and ``__partition``: consecutive batches are mostly of one partition.
@lru_cache(maxsize=2)
def _repeated(
    kind: pa.DataType, value: Callable[[TopicName], str | int | None], topic: TopicName
) -> Repeated:
    scalar = pa.scalar(value(topic), kind)
    return Repeated(lambda n: pa.repeat(scalar, n))


def _entry_field(field: EntryField) -> Maker:
    return lambda messages: messages.entry_field(field)


def _topic(topic: TopicName) -> str:
    return str(topic.base if topic.is_segment else topic)


def _partition(topic: TopicName) -> int | None:
    return None if topic.partition < 0 else topic.partition


def _publish_time(messages: DecodedMessages) -> pa.TimestampArray:
    return messages.entry_field(EntryField.PUBLISH_TIME, _microseconds).view(_ARROW_TIMESTAMP)


def _microseconds(times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Converts ms to microseconds, limited to int64; a negative number means unsigned 2**63 or more."""
    return np.where(times < 0, _MAX_MS, np.minimum(times, _MAX_MS)) * 1000


def _broker_publish_time(messages: DecodedMessages) -> pa.TimestampArray:
    times = pc.min_element_wise(messages.broker_time, _MAX_MS, skip_nulls=False)
    return pc.multiply(times, 1000).view(_ARROW_TIMESTAMP)


def _event_time(messages: DecodedMessages) -> pa.TimestampArray:
    times = messages.event_time
    if times is None:
        return NO_TIME.of(len(messages))
    # In Pulsar 0 means unset. Times beyond int64 in microseconds become the earliest or latest time.
    times = pc.if_else(pc.equal(times, 0), pa.scalar(None, pa.int64()), times)
    times = pc.min_element_wise(times, _MAX_MS, skip_nulls=False)
    times = pc.max_element_wise(times, -_MAX_MS, skip_nulls=False)
    return pc.multiply(times, 1000).view(_ARROW_TIMESTAMP)


def _properties(messages: DecodedMessages) -> pa.MapArray:
    properties = messages.properties
    return NO_PROPERTIES.of(len(messages)) if properties is None else properties.cast(_ARROW_PROPERTIES)


def _offset(messages: DecodedMessages) -> pa.StringArray:
    """Returns positions as ``ledger:entry``, followed by ``:batch`` for messages of batches."""
    parts = [messages.ledger, messages.entry, messages.batch_index]
    texts = [part.cast(pa.string()) for part in parts if part is not None]
    return pc.binary_join_element_wise(*texts, ":", null_handling="skip")


def _ordering_key(messages: DecodedMessages) -> pa.BinaryArray:
    keys = messages.ordering_key
    return NO_BYTES.of(len(messages)) if keys is None else keys


# Metadata columns, in the order of the docs.
METADATA_COLUMNS: dict[str, MetadataColumn] = {
    KEY: MetadataColumn(BinaryType(), lambda messages: messages.key),
    TOPIC: MetadataColumn(StringType(), partial(_of_topic, pa.string(), _topic)),
    MESSAGE_ID: MetadataColumn(BinaryType(), lambda messages: messages.message_id),
    PUBLISH_TIME: MetadataColumn(_TIMESTAMP, _publish_time),
    EVENT_TIME: MetadataColumn(_TIMESTAMP, _event_time),
    PROPERTIES: MetadataColumn(_PROPERTIES, _properties),
    PARTITION: MetadataColumn(IntegerType(), partial(_of_topic, pa.int32(), _partition)),
    OFFSET: MetadataColumn(StringType(), _offset),
    ORDERING_KEY: MetadataColumn(BinaryType(), _ordering_key),
    SEQUENCE_ID: MetadataColumn(LongType(), lambda messages: messages.sequence_id),
    PRODUCER_NAME: MetadataColumn(StringType(), _entry_field(EntryField.PRODUCER_NAME)),
    SCHEMA_VERSION: MetadataColumn(BinaryType(), _entry_field(EntryField.SCHEMA_VERSION)),
    SCHEMA_ID: MetadataColumn(BinaryType(), _entry_field(EntryField.SCHEMA_ID)),
    REPLICATED_FROM: MetadataColumn(StringType(), _entry_field(EntryField.REPLICATED_FROM)),
    IS_NULL: MetadataColumn(BooleanType(), lambda messages: messages.is_null),
    INDEX: MetadataColumn(LongType(), lambda messages: messages.broker_index),
    BROKER_PUBLISH_TIME: MetadataColumn(_TIMESTAMP, _broker_publish_time),
    # This column is all null. If a batch has bad rows, the PayloadReader makes the column instead.
    CORRUPT_VALUE: MetadataColumn(BinaryType(), lambda messages: NO_BYTES.of(len(messages))),
}
DEFAULT_METADATA_COLUMNS = (KEY, TOPIC, MESSAGE_ID, PUBLISH_TIME, EVENT_TIME, PROPERTIES)


VALUE = "value"


class ValueFormat(Enum):
    """Form of payloads as columns, in reads and writes."""

    RAW = "raw"
    COLUMNS = "columns"
    STRUCT = "struct"


_SHOWN = 20  # maximum number of names in an error
_TIME_DIGITS = 6  # digits of the seconds of Spark's time


@dataclass(frozen=True)
class RowColumns:
    """Columns of the payload, then metadata columns; or a selection of both in any order.

    The schemas are cached, because a task uses them for each topic partition.

    Attributes:
        value_type: type that payloads are decoded to; None: the column ``value`` holds their bytes.
        is_flat: True if each field of a struct ``value_type`` is a column. False: the column ``value`` has
            the struct.
        projection: columns that the user selects; None: all.
    """

    metadata: tuple[str, ...] = DEFAULT_METADATA_COLUMNS
    value_type: pa.DataType | None = None
    is_flat: bool = False
    projection: StructType | None = None

    @cached_property
    def schema(self) -> StructType:
        """Returns the Spark schema of the rows. Raises OptionError: two columns have the same name."""
        if self.projection is not None:
            return self.projection
        fields = [*self._payload.fields, *self._metadata.fields]
        self._check_names(field.name for field in fields)
        return StructType(fields)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Returns the Arrow schema of all batches.

        Spark compares the schema exactly with a read's first batch, and does not check later batches.
        """
        return arrow_schema(self.schema)

    @property
    def has_fields(self) -> bool:
        """Whether the fields of the payload's type are columns."""
        return self.is_flat and self.value_type is not None and pa.types.is_struct(self.value_type)

    @property
    def target(self) -> pa.DataType | None:
        """Returns the Arrow type that payloads are decoded to, with fields in the order of ``value_type``.

        Returns ``value_type`` if no column of the payload is selected, because bad payloads must be found.
        """
        if self.projection is None or self.value_type is None:
            return self.value_type
        wanted = {field.name: field for field in self.arrow_schema}
        fields = [wanted[name] for name in self._payload.names if name in wanted]
        if not fields:
            return self.value_type
        return pa.struct(fields) if self.has_fields else fields[0].type

    def makers(self) -> dict[str, Maker]:
        """Returns the makers of the metadata columns, by name."""
        payload = set(self._payload.names)
        return {name: METADATA_COLUMNS[name].make for name in self.schema.names if name not in payload}

    def projected(self, wanted: StructType) -> RowColumns:
        """Returns the columns that the user selects.

        Does not check whether values can be promoted to a selected type, because the decoder checks that.

        Raises OptionError: the source lacks a selected column, or the column cannot have that type or name.
        """
        payload, metadata = ({f.name: f for f in each.fields} for each in (self._payload, self._metadata))
        if wanted.fields == [*payload.values(), *metadata.values()]:
            return self
        if not wanted.fields:
            raise OptionError(
                ".schema(...) has no columns", advice="Give at least one column, or leave .schema(...) out"
            )
        given = {**metadata, **payload}
        for name in wanted.names:
            if name in METADATA_COLUMNS and name not in given:
                raise OptionError(
                    f"column {name} of .schema(...) is not in metadataColumns",
                    advice="Add it to the option metadataColumns",
                )
        _check_fields(wanted, StructType([*payload.values(), *metadata.values()]), "", self._without_fields)
        for field in wanted.fields:
            # Old schema versions, tombstones and bad rows have nulls, whatever the schema says.
            if not field.nullable or _has_not_null(field.dataType):
                raise OptionError(
                    f"column {field.name} is NOT NULL in .schema(...)",
                    advice="Leave NOT NULL out: tombstones and old versions give nulls, which Spark would "
                    "take for values",
                )
            own = given[field.name].dataType
            may_be_promoted = self.value_type is not None and field.name in payload
            if field.dataType != own and not may_be_promoted:
                raise OptionError(
                    f"column {field.name} is {own.simpleString()}, not {field.dataType.simpleString()}",
                    advice="Cast it after .load()",
                )
        self._check_names([*wanted.names, *(payload.keys() & metadata.keys() & set(wanted.names))])
        return replace(self, projection=wanted)

    @cached_property
    def _payload(self) -> StructType:
        if self.value_type is None:
            return StructType([StructField(VALUE, BinaryType())])
        kind = from_arrow_type(self.value_type, prefer_timestamp_ntz=True)
        if self.has_fields:
            assert isinstance(kind, StructType)
            return kind
        return StructType([StructField(VALUE, kind)])

    @property
    def _without_fields(self) -> str:
        """Returns advice for users whose rows lack the payload's fields; empty if the rows have them."""
        if self.value_type is None:
            return ". For the fields of the topic's schema set valueFormat=columns"
        if self.is_flat and not self.has_fields:
            return ". For the fields of values without a schema set schemaType and valueSchema"
        return ""

    @property
    def _metadata(self) -> StructType:
        return StructType([StructField(name, METADATA_COLUMNS[name].type) for name in self.metadata])

    def _check_names(self, names: Iterable[str]) -> None:
        """Raises OptionError for equal names.

        Spark checks names that differ only by case, as ``spark.sql.caseSensitive`` says.
        """
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise OptionError(
                f"two columns have the same name: {', '.join(twice[:_SHOWN])}",
                advice="Set valueFormat=struct, or fewer metadataColumns, or choose columns by .schema(...)",
            )


def _check_fields(wanted: DataType, given: DataType, path: str, more: str = "") -> None:
    """Raises OptionError for a field, at any depth, that is unknown or is selected twice.

    Advice about an unknown column ends with ``more``.
    """
    if isinstance(wanted, TimeType) and wanted.precision != _TIME_DIGITS:
        raise OptionError(
            f"column {path} is {wanted.simpleString()} in .schema(...)",
            advice=f"Write it as time({_TIME_DIGITS}), which has all digits that the source reads",
        )
    if isinstance(wanted, ArrayType) and isinstance(given, ArrayType):
        _check_fields(wanted.elementType, given.elementType, f"{path}[]")
    if isinstance(wanted, MapType) and isinstance(given, MapType):
        _check_fields(wanted.valueType, given.valueType, f"{path}{{}}")
    if not isinstance(wanted, StructType) or not isinstance(given, StructType):
        return
    known = {field.name: field.dataType for field in given.fields}
    for field in wanted.fields:
        below = f"{path}.{field.name}" if path else field.name
        if field.name not in known:
            like = next((name for name in known if name.lower() == field.name.lower()), None)
            shown = ", ".join([*known][:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
            raise OptionError(
                f"the source has no column {below}",
                advice=f"Its columns are {shown}{more}" if like is None else f"Write it as {like}",
            )
        _check_fields(field.dataType, known[field.name], below)
    twice = next((name for name, count in Counter(wanted.names).items() if count > 1), None)
    if twice is not None:
        raise OptionError(
            f".schema(...) has column {path}{'.' * bool(path)}{twice} twice", advice="Write it once"
        )


def _has_not_null(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return not kind.containsNull or _has_not_null(kind.elementType)
    if isinstance(kind, MapType):
        return not kind.valueContainsNull or _has_not_null(kind.valueType)
    if isinstance(kind, StructType):
        return any(not field.nullable or _has_not_null(field.dataType) for field in kind.fields)
    return False


SOURCE_SCHEMA = RowColumns().schema
