"""Values as columns: what fastavro and the C++ client write by a topic's schema, batches and streams read."""

import importlib.resources
import io
import json
import random
from contextlib import closing, contextmanager
from typing import Any

import fastavro
import pytest
from grpc_tools import protoc
from pulsar.schema import AvroSchema, BytesSchema
from pyspark.errors import PySparkException, StreamingQueryException

from integration.broker.waiting import wait_until
from integration.docs import ROOT, blocks
from integration.fixtures.spark import Collector, await_rows, drain, finish, start
from integration.helpers.peer import Record
from integration.helpers.raw import RawConnection, RawProducer

Definition = dict[str, Any]
Value = dict[str, Any]


def record(**fields):
    """A record of a number and of more fields, each of which may be null."""
    more = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()]
    return {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}, *more]}


LINE = {"type": "record", "name": "line", "fields": [{"name": "sku", "type": "string"}]}
V0 = record(item="string", gone="int")
V1 = record(item="string", gone="int", lines={"type": "array", "items": LINE})
V2 = record(lines={"type": "array", "items": LINE}, item="string", price="double")
VERSIONS = (V0, V1, V2)


class _Avro(AvroSchema):  # type: ignore[misc]  # it has no types
    """Takes values as bytes, too, whatever they are."""

    def encode(self, obj):
        return obj if isinstance(obj, bytes) else bytes(super().encode(obj))


def value(version, number):
    """A value of a version, with nulls in places."""
    row: dict[str, Any] = {"id": number, "item": None if number % 5 == 0 else f"item {number}"}
    if version < 2:
        row["gone"] = number
    else:
        row["price"] = number / 4
    if version > 0:
        row["lines"] = [{"sku": f"{number}-{line}"} for line in range(number % 3)]
    return row


