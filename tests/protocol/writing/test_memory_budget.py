"""MemoryBudget: equal parts, the limit kept, and nobody waits for others."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.writing.pending import EntryKind, MemoryBudget, Outgoing, PendingWindow

# Limit, how many windows each owner has, the part of a window.
CASES = {
    "alone": (100, [1], 100),
    "nobody": (100, [], 100),
    "partitions of one topic": (100, [4], 25),
    "two topics": (100, [1, 3], 25),
    "rounded down": (100, [3], 33),
    "more windows than bytes": (3, [2, 2], 1),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_window_has_an_equal_part(case):
    limit, owners, part = case
    budget = MemoryBudget(limit)
    for owner, windows in enumerate(owners):
        budget.share(owner, windows)
    assert budget.part == part


def test_what_an_owner_had_is_free_for_others():
    budget = MemoryBudget(100)
    for owner, windows, part in (("a", 2, 50), ("b", 2, 25), ("a", 3, 20), ("a", 0, 50), ("a", 0, 50)):
        budget.share(owner, windows)
        assert budget.part == part


# ---- windows that share one


def outgoing(sequence_id, size):
    return Outgoing(sequence_id, sequence_id, 1, b"", b"x" * size, EntryKind.SINGLE)


def windows_of(budget, count):
    budget.share("topic", count)
    return [PendingWindow("topic", 1000, budget, 30) for _ in range(count)]


def test_no_window_takes_the_part_of_another():
    windows = windows_of(MemoryBudget(100), 5)
    taken = [len(window.take_from(deque(outgoing(at, 10) for at in range(20)), 0.0)) for window in windows]
    assert taken == [2] * 5
    assert not any(window.has_room(outgoing(99, 1)) for window in windows)


def test_a_window_may_be_over_when_others_come():
    budget = MemoryBudget(100)
    (first,) = windows_of(budget, 1)
    first.take_from(deque(outgoing(at, 10) for at in range(20)), 0.0)
    assert not first.is_over
    budget.share("other", 1)
    for at in range(5):
        assert first.is_over
        first.acknowledged(at)
    assert not first.is_over
    assert not first.has_room(outgoing(10, 1))


def test_a_message_larger_than_a_part_is_pending_alone():
    first, second = windows_of(MemoryBudget(100), 2)
    assert len(first.take_from(deque([outgoing(0, 60), outgoing(1, 1)]), 0.0)) == 1
    assert not first.has_room(outgoing(1, 1))
    second.push(outgoing(0, 10), 0.0)
    assert not second.has_room(outgoing(1, 60))
    second.acknowledged(0)
    assert second.has_room(outgoing(1, 60))


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40), st.integers(0, 3)), max_size=80),
    st.integers(1, 300),
)
def test_the_limit_holds_but_for_large_messages_and_all_get_through(steps, limit):
    windows = windows_of(MemoryBudget(limit), 5)
    waiting: list[deque[Outgoing]] = [deque() for _ in windows]
    acknowledged = [0] * len(windows)
    added = [0] * len(windows)

    def receipts(at, count):
        for _ in range(min(count, len(list(windows[at])))):
            windows[at].acknowledged(acknowledged[at])
            acknowledged[at] += 1
        windows[at].take_from(waiting[at], 0.0)

    for at, size, count in steps:
        waiting[at].append(outgoing(added[at], size))
        added[at] += 1
        windows[at].take_from(waiting[at], 0.0)
        assert windows[at]  # never without an entry whose receipt makes room
        for window in windows:
            sizes = [entry.size for entry in window]
            assert len(sizes) == 1 or sum(sizes) <= limit // 5
        receipts((at + count) % len(windows), count)
    while any(windows):
        for at in range(len(windows)):
            receipts(at, 1)
    assert acknowledged == added
    assert not any(waiting)
