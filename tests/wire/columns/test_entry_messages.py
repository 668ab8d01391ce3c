"""Batches both ways, against the protobuf classes and against themselves."""

import random
from dataclasses import fields, replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError, OptionError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import decode_batches, encode_batch_messages
from pulsar_spark.wire.columns.message_columns import MessageColumns
from tests.loops import for_each
from tests.wire.columns.batch_rows import (
    Row,
    foreign_messages,
    frame,
    message,
    parsed,
    rows_of_few_kinds,
    to_columns,
    to_rows,
)

ONE, TWO = message(b"v"), message(b"w", partition_key=b"k") * 2


class Decoded(NamedTuple):
    rows: list[Row]
    remaining: list[int]
    batch_index: list[int]


def listed(decoded):
    return Decoded(to_rows(decoded.columns), decoded.remaining.tolist(), decoded.batch_index.tolist())


def one_by_one(payloads, counts):
    alone = [together([payload], [count]) for payload, count in zip(payloads, counts, strict=True)]
    return Decoded(*(list(chain.from_iterable(parts)) for parts in zip(*alone, strict=True)))


def together(payloads, counts):
    return listed(decode_batches(payloads, counts))


WAYS = (one_by_one, together)
each_way = pytest.mark.parametrize("decode", WAYS)


def encoded_payloads(batches):
    return [encode_batch_messages(to_columns(rows)).buffer for rows in batches]


def whole(batches):
    """What is decoded of batches of which compaction took nothing."""
    return Decoded(
        [row for rows in batches for row in rows],
        [len(rows) for rows in batches],
        [index for rows in batches for index in range(len(rows))],
    )


def decoded_or_none(decode, payloads, counts):
    try:
        return decode(payloads, counts)
    except CorruptError:
        return None


# ---- encoding


def sliced(columns, first, count):
    """Some rows, without a copy."""
    parts = {field.name: getattr(columns, field.name) for field in fields(columns)}
    return replace(
        columns, **{name: part.slice(first, count) for name, part in parts.items() if part is not None}
    )


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


@given(rows_of_few_kinds(), st.integers(0, 3), st.integers(0, 3))
def test_slices_of_columns_are_encoded_alike(rows, before, after):
    part = sliced(to_columns([Row(b"x", b"y")] * before + rows + [Row(None)] * after), before, len(rows))
    encoded, expected = encode_batch_messages(part), encode_batch_messages(to_columns(rows))
    assert encoded.buffer == expected.buffer
    assert encoded.offsets.tolist() == expected.offsets.tolist()


@given(rows_of_few_kinds(), st.integers(0, 3), st.data())
def test_rows_are_encoded_in_the_order_that_is_given(rows, before, data):
    columns = sliced(to_columns([Row(None, b"y")] * before + rows), before, len(rows))
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)[data.draw(st.integers(0, 2)) :]
    encoded = encode_batch_messages(columns, order=order)
    expected = encode_batch_messages(columns.take(pa.array(order)))
    assert encoded.buffer == expected.buffer
    assert encoded.offsets.tolist() == expected.offsets.tolist()


def test_a_null_value_in_another_order_has_no_bytes_whatever_lies_below_it():
    whole = pa.array([b"a", b"below", b"c"], pa.binary())
    value = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), *whole.buffers()[1:]])
    columns = MessageColumns(value=value, key=pa.nulls(3, pa.binary()))
    encoded = encode_batch_messages(columns, order=np.array([1, 2, 0]))
    assert parsed(bytes(encoded.buffer), 3) == [Row(None), Row(b"c"), Row(b"a")]


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


# ---- decoding what we encode


@each_way
@given(st.lists(rows_of_few_kinds(), min_size=1, max_size=5))
def test_what_is_encoded_is_decoded_to_the_same(decode, batches):
    payloads = encoded_payloads(batches)
    assert payloads[0].format == "B"
    assert decode(payloads, [len(rows) for rows in batches]) == whole(batches)


@given(rows_of_few_kinds(), st.data())
def test_any_runs_of_encoded_messages_are_batches(rows, data):
    encoded = encode_batch_messages(to_columns(rows))
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows)), max_size=4))})
    batches = [rows[first:last] for first, last in pairwise(cuts)]
    payloads = [encoded.buffer[first:last] for first, last in pairwise(encoded.offsets[cuts])]
    for decode in WAYS:
        assert decode(payloads, list(map(len, batches))) == whole(batches)


