"""Values with a schema alone, on one core: Avro payloads to columns, beside fastavro in the same run.

Times are CPU time, the best of a few; ratios are what other load on the machine changes least.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro.avro_read import column_type, decoder

_ROWS = 50_000
_TIMES = 7


def main() -> int:
    """Measure and print a table."""
    print("rows a second of one core (CPU time)\n")
    print(f"{'schema':20} {'bytes':>6} {'ours':>12} {'fastavro':>12} {'ratio':>6}")
    for name, (schema, row) in SHAPES.items():
        rnd = random.Random(1)
        payloads = [_encoded(schema, row(rnd, i)) for i in range(_ROWS)]
        avro = Schema(SchemaType.AVRO, json.dumps(schema).encode())
        kind = column_type(avro)
        read = decoder(avro, avro, kind)
        values, keys = pa.array(payloads, pa.binary()), pa.nulls(_ROWS, pa.binary())
        parsed = fastavro.parse_schema(schema)

        def other(payloads: list[bytes] = payloads, parsed: Any = parsed, kind: pa.DataType = kind) -> None:
            pa.array([fastavro.schemaless_reader(io.BytesIO(each), parsed, None) for each in payloads], kind)

        def own(read: Any = read, values: pa.Array = values, keys: pa.Array = keys) -> None:
            read.decode(values, keys)

        ours, theirs = _rate(own, _TIMES), _rate(other, 2)
        size = values.nbytes // _ROWS - 4
        print(f"{name:20} {size:6} {ours:12,.0f} {theirs:12,.0f} {ours / theirs:6.1f}", flush=True)
    return 0


def _rate(call: Callable[[], None], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return _ROWS / best


def _encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": kind} for each, kind in fields.items()],
    }


_EPOCH = datetime(2023, 11, 14, tzinfo=timezone.utc)
_FLAT = _record(
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
_NESTED = _record(
    "Nested",
    id="long",
    name="string",
    tags={"type": "array", "items": "string"},
    counts={"type": "map", "values": "long"},
    colour={"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]},
    price={"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-millis"},
    address=["null", _record("Address", street="string", number=["null", "int"])],
    lines={"type": "array", "items": _record("Line", sku="string", count="int")},
)


def _flat_row(rnd: random.Random, i: int) -> dict[str, Any]:
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


def _long_row(_: random.Random, i: int) -> dict[str, Any]:
    return {"numbers": list(range(i % 40)), "names": [f"name {j}" for j in range(i % 20)]}


SHAPES: dict[str, tuple[dict[str, Any], Callable[[random.Random, int], dict[str, Any]]]] = {
    "flat": (_FLAT, _flat_row),
    "nested": (_NESTED, _nested_row),
    "arrays of 20 and 10": (
        _record(
            "Long", numbers={"type": "array", "items": "long"}, names={"type": "array", "items": "string"}
        ),
        _long_row,
    ),
}
