import base64
import json

import pytest

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import MAX_BYTES, MAX_MARKS, Schema, SchemaType, parse_json
from pulsar_spark.values import formats

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b" " * (MAX_BYTES + 1), "4194305 bytes"),
        (b"[" + b"{}," * (MAX_MARKS // 2) + b"0]", "250000 commas, colons and brackets"),
        (DEEP, "nested too deeply"),
    ],
)
def test_what_is_too_large_is_not_parsed(data, reason):
    with pytest.raises(UnsupportedError, match=f"{reason}.*valueFormat=raw"):
        parse_json(data)


def test_what_is_not_json_is_said():
    for data in (b"", b"{", b"\xff", b"1" * 5000):
        with pytest.raises(SchemaError, match=r"not JSON.*valueFormat=raw"):
            parse_json(data)
    assert parse_json(b'{"a": [1]}') == {"a": [1]}


def test_definitions_of_all_kinds_are_bounded():
    files = {"rootMessageTypeName": "p.M", "fileDescriptorSet": base64.b64encode(b"").decode()}
    more = json.dumps(files)[:-1].encode() + b', "more": %b}'
    for kind in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE):
        for part in (DEEP, b'"' + b"x" * MAX_BYTES + b'"', b"[" + b"{}," * MAX_MARKS + b"0]"):
            with pytest.raises(UnsupportedError, match="valueFormat=raw"):
                formats.column_type(Schema(kind, more % part))
