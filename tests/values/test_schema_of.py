"""Types of rows -> schemas: new ones, and a topic's own with more fields."""

import json
import re

import fastavro
import pyarrow as pa
import pytest

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro import avro_write
from pulsar_spark.values.json_types import column_type
from pulsar_spark.values.schema_of import merged, schema_of
from tests.values.random_avro import schema_of_tree

UTC = pa.timestamp("us", "UTC")
VARIANT = pa.struct(
    [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})]
)
ALL = pa.struct(
    [
        pa.field("flag", pa.bool_(), nullable=False),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("int", pa.int32()),
        ("big", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.large_string()),
        ("bytes", pa.large_binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "America/New_York")),
        ("local", pa.timestamp("us")),
        ("clock", pa.time64("ns")),
        ("price", pa.decimal128(38, 10)),
        ("list", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("map", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        pa.field(
            "inner", pa.struct([("list", pa.list_(pa.struct([pa.field("y", pa.string(), nullable=False)])))])
        ),
    ]
)


def tree_of(rows):
    return json.loads(schema_of(SchemaType.AVRO, rows).data)


def nullable(name, kind):
    return {"name": name, "type": ["null", kind], "default": None}


def test_every_type_in_its_place():
    assert tree_of(ALL) == {
        "type": "record",
        "name": "Row",
        "fields": [
            nullable("flag", "boolean"),
            nullable("tiny", "int"),
            nullable("small", "int"),
            nullable("int", "int"),
            nullable("big", "long"),
            nullable("float", "float"),
            nullable("double", "double"),
            nullable("text", "string"),
            nullable("bytes", "bytes"),
            nullable("day", {"type": "int", "logicalType": "date"}),
            nullable("at", {"type": "long", "logicalType": "timestamp-micros"}),
            nullable("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
            nullable("clock", {"type": "long", "logicalType": "time-micros"}),
            nullable("price", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}),
            nullable("list", {"type": "array", "items": ["null", "int"]}),
            nullable(
                "map",
                {
                    "type": "map",
                    "values": [
                        "null",
                        {"type": "record", "name": "Row_map", "fields": [nullable("x", "int")]},
                    ],
                },
            ),
            nullable(
                "inner",
                {
                    "type": "record",
                    "name": "Row_inner",
                    "fields": [
                        nullable(
                            "list",
                            {
                                "type": "array",
                                "items": [
                                    "null",
                                    {
                                        "type": "record",
                                        "name": "Row_inner_list",
                                        "fields": [nullable("y", "string")],
                                    },
                                ],
                            },
                        )
                    ],
                },
            ),
        ],
    }
    fastavro.parse_schema(tree_of(ALL))


def test_the_same_type_gives_the_same_schema_of_either_kind():
    assert schema_of(SchemaType.AVRO, ALL) == schema_of(SchemaType.AVRO, ALL)
    json_schema = schema_of(SchemaType.JSON, ALL)
    assert json_schema.type is SchemaType.JSON
    assert json_schema.data == schema_of(SchemaType.AVRO, ALL).data


def test_rows_fit_the_schema_made_of_them():
    schema = schema_of(SchemaType.AVRO, ALL)
    avro_write.encoder(schema, ALL)
    assert merged(schema, ALL) is None


def test_names_of_records_differ():
    leaf = pa.struct([("x", pa.int32())])
    rows = pa.struct([("a", pa.struct([("b", leaf)])), ("a_b", leaf), ("a_b_2", leaf)])
    parsed = tree_of(rows)
    fastavro.parse_schema(parsed)
    inner = [field["type"][1] for field in parsed["fields"]]
    assert [each["name"] for each in inner] == ["Row_a", "Row_a_b_2", "Row_a_b_2_2"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.null(), "void"),
        (pa.duration("us"), "duration[us]"),
        (pa.month_day_nano_interval(), "month_day_nano_interval"),
        (pa.time32("ms"), "time32[ms]"),
        (pa.timestamp("ms"), "timestamp[ms]"),
        (VARIANT, "variant"),
        (pa.map_(pa.int32(), pa.string()), "map<int,string>"),
        (pa.decimal256(50, 2), "decimal256(50, 2)"),
    ],
)
def test_types_without_a_form(kind, name):
    rows = pa.struct([("a", pa.list_(pa.struct([("bad", kind)])))])
    with pytest.raises(
        UnsupportedError, match=re.escape(f"column 'a[].bad' is {name}, for which Avro has no type")
    ):
        schema_of(SchemaType.JSON, rows)


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "ä", "a.b", "a\n"])
def test_names_that_avro_does_not_allow(name):
    with pytest.raises(OptionError, match="has a name that Avro does not allow"):
        schema_of(SchemaType.AVRO, pa.struct([("s", pa.struct([(name, pa.int32())]))]))


