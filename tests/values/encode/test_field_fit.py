"""Which columns fit which fields, and what the errors list."""

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError
from pulsar_spark.values.avro.avro_types import arrow_type, parse
from pulsar_spark.values.encode.field_fit import fit
from pulsar_spark.values.interfaces import type_name
from tests.loops import for_each
from tests.values.random_avro import schema_of_tree

UTC = pa.timestamp("us", "UTC")
VARIANT = pa.struct(
    [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})]
)


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def number(precision, scale):
    return logical("bytes", "decimal", precision=precision, scale=scale)


def fields(*some, name="R"):
    keys = ("name", "type", "default")
    return {"type": "record", "name": name, "fields": [dict(zip(keys, each, strict=False)) for each in some]}


def problems(tree, kind):
    """What the error says that does not fit, one text each."""
    with pytest.raises(SchemaError) as caught:
        fit(parse(schema_of_tree(tree)), kind)
    return caught.value.what.removeprefix("the rows do not fit the topic's schema: ").split("; ")


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
GOOD = [
    (pa.bool_(), ["boolean"]),
    (pa.int8(), ["int", "long", "float", "double", logical("int", "time-millis")]),
    (pa.int16(), ["int", "long", "float", "double"]),
    (pa.int32(), ["int", "long", "float", "double"]),
    (pa.int64(), ["long", "float", "double", logical("long", "time-micros")]),
    (pa.float32(), ["float", "double"]),
    (pa.float64(), ["float", "double"]),
    (pa.string(), ["string", "bytes", ENUM, logical("string", "uuid")]),
    (pa.large_string(), ["string", "bytes", ENUM]),
    (pa.binary(), ["bytes", "string", FIXED]),
    (pa.large_binary(), ["bytes", "string", FIXED]),
    (pa.date32(), [logical("int", "date")]),
    (UTC, [logical("long", f"timestamp-{unit}") for unit in ("millis", "micros", "nanos")]),
    (
        pa.timestamp("us"),
        [logical("long", f"local-timestamp-{unit}") for unit in ("millis", "micros", "nanos")],
    ),
    (pa.decimal128(5, 2), [number(5, 2), number(6, 2), number(6, 3), number(38, 35)]),
    (pa.list_(pa.int32()), [{"type": "array", "items": "long"}]),
    (pa.map_(pa.string(), pa.int32()), [{"type": "map", "values": "long"}]),
    (pa.struct([("x", pa.int32())]), [fields(("x", "long"))]),
    (pa.decimal128(5, 3), [number(6, 3), number(38, 35)]),
    (pa.decimal128(6, 4), [number(38, 35)]),
    (pa.decimal128(9, 1), []),
    (pa.decimal256(5, 2), []),
    (pa.decimal128(5, -1), []),
    (pa.null(), ["null"]),
    (pa.duration("us"), []),
    (pa.time64("ns"), [logical("int", "time-millis"), logical("long", "time-micros")]),
    (pa.timestamp("ms", "UTC"), []),
    (pa.map_(pa.int32(), pa.int32()), []),
    (VARIANT, []),
]
TREES = [
    "null",
    *("boolean", "int", "long", "float", "double", "string", "bytes"),
    *(ENUM, FIXED, logical("int", "date"), number(5, 2), number(6, 2), number(6, 3), number(38, 35)),
    *(
        logical("long", f"{name}-{unit}")
        for name in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    ),
    *(logical("int", "time-millis"), logical("long", "time-micros"), logical("string", "uuid")),
    {"type": "array", "items": "long"},
    {"type": "map", "values": "long"},
    fields(("x", "long")),
    fields(("value", "bytes"), ("metadata", "bytes")),
]


@for_each("kind", [kind for kind, _ in GOOD])
def test_each_type_fits_what_it_should_and_nothing_else(kind):
    found = []
    for tree in TREES:
        try:
            fit(parse(schema_of_tree(tree)), kind)
        except SchemaError:
            continue
        found.append(tree)
    same_as_plain = {
        "int": logical("int", "time-millis"),
        "long": logical("long", "time-micros"),
        "string": logical("string", "uuid"),
    }
    expected = next(trees for each, trees in GOOD if each is kind)
    expected = [*expected, *(same for name, same in same_as_plain.items() if name in expected)]
    assert all(tree in expected for tree in found), found
    assert all(tree in found for tree in expected), expected