def as_read(version, row, reader=2):
    """What fastavro makes of a value of one version with the schema of another."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, VERSIONS[version], row)
    buffer.seek(0)
    read = fastavro.schemaless_reader(buffer, VERSIONS[version], VERSIONS[reader])
    assert isinstance(read, dict)
    return read


@contextmanager
def producing(peer, topic, definition, batch_size=0):
    """A producer by fastavro of values of a schema, which it registers; it takes bytes, too."""
    producer = peer.client.create_producer(
        topic,
        schema=_Avro(None, json.loads(json.dumps(definition))),
        batching_enabled=batch_size > 0,
        batching_max_messages=max(batch_size, 2),
        batching_max_publish_delay_ms=10_000,
    )
    with closing(producer):
        yield producer


def send(producer, rows):
    for row in rows:
        producer.send_async(row, None)
    producer.flush()


def write(peer, topic, version, numbers):
    """Write values of a version; returns what they are by the latest."""
    rows = [value(version, number) for number in numbers]
    with producing(peer, topic, VERSIONS[version]) as producer:
        send(producer, rows)
    return [as_read(version, row) for row in rows]


def dicts(rows, *leave_out):
    """Rows as fastavro would give them."""
    return [
        {name: each for name, each in row.asDict(recursive=True).items() if name not in leave_out}
        for row in rows
    ]


def by_id(rows):
    return sorted(rows, key=lambda row: int(row["id"]))


def typed(spark, topic, **options):
    return spark.read(topic, **{"valueFormat": "columns", "metadataColumns": "", **options})


def typed_stream(spark, topic, **options):
    return spark.stream(topic, **{"valueFormat": "columns", "metadataColumns": "", **options})


# ---- versions


def test_three_versions_interleaved_by_two_producers(pulsar_in_spark, peer, admin, topic, checkpoint):
    admin.create_partitioned_topic(topic, 2)
    expected = []
    with (
        producing(peer, topic, V0) as first,
        producing(peer, topic, V1, 7) as second,
        producing(peer, topic, V2, 5) as third,
    ):
        chance = random.Random(7)
        for number in range(600):
            version = chance.randrange(3)
            row = value(version, number)
            [first, second, third][version].send_async(row, None, partition_key=f"{number % 11}")
            expected.append(as_read(version, row))
        for producer in (first, second, third):
            producer.flush()
    assert by_id(dicts(typed(pulsar_in_spark, topic).collect())) == expected
    collector = Collector()
    drain(typed_stream(pulsar_in_spark, topic, maxMessagesPerTrigger="200"), collector, checkpoint)
    assert by_id(dicts(collector.rows)) == expected
    assert len(collector.batches) > 2


def test_columns_of_an_older_version(pulsar_in_spark, peer, topic):
    for version in range(3):
        write(peer, topic, version, range(10 * version, 10 * version + 10))
    expected = [as_read(number // 10, value(number // 10, number), 0) for number in range(30)]
    rows = typed(pulsar_in_spark, topic, schemaVersion="0")
    assert rows.columns == ["id", "item", "gone"]
    assert dicts(rows.collect()) == expected


def test_versions_that_were_deleted(pulsar_in_spark, peer, admin, topic):
    write(peer, topic, 0, range(3))
    write(peer, topic, 1, range(3, 6))
    admin.request("DELETE", f"schemas/{topic.removeprefix('persistent://')}/schema")
    expected = write(peer, topic, 2, range(6, 9))
    with pytest.raises(
        Exception, match=r"\[PULSAR_SCHEMA\] a value of schema version 0 .* was deleted, or never"
    ):
        typed(pulsar_in_spark, topic).collect()
    assert dicts(typed(pulsar_in_spark, topic, mode="DROPMALFORMED").collect()) == expected
    bad = typed(pulsar_in_spark, topic, mode="PERMISSIVE", metadataColumns="__corruptValue").collect()
    assert [row["id"] for row in bad] == [None] * 6 + [6, 7, 8]
    assert [row["__corruptValue"] is None for row in bad] == [False] * 6 + [True] * 3


def test_a_version_that_comes_while_a_query_runs(pulsar_in_spark, peer, topic, checkpoint):
    before = write(peer, topic, 0, range(10))
    collector = Collector()
    query = start(typed_stream(pulsar_in_spark, topic), collector, checkpoint)
    try:
        await_rows(query, lambda: len(collector.rows) == 10)
        write(peer, topic, 2, range(10, 20))
        write(peer, topic, 0, range(20, 30))
        await_rows(query, lambda: len(collector.rows) == 30)
    finally:
        query.stop()
    assert len(before) == 10
    versions = [0] * 10 + [2] * 10 + [0] * 10
    expected = [as_read(version, value(version, number), 0) for number, version in enumerate(versions)]
    assert dicts(collector.rows) == expected


def test_a_query_that_is_to_be_started_again_loses_no_row(pulsar_in_spark, peer, topic, checkpoint):
    write(peer, topic, 0, range(10))
    collector = Collector()
    query = start(typed_stream(pulsar_in_spark, topic, schemaEvolutionMode="restart"), collector, checkpoint)
    try:
        await_rows(query, lambda: len(collector.rows) == 10)
        # An older version of the topic, and the one that the query has, in one micro-batch with a newer one.
        with producing(peer, topic, V0) as old, producing(peer, topic, V2) as new:
            for number in range(10, 40):
                [old, new][number % 2].send(value(2 * (number % 2), number))
        with pytest.raises(
            StreamingQueryException, match=r"\[PULSAR_SCHEMA_CHANGED\] version 1 .*: lines, price"
        ):
            finish(query)
    finally:
        query.stop()
    done = len(collector.rows)
    assert done < 40
    assert [row["id"] for row in collector.rows] == list(range(done))
    later = write(peer, topic, 2, range(40, 50))
    drain(typed_stream(pulsar_in_spark, topic, schemaEvolutionMode="restart"), collector, checkpoint)
    rows = dicts(collector.rows)
    assert [row["id"] for row in rows] == list(range(50))
    versions = [2 if number % 2 else 0 for number in range(40)]
    expected = [as_read(version, value(version, number)) for number, version in enumerate(versions)]
    assert rows[done:] == [*expected, *later][done:]


# ---- bad rows


BROKEN = b"\x02\x02\x0aab"  # the text has five bytes, of which two are there


def test_a_broken_value_in_the_middle(pulsar_in_spark, peer, topic, checkpoint):
    rows = [value(0, number) for number in range(200)]
    with producing(peer, topic, V0, 50) as producer:
        send(producer, [BROKEN if number == 120 else row for number, row in enumerate(rows)])
    good = [row for row in rows if row["id"] != 120]
    offset = spark_offset(pulsar_in_spark, topic, 120)
    words = rf"\[PULSAR_SCHEMA\] .* version 0 cannot be read: .*item.*; topic {topic}; message {offset}\."
    with pytest.raises(Exception, match=words):
        typed(pulsar_in_spark, topic).collect()
    with pytest.raises(StreamingQueryException, match=words):
        drain(typed_stream(pulsar_in_spark, topic), Collector(), checkpoint / "failing")
    assert dicts(typed(pulsar_in_spark, topic, mode="DROPMALFORMED").collect()) == good
    permissive = {"mode": "PERMISSIVE", "metadataColumns": "__corruptValue"}
    nulls = {"id": None, "item": None, "gone": None, "__corruptValue": BROKEN}
    expected = [{**row, "__corruptValue": None} for row in rows]
    expected[120] = nulls
    collector = Collector()
    drain(typed_stream(pulsar_in_spark, topic, **permissive), collector, checkpoint / "permissive")
    assert dicts(collector.rows) == expected
    assert dicts(typed(pulsar_in_spark, topic, **permissive).collect()) == expected


def spark_offset(spark, topic, row):
    return str(spark.read(topic, metadataColumns="__offset").collect()[row]["__offset"])


def test_a_topic_that_got_its_schema_late(pulsar_in_spark, peer, topic):
    peer.produce(topic, [Record(b"free text"), Record(None, "k")])
    expected = write(peer, topic, 2, range(3))
    with pytest.raises(Exception, match=r"has no schema version.*mode to PERMISSIVE.*startingOffsets"):
        typed(pulsar_in_spark, topic).collect()
    rows = typed(pulsar_in_spark, topic, mode="DROPMALFORMED").collect()
    assert dicts(rows) == [dict.fromkeys(expected[0]), *expected]
    offsets = json.dumps({topic: {"-1": spark_offset(pulsar_in_spark, topic, 2)}})
    assert dicts(typed(pulsar_in_spark, topic, startingOffsets=offsets).collect()) == expected


def test_deletions_by_the_cpp_client(pulsar_in_spark, peer, admin, topic):
    """It cannot send a null: an empty payload with a key is its deletion, which compaction takes for one."""
    with producing(peer, topic, V0, 10) as producer:
        for key, payload in (("a", value(0, 1)), ("b", value(0, 2)), ("a", b"")):
            producer.send_async(payload, None, partition_key=key)
        producer.flush()
    with closing(peer.client.create_producer(topic)) as without_schema:
        without_schema.send(b"", partition_key="b")
    rows = typed(pulsar_in_spark, topic, mode="DROPMALFORMED", metadataColumns="__key,__isNull")
    assert [tuple(row) for row in rows.select("id", "__key", "__isNull").collect()] == [
        *((1, b"a", False), (2, b"b", False)),
        *((None, b"a", True), (None, b"b", True)),
    ]
    admin.compact(topic)
    wait_until(lambda: admin.compaction_status(topic) == "SUCCESS")
    assert pulsar_in_spark.read(topic, readCompacted="true").count() == 0


# ---- columns


def chosen(spark, columns, **options):
    options = {"service.url": spark.service_url, "valueFormat": "columns", **options}
    return spark.spark.read.format("pulsar").options(**options).schema(columns).load()


def test_columns_are_chosen_by_a_schema(pulsar_in_spark, peer, topic):
    write(peer, topic, 2, range(10))
    columns = "price double, __topic string, id double, lines array<struct<sku: string>>"
    rows = chosen(pulsar_in_spark, columns, topic=topic)
    assert [tuple(row) for row in rows.collect()] == [
        (number / 4, topic, float(number), [(f"{number}-{line}",) for line in range(number % 3)])
        for number in range(10)
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("nope string", "no column nope"),
        ("id string", r"\[PULSAR_OPTION\] .schema\(...\) does not fit the schema of the values"),
        ("__offset string", "is not in metadataColumns"),
    ],
)
def test_columns_that_are_not_there(pulsar_in_spark, peer, topic, columns, words):
    write(peer, topic, 2, range(1))
    rows = chosen(pulsar_in_spark, columns, topic=topic)
    with pytest.raises(Exception, match=words):
        rows.collect()


def test_raw_columns_are_chosen_by_a_schema(pulsar_in_spark, peer, topic, checkpoint):
    peer.produce(topic, [Record(b"%d" % number, f"k{number}") for number in range(5)])
    reader = pulsar_in_spark.spark.readStream.format("pulsar").schema("__key binary, __topic string")
    options = {"service.url": pulsar_in_spark.service_url, "topic": topic, "startingOffsets": "earliest"}
    collector = Collector()
    drain(reader.options(**options).load(), collector, checkpoint)
    assert [tuple(row) for row in collector.rows] == [(b"k%d" % number, topic) for number in range(5)]


def test_names_that_two_columns_have(pulsar_in_spark, peer, topic):
    with producing(peer, topic, record(__key="string", b="string", B="string")) as producer:
        producer.send({"id": 1, "__key": "k", "b": "x", "B": "X"})
    with pytest.raises(Exception, match=r"two columns have the same name: __key.*valueFormat=struct"):
        typed(pulsar_in_spark, topic, metadataColumns="__key")
    rows = typed(pulsar_in_spark, topic, valueFormat="struct", metadataColumns="__key").collect()
    assert dicts(rows) == [{"value": {"id": 1, "__key": "k", "b": "x", "B": "X"}, "__key": None}]


def test_names_that_differ_only_by_case(pulsar_in_spark, peer, topic):
    with producing(peer, topic, record(b="string", B="string")) as producer:
        producer.send({"id": 1, "b": "x", "B": "X"})
    rows = typed(pulsar_in_spark, topic, metadataColumns="")
    assert dicts(rows.collect()) == [{"id": 1, "b": "x", "B": "X"}]
    with pytest.raises(Exception, match="AMBIGUOUS_REFERENCE"):
        rows.select("B").collect()
    conf = pulsar_in_spark.spark.conf
    conf.set("spark.sql.caseSensitive", "true")
    try:
        assert dicts(rows.select("B").where("b = 'x'").collect()) == [{"B": "X"}]
    finally:
        conf.unset("spark.sql.caseSensitive")


def test_topics_of_different_schemas(pulsar_in_spark, peer, topic):
    other = f"{topic}-other"
    write(peer, topic, 0, range(2))
    write(peer, other, 2, range(2, 4))
    topics = {"topics": f"{topic},{other}", "valueFormat": "columns", "metadataColumns": ""}
    with pytest.raises(
        Exception, match=rf"topics have different schemas: {topic}: AVRO struct<.*; {other}: AVRO"
    ):
        pulsar_in_spark.read(None, **topics)
    raw = pulsar_in_spark.read(None, **topics | {"valueFormat": "raw"}).collect()
    assert len(raw) == 4
    assert all(isinstance(row["value"], bytes | bytearray) for row in raw)
    shared = chosen(pulsar_in_spark, "item string, id bigint", **topics).collect()
    assert sorted(row["id"] for row in shared) == [0, 1, 2, 3]


@pytest.mark.long
def test_topics_that_are_joined_keep_the_columns_that_are_named(pulsar_in_spark, peer, topic, checkpoint):
    """By the page's program. A new version of a topic's schema changes no state; all of its columns would."""
    orders, payments = f"{topic}-orders", f"{topic}-payments"
    (example,) = (
        each for each in blocks(ROOT / "docs" / "schemas.md", "python") if "def table(" in each.text
    )
    text = example.text.replace("pulsar://localhost:6650", pulsar_in_spark.service_url)
    text = text.replace('"orders"', f'"{orders}"').replace('"payments"', f'"{payments}"')
    found = Collector()

    def run(text, more, number):
        with producing(peer, orders, more) as producer:
            producer.send({"id": number, "item": f"item {number}"}, event_timestamp=1_800_000_000_000)
        with producing(peer, payments, record(order_id="long", amount="double")) as producer:
            for late, each in enumerate(range(number + 1)):
                producer.send(
                    {"id": late, "order_id": each, "amount": each / 2}, event_timestamp=1_800_000_000_001
                )
        names = {"spark": pulsar_in_spark.spark}
        exec(text, names)
        drain(names["paid"], found, checkpoint)

    run(text, record(item="string"), 0)
    assert [tuple(row) for row in found.rows] == [(0, "item 0", 0.0)]
    run(text, record(item="string", note="string"), 1)
    assert sorted(map(tuple, found.rows)) == [(0, "item 0", 0.0), (0, "item 0", 0.0), (1, "item 1", 0.5)]
    everything = text.replace('.select("o.id", "o.item", "p.amount")', '.select("o.*", "p.amount")')
    assert everything != text
    with pytest.raises(StreamingQueryException, match="STATE_STORE"):
        run(everything, record(item="string", note="string"), 2)


def test_a_map_in_which_a_key_is_written_twice(pulsar_in_spark, peer, topic):
    """Spark's ``map_from_entries`` finds it; it makes maps of pairs, too."""
    with producing(peer, topic, record(m={"type": "map", "values": "int"})) as producer:
        producer.send(b"\x02\x02\x04\x02a\x02\x02a\x04\x00")
    rows = typed(pulsar_in_spark, topic)
    (row,) = rows.selectExpr("map_keys(m)", "map_values(m)").collect()
    assert tuple(row) == (["a", "a"], [1, 2])
    checked = "map_from_entries(map_entries(m)) AS m"
    with pytest.raises(PySparkException, match="DUPLICATED_MAP_KEY"):
        rows.selectExpr(checked).collect()
    conf = pulsar_in_spark.spark.conf
    conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    try:
        assert [each.m for each in rows.selectExpr(checked).collect()] == [{"a": 2}]
    finally:
        conf.unset("spark.sql.mapKeyDedupPolicy")


