"""A walk over all messages at once finds what a scan of one after the other finds."""

import contextlib
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.fields import batch_fields
from pulsar_spark.wire.fields.batch_fields import (
    _starts_by_search,
    _starts_of_one_size,
    find_fields,
    scan,
)
from pulsar_spark.wire.fields.field_spans import MAX_PROPERTIES, Fields
from pulsar_spark.wire.fields.field_walk import NotPlainError
from tests.loops import for_each

OPTIONAL = {
    "partition_key": st.binary(max_size=6),
    "event_time": st.integers(0, 2**64 - 1),
    "ordering_key": st.binary(max_size=6),
    "sequence_id": st.integers(0, 300),
    "null_value": st.booleans(),
    "compacted_out": st.booleans(),
    "properties": st.lists(
        st.builds(pb.KeyValue, key=st.binary(max_size=4), value=st.binary(max_size=4)), max_size=3
    ),
}


def messages():
    return st.builds(
        lambda fields, payload: message(payload, **fields),
        st.fixed_dictionaries({}, optional=OPTIONAL),
        st.binary(max_size=20),
    )


def message(payload: bytes, **fields: Any) -> bytes:
    metadata = pb.SingleMessageMetadata(payload_size=len(payload), **fields).SerializeToString()
    return len(metadata).to_bytes(4, "big") + metadata + payload


def located(fields: Fields) -> Fields:
    """The same fields, with the positions of those in headers that are alike."""
    if fields.alike is None:
        return fields
    start, layout = fields.start, fields.alike.layout
    has = np.ones(len(start), np.bool_)
    assert not fields.spans
    assert fields.properties is None
    spans = {number: (start + at, start + end, has) for number, (at, end) in layout.spans.items()}
    properties = [
        (row, *(begin + np.array(one).reshape(-1)))
        for row, begin in enumerate(start)
        for one in layout.properties
    ]
    return replace(fields, spans=spans, properties=tuple(np.array(properties).T) if properties else None)


def assert_same(found: Fields, expected: Fields) -> None:
    found = located(found)
    np.testing.assert_array_equal(found.start, expected.start)
    np.testing.assert_array_equal(found.value, expected.value)
    assert found.numbers.keys() == expected.numbers.keys()
    for number, columns in found.numbers.items():
        np.testing.assert_array_equal(columns, expected.numbers[number])
    assert found.spans.keys() == expected.spans.keys()
    for number, (at, end, has) in found.spans.items():
        expected_at, expected_end, expected_has = expected.spans[number]
        np.testing.assert_array_equal(has, expected_has)
        np.testing.assert_array_equal(at[has], expected_at[has])
        np.testing.assert_array_equal(end[has], expected_end[has])
        assert (np.diff(at) >= 0).all()
        assert (end[~has] == at[~has]).all()
    assert (found.properties is None) == (expected.properties is None)
    if found.properties is not None:
        np.testing.assert_array_equal(found.properties, expected.properties)


@given(st.lists(messages(), min_size=1, max_size=6), st.integers(24, 60))
def test_walk_and_scan_agree(kinds, count):
    body = b"".join(kinds[i % len(kinds)] for i in range(count))
    assert_same(find_fields(body, count), scan(body, count))


@pytest.mark.parametrize("payload", [b"v" * 3000, b"\0" * 100, b"\0\0\0\x05\x12\x01k\x18\0" * 9])
def test_long_values_zeros_and_lookalikes_are_walked_over(payload):
    body = b"".join(message(payload, partition_key=b"k" * (i % 9)) for i in range(50))
    assert_same(find_fields(body, 50), scan(body, 50))


@for_each("key", [b"", b"k", b"k" * 245, b"k" * 600])
@for_each("payload", [b"", b"v", b"vv", b"text\n" * 7, b"a\0", b"a\0\0"])
def test_the_search_finds_small_and_large_metadata_at_odd_and_even_places(key, payload):
    """A search that finds nothing is no error, and slow: this is what it is for."""
    body = b"".join(message(payload + b"x" * (i % 3), partition_key=key + b"k" * (i % 9)) for i in range(50))
    found = _starts_by_search(np.frombuffer(body, np.uint8), 50)
    np.testing.assert_array_equal(found, scan(body, 50).start)


@pytest.mark.parametrize("size", [1, 200, 40_000])
@pytest.mark.parametrize("fields", [{}, {"partition_key": b"key"}, {"partition_key": b"k" * 127}])
def test_the_search_leaves_out_what_looks_like_a_header_inside_of_a_value(size, fields):
    """Numbers of Avro have such bytes by chance."""
    head = message(b"", **fields)[:9]
    starts, body = [], b""
    for row in range(50):
        starts.append(len(body))
        body += message(b"v" * size + head * (row % 3) + b"\0" * (row % 5) + b"v" * (row % 7), **fields)
    np.testing.assert_array_equal(_starts_by_search(as_array(body), 50), starts)