@each_way
def test_keys_that_are_not_utf8_travel_as_base64_and_arrive_as_bytes(decode):
    keys = [b"\xff\x00", b"text", "ключ".encode(), None, b""]
    plain, encoded = encoded_payloads([[Row(key=b"/wA=")], [Row(key=key) for key in keys]])
    assert b"/wA=" in bytes(encoded)
    assert "ключ".encode() in bytes(encoded)
    found = [row.key for row in decode([plain, encoded, plain], [1, 5, 1]).rows]
    assert found == [b"/wA=", *keys, b"/wA="]


@each_way
def test_values_that_look_like_headers_do_not_mislead(decode):
    lookalike = b"\x00\x00\x00\x09\x12\x03key\x18\x00" * 3
    rows = [
        Row(lookalike if i % 3 else b"\x12\x00\x00\x12", f"key-{i}".encode(), sequence_id=i)
        for i in range(200)
    ]
    batches = [rows[:1], rows[1:90], rows[90:]]
    assert decode(encoded_payloads(batches), [1, 89, 110]) == whole(batches)


@each_way
def test_long_values_and_many_properties_are_read(decode):
    many = tuple((f"name{i}", "v" * i) for i in range(200))
    rows = [
        Row(random.Random(i).randbytes(3000 * i), b"k" * 300 * i, properties=many[: i * 9]) for i in range(25)
    ]
    batches = [rows[:24], rows[24:]]
    assert decode(encoded_payloads(batches), [24, 1]) == whole(batches)


# ---- decoding what others encode


@each_way
@given(
    st.lists(st.lists(foreign_messages(), min_size=1, max_size=5), min_size=1, max_size=3),
    st.sampled_from([1, 8, 30]),
)
def test_decoding_agrees_with_protobuf(decode, batches, times):
    payloads = [b"".join(messages * times) for messages in batches]
    counts = [len(messages) * times for messages in batches]
    expected = [parsed(payload, count) for payload, count in zip(payloads, counts, strict=True)]
    found = decode(payloads, counts)
    assert found.rows == [row for rows in expected for row in rows]
    assert found.remaining == [len(rows) for rows in expected]


def test_columns_that_are_not_requested_are_not_made():
    """Values alone cost no more where messages have keys and properties."""
    pair = pb.KeyValue(key=b"a", value=b"1")
    full = message(b"value", partition_key=b"key", properties=[pair], ordering_key=b"x", event_time=7)
    columns = decode_batches([full * 40], [40]).columns
    assert columns.value.to_pylist() == [b"value"] * 40
    made = {name for name in vars(columns) if not name.startswith("_")}
    assert made == {"value"}


@each_way
@pytest.mark.parametrize("times", [1, 50])
def test_all_fields_of_a_message(decode, times):
    full = message(
        b"value",
        partition_key=b"key",
        event_time=2**64 - 1,
        properties=[pb.KeyValue(key=b"a", value=b"1"), pb.KeyValue(key=b"a", value=b"2")],
        ordering_key=b"\xff",
        sequence_id=2**63,
    )
    bare, null = message(), message(b"left out", null_value=True, event_time=0)
    found = decode([full * times, (bare + null) * times, full], [times, 2 * times, 1])
    row = Row(b"value", b"key", -1, (("a", "1"), ("a", "2")), b"\xff", -(2**63))
    assert found.rows == [row] * times + [Row(), Row(None, event_time=0)] * times + [row]


@each_way
@pytest.mark.parametrize("times", [1, 50])
def test_compacted_messages_are_left_out_and_the_rest_keep_their_index(decode, times):
    body = message(b"a", partition_key=b"k", properties=[pb.KeyValue(key=b"p", value=b"1")])
    gone_too = [pb.KeyValue(key=b"p", value=b"2"), pb.KeyValue(key=b"q", value=b"2")]
    body += message(b"", partition_key=b"gone", compacted_out=True, properties=gone_too)
    body += message(b"c", sequence_id=7, properties=[pb.KeyValue(key=b"p", value=b"3")])
    gone = message(b"", compacted_out=True)
    found = decode([body * times, gone * times, message(b"z")], [3 * times, times, 1])
    kept = [Row(b"a", b"k", properties=(("p", "1"),)), Row(b"c", sequence_id=7, properties=(("p", "3"),))]
    assert found.rows == [*kept * times, Row(b"z")]
    assert found.remaining == [2 * times, 0, 1]
    assert found.batch_index == [*(i for i in range(3 * times) if i % 3 != 1), 0]


