"""Rows whose whole record is null: they are written as tombstones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import with_nulls
from pulsar_spark.values.interfaces import EncodedValues

if TYPE_CHECKING:
    from pulsar_spark.values.interfaces import ValueEncoder


@dataclass(frozen=True, slots=True)
class TombstoneEncoder:
    """Writes null rows as tombstones, and gives the others to the encoder of records."""

    records: ValueEncoder

    def encode(self, rows: pa.Array) -> EncodedValues:
        """Write n rows; see :class:`ValueEncoder`. Indexes of rows in errors are those of ``rows``."""
        if not rows.null_count:
            return self.records.encode(rows)
        if rows.null_count == len(rows):
            return EncodedValues(pa.nulls(len(rows), pa.binary()))
        # Any record instead of a null one: its bytes are not used.
        numbers = np.arange(len(rows))
        has = rows.is_valid().to_numpy(zero_copy_only=False)
        filled = np.where(has, numbers, has.argmax())
        encoded = self.records.encode(rows.take(pa.array(filled)))
        return EncodedValues(with_nulls(encoded.values, ~has), encoded.keys)
