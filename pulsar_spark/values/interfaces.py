"""Interfaces that each kind of schema implements: ValueDecoder (payloads -> column) and ValueEncoder.

Arrow types of columns are those of Spark (``pyspark.sql.pandas.types``): strings are ``string``, times
``timestamp("us", "UTC")`` or ``timestamp("us")``, items of lists are named ``element``. All fields are
nullable at any depth, whatever the schema says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pulsar_spark.values.value_bounds import ValueCost, ValueWork


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """n values as a column.

    Attributes:
        column: n rows; null if the payload or the value is null, or the row is bad.
        is_bad: flags of the payloads that are not values of the schema, bool[n]; None: no payload is bad.
    """

    column: pa.Array
    is_bad: npt.NDArray[np.bool_] | None = None


class ValueDecoder(Protocol):
    """Decodes values of one version of a schema to a column of the reader's type."""

    @property
    def type(self) -> pa.DataType:
        """Returns the type of the decoded column."""
        ...

    @property
    def cost(self) -> ValueCost:
        """Returns the maximum bytes that a decoded value uses in its column."""
        ...

    @property
    def plan(self) -> Hashable:
        """Returns a key; decoders with equal keys decode alike, so one call may decode the rows of both."""
        ...

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ...) -> DecodedValues:
        """Decodes n values; a bad value does not affect other values.

        Args:
            values: ``binary`` [n], may be a slice. A null is a tombstone; its row is null, and not bad.
            keys: ``binary`` [n], keys of the messages; only KEY_VALUE reads them.
            work: work that each value may use. A value that needs more becomes null, and is flagged in
                ``work.refused``, but not always in ``is_bad``.
        """
        ...

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        """Returns why a value is bad: the path of the field, and the mistake."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """n rows as payloads.

    Attributes:
        values: ``binary`` [n]; null is a tombstone.
        keys: ``binary`` [n], keys of the messages; None: the schema has no keys.
    """

    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None


# Encodes n rows of one type as values of one schema; equal rows always become equal bytes. Raises SchemaError
# for a row that does not fit the schema, with the row's index and the field's path.
ValueEncoder: TypeAlias = Callable[[pa.Array], EncodedValues]


_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.time64("ns"): "time(6)",
}


def type_name(kind: pa.DataType) -> str:
    """Returns Spark's name of an Arrow type for errors, or Arrow's if Spark has none."""
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        return "timestamp"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "variant" if is_variant(kind) else "struct"
    return _NAMES.get(kind) or ("void" if pa.types.is_null(kind) else str(kind))


def is_variant(kind: pa.StructType) -> bool:
    """Whether a struct is the Arrow type of Spark's variant, geometry or geography."""
    marks = (b"variant", b"geometry", b"geography")
    return any(mark in (field.metadata or {}) for field in kind for mark in marks)
