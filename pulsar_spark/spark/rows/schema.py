"""RowColumns: the columns of rows that are read, with their Spark and Arrow schema and their makers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructField, StructType

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS, Maker
from pulsar_spark.spark.spark_api import arrow_schema

VALUE = "value"

_SHOWN = 20  # maximum number of names in an error


@dataclass(frozen=True)
class RowColumns:
    """The columns of rows: those of the payload, then metadata columns; or a selection of them in any order.

    A task makes its schemas once, not once for each topic partition.

    Attributes:
        metadata: names from ``METADATA_COLUMNS``, in the order of the columns.
        value_type: type that payloads are decoded to; None: the column ``value`` holds their bytes.
        is_flat: whether a ``value_type`` that is a struct gives a column for each field; otherwise the column
            ``value`` holds it.
        projection: the columns that the user selects; None: all.
    """

    metadata: tuple[str, ...] = DEFAULT_METADATA_COLUMNS
    value_type: pa.DataType | None = None
    is_flat: bool = False
    projection: StructType | None = None

    @cached_property
    def schema(self) -> StructType:
        """The Spark schema of the rows.

        Raises:
            OptionError: two columns have the same name.
        """
        if self.projection is not None:
            return self.projection
        fields = [*self._payload.fields, *self._metadata.fields]
        self._check_names(field.name for field in fields)
        return StructType(fields)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema.

        Spark compares it exactly with a read's first batch; it does not check later batches.
        """
        return arrow_schema(self.schema)

    @property
    def has_fields(self) -> bool:
        """Whether the fields of the payload's type are columns."""
        return self.is_flat and self.value_type is not None and pa.types.is_struct(self.value_type)

    @property
    def target(self) -> pa.DataType | None:
        """The Arrow type that payloads are decoded to, with fields in the order of ``value_type``.

        It is the whole type if none of its columns are selected.
        """
        if self.projection is None or self.value_type is None:
            return self.value_type
        wanted = {field.name: field for field in self.arrow_schema}
        fields = [wanted[name] for name in self._payload.names if name in wanted]
        if not fields:
            return self.value_type
        return pa.struct(fields) if self.has_fields else fields[0].type

    def makers(self, topic: TopicName) -> dict[str, Maker]:
        """The makers of the metadata columns for a topic partition, by name."""
        payload = set(self._payload.names)
        return {
            name: METADATA_COLUMNS[name].maker(topic) for name in self.schema.names if name not in payload
        }

    def projected(self, wanted: StructType) -> RowColumns:
        """These columns limited to those that the user selects.

        The decoder checks whether types can be promoted.

        Raises:
            OptionError: the source does not have a selected column, or cannot give it that type or name.
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
            # Old schema versions, tombstones and bad rows give nulls, whatever the schema says.
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

    @cached_property
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
        """Raise OptionError for equal names.

        Those that differ only by case are Spark's to judge, which depends on ``spark.sql.caseSensitive``.
        """
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise OptionError(
                f"two columns have the same name: {', '.join(twice[:_SHOWN])}",
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
    """Whether a field, element or map value within the type is not nullable."""
    if isinstance(kind, ArrayType):
        return not kind.containsNull or _has_not_null(kind.elementType)
    if isinstance(kind, MapType):
        return not kind.valueContainsNull or _has_not_null(kind.valueType)
    if isinstance(kind, StructType):
        return any(not field.nullable or _has_not_null(field.dataType) for field in kind.fields)
    return False


# The schema of the default columns.
SOURCE_SCHEMA = RowColumns().schema
