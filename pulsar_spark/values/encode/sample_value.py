"""Makes a sample value that the field of a schema accepts, to test whether a schema can be written."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroUnion,
)
from pulsar_spark.values.encode.column_fit import ColumnFit

_MAX_FIXED = 1 << 16  # bytes, because a schema may declare gigabytes; the sample of a larger type is refused


def sample_of(kind: pa.DataType, found: ColumnFit | None = None) -> object:
    """Returns a value as pyarrow accepts it, with one item in each list and map.

    Args:
        kind: Arrow type of the column.
        found: field that the column fits; None: the schema is primitive.
    """
    avro = None if found is None else found.avro
    if found is None or isinstance(avro, AvroEnum | AvroFixed):
        return _plain(kind, avro)
    parts = [part for part in found.parts if part is not None]
    if isinstance(avro, AvroUnion):
        return {kind[0].name: sample_of(kind[0].type, parts[0])}  # exactly one member is set
    if isinstance(avro, AvroRecord):
        columns = zip(found.columns, parts, strict=True)
        return {kind[number].name: sample_of(kind[number].type, part) for number, part in columns}
    if isinstance(avro, AvroArray):
        return [sample_of(kind.value_type, parts[0])]
    if isinstance(avro, AvroMap):
        return [("", sample_of(kind.item_type, parts[0]))]
    return _plain(kind, avro)


def _plain(kind: pa.DataType, avro: object) -> object:
    if pa.types.is_decimal(kind):
        return Decimal(0)
    if isinstance(avro, AvroEnum):
        return next(iter(avro.symbols), "")
    if isinstance(avro, AvroFixed):
        return bytes(min(avro.size, _MAX_FIXED))
    if pa.types.is_boolean(kind):
        return False
    is_number = pa.types.is_primitive(kind)  # dates and times, too
    return 0 if is_number else "0"  # "0" is also valid JSON, a number and a character
