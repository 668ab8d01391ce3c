"""The interfaces of each kind of schema: ValueDecoder, payloads -> column; ValueEncoder, column -> payloads.

Arrow types of columns are those of Spark (``pyspark.sql.pandas.types``): strings are ``string``, times
``timestamp("us", "UTC")`` or ``timestamp("us")``, items of lists are named ``element``. All fields are
nullable at any depth, whatever the schema says.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

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
        """Returns the maximum column bytes of a value."""
        ...

    @property
    def plan(self) -> Hashable:
        """Returns a key that equal decoders share; most versions of a schema have equal decoders."""
        ...

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ...) -> DecodedValues:
        """Decodes n values; a bad value never changes another.

        Args:
            values: ``binary`` [n], any offset; null is a tombstone, which is a null row, and not bad.
            keys: ``binary`` [n], keys of the messages; only KEY_VALUE reads them.
            work: work that the values may use. A value that would use more is a null row; ``is_bad`` need not
                flag it.
        """
        ...

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        """Returns the path of the field with the mistake of a bad value, and the mistake."""
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


class ValueEncoder(Protocol):
    """Encodes rows as values of one schema; equal rows always become equal bytes."""

    def encode(self, rows: pa.Array) -> EncodedValues:
        """Encodes n rows of the encoder's type.

        Raises:
            SchemaError: a row does not fit the schema; has its index and the field's path.
        """
        ...
