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
from pulsar_spark.values.interfaces import DecodedValues, ValueEncoder
from tests.values.json_payloads import Maker, json_schema, model, plain

ROWS = 1000  # payloads of a round
_ALONE = 50  # rows of a round that are also written and read by themselves


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
    rows, payloads = _written(seed, schema, [made.of(tree) for _ in range(ROWS)], counts, "AVRO")
    for payload, row in zip(payloads, as_python(rows), strict=True):
        expected = other.read(payload)
        if expected is not FAULT and not same(row, expected):
            raise _difference(seed, schema, payload, row, f"to fastavro {expected!r}")
    _check_again(seed, schema, payloads, rows)
    return ROWS


def json_round(seed: str, counts: Counter[str]) -> int:
    """Write rows of one schema without unions as JSON; returns how many."""
    maker = Maker(seed, has_unions=False)
    tree = maker.record()
    schema = json_schema(tree)
    rows, payloads = _written(seed, schema, [maker.payload(tree) for _ in range(ROWS)], counts, "JSON")
    for payload, row in zip(payloads, plain(rows), strict=True):
        json.loads(payload)
        expected = model(tree, payload)
        if repr(expected) != repr(row):
            raise _difference(seed, schema, payload, row, f"to json {expected!r}")
    _check_again(seed, schema, payloads, rows)
    return ROWS


def json_union_round(seed: str, counts: Counter[str]) -> int:
    """Write rows with unions as JSON, in which a value may be read as another member; returns how many."""
    rnd = random.Random(f"written unions {seed}")
    tree, texts = Schemas(rnd, has_nothing=True).root(), Texts(rnd)
    schema = Schema(SchemaType.JSON, json.dumps(as_json(tree)).encode())
    made = [texts.payload(tree) for _ in range(ROWS)]
    rows, payloads = _written(seed, schema, made, counts, "JSON with unions")
    bad = bad_rows(_read(schema, payloads))
    for payload, row, is_bad in zip(payloads, as_python(rows), bad, strict=True):
        json.loads(payload)
        if is_bad:
            raise _difference(seed, schema, payload, row, "bad when it is read again")
    return ROWS


def _read(schema: Schema, payloads: list[bytes]) -> DecodedValues:
    kind = formats.column_type(schema)
    return formats.decoder(schema, schema, kind).decode(
        pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary())
    )


def _written(
    seed: str, schema: Schema, payloads: list[bytes], counts: Counter[str], what: str
) -> tuple[pa.Array, list[bytes]]:
    """Rows of payloads that the sink takes, and their payloads."""
    found = _read(schema, payloads)
    rows = found.column.filter(pa.array(~np.array(bad_rows(found)))).drop_null()
    try:
        encoder = formats.encoder(schema, rows.type)
    except (SchemaError, UnsupportedError):
        counts[f"schemas of {what} that the sink refuses"] += 1
        return rows[:0], []
    taken = _taken(encoder, rows, range(len(rows)))
    counts[f"rows of {what} that the sink refuses"] += len(rows) - len(taken)
    counts[f"rows of {what}"] += len(taken)
    rows = rows.take(pa.array(taken, pa.int64()))
    together = _encoded(encoder, rows)
    for number in random.Random(seed).sample(range(len(rows)), min(_ALONE, len(rows))):
        alone = _encoded(encoder, rows[number : number + 1])
        if together is None or alone != together[number : number + 1]:
            row = as_python(rows[number : number + 1])
            raise DifferenceError(f"seed {seed}: {row} of {schema.data!r} alone is {alone}, not with others")
    return rows, together or []


def _taken(encoder: ValueEncoder, rows: pa.Array, numbers: range) -> list[int]:
    """Which of some rows the sink takes: halves of them are tried until they are taken, or one row."""
    if not numbers or _encoded(encoder, rows[numbers.start : numbers.stop]) is not None:
        return list(numbers)
    half = len(numbers) // 2
    if not half:
        return []
    return _taken(encoder, rows, numbers[:half]) + _taken(encoder, rows, numbers[half:])


def _encoded(encoder: ValueEncoder, rows: pa.Array) -> list[bytes] | None:
    try:
        values: list[bytes] = encoder(rows).values.to_pylist()
    except SchemaError:
        return None
    return values


def _check_again(seed: str, schema: Schema, payloads: list[bytes], rows: pa.Array) -> None:
    """Read what was written, all together and some alone."""
    found = _read(schema, payloads)
    bad, again = bad_rows(found), as_python(found.column)
    for number, row in enumerate(as_python(rows)):
        if bad[number] or not same(again[number], row):
            raise _difference(seed, schema, payloads[number], row, f"read again {again[number]!r}")
    for number in random.Random(seed).sample(range(len(payloads)), min(_ALONE, len(payloads))):
        alone = _read(schema, payloads[number : number + 1])
        if bad_rows(alone)[0] or not same(as_python(alone.column)[0], again[number]):
            raise _difference(seed, schema, payloads[number], again[number], f"alone {alone.column}")


def _difference(seed: str, schema: Schema, payload: bytes, row: Any, why: str) -> DifferenceError:
    return DifferenceError(f"seed {seed}: {row!r} of {schema.data!r} is {payload!r}, {why}")
