"""Branches of unions that a type is read as, and values of a newer version that an older one cannot hold."""

import copy
import json
import random

import pyarrow as pa
import pytest

from pulsar_spark.client.reading.typed_values import changed_fields
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.avro.avro_types import parse
from pulsar_spark.values.avro.resolve import Branches, with_siblings
from tests.values.avro.decoding import avro
from tests.values.random_avro import column as column_of
from tests.values.random_avro import random_record, random_value, schema_of_tree
from tests.work import calls


def named(name, *aliases, **more):
    return {"type": "record", "name": name, "aliases": list(aliases), "fields": [], **more}


def union(*branches):
    return parse(schema_of_tree(list(branches)))


def candidates(writer, *branches, has_siblings=False):
    reader = union(*branches)
    (type_,) = union(writer).branches
    made = Branches(reader.branches)
    return [reader.branches.index(each) for each in made.candidates(type_, has_siblings=has_siblings)]


@pytest.mark.parametrize(
    ("writer", "branches", "numbers"),
    [
        (named("a.X"), [named("b.X"), named("Y", "a.X"), named("a.X")], [2, 1, 0]),
        (named("a.X"), [named("b.Y", "c.X"), named("b.X")], [0, 1]),
        (named("a.X"), [named("Y"), named("Z")], []),
        (named("a.X"), [named("Y"), "string"], [0]),
        (named("a.X"), [{"type": "enum", "name": "a.X", "symbols": ["A"]}, named("Y")], [1]),
        ("int", ["double", "null", "long", "string"], [0, 2]),
        ("long", ["int", "float", "long"], [2, 1]),
        ("boolean", ["int", "string"], []),
        ({"type": "array", "items": "int"}, ["int", {"type": "array", "items": "string"}], [1]),
    ],
)
def test_candidates_are_the_best_first(writer, branches, numbers):
    assert candidates(writer, *branches) == numbers


def test_a_branch_that_one_side_lacks_is_not_taken_for_another():
    assert candidates(named("X"), named("Y"), has_siblings=True) == []
    assert with_siblings(union(named("X"), named("Y"), "int")) == {type(union(named("X")).branches[0])}


def test_members_are_counted_without_null():
    reader = union("int", "null", named("X"))
    branches = Branches(reader.branches)
    assert [branches.member(each) for each in (reader.branches[0], reader.branches[2])] == [0, 1]


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_unions_of_many_records_cost_no_more_than_their_branches(kind):
    def work(count):
        branches = [named(f"R{i}", fields=[{"name": f"f{i}", "type": "int"}]) for i in range(count)]
        field = {"name": "u", "type": ["null", *branches]}
        older, newer = (
            schema_of_tree(named("T", fields=[field, *more]), kind)
            for more in ([], [{"name": "x", "type": "int", "default": 1}])
        )
        if kind is SchemaType.AVRO:
            numbers = (i + 1 for i in range(count))
            payloads = [
                bytes([n * 2 % 128 | 128, n * 2 // 128, 10]) if n > 63 else bytes([n * 2, 10])
                for n in numbers
            ]
        else:
            payloads = [b'{"u":{"f%d":5}}' % i for i in range(0, count, count // 10)]
        column = formats.column_type(newer)

        def load_and_read():
            list(formats.new_values(newer, older))
            decoder = formats.decoder(older, newer, column)
            rows = decoder.decode(pa.array(payloads), pa.nulls(len(payloads), pa.binary())).column
            assert rows.field("u").field("member0").to_pylist()[0] == {"f0": 5}

        load_and_read()  # what is made once
        return calls(load_and_read)

    assert work(800) < 2.5 * work(400)


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
        payloads = formats.encoder(writer, column)(column_of(values, parse(writer))).values
        assert made.decode(payloads, pa.nulls(len(values), pa.binary())).is_bad is None, (seed, new, old)
    assert min(told, read) > 10


class _Names:
    def __init__(self, *place):
        self._place, self._count = place, 0

    def next(self):
        self._count += 1
        return f"N{'_'.join(map(str, self._place))}_{self._count}"
