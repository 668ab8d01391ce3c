"""EntryBuilder: which batches and entries rows become, by what the broker has answered."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.errors import CryptoError, SendError
from tests.protocol.writing.partition_writers import (
    MAX_MESSAGE,
    TOPIC,
    by_column,
    ids,
    metadata_of,
    new_builder,
    rows,
    singles,
)


def registered(last=-1, *, first=0, version=b"", **options):
    builder = new_builder(**options)
    builder.number_from(first, last)
    builder.registered("p", MAX_MESSAGE, version)
    return builder


# ---- sequence ids


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(0, -1, 0), (5, -1, 5), (5, 3, 5), (5, 4, 5), (5, 5, 6), (5, 99, 100)]
)
def test_the_first_sequence_id(first, last, expected):
    builder = registered(last, first=first)
    assert ids(builder.pack_singles(singles(b"x", b"y"), 5)) == [expected, expected + 1]


def test_null_ids_of_rows_begin_after_what_is_stored():
    builder = registered(4)
    taken, begins = builder.take_ids(pa.array([None, None, 3], pa.int64()))
    assert taken.tolist() == [5, 6, 3]
    assert begins.tolist() == [False, False, True]
    builder.number_from(0, 9)
    taken, _ = builder.take_ids(pa.array([None], pa.int64()))
    assert taken.tolist() == [10]


# ---- registrations


def test_entries_have_the_name_and_version_of_the_last_registration():
    builder = registered(version=b"first")
    assert not builder.registered("p", MAX_MESSAGE, b"first")
    for number, version in enumerate((b"second", b"")):
        assert builder.registered(f"p-{number}", MAX_MESSAGE, version)
        (entry,) = builder.pack_singles(singles(b"x"), 5)
        metadata = metadata_of(entry)
        assert metadata.producer_name == b"p-%d" % number
        assert (metadata.schema_version, metadata.HasField("schema_version")) == (version, bool(version))


def test_another_registration_leaves_the_open_batch_and_the_ids():
    builder = registered(4)
    assert builder.batch_rows(*rows(b"a", b"b"), 0.0) == []
    builder.registered("q", MAX_MESSAGE, b"")
    (entry,) = builder.pack_batches([builder.close_batch()], 5)
    assert (entry.sequence_id, entry.messages) == (5, 2)
    assert metadata_of(entry).producer_name == b"q"


def test_what_is_too_large_for_the_broker_is_refused_with_its_topic():
    packer = registered().packer
    with pytest.raises(SendError, match=TOPIC):
        packer.check_messages(*rows(b"x" * 500))
    with pytest.raises(SendError, match=TOPIC):
        packer.check_singles(by_column(b"x" * 500))


def test_a_missing_key_is_an_error_before_anything_is_sent():
    class NoKey:
        @property
        def room(self):
            raise CryptoError("no key")

    with pytest.raises(CryptoError, match=TOPIC):
        registered(encryption=NoKey())


# ---- batches


def test_batches_close_by_count_by_time_and_on_request():
    builder = new_builder(limits=(3, 0, 0.5))
    assert builder.close_batch() is None
    assert builder.batch_due_at is None
    builder.registered("p", MAX_MESSAGE, b"")
    (full,) = builder.batch_rows(*rows(b"a", b"b", b"c", b"d"), 10.0, np.array([4, 5, 6, 9]))
    assert (full.messages, full.sequence_ids) == (3, (4, 6))
    assert builder.batch_due_at == 10.5
    assert builder.close_batch().sequence_ids == (9, 9)
    assert builder.batch_due_at is None


@pytest.mark.parametrize(("max_bytes", "messages"), [(0, 4), (-1, 4), (10**6, 4), (112, 2)])
def test_batches_fit_into_the_brokers_largest_message(max_bytes, messages):
    builder = registered(limits=(0, max_bytes, 0.5))
    batches = builder.batch_rows(*rows(*[b"x" * 44] * 9), 0.0)
    assert [batch.messages for batch in batches] == [messages] * (9 // messages)


def test_where_batches_have_one_key_half_is_left_for_it():
    builder = registered(limits=(0, 0, 0.5), key_based=True)
    body, offsets = rows(*[b"x" * 44] * 9)
    batches = builder.batch_groups(body, offsets, np.array([0, 1, 5, 8]))
    assert [batch.messages for batch in batches] == [1, 2, 2, 2, 1, 1]
    assert builder.batch_due_at is None


# ---- runs


@pytest.mark.parametrize(("blocks_if_full", "sizes"), [(True, [1200]), (False, [500, 500, 200])])
def test_runs_are_shorter_if_sends_do_not_wait_for_room(blocks_if_full, sizes):
    builder = registered(blocks_if_full=blocks_if_full)
    assert [run.messages for run in builder.pack_singles(by_column(*[b"x"] * 1200), 5)] == sizes
