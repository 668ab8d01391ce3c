"""Permits against a model of the broker: a range is always read to its end, and not much more is asked for.

The bounds, for a range of N entries of which the largest holds B messages and the smallest b, and a window
that holds at most W messages (``window_bytes`` over the fewest bytes that a message takes):

* the first grant is at most min(16, N), which no range of N entries can have too many of;
* a later one raises the balance to min(W, max(r, (r - 100) * average)), r being the entries still to come.
  They hold at least r * b messages and the average is at most B, so what is left over at the end is at most
  min(W, N * (B - b) + 1);
* so where all entries are alike, nothing is left over, and the broker, which reads up to 100 entries while
  one permit is left, sends no entry after the end of the range;
* where the range's length is not known, at most max(16, W) is left over.
"""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.reading.permits import Permits

LIMIT = 2**30


class Broker:
    """Sends entries of an exclusive reader: reads min(permits, 100) entries while permits are above 0."""

    def __init__(self, entries, behind=1000):
        self.entries = [*entries, *entries[-1:] * behind]
        self.position = 0
        self.permits = 0
        self.granted = 0
        self.in_flight = deque()

    def flow(self, permits):
        assert 0 < permits < LIMIT
        self.permits += permits
        self.granted += permits
        assert self.permits < LIMIT

    def dispatch(self, available=100):
        """One read, of fewer entries where fewer are there."""
        if self.permits > 0:
            read = self.entries[self.position : self.position + min(self.permits, 100, available)]
            self.position += len(read)
            self.permits -= sum(messages for messages, _ in read)
            self.in_flight.extend(read)

    def dispatch_all(self):
        while self.permits > 0 and self.position < len(self.entries):
            self.dispatch()

    def subscribe_again(self, position):
        """The consumer was lost: what was on its way and all permits with it."""
        self.position = position
        self.permits = self.granted = 0
        self.in_flight.clear()


def take(broker, permits, most):
    """Receive up to ``most`` entries that have come."""
    taken = [broker.in_flight.popleft() for _ in range(min(most, len(broker.in_flight)))]
    for messages, size in taken:
        permits.used(messages, size)
    return len(taken)


def read_all(broker, permits, count):
    """Read ``count`` entries as fast as they come; the number of FLOW commands."""
    received = flows = 0
    while received < count:
        granted = permits.grant(count - received)
        if granted:
            flows += 1
            broker.flow(granted)
        broker.dispatch_all()
        assert broker.in_flight, f"stalled at {received} of {count}"
        received += take(broker, permits, count - received)
    return flows


batch_sizes = st.integers(1, 3) | st.integers(1, 1000) | st.integers(1, 2**20)
entry = batch_sizes.flatmap(
    lambda messages: st.tuples(st.just(messages), st.integers(1, 200 * messages + 100))
)
ranges = st.lists(entry, min_size=1, max_size=40).flatmap(
    lambda some: st.integers(1, 8).map(lambda times: some * times)
)
windows = st.sampled_from([0, 1, 1000, 64 * 1024, 16 * 1024 * 1024, 2**40])


