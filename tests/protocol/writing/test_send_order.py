"""Batches never hold both what a broker may have and what it has not; what goes alone goes in its place."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError
from pulsar_spark.protocol.writing.batcher import SendRun, SequenceIds, split_runs

IDS = st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=20)


def batches(ids, highest=-1):
    """The ids of each run that may be one batch."""
    numbers, begins = SequenceIds(highest).take(pa.array(ids, pa.int64()))
    found = []
    for number, begin in zip(numbers.tolist(), begins, strict=True):
        if begin or not found:
            found.append([])
        found[-1].append(number)
    return found


def test_growing_ids_are_one_run():
    assert batches([3, 4, 10, 11]) == [[3, 4, 10, 11]]
    assert batches([]) == []


def test_duplicates_and_new_ones_are_apart():
    assert batches([5, 6, 7, 3, 4, 5, 8, 9]) == [[5, 6, 7], [3, 4, 5], [8, 9]]
    assert batches([5, 5, 5]) == [[5], [5], [5]]
    assert batches([2, 3, 4, 5, 6], highest=4) == [[2, 3, 4], [5, 6]]


def test_a_null_is_the_next():
    assert batches([None, None, 7, None, 3, None], highest=4) == [[5, 6, 7, 8], [3], [9]]


def test_a_negative_id_is_an_error():
    with pytest.raises(OptionError, match="sequence id is -2"):
        batches([1, -2])


@given(IDS, IDS, st.integers(-1, 9))
def test_in_parts_it_is_the_same(first, second, highest):
    together = SequenceIds(highest).take(pa.array(first + second, pa.int64()))
    apart = SequenceIds(highest)
    parts = [apart.take(pa.array(ids, pa.int64())) for ids in (first, second)]
    for whole, *pieces in zip(together, *parts, strict=True):
        assert whole.tolist() == pieces[0].tolist() + pieces[1].tolist()


@given(IDS, st.integers(-1, 9))
def test_what_a_broker_stores_is_what_is_new(ids, highest):
    """A broker drops a batch whose first id it has passed; no id that is new may be dropped with it."""
    stored, last = [], highest
    for run in batches(ids, highest):
        assert run == sorted(set(run))
        if run[0] > last:
            stored += run
            last = run[-1]
    expected, last = [], highest
    for one in SequenceIds(highest).take(pa.array(ids, pa.int64()))[0].tolist():
        if one > last:
            expected.append(one)
            last = one
    assert stored == expected


def flags(text):
    return np.array([letter == "x" for letter in text])


@pytest.mark.parametrize(
    ("begins", "alone", "expected"),
    [
        ("....", "....", [(0, 4, False, False)]),
        ("x.x.", "....", [(0, 2, False, True), (2, 4, False, True)]),
        ("....", "xxxx", [(0, 4, True, True)]),
        ("xxxx", "xxxx", [(0, 4, True, True)]),
        ("....", ".xx.", [(0, 1, False, False), (1, 3, True, True), (3, 4, False, False)]),
        ("..xx", ".xx.", [(0, 1, False, False), (1, 3, True, True), (3, 4, False, True)]),
    ],
)
def test_runs(begins, alone, expected):
    assert list(split_runs(flags(begins), flags(alone), 0, 4)) == [SendRun(*each) for each in expected]


def test_runs_of_a_part():
    assert list(split_runs(flags("....."), flags("x.x.."), 1, 4)) == [
        SendRun(1, 2, False, False),
        SendRun(2, 3, True, True),
        SendRun(3, 4, False, False),
    ]
    assert list(split_runs(flags("..."), flags("..."), 2, 2)) == []
