"""Items are made one ahead, and nothing else changes."""

import threading
from typing import Any

import pytest

from pulsar_spark.client import prefetch

HANG = 60


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_same_items_come_in_order(count):
    assert list(prefetch(iter(range(count)))) == list(range(count))


def test_one_is_made_while_the_one_before_is_used_and_no_more():
    made, second = [], threading.Event()

    def making():
        for number in range(5):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    items = prefetch(making())
    next(items)
    assert second.wait(HANG)
    assert made == [0, 1]
    assert list(items) == [1, 2, 3, 4]


def test_an_error_comes_behind_the_items_before_it():
    def making():
        yield 0
        raise ValueError("broken")

    items = prefetch(making())
    assert next(items) == 0
    with pytest.raises(ValueError, match="broken"):
        next(items)


def test_to_close_it_early_ends_the_thread_and_what_makes_the_items():
    closed, before = [], threading.active_count()

    def making():
        try:
            yield from range(5)
        finally:
            closed.append(True)

    items: Any = prefetch(making())
    next(items)
    items.close()
    assert closed
    assert threading.active_count() == before
