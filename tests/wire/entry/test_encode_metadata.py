"""The metadata that the client writes, parsed back by the protobuf classes alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry import encode_metadata

CODECS = [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]

names = st.text(max_size=20)
ids = st.integers(0, 2**62)
sizes = st.integers(0, 2**32 - 1)


def test_golden_batch():
    made = encode_metadata.batch_metadata("p", (2, 6), 3, 5, pb.LZ4, 9)
    assert made.hex() == "0a017010021803400148095805c00106"


@given(names, ids, ids, st.integers(1, 2**31 - 1), st.sampled_from(CODECS), sizes)
def test_batch(name, sequence_id, time, messages, codec, size):
    made = pb.MessageMetadata.FromString(
        encode_metadata.batch_metadata(
            name, (sequence_id, sequence_id + messages - 1), time, messages, codec, size
        )
    )
    assert made.IsInitialized()
    assert (made.producer_name, made.sequence_id, made.publish_time) == (name.encode(), sequence_id, time)
    assert made.HasField("num_messages_in_batch")  # what tells a batch of one from a single message
    assert made.num_messages_in_batch == messages
    assert made.highest_sequence_id - made.sequence_id == messages - 1
    assert (made.compression, made.uncompressed_size) == (codec, size)


@given(names, ids, ids, st.integers(1, 2**31 - 1), st.sampled_from(CODECS), sizes, st.data())
def test_a_batch_is_what_protobuf_writes(name, sequence_id, time, messages, codec, size, data):
    keys = {
        "partition_key": data.draw(st.none() | st.binary(max_size=200)),
        "partition_key_b64_encoded": data.draw(st.none() | st.booleans()),
        "ordering_key": data.draw(st.none() | st.binary(max_size=200)),
    }
    keyed_by = data.draw(st.none() | st.just(pb.SingleMessageMetadata(payload_size=0, **keys)))
    expected = pb.MessageMetadata(
        producer_name=name.encode(),
        sequence_id=sequence_id,
        publish_time=time,
        num_messages_in_batch=messages,
        highest_sequence_id=sequence_id + messages - 1,
        uncompressed_size=size,
        compression=None if codec == pb.NONE else codec,
    )
    if keyed_by is not None and keys["partition_key"] is not None:
        expected.partition_key = keyed_by.partition_key
        expected.partition_key_b64_encoded = keyed_by.partition_key_b64_encoded
    if keyed_by is not None and keys["ordering_key"] is not None:
        expected.ordering_key = keyed_by.ordering_key
    ids = sequence_id, sequence_id + messages - 1
    made = encode_metadata.batch_metadata(name, ids, time, messages, codec, size, keyed_by)
    assert made == expected.SerializeToString()


@pytest.mark.parametrize("codec", CODECS)
def test_compression_is_named_where_there_is_one(codec):
    made = pb.MessageMetadata.FromString(encode_metadata.batch_metadata("p", (0, 0), 0, 1, codec, 0))
    assert made.HasField("compression") == (codec != pb.NONE)


@given(names, ids, ids, st.binary(max_size=20), st.sampled_from(CODECS), sizes)
def test_a_single_message_is_the_sum_of_its_parts(name, sequence_id, time, key, codec, size):
    own = pb.MessageMetadata(ordering_key=key, event_time=5).SerializePartialToString()
    head = encode_metadata.single_metadata_head(name, sequence_id, time)
    tail = encode_metadata.single_metadata_tail(codec, size)
    made = pb.MessageMetadata.FromString(head + own + tail)
    assert made.IsInitialized()
    assert made == pb.MessageMetadata(
        producer_name=name.encode(),
        sequence_id=sequence_id,
        publish_time=time,
        ordering_key=key,
        event_time=5,
        compression=codec,
        uncompressed_size=size,
    )
    assert not pb.MessageMetadata.FromString(head + own).HasField("num_messages_in_batch")


def test_a_transaction_is_appended():
    batch = encode_metadata.batch_metadata("p", (2, 6), 3, 5, pb.NONE, 9)
    made = pb.MessageMetadata.FromString(batch + encode_metadata.transaction_fields(TxnId(3, 5)))
    assert (made.txnid_most_bits, made.txnid_least_bits, made.sequence_id) == (3, 5, 2)


def test_a_schema_version_is_appended():
    batch = encode_metadata.batch_metadata("p", (2, 6), 3, 5, pb.NONE, 9)
    version = bytes(range(8))
    made = pb.MessageMetadata.FromString(batch + encode_metadata.schema_version_field(version))
    assert (made.schema_version, made.sequence_id) == (version, 2)
    assert encode_metadata.schema_version_field(b"") == b"", "an empty version is one for other clients"


@given(names, st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_a_chunk_is_told_by_four_fields(uuid, chunk_id, chunks, size):
    made = pb.MessageMetadata.FromString(encode_metadata.chunk_fields(uuid, chunk_id, chunks, size))
    assert made == pb.MessageMetadata(
        uuid=uuid.encode(), chunk_id=chunk_id, num_chunks_from_msg=chunks, total_chunk_msg_size=size
    )
