"""What a newer version of an Avro type has and an older one cannot hold."""

import json

import pytest

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro.avro_types import parse
from pulsar_spark.values.avro.changes import new_values


def enum(*symbols):
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


def record(kind, name="R", field="x", **more):
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind, **more}]}


def found(newer, older):
    new, old = (parse(Schema(SchemaType.AVRO, json.dumps(each).encode())) for each in (newer, older))
    return list(new_values(new, old))


@pytest.mark.parametrize(
    ("newer", "older", "words"),
    [
        (["null", "int"], "int", ["the value as null"]),
        (["null", "int"], ["int", "null"], []),
        ("int", ["null", "int"], []),
        (enum("P", "Q", "S"), enum("Q"), ["the value as 'P'", "the value as 'S'"]),
        (enum("P"), enum("Q", "P"), []),
        (["null", enum("P", "Q")], ["null", enum("P")], ["the value as 'Q'"]),
        (record(enum("P", "Q")), record(enum("P"), name="Other"), ["x as 'Q'"]),
        (record(enum("P", "Q"), field="y"), record(enum("P"), aliases=["y"]), ["x as 'Q'"]),
        (record(enum("P", "Q"), field="y"), record(enum("P")), []),
        (record(record(["null", "int"], name="I")), record(record("int", name="I")), ["x.x as null"]),
        (
            record({"type": "array", "items": ["null", "int"]}),
            record({"type": "array", "items": "int"}),
            ["x[] as null"],
        ),
        (
            record({"type": "map", "values": enum("P", "Q")}),
            record({"type": "map", "values": enum("P")}),
            ["x{} as 'Q'"],
        ),
        (enum("P"), "string", []),
    ],
)
def test_new_values(newer, older, words):
    assert found(newer, older) == words
    assert found(older, older) == []
