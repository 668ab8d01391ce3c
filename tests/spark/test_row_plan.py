"""The plan of rows: which schema the broker is asked for, which columns come of it, what is an error."""

import json
import pickle

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql.types import LongType, StringType, StructType

from pulsar_spark.client import Client, ReaderSchema, Schema, SchemaType
from pulsar_spark.client.reading import typed_values
from pulsar_spark.client.reading.decode import RangeEntries, decode_entries
from pulsar_spark.errors import ConnectError, OptionError, SchemaError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.row_plan import RowPlan, plan_rows
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA, RowColumns
from pulsar_spark.values import formats
from pulsar_spark.values.key_value import KeyValueParts
from pulsar_spark.values.key_value import schema_of as key_value_schema
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.wire_values import to_wire_schema
from tests.client.reading.csv_values import csv, installed
from tests.client.reading.stored_entries import single_entry
from tests.fake_clients import Type
from tests.values.protobuf_files import file

T, U = TopicName.parse("t"), TopicName.parse("u")
A, AB = csv("a"), csv("a,b")

csv_only = pytest.fixture(autouse=True)(installed)


def register(broker, topic, *schemas):
    with broker.changed:
        for schema in schemas:
            broker.schemas.register(topic, to_wire_schema(schema))


def options_of(broker, mode=Mode.STREAM, **options):
    named = options.keys() & {"topic", "topics", "topicsPattern"}
    given = {
        "service.url": broker.url,
        "valueFormat": "columns",
        **({} if named else {"topic": "t"}),
        **options,
    }
    return parse_source(given, mode)


def planned(broker, **options):
    return plan_rows(options_of(broker, metadataColumns="", **options))


def columns_of(plan):
    return plan.columns.schema.simpleString()


def schema_of(**columns):
    """A user's columns; int is bigint."""
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, {int: LongType(), str: StringType()}.get(kind, kind))
    return schema


# ---- what is asked


def test_raw_payloads_need_no_broker():
    options = parse_source({"service.url": "pulsar://localhost:1", "topic": "t"}, Mode.STREAM)
    assert plan_rows(options) == RowPlan(RowColumns())
    assert plan_rows(options, wanted=SOURCE_SCHEMA) == RowPlan(RowColumns())


def test_a_broker_that_is_not_there_is_an_error_in_seconds():
    options = {"service.url": "pulsar://localhost:1", "topic": "t", "valueFormat": "columns"}
    with pytest.raises(ConnectError):
        plan_rows(parse_source({**options, "pulsar.client.operationTimeoutMs": "200"}, Mode.STREAM))


def test_the_latest_schema_is_pinned(broker):
    register(broker, "t", A, AB)
    plan = planned(broker)
    assert columns_of(plan) == "struct<a:bigint,b:bigint>"
    assert plan.reader == ReaderSchema(AB, {T: (1, AB)})
    assert columns_of(planned(broker, valueFormat="struct")) == "struct<value:struct<a:bigint,b:bigint>>"
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert len(broker.seen(Type.GET_SCHEMA)) == 2


def test_an_older_version_may_be_named(broker):
    register(broker, "t", A, AB)
    plan = planned(broker, schemaVersion="0")
    assert columns_of(plan) == "struct<a:bigint>"
    assert plan.reader == ReaderSchema(A, {T: (0, A)})
    with pytest.raises(OptionError, match=r"topic .*/t has no version 2 of its schema"):
        planned(broker, schemaVersion="2")


def test_what_was_found_out_is_not_asked_again(broker):
    register(broker, "t", A)
    options = options_of(broker)
    plan = plan_rows(options)
    register(broker, "t", AB)
    assert plan_rows(options, plan, plan.columns.schema) == plan
    assert len(broker.seen(Type.GET_SCHEMA)) == 1


