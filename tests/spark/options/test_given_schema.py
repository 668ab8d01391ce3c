"""The user's schema: its forms, and what is said about others."""

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pulsar_spark.client import Schema, SchemaType
from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.values import given_schema
from tests.loops import for_each
from tests.values.protobuf_files import file

AVRO, JSON, PROTOBUF = SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE
RECORD = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'


def test_schemas_and_files(tmp_path):
    path = tmp_path / "schéma.avsc"
    path.write_text(RECORD)
    for kind in (AVRO, JSON):
        for given in (RECORD, path):
            assert given_schema("valueSchema", given, kind) == Schema(kind, RECORD.encode())
    for name, number in {"INT64": 9, "BOOLEAN": 5, "LOCAL_DATE": 17, "BYTES": 0}.items():
        assert given_schema("valueSchema", name, None) == Schema(SchemaType(number))
    files = FileDescriptorSet(file=[file("message M0\nint32 a = 1")])
    path.write_bytes(files.SerializeToString())
    assert given_schema("valueSchema", path, PROTOBUF, "p.M0").type is PROTOBUF


SPARK = json.dumps({"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True}]})
JSON_SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


@for_each(
    ("text", "kind", "message", "words"),
    [
        (
            SPARK,
            AVRO,
            None,
            "option keySchema is no schema: .*This is Spark's own JSON .*Write Avro's JSON: {",
        ),
        (JSON_SCHEMA, JSON, None, r"keySchema is no schema: .*This is JSON Schema\. Write Avro's JSON: {"),
        ('{"type": "record"}', AVRO, None, r"keySchema is no schema: it .*\. Write Avro's JSON: {"),
        ("INT64", AVRO, None, "no schema: it is not JSON.*requires schemaType=primitive. Write Avro's JSON"),
        ("INT64", SchemaType.STRING, None, "no schema: 'INT64' is not STRING.*the name of a primitive"),
        (RECORD, None, None, "is not a primitive.*such as INT64"),
        ("AVRO", None, None, "'AVRO' is not a primitive"),
        (RECORD, PROTOBUF, None, r"requires messageName.*the full name, such as shop\.Order"),
        (RECORD, PROTOBUF, "p.M", "must be the path of a file.*protoc --include_imports"),
        (RECORD, AVRO, "p.M", "messageName is for Protobuf"),
    ],
)
def test_what_is_no_schema(text, kind, message, words):
    with pytest.raises(OptionError, match=words):
        given_schema("keySchema", text, kind, message)


def test_bad_files(tmp_path):
    path = tmp_path / "a large file"
    with pytest.raises(OptionError, match=r"valueSchema cannot be read: .*No such file.*driver can read$"):
        given_schema("valueSchema", path, AVRO)
    for ddl in ("id BIGINT, item STRING", "struct<id:bigint>"):
        with pytest.raises(
            OptionError, match=r"cannot be read: .*This looks like Spark's DDL\. Write Avro's JSON"
        ):
            given_schema("valueSchema", Path(ddl), AVRO)
    path.write_bytes(b"x")
    with pytest.raises(OptionError, match=r"the file of valueSchema is not a descriptor set"):
        given_schema("valueSchema", path, PROTOBUF, "p.M0")
    path.write_bytes(b"a token")
    with pytest.raises(OptionError, match=r"schema: '.*large file' is not a primitive\. Write the name"):
        given_schema("valueSchema", path, None)
    path.write_bytes(b" " * (4 << 20) + b'"string"')
    with pytest.raises(OptionError, match=r"a file of more than 4 MiB: .*large file"):
        given_schema("valueSchema", path, AVRO)
