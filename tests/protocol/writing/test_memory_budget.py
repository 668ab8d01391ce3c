"""MemoryBudget: equal parts of what is used, the limit kept, and nobody waits for others for ever."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.writing.outgoing import EntryKind, Outgoing
from pulsar_spark.protocol.writing.pending import MemoryBudget, PendingWindow


def budget_of(limit, *held):
    budget = MemoryBudget(limit)
    for each in held:
        budget.report(0, each)
    return budget


# Limit, what windows hold, the one that asks (0: one that holds nothing), how much it may hold.
CASES = {
    "alone": (100, [], 0, 100),
    "alone, with something": (100, [60], 60, 100),
    "alone, with everything": (100, [100], 100, 100),
    "the second one gets half": (100, [20], 0, 50),
    "of what is left": (100, [90], 0, 10),
    "of three": (90, [10, 10], 0, 30),
    "one that has more than its part": (90, [80, 5], 80, 45),
    "one of two": (90, [80, 5], 5, 10),
    "more than the limit is held": (100, [60, 60], 0, -20),
    "idle ones do not count": (100, [60, 0, 0], 60, 100),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_how_much_a_window_may_hold(case):
    limit, held, one, expected = case
    assert budget_of(limit, *held).max_bytes(one) == expected


def test_what_is_given_back_is_free_for_others():
    budget = budget_of(100, 60, 40)
    budget.report(60, 10)
    budget.report(40, 0)
    assert budget.max_bytes(10) == 100
    assert budget.max_bytes(0) == 50


# ---- windows that share one


def outgoing(sequence_id, size):
    return Outgoing(sequence_id, sequence_id, 1, b"", b"x" * size, EntryKind.SINGLE)


def test_a_full_budget_leaves_each_empty_window_one_entry():
    budget = MemoryBudget(100)
    windows = [PendingWindow("topic", 1000, budget, 30) for _ in range(5)]
    taken = [len(window.take_from(deque(outgoing(at, 10) for at in range(20)), 0.0)) for window in windows]
    assert taken == [10, 1, 1, 1, 1]
    assert not any(window.has_room(outgoing(99, 1)) for window in windows)


def test_windows_that_hold_something_get_equal_parts():
    budget = MemoryBudget(90)
    windows = [PendingWindow("topic", 1000, budget, 30) for _ in range(3)]
    for window in windows:
        window.take_from(deque([outgoing(0, 10)]), 0.0)
    more = deque(outgoing(at, 10) for at in range(1, 9))
    assert len(windows[0].take_from(more, 0.0)) == 2


def test_what_a_closed_window_held_is_free():
    budget = MemoryBudget(100)
    first, second = (PendingWindow("topic", 1000, budget, 30) for _ in range(2))
    first.take_from(deque(outgoing(at, 10) for at in range(10)), 0.0)
    first.release()
    assert len(second.take_from(deque(outgoing(at, 10) for at in range(20)), 0.0)) == 10


def test_receipts_make_room_for_others_when_they_are_reported():
    budget = MemoryBudget(100)
    first, second = (PendingWindow("topic", 1000, budget, 30) for _ in range(2))
    first.take_from(deque(outgoing(at, 10) for at in range(10)), 0.0)
    second.push(outgoing(0, 10), 0.0)
    for at in range(9):
        first.acknowledged(at)
    assert not second.has_room(outgoing(1, 10))
    first.report()
    assert second.has_room(outgoing(1, 10))


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40), st.integers(0, 3)), max_size=80),
    st.integers(1, 100),
)
def test_the_limit_holds_but_for_one_entry_of_each_and_all_get_through(steps, limit):
    budget = MemoryBudget(limit)
    windows = [PendingWindow("topic", 1000, budget, 30) for _ in range(5)]
    waiting: list[deque[Outgoing]] = [deque() for _ in windows]
    acknowledged = [0] * len(windows)
    added = [0] * len(windows)

    def receipts(at, count):
        for _ in range(min(count, len(list(windows[at])))):
            windows[at].acknowledged(acknowledged[at])
            acknowledged[at] += 1
        windows[at].report()
        windows[at].take_from(waiting[at], 0.0)

    for at, size, count in steps:
        waiting[at].append(outgoing(added[at], size))
        added[at] += 1
        windows[at].take_from(waiting[at], 0.0)
        assert windows[at]  # never without an entry whose receipt makes room
        held = [sum(entry.size for entry in window) for window in windows]
        assert sum(held) <= limit + sum(next(iter(window)).size for window in windows if window)
        receipts((at + count) % len(windows), count)
    while any(windows):
        for at in range(len(windows)):
            receipts(at, 1)
    assert acknowledged == added
    assert not any(waiting)
