"""Schema: the description of a topic's values, in the form that a broker stores.

``parse_json`` limits the size and nesting of a definition in JSON, because its author may not be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from pulsar_spark.errors import SchemaError, UnsupportedError


class SchemaType(IntEnum):
    """Kinds of schemas; values as in Schema.Type in PulsarApi.proto."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOL = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    EXTERNAL = 22


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a topic's schema.

    Attributes:
        data: definition: Avro's JSON for AVRO and JSON, empty for primitives; other types: see ``values/``.
        name: name from the broker, such as the topic's; ignored, also in comparisons.
    """

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    name: str = field(default="", compare=False)


MAX_BYTES: Final = 4 << 20  # maximum size of a definition; brokers accept 5 MiB
# Maximum commas, colons and opening brackets in JSON; each may add a parsed value of 200 bytes of memory.
MAX_MARKS: Final = 250_000
WAY_OUT: Final = "Read the topic with valueFormat=raw"
_MARKS: Final = (b",", b":", b"[", b"{")


def parse_json(data: bytes) -> object:
    """Parses a definition.

    Raises:
        SchemaError: the data is not JSON.
        UnsupportedError: the definition is larger or more deeply nested than this version reads.
    """
    if len(data) > MAX_BYTES:
        raise too_large(f"the schema has {len(data)} bytes")
    if sum(map(data.count, _MARKS)) > MAX_MARKS:
        raise too_large(f"the schema has more than {MAX_MARKS} commas, colons and brackets")
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError:
        raise too_large("the schema is nested too deeply") from None
    except ValueError as error:
        raise SchemaError(f"the topic's schema is not JSON: {error}", advice=WAY_OUT) from None


def too_large(what: str) -> UnsupportedError:
    """Returns the error for a schema that exceeds a limit; ``what``: text that names the limit."""
    return UnsupportedError(what, advice=WAY_OUT)
