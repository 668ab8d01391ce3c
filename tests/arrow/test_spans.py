"""Spans are copied alike, whether they lie in a grid or not."""

from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow import arrays
from pulsar_spark.arrow.arrays import gather, grid_of, grid_of_rows, items_at

BODY = bytes(range(256)) * 4


def gathered(at, end, has=None, held=None):
    body, at, end = pa.py_buffer(BODY), np.array(at), np.array(end)
    found = gather(body, at, end, has, held).to_pylist()
    known = grid_of(at) if len(at) else None
    assert gather(body, at, end, has, held, known).to_pylist() == found
    return found


@pytest.fixture(autouse=True)
def rows_of_any_length(monkeypatch):
    monkeypatch.setattr(arrays, "_SHORT", 1)


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


BUFFER = pa.py_buffer(bytes(range(256)))


def positions(first, rows, across, step, gap):
    return np.array(
        [first + row * (across * step + gap) + i * step for row in range(rows) for i in range(across)]
    )


def listed(grid, place=0):
    return grid.items(BUFFER, np.dtype(np.uint8), place).reshape(-1).tolist()


@given(
    st.integers(0, 5),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(0, 9),
)
def test_what_is_viewed_is_what_lies_at_the_positions(first, rows, across, step, gap, place):
    at = positions(first, rows, across, step, gap)
    grid = grid_of(at)
    assert grid is not None
    assert grid.shape[0] * grid.shape[1] == len(at)
    assert listed(grid, place) == (at + place).tolist()


def test_several_short_rows_are_no_grid(monkeypatch):
    monkeypatch.setattr(arrays, "_SHORT", 4)
    assert grid_of(positions(0, 2, 3, 5, 1)) is None
    assert grid_of(positions(0, 2, 4, 5, 1)) is not None
    assert grid_of(positions(0, 1, 3, 5, 1)) is not None


@pytest.mark.parametrize(
    "at",
    [
        [0, 2, 4, 7],  # the last row is shorter
        [0, 2, 5, 6],  # another step in the second row
        [0, 2, 5, 7, 11, 13],  # rows that are not equally far apart
        [0, 1, 3, 6, 10],
        [0, 2, 4, 10, 12, 14, 20, 22, 25],
    ],
)
def test_other_positions_are_no_grid(at):
    assert grid_of(np.array(at)) is None


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12))
def test_a_grid_never_has_other_positions(steps):
    at = np.cumsum(steps)
    grid = grid_of(at)
    assert grid is None or listed(grid) == at.tolist()


def rows_in(at):
    """How many positions each row has; None if they are in no grid. By definition, row by row."""
    steps = np.diff(at).tolist()
    across = next((place + 1 for place, step in enumerate(steps) if step != steps[0]), len(at))
    rows = [at[first : first + across].tolist() for first in range(0, len(at), across)]
    alike = all([place - row[0] for place in row] == [place - at[0] for place in rows[0]] for row in rows)
    return across if alike and len({row[0] - before[0] for before, row in pairwise(rows)}) <= 1 else None


@pytest.mark.parametrize("count", range(1, 8))
def test_all_steps_of_a_few_positions(count):
    found = 0
    for steps in product([-1, 0, 1, 2], repeat=count - 1):
        at = 9 + np.cumsum([0, *steps])
        across, grid = rows_in(at), grid_of(at)
        assert (grid is None) == (across is None)
        if grid is not None:
            assert grid.shape == (count // across, across)
            assert listed(grid) == at.tolist()
            found += 1
    assert found >= min(4, 4 ** (count - 1))


@given(st.lists(st.integers(0, 256 - 3), min_size=1, max_size=9))
def test_items_are_copied_from_any_positions(at):
    items = items_at(BUFFER, np.array(at), np.dtype((np.void, 3)))
    assert items.view(np.uint8).reshape(-1, 3).tolist() == [[one, one + 1, one + 2] for one in at]


def test_rows_that_follow_one_another():
    assert listed(grid_of_rows(4, 5), place=2) == [2, 7, 12, 17]


def test_what_lies_outside_the_body_is_refused():
    with pytest.raises(ValueError, match="buffer"):
        grid_of(np.array([0, 128])).items(BUFFER, np.dtype("<u8"), 121)
    with pytest.raises(IndexError):
        items_at(BUFFER, np.array([249]), np.dtype("<u8"))
    with pytest.raises(ValueError, match="strides"):
        items_at(BUFFER, np.array([0]), np.dtype((np.void, 258)))
