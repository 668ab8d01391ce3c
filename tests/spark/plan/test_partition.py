"""PartitionState: positions over triggers, and the steps of an acknowledgement as a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client import LastMessageId
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.plan.partition import AckStep, PartitionState, visible_end

NOTHING, ACKNOWLEDGE, PROBE, WAIT = AckStep.NOTHING, AckStep.ACKNOWLEDGE, AckStep.PROBE, AckStep.WAIT
EXPIRE = 60.0


def at(text):
    return None if text is None else MessageId.parse(text)


def state_of(position, *, acknowledged="5:-1", last="5:9", **more):
    return PartitionState(at("5:-1"), at(acknowledged), at(last), position=at(position), **more)


def test_an_opened_partition_is_where_its_subscription_stands():
    state = PartitionState.opened(LastMessageId(at("5:9:3"), at("5:2")))
    assert (state.start, state.acknowledged, state.last) == (at("5:2"), at("5:2"), at("5:9"))
    assert state.processed is None


@pytest.mark.parametrize(
    ("last", "end"), [("5:9", "5:9"), ("5:9:2", "5:9"), ("5:-1", "-1:-1"), ("-1:-1", "-1:-1")]
)
def test_the_end_that_is_visible(last, end):
    assert visible_end(at(last)) == at(end)


@pytest.mark.parametrize(
    ("checkpointed", "is_recreated", "position"),
    [("5:3", False, "5:3"), (None, False, "5:-1"), ("9:3", True, "5:-1"), (None, True, "5:-1")],
)
def test_a_trigger_takes_up_what_is_checkpointed(checkpointed, is_recreated, position):
    state = state_of(None, is_recreated=is_recreated)
    state.take_up(at(checkpointed))
    assert state.position == at(position)
    assert not state.is_recreated


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


@pytest.mark.parametrize(
    ("position", "acknowledged", "probed", "frozen", "step"),
    [
        # position, acknowledged, (ledger probed, seconds ago), frozen end
        (None, "5:-1", None, None, NOTHING),
        ("5:-1", "5:-1", None, None, NOTHING),
        ("5:0:3", "5:-1", None, None, NOTHING),
        ("5:4", "5:4", None, None, NOTHING),
        ("5:4", "5:8", None, None, NOTHING),
        ("5:4", "5:3", None, None, PROBE),
        ("5:4", "5:3", ("5:1", 0.9), None, WAIT),
        ("5:4", "5:3", ("5:1", 1.0), None, PROBE),
        ("5:4", "5:3", ("4:9", 0.1), None, PROBE),
        ("5:9", "5:3", ("5:1", 0.1), None, PROBE),
        ("7:0", "5:3", ("5:1", 0.1), None, PROBE),
        ("5:4", "5:3", ("5:1", 0.1), "5:4", PROBE),
        ("5:4", "5:3", ("5:1", 0.1), "5:5", WAIT),
    ],
)
def test_the_next_step_of_an_acknowledgement(position, acknowledged, probed, frozen, step):
    state = state_of(position, acknowledged=acknowledged, frozen_end=at(frozen))
    if probed is not None:
        place, ago = probed
        state.probed(at(place), 100.0 - ago)
    assert state.ack_step(100.0) is step
    state.meet_chunks()
    assert state.ack_step(100.0) is (NOTHING if position is None else ACKNOWLEDGE)


def test_without_chunks_all_that_is_processed_is_settled():
    assert state_of("5:4").settle(0.0, EXPIRE) == at("5:4")


def test_with_chunks_each_position_is_settled_when_it_has_expired():
    state = state_of("5:1")
    state.meet_chunks()
    settled = []
    for now, position in [(0, "5:1"), (10, "5:1"), (20, "5:4:1"), (59, "5:4"), (60, "5:4"), (80, "5:4")]:
        state.position = at(position)
        settled.append(str(state.settle(float(now), EXPIRE)))
    assert settled == ["-1:-1"] * 4 + ["5:1", "5:3"]
    state.meet_chunks()
    assert state.settle(119.0, EXPIRE) == at("5:4"), "meeting chunks again forgets nothing"


def test_chunks_that_never_expire_are_not_waited_for():
    state = state_of("5:1")
    state.meet_chunks()
    assert state.settle(5.0, 0.0) == at("5:1")


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 9)), min_size=1, max_size=20))
def test_nothing_is_settled_before_its_time(steps):
    """However a query goes on: what is settled was processed, as long ago as a message may take."""
    state = state_of("5:-1")
    state.meet_chunks()
    now, processed_at, reached = 0.0, {}, -1
    for seconds, entry in steps:
        now += seconds
        reached = max(reached, entry)
        processed_at.setdefault(reached, now)
        state.position = MessageId(5, reached)
        settled = state.settle(now, EXPIRE)
        if settled.is_message:
            assert now - processed_at[settled.entry] >= EXPIRE - 1e-6


def test_a_subscription_that_was_moved_begins_there():
    state = state_of("5:4", acknowledged="5:4")
    state.moved(at("5:2"))
    assert state.is_unacknowledged(at("5:3"))
    assert (state.start, state.position) == (at("5:2"), at("5:4"))
