"""The work that values may make: what their own bytes pay for, then the allowance of the task."""

import math

import numpy as np
import pytest

from pulsar_spark.values.value_work import ANY_WORK, ValueWork, WorkPool


def test_a_value_takes_its_own_first_and_then_of_the_pool():
    pool = WorkPool(10)
    work = ValueWork(np.array([5.0, 5.0, np.inf]), pool)
    assert work.take(0, 5)
    assert pool.left == 10
    assert work.take(0, 8)
    assert pool.left == 2
    assert [work.left(row) for row in range(3)] == [2, 7, math.inf]
    assert work.take(1, 7)
    assert pool.left == 0
    assert work.take(2, math.nan), "it may make any"
    assert work.left(2) == math.inf
    assert not work.refused.any()


def test_a_value_that_makes_too_much_is_refused_from_then_on_and_ends_the_allowance():
    """Its work was made until it was refused. Others keep what their bytes pay for."""
    pool = WorkPool(3)
    work = ValueWork(np.array([1.0, 1.0]), pool)
    assert work.left(0) == 4
    assert not work.take(0, 5)
    assert not work.take(0, 0)
    assert work.left(0) < 0
    assert pool.left == 0
    assert work.take(1, 1)
    assert work.refused.tolist() == [True, False]
    assert not work.take(1, 1)


@pytest.mark.parametrize("rows", [[2, 0], [1]])
def test_a_part_takes_from_the_whole(rows):
    work = ValueWork(np.array([1.0, 2.0, 3.0]), WorkPool(0))
    part = work.part(slice(3)).part(np.array(rows))
    assert [part.left(row) for row in range(len(rows))] == [row + 1.0 for row in rows]
    part.take(0, 10)
    assert np.flatnonzero(work.refused).tolist() == rows[:1]
    assert part.refused.tolist() == [True] + [False] * (len(rows) - 1)


def test_any_work_is_never_refused():
    part = ANY_WORK.part(slice(2)).part(np.array([1]))
    assert part.take(0, 1e12)
    assert part.left(0) == math.inf
    assert not part.is_limited
