"""Batches both ways, against the protobuf classes and against themselves."""

import random
import struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError, OptionError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.batches import DecodedBatch, decode_batch, decode_batches, encode_batch_messages
from pulsar_spark.wire.message_columns import MessageColumns

INT64 = st.integers(-(2**63), 2**63 - 1)


class Row(NamedTuple):
    value: bytes | None = b""
    key: bytes | None = None
    event_time: int | None = None
    properties: tuple[tuple[str, str], ...] = ()
    ordering_key: bytes | None = None
    sequence_id: int | None = None


def often(value, rarely):
    return st.one_of(value, value, rarely)


def rows_of_few_kinds():
    """Rows whose fields are set alike or not, few or enough for the path that reads all at once."""
    texts = st.text(max_size=9)
    keys = st.one_of(st.binary(max_size=9), st.text("abc", min_size=1, max_size=200).map(str.encode))
    row = st.builds(
        Row,
        value=often(
            st.binary(max_size=40), st.sampled_from([None, b"", b"v" * 127, b"v" * 128, b"v" * 20_000])
        ),
        key=often(keys, st.none()),
        event_time=often(st.none(), INT64),
        properties=often(st.just(()), st.lists(st.tuples(texts, texts), max_size=3).map(tuple)),
        ordering_key=often(st.none(), keys),
        sequence_id=often(INT64, st.none()),
    )
    return st.builds(
        lambda rows, times: rows * times, st.lists(row, min_size=1, max_size=6), st.sampled_from([1, 6, 40])
    )


def to_columns(rows: list[Row]) -> MessageColumns:
    value, key, event_time, properties, ordering_key, sequence_id = zip(*rows, strict=True)
    return MessageColumns(
        value=pa.array(value, pa.binary()),
        key=pa.array(key, pa.binary()),
        event_time=pa.array(event_time, pa.int64()),
        properties=pa.array(properties, pa.map_(pa.string(), pa.string())),
        ordering_key=pa.array(ordering_key, pa.binary()),
        sequence_id=pa.array(sequence_id, pa.int64()),
    )


def to_rows(columns: MessageColumns) -> list[Row]:
    count = len(columns)

    def listed(array, unset):
        return [unset] * count if array is None else array.to_pylist()

    for array in (columns.value, columns.key, columns.properties, columns.ordering_key):
        if array is not None:
            array.validate(full=True)
    return [
        Row(*fields)
        for fields in zip(
            listed(columns.value, None),
            listed(columns.key, None),
            listed(columns.event_time, None),
            [tuple(each) for each in listed(columns.properties, ())],
            listed(columns.ordering_key, None),
            listed(columns.sequence_id, None),
            strict=True,
        )
    ]


def frame(metadata: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(metadata)) + metadata + payload


def message(payload: bytes = b"", **fields: Any) -> bytes:
    metadata = pb.SingleMessageMetadata(payload_size=len(payload), **fields)
    return frame(metadata.SerializeToString(), payload)


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def parsed(body: bytes, count: int) -> list[Row]:
    """Read a batch of messages with the protobuf class; keys must not be flagged as base64."""
    rows = []
    at = 0
    for _ in range(count):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(body[at + 4 : end])
        at = end + single.payload_size
        assert end <= at <= len(body)
        if single.compacted_out:
            continue
        key = single.partition_key
        no_key = single.null_partition_key or not single.HasField("partition_key")
        rows.append(
            Row(
                None if single.null_value else body[end:at],
                None if no_key else key if isinstance(key, bytes) else key.encode(),
                signed(single.event_time) if single.HasField("event_time") else None,
                tuple((each.key, each.value) for each in single.properties),
                single.ordering_key if single.HasField("ordering_key") else None,
                signed(single.sequence_id) if single.HasField("sequence_id") else None,
            )
        )
    assert at == len(body)
    return rows


@given(rows_of_few_kinds())
def test_what_is_encoded_is_decoded_to_the_same(rows):
    encoded = encode_batch_messages(to_columns(rows))
    assert encoded.buffer.format == "B"
    decoded = decode_batch(encoded.buffer, len(rows))
    assert decoded.batch_index is None
    assert to_rows(decoded.columns) == rows