def test_a_load_uses_no_versions_that_an_earlier_one_found(broker):
    """A topic that is deleted and made anew counts from 0 again, and processes of workers go on."""
    register(broker, "t", A, AB)
    options = options_of(broker, metadataColumns="")
    with Client(options.client) as client:

        def read():
            values = plan_rows(options).values(client, T, options.values, ledger=1)
            entry = single_entry(5, 0, b"1,2", schema_version=bytes(8))
            (messages,) = decode_entries(
                [RangeEntries(T, [Entries.of([entry])])], max_rows=10, max_bytes=1000
            )
            (part,) = values(messages)
            return {name: column.to_pylist() for name, column in part.columns.items()}

        with pytest.raises(SchemaError, match="left over"):
            read()
        with broker.changed:
            broker.schemas.drop(str(T))
        register(broker, "t", csv("b,a"), AB)
        assert read() == {"a": [2], "b": [1]}


def test_a_topic_that_is_made_anew_under_a_read_is_read_by_its_own_versions(broker):
    """The new topic has other ledgers; versions are asked for once for each."""
    register(broker, "t", A, AB)
    options = options_of(broker, metadataColumns="")
    plan = plan_rows(options)
    with Client(options.client) as client:

        def read(ledger, version, payload):
            values = plan.values(client, T, options.values, ledger=ledger)
            entry = single_entry(ledger, 0, payload, schema_version=version.to_bytes(8, "big"))
            (messages,) = decode_entries(
                [RangeEntries(T, [Entries.of([entry])])], max_rows=10, max_bytes=1000
            )
            (part,) = values(messages)
            return {name: column.to_pylist() for name, column in part.columns.items()}

        for _ in range(2):
            assert read(5, 1, b"1,2") == {"a": [1], "b": [2]}
            assert read(5, 0, b"1") == {"a": [1], "b": [None]}
        assert len(broker.seen(Type.GET_SCHEMA)) == 3
        with broker.changed:
            broker.schemas.drop(str(T))
        register(broker, "t", AB, csv("b,a"))
        for _ in range(2):
            assert read(9, 1, b"1,2") == {"a": [2], "b": [1]}
            assert read(9, 0, b"1,2") == {"a": [1], "b": [2]}
        assert len(broker.seen(Type.GET_SCHEMA)) == 5


def test_partitions_share_their_topics_schema(broker):
    register(broker, "t", A)
    plan = planned(broker, topics="t-partition-1,t-partition-2,t")
    assert plan.reader.pinned == {T: (0, A)}


def test_a_topic_without_a_schema_has_bytes(broker, monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)
    broker.create("t")
    options = options_of(broker, metadataColumns="")
    plan = plan_rows(options)
    assert columns_of(plan) == "struct<value:binary>"
    with Client(options.client) as client:
        values = plan.values(client, T, options.values, ledger=1)
        register(broker, "t", Schema(SchemaType.STRING))
        entries = [single_entry(5, 0, b"\xff"), single_entry(5, 1, b"x", schema_version=bytes(8))]
        for entry, row in zip(entries, (b"\xff", None), strict=True):
            (messages,) = decode_entries(
                [RangeEntries(T, [Entries.of([entry])])], max_rows=10, max_bytes=1000
            )
            if row is None:
                with pytest.raises(SchemaError, match=r"STRING cannot be read as NONE; .*Call load\(\)"):
                    list(values(messages))
            else:
                (part,) = values(messages)
                assert part.columns["value"].to_pylist() == [row]
    with broker.changed:
        broker.schemas.delete("t")
    assert columns_of(planned(broker)) == "struct<value:binary>"
    register(broker, "u", Schema(SchemaType.STRING))
    with pytest.raises(
        OptionError, match=r"topics have different schemas: .*/t: no schema; .*/u: STRING string"
    ):
        planned(broker, topics="t,u")


def test_topics_by_pattern(broker):
    with pytest.raises(OptionError, match="no topic matches topicsPattern yet"):
        planned(broker, topicsPattern="t.*")
    for name in ("t1", "t2"):
        broker.create(name)
        register(broker, name, A)
    assert len(planned(broker, topicsPattern="t.*").reader.pinned) == 2


# ---- several topics


