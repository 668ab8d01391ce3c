"""What users write and name in options, for tests: Spark's Python workers import it from here."""

from __future__ import annotations

import pyarrow as pa


def by_last_digit(keys: pa.BinaryArray, partitions: int) -> list[int]:
    """A `messageRouter`: keys end with a digit; rows without a key go to the last partition."""
    return [partitions - 1 if key is None else int(key[-1:]) % partitions for key in keys.to_pylist()]
