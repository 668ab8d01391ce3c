"""What Spark writes by a schema Java, C++ and fastavro read, and so does Spark."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from pulsar.schema import AvroSchema, JsonSchema

from integration.helpers import cpp_values
from integration.helpers.java_values import (
    AUTO_CONSUME,
    JavaSchema,
    JavaValues,
    as_json,
    read_values,
    write_values,
)
from integration.helpers.payloads import avro_value, definition_of, register
from integration.helpers.typed_values import ORDER, ORDER_COLUMNS, ORDERS, at
from integration.schemas.test_peers import TYPED, check, texts

# Each type of Spark's that a record can have.
COLUMNS = (
    "flag boolean,byte tinyint,tiny smallint,number int,large bigint,small float,wide double,text string,"
    "raw binary,day date,at timestamp,local timestamp_ntz,price decimal(38,6),words array<string>,"
    "counts map<string,bigint>,part struct<name:string,codes:array<int>>,"
    "parts array<struct<name:string,at:timestamp>>,"
    "named map<string,struct<price:decimal(5,2)>>"
)
# What Avro has no type for comes back as int.
READ_COLUMNS = COLUMNS.replace("tinyint", "int").replace("smallint", "int")
ROW: dict[str, Any] = {
    "flag": True,
    "byte": -128,
    "tiny": -32768,
    "number": 2**31 - 1,
    "large": -(2**63),
    "small": 1.5,
    "wide": 0.1,
    "text": 'a "b"\\\n\u00e9\U0001f600',
    "raw": b"\x00\xff",
    "day": datetime.date(1969, 12, 31),
    "at": at("1969-12-31T23:59:59.999999"),
    "local": datetime.datetime(2023, 11, 14, 1, 2, 3, 4),
    "price": Decimal("-12345678901234567890123456789012.345678"),
    "words": ["", None, "two"],
    "counts": {"a": 1, "": None},
    "part": {"name": None, "codes": [1, -1]},
    "parts": [{"name": "", "at": at("2023-11-14T22:13:20.123456")}, None],
    "named": {"first": {"price": Decimal("-999.99")}, "none": {"price": None}},
}
EMPTY: dict[str, Any] = dict.fromkeys(ROW) | {
    "text": "",
    "raw": b"",
    "price": Decimal("0.000000"),
    "words": [],
    "counts": {},
    "part": {"name": "", "codes": []},
    "parts": [],
    "named": {},
}
NULLS: dict[str, Any] = dict.fromkeys(ROW)
ROWS = [ROW, NULLS, EMPTY, ROW]


def frame(pulsar_in_spark, columns, rows):
    return pulsar_in_spark.rows([tuple(row.values()) for row in rows], columns)


def in_java(cluster, topic, schema=AUTO_CONSUME):
    return [value for _, value in read_values(cluster.service_url, {topic: schema})[topic]]


def test_peers_read_avro(pulsar_in_spark, cluster, peer, admin, topic):
    pulsar_in_spark.write(frame(pulsar_in_spark, COLUMNS, ROWS), topic, valueFormat="columns")
    expected = texts(ROWS)
    definition = definition_of(admin, topic)
    assert texts(in_java(cluster, topic)) == expected
    assert texts(cpp_values.read(peer, topic, AvroSchema(None, definition))) == expected
    payloads = [record.value or b"" for record in peer.read_all(topic)]
    assert texts([avro_value(definition, payload) for payload in payloads]) == expected
    check(pulsar_in_spark.read(topic, **TYPED), READ_COLUMNS, ROWS)


def test_a_cpp_class_reads_json(pulsar_in_spark, peer, topic):
    """The topic has the schema of the class: the broker refuses readers with another one."""
    schema = JsonSchema(cpp_values.Order)
    cpp_values.produce(peer, topic, schema, [])
    rows = frame(pulsar_in_spark, cpp_values.ORDER_COLUMNS, cpp_values.ORDERS)
    pulsar_in_spark.write(
        rows, topic, valueFormat="columns", schemaType="json", schemaRegistration="existing"
    )
    assert cpp_values.read(peer, topic, schema) == [cpp_values.order(values) for values in cpp_values.ORDERS]


def test_spark_reads_its_json(pulsar_in_spark, topic):
    pulsar_in_spark.write(
        frame(pulsar_in_spark, COLUMNS, ROWS), topic, valueFormat="columns", schemaType="json"
    )
    check(pulsar_in_spark.read(topic, **TYPED), READ_COLUMNS, ROWS)


@pytest.mark.parametrize("kind", ["AVRO", pytest.param("JSON", marks=pytest.mark.long)])
def test_a_java_class_reads_what_spark_writes_by_its_schema(pulsar_in_spark, cluster, topic, kind):
    """The topic has the schema of a Java class: enums, Java's own types of texts and numbers, times."""
    schema = {"type": kind, "class": ORDER}
    write_values(cluster.service_url, [JavaValues(topic, schema, [])])
    # JSON has no number for NaN and infinity: the sink refuses them.
    finite = {"small": 0.25, "wide": -0.25} if kind == "JSON" else {}
    orders = [row | finite for row in ORDERS if row is not None]
    rows = frame(pulsar_in_spark, ORDER_COLUMNS, orders)
    pulsar_in_spark.write(rows, topic, valueFormat="columns", schemaRegistration="existing")
    found = read_values(cluster.service_url, {topic: schema})[topic]
    assert [version for version, _ in found] == [0] * len(orders)
    assert texts([value for _, value in found]) == texts(orders)


