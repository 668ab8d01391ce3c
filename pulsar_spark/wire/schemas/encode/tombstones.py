"""Records that are null as a whole, and so no records: they are written as tombstones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.wire.schemas.values import EncodedValues

if TYPE_CHECKING:
    from pulsar_spark.wire.schemas.values import ValueEncoder

_NULL = pa.scalar(None, pa.binary())


@dataclass(frozen=True, slots=True)
class TombstoneEncoder:
    """Writes null rows as tombstones, and gives the others to the encoder of records."""

    records: ValueEncoder

    def encode(self, rows: pa.Array) -> EncodedValues:
        """Write n rows; see :class:`ValueEncoder`. Indexes of rows in errors are those of ``rows``."""
        if not rows.null_count:
            return self.records.encode(rows)
        is_valid = rows.is_valid()
        if rows.null_count == len(rows):
            return EncodedValues(pa.nulls(len(rows), pa.binary()))
        # Any record in the place of a null one: its bytes are not used.
        numbers = np.arange(len(rows))
        has = is_valid.to_numpy(zero_copy_only=False)
        filled = np.where(has, numbers, has.argmax())
        encoded = self.records.encode(rows.take(pa.array(filled)))
        return EncodedValues(pc.if_else(is_valid, encoded.values, _NULL), encoded.keys)
