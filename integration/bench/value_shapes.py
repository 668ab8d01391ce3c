"""The shapes of rows that ``bench values`` measures: as Avro and as JSON, and for the other side."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import fastavro

from pulsar_spark.schema import SchemaType

MakeRow = Callable[[random.Random, int], dict[str, Any]]
_EPOCH = datetime(2023, 11, 14, tzinfo=timezone.utc)


class ValueShape(NamedTuple):
    """Rows of one schema.

    Attributes:
        name: what a table calls it.
        kind: AVRO or JSON.
        schema: of Avro, as parsed JSON.
        encode: makes the payload of a row's number.
        finish: makes a row that the other library has parsed to what Arrow takes for the column.
    """

    name: str
    kind: SchemaType
    schema: dict[str, Any]
    encode: Callable[[random.Random, int], bytes]
    finish: Callable[[Any], Any] | None = None


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """The schema of a record without defaults."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": kind} for each, kind in fields.items()],
    }


FLAT = record(
    "Flat",
    id="long",
    name="string",
    price="double",
    count="int",
    paid="boolean",
    at={"type": "long", "logicalType": "timestamp-micros"},
    note=["null", "string"],
    rate=["null", "double"],
)
_NESTED = record(
    "Nested",
    id="long",
    name="string",
    tags={"type": "array", "items": "string"},
    counts={"type": "map", "values": "long"},
    colour={"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]},
    price={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-millis"},
    address=["null", record("Address", street="string", number=["null", "int"])],
    lines={"type": "array", "items": record("Line", sku="string", count="int")},
)


def flat_row(rnd: random.Random, i: int) -> dict[str, Any]:
    """A row of ``FLAT``."""
    return {
        "id": rnd.randrange(10**9),
        "name": f"customer-{i:06}",
        "price": rnd.random(),
        "count": rnd.randrange(1000),
        "paid": rnd.random() < 0.5,
        "at": _EPOCH + timedelta(microseconds=i),
        "note": None if i % 3 == 0 else f"some words {i}",
        "rate": None if i % 4 == 0 else rnd.random(),
    }


def _nested_row(rnd: random.Random, i: int) -> dict[str, Any]:
    return {
        "id": rnd.randrange(10**9),
        "name": f"customer-{i:06}",
        "tags": [f"tag-{j}" for j in range(rnd.randrange(5))],
        "counts": {f"key-{j}": rnd.randrange(1000) for j in range(rnd.randrange(4))},
        "colour": rnd.choice(["RED", "GREEN", "BLUE"]),
        "price": Decimal(rnd.randrange(10**6)).scaleb(-2),
        "at": _EPOCH + timedelta(seconds=i),
        "address": None if i % 3 == 0 else {"street": f"street {i}", "number": None if i % 2 else i % 100},
        "lines": [{"sku": f"sku-{j}", "count": j} for j in range(rnd.randrange(4))],
    }


# ---- Avro


def avro_payload(parsed: Any, value: Any) -> bytes:
    """A value as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    return out.getvalue()


def _avro(name: str, schema: dict[str, Any], row: MakeRow, finish: Any = None) -> ValueShape:
    parsed = fastavro.parse_schema(schema)
    return ValueShape(name, SchemaType.AVRO, schema, lambda rnd, i: avro_payload(parsed, row(rnd, i)), finish)


def _long_row(_: random.Random, i: int) -> dict[str, Any]:
    return {"numbers": list(range(i % 40)), "names": [f"name {j}" for j in range(i % 20)]}


def _many_doubles(count: int) -> ValueShape:
    names = [f"f{number}" for number in range(count)]
    schema = record("Wide", **{name: ["null", "double"] for name in names})
    return _avro(
        f"{count} nullable doubles",
        schema,
        lambda rnd, i: {name: None if rnd.random() < 0.1 else rnd.random() for name in names},
    )


def _items_of_texts(count: int) -> ValueShape:
    names = [f"f{number}" for number in range(count)]
    item = record("Item", **{name: ["null", "string"] for name in names})
    schema = record("Items", items={"type": "array", "items": item})

    def row(rnd: random.Random, i: int) -> dict[str, Any]:
        one = {name: None if rnd.random() < 0.1 else f"text {i % 100}" for name in names}
        return {"items": [one] * 100}

    return _avro(f"100 items of {count} nullable texts", schema, row)


def _union_of_records() -> ValueShape:
    records = [record(f"R{number}", **{f"a{number}": "long", "b": "string"}) for number in range(30)]
    schema = record("Holder", id="long", u=["null", *records])

    def row(rnd: random.Random, i: int) -> dict[str, Any]:
        number = rnd.randrange(30)
        return {"id": i, "u": (f"R{number}", {f"a{number}": i, "b": f"text {i}"})}

    def finish(value: Any) -> Any:
        name, inner = value["u"]
        return {"id": value["id"], "u": {f"member{name[1:]}": inner}}

    return _avro("a union of 30 records", schema, row, finish)


def _large_bytes() -> ValueShape:
    numbers = {f"f{number}": "long" for number in range(30)}
    schema = record("Large", **numbers, data="bytes")
    data = random.Random(0).randbytes(100_000)
    return _avro(
        "30 longs and 100 kB of bytes", schema, lambda rnd, i: dict.fromkeys(numbers, i) | {"data": data}
    )


# ---- JSON


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _json_row(rnd: random.Random, i: int) -> dict[str, Any]:
    row = flat_row(rnd, i)
    row["at"] = 1_700_000_000_000_000 + i
    return {name: value for name, value in row.items() if value is not None}


def _json(name: str, schema: dict[str, Any], row: MakeRow, finish: Any = None) -> ValueShape:
    return ValueShape(name, SchemaType.JSON, schema, lambda rnd, i: _text(row(rnd, i)), finish)


def _shuffled(rnd: random.Random, i: int) -> dict[str, Any]:
    members = list(_json_row(rnd, i).items())
    rnd.shuffle(members)
    return dict(members)


def _one_union() -> ValueShape:
    schema = {
        **FLAT,
        "fields": [*FLAT["fields"], {"name": "u", "type": ["null", "string", "long", "boolean"]}],
    }
    members = {str: "member0", int: "member1", bool: "member2"}

    def row(rnd: random.Random, i: int) -> dict[str, Any]:
        return _json_row(rnd, i) | {"u": rnd.choice([f"text {i}", i, True])}

    def finish(value: Any) -> Any:
        value["u"] = {members[type(value["u"])]: value["u"]}
        return value

    return _json("a union", schema, row, finish)


def _json_union_of_records() -> ValueShape:
    records = [record(f"R{number}", **{f"a{number}": "long", "b": "string"}) for number in range(30)]
    schema = record("Holder", id="long", u=["null", *records])

    def row(rnd: random.Random, i: int) -> dict[str, Any]:
        return {"id": i, "u": {f"a{rnd.randrange(30)}": i, "b": f"text {i}"}}

    def finish(value: Any) -> Any:
        inner = value["u"]
        value["u"] = {f"member{next(iter(inner))[1:]}": inner}
        return value

    return _json("a union of 30 records", schema, row, finish)


def _array(count: int) -> ValueShape:
    schema = record("Array", id="long", items={"type": "array", "items": "long"})
    return _json(
        f"arrays of {count}",
        schema,
        lambda rnd, i: {"id": i, "items": [rnd.randrange(10**6) for _ in range(count)]},
    )


def _escapes(rnd: random.Random, i: int) -> dict[str, Any]:
    row = _json_row(rnd, i)
    return row | {"name": f'say "customer-{i:06}"', "note": f"some\nwords\t{i}"}


def _json_nested(rnd: random.Random, i: int) -> dict[str, Any]:
    row = _nested_row(rnd, i)
    return row | {"price": float(row["price"]), "at": 1_700_000_000_000 + i}


def _finish_nested(value: Any) -> Any:
    value["counts"] = list(value["counts"].items())
    value["price"] = Decimal(f"{value['price']:.2f}")
    value["at"] *= 1000
    return value


def _spread(rnd: random.Random, i: int) -> dict[str, Any]:
    """One of 60 names, a third of which each row has."""
    names = [f"f{number:02}" for number in range(60) if rnd.random() < 1 / 3]
    return {name: rnd.randrange(10**6) for name in names}


def _sparse_texts(count: int) -> ValueShape:
    """A tenth of the texts is there."""
    names = [f"f{number}" for number in range(count)]
    schema = record("Sparse", **{name: ["null", "string"] for name in names})

    def row(rnd: random.Random, i: int) -> dict[str, Any]:
        return {name: f"text {i}" for name in names if rnd.random() < 0.1}

    return _json(f"{count} nullable texts", schema, row)


_LINES = record("Lines", lines={"type": "array", "items": record("Line", sku="string", count="int")})

_MAKERS: tuple[Callable[[], ValueShape], ...] = (
    partial(_avro, "flat", FLAT, flat_row),
    partial(_avro, "nested", _NESTED, _nested_row),
    partial(
        _avro,
        "arrays of 20 and 10",
        record(
            "Long", numbers={"type": "array", "items": "long"}, names={"type": "array", "items": "string"}
        ),
        _long_row,
    ),
    *(partial(_many_doubles, count) for count in (100, 500, 2000)),
    *(partial(_items_of_texts, count) for count in (10, 30)),
    _union_of_records,
    _large_bytes,
    partial(_json, "flat", FLAT, _json_row),
    partial(_json, "nested", _NESTED, _json_nested, _finish_nested),
    _one_union,
    _json_union_of_records,
    *(partial(_array, count) for count in (64, 65, 1000)),
    partial(
        _json,
        "arrays of 70 records",
        _LINES,
        lambda rnd, i: {"lines": [{"sku": f"sku-{j}", "count": j} for j in range(70)]},
    ),
    partial(_json, "names in any order", FLAT, _shuffled),
    partial(
        _json,
        "20 of 60 names",
        record("Spread", **{f"f{number:02}": "long" for number in range(60)}),
        _spread,
    ),
    partial(_json, "escapes", FLAT, _escapes),
    partial(_sparse_texts, 1000),
)


def shapes() -> list[ValueShape]:
    """All of them."""
    return [make() for make in _MAKERS]
