"""Columns -> protobuf fields, for many messages at once, in batches and unbatched."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.arrow.join import (
    EncodedField,
    binary_of,
    by_class,
    bytes_field,
    fixed_width,
    join,
    one_field,
    to_mask,
    total_sizes,
    varints,
)
from pulsar_spark.errors import OptionError


def number_field(tag: bytes, numbers: pa.Int64Array | None) -> list[EncodedField]:
    """Encodes a varint field, negative numbers as their two's complement; null rows lack the field."""
    if numbers is None or numbers.null_count == len(numbers):
        return []
    has = None if numbers.null_count == 0 else to_mask(numbers.is_valid())
    return [one_field(varints(tag, numbers.fill_null(0).to_numpy(), has))]


def size_field(tag: bytes, sizes: Ints) -> EncodedField:
    """Encodes a varint field that every row has, efficient for repeated numbers."""
    return by_class(sizes, lambda different: varints(tag, different, None))


def flag_field(tag: bytes, is_set: Flags | None) -> list[EncodedField]:
    """Encodes a bool field, which only rows set to true have."""
    if is_set is None or not is_set.any():
        return []
    table = pa.array([b"", tag + b"\x01"], pa.binary())
    return [one_field(table.take(pa.array(is_set.astype(np.int8))))]


def properties_field(tag: bytes, properties: pa.MapArray | None) -> list[EncodedField]:
    """Encodes a repeated KeyValue field.

    Raises:
        OptionError: a map, name or value is null.
    """
    if properties is None or len(properties) == 0:
        return []
    offsets = properties.offsets.to_numpy()
    count = int(offsets[-1] - offsets[0])
    names = properties.keys.slice(offsets[0], count).cast(pa.binary())
    values = properties.items.slice(offsets[0], count).cast(pa.binary())
    if properties.null_count or names.null_count or values.null_count:
        raise OptionError(
            "a property of a message is null", advice="Leave out properties whose value is null"
        )
    inner = [*bytes_field(b"\x0a", names), *bytes_field(b"\x12", values)]
    sizes = total_sizes(inner, count)
    joined = join([size_field(tag, sizes), *inner], count)
    starts = joined.offsets[offsets - offsets[0]]
    return [EncodedField(binary_of(joined.buffer, starts), np.diff(starts))]


def checksum_field(checksums: npt.NDArray[np.uint32]) -> EncodedField:
    """Encodes 4-byte numbers, most of which differ."""
    return EncodedField(fixed_width(checksums.astype(">u4").tobytes(), 4), 4)