def test_rows_that_make_no_schema():
    with pytest.raises(OptionError, match="no columns"):
        schema_of(SchemaType.AVRO, pa.struct([]))
    twice = pa.struct([pa.field("a", pa.int32()), pa.field("a", pa.int32())])
    with pytest.raises(OptionError, match="column 'a' exists 2 times"):
        schema_of(SchemaType.AVRO, twice)


# A topic's own schema, with all that a merge must leave as it is.
TOPICS = {
    "doc": "theirs",
    "namespace": "org.shop",
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "z", "type": "long", "doc": "first"},
        {
            "name": "address",
            "type": [
                "null",
                {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]},
            ],
        },
        {"name": "other", "type": ["Address", "null"], "default": {"zip": 1}},
        {"name": "Row_new", "type": {"type": "enum", "name": "Row_new", "symbols": ["A"]}, "default": "A"},
    ],
}
ZIP = pa.struct([("zip", pa.int32())])


def fits_topic(*more, address=ZIP, other=ZIP):
    return pa.struct(
        [*more, pa.field("z", pa.int32(), nullable=False), ("address", address), ("other", other)]
    )


def test_rows_that_fit_keep_the_schema():
    existing = schema_of_tree(TOPICS)
    assert merged(existing, fits_topic()) is None
    assert (
        merged(existing, pa.struct([("Row_new", pa.string()), ("address", ZIP), ("z", pa.int64())])) is None
    )


def test_new_fields_come_behind():
    existing = Schema(SchemaType.JSON, json.dumps(TOPICS).encode(), {"p": "q"}, "n")
    new = pa.field("new", pa.struct([("x", pa.int32())]), nullable=False)
    made = merged(existing, fits_topic(new, ("second", pa.string())))
    assert (made.type, made.properties, made.name) == (existing.type, existing.properties, "n")
    tree = json.loads(made.data)
    assert tree["fields"][:4] == TOPICS["fields"]
    assert tree["fields"][4:] == [
        nullable("new", {"type": "record", "name": "Row_new_2", "fields": [nullable("x", "int")]}),
        nullable("second", "string"),
    ]
    assert {**tree, "fields": []} == {**TOPICS, "fields": []}
    assert list(tree) == list(TOPICS)
    fastavro.parse_schema(tree)
    assert merged(made, fits_topic(new, ("second", pa.string()))) is None
    assert merged(made, fits_topic()) is None


def test_new_fields_of_structs():
    larger = pa.struct([("zip", pa.int32()), ("city", pa.string())])
    for address, other in ((larger, ZIP), (ZIP, larger), (larger, larger)):
        made = merged(schema_of_tree(TOPICS), fits_topic(address=address, other=other))
        expected = json.loads(json.dumps(TOPICS))
        expected["fields"][1]["type"][1]["fields"].append(nullable("city", "string"))
        assert json.loads(made.data) == expected
        assert merged(made, fits_topic(address=address, other=other)) is None
        avro_write.encoder(made, fits_topic(address=address, other=other))


