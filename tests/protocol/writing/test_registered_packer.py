"""Packer: which entries messages become, by what the broker has answered."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pulsar_spark.errors import CryptoError
from tests.protocol.writing.partition_writers import (
    MAX_MESSAGE,
    TOPIC,
    ids,
    metadata_of,
    new_packer,
    singles,
)


def registered(last=-1, *, first=0, version=b"", **options):
    packer = new_packer(**options)
    packer.number_from(first, last)
    packer.registered("p", MAX_MESSAGE, version)
    return packer


# ---- sequence ids


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(0, -1, 0), (5, -1, 5), (5, 3, 5), (5, 4, 5), (5, 5, 6), (5, 99, 100)]
)
def test_the_first_sequence_id(first, last, expected):
    packer = registered(last, first=first)
    assert ids(packer.singles(singles(b"x", b"y"), 5)) == [expected, expected + 1]


def test_null_ids_of_rows_begin_after_what_is_stored():
    packer = registered(4)
    taken, begins = packer.own_ids.take(pa.array([None, None, 3], pa.int64()))
    assert taken.tolist() == [5, 6, 3]
    assert begins.tolist() == [False, False, True]
    packer.number_from(0, 9)
    taken, _ = packer.own_ids.take(pa.array([None], pa.int64()))
    assert taken.tolist() == [10]


# ---- registrations


def test_entries_have_the_name_and_version_of_the_last_registration():
    packer = registered(version=b"first")
    assert not packer.registered("p", MAX_MESSAGE, b"first")
    for number, version in enumerate((b"second", b"")):
        assert packer.registered(f"p-{number}", MAX_MESSAGE, version)
        (entry,) = packer.singles(singles(b"x"), 5)
        metadata = metadata_of(entry)
        assert metadata.producer_name == b"p-%d" % number
        assert (metadata.schema_version, metadata.HasField("schema_version")) == (version, bool(version))


def test_another_registration_leaves_the_ids():
    packer = registered(4)
    packer.registered("q", MAX_MESSAGE, b"")
    (entry,) = packer.singles(singles(b"a"), 5)
    assert entry.sequence_id == 5
    assert metadata_of(entry).producer_name == b"q"


def test_a_missing_key_is_an_error_before_anything_is_sent():
    class NoKey:
        @property
        def room(self):
            raise CryptoError("no key")

    with pytest.raises(CryptoError, match=TOPIC):
        registered(encryption=NoKey()).shared_size(MAX_MESSAGE)


def test_where_batches_have_one_key_half_is_left_for_it():
    assert registered(key_based=True).shared_size(MAX_MESSAGE) == 100
    assert registered().shared_size(MAX_MESSAGE) == 200
