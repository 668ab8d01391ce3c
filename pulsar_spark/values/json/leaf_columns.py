"""Values of JSON without parts, many at once: plain Arrow columns, or parsed values -> columns of the leaf.

The results are those of ``leaves``, which converts one value at a time. A column with a value that Arrow
would read otherwise, or not at all, raises :class:`LeftError` or ``pa.ArrowInvalid``.
"""

from __future__ import annotations

from datetime import date
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.values.avro.avro_types import MAX_FLOAT
from pulsar_spark.values.json.leaves import NOT_FINITE, BadJsonError, decode_bytes
from pulsar_spark.values.json.tree import JsonKind, JsonLeaf
from pulsar_spark.values.time_units import MICROS_OF_DAY

_Number = TypeVar("_Number", np.float64, np.int64)

TIMES: Final = (JsonKind.TIMESTAMP, JsonKind.DATE)
_MAX_INT64: Final = (1 << 63) - 1
_MAX_PRECISION: Final = 38
_NANOS: Final = pa.decimal128(28, 9)  # seconds with nanoseconds
_SHORTEST_TIME: Final = len("yyyy-mm-ddThh:mm:ss")
_FIRST_DAY: Final = (date(1, 1, 1) - date(1970, 1, 1)).days


class LeftError(Exception):
    """Some values need the other reader."""


def plain_type(leaf: JsonLeaf, times_are_text: bool) -> pa.DataType | None:
    """Returns the type that PyArrow reads a leaf's values as; None: PyArrow reads other forms."""
    if leaf.kind in (JsonKind.TEXT, JsonKind.BYTES) or (leaf.kind in TIMES and times_are_text):
        return pa.string()
    if leaf.kind is JsonKind.FLOAT:
        return pa.float64()
    if leaf.kind is JsonKind.TIMESTAMP:
        return pa.int64()
    if leaf.kind is JsonKind.DATE:
        return pa.int32()
    # Decimals are left, because PyArrow takes texts that are no numbers in JSON.
    return leaf.type if leaf.kind in (JsonKind.BOOLEAN, JsonKind.INTEGER, JsonKind.TIME) else None


