"""The C++ client as a peer for values with a schema, through its Python classes; its Avro is fastavro."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

from pulsar import schema as ps

from integration.helpers.peer import Peer
from integration.helpers.typed_values import at


class Color(enum.Enum):
    """JSON has the value of an enum, Avro its name."""

    RED = "RED"
    GREEN = "GREEN"


class Part(ps.Record):  # type: ignore[misc]  # pulsar-client has no types
    name = ps.String()
    zip = ps.Integer()


class Order(ps.Record):  # type: ignore[misc]  # pulsar-client has no types
    """What this client's records can say; all of it may be null."""

    flag = ps.Boolean()
    number = ps.Integer()
    large = ps.Long()
    small = ps.Float()
    wide = ps.Double()
    text = ps.String()
    color = ps.CustomEnum(Color)
    words = ps.Array(ps.String())
    counts = ps.Map(ps.Long())
    part = Part()
    parts = ps.Array(Part())


ORDER_COLUMNS = (
    "flag boolean,number int,large bigint,small float,wide double,text string,color string,"
    "words array<string>,counts map<string,bigint>,"
    "part struct<name:string,zip:int>,parts array<struct<name:string,zip:int>>"
)
ORDERS: list[dict[str, Any]] = [
    {
        "flag": True,
        "number": -(2**31),
        "large": 2**63 - 1,
        "small": 1.5,
        "wide": 0.1,
        "text": 'a "b"\n\u00e9\U0001f600',
        "color": "GREEN",
        "words": ["", "two"],
        "counts": {"a": -(2**63), "": 0},
        "part": {"name": "wheel", "zip": 7},
        "parts": [{"name": None, "zip": 1}, {"name": "", "zip": None}],
    },
    # A flag and a record that are not given are no nulls.
    dict.fromkeys(Order._fields) | {"flag": False, "part": {"name": None, "zip": None}},
]


def order(values: dict[str, Any]) -> Order:
    """A record of such values."""
    color = values["color"] and Color[values["color"]]
    return Order(**(values | {"color": color}))


def _field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def _logical(type_: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical, **more}


_POINT = {"type": "record", "name": "Point", "fields": [_field("x", "int"), _field("next", ["null", "Id"])]}

# Types and logical types of Avro that no class of a client makes.
DEFINITION: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        _field("id", {"type": "fixed", "name": "Id", "size": 3}),
        _field("other", "Id"),
        _field("large", ["null", _logical("bytes", "decimal", precision=38, scale=6)]),
        _field("small", _logical("fixed", "decimal", name="Small", size=4, precision=9, scale=2)),
        _field("day", _logical("int", "date")),
        _field("millis", _logical("long", "timestamp-millis")),
        _field("micros", [_logical("long", "timestamp-micros"), "null"]),
        _field("local_millis", _logical("long", "local-timestamp-millis")),
        _field("local_micros", ["null", _logical("long", "local-timestamp-micros")]),
        _field("time_millis", _logical("int", "time-millis")),
        _field("time_micros", _logical("long", "time-micros")),
        _field("uuid", _logical("string", "uuid")),
        _field("unknown", _logical("long", "of-mine")),
        _field("choice", ["null", "int", "string"]),
        _field("number", ["int", "long"]),
        _field("real", ["float", "null", "double"]),
        _field("bag", {"type": "map", "values": {"type": "array", "items": "int"}}),
        _field("bags", {"type": "array", "items": {"type": "map", "values": ["null", "boolean"]}}),
        _field("point", _POINT),
        _field("points", ["null", {"type": "array", "items": ["null", "Point"]}]),
        _field("raw", "bytes"),
    ],
}
COLUMNS = (
    "id binary,other binary,large decimal(38,6),small decimal(9,2),day date,"
    "millis timestamp,micros timestamp,local_millis timestamp_ntz,local_micros timestamp_ntz,"
    "time_millis int,time_micros bigint,"
    "uuid string,unknown bigint,choice struct<member0:int,member1:string>,number bigint,real double,"
    "bag map<string,array<int>>,bags array<map<string,boolean>>,point struct<x:int,next:binary>,"
    "points array<struct<x:int,next:binary>>,raw binary"
)
VALUES: list[dict[str, Any]] = [
    {
        "id": b"\x00\x01\xff",
        "other": b"abc",
        "large": Decimal("-12345678901234567890123456789012.345678"),
        "small": Decimal("-1234567.89"),
        "day": datetime.date(1, 1, 1),
        "millis": at("1969-12-31T23:59:59.999"),
        "micros": at("2023-11-14T22:13:20.123456"),
        "local_millis": datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
        "local_micros": datetime.datetime(2023, 11, 14, 1, 2, 3, 4),
        "time_millis": 86_399_999,
        "time_micros": 86_399_999_999,
        "uuid": "0b41ad4f-1b6c-4f5d-8a3e-5a3f7e9c1d2b",
        "unknown": -1,
        "choice": "text",
        "number": 2**40,
        "real": 0.1,
        "bag": {"a": [1, 2], "b": []},
        "bags": [{}, {"x": True, "y": None}],
        "point": {"x": 1, "next": b"xyz"},
        "points": [{"x": -1, "next": None}, None],
        "raw": b"",
    },
    {
        "id": b"\x00\x00\x00",
        "other": b"\xff\xff\xff",
        "large": None,
        "small": Decimal("0.01"),
        "day": datetime.date(9999, 12, 31),
        "millis": at("2023-11-14T22:13:20.123"),
        "micros": None,
        "local_millis": datetime.datetime(2023, 11, 14, 1, 2, 3),
        "local_micros": None,
        "time_millis": 0,
        "time_micros": 0,
        "uuid": "00000000-0000-0000-0000-000000000000",
        "unknown": 2**63 - 1,
        "choice": 5,
        "number": -1,
        "real": None,
        "bag": {},
        "bags": [],
        "point": {"x": 2**31 - 1, "next": None},
        "points": None,
        "raw": b"\x00" * 100,
    },
]


def rows_of(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that Spark is to show for :data:`VALUES`: a union is a struct."""
    rows = []
    for value in values:
        choice = value["choice"]
        members = {
            "member0": choice if isinstance(choice, int) else None,
            "member1": choice if isinstance(choice, str) else None,
        }
        rows.append(value | {"choice": members})
    return rows


def produce(
    peer: Peer,
    topic: str,
    schema: Any,
    values: Sequence[Any],
    *,
    batching: bool = False,
    event_time: int | None = None,
) -> None:
    """Write values of a schema of this client, each as an entry of its own or all as a batch.

    `event_time` is that of all of them, in ms since 1970.
    """
    options = {"batching_enabled": batching, "batching_max_publish_delay_ms": 10_000}
    with closing(peer.client.create_producer(topic, schema=schema, **options)) as producer:
        for value in values:
            if batching:
                producer.send_async(value, None, event_timestamp=event_time)
            else:
                producer.send(value, event_timestamp=event_time)
        producer.flush()


def read(peer: Peer, topic: str, schema: Any) -> list[Any]:
    """The values of a topic by a schema of this client; None is a tombstone."""
    messages = peer.messages(topic, schema=schema)
    return [None if message.has_null_value() else message.value() for message in messages]
