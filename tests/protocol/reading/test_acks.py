"""Acknowledgements: grouped by time and number, covered by the cumulative mark, pending until a receipt."""

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.acks import AckGroup, AckTracker


def at(entry, ledger=1):
    return MessageId(ledger, entry)


NOTHING = AckGroup(None, [])


def test_nothing_is_due_before_an_ack():
    tracker = AckTracker()
    assert tracker.due_at is None
    assert tracker.take() == NOTHING
    assert not tracker.covers(at(0))


def test_acks_wait_for_others():
    tracker = AckTracker()
    tracker.add(at(5), 10.0)
    assert tracker.due_at == 10.1
    tracker.add(at(3), 10.05)
    assert tracker.due_at == 10.1
    assert tracker.take() == AckGroup(None, [at(3), at(5)])
    assert tracker.due_at is None
    assert tracker.take() == NOTHING
    tracker.add(at(6), 20.0)
    assert tracker.due_at == 20.1


def test_without_grouping_each_is_due_at_once():
    tracker = AckTracker(group_time=0)
    tracker.add(at(5), 10.0)
    assert tracker.due_at == 10.0
    tracker.take()
    tracker.add_cumulative(at(6), 11.0)
    assert tracker.due_at == 11.0


def test_a_thousand_are_due_at_once():
    tracker = AckTracker(group_time=60)
    for entry in range(999):
        tracker.add(at(entry), 10.0)
    assert tracker.due_at == 70.0
    tracker.add(at(0), 10.0)  # known already
    assert tracker.due_at == 70.0
    tracker.add(at(999), 10.0)
    assert tracker.due_at <= 10.0
    assert len(tracker.take().individual) == 1000


def test_the_mark_covers_what_lies_below_it():
    tracker = AckTracker()
    for entry in (1, 4, 5, 9):
        tracker.add(at(entry), 10.0)
    tracker.add_cumulative(at(5), 10.02)
    assert [entry for entry in range(12) if tracker.covers(at(entry))] == [0, 1, 2, 3, 4, 5, 9]
    assert tracker.covers(at(10_000, ledger=0))
    assert not tracker.covers(at(0, ledger=2))
    assert tracker.take() == AckGroup(at(5), [at(9)])


def test_the_mark_never_moves_back_and_is_sent_again():
    """A broker's position may be behind it after a crash."""
    tracker = AckTracker()
    tracker.add_cumulative(at(5), 10.0)
    assert tracker.take() == AckGroup(at(5), [])
    for entry in (5, 4):
        tracker.add_cumulative(at(entry), 11.0)
        assert tracker.take() == AckGroup(at(5), [])
        assert tracker.take() == NOTHING
    tracker.add_cumulative(at(6), 12.0)
    assert tracker.take() == AckGroup(at(6), [])


def test_what_is_covered_is_not_sent_again():
    tracker = AckTracker()
    tracker.add_cumulative(at(5), 10.0)
    tracker.add(at(7), 10.0)
    tracker.take()
    tracker.add(at(3), 11.0)
    tracker.add(at(7), 11.0)
    assert tracker.due_at is None


def test_the_whole_entry_is_behind_its_messages():
    tracker = AckTracker()
    tracker.add_cumulative(MessageId(1, 5, 3), 10.0)
    assert tracker.covers(MessageId(1, 5, 2))
    assert not tracker.covers(MessageId(1, 5, 4))
    assert not tracker.covers(at(5))


def test_a_group_without_a_receipt_is_pending_again():
    tracker = AckTracker()
    tracker.add_cumulative(at(5), 10.0)
    tracker.add(at(8), 10.0)
    tracker.add(at(7), 10.0)
    group = tracker.take()
    tracker.put_back(group, 20.0)
    assert tracker.due_at == 20.1
    assert tracker.take() == group


def test_a_group_that_a_later_mark_covers_is_not_sent_again():
    tracker = AckTracker()
    tracker.add_cumulative(at(5), 10.0)
    tracker.add(at(7), 10.0)
    tracker.add(at(9), 10.0)
    lost = tracker.take()
    tracker.add_cumulative(at(8), 11.0)
    assert tracker.take() == AckGroup(at(8), [])
    tracker.put_back(lost, 20.0)
    assert tracker.take() == AckGroup(None, [at(9)])


def test_an_empty_group_put_back_makes_nothing_due():
    tracker = AckTracker()
    tracker.put_back(NOTHING, 10.0)
    assert tracker.due_at is None


actions = st.tuples(
    st.sampled_from(["single", "single", "cumulative", "lost", "sent"]), st.integers(0, 30), st.integers(0, 3)
)


@given(st.lists(actions, max_size=60))
def test_everything_acknowledged_reaches_the_broker(steps):
    """The broker of this test takes marks and singles; groups may get lost, and are then put back."""
    tracker = AckTracker(group_time=1)
    wanted_mark, wanted = -1, set()
    broker_mark, broker = -1, set()
    for now, (action, entry, _) in enumerate(steps):
        if action == "single":
            tracker.add(at(entry), now)
            wanted.add(entry)
        elif action == "cumulative":
            tracker.add_cumulative(at(entry), now)
            wanted_mark = max(wanted_mark, entry)
        else:
            due = tracker.due_at
            group = tracker.take()
            assert (due is None) == (group == NOTHING)
            assert group.individual == sorted(set(group.individual))
            assert all(single.entry > wanted_mark for single in group.individual)
            if action == "lost":
                tracker.put_back(group, now)
            else:
                assert not {single.entry for single in group.individual} & broker
                assert group.cumulative is None or group.cumulative.entry >= broker_mark
                broker_mark = group.cumulative.entry if group.cumulative else broker_mark
                broker |= {single.entry for single in group.individual}
        for number in range(31):
            assert tracker.covers(at(number)) == (number <= wanted_mark or number in wanted)
    group = tracker.take()
    broker_mark = group.cumulative.entry if group.cumulative else broker_mark
    broker |= {single.entry for single in group.individual}
    assert broker_mark == wanted_mark
    assert {entry for entry in wanted if entry > broker_mark} <= broker <= wanted
