"""Which columns are values of a schema, and the rows that are made of them."""

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from pulsar_spark.client import KeyValueEncoding, PartKind
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.rows.schema import ValueFormat
from pulsar_spark.spark.rows.write_values import (
    SinkValues,
    raw_value,
    to_binary,
    value_columns,
)
from pulsar_spark.spark.spark_api import HAS_READ_LIMITS
from tests.loops import for_each

# Times have the session's zone; Spark 4.0 and 4.1 have no argument for it here.
ZONE: dict[str, Any] = {"timezone": "America/Lima"} if HAS_READ_LIMITS else {}

UTC = datetime.timezone.utc
INT, LONG, TEXT, BINARY, VOID = IntegerType(), LongType(), StringType(), BinaryType(), NullType()
AVRO, JSON, PRIMITIVE = PartKind.AVRO, PartKind.JSON, PartKind.PRIMITIVE
COLUMNS, STRUCT = ValueFormat.COLUMNS, ValueFormat.STRUCT


def struct(**fields: DataType) -> StructType:
    made = StructType()
    for name, kind in fields.items():
        made = made.add(name, kind)
    return made


def columns(schema: StructType, kind: PartKind = AVRO, *key: str, **more: Any):
    return value_columns(
        schema.fields, SinkValues(**{"format": COLUMNS, "kind": kind, "key_columns": key, **more})
    )


def rows(
    schema: StructType, *given: dict, kind: PartKind = AVRO, key: tuple[str, ...] = (), **more: Any
) -> list[Any]:
    """The rows of a record batch as Spark hands it over."""
    arrow = to_arrow_schema(schema, **ZONE)
    made = columns(schema, kind, *key, **more)
    found = made.rows(pa.RecordBatch.from_pylist(list(given), arrow))
    assert found.type == made.type.arrow
    return found.to_pylist()


def test_all_columns_are_a_record():
    given = {"id": 1, "at": datetime.datetime(2020, 1, 1, tzinfo=UTC), "more": {"tags": ["a", None]}}
    more = struct(tags=ArrayType(TEXT))
    schema = StructType().add("id", LONG, nullable=False).add("at", TimestampType()).add("more", more)
    assert rows(schema, given, {"id": 2, "at": None, "more": None}) == [
        given,
        {"id": 2, "at": None, "more": None},
    ]
    made = columns(schema).type.value
    assert made.kind is PartKind.AVRO
    assert made.arrow.field("at").type == pa.timestamp("us", "UTC")
    assert [field.nullable for field in made.arrow] == [False, True, True]
    assert columns(schema, JSON).type.value.kind is PartKind.JSON


def test_a_record_is_never_null():
    assert rows(struct(a=INT, b=TEXT), {"a": None, "b": None}) == [{"a": None, "b": None}]


def test_one_struct_is_the_record_itself_and_null_where_it_is():
    record = struct(a=INT, b=TEXT)
    given = {"a": 1, "b": "x"}
    assert rows(struct(other=record), {"other": given}, {"other": None}, format=STRUCT) == [given, None]
    assert rows(struct(value=INT), {"value": 1}, format=STRUCT, kind=PRIMITIVE) == [1]
    assert rows(struct(value=record), {"value": given}) == [{"value": given}]
    assert rows(struct(value=INT), {"value": 1}) == [{"value": 1}]
    assert rows(struct(value=record, c=INT), {"value": given, "c": 2}) == [{"value": given, "c": 2}]


def test_one_column_is_a_primitive():
    assert rows(struct(n=INT), {"n": 7}, {"n": None}, kind=PRIMITIVE) == [7, None]
    assert columns(struct(n=INT), PRIMITIVE).type.value.kind is PartKind.PRIMITIVE


def test_key_columns_are_a_record_or_a_primitive():
    given = {"id": 1, "region": "eu", "a": 2, "b": 3}
    schema = struct(a=INT, id=LONG, b=INT, region=TEXT)
    (found,) = rows(schema, given, key=("region", "id"))
    assert found == {"key": {"region": "eu", "id": 1}, "value": {"a": 2, "b": 3}}
    (found,) = rows(schema, given, key=("id",), kind=JSON)
    assert found == {"key": 1, "value": {"a": 2, "b": 3, "region": "eu"}}
    made = columns(schema, JSON, "region", "id").type
    assert (made.key.kind, made.value.kind) == (PartKind.JSON, PartKind.JSON)
    assert columns(struct(id=INT, v=INT), PRIMITIVE, "id").type.key.kind is PartKind.PRIMITIVE
    assert columns(struct(a=INT, b=INT, v=INT), PRIMITIVE, "a", "b").type.key.kind is PartKind.AVRO


def test_keys_and_values_may_be_bytes():
    assert rows(struct(k=BINARY, v=BINARY), {"k": b"1", "v": b"2"}, kind=PRIMITIVE, key=("k",)) == [
        {"key": b"1", "value": b"2"}
    ]


