"""What a newer version of an Avro type has and an older one cannot hold."""

import copy
import json
import random

import pyarrow as pa
import pytest

from pulsar_spark.client.reading.typed_values import changed_fields
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.avro.avro_types import parse
from tests.values.avro.decoding import avro
from tests.values.random_avro import column as column_of
from tests.values.random_avro import random_record, random_value


def enum(*symbols):
    return {"type": "enum", "name": "E", "symbols": list(symbols)}


def fixed(size, name="F", **more):
    return {"type": "fixed", "name": name, "size": size, **more}


def record(kind, name="R", field="x", **more):
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind, **more}]}


def found(newer, older, kind=SchemaType.AVRO):
    new, old = (Schema(kind, json.dumps(each).encode()) for each in (newer, older))
    assert list(formats.new_values(old, old)) == []
    return list(formats.new_values(new, old))


def of_name(tree, name):
    return {**tree, "name": name, "aliases": [tree["name"]]}


A, B, P, Q = record("int", "A"), record("string", "B"), enum("P"), {**enum("Q"), "name": "F"}


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
        (enum("P"), "string", ["the value as enum 'E'"]),
        ("string", enum("P"), ["the value as string"]),
        ([A, of_name(B, "C")], [A, B], ["the value as record 'C'"]),
        ([P, of_name(Q, "G")], [P, Q], ["the value as enum 'G'"]),
        (record([A, of_name(B, "C")], field="y"), record([A, B], aliases=["y"]), ["x as record 'C'"]),
        (
            [fixed(2), of_name(fixed(2, "G"), "H")],
            [fixed(2), fixed(2, "G")],
            ["the value as fixed 'H' of 2 bytes"],
        ),
        (["null", fixed(3)], ["null", fixed(2)], ["the value as fixed 'F' of 3 bytes"]),
        (["null", of_name(A, "C")], ["null", A], []),  # the only record of both
        ([of_name(A, "n.A"), B], [A, B], []),  # its short name is the same
        (["null", "bytes"], ["null", fixed(2)], ["the value as bytes"]),
        (["null", "int"], ["null", "long"], []),
    ],
)
def test_new_values(newer, older, words):
    assert found(newer, older) == words


@pytest.mark.parametrize(
    ("newer", "older", "words"),
    [
        ([A, of_name(B, "C")], [A, B], []),
        ([P, of_name({**Q, "symbols": ["Q", "S"]}, "G")], [P, Q], ["the value as 'S'"]),
        ([A, of_name(record(["null", "string"], "B"), "C")], [A, B], ["x as null"]),
        (["null", fixed(3)], ["null", fixed(2)], []),
    ],
)
def test_json_reads_a_renamed_branch_by_its_shape(newer, older, words):
    assert found(newer, older, SchemaType.JSON) == words


def changed(rng, tree):
    """The tree with other names, sizes and symbols in some places; old names are aliases."""
    if isinstance(tree, list):
        return [changed(rng, each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    tree = {name: changed(rng, each) if name in _BELOW else each for name, each in tree.items()}
    if "name" in tree and tree["type"] in _NAMED and rng.random() < 0.4:
        tree = of_name(tree, f"New{tree['name']}")
    if tree["type"] == "fixed" and tree["size"] and rng.random() < 0.2:
        tree["size"] += 1
    if tree["type"] == "enum" and rng.random() < 0.2:
        tree["symbols"] = [*tree["symbols"], "NEW"]
    return tree


_BELOW = {"type", "items", "values", "fields"}
_NAMED = ("record", "enum", "fixed")


def test_a_version_without_new_values_has_no_bad_rows():
    told = read = 0
    for seed in range(100):
        rng = random.Random(seed)
        fields = []
        for number in range(3):
            branches = [random_record(rng, 2, 2, _Names(number, each)) for each in range(rng.randint(1, 3))]
            fields.append({"name": f"u{number}", "type": ["null", *branches]})
        old = {"type": "record", "name": "Whole", "fields": fields}
        new = changed(rng, copy.deepcopy(old))
        writer, reader = avro(new), avro(old)
        column = formats.column_type(reader)
        assert not list(changed_fields(column, formats.column_type(writer)))
        values = [random_value(rng, parse(writer)) for _ in range(10)]
        if list(formats.new_values(writer, reader)):
            told += 1
            continue
        read += 1
        made = formats.decoder(writer, reader, column)
        payloads = formats.encoder(writer, column).encode(column_of(values, parse(writer))).values
        assert made.decode(payloads, pa.nulls(len(values), pa.binary())).is_bad is None, (seed, new, old)
    assert min(told, read) > 10


class _Names:
    def __init__(self, *place):
        self._place, self._count = place, 0

    def next(self):
        self._count += 1
        return f"N{'_'.join(map(str, self._place))}_{self._count}"
