"""The fuzzer of what the sink writes: from the source to the sink, to another library, and read again.

A round draws a schema and payloads. The rows that are read of them are written by the same schema. AVRO must
be to fastavro what it was to us, and JSON to ``json``; and read again, rows must be as before. Rows that the
sink refuses are counted.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from integration.hostile.avro_schemas import Payloads, Schemas, as_json
from integration.hostile.entries import DifferenceError
from integration.hostile.json_values import Texts
from integration.hostile.rounds import bad_rows, rounds
from integration.hostile.values import FAULT, Fastavro, as_python, same
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.interfaces import ValueEncoder
from tests.values.json_payloads import Maker, json_schema, model, plain

ROWS = 200  # payloads of a round


def run(seed: int, rows: int) -> Iterator[int]:
    """Write at least so many rows; see ``rounds``."""
    return rounds(seed, rows, avro_round, json_round, json_union_round)


def avro_round(seed: str, counts: Counter[str]) -> int:
    """Write rows of one schema as AVRO; returns how many."""
    rnd = random.Random(f"written {seed}")
    tree = Schemas(rnd, has_nothing=False).root()
    text, made = as_json(tree), Payloads(rnd)
    schema = Schema(SchemaType.AVRO, json.dumps(text).encode())
    other = Fastavro(text, text)

    def check(payload: bytes, row: Any) -> str:
        expected = other.read(payload)
        return "" if expected is FAULT or same(row, expected) else f"to fastavro {expected!r}"

    rows = _good_rows(schema, [made.of(tree) for _ in range(ROWS)])
    for payload, row in _written(seed, schema, rows, counts, "AVRO"):
        _check(seed, schema, payload, row, check(payload, as_python(row)[0]))
        _check_again(seed, schema, payload, row)
    return ROWS


def json_round(seed: str, counts: Counter[str]) -> int:
    """Write rows of one schema without unions as JSON; returns how many."""
    maker = Maker(seed, has_unions=False)
    tree = maker.record()
    schema = json_schema(tree)
    rows = _good_rows(schema, [maker.payload(tree) for _ in range(ROWS)])
    for payload, row in _written(seed, schema, rows, counts, "JSON"):
        json.loads(payload)
        expected = model(tree, payload)
        why = "" if repr(expected) == repr(plain(row)[0]) else f"to json {expected!r}"
        _check(seed, schema, payload, row, why)
        _check_again(seed, schema, payload, row)
    return ROWS


def json_union_round(seed: str, counts: Counter[str]) -> int:
    """Write rows with unions as JSON, in which a value may be read as another member; returns how many."""
    rnd = random.Random(f"written unions {seed}")
    tree, texts = Schemas(rnd, has_nothing=True).root(), Texts(rnd)
    schema = Schema(SchemaType.JSON, json.dumps(as_json(tree)).encode())
    rows = _good_rows(schema, [texts.payload(tree) for _ in range(ROWS)])
    for payload, row in _written(seed, schema, rows, counts, "JSON with unions"):
        json.loads(payload)
        found = _read(schema, [payload])
        _check(seed, schema, payload, row, "bad when it is read again" if bad_rows(found)[0] else "")
    return ROWS


def _read(schema: Schema, payloads: list[bytes]) -> Any:
    kind = formats.column_type(schema)
    return formats.decoder(schema, schema, kind).decode(
        pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary())
    )


def _good_rows(schema: Schema, payloads: list[bytes]) -> pa.Array:
    found = _read(schema, payloads)
    return found.column.filter(pa.array(~np.array(bad_rows(found)))).drop_null()


def _written(
    seed: str, schema: Schema, rows: pa.Array, counts: Counter[str], what: str
) -> Iterator[tuple[bytes, pa.Array]]:
    """Rows that the sink takes, as payloads."""
    try:
        encoder = formats.encoder(schema, rows.type)
    except (SchemaError, UnsupportedError):
        counts[f"schemas of {what} that the sink refuses"] += 1
        return
    together = _encoded(encoder, rows)
    for number in range(len(rows)):
        row = rows[number : number + 1]
        alone = _encoded(encoder, row)
        if together is not None and alone != together[number : number + 1]:
            raise DifferenceError(
                f"seed {seed}: {row} alone is {alone}, and {together[number]!r} with others"
            )
        if alone is None:
            counts[f"rows of {what} that the sink refuses"] += 1
        else:
            counts[f"rows of {what}"] += 1
            yield alone[0], row


def _encoded(encoder: ValueEncoder, rows: pa.Array) -> list[bytes] | None:
    try:
        values: list[bytes] = encoder.encode(rows).values.to_pylist()
    except SchemaError:
        return None
    return values


def _check_again(seed: str, schema: Schema, payload: bytes, row: pa.Array) -> None:
    found = _read(schema, [payload])
    again = as_python(found.column)
    is_same = not bad_rows(found)[0] and same(again, as_python(row))
    _check(seed, schema, payload, row, "" if is_same else f"read again {again!r}")


def _check(seed: str, schema: Schema, payload: bytes, row: pa.Array, why: str) -> None:
    if why:
        raise DifferenceError(f"seed {seed}: {as_python(row)!r} of {schema.data!r} is {payload!r}, {why}")
