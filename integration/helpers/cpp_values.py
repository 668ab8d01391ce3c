"""The C++ client as a peer for values with a schema, through its Python classes; its Avro is fastavro."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from pulsar import schema as ps

from integration.helpers.peer import Peer


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
