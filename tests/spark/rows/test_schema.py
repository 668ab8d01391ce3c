"""Spark's schema and Arrow's are the same, in the order that is asked for."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.rows.schema import (
    DEFAULT_METADATA_COLUMNS,
    METADATA_COLUMNS,
    SOURCE_SCHEMA,
    RowColumns,
)
from pulsar_spark.spark.spark_api import arrow_schema


def test_the_default_columns():
    assert [(field.name, field.dataType) for field in SOURCE_SCHEMA.fields] == [
        ("value", BinaryType()),
        ("__key", BinaryType()),
        ("__topic", StringType()),
        ("__messageId", BinaryType()),
        ("__publishTime", TimestampType()),
        ("__eventTime", TimestampType()),
        ("__messageProperties", MapType(StringType(), StringType())),
    ]
    assert RowColumns(DEFAULT_METADATA_COLUMNS).schema == SOURCE_SCHEMA


@pytest.mark.parametrize("wanted", [(), ("__key",), ("__index", "__offset"), tuple(METADATA_COLUMNS)[::-1]])
def test_columns_come_in_the_order_that_is_asked_for(wanted):
    assert RowColumns(wanted).schema.names == ["value", *wanted]
    assert RowColumns(wanted).arrow_schema.equals(
        arrow_schema(RowColumns(wanted).schema), check_metadata=True
    )


def test_the_types_of_numbers():
    schema = RowColumns(("__partition", "__sequenceId", "__index")).schema
    assert [field.dataType for field in schema.fields[1:]] == [IntegerType(), LongType(), LongType()]


# ---- columns of payloads

RECORD = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("more", pa.map_(pa.string(), pa.struct([("x", pa.int8()), ("day", pa.date32())]))),
    ]
)
FLAT = RowColumns(("__key", "__topic"), RECORD, is_flat=True)
WHOLE = RowColumns(("__key", "__topic"), RECORD)


def test_the_fields_of_a_record_are_columns_before_those_of_metadata():
    assert FLAT.schema.simpleString() == (
        "struct<id:bigint,name:string,at:timestamp,local:timestamp_ntz,price:decimal(12,2),"
        "tags:array<string>,more:map<string,struct<x:tinyint,day:date>>,__key:binary,__topic:string>"
    )
    assert FLAT.has_fields
    assert FLAT.target == RECORD


def test_a_record_may_be_one_column():
    assert WHOLE.schema.names == ["value", "__key", "__topic"]
    assert WHOLE.schema["value"].dataType == StructType(FLAT.schema.fields[:7])
    assert WHOLE.target == RECORD


def test_what_has_no_fields_is_one_column():
    columns = RowColumns((), pa.int8(), is_flat=True)
    assert columns.schema.simpleString() == "struct<value:tinyint>"
    assert not columns.has_fields


@pytest.mark.parametrize("columns", [FLAT, WHOLE])
def test_arrow_types_of_payloads_go_through_spark_as_they_are(columns):
    whole = columns.arrow_schema
    fields = [whole.field(name).type for name in whole.names[:-2]]
    assert fields == ([each.type for each in RECORD] if columns.is_flat else [RECORD])
    assert all(field.nullable for field in whole)
    assert all(field.nullable for field in columns.schema.fields)


def test_names_that_two_columns_have():
    kind = pa.struct([("__key", pa.int8())])
    with pytest.raises(OptionError, match=r"the same name: __key.*valueFormat=struct, or fewer metadata"):
        _ = RowColumns(("__key",), kind, is_flat=True).schema
    assert RowColumns(("__key",), kind).schema.names == ["value", "__key"]
    assert RowColumns((), pa.struct([("a", pa.int8()), ("__key", pa.int8())]), is_flat=True).schema


def test_names_that_differ_only_by_case_are_columns():
    names = ["ab", "aB", "__TOPIC"]
    kind = pa.struct([(name, pa.int8()) for name in names])
    columns = RowColumns(("__topic",), kind, is_flat=True)
    assert columns.schema.names == columns.arrow_schema.names == [*names, "__topic"]
    assert columns.projected(ddl(aB=ByteType())).target == pa.struct([("aB", pa.int8())])
    both = columns.projected(ddl(aB=ByteType(), ab=ByteType()))
    assert both.target == pa.struct([("ab", pa.int8()), ("aB", pa.int8())])


# ---- projection


def ddl(**columns):
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def test_some_columns_in_any_order():
    wanted = ddl(__topic=StringType(), name=StringType(), id=LongType())
    columns = FLAT.projected(wanted)
    assert columns.schema == wanted
    assert columns.target == pa.struct([("id", pa.int64()), ("name", pa.string())])
    assert columns.has_fields
    assert list(columns.makers()) == ["__topic"]


def test_all_columns_are_no_projection():
    assert FLAT.projected(FLAT.schema) is FLAT
    assert RowColumns().projected(SOURCE_SCHEMA) == RowColumns()


def test_types_of_payloads_are_left_to_the_decoder():
    assert FLAT.projected(ddl(id=DoubleType())).target == pa.struct([("id", pa.float64())])
    inner = StructType().add("id", LongType())
    assert WHOLE.projected(ddl(value=inner)).target == pa.struct([("id", pa.int64())])


def test_payloads_are_read_whole_where_none_of_their_columns_are_wanted():
    assert FLAT.projected(ddl(__topic=StringType())).target == RECORD


def test_bytes_may_be_left_out_too():
    wanted = ddl(__topic=StringType(), __key=BinaryType())
    columns = RowColumns().projected(wanted)
    assert columns.schema == wanted
    assert columns.target is None


@pytest.mark.parametrize(
    ("columns", "wanted", "words"),
    [
        (FLAT, ddl(nope=StringType()), r"no column nope\. Its columns are id, name, .*__key, __topic"),
        (FLAT, ddl(ID=LongType()), r"no column ID\. Write it as id"),
        (WHOLE, ddl(value=ddl(Tags=LongType())), r"no column value\.Tags\. Write it as tags"),
        (FLAT, ddl(more=MapType(StringType(), ddl(Day=LongType()))), r"more\{\}\.Day\. Write it as day"),
        (FLAT, ddl(value=BinaryType()), "no column value"),
        (RowColumns(), ddl(id=LongType()), r"no column id\. Its columns are value.*set valueFormat=columns$"),
        (
            RowColumns(value_type=pa.binary(), is_flat=True),
            ddl(id=LongType()),
            r"no column id\. Its columns are value.*without a schema set schemaType and valueSchema$",
        ),
        (FLAT, ddl(__offset=StringType()), r"column __offset .* is not in metadataColumns\. Add it"),
        (FLAT, ddl(id=LongType(), __key=StringType()), r"column __key is binary, not string\. Cast"),
        (RowColumns(), ddl(value=StringType()), r"column value is binary, not string\. Cast it after"),
        (FLAT, StructType(), "has no columns"),
        (
            WHOLE,
            ddl(value=StructType().add("id", LongType()).add("id", LongType())),
            "has column value.id twice",
        ),
        (
            FLAT,
            StructType().add("id", LongType()).add("id", LongType()),
            r"\.schema\(\.\.\.\) has column id twice\. Write it once",
        ),
        (
            FLAT,
            StructType().add("id", LongType(), nullable=False),
            r"id is NOT NULL .*\. Leave NOT NULL out",
        ),
        (FLAT, ddl(tags=ArrayType(StringType(), containsNull=False)), "tags is NOT NULL"),
        (FLAT, ddl(more=MapType(StringType(), StringType(), valueContainsNull=False)), "more is NOT"),
        (
            WHOLE,
            ddl(value=StructType().add("tags", ArrayType(StructType().add("x", LongType(), nullable=False)))),
            "value is NOT NULL",
        ),
    ],
)
def test_a_projection_that_cannot_be(columns, wanted, words):
    with pytest.raises(OptionError, match=words):
        columns.projected(wanted)


def test_times_are_asked_for_with_six_digits():
    columns = RowColumns((), pa.struct([("t", pa.list_(pa.field("element", pa.int64())))]), is_flat=True)
    for digits in range(10) if hasattr(types, "TimeType") else ():  # Spark 4.0 does not have it
        wanted = ddl(t=ArrayType(types.TimeType(digits)))
        if digits == 6:
            assert columns.projected(wanted).target.field("t").type.value_type == pa.time64("ns")
            continue
        with pytest.raises(OptionError, match=rf"column t\[\] is time\({digits}\).*Write it as time\(6\)"):
            columns.projected(wanted)


def test_a_projection_may_leave_out_a_name_that_two_columns_have():
    kind = pa.struct([("__key", pa.int8()), ("a", pa.int8()), ("A", pa.int8())])
    columns = RowColumns(("__key",), kind, is_flat=True)
    assert columns.projected(ddl(A=ByteType())).target == pa.struct([("A", pa.int8())])
    with pytest.raises(OptionError, match="two columns have the same name: __key"):
        columns.projected(ddl(__key=BinaryType()))


def test_it_travels_to_tasks():
    columns = FLAT.projected(ddl(id=LongType()))
    assert pickle.loads(pickle.dumps(columns)) == columns
