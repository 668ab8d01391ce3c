"""Pauses: how long they are, and whose."""

import math

from pulsar_spark.protocol.pauses import Pauses


def test_pauses_grow_up_to_a_bound_until_one_succeeds():
    pauses = Pauses()
    now, found = 100.0, []
    for number in range(8):
        assert pauses.is_over("a", now)
        assert pauses.failed("a", now) is (number == 0)
        until = pauses.due_at(now)
        assert not pauses.is_over("a", until - 0.01)
        found.append(until - now)
        now = until
    assert found == [1, 2, 4, 8, 16, 30, 30, 30]
    pauses.succeeded("a")
    assert pauses.failed("a", now)
    assert pauses.due_at(now) == now + 1


def test_each_key_has_its_own():
    pauses = Pauses()
    assert pauses.due_at(0.0) == math.inf
    pauses.failed("a", 0.0)
    pauses.failed("b", 0.5)
    assert pauses.resting(0.9) == {"a", "b"}
    assert pauses.due_at(0.9) == 1.0
    assert pauses.resting(1.0) == {"b"}
    assert pauses.due_at(1.0) == 1.5
    assert pauses.is_over("c", 0.0)
    pauses.succeeded("c")
    assert pauses.due_at(1.5) == math.inf