# ---- other schemas


def test_a_schema_of_the_users_own(pulsar_in_spark, peer, topic, tmp_path):
    rows = [value(0, number) for number in range(20)]
    with closing(peer.client.create_producer(topic, schema=BytesSchema())) as producer:
        for row in rows:
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, V0, row)
            producer.send(buffer.getvalue())
    assert typed(pulsar_in_spark, topic).schema.simpleString() == "struct<value:binary>"
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(V0))
    for text in (json.dumps(V0), str(path)):
        assert dicts(typed(pulsar_in_spark, topic, schemaType="avro", valueSchema=text).collect()) == rows
    with pytest.raises(Exception, match=r"PULSAR_OPTION.*has no schema that says what its values are"):
        typed(pulsar_in_spark, topic, valueSchema=text)


ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  message Line { string sku = 1; }
  int64 id = 1;
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
}
"""


def test_a_descriptor_set_of_protocs(pulsar_in_spark, peer, topic, tmp_path):
    """Payloads are written as text: id 7, two lines, and 5 s after 1970."""
    (tmp_path / "order.proto").write_text(ORDER)
    imports = str(importlib.resources.files("grpc_tools") / "_proto")
    path = tmp_path / "order.desc"
    command = ["protoc", f"-I{tmp_path}", f"-I{imports}", f"--descriptor_set_out={path}", "order.proto"]
    with closing(peer.client.create_producer(topic, schema=BytesSchema())) as producer:
        producer.send(b"\x08\x07" + 2 * b"\x12\x03\x0a\x01s" + b"\x1a\x02\x08\x05")
    options = {"schemaType": "protobuf", "valueSchema": str(path), "messageName": "shop.Order"}
    assert protoc.main(command) == 0
    with pytest.raises(Exception, match=r"PULSAR_OPTION.* lacks google/protobuf/timestamp\.proto"):
        typed(pulsar_in_spark, topic, **options)
    assert protoc.main([*command, "--include_imports"]) == 0
    with pytest.raises(Exception, match=r"PULSAR_OPTION.*Its messages are .*shop\.Order"):
        typed(pulsar_in_spark, topic, **options | {"messageName": "Order"})
    rows = typed(pulsar_in_spark, topic, **options)
    path.unlink()
    (row,) = rows.collect()
    assert (row.id, [line.sku for line in row.lines]) == (7, ["s", "s"])
    assert row.at.timestamp() == 5


def test_json_of_any_shape_is_a_variant(pulsar_in_spark, peer, topic):
    with closing(peer.client.create_producer(topic, schema=BytesSchema())) as producer:
        for text in (b'{"id": 7, "tags": ["a"]}', b'"text"'):
            producer.send(text)
    variants = pulsar_in_spark.read(topic).selectExpr("parse_json(CAST(value AS STRING)) AS v")
    rows = variants.selectExpr("try_variant_get(v, '$.id', 'long')", "to_json(v)").collect()
    assert [tuple(row) for row in rows] == [(7, '{"id":7,"tags":["a"]}'), (None, '"text"')]


def test_rows_without_columns_are_counted(pulsar_in_spark, peer, topic):
    definition = {"type": "record", "name": "nothing", "fields": []}
    with producing(peer, topic, definition) as producer:
        for _ in range(5):
            producer.send(b"")
    rows = typed(pulsar_in_spark, topic, metadataColumns="")
    assert rows.schema.simpleString() == "struct<>"
    assert rows.count() == 5
    assert len(rows.collect()) == 5


def test_schemas_of_another_registry(pulsar_in_spark, cluster, admin, topic):
    """Their ids are a column; a given schema decodes the values, and the topic's own type has no columns."""
    definition = json.dumps(V0)
    place = f"schemas/public/default/{topic.rpartition('/')[2]}/schema"
    admin.request("POST", place, {"type": "EXTERNAL", "schema": definition, "properties": {}})
    ids = [b"\xff\0" + number.to_bytes(4, "big") for number in (7, 8)]
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, topic)
        metadata: list[dict[str, Any]] = [*({"schema_id": one} for one in ids), {}]
        for number, fields in enumerate(metadata):
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, V0, value(0, number))
            producer.send(buffer.getvalue(), **fields)
    options = {"schemaType": "avro", "valueSchema": definition, "metadataColumns": "__schemaId"}
    rows = pulsar_in_spark.read(topic, valueFormat="columns", **options).collect()
    assert [(row.id, row["__schemaId"]) for row in rows] == list(zip(range(3), [*ids, None], strict=True))
    numbers = pulsar_in_spark.read(topic, metadataColumns="__schemaId").selectExpr(
        "conv(hex(substring(__schemaId, -4, 4)), 16, 10)"
    )
    assert [number for (number,) in numbers.collect()] == ["7", "8", None]
    with pytest.raises(PySparkException, match=r"PULSAR_UNSUPPORTED.* EXTERNAL have no columns"):
        pulsar_in_spark.read(topic, valueFormat="columns")
