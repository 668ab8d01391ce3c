"""Calls: nothing that was requested about a partition outlives it."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_spark.client import Calls, Kind
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.plan.partition import Partition
from tests.client.clients import wait_until
from tests.spark.plan.simulated_spark import at

T = TopicName.parse("t")


def partition():
    consumer: Any = SimpleNamespace(begin_close=lambda: None)
    return Partition(T, consumer, at("5:-1"), at("5:-1"), at("5:9"))


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("is_late", [True, False])
def test_an_answer_about_a_partition_that_was_closed_says_nothing_of_one_of_its_name(kind, is_late):
    calls, old, new, answered = Calls(), partition(), partition(), Future()
    calls[kind].pauses.failed(old, 0.0)
    calls[kind].run({}, 0.0, {old: answered})
    if not is_late:
        answered.set_result("of the old one")
    assert old.close(calls) is (kind is Kind.LAST_MESSAGE)
    assert calls[kind].pauses.is_over(new, 0.0)
    assert calls[kind].run({new: lambda: "of the new one"}, 60.0) == {new: "of the new one"}
    if is_late:
        answered.set_result("of the old one")
    assert calls[kind].take() == {}
    assert not calls[kind].has_more
    assert calls[kind].pauses.resting(0.0) == set()


def test_a_reader_that_opens_after_its_partition_was_closed_is_closed():
    class Reader:
        def close(self):
            closed.set()

    def open_slowly():
        opening.wait(60)
        return Reader()

    calls, old, opening, closed = Calls(), partition(), threading.Event(), threading.Event()
    calls[Kind.TAIL].run({old: open_slowly}, 0.0)
    old.close(calls)
    opening.set()
    assert closed.wait(60)
    wait_until(lambda: not calls[Kind.TAIL].busy)