def test_what_reading_gives_fits():
    for tree in TREES[1:]:
        fit(parse(schema_of_tree(tree)), arrow_type(parse(schema_of_tree(tree))))


def test_all_that_does_not_fit_is_listed():
    tree = fields(
        ("a", "int"),
        ("b", ["null", {"type": "array", "items": fields(("x", "int"), ("y", "int"), name="I")}]),
        ("c", "int", 0),
        ("d", number(5, 2)),
        ("e", ENUM),
        ("gone", "string"),
    )
    inner = pa.struct([("x", pa.string()), ("z", pa.int32())])
    kind = pa.struct(
        [
            ("a", pa.int64()),
            ("b", pa.list_(inner)),
            ("d", pa.float64()),
            ("e", pa.decimal128(3, 1)),
            ("new", UTC),
        ]
    )
    assert problems(tree, kind) == [
        "'new' has no field in the topic's schema",
        "'a' is bigint, but the topic has int",
        "'b[].z' has no field in the topic's schema",
        "'b[].x' is string, but the topic has int",
        "'b[].y' is missing, and the topic's schema has no default for it",
        "'d' is double, but the topic has decimal(5,2)",
        "'e' is decimal(3,1), but the topic has enum 'E'",
        "'gone' is missing, and the topic's schema has no default for it",
    ]


def test_the_list_ends():
    kind = pa.struct([(f"c{number}", pa.int32()) for number in range(1000)])
    found = problems(fields(), kind)
    assert len(found) == 51
    assert found[-1] == "and 950 more"


def test_a_column_that_is_there_twice():
    kind = pa.struct([pa.field("a", pa.int32()), pa.field("a", pa.int32())])
    assert problems(fields(("a", "int")), kind) == ["'a' exists 2 times"]


@pytest.mark.parametrize(
    ("branches", "kind", "branch", "null"),
    [
        (["null", "int"], pa.int32(), 1, 0),
        (["int", "null"], pa.int32(), 0, 1),
        (["int"], pa.int32(), 0, None),
        (["int", "long", "null"], pa.int64(), 1, 2),
        (["int", "long"], pa.int32(), 0, None),
        (["double", "float"], pa.float32(), 1, None),
        (["double", "long"], pa.int32(), 0, None),
        (["null", ENUM, "string"], pa.string(), 2, 0),
        (["null", FIXED, "bytes"], pa.binary(), 2, 0),
        (["bytes", "string"], pa.large_string(), 1, None),
        (["string", number(9, 2)], pa.decimal128(9, 2), 1, None),
        (["null", fields(("x", "int")), {"type": "map", "values": "int"}], pa.map_("string", "int32"), 2, 0),
        (["null", "string", fields(("x", "int"))], pa.struct([("x", pa.int32())]), 2, 0),
    ],
)
def test_the_branch_of_a_union(branches, kind, branch, null):
    found = fit(parse(schema_of_tree(branches)), kind)
    assert (found.branch, found.null) == (branch, null)


def test_the_members_of_a_union():
    avro = parse(schema_of_tree(["int", "null", "string"]))
    found = fit(avro, arrow_type(avro))
    assert [(part.path, part.branch) for part in found.parts] == [("member0", 0), ("member1", 2)]
    assert found.null == 1
    some = fit(avro, pa.struct([("member1", pa.string())]))
    assert [(part.path, part.branch) for part in some.parts] == [("member1", 2)]
    assert problems(["int", "null", "string"], pa.struct([("member1", pa.bool_())])) == [
        "'member1' is boolean, but the topic has string"
    ]


def test_a_union_of_other_types():
    assert problems(fields(("u", ["null", "string", "int"])), pa.struct([("u", pa.bool_())])) == [
        "'u' is boolean, but the topic has a union of other types"
    ]
    assert problems(fields(("u", ["null", "string"])), pa.struct([("u", pa.bool_())])) == [
        "'u' is boolean, but the topic has string"
    ]


def test_names_of_types():
    kinds = [pa.int8(), UTC, pa.list_(pa.map_(pa.string(), pa.date32())), pa.null(), VARIANT, pa.struct([])]
    assert [type_name(kind) for kind in kinds] == [
        "tinyint",
        "timestamp",
        "array<map<string,date>>",
        "void",
        "variant",
        "struct",
    ]