@settings(max_examples=40)
@given(rows_of_few_kinds(), st.data())
def test_any_run_of_encoded_messages_is_a_batch(rows, data):
    encoded = encode_batch_messages(to_columns(rows))
    first, last = sorted((data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(1, len(rows)))))
    part = encoded.buffer[encoded.offsets[first] : encoded.offsets[last]]
    if first < last:
        assert to_rows(decode_batch(part, last - first).columns) == rows[first:last]


@given(rows_of_few_kinds())
def test_encoded_messages_are_what_protobuf_would_write(rows):
    encoded = encode_batch_messages(to_columns(rows))
    for row, start, end in zip(rows, encoded.offsets, encoded.offsets[1:], strict=False):
        body = bytes(encoded.buffer[start:end])
        size = int.from_bytes(body[:4], "big")
        single = pb.SingleMessageMetadata.FromString(body[4 : 4 + size])
        assert single.SerializeToString() == body[4 : 4 + size]
        assert single.null_value == (row.value is None)
        if not single.partition_key_b64_encoded:
            assert parsed(body, 1) == [row]


@settings(max_examples=40)
@given(rows_of_few_kinds(), st.integers(0, 3), st.integers(0, 3))
def test_slices_of_columns_are_encoded_alike(rows, before, after):
    whole = to_columns([Row(b"x", b"y")] * before + rows + [Row(None)] * after)
    count = len(rows)
    part = MessageColumns(
        value=whole.value.slice(before, count),
        key=whole.key.slice(before, count),
        event_time=whole.event_time.slice(before, count),
        properties=whole.properties.slice(before, count),
        ordering_key=whole.ordering_key.slice(before, count),
        sequence_id=whole.sequence_id.slice(before, count),
    )
    encoded, expected = encode_batch_messages(part), encode_batch_messages(to_columns(rows))
    assert encoded.buffer == expected.buffer
    assert encoded.offsets.tolist() == expected.offsets.tolist()


def foreign_messages():
    """Messages in every form that protobuf allows: odd order, unknown and repeated fields, flags."""
    varints = st.one_of(st.integers(0, 200), st.integers(0, 2**64 - 1))
    texts = st.binary(max_size=6)

    def varint(number):
        low, rest = number & 0x7F, number >> 7
        return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])

    def of_bytes(tag, content):
        return varint(tag) + varint(len(content)) + content

    utf8 = st.text(max_size=4).map(str.encode)
    keyvalue = st.builds(
        lambda k, v, x: of_bytes(0x0A, k) + of_bytes(0x12, v) + x,
        utf8,
        utf8,
        st.sampled_from([b"", b"\x18\x05"]),
    )
    field = st.one_of(
        st.builds(of_bytes, st.just(0x12), texts),
        st.builds(of_bytes, st.just(0x0A), keyvalue),
        st.builds(of_bytes, st.just(0x3A), texts),
        st.builds(lambda tag, n: varint(tag) + varint(n), st.sampled_from([0x28, 0x40]), varints),
        st.sampled_from([b"\x48\x01", b"\x48\x00", b"\x50\x01", b"\x20\x01", b"\x20\x00", b"\x20\x80\x00"]),
        st.builds(of_bytes, st.sampled_from([0x62, 0x7FF2]), texts),
        st.builds(lambda n: b"\x88\x01" + varint(n), varints),
        st.sampled_from([b"\x8d\x01abcd", b"\x89\x01abcdefgh", b"\x92\x00\x03key"]),
    )

    def put_together(fields, place, payload):
        fields = fields.copy()
        fields.insert(min(place, len(fields)), b"\x18" + varint(len(payload)))
        return frame(b"".join(fields), payload)

    return st.builds(put_together, st.lists(field, max_size=4), st.integers(0, 4), st.binary(max_size=30))


@given(st.lists(foreign_messages(), min_size=1, max_size=5), st.sampled_from([1, 8, 30]))
def test_decoding_agrees_with_protobuf(messages, times):
    body, count = b"".join(messages * times), len(messages) * times
    decoded = decode_batch(body, count)
    assert to_rows(decoded.columns) == parsed(body, count)


@given(rows_of_few_kinds(), st.data())
def test_damaged_batches_are_refused_or_still_agree_with_protobuf(rows, data):
    encoded = encode_batch_messages(to_columns([row._replace(key=b"key") for row in rows]))
    body = bytearray(encoded.buffer)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])))
    decoded = decoded_or_none(bytes(body), len(rows))
    if decoded is not None and b"\x30" not in body:
        text = [row._replace(properties=()) for row in parsed(bytes(body), len(rows))]
        assert [row._replace(properties=()) for row in to_rows(decoded.columns)] == text


