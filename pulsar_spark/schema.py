"""Schema: the description of a topic's values, in the form that a broker stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


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
        data: definition; Avro's JSON for AVRO and JSON, empty for primitives, else see the kind's module.
        name: name from the broker, such as the topic's; ignored, also in comparisons.
    """

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    name: str = field(default="", compare=False)
