"""Schema: what a broker keeps of a topic's values, as it keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from pulsar_spark.wire import pulsar_pb2 as pb


class SchemaType(IntEnum):
    """Kinds of schemas; the values are those of Schema.Type in PulsarApi.proto."""

    NONE = pb.Schema.Type.Value("None")
    STRING = pb.Schema.String
    JSON = pb.Schema.Json
    PROTOBUF = pb.Schema.Protobuf
    AVRO = pb.Schema.Avro
    BOOL = pb.Schema.Bool
    INT8 = pb.Schema.Int8
    INT16 = pb.Schema.Int16
    INT32 = pb.Schema.Int32
    INT64 = pb.Schema.Int64
    FLOAT = pb.Schema.Float
    DOUBLE = pb.Schema.Double
    DATE = pb.Schema.Date
    TIME = pb.Schema.Time
    TIMESTAMP = pb.Schema.Timestamp
    KEY_VALUE = pb.Schema.KeyValue
    INSTANT = pb.Schema.Instant
    LOCAL_DATE = pb.Schema.LocalDate
    LOCAL_TIME = pb.Schema.LocalTime
    LOCAL_DATE_TIME = pb.Schema.LocalDateTime
    PROTOBUF_NATIVE = pb.Schema.ProtobufNative
    AUTO_CONSUME = pb.Schema.AutoConsume
    EXTERNAL = pb.Schema.External


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a topic's schema.

    Attributes:
        type: its kind.
        data: the definition: Avro's JSON for AVRO and JSON, empty for primitives, else see the kind's module.
        properties: what clients have written beside it.
        name: as the broker says it, such as the topic's; without meaning, also for equality.
    """

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    name: str = field(default="", compare=False)