def test_a_class_with_required_fields_shares_a_topic(pulsar_in_spark, cluster, admin, topic):
    """A copy of its topic has its own schema; one that is made of columns has none of its required fields."""
    schema: JavaSchema = {"type": "AVRO", "class": ORDER}
    own, copy = f"{topic}-own", f"{topic}-copy"
    orders = [row for row in ORDERS if row is not None]
    write_values(cluster.service_url, [JavaValues(topic, schema, orders)])
    rows = pulsar_in_spark.read(topic, **TYPED)
    pulsar_in_spark.write(rows, own, valueFormat="columns")
    with pytest.raises(AssertionError, match="IncompatibleSchema"):
        write_values(cluster.service_url, [JavaValues(own, schema, orders)])
    given = json.dumps(definition_of(admin, topic))
    pulsar_in_spark.write(rows, copy, valueFormat="columns", valueSchema=given)
    write_values(cluster.service_url, [JavaValues(copy, schema, orders)])
    found = read_values(cluster.service_url, {copy: schema})[copy]
    assert {version for version, _ in found} == {0}
    assert texts([value for _, value in found]) == texts(orders * 2)


@pytest.mark.parametrize(("unit", "factor"), [("millis", 1), ("micros", 1000)])
def test_a_java_class_of_numbers_reads_times(pulsar_in_spark, cluster, admin, topic, unit, factor):
    """Java's client did not make the schema, so no class of times is behind it."""
    kinds = {
        "at": {"type": "long", "logicalType": f"timestamp-{unit}"},
        "local": ["null", {"type": "long", "logicalType": f"local-timestamp-{unit}"}],
        "day": {"type": "int", "logicalType": "date"},
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    register(
        admin,
        topic,
        "JSON",
        {"type": "record", "name": "Times", "namespace": "TypedPeer", "fields": fields},
    )
    rows = [
        {"at": at("2023-11-14T22:13:20.123"), "local": None, "day": datetime.date(2023, 11, 14)},
        {
            "at": at("1969-12-31T23:59:59.999"),
            "local": datetime.datetime(1970, 1, 1, 0, 0, 1),
            "day": datetime.date(1969, 12, 31),
        },
    ]
    columns = "at timestamp,local timestamp_ntz,day date"
    pulsar_in_spark.write(frame(pulsar_in_spark, columns, rows), topic, valueFormat="columns")
    check(pulsar_in_spark.read(topic, **TYPED), columns, rows)
    assert in_java(cluster, topic, {"type": "JSON", "class": "TypedPeer$Times"}) == [
        {"at": 1_700_000_000_123 * factor, "local": None, "day": 19675},
        {"at": -factor, "local": 1000 * factor, "day": -1},
    ]


PRIMITIVES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-32768, 32767],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "float": [1.5, -0.0, float("inf"), float("nan")],
    "double": [0.1, -0.0, float("-inf"), float("nan")],
    "string": ["", "\u00e9\U0001f600"],
    "date": [datetime.date(1969, 12, 31), datetime.date(2023, 11, 14)],
    "timestamp": [at("1969-12-31T23:59:59.999999"), at("2023-11-14T22:13:20.123456")],
    "timestamp_ntz": [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)],
}


