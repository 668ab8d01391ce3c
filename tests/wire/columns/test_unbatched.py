import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import decode_singles, encode_singles
from pulsar_spark.wire.columns.message_columns import MessageColumns
from pulsar_spark.wire.entry.entries import Entries, Entry


def entry(metadata: pb.MessageMetadata, payload: bytes | memoryview) -> Entry:
    return Entry(1, 2, metadata, payload, None)


def single(payload: bytes = b"", **fields: Any) -> Entry:
    required: dict[str, Any] = {"producer_name": b"p", "sequence_id": 0, "publish_time": 0}
    return entry(pb.MessageMetadata(**(required | fields)), payload)


def sent(columns: MessageColumns) -> list[Entry]:
    """Make entries of encoded messages as a producer does: its own fields first, then the message's."""
    entries = []
    for sequence_id, (metadata, payload, *_) in enumerate(encode_singles(columns)):
        own = pb.MessageMetadata(producer_name=b"p", sequence_id=sequence_id, publish_time=2)
        whole = own.SerializeToString() + metadata
        entries.append(entry(pb.MessageMetadata.FromString(whole), memoryview(payload)))
        assert entries[-1].metadata.SerializeToString() == whole
    return entries


OPTIONAL_BYTES = st.one_of(st.none(), st.binary(max_size=9), st.text(max_size=200).map(str.encode))
PROPERTIES = st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=3)
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=300)),
        OPTIONAL_BYTES,
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        PROPERTIES,
        OPTIONAL_BYTES,
    ),
    min_size=1,
    max_size=9,
)


@given(ROWS, st.integers(0, 2))
def test_what_is_encoded_is_decoded_to_the_same(rows, before):
    value, key, event_time, properties, ordering_key = zip(*rows, strict=True)
    columns = MessageColumns(
        value=pa.array([b"other"] * before + list(value), pa.binary()).slice(before),
        key=pa.array(key, pa.binary()),
        event_time=pa.array(event_time, pa.int64()),
        properties=pa.array(properties, pa.map_(pa.string(), pa.string())),
        ordering_key=pa.array(ordering_key, pa.binary()),
    )
    entries = sent(columns)
    for one, expected in zip(entries, rows, strict=True):
        assert one.metadata.null_value == (expected[0] is None)
        assert one.payload == (expected[0] or b"")
    decoded = decode_singles(Entries.of(entries))
    count = len(rows)
    assert decoded.value.to_pylist() == list(value)
    assert decoded.key.to_pylist() == list(key)
    assert (decoded.event_time or pa.nulls(count)).to_pylist() == list(event_time)
    assert (decoded.ordering_key or pa.nulls(count)).to_pylist() == list(ordering_key)
    assert (decoded.properties or pa.array([[]] * count)).to_pylist() == list(properties)
    assert decoded.sequence_id is not None
    assert decoded.sequence_id.to_pylist() == list(range(count))


def test_columns_that_no_message_has_are_none():
    columns = decode_singles(Entries.of([single(b"v")]))
    assert columns.event_time is None
    assert columns.properties is None
    assert columns.ordering_key is None


def test_what_is_set_to_zero_or_empty_is_not_null():
    columns = decode_singles(
        Entries.of([single(partition_key=b"", event_time=0, ordering_key=b""), single()])
    )
    assert columns.value.to_pylist() == [b"", b""]
    assert columns.key.to_pylist() == [b"", None]
    assert columns.event_time is not None
    assert columns.event_time.to_pylist() == [0, None]
    assert columns.ordering_key is not None
    assert columns.ordering_key.to_pylist() == [b"", None]


def test_a_null_key_is_null_whatever_else_is_set():
    assert decode_singles(
        Entries.of([single(partition_key=b"k", null_partition_key=True)])
    ).key.to_pylist() == [None]


def test_numbers_beyond_int64_come_out_negative():
    columns = decode_singles(Entries.of([single(sequence_id=2**64 - 1, event_time=2**63)]))
    assert columns.sequence_id is not None
    assert columns.sequence_id.to_pylist() == [-1]
    assert columns.event_time is not None
    assert columns.event_time.to_pylist() == [-(2**63)]


def test_base64_keys_are_decoded_and_bad_ones_refused():
    good = single(partition_key=b"/wA=", partition_key_b64_encoded=True)
    assert decode_singles(Entries.of([good, single(partition_key=b"/wA=")])).key.to_pylist() == [
        b"\xff\0",
        b"/wA=",
    ]
    with pytest.raises(CorruptError):
        decode_singles(Entries.of([single(partition_key=b"no base64", partition_key_b64_encoded=True)]))


def test_text_that_is_not_utf8_survives_as_far_as_its_column_can_hold_it():
    head = single().metadata.SerializeToString()
    foreign = head + b"\x22\x08\x0a\x02\xffk\x12\x02\xfev" + b"\x32\x02\xc3\x28"
    columns = decode_singles(Entries.of([entry(pb.MessageMetadata.FromString(foreign), b"")]))
    assert columns.key.to_pylist() == [b"\xc3\x28"]
    assert columns.properties is not None
    assert columns.properties.to_pylist() == [[("\ufffdk", "\ufffdv")]]


@pytest.mark.parametrize(("size", "kind"), [(100, bytes), (10_000, memoryview)])
def test_large_payloads_are_views_of_the_column(size: int, kind: type) -> None:
    values = [b"left out", b"a" * size, b"b" * size, b"left out"]
    value = pa.array(values, pa.binary())[1:3]
    encoded = encode_singles(MessageColumns(value=value, key=pa.nulls(2, pa.binary())))
    assert [bytes(each.payload) for each in encoded] == values[1:3]
    assert [type(each.payload) for each in encoded] == [kind, kind]


def test_a_slice_has_its_own_rows() -> None:
    value = pa.array([b"%d" % number for number in range(12)], pa.binary())
    key = pa.array([None, *(b"k%d" % number for number in range(11))], pa.binary())
    encoded = encode_singles(MessageColumns(value=value, key=key)).with_ids(np.arange(12) * 7)
    rows = list(encoded)
    assert [row.sequence_ids for row in rows] == [(number * 7,) * 2 for number in range(12)]
    assert encoded.sizes.tolist() == [len(row.metadata) + len(row.payload) for row in rows]
    for first, stop in itertools.combinations_with_replacement(range(-13, 14), 2):
        part = encoded[first:stop]
        assert list(part) == rows[first:stop]
        assert len(part) == len(part.sizes) == len(rows[first:stop])
    assert [encoded[number] for number in range(-12, 12)] == rows * 2
    with pytest.raises(IndexError):
        encoded[12]


def test_no_entries_and_no_rows():
    assert len(decode_singles(Entries.of([]))) == 0
    empty = pa.array([], pa.binary())
    assert list(encode_singles(MessageColumns(value=empty, key=empty))) == []


def test_a_time_of_delivery_is_a_field_of_its_own():
    columns = MessageColumns(
        value=pa.array([b"v"] * 3, pa.binary()),
        key=pa.nulls(3, pa.binary()),
        deliver_at=pa.array([2**41, None, -1], pa.int64()),
    )
    found = [one.metadata for one in sent(columns)]
    assert [one.deliver_at_time for one in found] == [2**41, 0, -1]
    assert [one.HasField("deliver_at_time") for one in found] == [True, False, True]
