"""Options that say how payloads are read, and which of them go together."""

from pathlib import Path

import pytest

from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.values import EvolutionMode, GivenType, ValueOptions
from pulsar_spark.spark.rows.read import BadRows
from pulsar_spark.spark.rows.schema import ValueFormat
from tests.loops import for_each
from tests.spark.options.parsing import refused, source

SCHEMA = '{"type": "record", "name": "r", "fields": []}'
USUAL = ValueOptions(
    format=ValueFormat.RAW,
    schema=None,
    key_schema=None,
    type=None,
    message=None,
    version=None,
    evolution=EvolutionMode.NONE,
    bad_rows=BadRows.FAILFAST,
)


def test_payloads_are_not_looked_into_unless_that_is_asked_for():
    for options in (source(), source(valueFormat="RAW")):
        assert options.values == USUAL


def test_all_that_there_is():
    values = source(
        valueFormat="columns",
        schemaEvolutionMode="Restart",
        mode="permissive",
    ).values
    assert values.format is ValueFormat.COLUMNS
    assert values.evolution is EvolutionMode.RESTART
    assert values.bad_rows is BadRows.PERMISSIVE
    values = source(Mode.BATCH, valueFormat="struct", schemaVersion="7", mode="DropMalformed").values
    assert (values.format, values.version) == (ValueFormat.STRUCT, 7)
    assert values.bad_rows is BadRows.DROPMALFORMED


FILES = {
    "/some/file": Path("/some/file"),
    "file:///some/file": Path("/some/file"),
    "file:a": Path("a"),
    "a.avsc": Path("a.avsc"),
}


@pytest.mark.parametrize("kind", GivenType)
def test_a_schema_of_the_users_own(kind):
    for text, schema in {SCHEMA: SCHEMA, '"string"': '"string"', "LOCAL_DATE": "LOCAL_DATE", **FILES}.items():
        given = {"valueSchema": text, "keySchema": text, "messageName": "shop.Order"}
        values = source(valueFormat="columns", schemaType=kind.value, **given).values
        assert (values.format, values.type) == (ValueFormat.COLUMNS, kind)
        assert (values.schema, values.key_schema, values.message) == (schema, schema, "shop.Order")


@pytest.mark.parametrize("text", ["", "string", "{", '{"a/b', "[" * 10_000])
def test_what_is_no_schema(text):
    refused(
        "option valueSchema is .*It must be an Avro schema in JSON.*, in capitals",
        valueFormat="columns",
        valueSchema=text,
    )


@for_each(
    ("options", "words"),
    [
        ({"mode": "FAILFAST"}, "option mode has no effect with valueFormat=raw"),
        ({"schemaVersion": "1"}, "option schemaVersion has no effect"),
        ({"schemaEvolutionMode": "none"}, "option schemaEvolutionMode has no effect"),
        ({"valueSchema": SCHEMA}, "option valueSchema has no effect with valueFormat=raw"),
        ({"keySchema": SCHEMA}, "option keySchema has no effect with valueFormat=raw"),
        ({"messageName": "p.M"}, "option messageName has no effect with valueFormat=raw"),
        (
            {"valueFormat": "columns", "schemaType": "avro"},
            r"schemaType has no effect without valueSchema.*or leave it out to read by the topic's schema",
        ),
        (
            {"valueFormat": "columns", "messageName": "p.M"},
            "option messageName has no effect without valueSchema",
        ),
        ({"valueFormat": "columns", "valueSchema": "/f", "messageName": ""}, "option messageName is ''"),
        ({"valueFormat": "columns", "valueSchema": SCHEMA, "schemaVersion": "1"}, "from the topic's schema"),
        (
            {"valueFormat": "columns", "keySchema": SCHEMA, "schemaEvolutionMode": "restart"},
            "from the topic's schema",
        ),
        (
            {"valueFormat": "columns", "schemaVersion": "1", "schemaEvolutionMode": "restart"},
            "schemaVersion and schemaEvolutionMode=restart cannot be used together",
        ),
        (
            {"valueFormat": "columns", "pulsar_reader_cryptoFailureAction": "CONSUME"},
            "CONSUME gives encrypted bytes, which cannot be read by a schema",
        ),
        ({"valueFormat": "columns", "schemaType": "int64"}, "must be primitive, and valueSchema=INT64, in"),
        ({"valueFormat": "parquet"}, "one of raw, columns, struct"),
        ({"allowDifferentTopicSchemas": "true"}, "leave it out, and use valueFormat=raw, or columns that"),
        ({"valueFormat": "columns", "mode": "x"}, "one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
    ],
)
def test_what_does_not_go_together(options, words):
    refused(words, **options)


def test_what_is_for_streams():
    refused(
        "not allowed for reading a batch", Mode.BATCH, valueFormat="columns", schemaEvolutionMode="restart"
    )
