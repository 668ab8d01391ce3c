"""How many messages and items an entry may have, by the bytes that are stored of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.wire.entry.entries import items_per_byte, max_messages


def array(*numbers):
    return np.array(numbers, np.int64)


def test_messages_are_so_many_and_more_with_what_is_stored():
    assert max_messages(array(0, 700, 64 << 10, 5 << 20)).tolist() == [100_000, 100_350, 132_768, 2_721_440]


@pytest.mark.parametrize(
    ("stored", "uncompressed"), [(128 << 10, 128 << 10), (100, 800), (5 << 20, 40 << 20)]
)
def test_of_usual_entries_nothing_is_looked_at(stored, uncompressed):
    assert items_per_byte(array(stored), array(uncompressed)) is None


def test_others_have_their_share_of_the_bytes():
    rates = items_per_byte(array(1000, 1000, 0), array(16_000, 100, 10_000_000))
    assert rates.tolist() == [0.5 + 1 / 32, np.inf, 1 / 32]


@given(st.lists(st.tuples(st.integers(0, 1 << 23), st.integers(0, 1 << 31)), min_size=1, max_size=20))
def test_no_entry_has_more_items_than_its_bytes_pay_for(entries):
    stored, uncompressed = array(*(each for each, _ in entries)), array(*(each for _, each in entries))
    rates = items_per_byte(stored, uncompressed)
    rates = np.ones(len(stored)) if rates is None else np.minimum(rates, 1)  # an item has a byte
    most = rates * uncompressed
    assert (most <= 8 * stored + uncompressed / 32 + 1e-3).all()
