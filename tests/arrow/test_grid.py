"""Positions in rows are viewed where they are; others are not taken for such."""

from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow import grid as grid_module
from pulsar_spark.arrow.grid import grid_of, grid_of_rows, items_at

BODY = pa.py_buffer(bytes(range(256)))


def positions(first, rows, across, step, gap):
    return np.array(
        [first + row * (across * step + gap) + i * step for row in range(rows) for i in range(across)]
    )


def listed(grid, place=0):
    return grid.items(BODY, np.dtype(np.uint8), place).reshape(-1).tolist()


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


@pytest.fixture(autouse=True)
def rows_of_any_length(monkeypatch):
    monkeypatch.setattr(grid_module, "_SHORT", 1)


def test_several_short_rows_are_no_grid(monkeypatch):
    monkeypatch.setattr(grid_module, "_SHORT", 4)
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
    items = items_at(BODY, np.array(at), np.dtype((np.void, 3)))
    assert items.view(np.uint8).reshape(-1, 3).tolist() == [[one, one + 1, one + 2] for one in at]


def test_rows_that_follow_one_another():
    assert listed(grid_of_rows(4, 5), place=2) == [2, 7, 12, 17]


def test_what_lies_outside_the_body_is_refused():
    with pytest.raises(ValueError, match="buffer"):
        grid_of(np.array([0, 128])).items(BODY, np.dtype("<u8"), 121)
    with pytest.raises(IndexError):
        items_at(BODY, np.array([249]), np.dtype("<u8"))
    with pytest.raises(ValueError, match="strides"):
        items_at(BODY, np.array([0]), np.dtype((np.void, 258)))
