"""Options that say how payloads are read, and which of them go together."""

from pathlib import Path

import pytest

from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.values import EvolutionMode, ValueFormat, ValueOptions
from pulsar_spark.spark.rows.read import BadRows
from tests.loops import for_each
from tests.spark.options.parsing import refused, source

SCHEMA = '{"type": "record", "name": "r", "fields": []}'
USUAL = ValueOptions(
    format=ValueFormat.RAW,
    schema=None,
    message=None,
    version=None,
    evolution=EvolutionMode.NONE,
    bad_rows=BadRows.FAILFAST,
    allow_different=False,
)


def test_payloads_are_not_looked_into_unless_that_is_asked_for():
    for options in (source(), source(valueFormat="RAW")):
        assert options.values == USUAL
        assert options.values.format.is_raw


def test_all_that_there_is():
    values = source(
        valueFormat="columns",
        schemaEvolutionMode="Restart",
        mode="permissive",
        allowDifferentTopicSchemas="true",
    ).values
    assert (values.format, values.format.is_raw, values.format.is_flat) == (ValueFormat.COLUMNS, False, True)
    assert values.evolution is EvolutionMode.RESTART
    assert values.bad_rows is BadRows.PERMISSIVE
    assert values.allow_different
    values = source(Mode.BATCH, valueFormat="struct", schemaVersion="7", mode="DropMalformed").values
    assert (values.format, values.format.is_flat, values.version) == (ValueFormat.STRUCT, False, 7)
    assert values.bad_rows is BadRows.DROPMALFORMED


FILES = {
    "/some/file": Path("/some/file"),
    "file:///some/file": Path("/some/file"),
    "file:a": Path("a"),
    "a.avsc": Path("a.avsc"),
}


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_schema_of_the_users_own(kind):
    for text, schema in {SCHEMA: SCHEMA, '"string"': '"string"', **FILES}.items():
        values = source(valueFormat=kind, valueSchema=text).values
        assert (values.format.value, values.schema, values.format.is_flat) == (kind, schema, True)


def test_a_protobuf_schema_of_the_users_own():
    for text, path in FILES.items():
        values = source(valueFormat="protobuf", valueSchema=text, messageName="shop.Order").values
        assert (values.format, values.format.is_flat) == (ValueFormat.PROTOBUF, True)
        assert (values.schema, values.message) == (path, "shop.Order")


@pytest.mark.parametrize("text", ["", "string", "{", '{"a/b', "[" * 10_000])
def test_what_is_no_schema(text):
    refused("option valueSchema is .*It must be an Avro schema in JSON", valueFormat="avro", valueSchema=text)


def test_the_option_of_the_jvm_connector_may_stay():
    assert source(allowDifferentTopicSchemas="true").values.format.is_raw


@for_each(
    ("options", "words"),
    [
        ({"mode": "FAILFAST"}, "option mode has no effect with valueFormat=raw"),
        ({"schemaVersion": "1"}, "option schemaVersion has no effect"),
        ({"schemaEvolutionMode": "none"}, "option schemaEvolutionMode has no effect"),
        (
            {"valueSchema": SCHEMA, "mode": "FAILFAST"},
            r"valueFormat=raw cannot be used with valueSchema\. Set valueFormat to avro, json or protobuf",
        ),
        (
            {"valueFormat": "avro"},
            r"valueFormat=avro requires valueSchema.*Set it, or set valueFormat=columns",
        ),
        ({"valueFormat": "json"}, "valueFormat=json requires valueSchema"),
        (
            {"valueFormat": "columns", "valueSchema": SCHEMA},
            r"valueFormat=columns cannot be used with valueSchema\. Set valueFormat to avro, json or",
        ),
        ({"valueFormat": "protobuf", "messageName": "p.M"}, "valueFormat=protobuf requires valueSchema"),
        (
            {"valueFormat": "protobuf", "valueSchema": "/f"},
            r"requires messageName.*the full name, such as shop\.Order",
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": SCHEMA, "messageName": "p.M"},
            "valueSchema must be the path of a file.*protoc --include_imports",
        ),
        (
            {"messageName": "p.M"},
            r"valueFormat=raw cannot be used with messageName\. Set valueFormat to proto",
        ),
        (
            {"valueFormat": "avro", "valueSchema": SCHEMA, "messageName": "p.M"},
            "valueFormat=avro cannot be used with messageName",
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": "/f", "messageName": "p.M", "schemaVersion": "1"},
            "concern the topic's schema",
        ),
        ({"valueFormat": "protobuf", "valueSchema": "/f", "messageName": ""}, "option messageName is ''"),
        ({"valueFormat": "avro", "valueSchema": SCHEMA, "schemaVersion": "1"}, "concern the topic's schema"),
        (
            {"valueFormat": "avro", "valueSchema": SCHEMA, "schemaEvolutionMode": "restart"},
            "concern the topic's schema",
        ),
        (
            {"valueFormat": "columns", "schemaVersion": "1", "schemaEvolutionMode": "restart"},
            "schemaVersion and schemaEvolutionMode=restart cannot be used together",
        ),
        (
            {"valueFormat": "columns", "pulsar_reader_cryptoFailureAction": "CONSUME"},
            "CONSUME gives encrypted bytes, which cannot be read by a schema",
        ),
        ({"valueFormat": "parquet"}, "one of raw, columns, struct, avro, json, protobuf"),
        ({"valueFormat": "columns", "mode": "x"}, "one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
    ],
)
def test_what_does_not_go_together(options, words):
    refused(words, **options)


def test_what_is_for_streams():
    refused(
        "not allowed for reading a batch", Mode.BATCH, valueFormat="columns", schemaEvolutionMode="restart"
    )