def test_one_record_of_two_columns_that_differ():
    texts, numbers = (pa.struct([("zip", pa.int32()), ("city", kind)]) for kind in (pa.string(), pa.int32()))
    with pytest.raises(SchemaError, match=r"record 'org.shop.Address' .* field 'city' of different types"):
        merged(schema_of_tree(TOPICS), fits_topic(address=texts, other=numbers))


def test_new_fields_of_structs_anywhere():
    inner = {"type": "record", "name": "I", "namespace": "n", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "m.O", "fields": [{"name": "i", "type": {"type": inner}}]}
    tree = {
        "type": {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "l", "type": {"type": "array", "items": ["null", outer]}},
                {"name": "m", "type": {"type": "map", "values": ["string", "n.I"]}},
            ],
        }
    }
    leaf = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    rows = pa.struct(
        [("l", pa.list_(pa.struct([("i", leaf)]))), ("m", pa.map_(pa.string(), pa.string())), ("k", leaf)]
    )
    made = merged(schema_of_tree(tree), rows)
    found = column_type(made)
    assert found.field("l").type.value_type.field("i").type == leaf
    assert found.field("k").type == leaf
    assert merged(made, rows) is None


def test_a_branch_without_new_fields_is_better():
    one, two = (
        {"type": "record", "name": name, "fields": [{"name": field, "type": "int"} for field in fields]}
        for name, fields in (("A", "x"), ("B", "xy"))
    )
    tree = {"type": "record", "name": "R", "fields": [{"name": "u", "type": [one, two]}]}
    assert (
        merged(schema_of_tree(tree), pa.struct([("u", pa.struct([("x", pa.int32()), ("y", pa.int32())]))]))
        is None
    )
    made = merged(schema_of_tree(tree), pa.struct([("u", pa.struct([("x", pa.int32()), ("z", pa.int32())]))]))
    assert [len(each["fields"]) for each in json.loads(made.data)["fields"][0]["type"]] == [2, 2]


def test_columns_that_do_not_fit_are_all_listed():
    with pytest.raises(SchemaError) as caught:
        merged(
            schema_of_tree(TOPICS),
            pa.struct([("z", pa.string()), ("new", pa.int32()), ("other", pa.int32())]),
        )
    assert caught.value.what == (
        "the rows do not fit the topic's schema: 'z' is string, but the topic has long; "
        "'address' is missing, and the topic's schema has no default for it; "
        "'other' is int, but the topic has record 'org.shop.Address'"
    )


def test_a_new_column_that_differs_in_case_only():
    with pytest.raises(SchemaError, match="'Z' differs from the topic's 'z' only in upper and lower case"):
        merged(schema_of_tree(TOPICS), fits_topic(("Z", pa.int64())))
    larger = pa.struct([("zip", pa.int32()), ("ZIP", pa.string())])
    with pytest.raises(
        SchemaError, match=r"'address\.ZIP' differs from the topic's 'zip' only in upper and lower case"
    ):
        merged(schema_of_tree(TOPICS), fits_topic(address=larger))
    both = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in "aA"]}
    rows = pa.struct([("a", pa.int32()), ("A", pa.int32())])
    assert merged(schema_of_tree(both), rows) is None


def test_new_columns_without_a_form():
    with pytest.raises(UnsupportedError, match="column 'new' is void"):
        merged(schema_of_tree(TOPICS), fits_topic(("new", pa.null())))
    with pytest.raises(OptionError, match="column 'a-b' has a name"):
        merged(schema_of_tree(TOPICS), fits_topic(("a-b", pa.int32())))
    larger = pa.struct([("zip", pa.int32()), ("a-b", pa.string())])
    with pytest.raises(OptionError, match=r"column 'address.a-b' has a name"):
        merged(schema_of_tree(TOPICS), fits_topic(address=larger))


def test_a_schema_that_is_no_record():
    with pytest.raises(SchemaError, match="is not a record"):
        merged(schema_of_tree("string"), pa.struct([("a", pa.string())]))
    with pytest.raises(SchemaError, match="is not JSON"):
        merged(Schema(SchemaType.AVRO, b"{"), pa.struct([("a", pa.string())]))
