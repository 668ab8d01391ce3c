"""Where varints end: the same as looking at each byte."""

import numpy as np
import pytest

from pulsar_spark.values.avro import payloads as module
from pulsar_spark.values.avro.payloads import VarintEnds


@pytest.mark.parametrize("often", [0.02, 0.5, 1])
@pytest.mark.parametrize("groups", [1, 2, 70])
def test_ends_are_those_of_each_byte(often, groups, monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", 256)
    chance = np.random.default_rng(groups)
    whole = np.where(chance.random(groups * 64) < often, 5, 0x85).astype(np.uint8)
    whole[-1] = 0
    places = np.flatnonzero(whole < 0x80)
    ends = VarintEnds(whole)
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
            found = ends.after_one(number, count)
            if number + count <= len(places):
                assert found == places[number + count - 1] + 1
            else:
                assert found > len(whole)