def test_a_body_full_of_what_looks_like_headers_takes_not_much_more_memory_than_small_messages():
    """Anybody may send it."""
    body = b"\0" * (1 << 20)

    def peak(data, count):
        tracemalloc.start()
        with contextlib.suppress(CorruptError):
            find_fields(data, count)
        try:
            return tracemalloc.get_traced_memory()[1] / len(data)
        finally:
            tracemalloc.stop()

    assert peak(body, len(body) // 16) < 2 * peak(message(b"") * (len(body) // 6), len(body) // 6)


@pytest.mark.parametrize("block", [16, 30, 64])
def test_the_search_goes_over_blocks(block, monkeypatch):
    monkeypatch.setattr(batch_fields, "_BLOCK", block)
    body = b"".join(message(b"x" * (i % 90), partition_key=b"k" * (i % 9)) for i in range(50))
    np.testing.assert_array_equal(_starts_by_search(as_array(body), 50), scan(body, 50).start)


def as_array(body: bytes) -> np.ndarray:
    return np.frombuffer(body, np.uint8)


@pytest.fixture
def no_other_guess(monkeypatch):
    """A search, steps from message to message, or a scan, fail the test."""
    for name in ("_starts_by_search", "_starts_by_steps", "scan"):
        monkeypatch.setattr(batch_fields, name, lambda *_: pytest.fail("another guess"))


@pytest.mark.parametrize(
    "payload", [b"", b"text", b"\0" * 100, b"\0\0\0\x05\x12\x01k\x18\0" * 9, b"v" * 3000]
)
@pytest.mark.usefixtures("no_other_guess")
def test_messages_of_one_size_need_no_search(payload):
    body = b"".join(message(payload, partition_key=b"%02d" % i) for i in range(50))
    assert_same(find_fields(body, 50), scan(body, 50))


def test_long_messages_of_different_sizes_are_not_searched(monkeypatch):
    monkeypatch.setattr(batch_fields, "_starts_by_search", lambda *_: pytest.fail("a search"))
    body = b"".join(message(b"v" * (3000 + i % 2)) for i in range(51))
    assert_same(find_fields(body, 51), scan(body, 51))


@pytest.mark.parametrize("sizes", [[4, 6] * 25, [5] * 20 + [6, 4] + [5] * 28, [4] * 49 + [54]])
def test_the_average_size_is_not_that_of_each_message(sizes):
    body = b"".join(message(b"v" * size) for size in sizes)
    assert_same(find_fields(body, 50), scan(body, 50))


def test_a_value_that_looks_like_a_message_of_the_average_size():
    """One message is as long as two, and two are as long as one: each guessed place has a header."""
    one = message(b"v" * 10)
    short = message(b"vv")
    assert len(short) * 2 == len(one)
    body = one * 20 + message(b"v" * 10 + one) + short + short + one * 27
    assert _starts_of_one_size(as_array(body), 50) is not None
    assert_same(find_fields(body, 50), scan(body, 50))


def test_a_wrong_guess_is_not_walked_through_other_messages(monkeypatch):
    """Values that look like headers of long metadata must not cost what all bytes after each of them do."""
    walked = []
    monkeypatch.setattr(batch_fields, "walk", lambda *_: walked.append(True))
    header = (780).to_bytes(4, "big") + b"\x18"
    lure, last = message(b"v" * 5 + header), message(b"v" * 1000)
    body = lure * 49 + last
    starts = np.append(0, np.arange(1, 50) * len(lure) - len(header))
    starts[-1] = 49 * len(lure)
    with pytest.raises(NotPlainError):
        batch_fields._walk(as_array(body), starts, MAX_PROPERTIES)
    assert not walked


GOOD = b"\0\0\0\x02\x18\x01v"


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (b"\0\0\0", "message 1 of 2 in a batch begins after the end of the batch"),
        (b"\0\0\0\x03\x18\0", "the metadata of message 1 in a batch ends after the batch"),
        (b"\0\0\0\x02\x18\x01", "the payload of message 1 in a batch ends after the batch"),
        (b"\0\0\0\0", "message 1 in a batch is malformed: no payload_size"),
        (b"\0\0\0\x03\x18\0\x12", "message 1 in a batch is malformed: a truncated varint"),
        (
            b"\0\0\0\x04\x18\0\x12\x09",
            "message 1 in a batch is malformed: a field that ends after its message",
        ),
        (b"\0\0\0\x02\x1a\0", "message 1 in a batch is malformed: an invalid field 3 with wire type 2"),
        (b"\0\0\0\x04\x18\0\x0a\0", "message 1 in a batch is malformed: a property without key or value"),
        (b"\0\0\0\x04\x18\0\x7b\x7c", "message 1 in a batch is malformed: an unknown wire type"),
        (GOOD + b"xy", "2 bytes follow the last of 2 messages in a batch"),
    ],
)
def test_what_is_wrong_is_told(broken, told):
    with pytest.raises(CorruptError, match=told):
        scan(GOOD + broken, 2)


def test_what_comes_last_wins():
    fields = scan(b"\0\0\0\x08\x40\x01\x18\x05\x40\x02\x18\x00", 1)
    assert fields.numbers[8][0].tolist() == [2]
    assert [bound.tolist() for bound in fields.value] == [[12], [12]]


@pytest.mark.parametrize("messages", [1, 30])
def test_properties_are_bounded_whoever_reads_them(messages):
    head = b"\x0a\x04\x0a\0\x12\0" * 3 + b"\x18\0"
    body = (len(head).to_bytes(4, "big") + head) * messages
    for read in (scan, find_fields):
        assert read(body, messages, 3 * messages).max_properties(np.array([0])) == 3 * messages
        with pytest.raises(CorruptError, match="properties, which is the maximum"):
            read(body, messages, 3 * messages - 1)
