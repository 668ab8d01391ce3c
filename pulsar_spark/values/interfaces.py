"""The interfaces of each kind of schema: ValueDecoder, payloads -> column; ValueEncoder, column -> payloads.

Arrow types of columns are those that Spark has for the same type (``pyspark.sql.pandas.types``): strings are
``string``, times ``timestamp("us", "UTC")`` or ``timestamp("us")``, items of lists are named ``element``. All
fields are nullable, those inside others too, whatever the schema says.
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
        column: n rows; null where the payload is null, the value itself is, or the row is bad.
        is_bad: bool[n], which payloads are no value of the schema; None where all are good.
    """

    column: pa.Array
    is_bad: npt.NDArray[np.bool_] | None = None


class ValueDecoder(Protocol):
    """Reads values of one version of a schema into a column of a reader's type."""

    @property
    def type(self) -> pa.DataType:
        """Of the column that ``decode`` gives."""
        ...

    @property
    def cost(self) -> ValueCost:
        """What its values may take as columns."""
        ...

    @property
    def plan(self) -> Hashable:
        """Equal for decoders that make the same of the same values; of many versions, few differ."""
        ...

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ...) -> DecodedValues:
        """Read n values; a bad one never changes another.

        Args:
            values: ``binary`` [n], any offset; null is a tombstone: a null row, and not bad.
            keys: ``binary`` [n], the messages' keys; only KEY_VALUE looks at them.
            work: the work that they may make. A value that would make more is a null row, and bad or not.
        """
        ...

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        """Say why one value is bad: the field's path, and what is wrong there. For values that are bad."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """n rows as payloads.

    Attributes:
        values: ``binary`` [n]; null is a tombstone.
        keys: ``binary`` [n], what the schema puts into the messages' keys; None where it puts nothing there.
    """

    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None


class ValueEncoder(Protocol):
    """Writes rows as values of one schema; the same rows always give the same bytes."""

    def encode(self, rows: pa.Array) -> EncodedValues:
        """Write n rows of the type that the encoder was made for.

        Raises:
            SchemaError: a row does not fit the schema; its index and the field's path are in the text.
        """
        ...
