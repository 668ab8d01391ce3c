"""Units of times in payloads, and conversion to the unit of the column: micro- or nanoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pulsar_spark.values.avro.avro_types import AvroType

Number = TypeVar("Number", int, "npt.NDArray[np.int64]")


class TimeUnit(NamedTuple):
    """A unit of times: one unit is ``factor`` / ``divisor`` column units; one of these numbers is 1."""

    factor: int
    divisor: int

    def to_column(self, value: Number) -> Number:
        """Converts numbers of this unit to the column's unit; rounds towards the past."""
        if self.divisor > 1:
            return value // self.divisor
        return value * self.factor if self.factor > 1 else value

    def bounds(self, column: pa.DataType | None) -> tuple[int, int]:
        """Returns the smallest and the largest number of this unit that a column (None: int64) can hold."""
        if column is not None and pa.types.is_time(column):
            return 0, NANOS_OF_DAY // self.factor - 1
        most = MAX_LONG // self.factor
        return -most - (self.factor == 1), most


MAX_LONG: Final = (1 << 63) - 1
MICROS_OF_DAY: Final = 86_400_000_000
NANOS_OF_DAY: Final = 1000 * MICROS_OF_DAY
MICROS: Final = TimeUnit(1, 1)
MILLIS: Final = TimeUnit(1000, 1)
_UNITS: Final = {"millis": MILLIS, "nanos": TimeUnit(1, 1000)}


def unit_of(avro: AvroType | None, target: pa.DataType | None = None) -> TimeUnit:
    """Returns the unit of a type's times, relative to the unit of the column ``target``.

    Timestamp columns count microseconds, and time columns nanoseconds. For other types the result is 1 / 1.
    """
    if target is not None and pa.types.is_time(target):
        return TimeUnit(1_000_000 if time_kind(avro) == "time-millis" else 1000, 1)
    name, _, unit = getattr(avro, "logical", "").rpartition("-")
    return _UNITS.get(unit, MICROS) if name.endswith("timestamp") else MICROS


def time_kind(avro: AvroType | None) -> str:
    """Returns ``date``, ``timestamp``, ``time-millis`` or ``time-micros``; empty: the type is no time."""
    name: str = getattr(avro, "logical", "") or getattr(avro, "form", "")
    if "timestamp" in name:
        return "timestamp"
    return name if name in ("date", "time-millis", "time-micros") else ""
