"""Columns as protobuf fields: the bytes are protobuf's own."""

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.arrow.join import big_endian, bytes_field
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.message_columns import flag_field, number_field, properties_field, size_field
from tests.arrow.test_join import items_of


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_numbers_are_fields_as_protobuf_writes_them(numbers):
    found = items_of(number_field(b"\x28", pa.array(numbers, pa.int64())), len(numbers))
    for number, encoded in zip(numbers, found, strict=True):
        known = {} if number is None else {"event_time": number % 2**64}
        assert encoded == pb.SingleMessageMetadata(**known).SerializePartialToString()


@given(st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=1))
def test_bytes_are_fields_as_protobuf_writes_them(rows):
    found = items_of(bytes_field(b"\x3a", pa.array(rows, pa.binary())), len(rows))
    for row, encoded in zip(rows, found, strict=True):
        assert encoded == pb.SingleMessageMetadata(ordering_key=row).SerializePartialToString()


@given(st.lists(st.lists(st.tuples(st.text(max_size=200), st.text(max_size=4)), max_size=3), min_size=2))
def test_properties_are_fields_as_protobuf_writes_them(rows):
    maps = pa.array(rows, pa.map_(pa.string(), pa.string()))
    found = items_of(properties_field(b"\x0a", maps.slice(1)), len(rows) - 1)
    for row, encoded in zip(rows[1:], found, strict=True):
        pairs = [pb.KeyValue(key=name.encode(), value=value.encode()) for name, value in row]
        assert encoded == pb.SingleMessageMetadata(properties=pairs).SerializePartialToString()


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1))
@example([300, 300, 300])
@example([300, 300, 5])
def test_sizes_may_repeat_or_differ(sizes):
    found = items_of([size_field(b"\x18", np.array(sizes)), big_endian(np.array(sizes))], len(sizes))
    for size, encoded in zip(sizes, found, strict=True):
        field = pb.SingleMessageMetadata(payload_size=size).SerializeToString()
        assert encoded == field + size.to_bytes(4, "big")


def test_flags_are_written_where_they_are_set():
    assert items_of(flag_field(b"\x48", np.array([True, False, True])), 3) == [b"\x48\x01", b"", b"\x48\x01"]
    assert flag_field(b"\x48", np.array([False])) == []
