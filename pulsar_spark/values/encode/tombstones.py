"""Writes null rows as tombstones (messages without a value)."""

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
    """Writes null rows as tombstones, and other rows with the encoder ``records``."""

    records: ValueEncoder

    def encode(self, rows: pa.Array) -> EncodedValues:
        """Writes n rows; see :class:`ValueEncoder`. Row indexes in errors refer to ``rows``."""
        if not rows.null_count:
            return self.records.encode(rows)
        if rows.null_count == len(rows):
            return EncodedValues(pa.nulls(len(rows), pa.binary()))
        # A null row becomes a copy of a valid one, because records may not be null; its bytes are dropped.
        numbers = np.arange(len(rows))
        has = rows.is_valid().to_numpy(zero_copy_only=False)
        filled = np.where(has, numbers, has.argmax())
        encoded = self.records.encode(rows.take(pa.array(filled)))
        return EncodedValues(with_nulls(encoded.values, ~has), encoded.keys)
