"""RowColumns: the columns of rows that are read: their schema for Spark and Arrow, and what makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructField, StructType

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS, Maker

VALUE = "value"

_SHOWN = 20  # names in an error


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of rows: those of the payload, then metadata columns; or a choice of them, in any order.

    Attributes:
        metadata: names out of ``METADATA_COLUMNS``, in the order of the columns.
        value_type: what payloads are decoded to; None: the column ``value`` has their bytes.
        is_flat: whether the fields of ``value_type``, if it is a struct, are columns; else ``value`` is one.
        projection: the columns that the user wants; None: all.
    """

    metadata: tuple[str, ...] = DEFAULT_METADATA_COLUMNS
    value_type: pa.DataType | None = None
    is_flat: bool = False
    projection: StructType | None = None

    @property
    def schema(self) -> StructType:
        """For Spark.

        Raises:
            OptionError: two columns have one name.
        """
        if self.projection is not None:
            return self.projection
        fields = [*self._payload.fields, *self._metadata.fields]
        self._check_names(field.name for field in fields)
        return StructType(fields)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The same as Spark compares the first batch of a read with, exactly; later ones it only believes."""
        return to_arrow_schema(self.schema, timezone="UTC")

    @property
    def has_fields(self) -> bool:
        """Whether the fields of the payload's type are columns."""
        return self.is_flat and self.value_type is not None and pa.types.is_struct(self.value_type)

    @property
    def target(self) -> pa.DataType | None:
        """What payloads are decoded to for these columns, fields in the order of ``value_type``.

        All of it where none of its columns are wanted.
        """
        if self.projection is None or self.value_type is None:
            return self.value_type
        wanted = {field.name: field for field in self.arrow_schema}
        fields = [wanted[name] for name in self._payload.names if name in wanted]
        if not fields:
            return self.value_type
        return pa.struct(fields) if self.has_fields else fields[0].type

    def makers(self, topic: TopicName) -> dict[str, Maker]:
        """What makes the metadata columns for a topic partition."""
        payload = set(self._payload.names)
        return {
            name: METADATA_COLUMNS[name].maker(topic) for name in self.schema.names if name not in payload
        }

    def projected(self, wanted: StructType) -> RowColumns:
        """The same with the columns that the user wants; whether types are promoted is left to the decoder.

        Raises:
            OptionError: one that the source does not have, or whose type or name it cannot have.
        """
        payload, metadata = ({f.name: f for f in each.fields} for each in (self._payload, self._metadata))
        if wanted.fields == [*payload.values(), *metadata.values()]:
            return self
        if not wanted.fields:
            raise OptionError(
                ".schema(...) has no columns", advice="Give at least one column, or leave .schema(...) out"
            )
        for field in wanted.fields:
            given = payload.get(field.name) or metadata.get(field.name)
            if given is None:
                raise self._unknown(field.name)
            # Old versions, tombstones and bad rows give nulls, whatever a schema says.
            if not field.nullable or _has_not_null(field.dataType):
                raise OptionError(
                    f"column {field.name} is NOT NULL in .schema(...)", advice="Declare it as nullable"
                )
            may_be_promoted = self.value_type is not None and field.name in payload
            if field.dataType != given.dataType and not may_be_promoted:
                raise OptionError(
                    f"column {field.name} is {given.dataType.simpleString()}, "
                    f"not {field.dataType.simpleString()}",
                    advice="Cast it after .load()",
                )
        self._check_names([*wanted.names, *(payload.keys() & metadata.keys() & set(wanted.names))])
        return replace(self, projection=wanted)

    @property
    def _payload(self) -> StructType:
        """All columns of the payload."""
        if self.value_type is None:
            return StructType([StructField(VALUE, BinaryType())])
        kind = from_arrow_type(self.value_type, prefer_timestamp_ntz=True)
        if self.has_fields:
            assert isinstance(kind, StructType)
            return kind
        return StructType([StructField(VALUE, kind)])

    @property
    def _metadata(self) -> StructType:
        return StructType([StructField(name, METADATA_COLUMNS[name].type) for name in self.metadata])

    def _check_names(self, names: Iterable[str]) -> None:
        """Spark does not tell names apart by their case."""
        counts = Counter(name.lower() for name in names)
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise OptionError(
                f"two columns have the same name, ignoring case: {', '.join(twice[:_SHOWN])}",
                advice="Set valueFormat=struct, or fewer metadataColumns, or choose columns by .schema(...)",
            )

    def _unknown(self, name: str) -> OptionError:
        if name in METADATA_COLUMNS:
            return OptionError(
                f"column {name} of .schema(...) is not in metadataColumns",
                advice="Add it to the option metadataColumns",
            )
        names = [*self._payload.names, *self.metadata]
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        return OptionError(f"the source has no column {name}", advice=f"Its columns are {shown}")


def _has_not_null(kind: DataType) -> bool:
    """Whether something within a type must not be null."""
    if isinstance(kind, ArrayType):
        return not kind.containsNull or _has_not_null(kind.elementType)
    if isinstance(kind, MapType):
        return not kind.valueContainsNull or _has_not_null(kind.valueType)
    if isinstance(kind, StructType):
        return any(not field.nullable or _has_not_null(field.dataType) for field in kind.fields)
    return False


# With the columns that are given by default.
SOURCE_SCHEMA = RowColumns().schema