def test_topics_of_one_schema_share_it(broker):
    register(broker, "t", A, AB)
    register(broker, "u", AB)
    plan = planned(broker, topics="t,u")
    assert plan.reader == ReaderSchema(AB, {T: (1, AB), U: (0, AB)})
    assert len(pickle.dumps(plan)) < len(pickle.dumps(planned(broker))) + 200


@pytest.mark.parametrize("other", [csv("b"), csv("a", SchemaType.JSON)])
def test_topics_of_different_schemas(broker, other):
    register(broker, "t", A)
    register(broker, "u", other)
    register(broker, "v", other)
    with pytest.raises(OptionError) as caught:
        planned(broker, topics="t,u,v")
    fields = "b:bigint" if other.type is SchemaType.AVRO else "a:bigint"
    assert str(caught.value).startswith(
        f"[PULSAR_OPTION] topics have different schemas: {T}: AVRO struct<a:bigint>; "
        f"persistent://public/default/u, persistent://public/default/v: {other.type.name} struct<{fields}>. "
    )


def test_topics_may_be_at_different_versions(broker):
    register(broker, "t", A)
    register(broker, "u", A, AB)
    register(broker, "v", A)
    for wanted in (None, schema_of(a=int, b=int)):
        plan = plan_rows(options_of(broker, metadataColumns="", topics="t,u,v"), wanted=wanted)
        assert plan.reader == ReaderSchema(AB, {T: (0, A), U: (1, AB), TopicName.parse("v"): (0, A)})
        assert columns_of(plan) == "struct<a:bigint,b:bigint>"


@pytest.mark.parametrize(
    ("one", "other", "columns"),
    [
        ([("x", "int")], [("x", "long")], "struct<x:bigint>"),
        ([("x", "string")], [("x", ["null", "bytes"])], None),
        ([("x", "int"), ("y", "int")], [("x", "int"), ("z", "int")], None),
        ([("y", "int")], [("x", "int"), ("y", "string")], None),
        ([("y", "int")], [("x", "int"), ("y", "long")], "struct<x:int,y:bigint>"),
        (
            [("r", {"type": "array", "items": {"type": "map", "values": "float"}})],
            [("r", {"type": "array", "items": {"type": "map", "values": "double"}})],
            "struct<r:array<map<string,double>>>",
        ),
    ],
)
@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_the_columns_are_those_that_hold_the_values_of_all_topics(
    broker, monkeypatch, kind, one, other, columns
):
    monkeypatch.setattr(typed_values, "formats", formats)
    for pair in (("t", one), ("u", other)):
        fields = [{"name": name, "type": each} for name, each in pair[1]]
        definition = {"type": "record", "name": "R", "fields": fields}
        register(broker, pair[0], Schema(kind, json.dumps(definition).encode()))
    for topics in ("t,u", "u,t"):
        if columns is None:
            with pytest.raises(OptionError, match="different schemas"):
                planned(broker, topics=topics)
        else:
            assert columns_of(planned(broker, topics=topics)) == columns


def test_a_long_list_of_different_schemas_is_cut(broker):
    names = [f"t{number}" for number in range(30)]
    for number, name in enumerate(names):
        register(broker, name, csv(",".join(f"{letter}{number}" for letter in "abc" * 50)))
    with pytest.raises(OptionError, match=r"\.\.\.; 20 more\. ") as caught:
        planned(broker, topics=",".join(names))
    assert len(str(caught.value)) < 6500


def test_topics_of_different_schemas_may_share_the_columns_that_are_wanted(broker):
    register(broker, "t", AB)
    register(broker, "u", csv("b,c"))
    options = options_of(broker, topics="t,u", metadataColumns="__topic")
    plan = plan_rows(options, wanted=schema_of(__topic=str, b=int))
    assert columns_of(plan) == "struct<__topic:string,b:bigint>"
    assert plan.columns.target == pa.struct([("b", pa.int64())])
    for wanted in ({"a": int}, {"a": int, "b": int}):
        with pytest.raises(OptionError, match=r"different schemas.*leave columns that they do not share out"):
            plan_rows(options, wanted=schema_of(**wanted))