@pytest.mark.long
def test_java_reads_primitives(pulsar_in_spark, cluster, topic):
    topics = {f"{topic}-{name}": name for name in PRIMITIVES}
    for each, name in topics.items():
        rows = [{"value": value} for value in PRIMITIVES[name]]
        pulsar_in_spark.write(
            frame(pulsar_in_spark, f"value {name}", rows), each, valueFormat="columns", schemaType="primitive"
        )
        check(pulsar_in_spark.read(each, **TYPED), f"value {name}", rows)
    found = read_values(cluster.service_url, dict.fromkeys(topics, AUTO_CONSUME))
    assert {topics[each]: texts([value for _, value in values]) for each, values in found.items()} == {
        name: texts(values) for name, values in PRIMITIVES.items()
    }


TEXTS = {
    "UTF-16": "tea \u2603 \U0001f600",
    "UTF-16BE": "\ufefftea",
    "UTF-32": "\U0001f600",
    "ISO-8859-1": "t\u00e9",
    "windows-1252": "\u20ac",
    "US-ASCII": "tea",
}


def test_java_and_spark_read_text_of_each_other_by_its_charset(pulsar_in_spark, cluster, topic):
    schemas: dict[str, JavaSchema] = {}
    for name in TEXTS:
        part: JavaSchema = {"type": "STRING", "charset": name}
        schemas[f"{topic}-{name}"] = part
        schemas[f"{topic}-{name}-pair"] = {
            "type": "KEY_VALUE",
            "encoding": "INLINE" if "UTF" in name else "SEPARATED",
            "key": part,
            "value": part,
        }
    rows: dict[str, list[dict[str, str]]] = {}
    for each in schemas:
        text = TEXTS[each.removeprefix(f"{topic}-").removesuffix("-pair")]
        names = ("key", "value") if each.endswith("pair") else ("value",)
        rows[each] = [dict.fromkeys(names, text), dict.fromkeys(names, text[:1])]
    in_java = {
        each: some if each.endswith("pair") else [row["value"] for row in some] for each, some in rows.items()
    }
    tasks = [JavaValues(each, schema, in_java[each]) for each, schema in schemas.items()]
    write_values(cluster.service_url, tasks)
    for each, some in rows.items():
        columns = ",".join(f"{name} string" for name in some[0])
        check(pulsar_in_spark.read(each, **TYPED), columns, some)
        pulsar_in_spark.write(frame(pulsar_in_spark, columns, some), each, valueFormat="columns")
    found = read_values(cluster.service_url, schemas)
    assert {each: [value for _, value in values] for each, values in found.items()} == {
        each: values * 2 for each, values in in_java.items()
    }


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("json", "SEPARATED"),
        pytest.param("avro", "INLINE", marks=pytest.mark.long),
        pytest.param("avro", "SEPARATED", marks=pytest.mark.long),
        pytest.param("json", "INLINE", marks=pytest.mark.long),
    ],
)
def test_java_reads_key_and_value(pulsar_in_spark, cluster, topic, kind, encoding):
    rows = [{"id": number, "region": "eu", "name": f"n{number}"} for number in range(3)]
    pulsar_in_spark.write(
        frame(pulsar_in_spark, "id int,region string,name string", rows),
        topic,
        valueFormat="columns",
        schemaType=kind,
        keyColumns="id,region",
        keyValueEncoding=encoding,
    )
    expected = [{"key": {"id": row["id"], "region": "eu"}, "value": {"name": row["name"]}} for row in rows]
    assert texts(in_java(cluster, topic)) == texts(expected)
    columns = "key struct<id:int,region:string>,value struct<name:string>"
    check(pulsar_in_spark.read(topic, **TYPED), columns, expected)


def test_java_reads_both_versions_of_a_schema_that_grew(pulsar_in_spark, cluster, topic):
    """Two writes under the namespace's default strategy; the second has one more nullable column."""
    first = frame(pulsar_in_spark, "id bigint,item string", [{"id": 1, "item": "a"}])
    second = frame(
        pulsar_in_spark, "id bigint,item string,note string", [{"id": 2, "item": "b", "note": "c"}]
    )
    for rows in (first, second, second):
        pulsar_in_spark.write(rows, topic, valueFormat="columns")
    last = (1, as_json({"id": 2, "item": "b", "note": "c"}))
    assert read_values(cluster.service_url, {topic: AUTO_CONSUME})[topic] == [
        (0, {"id": 1, "item": "a"}),
        last,
        last,
    ]