def decoded_or_none(body: bytes, count: int) -> DecodedBatch | None:
    try:
        return decode_batch(body, count)
    except CorruptError:
        return None


@pytest.mark.parametrize("count", [3, 30])
def test_every_truncation_and_every_wrong_count_is_refused(count):
    rows = [Row(b"value", b"key", 1, (("a", "b"),), b"o", 2**40)] * count
    body = bytes(encode_batch_messages(to_columns(rows)).buffer)
    for size in range(len(body)):
        with pytest.raises(CorruptError):
            decode_batch(body[:size], count)
    for wrong in (-1, 0, count - 1, count + 1, 2**31, 2**63):
        with pytest.raises(CorruptError):
            decode_batch(body, wrong)
    with pytest.raises(CorruptError):
        decode_batch(body + b"\0", count)


@pytest.mark.parametrize("times", [1, 50])
@pytest.mark.parametrize(
    "broken",
    [
        frame(b""),
        frame(b"\x12\x01k"),
        frame(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        frame(b"\x18\x80\x80\x80\x80\x08"),
        frame(b"\x18" + b"\x80" * 10 + b"\x01"),
        frame(b"\x18\x80"),
        frame(b"\x1a\x00"),
        frame(b"\x10\x01\x18\x00"),
        frame(b"\x18\x00\x12\x05abc"),
        frame(b"\x18\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        frame(b"\x18\x00\x00\x00"),
        frame(b"\x18\x00\x63\x64"),
        frame(b"\x18\x00\x0a\x03\x0a\x01k"),
        frame(b"\x18\x00\x0a\x06\x0a\x01k\x12\x05v"),
        frame(b"\x18\x01"),
        b"\xff\xff\xff\xff\x18\x00",
        b"\x00\x00\x00\x03\x18\x00",
        message(b"", partition_key="no base64", partition_key_b64_encoded=True),
    ],
)
def test_malformed_messages_are_refused(broken, times):
    good = message(b"x")
    for body in (broken * times, good * times + broken, broken + good * times):
        with pytest.raises(CorruptError):
            decode_batch(body, body.count(good) + (times if body == broken * times else 1))


@pytest.mark.parametrize("times", [1, 50])
def test_compacted_messages_are_left_out_and_the_rest_keep_their_index(times):
    body = message(b"a", partition_key="k", properties=[pb.KeyValue(key="p", value="1")])
    gone = [pb.KeyValue(key="p", value="2"), pb.KeyValue(key="q", value="2")]
    body += message(b"", partition_key="gone", compacted_out=True, properties=gone)
    body += message(b"c", sequence_id=7, properties=[pb.KeyValue(key="p", value="3")])
    decoded = decode_batch(body * times, 3 * times)
    assert decoded.batch_index is not None
    assert decoded.batch_index.tolist() == [i for i in range(3 * times) if i % 3 != 1]
    expected = [Row(b"a", b"k", properties=(("p", "1"),)), Row(b"c", sequence_id=7, properties=(("p", "3"),))]
    assert to_rows(decoded.columns) == expected * times


def test_a_batch_that_is_all_compacted_is_empty():
    decoded = decode_batch(message(b"", compacted_out=True) * 30, 30)
    assert len(decoded.columns) == 0
    assert decoded.batch_index is not None
    assert len(decoded.batch_index) == 0


@pytest.mark.parametrize("times", [1, 50])
def test_no_key_a_null_key_and_the_empty_key_differ(times):
    body = (
        message(b"")
        + message(b"", partition_key="")
        + message(b"", partition_key="k", null_partition_key=True)
    )
    decoded = decode_batch(body * times, 3 * times)
    assert decoded.columns.key.to_pylist() == [None, b"", None] * times


def test_keys_that_are_not_utf8_travel_as_base64_and_arrive_as_bytes():
    keys = [b"\xff\x00", b"text", "ключ".encode(), None, b""]
    encoded = encode_batch_messages(to_columns([Row(key=key) for key in keys]))
    assert b"/wA=" in bytes(encoded.buffer)
    assert "ключ".encode() in bytes(encoded.buffer)
    assert decode_batch(encoded.buffer, 5).columns.key.to_pylist() == keys


@pytest.mark.parametrize("times", [1, 50])
def test_text_that_is_not_utf8_survives_as_far_as_its_column_can_hold_it(times):
    body = frame(b"\x0a\x08\x0a\x02\xffk\x12\x02\xfev" + b"\x12\x02\xc3\x28" + b"\x18\x00")
    columns = decode_batch(body * times, times).columns
    assert columns.key.to_pylist() == [b"\xc3\x28"] * times
    assert columns.properties.to_pylist() == [[("\ufffdk", "\ufffdv")]] * times


def test_values_that_look_like_headers_do_not_mislead():
    lookalike = b"\x00\x00\x00\x09\x12\x03key\x18\x00" * 3
    rows = [
        Row(lookalike if i % 3 else b"\x12\x00\x00\x12", f"key-{i}".encode(), sequence_id=i)
        for i in range(200)
    ]
    encoded = encode_batch_messages(to_columns(rows))
    assert to_rows(decode_batch(encoded.buffer, 200).columns) == rows


def test_long_values_and_many_properties_are_read():
    many = tuple((f"name{i}", "v" * i) for i in range(200))
    rows = [
        Row(random.Random(i).randbytes(3000 * i), b"k" * 300 * i, properties=many[: i * 9]) for i in range(25)
    ]
    encoded = encode_batch_messages(to_columns(rows))
    assert to_rows(decode_batch(encoded.buffer, 25).columns) == rows


def test_columns_that_no_message_has_are_none():
    columns = decode_batch(message(b"v"), 1).columns
    assert columns.event_time is None
    assert columns.properties is None
    assert columns.ordering_key is None
    assert columns.sequence_id is None


@pytest.mark.parametrize("payload", [bytearray, memoryview, pa.py_buffer])
def test_any_buffer_can_be_decoded(payload):
    assert decode_batch(payload(message(b"v")), 1).columns.value.to_pylist() == [b"v"]


def test_no_rows_are_encoded_to_nothing():
    encoded = encode_batch_messages(
        MessageColumns(value=pa.array([], pa.binary()), key=pa.array([], pa.binary()))
    )
    assert bytes(encoded.buffer) == b""
    assert encoded.offsets.tolist() == [0]


def test_rows_without_bytes_of_their_own_are_encoded():
    encoded = encode_batch_messages(
        MessageColumns(value=pa.nulls(3, pa.binary()), key=pa.nulls(3, pa.binary()))
    )
    assert bytes(encoded.buffer) == message(b"", null_value=True) * 3
    assert np.diff(encoded.offsets).tolist() == [8] * 3


def test_null_properties_are_refused():
    value = pa.array([b"v"], pa.binary())
    for properties in ([None], [[("name", None)]]):
        array = pa.array(properties, pa.map_(pa.string(), pa.string()))
        with pytest.raises(OptionError):
            encode_batch_messages(MessageColumns(value=value, key=value, properties=array))


@settings(max_examples=40)
@given(st.lists(rows_of_few_kinds(), min_size=1, max_size=5))
def test_batches_are_decoded_together_as_they_are_alone(batches):
    payloads = [encode_batch_messages(to_columns(rows)).buffer for rows in batches]
    decoded = decode_batches(payloads, [len(rows) for rows in batches])
    assert to_rows(decoded.columns) == [row for rows in batches for row in rows]
    assert decoded.held.tolist() == [len(rows) for rows in batches]
    assert decoded.batch_index.tolist() == [index for rows in batches for index in range(len(rows))]


def test_batches_together_know_which_messages_compaction_has_left():
    kept, gone = message(b"v"), message(b"", compacted_out=True)
    decoded = decode_batches([kept + gone + kept, gone, kept], [3, 1, 1])
    assert decoded.columns.value.to_pylist() == [b"v"] * 3
    assert decoded.held.tolist() == [2, 0, 1]
    assert decoded.batch_index.tolist() == [0, 2, 0]


def test_a_batch_is_not_continued_by_the_next():
    one, two = message(b"v"), message(b"w", partition_key="k") * 2
    for payloads, counts in (
        ([one + two, two], [2, 3]),
        ([one[:-1], one[-1:] + two], [1, 2]),
        ([one, two], [3, 0]),
        ([one, two], [4, -1]),
    ):
        with pytest.raises(CorruptError):
            decode_batches(payloads, counts)
