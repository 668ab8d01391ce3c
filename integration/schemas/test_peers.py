"""Java, C++ and fastavro write values of every kind of schema; Spark shows them, in batches and streams."""

import base64
import json
import uuid
from typing import Any

import pytest
from pulsar.schema import AvroSchema, JsonSchema
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from integration.docs import ROOT, blocks
from integration.fixtures.spark import Collector, drain
from integration.helpers import cpp_values
from integration.helpers.java_values import JavaValues, as_json, write_values
from integration.helpers.payloads import avro, definition_of, register, register_pair, write_payloads
from integration.helpers.typed_values import ALL, MESSAGES

PAGE = ROOT / "docs" / "schemas.md"
TYPED = {"valueFormat": "columns", "metadataColumns": ""}


def rows_of(rows):
    """Times have zones, unlike in collect()."""
    found: list[dict[str, Any]] = rows.toArrow().to_pylist(maps_as_pydicts="strict")
    return found


def texts(values):
    """Values that can be compared: -0.0 is not 0.0, and NaN is itself."""
    return [json.dumps(as_json(value), sort_keys=True) for value in values]


def check(rows, columns, expected):
    """Rows are those expected, in order, and their columns have these types; None is a row of nulls."""
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    assert rows.schema == schema
    nulls = dict.fromkeys(schema.names)
    assert texts(rows_of(rows)) == texts([nulls if row is None else row for row in expected])


# ---- Java


@pytest.fixture(scope="module")
def java_topics(cluster):
    """Topics that the Java client wrote, by the name of the kind; every second one in batches."""
    prefix = f"persistent://public/default/java-{uuid.uuid4().hex[:8]}"
    topics = {kind.name: f"{prefix}-{kind.name}" for kind in ALL}
    write_values(
        cluster.service_url,
        [
            JavaValues(topics[kind.name], kind.schema, kind.java, batching=number % 2 == 1)
            for number, kind in enumerate(ALL)
        ],
    )
    return topics


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_what_java_writes(pulsar_in_spark, java_topics, kind):
    check(pulsar_in_spark.read(java_topics[kind.name], **TYPED), kind.columns, kind.rows)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.name, marks=[] if kind.name.endswith("map") else pytest.mark.long)
        for kind in MESSAGES
    ],
)
def test_what_java_writes_as_plain_protobuf(
    pulsar_in_spark, cluster, admin, java_topics, kind, topic, tmp_path, checkpoint
):
    """Schema.PROTOBUF has an Avro schema; the native one of the same class has the descriptors."""
    write_values(cluster.service_url, [JavaValues(topic, {**kind.schema, "type": "PROTOBUF"}, kind.java)])
    told = definition_of(admin, java_topics[kind.name])
    path = tmp_path / "values.desc"
    path.write_bytes(base64.b64decode(told["fileDescriptorSet"]))
    options = {
        "schemaType": "protobuf",
        "valueSchema": str(path),
        "messageName": told["rootMessageTypeName"],
        "metadataColumns": "",
    }
    check(pulsar_in_spark.read(topic, valueFormat="columns", **options), kind.columns, kind.rows)
    sink = Collector()
    drain(pulsar_in_spark.stream(topic, valueFormat="columns", **options), sink, checkpoint)
    nulls = dict.fromkeys(kind.names)
    assert [row.asDict(recursive=True) for row in sink.rows] == [row or nulls for row in kind.rows]
    with pytest.raises(PySparkException, match=r"PULSAR_UNSUPPORTED.* PROTOBUF .*schemaType=protobuf"):
        pulsar_in_spark.read(topic, **TYPED)


def test_the_day_of_a_date(pulsar_in_spark, java_topics):
    rows = pulsar_in_spark.read(java_topics["DATE"], **TYPED).selectExpr("CAST(value AS DATE)")
    days = [str(day) for (day,) in rows.collect()]
    assert days == ["2023-11-14", "1969-12-31", "1970-01-01", "None"]


# ---- the C++ client


@pytest.mark.parametrize("batching", [True, False])
def test_what_the_cpp_client_writes(pulsar_in_spark, peer, topic, batching):
    """Classes of records in Avro and in JSON."""
    orders = [cpp_values.order(values) for values in cpp_values.ORDERS]
    for schema in (AvroSchema(cpp_values.Order), JsonSchema(cpp_values.Order)):
        name = f"{topic}-{type(schema).__name__}"
        cpp_values.produce(peer, name, schema, orders, batching=batching)
        check(pulsar_in_spark.read(name, **TYPED), cpp_values.ORDER_COLUMNS, cpp_values.ORDERS)


# ---- payloads by fastavro, with schemas that no client makes

INTS = {"type": "array", "items": "int"}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
_ANN, _NOBODY = {"id": 1, "name": "Ann"}, {"id": 1, "name": None}
CHANGES: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"id": 1}, {"before": None, "after": _ANN, "op": "c", "ts_ms": 5}),
    ({"id": 1}, {"before": _ANN, "after": _NOBODY, "op": "u", "ts_ms": None}),
    ({"id": 1}, {"before": _NOBODY, "after": None, "op": "d", "ts_ms": 7}),
    ({"id": 1}, None),
]
CHANGE_COLUMNS = (
    "key struct<id:int>,value struct<before:struct<id:int,name:string>,after:struct<id:int,name:string>,"
    "op:string,ts_ms:bigint>"
)