def column_of(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """Converts a column to the leaf's column.

    Args:
        leaf: any leaf but JSON of any form.
        column: values of ``plain_type``; without an offset.

    Raises:
        LeftError, pa.ArrowInvalid: some values need the other reader.
    """
    if leaf.kind is JsonKind.FLOAT:
        leave_unless(np.isfinite(_numbers(column, np.float64)).all())
        return float_column(leaf, column)
    if leaf.kind in TIMES and column.type == pa.string():
        return _written_times(leaf, column)
    if leaf.kind is JsonKind.TIMESTAMP:
        return _timestamps(leaf, column)
    if leaf.kind is JsonKind.BYTES:
        return _bytes(leaf, column)
    if leaf.symbols is not None:
        kept = [text for text, symbol in leaf.symbols.items() if text == symbol]
        is_kept = pc.is_in(column, pa.array([*kept, None], pa.string()))
        leave_unless(is_kept.false_count == 0)
    return column if column.type == leaf.type else column.cast(leaf.type)


def float_column(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """As ``column_of``, for float64; keeps NaN and infinities."""
    if leaf.type == pa.float64():
        return column
    values = _numbers(column, np.float64)
    leave_unless(((np.abs(values) < MAX_FLOAT) | ~np.isfinite(values)).all())
    return _with_validity(leaf, column, values.astype(np.float32))


def _timestamps(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    values, factor = _numbers(column, np.int64), leaf.unit.factor
    most = _MAX_INT64 // factor
    leave_unless(factor == 1 or ((-most <= values) & (values <= most)).all())
    return _with_validity(leaf, column, leaf.unit.micros(values))


def _written_times(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """Converts dates, and timestamps with seconds, and Z if they have a zone; leaves the year 0."""
    first = _FIRST_DAY
    if leaf.kind is JsonKind.TIMESTAMP:
        has_zone = leaf.type.tz is not None
        is_other = pc.less(pc.binary_length(column), _SHORTEST_TIME + has_zone)
        if has_zone:
            is_other = pc.or_(is_other, pc.invert(pc.ends_with(column, "Z")))
        leave_unless(not pc.any(is_other).as_py())
        first *= MICROS_OF_DAY
    times = column.cast(leaf.type)
    least = pc.min(times).value
    leave_unless(least is None or least >= first)
    return times


def _bytes(leaf: JsonLeaf, column: pa.Array) -> pa.Array:
    """Decodes each distinct text once, because anybody may repeat a text."""
    encoded = column.dictionary_encode()
    try:
        values = [decode_bytes(leaf, text) for text in encoded.dictionary.cast(pa.binary()).to_pylist()]
    except BadJsonError:
        raise LeftError from None
    return pa.array(values, leaf.type).take(encoded.indices)


def decimal_column(kind: pa.Decimal128Type, texts: pa.StringArray) -> pa.Array:
    """Converts texts of JSON's numbers, at least one, to decimals; raises as ``column_of``.

    Leaves exponents, and more digits than any decimal has, because Arrow does not check their size.
    """
    data = texts.buffers()[2].to_pybytes()
    leave_unless(b"e" not in data and b"E" not in data)
    point = pc.find_substring(texts, ".")
    wholes = pc.if_else(pc.less(point, 0), pc.binary_length(texts), point)
    leave_unless(pc.max(wholes).as_py() + kind.scale <= _MAX_PRECISION)
    return texts.cast(kind)


def instant_column(leaf: JsonLeaf, texts: pa.StringArray) -> pa.Array:
    """Converts texts of seconds with a point, as ``decimal_column``; leaves times before 1970."""
    nanos = decimal_column(_NANOS, texts)
    words = np.frombuffer(nanos.buffers()[1], np.int64).reshape(-1, 2)  # low, high
    if nanos.null_count:
        words = np.where(nanos.is_valid().to_numpy(zero_copy_only=False)[:, np.newaxis], words, 0)
    leave_unless((words[:, 0] >= 0).all() and not words[:, 1].any())
    return _with_validity(leaf, nanos, words[:, 0] // 1000)


def usual_column(leaf: JsonLeaf, kinds: set[type], values: list[Any]) -> pa.Array | None:
    """Converts parsed values in their usual form to the leaf's column.

    Args:
        leaf: any leaf but JSON of any form.
        kinds: types of the values, without that of None.
        values: objects of ``parse``.

    Returns:
        The column; None: some values have another form.

    Raises:
        LeftError, pa.ArrowInvalid, OverflowError, UnicodeEncodeError: some values have another form.
    """
    if leaf.kind is JsonKind.FLOAT:
        return _floats(leaf, kinds, values) if kinds <= {int, float, bytes} else None
    if leaf.kind is JsonKind.DECIMAL:
        if not kinds <= {int, bytes}:
            return None
        texts = values
        if int in kinds:
            texts = [b"%d" % value if type(value) is int else value for value in values]
        return decimal_column(leaf.type, pa.array(texts, pa.string()))
    if leaf.kind is JsonKind.TIMESTAMP and kinds == {bytes}:
        return instant_column(leaf, pa.array(values, pa.string()))
    plain = plain_type(leaf, times_are_text=str in kinds)
    if plain is None or kinds != _PLAIN[plain.id]:
        return None
    return column_of(leaf, pa.array(values, plain))


def _floats(leaf: JsonLeaf, kinds: set[type], values: list[Any]) -> pa.Array:
    numbers = values
    if bytes in kinds:
        numbers = [None if value is None else float(value) for value in values]
    column = pa.array(numbers, pa.float64())
    for row in np.flatnonzero(~np.isfinite(_numbers(column, np.float64))).tolist():
        # Leaves only a number beyond all floats.
        leave_unless(type(values[row]) is float or values[row].decode() in NOT_FINITE)
    return float_column(leaf, column)


_PLAIN: Final = {
    pa.string().id: {str},
    pa.bool_().id: {bool},
    pa.int32().id: {int},
    pa.int64().id: {int},
}


def made_column(leaf: JsonLeaf, values: list[Any]) -> pa.Array:
    """Makes the array of values of ``LeafForm.convert``."""
    if leaf.kind is JsonKind.DECIMAL:
        column = pa.array(values, pa.binary(16))
        return pa.Array.from_buffers(leaf.type, len(column), column.buffers())
    if leaf.kind is JsonKind.TIMESTAMP:
        return pa.array(values, pa.int64()).view(leaf.type)
    if leaf.kind is JsonKind.DATE:
        return pa.array(values, pa.int32()).view(leaf.type)
    return pa.array(values, leaf.type)


def _numbers(column: pa.Array, kind: type[_Number]) -> npt.NDArray[_Number]:
    """Returns the values of a column of numbers, any number for nulls."""
    return np.frombuffer(column.buffers()[1], kind, len(column))


def _with_validity(leaf: JsonLeaf, column: pa.Array, values: npt.NDArray[Any]) -> pa.Array:
    buffers = [column.buffers()[0], pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(leaf.type, len(column), buffers)


def leave_unless(holds: bool | np.bool_) -> None:
    """Raises LeftError unless a condition holds."""
    if not holds:
        raise LeftError
