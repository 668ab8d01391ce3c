"""The origin of an entry: what it says, and who can make one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin, decode_origin, encode_origin, has_begin, task_of_origin

SECRET, TOPIC = b"secret", "persistent://public/default/t-partition-3"
FIRST = Origin(7, 3, 1, None, 500)
LATER = Origin(7, 3, 1, MessageId(12, 99), 500, is_again=True)
U32, U31 = st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1)
ORIGINS = st.builds(
    Origin,
    batch=U32,
    task=U32,
    write=st.integers(0, 2**16 - 1),
    begin=st.none() | st.builds(MessageId, st.integers(0, 2**63 - 1), U31),
    run=U31,
    is_again=st.booleans(),
)


def field_of(origin: Origin, secret: bytes = SECRET, topic: str = TOPIC, payload: bytes = b"") -> bytes:
    """The field as readers of entries get it, without its tag."""
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=1).SerializeToString()
    parsed = pb.MessageMetadata.FromString(metadata + encode_origin(origin, secret, topic, payload))
    (field,) = Entries.of([Entry(1, 2, parsed, b"", None)]).texts(EntryField.ORIGIN).to_pylist()
    return field


@given(ORIGINS, st.binary(max_size=50))
def test_what_is_encoded_is_decoded(origin, payload):
    field = field_of(origin, payload=payload)
    found = decode_origin(field, SECRET, TOPIC, payload)
    assert found == origin
    assert has_begin(field) is (origin.begin is not None)
    assert task_of_origin(field) == origin.task


@pytest.mark.parametrize("origin", [FIRST, LATER])
@pytest.mark.parametrize(
    ("secret", "topic"), [(b"other", TOPIC), (SECRET, TOPIC[:-1] + "4"), (SECRET, TOPIC[:-1]), (b"", TOPIC)]
)
def test_one_of_another_query_or_topic_partition_is_none(origin, secret, topic):
    assert decode_origin(field_of(origin, secret, topic), SECRET, TOPIC) is None


@pytest.mark.parametrize("origin", [FIRST, LATER])
def test_no_bit_of_it_can_be_changed(origin):
    field = field_of(origin)
    changed = [
        field[:at] + bytes([field[at] ^ 1 << bit]) + field[at + 1 :]
        for at in range(len(field))
        for bit in range(8)
    ]
    assert [decode_origin(each, SECRET, TOPIC) for each in changed] == [None] * len(changed)
    assert decode_origin(field[:-1], SECRET, TOPIC) is None
    assert decode_origin(field + b"\0", SECRET, TOPIC) is None
    assert decode_origin(b"", SECRET, TOPIC) is None


def test_that_of_the_first_entry_is_of_its_payload_only():
    assert decode_origin(field_of(FIRST, payload=b"rows"), SECRET, TOPIC, b"rows") == FIRST
    assert decode_origin(field_of(FIRST, payload=b"rows"), SECRET, TOPIC, b"other rows") is None
    assert decode_origin(field_of(FIRST, payload=b"rows"), SECRET, TOPIC) is None
    # All entries of a send have the same one, so it cannot be of one payload.
    assert decode_origin(field_of(LATER, payload=b"rows"), SECRET, TOPIC, b"other rows") == LATER


def test_a_name_is_not_taken_for_a_part_of_the_payload():
    field = field_of(FIRST, topic="topic", payload=b"payload")
    assert decode_origin(field, SECRET, "topicpay", b"load") is None


def test_brokers_and_clients_skip_the_field():
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=1)
    parsed = pb.MessageMetadata.FromString(metadata.SerializeToString() + encode_origin(LATER, SECRET, TOPIC))
    assert parsed.producer_name == b"p"
    assert parsed.SerializeToString().endswith(encode_origin(LATER, SECRET, TOPIC))
