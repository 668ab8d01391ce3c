"""Batches are made one ahead, and nothing else changes."""

import threading

import pyarrow as pa
import pytest

from pulsar_spark.spark.ahead import ahead

HANG = 60


def batch(number):
    return pa.record_batch({"n": [number]})


def numbers(batches):
    return [one.column("n")[0].as_py() for one in batches]


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_same_batches_come_in_order(count):
    assert numbers(ahead(map(batch, range(count)))) == list(range(count))


def test_one_is_made_while_the_one_before_is_used_and_no_more():
    made, second = [], threading.Event()

    def making():
        for number in range(5):
            made.append(number)
            if number == 1:
                second.set()
            yield batch(number)

    batches = ahead(making())
    next(batches)
    assert second.wait(HANG)
    assert made == [0, 1]
    assert len(numbers(batches)) == 4


def test_an_error_comes_behind_the_batches_before_it():
    def making():
        yield batch(0)
        raise ValueError("broken")

    batches = ahead(making())
    assert numbers([next(batches)]) == [0]
    with pytest.raises(ValueError, match="broken"):
        next(batches)


def test_to_close_it_early_ends_the_thread_and_what_makes_the_batches():
    closed, before = [], threading.active_count()

    def making():
        try:
            for number in range(5):
                yield batch(number)
        finally:
            closed.append(True)

    batches = ahead(making())
    next(batches)
    batches.close()
    assert closed
    assert threading.active_count() == before
