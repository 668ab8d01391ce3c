"""Headers that are laid out alike are read as a scan reads them; all others are left to the walk."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow import arrays
from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import _BATCH_NUMBERS as NUMBERS
from pulsar_spark.wire.columns.message_columns import DecodedColumns
from pulsar_spark.wire.fields import field_walk
from pulsar_spark.wire.fields.batch_fields import scan
from pulsar_spark.wire.fields.field_spans import KEY, MAX_PROPERTIES, PAYLOAD_SIZE
from pulsar_spark.wire.fields.field_walk import first_layout, read_alike
from tests.wire.fields.test_batch_fields import as_array, assert_same, message

COUNT = 30
NONE = np.array([], np.int64)
PADDING = bytes(8)  # a body need not end with a message


def read(messages, max_properties=MAX_PROPERTIES):
    """The fields, with the values that the caller of ``read`` knows; None if they were not read."""
    body = as_array(b"".join(messages) + PADDING)
    starts = np.cumsum([0, *map(len, messages[:-1])])
    layout = first_layout(body)
    fields = None if layout is None else read_alike(body, starts, layout, max_properties)
    if fields is not None:
        fields.value = starts + layout.size, starts + list(map(len, messages))
    return fields


def columns(body, fields, held):
    """What is read of the rows ``held``, or of all."""
    found = DecodedColumns(pa.py_buffer(body), fields, NUMBERS, held)
    return found.value, found.key, found.ordering_key, found.properties, found.event_time, found.sequence_id


def sizes_of(varint_size):
    """Numbers whose varint has so many bytes."""
    return st.integers(0 if varint_size == 1 else 1 << 7 * (varint_size - 1), (1 << 7 * varint_size) - 1)


@st.composite
def alike(draw, one_size):
    """Messages whose headers have one layout, and differ in all that may differ; the values have one size, or
    each another."""
    texts = {
        name: draw(st.integers(0, 9))
        for name in draw(st.sets(st.sampled_from(["partition_key", "ordering_key"])))
    }
    numbers = {
        name: draw(st.integers(1, 8))
        for name in draw(st.sets(st.sampled_from(["event_time", "sequence_id"])))
    }
    properties = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=3))
    count = draw(st.integers(2 if one_size else 3, 6))
    payload = st.integers(*draw(st.sampled_from([(0, 127), (128, 400)])))
    sizes = draw(st.lists(payload, min_size=count, max_size=count, unique=True))

    def one(size):
        fields = {name: draw(st.binary(min_size=size, max_size=size)) for name, size in texts.items()}
        fields |= {name: draw(sizes_of(size)) for name, size in numbers.items()}
        fields["properties"] = [
            pb.KeyValue(key=bytes(key), value=draw(st.binary(min_size=value, max_size=value)))
            for key, value in properties
        ]
        fields["null_value"] = draw(st.booleans())
        fields["null_partition_key"] = draw(st.booleans())
        return message(bytes(size), **fields)

    return [one(sizes[0] if one_size else size) for size in sizes]


@pytest.mark.parametrize("one_size", [True, False])
@pytest.mark.parametrize("short", [0, 1000], ids=["copied", "in place"])
def test_headers_of_one_layout_are_read_as_a_scan_reads_them(short, one_size, monkeypatch):
    monkeypatch.setattr(field_walk, "_SHORT", short)
    monkeypatch.setattr(arrays, "_SHORT", 1)

    @given(alike(one_size), st.data())
    def of(messages, data):
        body, found = b"".join(messages), read(messages)
        expected = scan(body, len(messages))
        assert_same(found, expected)
        held = np.array(sorted(data.draw(st.sets(st.integers(0, len(messages) - 1)))), np.int64)
        for which in (None, held, NONE):
            assert columns(body + PADDING, found, which) == columns(body, expected, which)
        assert (found.grid is not None) == one_size

    of()
    messages = [message(bytes(9 if one_size else 9 + i), partition_key=b"key") for i in range(COUNT)]
    is_in_place = len(read(messages).alike.body) == len(b"".join(messages) + PADDING)
    assert is_in_place == bool(short and one_size)


def test_the_max_properties_of_a_batch():
    messages = [message(b"v", properties=[pb.KeyValue(key=b"k", value=b"v")] * 3)] * 10
    for fields in (read(messages), scan(b"".join(messages), 10)):
        assert fields.max_properties(np.array([0, 2, 7])) == 15
    assert scan(message(b"v") * 3, 3).max_properties(np.array([0])) == 0


def test_each_number_of_one_to_eight_bytes_is_read():
    for size in range(1, 9):
        low, high = 0 if size == 1 else 1 << 7 * (size - 1), (1 << 7 * size) - 1
        numbers = [low, high, *(low | 1 << bit for bit in range(7 * size)), high ^ 0x55 & high]
        messages = [message(b"v", sequence_id=number) for number in numbers]
        assert read(messages).numbers[8][0].tolist() == numbers


def test_each_bit_of_the_layout_counts():
    """A bit that differs in one message is read as a scan reads it, or makes all be left to others."""
    fields = {"partition_key": b"key", "event_time": 300, "properties": [pb.KeyValue(key=b"k", value=b"vvv")]}
    one = message(b"v" * 200, **fields)
    layout = first_layout(as_array(one + PADDING))
    was_read = 0
    for place in range(8 * layout.size):
        other = bytearray(one)
        other[place // 8] ^= 1 << place % 8
        messages = [one, one, bytes(other), one]
        found = read(messages)
        if found is None:
            continue
        was_read += 1
        try:
            expected = scan(b"".join(messages), 4)
        except (
            CorruptError
        ):  # the size of the payload: the caller sees that the next message begins elsewhere
            assert found.numbers[PAYLOAD_SIZE][0][2] != 200
        else:
            assert_same(found, expected)
    # The key, the property and its value, and two numbers of two bytes.
    assert was_read == 8 * (3 + 1 + 3) + 7 * (2 + 2)


@pytest.mark.parametrize(
    "first",
    [
        b"\x00\x00\x00\x02\x18",  # ends too early
        b"\x00\x00\x01\x00\x18\x01" + bytes(250),  # long
        b"\x00\x00\x00\x03\x18\xff\xff",  # a number without an end
        b"\x00\x00\x00\x0b\x18" + b"\x80" * 9 + b"\x01",  # a number of ten bytes
        b"\x00\x00\x00\x04\x18\x01\x58\x01",  # a field that nobody knows
        b"\x00\x00\x00\x04\x12\x07kk",  # a key that ends after the header
        b"\x00\x00\x00\x06\x0a\x04\x0a\x09\x12\x00",  # a property's name that ends after it
        b"\x00\x00\x00\x06\x0a\x04\x12\x00\x0a\x00",  # its value first
        b"\x00\x00\x00\x07\x0a\x05\x0a\x00\x12\x00x",  # bytes after its value
        b"\x00\x00\x00\x04\x0a\x02\x0a\x00",  # no value
        b"\x00\x00\x00\x02\x0a\x00",  # neither
    ],
)
def test_an_unusual_first_header_is_left_to_others(first):
    assert first_layout(as_array(first)) is None


def test_headers_that_would_overlap_are_left_to_others():
    """Else a small body could have the properties of a header at each of its bytes."""
    layout = first_layout(as_array(message(b"", properties=[pb.KeyValue(key=b"", value=b"")] * 20)))
    body = as_array(bytes(layout.size * 40))
    assert read_alike(body, np.arange(30) * (layout.size - 1), layout, MAX_PROPERTIES) is None


def test_properties_are_bounded():
    messages = [message(b"v", properties=[pb.KeyValue(key=b"k", value=b"v")] * 3)] * COUNT
    assert len(read(messages, 3 * COUNT).alike.property_names()) == 3 * COUNT
    assert read(messages, 3 * COUNT - 1) is None


def test_headers_up_to_the_end_of_the_body_are_read():
    """A word is never read beyond the body; a header that ends after it is left to others."""
    one = message(b"", partition_key=b"k")
    body, starts = as_array(one * COUNT), np.arange(COUNT) * len(one)
    layout = first_layout(body)
    assert layout.size == len(one)
    for missing in range(1, 9):
        assert read_alike(body[:-missing], starts, layout, 0) is None
    for more in range(20):
        found = read_alike(as_array(one * COUNT + bytes(more)), starts, layout, 0)
        assert found.alike.column(KEY).to_pylist() == [b"k"] * COUNT
