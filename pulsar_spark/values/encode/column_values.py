"""Converts columns to values of their fields' types; raises Misfit for a value that a field cannot hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.join import to_mask, too_large
from pulsar_spark.errors import SchemaError
from pulsar_spark.values.interfaces import EncodedValues, ValueEncoder
from pulsar_spark.values.time_units import NANOS_OF_DAY

if TYPE_CHECKING:
    from pulsar_spark.arrow.arrays import Flags, Ints
    from pulsar_spark.values.avro.avro_types import AvroEnum


_MAX_MICROS = ((1 << 63) - 1) // 1000  # largest time whose nanoseconds are an int64


class Misfit(Exception):  # noqa: N818 - it becomes a SchemaError as soon as its row is known
    """A value that its field cannot hold."""

    def __init__(self, row: int, path: str, what: str) -> None:
        super().__init__(row, path, what)
        self.row = int(row)
        self.path = path
        self.what = what

    def at(self, row: int) -> Misfit:
        """Returns a copy with another row, because the index may first count items or non-null rows only."""
        return Misfit(row, self.path, self.what)

    def error(self) -> SchemaError:
        """Returns the error for the caller of an encoder."""
        path = self.path if len(self.path) <= 200 else f"{self.path[:200]}..."
        place = f", field {path!a}" if path else ""
        return SchemaError(f"row {self.row} of the batch{place}: {self.what}")


def row_encoder(encode: Callable[[pa.Array], pa.BinaryArray]) -> ValueEncoder:
    """Returns an encoder that calls ``encode``, and raises a SchemaError for a :class:`Misfit`."""

    def encode_rows(rows: pa.Array) -> EncodedValues:
        try:
            return EncodedValues(encode(rows))
        except Misfit as misfit:
            raise misfit.error() from None

    return encode_rows


def require(is_good: Flags, path: str, what: str) -> None:
    """Raises :class:`Misfit` for the first row whose flag in ``is_good`` is not set."""
    if not is_good.all():
        raise Misfit(int(np.argmin(is_good)), path, what)


def validity(column: pa.Array) -> Flags | None:
    """Returns flags of the rows that are not null; None: no row is null."""
    return to_mask(column.is_valid()) if column.null_count else None


def floats(column: pa.Array, kind: type[np.floating], path: str) -> np.typing.NDArray[np.floating]:
    """Converts numbers to float or double, null to any number. Raises Misfit if a number loses digits."""
    numbers = _numbers(column)
    with np.errstate(over="ignore"):
        found = numbers.astype(kind)
    if numbers.dtype.kind == "f" and numbers.dtype.itemsize > np.dtype(kind).itemsize:
        is_same = (found == numbers) | np.isnan(numbers)
        require(
            is_same, path, "a double that loses digits as a float: cast it to float in the query to round it"
        )
    if numbers.dtype.kind == "i" and numbers.dtype.itemsize >= np.dtype(kind).itemsize:
        # Excludes floats outside int64, such as 2^63, because converting these back would overflow.
        is_inside = (found >= -(2.0**63)) & (found < 2.0**63)
        back = np.where(is_inside, found, 0).astype(np.int64)
        name = "float" if kind is np.float32 else "double"
        require(
            is_inside & (back == numbers),
            path,
            f"an integer that loses digits as a {name}: cast it to {name} in the query to round it",
        )
    return found


def integers(column: pa.Array) -> Ints:
    """Returns integers, days or microseconds as int64[n], 0 in null rows."""
    return _numbers(column).astype(np.int64, copy=False)


def whole_numbers(column: pa.Array, logical: str, path: str) -> Ints:
    """Returns integers, or times in the unit of the logical type; raises Misfit for a fraction of a unit."""
    if logical.startswith("time-"):
        return times_of_day(column, logical, path)
    if logical.endswith("-millis"):
        return milliseconds(column, path)
    return nanoseconds(column, path) if logical.endswith("-nanos") else integers(column)


def times_of_day(column: pa.Array, logical: str, path: str) -> Ints:
    """Converts a column of Spark's time, or of integers, to times of day in the unit of ``logical``.

    Raises Misfit for a time that is not within a day, or has a fraction of a unit.
    """
    numbers = integers(column)
    nanos = 1_000_000 if logical == "time-millis" else 1000
    if pa.types.is_time(column.type):
        numbers, rest = np.divmod(numbers, nanos)
        what = "a time of day with more digits than the topic's unit has: truncate it with time_trunc"
        require(rest == 0, path, what)
    is_good = (numbers >= 0) & (numbers < NANOS_OF_DAY // nanos)
    require(is_good, path, "a time of day that is not between 0 and 24 hours")
    return numbers


def milliseconds(column: pa.Array, path: str) -> Ints:
    """Converts microseconds to milliseconds; raises Misfit for a fraction of a millisecond."""
    micros = integers(column)
    millis = micros // 1000
    require(
        millis * 1000 == micros,
        path,
        "a timestamp with microseconds, but the topic has milliseconds: truncate it with "
        "date_trunc('MILLISECOND', ...)",
    )
    return millis


def nanoseconds(column: pa.Array, path: str) -> Ints:
    """Converts microseconds to nanoseconds; raises Misfit for a time that int64 nanoseconds cannot hold."""
    micros = integers(column)
    is_good = (micros >= -_MAX_MICROS) & (micros <= _MAX_MICROS)
    require(is_good, path, "a time outside the years 1678 to 2262 of nanoseconds")
    return micros * 1000


def decimal_column(column: pa.Decimal128Array, precision: int, scale: int) -> pa.Decimal128Array:
    """Casts a column to decimal(precision, scale), which must be wide enough for all its values."""
    kind = pa.decimal128(precision, scale)
    return column if column.type == kind else column.cast(kind)


def binary_column(column: pa.Array) -> pa.BinaryArray:
    """Returns strings or binary, small or large, as binary; raises OptionError beyond 2 GiB."""
    try:
        return column.cast(pa.binary())
    except pa.ArrowInvalid:
        raise too_large("rows") from None


def string_column(column: pa.Array, path: str) -> pa.StringArray:
    """Returns strings or binary, small or large, as strings; raises Misfit for bytes that are not UTF-8."""
    values = binary_column(column)
    try:
        return values.cast(pa.string())  # checks the bytes, because Spark's strings may be invalid
    except pa.ArrowInvalid:
        require(~is_no_text(values), path, "text that is not UTF-8")
        raise


def map_keys(column: pa.Array, path: str) -> pa.StringArray:
    """Returns the keys of maps; raises Misfit for null, or bytes that are not UTF-8."""
    has = validity(column)
    if has is not None:
        require(has, path, "a map with null as a key")
    return string_column(column, path)


def require_distinct(keys: pa.StringArray, starts: Ints, path: str) -> None:
    """Raises Misfit if a map has a key twice; ``starts``: index of each map's first key, and of the end."""
    sizes = np.diff(starts)
    if len(keys) == 0 or sizes.max() < 2:
        return
    encoded = keys.dictionary_encode()
    count = len(encoded.dictionary)
    pairs = np.repeat(np.arange(len(sizes)), sizes) * count + encoded.indices.to_numpy()
    is_dense = len(sizes) * count <= 8 * len(pairs)
    distinct = np.count_nonzero(np.bincount(pairs)) if is_dense else len(np.unique(pairs))
    if distinct < len(pairs):
        is_first = np.zeros(len(pairs), np.bool_)
        is_first[np.unique(pairs, return_index=True)[1]] = True
        require(is_first, path, "a map with the same key twice")


