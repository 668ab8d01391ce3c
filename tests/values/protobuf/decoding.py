"""Payloads of PROTOBUF_NATIVE read in tests: columns, rows and reasons."""

import pyarrow as pa

from pulsar_spark.values import formats
from tests.values.protobuf_files import file, plain_rows, schema


def decode(of, payloads, target=None, writer=None):
    target = formats.column_type(of) if target is None else target
    decoder = formats.decoder(writer or of, of, target)
    found = decoder.decode(pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.binary()))
    found.column.validate(full=True)
    assert found.column.type == decoder.type
    assert len(found.column) == len(payloads)
    for payload, is_bad in zip(payloads, bad_rows(found), strict=True):
        assert not is_bad or decoder.explain(payload, None)
    return found


def bad_rows(found):
    assert found.is_bad is None or found.is_bad.any()
    return [False] * len(found.column) if found.is_bad is None else found.is_bad.tolist()


def rows_of(found):
    return plain_rows(found.column)


def read(text, payload, syntax="proto3", target=None):
    """The row of one payload of message M0, which is good."""
    found = decode(schema(file(text, syntax), "p.M0"), [payload], target)
    assert found.is_bad is None
    return rows_of(found)[0]


def why(text, payload, syntax="proto3"):
    of = schema(file(text, syntax), "p.M0")
    found = decode(of, [payload])
    assert bad_rows(found) == [True]
    assert rows_of(found) == [None]
    return formats.decoder(of, of, formats.column_type(of)).explain(payload, None)


def column_type(text, syntax="proto3"):
    return formats.column_type(schema(file(text, syntax), "p.M0"))