def left_over_at_most(entries, window_bytes):
    most = max(messages for messages, _ in entries)
    least = min(messages for messages, _ in entries)
    window = max(1, max(window_bytes * messages // size for messages, size in entries))
    return min(window, len(entries) * (most - least) + 1)


@given(ranges, windows, st.data())
def test_a_range_is_read_to_its_end_with_no_more_permits_than_stated(entries, window_bytes, data):
    broker, permits = Broker(entries), Permits(window_bytes)
    cuts = data.draw(st.lists(st.integers(0, len(entries)), max_size=3))
    moves = data.draw(st.lists(st.tuples(st.integers(1, 120), st.integers(1, 120)), min_size=1, max_size=10))
    received = turn = begun = 0
    while received < len(entries):
        if received in cuts:
            cuts.remove(received)
            permits.lost()
            broker.subscribe_again(received)
            begun = received
        granted = permits.grant(len(entries) - received)
        if granted:
            broker.flow(granted)
        available, most = moves[turn % len(moves)]
        turn += 1
        if broker.in_flight:
            broker.dispatch(available)  # how far the broker is ahead differs
        else:
            broker.dispatch()
            assert broker.in_flight, f"stalled at {received} of {len(entries)}"
        received += take(broker, permits, min(most, len(entries) - received))
    needed = sum(messages for messages, _ in entries[begun:])
    assert broker.granted - needed <= left_over_at_most(entries, window_bytes)


@given(entry, st.integers(1, 400), windows)
def test_a_range_of_equal_entries_is_granted_what_it_holds(one, count, window_bytes):
    broker = Broker([one] * count)
    read_all(broker, Permits(window_bytes), count)
    assert broker.granted <= count * one[0]
    broker.dispatch_all()
    assert broker.position <= count


@given(ranges, windows, st.lists(st.integers(1, 120), min_size=1, max_size=5))
def test_a_range_of_unknown_length(entries, window_bytes, moves):
    broker, permits = Broker(entries, behind=0), Permits(window_bytes)
    received = turn = 0
    while received < len(entries):
        granted = permits.grant(None)
        if granted:
            broker.flow(granted)
        broker.dispatch_all()
        assert broker.in_flight, f"stalled at {received} of {len(entries)}"
        received += take(broker, permits, moves[turn % len(moves)])
        turn += 1
    window = max(1, max(window_bytes * messages // size for messages, size in entries))
    assert broker.granted - sum(messages for messages, _ in entries) <= max(16, window)


@given(ranges, st.integers(0, 40), windows)
def test_a_range_whose_length_becomes_known(entries, known_from, window_bytes):
    broker, permits = Broker(entries), Permits(window_bytes)
    received = 0
    while received < len(entries):
        granted = permits.grant(None if received < known_from else len(entries) - received)
        if granted:
            broker.flow(granted)
        broker.dispatch_all()
        assert broker.in_flight, f"stalled at {received} of {len(entries)}"
        received += take(broker, permits, 7)


@given(st.lists(st.tuples(st.sampled_from(["used", "lost", "grant"]), entry), max_size=40), windows)
def test_each_grant_is_small_enough_and_the_balance_stays_so(actions, window_bytes):
    # The balance as the broker counts it, whatever order things happen in.
    permits = Permits(window_bytes)
    balance = 0
    for action, (messages, size) in actions:
        if action == "used":
            permits.used(messages, size)
            balance -= messages
        elif action == "lost":
            permits.lost()
            balance = 0
        else:
            granted = permits.grant(None if size % 2 else size)
            assert 0 <= granted < LIMIT
            balance += granted
            assert 0 < balance < LIMIT


def test_the_first_grant():
    assert Permits(1000).grant(None) == 16
    assert Permits(1000).grant(1000) == 16
    assert Permits(1000).grant(5) == 5
    assert Permits(1000).grant(0) == 0
    assert Permits(1000, first_entries=1).grant(5) == 1
    assert Permits(1000, first_entries=1).grant(None) == 1


def test_the_window_rules_once_sizes_are_known():
    permits = Permits(1_000_000)
    assert permits.grant(None) == 16
    for _ in range(16):
        permits.used(10, 1000)  # 100 bytes a message, so 10,000 of them fill the window
    assert permits.grant(None) == 10_000 + 160 - 16


def test_more_is_granted_when_half_is_used():
    permits = Permits(100_000)
    permits.grant(None)
    for _ in range(16):
        permits.used(1, 100)
    assert permits.grant(None) == 1000
    for _ in range(499):
        permits.used(1, 100)
    assert permits.grant(None) == 0
    permits.used(1, 100)
    assert permits.grant(None) == 500


def test_messages_larger_than_the_window_come_one_by_one():
    permits = Permits(1000)
    permits.grant(None)
    for _ in range(16):
        permits.used(1, 5000)
    assert permits.grant(None) == 1
    assert permits.grant(None) == 0
    permits.used(1, 5000)
    assert permits.grant(None) == 1


def test_a_balance_below_zero_is_paid_back():
    permits = Permits(16 * 1024 * 1024)
    permits.grant(11)
    for _ in range(10):
        permits.used(100, 10_000)
    # 11 were granted and 1,000 came; one permit is enough for the entry that is left, whatever it holds.
    assert permits.grant(1) == 989 + 1


def test_nothing_is_asked_for_behind_the_end():
    permits = Permits(16 * 1024 * 1024)
    permits.grant(10)
    for _ in range(10):
        permits.used(100, 10_000)
    # At most what brings the broker's balance back to 0, at which it reads nothing.
    assert permits.grant(0) <= 990


def test_after_a_loss_everything_is_granted_anew():
    permits = Permits(100_000)
    permits.grant(None)
    for _ in range(16):
        permits.used(1, 100)
    permits.grant(None)
    permits.lost()
    assert permits.grant(None) == 1000
    permits.lost()
    assert permits.grant(3) == 3


@pytest.mark.parametrize("messages", [1, 10, 1000])
def test_a_long_range_needs_few_flows(messages):
    count = 5000
    # Everything fits: one FLOW to learn the sizes, one for most of it, and what is near the end.
    assert read_all(Broker([(messages, 100)] * count), Permits(2**40), count) <= 4
    # A window of 1,000 entries: about one FLOW for each half of it.
    assert read_all(Broker([(messages, 100)] * count), Permits(100_000), count) <= 2 * count / 1000 + 8


def test_tiny_messages_and_a_huge_window():
    permits = Permits(2**62)
    permits.grant(None)
    permits.used(2**20, 1)
    assert 0 < permits.grant(None) < LIMIT


# num_messages_in_batch is an int32 that any producer may set; the broker takes it as it is.


@pytest.mark.parametrize("messages", [0, -1, -(2**31)])
@pytest.mark.parametrize("remaining", [None, 5])
def test_an_entry_of_no_messages_stops_nothing(messages, remaining):
    permits = Permits(16 * 1024 * 1024)
    permits.grant(remaining)
    permits.used(messages, 100)
    permits.lost()
    assert 0 < permits.grant(remaining) < LIMIT


def test_an_entry_that_claims_too_many_messages_makes_no_impossible_flow():
    permits = Permits(16 * 1024 * 1024)
    permits.grant(100)
    for _ in range(3):
        permits.used(2**31 - 1, 100)
    assert permits.grant(97) < LIMIT


def test_after_a_move_little_is_asked_for_and_more_as_entries_come():
    permits = Permits(1 << 20)
    permits.grant(None)
    permits.used(1000, 10_000, 1000)
    assert permits.grant(None) > 50_000
    for _ in range(2):
        permits.lost()
        permits.moved()
        granted = [permits.grant(None)]
        for _ in range(4):
            permits.used(granted[-1], 10 * granted[-1], granted[-1])
            granted.append(permits.grant(None))
        assert granted == [16, 48, 144, 432, 1296]
