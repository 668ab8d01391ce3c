"""Branches of unions: which a type is read as, and what many of them cost."""

import pyarrow as pa
import pytest

from pulsar_spark.schema import SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.avro.avro_types import parse
from pulsar_spark.values.avro.resolve import Branches, with_siblings
from tests.values.random_avro import schema_of_tree
from tests.work import calls


def named(name, *aliases, **more):
    return {"type": "record", "name": name, "aliases": list(aliases), "fields": [], **more}


def union(*branches):
    return parse(schema_of_tree(list(branches)))


def found(writer, *branches, has_siblings=False):
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
    assert found(writer, *branches) == numbers


def test_a_branch_that_one_side_lacks_is_not_taken_for_another():
    assert found(named("X"), named("Y"), has_siblings=True) == []
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