def sized_column(column: pa.Array, size: int, path: str) -> pa.BinaryArray:
    """Returns binary for a field of fixed size; raises Misfit for another size."""
    values = binary_column(column)
    is_good = to_mask(pc.equal(pc.binary_length(values), size).fill_null(True))
    require(is_good, path, f"a binary value that does not have the {size} bytes of the topic's type")
    return values


def symbol_numbers(column: pa.Array, enum: AvroEnum, path: str) -> Ints:
    """Returns the index of each string among the symbols, 0 for null; raises Misfit for other strings."""
    strings = string_column(column, path)
    places = pc.index_in(strings, pa.array(enum.symbols, pa.string()))
    if places.null_count > strings.null_count:
        is_good = to_mask(pc.or_(places.is_valid(), strings.is_null()))
        require(is_good, path, f"a string that is not a symbol of enum {enum.name[:100]!a}")
    found: Ints = places.fill_null(0).to_numpy().astype(np.int64)
    return found


def _numbers(column: pa.Array) -> np.typing.NDArray[np.generic]:
    """Returns numbers, dates or times in the width of the column, 0 for null."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    filled = column.fill_null(0) if column.null_count else column
    found: np.typing.NDArray[np.generic] = filled.to_numpy()
    return found


def is_no_text(values: pa.BinaryArray) -> Flags:
    """Returns flags of the n values that are not UTF-8, bool[n]."""
    # errors="ignore", because exceptions would take three times as long.
    flags = (
        value is not None and value.decode(errors="ignore").encode() != value for value in values.to_pylist()
    )
    return np.fromiter(flags, np.bool_, len(values))
