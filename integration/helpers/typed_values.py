"""Values of every kind of schema, as Spark is to show them, and how the Java client is told to write them."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from integration.helpers.java_values import JavaSchema

UTC = datetime.timezone.utc


@dataclass(frozen=True, slots=True)
class TypedValues:
    """Values of one schema.

    Attributes:
        schema: as the Java program knows it.
        columns: what Spark makes of it, as DDL.
        rows: the columns' values, in order; None is a tombstone: a row of nulls.
        written: what Java writes, where Spark cannot say all of it; as long as `rows`.
    """

    name: str
    schema: JavaSchema
    columns: str
    rows: list[dict[str, Any] | None]
    written: list[Any] | None = None

    @property
    def java(self) -> list[Any]:
        """What Java writes and reads: a record's fields, and of a primitive the value alone."""
        if self.written is not None:
            return self.written
        if self.schema["type"] in ("AVRO", "JSON", "KEY_VALUE", "PROTOBUF_NATIVE"):
            return list(self.rows)
        return [None if row is None else row["value"] for row in self.rows]

    @property
    def names(self) -> list[str]:
        return [column.split()[0] for column in _split(self.columns)]


def at(text: str) -> datetime.datetime:
    """A time in UTC, of ISO-8601 without a zone."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


def _split(columns: str) -> list[str]:
    """The columns of a DDL text, whose types may hold commas."""
    parts, depth = [""], 0
    for letter in columns:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _primitive(schema: str, column: str, *values: object, written: list[Any] | None = None) -> TypedValues:
    rows: list[dict[str, Any] | None] = [{"value": value} for value in values]
    more = None if written is None else [*written, None]
    return TypedValues(schema, {"type": schema}, f"value {column}", [*rows, None], more)


_MILLISECONDS = (at("2023-11-14T22:13:20.123"), at("1969-12-31T23:59:59.999"), at("1970-01-01T00:00:00"))

PRIMITIVES = [
    _primitive("STRING", "string", "h\u00e9", "", "\U0001f600"),
    _primitive("BOOLEAN", "boolean", True, False),
    _primitive("INT8", "tinyint", -2, 127, -128),
    _primitive("INT16", "smallint", 258, 32767, -32768),
    _primitive("INT32", "int", 16909060, 2**31 - 1, -(2**31)),
    _primitive("INT64", "bigint", 72623859790382856, 2**63 - 1, -(2**63)),
    _primitive("FLOAT", "float", 1.5, -0.0, 2.0**-149, math.inf, math.nan),
    _primitive("DOUBLE", "double", 0.1, -0.0, 5e-324, -math.inf, math.nan),
    _primitive("DATE", "timestamp", *_MILLISECONDS),
    _primitive("TIME", "timestamp", *_MILLISECONDS),
    _primitive("TIMESTAMP", "timestamp", *_MILLISECONDS),
    # Nanoseconds are cut.
    _primitive(
        "INSTANT",
        "timestamp",
        at("2023-11-14T22:13:20.123456"),
        at("1969-12-31T23:59:59.000000"),
        written=[1_700_000_000_123_456_789, -999_999_995],
    ),
    _primitive("LOCAL_DATE", "date", datetime.date(2023, 11, 14), datetime.date(1969, 12, 31)),
    _primitive("LOCAL_TIME", "bigint", 3_723_000_000_004, 0, 86_399_999_999_999),
    _primitive(
        "LOCAL_DATE_TIME",
        "timestamp_ntz",
        datetime.datetime(2023, 11, 14, 1, 2, 3, 4),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    ),
]

_PART = {"name": "wheel", "zip": 7, "color": "GREEN", "codes": [1, 2**40]}
_NO_PART: dict[str, Any] = dict.fromkeys(_PART)

_FULL: dict[str, Any] = {
    "at": at("2023-11-14T22:13:20.123456"),
    "color": "RED",
    "counts": {"a": 1, "": -(2**63)},
    "day": datetime.date(2023, 11, 14),
    "exact": "12345678901234567890.125",
    "flag": True,
    "id": "0b41ad4f-1b6c-4f5d-8a3e-5a3f7e9c1d2b",
    "large": 2**63 - 1,
    "lists": [[1, 2], [], [3]],
    "maybeFlag": False,
    "maybeLarge": -1,
    "maybeNumber": -(2**31),
    "maybeSmall": 0.25,
    "maybeWide": 0.1,
    "named": {"first": _PART, "none": _NO_PART},
    "number": 2**31 - 1,
    "part": _PART,
    "parts": [_PART, _NO_PART, _PART],
    "price": Decimal("-1234567890.12"),
    "raw": b"\x00\xff",
    "small": 1.5,
    "text": 'a "b"\\\n\u00e9\U0001f600',
    "tiny": -32768,
    "wide": -2.5,
    "words": ["", "two"],
}

# What Java must give where an object would be null.
_NEEDED = {"flag": False, "tiny": 0, "number": 0, "large": 0, "small": 0.0, "wide": 0.0}
_NULLS: dict[str, Any] = {name: _NEEDED.get(name) for name in _FULL}

_EMPTY: dict[str, Any] = _NULLS | {
    "counts": {},
    "lists": [],
    "named": {},
    "part": _NO_PART,
    "parts": [],
    "price": Decimal("0.00"),
    "raw": b"",
    "text": "",
    "words": [],
    "at": at("1969-12-31T23:59:59.999999"),
    "day": datetime.date(1969, 12, 31),
    "small": math.inf,
    "wide": math.nan,
}

ORDERS: list[dict[str, Any] | None] = [_FULL, None, _NULLS, _EMPTY, _FULL]

_PART_TYPE = "struct<codes:array<bigint>,color:string,name:string,zip:int>"
ORDER_COLUMNS = (
    "at timestamp,color string,counts map<string,bigint>,day date,exact string,flag boolean,id string,"
    "large bigint,lists array<array<int>>,maybeFlag boolean,maybeLarge bigint,maybeNumber int,"
    f"maybeSmall float,maybeWide double,named map<string,{_PART_TYPE}>,number int,"
    f"part {_PART_TYPE},parts array<{_PART_TYPE}>,"
    "price decimal(12,2),raw binary,small float,text string,tiny int,wide double,words array<string>"
)

ORDER = "TypedPeer$Order"
_AVRO_ORDER: JavaSchema = {"type": "AVRO", "class": ORDER}
_JSON_ORDER: JavaSchema = {"type": "JSON", "class": ORDER}
_AVRO_PART: JavaSchema = {"type": "AVRO", "class": "TypedPeer$Part"}
_JSON_PART: JavaSchema = {"type": "JSON", "class": "TypedPeer$Part"}

RECORDS = [
    TypedValues("AVRO", _AVRO_ORDER, ORDER_COLUMNS, ORDERS),
    TypedValues("JSON", _JSON_ORDER, ORDER_COLUMNS, ORDERS),
]


def _pair(encoding: str, key: JavaSchema, value: JavaSchema, columns: str, *rows: Any) -> TypedValues:
    name = f"{encoding}-{key['type']}-{value['type']}"
    schema = {"type": "KEY_VALUE", "encoding": encoding, "key": key, "value": value}
    return TypedValues(name, schema, columns, list(rows))


PAIRS = [
    _pair(
        "INLINE",
        {"type": "STRING"},
        {"type": "INT32"},
        "key string,value int",
        {"key": "k", "value": 1},
        {"key": None, "value": 2},
        {"key": "", "value": None},
    ),
    _pair(
        "SEPARATED",
        {"type": "INT64"},
        {"type": "STRING"},
        "key bigint,value string",
        {"key": 5, "value": "five"},
        {"key": 6, "value": None},
        {"key": None, "value": "none"},
    ),
    *[
        _pair(
            encoding,
            part,
            order,
            f"key {_PART_TYPE},value struct<{ORDER_COLUMNS.replace(' ', ':')}>",
            {"key": _PART, "value": _FULL},
            {"key": _NO_PART, "value": _NULLS},
            {"key": _PART, "value": None},
        )
        for encoding in ("INLINE", "SEPARATED")
        for part, order in ((_AVRO_PART, _AVRO_ORDER), (_JSON_PART, _JSON_ORDER))
    ],
]

_LABEL = {"key": "zone", "value_type": "BOOL", "description": "where"}

MESSAGES = [
    TypedValues(
        "PROTOBUF_NATIVE",
        {"type": "PROTOBUF_NATIVE", "class": "com.google.api.MonitoredResourceDescriptor"},
        "name string,type string,display_name string,description string,"
        "labels array<struct<key:string,value_type:string,description:string>>,launch_stage string",
        [
            {
                "name": "n",
                "type": "t",
                "display_name": "d",
                "description": "\u00e9",
                "labels": [_LABEL, _LABEL | {"value_type": "INT64"}],
                "launch_stage": "GA",
            },
            None,
        ],
    ),
    TypedValues(
        "PROTOBUF_NATIVE-map",
        {"type": "PROTOBUF_NATIVE", "class": "com.google.rpc.ErrorInfo"},
        "reason string,domain string,metadata map<string,string>",
        [{"reason": "r", "domain": "d", "metadata": {"a": "1", "b": ""}}],
    ),
]

ALL = [*PRIMITIVES, *RECORDS, *PAIRS, *MESSAGES]