def test_roots_that_are_no_records(pulsar_in_spark, cluster, admin, topic):
    version = register(admin, topic, "AVRO", INTS)
    values = [[], [1, -1], list(range(200))]
    messages = [*((avro(INTS, value), None) for value in values), (None, None)]
    write_payloads(cluster.service_url, topic, version, messages)
    rows = [*({"value": value} for value in values), None]
    check(pulsar_in_spark.read(topic, **TYPED), "value array<int>", rows)
    pulsar_in_spark.write(pulsar_in_spark.read(topic, **TYPED), topic, valueFormat="columns")
    check(pulsar_in_spark.read(topic, **TYPED), "value array<int>", rows * 2)


def test_fields_of_null(pulsar_in_spark, cluster, admin, topic):
    definition = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}, KEY["fields"][0]]}
    version, row = register(admin, topic, "AVRO", definition), {"n": None, "id": 1}
    write_payloads(cluster.service_url, topic, version, [(avro(definition, row), None)])
    pulsar_in_spark.write(pulsar_in_spark.read(topic, **TYPED), topic, valueFormat="columns")
    check(pulsar_in_spark.read(topic, **TYPED), "n void,id int", [row] * 2)


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_changes_as_debezium_writes_them(pulsar_in_spark, cluster, admin, topic, checkpoint, kind):
    """KEY_VALUE, SEPARATED: JSON, and Avro after an offset. A tombstone of its key follows a deletion."""

    def payload(definition, value):
        return b"\0\0\0\0\7" + avro(definition, value) if kind == "AVRO" else json.dumps(value).encode()

    offset = {"__AVRO_READ_OFFSET__": "5"} if kind == "AVRO" else {}
    version = register_pair(admin, topic, kind, KEY, ENVELOPE, offset, "SEPARATED")
    messages = [
        (None if value is None else payload(ENVELOPE, value), payload(KEY, key)) for key, value in CHANGES
    ]
    write_payloads(cluster.service_url, topic, version, messages)
    expected = [{"key": key, "value": value} for key, value in CHANGES]
    read = pulsar_in_spark.read(topic, **TYPED)
    check(read, CHANGE_COLUMNS, expected)
    names: dict[str, Any] = {"changes": read}
    (example,) = (each for each in blocks(PAGE, "python") if "\ndeleted = " in each.text)
    exec("\n".join(example.text.splitlines()[-2:]), names)
    assert [tuple(row) for row in names["rows"].collect()] == [(1, 1, "Ann", 5), (1, 1, None, None)]
    assert [tuple(row) for row in names["deleted"].collect()] == [(1, 7)]
    sink = Collector()
    drain(pulsar_in_spark.stream(topic, **TYPED), sink, checkpoint)
    assert texts([row.asDict(recursive=True) for row in sink.rows]) == texts(expected)


# ---- versions


def _version(*fields):
    return {"type": "record", "name": "Sale", "fields": [{"name": "id", "type": "long"}, *fields]}


_NOTE = {"name": "note", "type": ["null", "string"], "default": None}
_COUNT = {"name": "count", "type": "int", "default": 1}
_VERSIONS = [_version(), _version(_NOTE), _version(_NOTE, _COUNT)]


def test_three_versions_by_two_clients(pulsar_in_spark, cluster, peer, topic):
    """Java writes the first two in turn, from two producers; C++ adds the third, and Java goes on."""

    def java(version, *rows):
        schema = {"type": "AVRO", "definition": json.dumps(_VERSIONS[version])}
        # Avro's JSON names the branch of a union.
        named = [row | ({"note": row["note"] and {"string": row["note"]}} if version else {}) for row in rows]
        return JavaValues(topic, schema, named, batching=len(rows) > 1)

    first = [java(0, {"id": 0}), java(1, {"id": 1, "note": "a"}), java(0, {"id": 2}, {"id": 3})]
    write_values(cluster.service_url, [*first, java(1, {"id": 4, "note": None}), java(0, {"id": 5})])
    third = [{"id": 6, "note": "b", "count": 3}, {"id": 7, "note": None, "count": 0}]
    cpp_values.produce(peer, topic, AvroSchema(None, _VERSIONS[2]), third, batching=True)
    write_values(cluster.service_url, [java(1, {"id": 8, "note": "c"}), java(0, {"id": 9})])
    notes = {1: "a", 6: "b", 8: "c"}
    counts = {6: 3, 7: 0}
    expected = [{"id": n, "note": notes.get(n), "count": counts.get(n, 1)} for n in range(10)]
    check(pulsar_in_spark.read(topic, **TYPED), "id bigint,note string,count int", expected)
    first_only = pulsar_in_spark.read(topic, schemaVersion="0", **TYPED)
    check(first_only, "id bigint", [{"id": row["id"]} for row in expected])