def test_structs_are_keys_and_values_as_they_are():
    schema = struct(k=struct(id=INT), value=struct(a=INT))
    found = rows(schema, {"k": {"id": 1}, "value": {"a": 2}}, {"k": None, "value": None}, key=("k",))
    assert found == [{"key": {"id": 1}, "value": {"a": 2}}, {"key": None, "value": None}]


def test_one_struct_is_key_and_value():
    pair = struct(value=struct(value=struct(a=INT), key=TEXT))
    given = {"key": "k", "value": {"a": 1}}
    found = rows(
        pair, {"value": given}, {"value": {"key": "x", "value": None}}, {}, format=STRUCT, is_pair=True
    )
    assert found == [given, {"key": "x", "value": None}, {"key": None, "value": None}]


def test_the_users_encoding_is_kept():
    made = columns(struct(k=INT, v=INT), AVRO, "k", key_value_encoding=KeyValueEncoding.INLINE)
    assert made.type.encoding is KeyValueEncoding.INLINE


def test_large_types_and_slices():
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array(["x", "y", None], pa.large_string()),
            "b": pa.array([[b"1"], [b"2", None], None], pa.list_(pa.large_binary())),
        }
    )
    made = columns(struct(a=TEXT, b=ArrayType(BINARY)))
    found = made.rows(batch.slice(1))
    assert found.type == made.type.arrow
    assert found.to_pylist() == [{"a": "y", "b": [b"2", None]}, {"a": None, "b": None}]
    assert to_binary(batch.column("a")).equals(pa.array([b"x", b"y", None], pa.binary()))


TWICE = StructType().add("x", INT).add("x", INT)


@for_each(
    ("schema", "kind", "key", "text"),
    [
        (struct(), AVRO, (), "rows have no value"),
        (struct(k=INT), AVRO, ("k",), "rows have no value column. Add a column"),
        (struct(a=INT), AVRO, ("k", "a"), "no column k for the key of KEY_VALUE: their columns are a"),
        (struct(), AVRO, ("k",), "no column k for the key of KEY_VALUE: their columns are none. Set"),
        (struct(a=INT, b=INT), PRIMITIVE, (), "a primitive is one column, but the rows have 2: a, b"),
        (
            struct(a=DecimalType(9, 2)),
            PRIMITIVE,
            (),
            r"a is decimal\(9,2\), for which there is no primitive schema",
        ),
        (
            struct(a=ArrayType(INT)),
            PRIMITIVE,
            (),
            "a is array<int>, for which there is no primitive schema",
        ),
        (
            struct(a=BINARY),
            PRIMITIVE,
            (),
            "column a is written as binary, for which there is no schema. Set valueFormat=raw",
        ),
        (
            struct(k=ArrayType(INT), a=INT),
            AVRO,
            ("k",),
            "column k is array<int>, for which there is no primitive",
        ),
        (
            struct(a=YearMonthIntervalType()),
            AVRO,
            (),
            "a is interval year to month, and there is no schema for",
        ),
        (
            struct(a=DayTimeIntervalType()),
            AVRO,
            (),
            "a is interval day to second, and there is no schema for this type",
        ),
        (struct(a=VariantType()), AVRO, (), "column a is variant, and there is no schema for this type"),
        (
            struct(a=VariantType()),
            JSON,
            (),
            "column a is variant, and there is no schema for this type. Cast it, or leave it out",
        ),
        (struct(a=ArrayType(struct(b=VariantType()))), AVRO, (), r"column a\[\]\.b is variant"),
        (struct(a=MapType(INT, INT)), AVRO, (), "column a is map<int,int>, and keys of maps must be strings"),
        (struct(a=MapType(TEXT, VariantType())), AVRO, (), r"column a\{\} is variant"),
        (struct(k=VOID, a=INT), AVRO, ("k",), "column k is void"),
        (struct(s=struct()), AVRO, (), "column s is a struct without fields"),
        (struct(s=TWICE), AVRO, (), "column s has two fields with the same name: x, x"),
    ],
)
def test_bad_shapes(schema, kind, key, text):
    with pytest.raises(OptionError, match=text):
        columns(schema, kind, *key)


@for_each(
    ("schema", "more", "text"),
    [
        (struct(a=INT, b=INT), {}, "value is one column with valueFormat=struct, but the rows have 2: a, b"),
        (struct(value=INT), {}, "column value is int, but the value is a record.*schemaType=primitive"),
        (struct(a=INT, b=INT), {"is_pair": True}, "value is one column with valueFormat=struct"),
        (struct(value=struct(key=INT)), {"is_pair": True}, "schema is KEY_VALUE.*struct of key and value"),
    ],
)
def test_bad_shapes_of_one_struct(schema, more, text):
    with pytest.raises(OptionError, match=text):
        columns(schema, format=STRUCT, **more)


def test_bytes_are_one_column():
    assert raw_value(struct(any=TEXT).fields) == "any"
    with pytest.raises(
        OptionError, match=r"the rows have 2: a, b\. Set valueFormat=columns, or combine them"
    ):
        raw_value(struct(a=TEXT, b=TEXT).fields)
