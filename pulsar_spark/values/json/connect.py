"""Forms of JSON that only Kafka Connect's converter writes: decimals as base64, and maps as arrays of pairs.

Pulsar's adaptor for Kafka Connect writes a property into the schemas of such values.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any, Final

from pulsar_spark.schema import Schema

_MAX_BYTES: Final = 1_000  # maximum bytes of a decimal, because its digits take quadratic time
_MAX_SCALE: Final = 1_000_000  # larger scales are beyond Python's decimals


def is_of_connect(schema: Schema) -> bool:
    """Whether the adaptor for Kafka Connect made a schema."""
    return "__AVRO_READ_OFFSET__" in schema.properties


def number_of(text: str, scale: int) -> str | None:
    """Returns the text of a decimal whose unscaled integer, big-endian, is in base64.

    None: the text is not base64 of 1 to 1,000 bytes, or the scale is above 1,000,000.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    if not 0 < len(data) <= _MAX_BYTES or scale > _MAX_SCALE:
        return None
    sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return str(Decimal((sign, digits, -scale)))


def pairs_of(value: Any) -> Any:
    """Converts a map to a list of key-value records; returns other values unchanged.

    Java writes maps as objects. Connect writes arrays of pairs if the keys are not strings.
    """
    if type(value) is dict:
        return [{"key": key, "value": each} for key, each in value.items()]
    if type(value) is not list:
        return value
    return [
        {"key": each[0], "value": each[1]} if type(each) is list and len(each) == 2 else each
        for each in value
    ]
