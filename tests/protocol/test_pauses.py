"""Pauses: how long they are, and whose."""

import math

import pytest

from pulsar_spark.protocol.pauses import Pauses, Reopening


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


def pauses(count, chance):
    reopening, now, found = Reopening(), 0.0, []
    for _ in range(count):
        found.append(reopening.pause(now, chance))
        now += found[-1]
        reopening.opened(now)
    return found


@pytest.mark.parametrize(("chance", "part"), [(0.0, 0.5), (1.0, 1.0), (0.5, 0.75)])
def test_pauses_grow_up_to_a_bound(chance, part):
    expected = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert pauses(9, chance) == pytest.approx([part * each for each in expected])
    assert max(pauses(3000, chance)) <= 2.0


@pytest.mark.parametrize("event", [Reopening.yielded, Reopening.reset])
def test_after_what_was_of_use_there_is_none(event):
    reopening = Reopening()
    for _ in range(5):
        reopening.opened(0.0)
    event(reopening)
    assert reopening.pause(0.0, 1.0) == 0.0
    reopening.opened(0.0)
    assert reopening.pause(0.0, 1.0) == 0.05


def openings_that_yield(seconds):
    """How many there are at most in so many seconds, by a broker that closes each after one message."""
    reopening, now = Reopening(), 0.0
    for count in range(10**5):
        now += reopening.pause(now, 0.0)
        if now > seconds:
            return count
        reopening.opened(now)
        reopening.yielded()
    return math.inf


def test_openings_that_give_a_message_each_are_bounded():
    assert openings_that_yield(0.0) == 20
    assert openings_that_yield(10.0) == 20 + 4 * 10
    assert openings_that_yield(1000.0) <= 20 + 4 * 1000


def test_openings_that_give_messages_for_a_while_have_no_pause():
    reopening = Reopening()
    for number in range(1000):
        assert reopening.pause(number / 4, 1.0) == 0.0
        reopening.opened(number / 4)
        reopening.yielded()


def test_the_owner_may_want_as_many_openings_as_it_likes():
    reopening = Reopening()
    for _ in range(1000):
        assert reopening.pause(0.0, 1.0) == 0.0
        reopening.opened(0.0)
        reopening.yielded()
        reopening.reset()


@pytest.mark.parametrize(("lasted", "expected"), [(9.9, 0.8), (10.0, 0.0)])
def test_one_that_lasted_counts_as_of_use(lasted, expected):
    reopening = Reopening()
    for _ in range(5):
        reopening.opened(100.0)
    assert reopening.pause(100.0 + lasted, 1.0) == expected
    reopening.opened(100.0 + lasted)
    assert reopening.pause(100.0 + lasted, 1.0) == (1.6 if expected else 0.05)


def test_openings_that_fail_are_not_counted():
    reopening = Reopening()
    assert [reopening.pause(now, 1.0) for now in range(5)] == [0.0] * 5


def test_each_loss_is_told_of_once():
    reopening = Reopening()
    assert [reopening.take_loss() for _ in range(2)] == [False, False], "the first opening may fail"
    for _ in range(2):
        reopening.opened(0.0)
        reopening.yielded()
        assert [reopening.take_loss() for _ in range(3)] == [True, False, False]


def test_an_opening_that_the_owner_wants_is_no_loss():
    reopening = Reopening()
    reopening.opened(0.0)
    reopening.reset()
    assert not reopening.take_loss()
    reopening.opened(1.0)
    assert reopening.take_loss()
