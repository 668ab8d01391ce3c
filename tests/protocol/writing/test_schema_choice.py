"""The table of choose_schema, line by line."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from pulsar_spark.errors import OptionError, SchemaError, UnsupportedError
from pulsar_spark.protocol.writing.schema_choice import (
    KeyValueEncoding,
    PartKind,
    PartType,
    RowType,
    SchemaChoice,
    choose_schema,
    kind_of_values,
)
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import formats
from pulsar_spark.values.key_value import KeyValueParts, parts_of
from pulsar_spark.values.key_value import schema_of as key_value_schema
from tests.loops import for_each

TEXT, INT = pa.string(), pa.int32()
UTC = pa.timestamp("us", "UTC")


def record(*fields: object, kind: SchemaType = SchemaType.AVRO) -> Schema:
    definition = {"type": "record", "name": "Theirs", "fields": fields}
    return Schema(kind, json.dumps(definition).encode(), {"made": "by them"})


def field(name: str, kind: object = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def avro(**columns: pa.DataType) -> PartType:
    return PartType(PartKind.AVRO, pa.struct(list(columns.items())))


def primitive(kind: pa.DataType) -> PartType:
    return PartType(PartKind.PRIMITIVE, kind)


def names(schema: Schema) -> list[str]:
    return [each["name"] for each in json.loads(schema.data)["fields"]]


AB = RowType(avro(a=INT, b=TEXT))
NOTE = field("note", ["null", "string"], default=None)


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_a_topic_without_a_schema_gets_the_rows_own(kind):
    value = replace(AB.value, kind=PartKind(kind.name.lower()))
    schema, is_new = choose_schema(None, RowType(value), may_register=True)
    assert is_new
    assert schema.type is kind
    assert names(schema) == ["a", "b"]


def test_a_topic_without_a_schema_is_an_error_where_nothing_may_be_registered():
    with pytest.raises(SchemaError, match="the topic has no schema, but schemaRegistration is existing"):
        choose_schema(None, AB, may_register=False)


@pytest.mark.parametrize("may_register", [True, False])
@pytest.mark.parametrize(
    "existing",
    [
        record(field("a"), field("b", "string")),
        record(field("b", "string"), NOTE, field("a", "double")),
        record(field("c", "int", default=7), field("a", ["null", "long"]), field("b", ["string", "null"])),
    ],
)
def test_rows_that_fit_are_written_by_the_topics_schema(existing, may_register):
    assert choose_schema(existing, AB, may_register=may_register) == SchemaChoice(existing, False)


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_a_column_with_the_old_name_of_a_field_is_that_field(kind):
    renamed = field("b", ["null", "string"], default=None, aliases=["z", "old"])
    existing = record(field("a"), renamed, field("z"), kind=kind)
    part = PartType(PartKind(kind.name.lower()), pa.struct([("a", INT), ("old", TEXT), ("z", INT)]))
    assert choose_schema(existing, RowType(part), may_register=True) == (existing, False)
    rows = pa.array([{"a": 1, "old": "x", "z": 2}], part.arrow)
    decoder = formats.decoder(existing, existing, formats.column_type(existing))
    payloads = formats.encoder(existing, part.arrow)(rows).values
    found = decoder.decode(payloads, pa.nulls(1, pa.binary()))
    assert found.column.to_pylist() == [{"a": 1, "b": "x", "z": 2}]
    both = PartType(part.kind, pa.struct([("a", INT), ("b", TEXT), ("old", TEXT), ("z", INT)]))
    with pytest.raises(SchemaError, match="'old' and another column are the topic's 'b'"):
        choose_schema(existing, RowType(both), may_register=True)


def test_columns_without_a_field_become_fields_behind_the_others():
    existing = record(field("b", "string"), NOTE)
    schema, is_new = choose_schema(existing, AB, may_register=True)
    assert is_new
    assert names(schema) == ["b", "note", "a"]
    assert (schema.type, schema.properties) == (existing.type, existing.properties)
    assert json.loads(schema.data)["fields"][2] == field("a", ["null", "int"], default=None)
    assert choose_schema(schema, AB, may_register=True) == SchemaChoice(schema, False)
    with pytest.raises(
        SchemaError, match=r"'a' has no field in the topic's schema; with schemaRegistration=exi"
    ):
        choose_schema(existing, AB, may_register=False)


# What no new field helps.
MISFITS = {
    "another type": (record(field("a", "string"), field("b", "string")), AB, "'a' is int, but the topic has"),
    "a field without a default": (
        record(field("c")),
        AB,
        "'c' is missing, and the topic's schema has no def",
    ),
    "a schema that is no record": (Schema(SchemaType.AVRO, b'"int"'), AB, "."),
    "no Avro": (Schema(SchemaType.AVRO, b"{"), AB, "the topic's schema is not JSON"),
    "a primitive": (Schema(SchemaType.STRING), AB, "the topic's schema is STRING, but rows are records"),
    "no primitive": (record(), RowType(primitive(INT)), "is int, but the topic has record"),
    "a primitive of another type": (
        Schema(SchemaType.STRING),
        RowType(primitive(INT)),
        "type int cannot be wri",
    ),
    "no key": (record(), replace(AB, key=primitive(INT)), "schema is AVRO, but keyColumns is set"),
    "a key": (
        key_value_schema(KeyValueParts(Schema(SchemaType.INT32), record(), True)),
        AB,
        "is KEY_VALUE, but rows are records",
    ),
}


@for_each("may_register", [True, False])
@for_each(("existing", "rows", "text"), MISFITS.values())
def test_rows_that_no_schema_fits(existing, rows, text, may_register):
    with pytest.raises(SchemaError, match=text):
        choose_schema(existing, rows, may_register=may_register)


# ---- a schema of the user's

GIVEN = record(field("a"), field("b", "string"), field("c", default=7))


def given(schema: Schema, key: Schema | None = None) -> RowType:
    value = replace(AB.value, given=schema)
    return RowType(value, None if key is None else replace(primitive(INT), given=key))


@pytest.mark.parametrize("may_register", [True, False])
def test_the_users_schema_is_registered_as_it_is_where_the_topic_has_none(may_register):
    pair = given(GIVEN, Schema(SchemaType.INT32))
    if not may_register:
        with pytest.raises(SchemaError, match="schemaRegistration is existing"):
            choose_schema(None, given(GIVEN), may_register=False)
        return
    assert choose_schema(None, given(GIVEN), may_register=True) == SchemaChoice(GIVEN, True)
    chosen = choose_schema(None, pair, may_register=True).schema
    assert parts_of(chosen) == (Schema(SchemaType.INT32), GIVEN, True)


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_a_topics_schema_that_the_users_reads_is_used(kind):
    existing = record(field("a"), field("b", "string"), kind=kind)
    assert choose_schema(existing, given(GIVEN), may_register=True) == SchemaChoice(existing, False)
    old = record(field("a"), kind=kind)
    wider = record(field("a"), field("b", "string", default=""))
    chosen = choose_schema(old, given(replace(wider, properties={})), may_register=True)
    assert chosen == SchemaChoice(replace(old, data=wider.data), True)
    assert chosen.schema.properties == old.properties
    with pytest.raises(SchemaError, match="with schemaRegistration=existing no new version"):
        choose_schema(old, given(wider), may_register=False)


@for_each(
    ("existing", "schema", "text"),
    [
        (None, record(field("a")), "do not fit valueSchema or keySchema: 'b' has no field in valueSchema"),
        (record(field("a"), field("b", "string")), record(field("x")), "'a' has no field in valueSchema"),
        (record(field("a", "string")), GIVEN, "topic's schema does not resolve to valueSchema"),
    ],
)
def test_a_schema_of_the_users_that_does_not_fit(existing, schema, text):
    with pytest.raises(SchemaError, match=text):
        choose_schema(existing, given(schema), may_register=True)


def nested(depth: int) -> pa.DataType:
    kind: pa.DataType = INT
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    return kind


TOO_LARGE = [
    (pa.struct([(f"c{number}", INT) for number in range(3_500)]), "more than 10000 types"),
    (nested(26), "nested too deeply"),
    (pa.struct([("x" * 1_500, INT)]), "more than 1000 characters"),
]


@pytest.mark.parametrize(("columns", "words"), TOO_LARGE, ids=["wide", "deep", "long"])
@pytest.mark.parametrize("kind", [PartKind.AVRO, PartKind.JSON])
@pytest.mark.parametrize("existing", [None, record(field("a", ["null", "int"], default=None))])
def test_what_could_not_be_read_is_not_registered(columns, words, kind, existing):
    if existing is not None:
        existing = replace(existing, type=SchemaType[kind.name])
        columns = pa.struct([pa.field("new", columns)])
    for rows in (
        RowType(PartType(kind, columns)),
        RowType(PartType(kind, columns), primitive(TEXT)),
        RowType(primitive(TEXT), PartType(kind, columns)),
    ):
        if existing is None or rows.key is None:
            with pytest.raises(UnsupportedError, match=f"schema is not registered, because .*{words}"):
                choose_schema(existing, rows, may_register=True)


def test_a_row_of_any_type_is_written_and_read_before_its_schema_is_registered():
    items = pa.list_(pa.field("element", pa.struct([("x", TEXT)]), nullable=False))
    maps = pa.map_(TEXT, pa.field("value", pa.decimal128(9, 2), nullable=False))
    leaves = (pa.bool_(), pa.int8(), INT, pa.int64(), pa.float32(), pa.float64(), TEXT, pa.binary())
    times = (pa.date32(), UTC, pa.timestamp("us"), pa.decimal128(38, 38), items, maps)
    fields = [pa.field(f"f{number}", each, nullable=False) for number, each in enumerate(leaves + times)]
    for kind in (PartKind.AVRO, PartKind.JSON):
        assert choose_schema(None, RowType(PartType(kind, pa.struct(fields))), may_register=True).is_new


def test_a_schema_whose_own_values_are_bad_is_not_registered(monkeypatch):
    """As they, or their keys, would be by a fault of the encoder."""
    three = record(field("a"), field("b"), field("c"))
    keyed = key_value_schema(KeyValueParts(three, Schema(SchemaType.INT32), True))
    decoder = formats.decoder
    for other, rows in ((three, RowType(avro(a=INT))), (keyed, RowType(primitive(INT), avro(a=INT)))):
        read = decoder(other, other, formats.column_type(other))
        monkeypatch.setattr(formats, "decoder", lambda *_, read=read: read)
        with pytest.raises(UnsupportedError, match=r"its values could not be read: \w+"):
            choose_schema(None, rows, may_register=True)


@for_each(
    ("schema", "kind"),
    [
        (record(), PartKind.AVRO),
        (record(kind=SchemaType.JSON), PartKind.JSON),
        (Schema(SchemaType.INT8), PartKind.PRIMITIVE),
        (key_value_schema(KeyValueParts(record(), Schema(SchemaType.INT8), True)), PartKind.PRIMITIVE),
    ],
)
def test_the_kind_of_a_schema_s_values(schema, kind):
    assert kind_of_values(schema) is kind


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 3}
CHAR = {"type": "int", "java-class": "java.lang.Character"}
ANY = {"type": "record", "name": "Any", "fields": []}
MEMBERS = pa.struct([("member0", INT), ("member1", TEXT)])
PICKY = [
    ("AVRO JSON", ENUM, TEXT),
    ("AVRO JSON", FIXED, pa.binary()),
    ("AVRO JSON", {**FIXED, "logicalType": "decimal", "precision": 4}, pa.decimal128(4, 0)),
    ("AVRO JSON", ["int", "string"], MEMBERS),
    ("AVRO JSON", ["null", "int", ENUM], MEMBERS),
    ("JSON", CHAR, TEXT),
    ("JSON", ANY, TEXT),
    ("JSON", {"type": "bytes", "logicalType": "decimal", "precision": 50}, TEXT),
    ("JSON", {"type": "int", "logicalType": "time-millis"}, INT),
]


@for_each(("kinds", "theirs", "column"), PICKY)
def test_a_field_that_takes_few_values_does_not_keep_new_columns_out(kinds, theirs, column):
    inner = {"type": "record", "name": "Inner", "fields": [field("x", theirs)]}
    nested = pa.struct([("x", column)])
    for name in kinds.split():
        for kind, wrapped in (
            (theirs, column),
            (inner, nested),
            ({"type": "array", "items": theirs}, pa.list_(column)),
            ({"type": "map", "values": inner}, pa.map_(TEXT, nested)),
        ):
            existing = record(field("a", kind), kind=SchemaType[name])
            part = PartType(PartKind[name], pa.struct([("new", INT), ("a", wrapped)]))
            assert names(choose_schema(existing, RowType(part), may_register=True).schema) == ["a", "new"]
            pair = key_value_schema(KeyValueParts(Schema(SchemaType.STRING), existing, is_separated=True))
            assert choose_schema(pair, RowType(part, primitive(TEXT)), may_register=True).is_new


def test_a_fixed_of_gigabytes_takes_no_memory():
    existing = record(field("a", {**FIXED, "size": 2**31 - 1}))
    with pytest.raises(UnsupportedError, match="does not have the 2147483647 bytes"):
        choose_schema(existing, RowType(avro(a=pa.binary(), new=INT)), may_register=True)


def test_what_cannot_be_written_is_unsupported():
    with pytest.raises(UnsupportedError, match="values of a PROTOBUF_NATIVE schema are not written"):
        kind_of_values(Schema(SchemaType.PROTOBUF_NATIVE))
    skipped = replace(record(field("a"), field("b", "string")), properties={"__AVRO_READ_OFFSET__": "5"})
    with pytest.raises(UnsupportedError):
        choose_schema(skipped, AB, may_register=True)


def test_a_name_that_avro_does_not_allow_is_an_error_only_where_it_is_registered():
    odd = RowType(avro(**{"a-b": INT}))
    for existing in (None, record()):
        with pytest.raises(OptionError, match="'a-b' has a name that Avro does not allow"):
            choose_schema(existing, odd, may_register=True)
    theirs = record(field("a-b"))
    assert choose_schema(theirs, odd, may_register=True) == SchemaChoice(theirs, False)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.bool_(), SchemaType.BOOL),
        (pa.int8(), SchemaType.INT8),
        (pa.int16(), SchemaType.INT16),
        (INT, SchemaType.INT32),
        (pa.int64(), SchemaType.INT64),
        (pa.float32(), SchemaType.FLOAT),
        (pa.float64(), SchemaType.DOUBLE),
        (TEXT, SchemaType.STRING),
        (pa.date32(), SchemaType.LOCAL_DATE),
        (UTC, SchemaType.INSTANT),
        (pa.timestamp("us"), SchemaType.LOCAL_DATE_TIME),
        (pa.time64("ns"), SchemaType.LOCAL_TIME),
    ],
)
def test_primitives(kind, expected):
    chosen = choose_schema(None, RowType(primitive(kind)), may_register=True)
    assert chosen == SchemaChoice(Schema(expected), True)
    assert choose_schema(chosen.schema, RowType(primitive(kind)), may_register=False) == (
        chosen.schema,
        False,
    )


def test_a_topics_primitive_is_kept_where_it_holds_the_values():
    for existing, kind in ((SchemaType.TIMESTAMP, UTC), (SchemaType.INT64, INT), (SchemaType.DATE, UTC)):
        chosen = choose_schema(Schema(existing), RowType(primitive(kind)), may_register=True)
        assert chosen == SchemaChoice(Schema(existing), False)


KEYED = RowType(avro(n=INT), primitive(TEXT))


def test_a_key_and_a_value():
    for encoding, is_separated in (
        (None, True),
        (KeyValueEncoding.SEPARATED, True),
        (KeyValueEncoding.INLINE, False),
    ):
        schema, is_new = choose_schema(None, replace(KEYED, encoding=encoding), may_register=True)
        assert is_new
        parts = parts_of(schema)
        assert (parts.key.type, parts.value.type, parts.is_separated) == (
            SchemaType.STRING,
            SchemaType.AVRO,
            is_separated,
        )
        for same in (None, encoding):
            rows = replace(KEYED, encoding=same)
            assert choose_schema(schema, rows, may_register=False) == SchemaChoice(schema, False)


def test_the_place_of_the_key_is_the_topics():
    for own, other in (KeyValueEncoding, reversed(KeyValueEncoding)):
        schema, _ = choose_schema(None, replace(KEYED, encoding=own), may_register=True)
        with pytest.raises(
            SchemaError, match=f"schema is {own.value}, but keyValueEncoding is {other.value}"
        ):
            choose_schema(schema, replace(KEYED, encoding=other), may_register=True)


@for_each("is_separated", [True, False])
def test_each_part_keeps_its_own_schema_and_may_get_fields(is_separated):
    key, value = record(field("k")), record(field("n", "long"))
    existing = key_value_schema(KeyValueParts(key, value, is_separated))
    rows = RowType(avro(n=INT), avro(k=INT))
    assert choose_schema(existing, rows, may_register=False) == SchemaChoice(existing, False)
    more = RowType(avro(n=INT, more=TEXT), avro(k=INT))
    with pytest.raises(SchemaError, match="'more' has no field"):
        choose_schema(existing, more, may_register=False)
    schema, is_new = choose_schema(existing, more, may_register=True)
    assert is_new
    new = parts_of(schema)
    assert (new.key.data, new.is_separated) == (key.data, is_separated)
    assert names(new.value) == ["n", "more"]
    more_keys = RowType(avro(n=INT), avro(k=INT, l=TEXT))
    new = parts_of(choose_schema(existing, more_keys, may_register=True).schema)
    assert (names(new.key), new.value.data) == (["k", "l"], value.data)
    with pytest.raises(SchemaError, match="is int, but the topic has record"):
        choose_schema(existing, RowType(avro(n=INT), primitive(INT)), may_register=True)


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_values_and_keys_of_a_given_schema_that_is_no_record(kind):
    """It is registered once, and the next micro-batch writes by it."""
    given, arrow = Schema(kind, b'"long"'), pa.int64()
    value = replace(avro(value=arrow), kind=PartKind(kind.name.lower()), given=given)
    for rows in (RowType(value), RowType(avro(n=INT), replace(primitive(arrow), given=given))):
        registered = choose_schema(None, rows, may_register=True)
        assert registered.is_new
        assert choose_schema(registered.schema, rows, may_register=False) == (registered.schema, False)


def test_rows_as_encoders_take_them():
    assert AB.arrow == AB.value.arrow
    assert KEYED.arrow == pa.struct([("key", TEXT), ("value", pa.struct([("n", INT)]))])
