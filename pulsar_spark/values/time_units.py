"""Units of times, and conversion to microseconds, the unit of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pulsar_spark.values.avro.avro_types import AvroType

Number = TypeVar("Number", int, "npt.NDArray[np.int64]")


class TimeUnit(NamedTuple):
    """The unit of a timestamp: ``factor`` / ``divisor`` microseconds; one of both is 1."""

    factor: int
    divisor: int

    def micros(self, value: Number) -> Number:
        """Converts numbers of the unit to microseconds; a remainder is cut towards the past."""
        if self.divisor > 1:
            return value // self.divisor
        return value * self.factor if self.factor > 1 else value


MICROS_OF_DAY: Final = 86_400_000_000
MICROS: Final = TimeUnit(1, 1)
MILLIS: Final = TimeUnit(1000, 1)
_UNITS: Final = {"millis": MILLIS, "nanos": TimeUnit(1, 1000)}


def unit_of(avro: AvroType | None) -> TimeUnit:
    """Returns the unit of a type; microseconds unless it is a timestamp."""
    name, _, unit = getattr(avro, "logical", "").rpartition("-")
    return _UNITS.get(unit, MICROS) if name.endswith("timestamp") else MICROS


def time_kind(avro: AvroType | None) -> str:
    """Returns ``date``, ``timestamp``, ``time-millis`` or ``time-micros``; empty: the type is no time."""
    name: str = getattr(avro, "logical", "") or getattr(avro, "form", "")
    if "timestamp" in name:
        return "timestamp"
    return name if name in ("date", "time-millis", "time-micros") else ""
