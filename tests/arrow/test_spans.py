"""Spans are copied alike, whether they lie in a grid or not."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow import grid
from pulsar_spark.arrow.spans import gather

BODY = bytes(range(256)) * 4


def gathered(at, end, has=None, held=None):
    body, at, end = pa.py_buffer(BODY), np.array(at), np.array(end)
    found = gather(body, at, end, has, held).to_pylist()
    known = grid.grid_of(at) if len(at) else None
    assert gather(body, at, end, has, held, known).to_pylist() == found
    return found


@pytest.fixture(autouse=True)
def rows_of_any_length(monkeypatch):
    monkeypatch.setattr(grid, "_SHORT", 1)


@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(0, 9), st.integers(0, 3), st.integers(0, 3), st.data()
)
def test_what_is_copied_is_what_lies_in_the_spans(rows, across, size, step, gap, data):
    at = [
        (row * (across * (size + step) + gap)) + i * (size + step)
        for row in range(rows)
        for i in range(across)
    ]
    ends = [one + size for one in at]
    if data.draw(st.booleans()):
        ends[data.draw(st.integers(0, len(at) - 1))] = at[0] + size  # one of another size, or none
        ends = np.maximum(at, ends).tolist()
    assert gathered(at, ends) == [BODY[first:last] for first, last in zip(at, ends, strict=True)]


def test_spans_of_other_sizes_in_a_grid():
    assert gathered([0, 10, 20, 30], [4, 13, 24, 34]) == [BODY[0:4], BODY[10:13], BODY[20:24], BODY[30:34]]


@pytest.mark.parametrize("is_alike", [True, False])
def test_rows_without_the_field_are_null_and_rows_that_are_not_held_are_left_out(is_alike):
    at, end = np.array([0, 10, 20, 30]), np.array([4, 14, 24, 34 if is_alike else 33])
    has = np.array([True, False, True, True])
    third = BODY[30 : end[3]]
    assert gathered(at, end, has) == [BODY[0:4], None, BODY[20:24], third]
    assert gathered(at, end, has, np.array([1, 3])) == [None, third]
    assert gathered(at, end, None, np.array([1, 3])) == [BODY[10:14], third]


def test_spans_of_one_size_at_any_place():
    assert gathered([0, 10, 25, 30], [3, 13, 28, 33]) == [BODY[0:3], BODY[10:13], BODY[25:28], BODY[30:33]]
    assert gathered([7], [9]) == [BODY[7:9]]
    assert gathered([len(BODY) - 2], [len(BODY)]) == [BODY[-2:]]


def test_no_rows_and_empty_spans():
    assert gathered([], []) == []
    assert gathered([0, 4, 8], [0, 4, 8]) == [b"", b"", b""]