@each_way
def test_a_batch_that_is_all_compacted_is_empty(decode):
    assert decode([message(b"", compacted_out=True) * 30], [30]) == Decoded([], [0], [])


@each_way
@pytest.mark.parametrize("times", [1, 50])
def test_no_key_a_null_key_and_the_empty_key_differ(decode, times):
    body = (
        message(b"")
        + message(b"", partition_key=b"")
        + message(b"", partition_key=b"k", null_partition_key=True)
    )
    found = decode([body * times, message(b"", partition_key=b"k")], [3 * times, 1])
    assert [row.key for row in found.rows] == [None, b"", None] * times + [b"k"]


@each_way
@pytest.mark.parametrize("times", [1, 50])
def test_text_that_is_not_utf8_survives_as_far_as_its_column_can_hold_it(decode, times):
    body = frame(b"\x0a\x08\x0a\x02\xffk\x12\x02\xfev" + b"\x12\x02\xc3\x28" + b"\x18\x00")
    plain = message(b"", partition_key=b"k", properties=[pb.KeyValue(key=b"p", value="ü".encode())])
    found = decode([plain, body * times], [1, times]).rows
    assert [row.key for row in found] == [b"k"] + [b"\xc3\x28"] * times
    assert [row.properties for row in found] == [(("p", "ü"),)] + [(("\ufffdk", "\ufffdv"),)] * times


def test_columns_that_no_message_has_are_none():
    for columns in (
        decode_batches([message(b"v")], [1]).columns,
        decode_batches([ONE] * 2, [1, 1]).columns,
    ):
        assert columns.event_time is None
        assert columns.properties is None
        assert columns.ordering_key is None
        assert columns.sequence_id is None


@pytest.mark.parametrize("payload", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("count", [1, 2])
def test_any_buffer_can_be_decoded(payload, count):
    decoded = decode_batches([payload(message(b"v"))] * count, [1] * count)
    assert decoded.columns.value.to_pylist() == [b"v"] * count


# ---- what is corrupt


@given(st.lists(rows_of_few_kinds(), min_size=1, max_size=3), st.data())
def test_damaged_batches_have_one_verdict_whichever_way_they_are_decoded(batches, data):
    batches = [[row._replace(key=b"key") for row in rows] for rows in batches]
    payloads = [bytearray(payload) for payload in encoded_payloads(batches)]
    for _ in range(data.draw(st.integers(0, 3))):
        body = data.draw(st.sampled_from(payloads))
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])))
    counts = [len(rows) for rows in batches]
    first, *others = (decoded_or_none(decode, payloads, counts) for decode in WAYS)
    assert others == [first] * (len(WAYS) - 1)
    if first is not None and all(b"\x30" not in body for body in payloads):
        expected = [
            row for body, count in zip(payloads, counts, strict=True) for row in parsed(bytes(body), count)
        ]
        without_text = [row._replace(properties=()) for row in expected]
        assert [row._replace(properties=()) for row in first.rows] == without_text


@each_way
@pytest.mark.parametrize("count", [3, 24])
def test_every_truncation_and_every_wrong_count_is_refused(decode, count):
    rows = [Row(b"value", b"key", 1, (("a", "b"),), b"o", 2**40)] * count
    (body,) = encoded_payloads([rows])
    body = bytes(body)
    assert len(decode([body] * 3, [count] * 3).rows) == 3 * count
    for size in range(len(body)):
        with pytest.raises(CorruptError):
            decode([body, body[:size], body], [count] * 3)
    for wrong in (-1, 0, count - 1, count + 1, 2**31, 2**63):
        with pytest.raises(CorruptError):
            decode([body, body, body], [count, wrong, count])
    for longer in (body + b"\0", b"\0" + body, body + body):
        with pytest.raises(CorruptError):
            decode([body, longer, body], [count] * 3)