# ---- columns of the user's


def test_columns_are_chosen_by_name(broker):
    register(broker, "t", AB)
    plan = plan_rows(options_of(broker), wanted=schema_of(b=int))
    assert columns_of(plan) == "struct<b:bigint>"
    assert plan.columns.target == pa.struct([("b", pa.int64())])
    plan = plan_rows(options_of(broker, valueFormat="struct"), wanted=schema_of(value=schema_of(b=int)))
    assert columns_of(plan) == "struct<value:struct<b:bigint>>"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"c": int}, r"no column c\. Its columns are a, b, __key"),
        (
            {"a": str},
            r"not fit the schema of the values: the target's a is .*\. The columns .* are struct<a:bigint",
        ),
    ],
)
def test_columns_that_the_schema_does_not_have(broker, wanted, words):
    register(broker, "t", AB)
    with pytest.raises(OptionError, match=words):
        plan_rows(options_of(broker), wanted=schema_of(**wanted))


def test_a_field_that_has_no_column_may_be_left_out(broker, monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)
    fields = [{"name": "a", "type": "long"}, {"name": "next", "type": ["null", "R"], "default": None}]
    tree = {"type": "record", "name": "R", "fields": fields}
    register(broker, "t", Schema(SchemaType.AVRO, json.dumps(tree).encode()))
    with pytest.raises(UnsupportedError, match=r"'next' .* is recursive.*\.schema\(\.\.\.\)"):
        plan_rows(options_of(broker))
    assert plan_rows(options_of(broker), wanted=schema_of(a=int)).columns.target == pa.struct(
        [("a", pa.int64())]
    )
    with pytest.raises(OptionError, match="the source has no column next"):
        plan_rows(options_of(broker), wanted=schema_of(next=int))


def test_a_record_within_itself_is_text_in_json(broker, monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)
    fields = [{"name": "a", "type": "long"}, {"name": "next", "type": ["null", "R"], "default": None}]
    tree = {"type": "record", "name": "R", "fields": fields}
    register(broker, "t", Schema(SchemaType.JSON, json.dumps(tree).encode()))
    target = plan_rows(options_of(broker)).columns.target
    assert target == pa.struct([("a", pa.int64()), ("next", pa.string())])


def test_columns_of_the_users_do_not_change(broker):
    register(broker, "t", AB)
    options = options_of(broker, schemaEvolutionMode="restart")
    with pytest.raises(OptionError, match=r"restart has no effect with \.schema"):
        plan_rows(options, wanted=schema_of(a=int))
    plan = plan_rows(options)
    assert plan_rows(options, plan, plan.columns.schema) == plan


# ---- a schema of the user's


def test_a_schema_of_the_users_own_is_the_columns(broker, monkeypatch):
    """Values of the topic's versions are converted to it; its type is that of the topic."""
    monkeypatch.setattr(typed_values, "formats", formats)
    for topic, kind in (("t", SchemaType.AVRO), ("u", SchemaType.JSON)):
        for name in ("old", "new"):
            fields = [{"name": name, "type": "int"}]
            tree = {"type": "record", "name": "R", "fields": fields}
            register(broker, topic, Schema(kind, json.dumps(tree).encode()))
        both = [
            {"name": "n", "aliases": ["old", "new"], "type": "long"},
            {"name": "d", "type": "int", "default": 7},
        ]
        own = json.dumps({"type": "record", "name": "R", "fields": both})
        options = options_of(broker, topic=topic, metadataColumns="", valueSchema=own)
        plan = plan_rows(options)
        assert columns_of(plan) == "struct<n:bigint,d:int>"
        assert plan.reader.schema == Schema(kind, own.encode())
        values = [b'{"old": 1}', b'{"new": 2}'] if kind is SchemaType.JSON else [b"\2", b"\4"]
        entries = [
            single_entry(5, n, value, schema_version=n.to_bytes(8, "big")) for n, value in enumerate(values)
        ]
        with Client(options.client) as client:
            (messages,) = decode_entries(
                [RangeEntries(T, [Entries.of(entries)])], max_rows=10, max_bytes=1000
            )
            (part,) = plan.values(client, TopicName.parse(topic), options.values, ledger=1)(messages)
        assert {name: column.to_pylist() for name, column in part.columns.items()} == {
            "n": [1, 2],
            "d": [7, 7],
        }


