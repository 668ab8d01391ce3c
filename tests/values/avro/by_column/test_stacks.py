"""Wide records of few rows: fields that are alike are read together, as each of them by itself would be."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from integration.hostile.avro_schemas import Payloads, broken
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro import avro_read
from pulsar_spark.values.avro.avro_read import decoder
from pulsar_spark.values.avro.avro_types import column_type
from pulsar_spark.values.avro.by_column import readers, stacks

KINDS = (
    *(["null", "double"], ["string", "null"], "long", "string", "boolean", "bytes", ["null", "int"]),
    *({"type": "fixed", "name": "F", "size": 3}, {"type": "array", "items": "string"}),
)


def wide(rnd):
    """A record of few kinds of fields, in any order, of each some; and one that is in no stack."""
    kinds = rnd.sample(KINDS[:-2], 3)
    fields = [{"name": f"f{number}", "type": rnd.choice(kinds)} for number in range(40)]
    fields.insert(rnd.randrange(40), {"name": "array", "type": KINDS[-1]})
    fields.insert(rnd.randrange(40), {"name": "fixed", "type": KINDS[-2]})
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize("seed", range(20))
def test_values_and_verdicts_are_those_of_single_fields(seed, monkeypatch):
    rnd = random.Random(seed)
    tree = wide(rnd)
    schema = Schema(SchemaType.AVRO, json.dumps(tree).encode())
    made = Payloads(rnd)
    payloads = [made.of(tree) for _ in range(rnd.choice((1, 30, 200)))]
    monkeypatch.setattr(stacks, "_MAX_VALUES", rnd.choice((1, 5 * len(payloads), 1 << 17)))
    payloads = [broken(rnd, each) if rnd.random() < 0.2 else each for each in payloads]
    values, keys = pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary())
    calls = []
    stacked = stacks.make_stacks
    decode = decoder(schema, schema, column_type(schema))
    found = decode.decode(values, keys)
    found.column.validate(full=True)
    monkeypatch.setattr(readers, "make_stacks", lambda *given: calls.append(stacked(*given)))
    avro_read._reader.cache_clear()
    single = decoder(schema, schema, column_type(schema)).decode(values, keys)
    avro_read._reader.cache_clear()
    assert calls[0] is not None
    bad, bad_single = (
        np.zeros(len(values), bool) if each.is_bad is None else each.is_bad for each in (found, single)
    )
    assert bad.tolist() == bad_single.tolist()
    assert str(found.column.to_pylist()) == str(single.column.to_pylist())


def test_wide_rows_are_read_many_at_a_time():
    rows = pa.array([bytes(20_000)] * 600, pa.binary())
    assert [end - first for first, end in avro_read._slices(rows)] == [419, 181]
    narrow = pa.array([bytes(100)] * 20_000, pa.binary())
    assert [end - first for first, end in avro_read._slices(narrow)][:1] == [10_485]


def test_of_many_columns_some_are_read_at_a_time(monkeypatch):
    tree = {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": "long"} for n in range(1000)]}
    schema = Schema(SchemaType.AVRO, json.dumps(tree).encode())
    sizes = []
    read_stack = stacks._read_stack
    monkeypatch.setattr(
        stacks,
        "_read_stack",
        lambda payloads, starts, *rest: (
            sizes.append(len(starts) * len(starts[0])) or read_stack(payloads, starts, *rest)
        ),
    )
    values = pa.array([bytes(1000)] * 1000, pa.binary())
    found = decoder(schema, schema, column_type(schema)).decode(values, values)
    assert found.column.field("f999").to_pylist() == [0] * 1000
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= stacks._MAX_VALUES
