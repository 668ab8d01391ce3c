"""Partition: positions over triggers, and the steps of an acknowledgement as a table."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client import LastMessageId
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.partition import AckStep, Partition, visible_end
from tests.loops import for_each

NOTHING, ACKNOWLEDGE, PROBE, WAIT = AckStep.NOTHING, AckStep.ACKNOWLEDGE, AckStep.PROBE, AckStep.WAIT
EXPIRE = 60.0
T = TopicName.parse("t")


class Seen(NamedTuple):
    """What a tail has seen: all entries in ``(after, reached]``."""

    after: MessageId
    reached: MessageId


def at(text):
    return None if text is None else MessageId.parse(text)


def state_of(position, *, acknowledged="5:-1", last="5:9", **more):
    return Partition(T, None, at("5:-1"), at(acknowledged), at(last), position=at(position), **more)


def test_an_opened_partition_is_where_its_subscription_stands():
    state = Partition.opened(T, None, LastMessageId(at("5:9:3"), at("5:2")))
    assert (state.start, state.acknowledged, state.last) == (at("5:2"), at("5:2"), at("5:9"))
    assert state.processed is None


@pytest.mark.parametrize(
    ("last", "end"), [("5:9", "5:9"), ("5:9:2", "5:9"), ("5:-1", "-1:-1"), ("-1:-1", "-1:-1")]
)
def test_the_end_that_is_visible(last, end):
    assert visible_end(at(last)) == at(end)


@pytest.mark.parametrize(
    ("checkpointed", "is_set_back", "position"),
    [("5:3", False, "5:3"), (None, False, "5:-1"), ("9:3", True, "5:-1"), (None, True, "5:-1")],
)
def test_a_trigger_takes_up_what_is_checkpointed(checkpointed, is_set_back, position):
    state = state_of(None, is_set_back=is_set_back)
    state.take_up(at(checkpointed))
    assert state.position == at(position)
    assert not state.is_set_back


@pytest.mark.parametrize("position", [None, "9:3"])
def test_a_partition_that_is_set_back_goes_on_from_its_end(position):
    state = state_of(position, last="9:3")
    state.set_back(at("5:4"))
    assert state.start == state.last == at("5:4")
    assert state.is_set_back is (position is None), "a trigger takes it up"
    assert state.position == (None if position is None else at("5:4"))
    state.take_up(at("5:4") if position else at("9:3"))
    assert state.position == at("5:4")


@pytest.mark.parametrize(("frozen", "end"), [(None, "5:9"), ("5:4", "5:4"), ("5:9", "5:9"), ("6:4", "5:9")])
def test_the_end_of_a_run(frozen, end):
    assert state_of("5:0", frozen_end=at(frozen)).end == at(end)


@pytest.mark.parametrize(
    ("position", "last", "processed"),
    [
        (None, "5:9", None),
        ("5:4", "5:9", "5:4"),
        ("5:4:1", "5:9", "5:3"),
        ("5:0:0", "5:9", "5:-1"),
        ("7:3", "5:9", "5:9"),
        ("5:4", "-1:-1", "-1:-1"),
    ],
)
def test_what_is_processed_exists_and_is_whole(position, last, processed):
    assert state_of(position, last=last).processed == at(processed)


@for_each(
    ("position", "acknowledged", "probed", "frozen", "step"),
    [
        # position, acknowledged, (ledger probed, seconds ago), frozen end
        (None, "5:-1", None, None, NOTHING),
        ("5:-1", "5:-1", None, None, NOTHING),
        ("5:0:3", "5:-1", None, None, NOTHING),
        ("5:4", "5:4", None, None, NOTHING),
        ("5:4", "5:8", None, None, NOTHING),
        # an entry after it is known in its ledger
        ("5:4", "5:3", None, None, PROBE),
        ("5:4", "5:3", ("5:1", 9.9), None, ACKNOWLEDGE),
        ("5:4", "5:3", ("5:1", 10.0), None, PROBE),
        ("5:4", "5:3", ("4:9", 0.1), None, PROBE),
        ("5:4", "4:9", ("5:1", 0.1), None, PROBE),
        ("5:4", "5:3", ("5:1", 0.1), "5:4", ACKNOWLEDGE),
        # none is
        ("5:9", "5:3", ("5:1", 0.1), None, WAIT),
        ("7:0", "5:3", None, None, WAIT),
        # one is in a later ledger
        ("4:4", "4:3", ("4:1", 0.9), None, WAIT),
        ("4:4", "4:3", ("4:1", 1.0), None, PROBE),
        ("4:4", "3:3", ("3:1", 0.1), None, PROBE),
        # one is, but this run ends before it
        ("4:4", "4:3", ("4:1", 0.1), "4:4", WAIT),
    ],
)
def test_the_next_step_of_an_acknowledgement(position, acknowledged, probed, frozen, step):
    state = state_of(position, acknowledged=acknowledged, frozen_end=at(frozen))
    if probed is not None:
        place, ago = probed
        state.probed(at(place), 100.0 - ago)
    assert state.ack_step(100.0, EXPIRE, is_polled=True) is step
    assert state.ack_step(100.0, 0.0, is_polled=True) is step, "chunks are looked for"
    if step is WAIT and state.processed == state.end:
        assert state.ack_step(100.0, EXPIRE) is PROBE, "there may be no later occasion"
        assert state.ack_step(100.9, EXPIRE, is_polled=True) is WAIT
        assert state.ack_step(101.0, EXPIRE, is_polled=True) is PROBE, "no tail comes"
    state.meet_chunks()
    assert state.ack_step(100.0, 0.0) is NOTHING, "they complete at any time"
    if state.processed is not None:
        state.dated(state.processed, 0, 100.0)
        assert state.ack_step(100.0, EXPIRE) is (NOTHING if step is NOTHING else ACKNOWLEDGE)
    state.probe_failed(100.0, 0.01)
    assert state.ack_step(100.9, EXPIRE) is not WAIT, "what is dated needs no other probe"
    assert state.ack_step(101.0, 0.0) is NOTHING


@pytest.mark.parametrize(
    ("position", "probed", "step"),
    [
        ("5:4", None, PROBE),
        ("5:4", ("5:1", 0.9), ACKNOWLEDGE),
        ("5:4", ("5:1", 1.0), PROBE),
        ("5:4", ("4:9", 0.1), PROBE),
        ("5:9", ("5:1", 0.1), PROBE),
        ("7:0", ("5:1", 0.1), PROBE),
    ],
)
def test_the_next_step_where_chunks_were_met(position, probed, step):
    state = state_of(position)
    state.meet_chunks()
    if probed is not None:
        place, ago = probed
        state.probed(at(place), 100.0 - ago)
    assert state.ack_step(100.0, EXPIRE) is step
    state.tail = Seen(at("5:-1"), at("5:9"))
    assert state.ack_step(100.0, EXPIRE) is step, "a tail does not date it"


@pytest.mark.parametrize(
    ("acknowledged", "after", "reached", "is_enough"),
    [
        ("5:3", "5:3", "5:30", True),
        ("5:3", "5:-1", "5:31", True),
        ("5:3", "4:7", "5:30", True),
        ("5:3", "5:3", "5:29", False),
        ("5:3", "5:14", "5:30", True),
        ("5:3", "5:15", "5:30", False),
        ("4:3", "5:14", "5:30", True),
        ("4:3", "5:15", "5:30", False),
        ("4:3", "4:4", "5:30", False),
        ("4:3", "5:-1", "5:30", True),
    ],
)
def test_what_a_tail_has_to_see(acknowledged, after, reached, is_enough):
    state = state_of("5:30", acknowledged=acknowledged, last="5:30")
    state.tail = Seen(at(after), at(reached))
    assert state.ack_step(100.0, EXPIRE) is (ACKNOWLEDGE if is_enough else PROBE)


@pytest.mark.parametrize(
    ("acknowledged", "last", "start"),
    [
        ("5:9", "5:9", "5:9"),
        ("6:-1", "5:9", "5:9"),
        ("5:3", "5:9", "5:3"),
        ("5:3", "5:30", "5:14"),
        ("4:3", "5:30", "5:14"),
        ("4:3", "5:9", "5:-1"),
        ("-1:-1", "-1:-1", "-1:-1"),
    ],
)
def test_a_tail_begins_where_it_sees_enough(acknowledged, last, start):
    state = state_of(last, acknowledged=acknowledged, last=last)
    assert state.tail_start == at(start)
    if start.startswith("5:") and acknowledged < last:
        state.tail = Seen(at(start), at(last))
        assert state.ack_step(100.0, EXPIRE) in (ACKNOWLEDGE, PROBE)
    state.meet_chunks()
    assert state.tail_start == at(last), "chunks are known"


@given(
    st.lists(st.sampled_from(["plain", "chunk", "ledger"]), min_size=1, max_size=60),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_no_ledger_is_acknowledged_with_a_chunk_near_its_end_that_nobody_has_looked_at(kinds, begun, after):
    """Whatever a tail has seen: it must have seen the last few entries, or all that are not acknowledged."""
    entries = [MessageId(5 + kinds[:n].count("ledger"), n) for n in range(len(kinds))]
    done = entries[-1]
    state = state_of(None, acknowledged="5:-1", last=str(done))
    state.position = done
    state.acknowledged = entries[begun] if begun < len(entries) - 1 else at("5:-1")
    first = entries[after] if after < len(entries) else at("5:-1")
    state.tail = Seen(first, done)
    if state.ack_step(100.0, EXPIRE) is not ACKNOWLEDGE:
        return
    looked_at = [each for each in entries if first < each <= done]
    unacknowledged = [each for each in entries if state.acknowledged < each <= done]
    assert len(looked_at) >= 16 or set(looked_at) >= set(unacknowledged)


@pytest.mark.parametrize(
    ("waited", "rests"),
    [(0.0, [1.0, 1.0, 1.0]), (0.05, [1.0, 1.0]), (30.0, [30.0, 60.0, 120.0, 240.0, 300.0, 300.0])],
)
def test_probes_that_fail_again_and_again_leave_time_for_other_partitions(waited, rests):
    state, now = state_of("5:4"), 100.0
    assert state.ack_step(now, EXPIRE) is PROBE
    for seconds in rests:
        state.probe_failed(now, waited)
        assert state.ack_step(now + seconds - 0.1, EXPIRE) is WAIT
        now += seconds
        assert state.ack_step(now, EXPIRE) is PROBE
    state.probed(at("4:0"), now)
    state.probe_failed(now, waited)
    assert state.ack_step(now + rests[0], EXPIRE) is PROBE, "the last probe did not fail"


def test_a_probe_that_failed_holds_nothing_that_needs_no_probe():
    state = state_of("5:4", acknowledged="5:3")
    state.probe_failed(100.0, 30.0)
    state.tail = Seen(at("5:3"), at("5:3"))
    assert state.ack_step(100.0, EXPIRE) is WAIT
    state.tail = Seen(at("5:3"), at("5:4"))
    assert state.ack_step(100.0, EXPIRE) is ACKNOWLEDGE


def test_without_chunks_all_that_is_processed_is_settled():
    assert state_of("5:4").settle(EXPIRE) == at("5:4")


@pytest.mark.parametrize(
    ("processed", "last", "asked_at", "settled"),
    [
        # (entry, seconds of its publish time, seconds when it was processed), ..., the end, when it was asked
        ([], "5:9", 999.0, "-1:-1"),
        ([("5:1", 0, 0)], "5:9", 999.0, "-1:-1"),
        # published within the time, however long the batches took
        ([("5:1", 0, 0), ("5:4", 1, 500)], "5:9", 999.0, "-1:-1"),
        ([("5:1", 0, 0), ("5:4", 60, 500)], "5:9", 999.0, "-1:-1"),
        # published after the time, however short the batches were
        ([("5:1", 0, 0), ("5:4", 60.001, 1)], "5:9", 0.0, "5:1"),
        ([("5:1", 0, 0), ("5:2", 1, 1), ("5:4", 70, 2)], "5:9", 0.0, "5:2"),
        ([("5:1", 0, 0), ("5:2", 20, 1), ("5:4", 70, 2)], "5:9", 0.0, "5:1"),
        # a clock that is slow does not make what lies before it older
        ([("5:1", 100, 0), ("5:2", 0, 1), ("5:4", 110, 2)], "5:9", 0.0, "-1:-1"),
        # the end, after silence
        ([("5:4", 0, 10)], "5:4", 69.9, "-1:-1"),
        ([("5:4", 0, 10)], "5:4", 70.0, "5:4"),
        ([("5:1", 0, 0), ("5:4", 1, 10)], "5:4", 70.0, "5:4"),
        ([("5:4", 0, 10)], "5:5", 70.0, "-1:-1"),
    ],
)
def test_what_is_settled_where_chunks_were_met(processed, last, asked_at, settled):
    state = state_of(processed[-1][0] if processed else "5:1", last=last)
    state.meet_chunks()
    for entry, published, now in processed:
        state.dated(at(entry), int(published * 1000), float(now))
    state.asked_at = asked_at
    state.meet_chunks()  # once more forgets nothing
    assert state.settle(EXPIRE) == at(settled)
    assert state.settle(0.0) == at("-1:-1"), "messages that never expire are waited for"


def test_positions_of_one_time_are_held_as_one():
    state = state_of("5:0", last="5:999")
    state.meet_chunks()
    for entry in range(999):
        state.position = MessageId(5, entry)
        state.dated(state.position, 7000 - entry // 2, float(entry))
    assert len(state._held) == 1
    assert state.settle(EXPIRE) == at("-1:-1")
    state.dated(at("5:999"), 67_001, 999.0)
    assert state.settle(EXPIRE) == at("5:998")


def test_the_end_is_settled_only_while_it_is_what_is_processed():
    state = state_of("5:4", last="5:4")
    state.meet_chunks()
    state.dated(at("5:4"), 0, 0.0)
    state.asked_at, state.last, state.position = 100.0, at("5:6"), at("5:6")
    assert state.settle(EXPIRE) == at("-1:-1"), "5:6 was published after it, and just now"


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 500)), min_size=1, max_size=20))
def test_no_message_that_may_complete_loses_its_beginning(steps):
    """However long batches take: what comes next is too late for all that begins in what is settled."""
    state = state_of("5:-1", last="5:99")
    state.meet_chunks()
    published, now, times = 0, 0.0, {}
    for entry, (seconds, duration) in enumerate(steps):
        published, now = published + seconds, now + duration
        times[entry] = published
        state.position, state.asked_at = MessageId(5, entry), now
        state.dated(state.position, published * 1000, now)
        settled = state.settle(EXPIRE)
        if settled.is_entry:
            assert published - times[settled.entry] > EXPIRE


def test_a_subscription_that_was_moved_begins_there():
    state = state_of("5:4", acknowledged="5:4")
    state.moved(at("5:2"))
    assert state.is_unacknowledged(at("5:3"))
    assert (state.start, state.position) == (at("5:2"), at("5:4"))


def test_the_first_message_after_the_position_that_was_seen():
    state = Partition(T, None, at("5:9"), at("5:9"), at("5:9"), position=at("5:9"))
    for message, seen in [("5:9", "-1:-1"), ("7:3", "7:3"), ("6:1", "6:1"), ("8:0", "6:1"), ("5:2", "6:1")]:
        state.see(at(message))
        assert state.next_seen == at(seen)
    state.position = at("6:1")
    state.see(at("8:0"))
    assert state.next_seen == at("8:0")


def test_how_many_entries_wait_is_counted_within_a_ledger_and_asked_for_across_ledgers():
    for position, last, count in [
        ("5:4", "5:9", 5),
        ("5:9", "5:9", 0),
        ("7:0", "5:9", 0),
        ("5:4:1", "5:9", 6),
    ]:
        state = state_of(position, last=last)
        assert state.count_backlog()
        assert state.backlog == count
        assert state.entries_until(at(last)) == count
    state = state_of("5:4", last="6:3")
    for last in ("6:3", "6:4"):
        state.last = at(last)
        assert not state.count_backlog()
        assert state.backlog is None
        state.backlog_counted(0)
        assert state.count_backlog(), "it is asked for once"
        assert state.backlog == 1
    assert (state.entries_until(at("5:9")), state.entries_until(at("6:3"))) == (5, 1)


def test_the_broker_counts_again_what_waits_after_the_topic_seemed_to_end_earlier():
    state = state_of("5:4", last="6:3", acknowledged="5:4", planned=at("5:4"))
    assert not state.count_backlog()
    state.backlog_counted(4)
    state.last = MessageId.EARLIEST
    assert state.count_backlog()
    assert state.is_settled
    state.last = at("6:3")
    assert not state.is_settled
    assert not state.count_backlog()
