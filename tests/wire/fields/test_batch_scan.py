import numpy as np
import pytest

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire.fields.batch_scan import scan
from pulsar_spark.wire.fields.batch_walk import find_fields

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
