"""Where varints end: listed, or counted in groups; both give the same as looking at each byte."""

import numpy as np
import pytest

from pulsar_spark.values.avro.by_column import varint_ends as module
from pulsar_spark.values.avro.by_column.varint_ends import GROUP, varint_ends


@pytest.mark.parametrize("listed", [0, 1 << 20], ids=["counted", "listed"])
@pytest.mark.parametrize("often", [0.02, 0.5, 1])
@pytest.mark.parametrize("groups", [1, 2, 70])
def test_ends_are_those_of_each_byte(listed, often, groups, monkeypatch):
    monkeypatch.setattr(module, "MAX_LISTED", listed)
    monkeypatch.setattr(module, "_AT_ONCE", 4 * GROUP)
    chance = np.random.default_rng(groups)
    whole = np.where(chance.random(groups * GROUP) < often, 5, 0x85).astype(np.uint8)
    whole[-1] = 0
    places = np.flatnonzero(whole < 0x80)
    ends = varint_ends(whole)
    assert len(ends) == len(places)
    positions = np.sort(chance.integers(0, len(whole), 50))
    before = np.searchsorted(places, positions)
    assert ends.before(positions).tolist() == before.tolist()
    numbers = np.sort(chance.integers(0, len(places), 50))
    assert ends.places(numbers).tolist() == places[numbers].tolist()
    assert ends.places(np.zeros(0, np.int64)).tolist() == []
    near = np.arange(len(places) // 3, len(places))
    assert ends.places(near).tolist() == places[near].tolist()
    for position, number in zip(positions.tolist(), before.tolist(), strict=True):
        assert ends.before_one(position) == number
        for count in (1, 2, 31, 32, 33, 100, len(places)):
            found = ends.after_one(position, number, count)
            if number + count <= len(places):
                assert found == places[number + count - 1] + 1
            else:
                assert found > len(whole)


def test_ends_that_are_near_each_other_are_not_sorted(monkeypatch):
    """Items of one array; it took half of the time of reading them."""
    monkeypatch.setattr(module, "MAX_LISTED", 0)
    monkeypatch.setattr(module, "_AT_ONCE", 4 * GROUP)
    monkeypatch.delattr(module.np, "unique")
    ends = varint_ends(np.tile(np.array([0x85, 5], np.uint8), 500 * GROUP))
    assert ends.places(np.arange(9000, 12_000)).tolist() == list(range(18_001, 24_001, 2))