def record_of(*names):
    fields = [{"name": name, "type": "int"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def test_what_a_schema_of_the_users_own_cannot_be(broker, monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)
    register(broker, "a", Schema(SchemaType.AVRO, record_of("a").encode()))
    register(broker, "j", Schema(SchemaType.JSON, record_of("a").encode()))
    broker.create("t")
    for options, words in (
        ({}, "topic .*/t has no schema that says what its values are. Set schemaType to avro, json"),
        (
            {"topic": "a", "valueSchema": '"int"'},
            "values of topic .*/a cannot be read by the options' schema: .*",
        ),
        ({"topics": "a,j"}, "topics have different schemas"),
        ({"topics": "a,t", "schemaType": "json"}, "topics have different schemas"),
        ({"topic": "a", "messageName": "p.M"}, "messageName is for Protobuf"),
        ({"topic": "a", "keySchema": '"int"'}, "keySchema is for KEY_VALUE"),
        ({"topicsPattern": "x.*"}, "no topic matches topicsPattern yet"),
    ):
        with pytest.raises(OptionError, match=words):
            planned(broker, **{"valueSchema": record_of("a"), **options})


def test_a_schema_of_the_users_own_where_the_topic_has_none(broker, monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)
    register(broker, "u", Schema(SchemaType.AVRO, record_of("a").encode()))
    register(broker, "e", Schema(SchemaType.EXTERNAL, b"x"))
    for topics in ("t", "e", "t,u", "u"):
        plan = planned(broker, topics=topics, valueSchema=record_of("a"), schemaType="avro")
        assert (plan.reader.is_given, plan.reader.is_default) == (True, True)
        assert columns_of(plan) == "struct<a:int>"
    assert not planned(broker, topic="u", valueSchema=record_of("a"), schemaType="json").reader.is_default
    plan = planned(broker, topicsPattern="x.*", valueSchema="INT64", schemaType="primitive")
    assert columns_of(plan) == "struct<value:bigint>"


def test_the_parts_of_key_value_may_be_the_users(broker, monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)
    value, text = Schema(SchemaType.AVRO, record_of("a").encode()), Schema(SchemaType.STRING)
    register(broker, "t", key_value_schema(KeyValueParts(value, text, True)))
    key = record_of("a").replace('"int"', '"long"')
    assert columns_of(planned(broker, keySchema=key)) == "struct<key:struct<a:bigint>,value:string>"
    assert columns_of(planned(broker, keySchema=key, valueSchema="STRING")).endswith("value:string>")


def test_a_descriptor_set_is_read_by_the_driver(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(typed_values, "formats", formats)
    path = tmp_path / "order.desc"
    path.write_bytes(FileDescriptorSet(file=[file("message M0\nint32 a = 1")]).SerializeToString())
    given = {"schemaType": "protobuf", "valueSchema": str(path), "messageName": "p.M0", "metadataColumns": ""}
    options = options_of(broker, **given)
    plan = plan_rows(options)
    assert columns_of(plan) == "struct<a:int>"
    path.unlink()  # tasks do not look at it
    with Client(options.client) as client:
        values = pickle.loads(pickle.dumps(plan)).values(client, T, options.values, ledger=1)
        entries = [single_entry(5, 0, b"\x08\x07"), single_entry(5, 1, b"", schema_version=bytes(8))]
        (messages,) = decode_entries([RangeEntries(T, [Entries.of(entries)])], max_rows=10, max_bytes=1000)
        (part,) = values(messages)
    assert part.columns["a"].to_pylist() == [7, None]