BROKEN = {
    "no payload size": frame(b""),
    "a key only": frame(b"\x12\x01k"),
    "a negative payload size": frame(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    "a payload of 2 GiB": frame(b"\x18\x80\x80\x80\x80\x08"),
    "a varint of 11 bytes": frame(b"\x18" + b"\x80" * 10 + b"\x01"),
    "a varint that ends early": frame(b"\x18\x80"),
    "a payload size of bytes": frame(b"\x1a\x00"),
    "a key that is a number": frame(b"\x10\x01\x18\x00"),
    "a key that ends beyond the metadata": frame(b"\x18\x00\x12\x05abc"),
    "a key of 2**63 bytes": frame(b"\x18\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    "field 0": frame(b"\x18\x00\x00\x00"),
    "a group": frame(b"\x18\x00\x63\x64"),
    "a property without value": frame(b"\x18\x00\x0a\x03\x0a\x01k"),
    "a property that ends early": frame(b"\x18\x00\x0a\x06\x0a\x01k\x12\x05v"),
    "a payload that ends early": frame(b"\x18\x01"),
    "metadata of 4 GiB": b"\xff\xff\xff\xff\x18\x00",
    "metadata that ends early": b"\x00\x00\x00\x03\x18\x00",
    "a key that is not base64": message(b"", partition_key=b"no base64", partition_key_b64_encoded=True),
}


@each_way
@for_each("times", [1, 50])
@for_each("broken", BROKEN.values())
def test_malformed_messages_are_refused(decode, broken, times):
    good = message(b"x")
    for body, count in (
        (broken * times, times),
        (good * times + broken, times + 1),
        (broken + good * times, times + 1),
        (good * times + broken + good, times + 2),
    ):
        for payloads, counts in (
            ([body], [count]),
            ([body, good], [count, 1]),
            ([good, body], [1, count]),
            ([good, body, good * times], [1, count, times]),
        ):
            with pytest.raises(CorruptError):
                decode(payloads, counts)


SHIFTED = {
    "a message too much, one too few": ([ONE + TWO, TWO], [2, 3]),
    "a byte too few, one too much": ([ONE[:-1], ONE[-1:] + TWO], [1, 2]),
    "a byte too much, one too few": ([ONE + TWO[:1], TWO[1:]], [1, 2]),
    "none after all": ([ONE, TWO], [3, 0]),
    "all after none": ([ONE, TWO], [0, 3]),
    "fewer than none": ([ONE, TWO], [4, -1]),
    "an empty payload": ([ONE, b"", TWO], [1, 1, 1]),
    "an empty payload of no messages": ([ONE, b"", TWO], [1, 0, 2]),
}


@each_way
@for_each("case", SHIFTED.values())
def test_a_batch_is_not_continued_by_the_next(decode, case):
    """The buffer is well-formed as a whole, and is cut in the wrong places."""
    payloads, counts = case
    with pytest.raises(CorruptError):
        decode(payloads, counts)


def test_sizes_that_are_wrong_but_for_their_sum_are_refused():
    body, right = ONE + TWO, len(ONE)
    assert len(decode_batches([body[:right], body[right:]], [1, 2]).columns) == 3
    for shift in (1, -1, len(TWO) // 2, -len(ONE)):
        with pytest.raises(CorruptError, match="does not end with its last message"):
            decode_batches([body[: right + shift], body[right + shift :]], [1, 2])


def test_more_than_arrow_can_hold_and_more_messages_than_bytes_are_refused_unread():
    huge = np.zeros(2**31, np.uint8)  # pages that nobody touches take no memory
    with pytest.raises(CorruptError, match=f"a batch of {2**31} bytes"):
        decode_batches([huge.data], [2])
    with pytest.raises(CorruptError, match="cannot hold 4000000000 messages"):
        decode_batches([ONE] * 2, np.array([2 * 10**9, 2 * 10**9]))


@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize("key", [b"k", b"a longer key of 27 bytes...", b"k" * 200])
def test_a_key_that_ends_the_buffer(key, count):
    """Messages without a value whose key is written last: nothing comes after the last one's bytes."""
    size = b"\x18\x00"  # payload_size, before the key
    length = len(key).to_bytes(1, "big") if len(key) < 128 else bytes([len(key) & 0x7F | 0x80, len(key) >> 7])
    body = frame(size + b"\x12" + length + key) * count
    assert body.endswith(key)
    assert together([body], [count]).rows == [Row(value=b"", key=key)] * count
