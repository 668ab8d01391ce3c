"""Marks: what our sink appends to an entry's metadata, and nobody else reads."""

from __future__ import annotations

from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.dedup_mark import DIGEST_SIZE, encode_dedup_mark, read_dedup_mark


def test_a_mark_is_read_from_the_metadata_and_changes_nothing_else():
    metadata = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=2, partition_key=b"k")
    digest = bytes(range(DIGEST_SIZE))
    marked = pb.MessageMetadata.FromString(metadata.SerializeToString() + encode_dedup_mark(digest))
    assert read_dedup_mark(marked) == digest
    marked.DiscardUnknownFields()
    assert marked == metadata
    assert read_dedup_mark(marked) is None
