"""Items are made before they are asked for, of one stream or of several, and nothing else changes."""

import threading
from contextlib import closing
from typing import Any

import pytest

from pulsar_spark.client import prefetch
from pulsar_spark.client.parallel import prefetch_each
from tests.client.clients import wait_until
from tests.loops import for_each

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


# ---- several streams


def counting(first, count, made=None, closed=None):
    """A stream of numbers; notes those that it makes, and the thread that closes it."""

    def make():
        try:
            for number in range(first, first + count):
                if made is not None:
                    made.append(number)
                yield number
        finally:
            if closed is not None:
                closed.append((first, threading.current_thread()))

    return make


def each(streams, max_streams=3, max_size=2):
    return prefetch_each(streams, lambda item: 1, max_streams=max_streams, max_size=max_size)


@for_each("max_streams", [1, 2, 50])
@for_each("counts", [[], [0], [3], [0, 3, 0, 1], [1] * 30, [7, 5, 9]])
def test_streams_come_whole_and_in_order(counts, max_streams):
    before = threading.active_count()
    streams = [counting(100 * place, count) for place, count in enumerate(counts)]
    found = [list(items) for items in each(streams, max_streams)]
    assert found == [list(range(100 * place, 100 * place + count)) for place, count in enumerate(counts)]
    assert threading.active_count() == before


def test_the_next_streams_are_made_meanwhile_and_no_more_of_them_than_asked_for():
    made: list[int] = []
    with closing(each([counting(first, 5, made) for first in (0, 10, 20, 30)])) as streams:
        first = next(streams)
        wait_until(lambda: sorted(made) == [0, 1, 10, 11, 20, 21])  # two of each wait, of the fourth none
        assert list(first) == [0, 1, 2, 3, 4]
        wait_until(lambda: sorted(made)[-2:] == [30, 31])
        assert 12 not in made
        assert [list(items) for items in streams] == [list(range(start, start + 5)) for start in (10, 20, 30)]


def test_as_many_streams_as_asked_for_are_made_at_once():
    met = threading.Barrier(3)

    def make():
        yield met.wait(10)

    assert sorted(number for items in each([make] * 3) for number in items) == [0, 1, 2]


def test_what_waits_is_counted_by_size():
    made: list[int] = []
    streams = prefetch_each(
        [counting(1, 0), counting(1, 9, made)], lambda item: item, max_streams=2, max_size=6
    )
    assert list(next(streams)) == []
    wait_until(lambda: made == [1, 2, 3])
    items = next(streams)
    assert next(items) == 1
    wait_until(lambda: made == [1, 2, 3, 4])
    streams.close()
    assert made == [1, 2, 3, 4]


def test_an_error_comes_in_the_place_of_its_stream():
    def broken():
        yield 7
        raise ValueError("broken")

    found = []
    for items in each([counting(0, 1), broken, counting(1, 1)]):
        try:
            found += list(items)
        except ValueError as error:
            found.append(str(error))
    assert found == [0, "broken", 1]


def test_what_is_left_of_a_stream_is_dropped_with_the_next():
    closed: list = []
    streams = each([counting(first, 50, closed=closed) for first in (0, 100, 200)], max_streams=1)
    found = [next(items) for items in streams]
    assert found == [0, 100, 200]
    assert [first for first, _ in closed] == [0, 100, 200]


@pytest.mark.parametrize("count", [1, 3, 9])
def test_to_close_streams_early_ends_all_threads_and_closes_what_is_open(count):
    closed: list = []
    before = threading.active_count()
    streams = each([counting(first, 50, closed=closed) for first in range(0, 100 * count, 100)])
    items = next(streams)
    next(items)
    streams.close()
    assert threading.active_count() == before
    assert 1 <= len(closed) <= 3
    assert all((thread is threading.current_thread()) == (count == 1) for _, thread in closed)


def test_a_caller_that_fails_leaves_no_thread():
    before = threading.active_count()

    def use():
        for items in each([counting(first, 50) for first in (0, 100, 200)]):
            for _ in items:
                raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="own"):
        use()
    wait_until(lambda: threading.active_count() == before)
