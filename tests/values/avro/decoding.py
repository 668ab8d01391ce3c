"""Schemas and payloads of AVRO, and what is read of them in tests."""

import io
import json

import fastavro
import pyarrow as pa

from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values.avro.avro_read import decoder
from pulsar_spark.values.json_types import column_type
from tests.values.protobuf_files import plain_rows


def avro(tree, **properties):
    return Schema(SchemaType.AVRO, json.dumps(tree).encode(), properties)


def record(*fields, name="R", **more):
    made = [{"name": each[0], "type": each[1], **(each[2] if len(each) > 2 else {})} for each in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def array(items):
    return {"type": "array", "items": items}


def map_of(values):
    return {"type": "map", "values": values}


def encoded(tree, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(tree), value)
    return out.getvalue()


def made(writer, reader=None, target=None, **properties):
    reader = writer if reader is None else reader
    return decoder(
        avro(writer, **properties), avro(reader), column_type(avro(reader)) if target is None else target
    )


def decode(made_decoder, payloads):
    array = pa.array([b"before", *payloads, b"after"], pa.binary())[1:-1]  # with an offset
    return made_decoder.decode(array, pa.nulls(len(array), pa.binary()))


def rows(made_decoder, payloads):
    done = decode(made_decoder, payloads)
    assert done.is_bad is None
    assert done.column.type.equals(made_decoder.type)
    done.column.validate(full=True)
    return plain_rows(done.column)


def renamed(tree, **more):
    return {**tree, **more}
