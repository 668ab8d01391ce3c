"""Marks: what our sink appends to an entry's metadata, and nobody else reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.dedup_mark import (
    DIGEST_SIZE,
    MAX_ENDS,
    encode_dedup_mark,
    encode_run_ends,
    read_dedup_mark,
    read_run_ends,
)

PLAIN = pb.MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=2, partition_key=b"k")


def test_a_mark_is_read_from_the_metadata_and_changes_nothing_else():
    digest = bytes(range(DIGEST_SIZE))
    marked = pb.MessageMetadata.FromString(PLAIN.SerializeToString() + encode_dedup_mark(digest))
    assert read_dedup_mark(marked) == digest
    marked.DiscardUnknownFields()
    assert marked == PLAIN
    assert read_dedup_mark(marked) is None


@given(st.lists(st.integers(0, 2**64 - 1), max_size=MAX_ENDS))
def test_ends_of_runs_stand_beside_the_mark(ends):
    fields = encode_dedup_mark(b"d" * DIGEST_SIZE) + encode_run_ends(ends)
    marked = pb.MessageMetadata.FromString(PLAIN.SerializeToString() + fields)
    assert read_run_ends(marked) == tuple(ends)
    assert read_dedup_mark(marked) == b"d" * DIGEST_SIZE
    marked.DiscardUnknownFields()
    assert marked == PLAIN


@pytest.mark.parametrize("size", [1, 7, 9, 127])
def test_other_bytes_are_no_ends_of_runs(size):
    tag = encode_run_ends([0])[:2]
    for field in (tag + bytes([size]) + bytes(size), bytes([tag[0] - 2, tag[1], 5])):
        marked = pb.MessageMetadata.FromString(PLAIN.SerializeToString() + field)
        assert read_run_ends(marked) == ()


def test_too_many_ends_of_runs_are_none():
    field = encode_run_ends([0])[:2] + b"\x80\x01" + bytes(8 * (MAX_ENDS + 1))
    assert read_run_ends(pb.MessageMetadata.FromString(PLAIN.SerializeToString() + field)) == ()
