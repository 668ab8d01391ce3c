"""PartitionWriter: each state with each input, receipts, failures and room."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_spark.errors import (
    AuthError,
    ClosedError,
    DeadlineError,
    NotReadyError,
    ProtocolError,
    QueueFullError,
    SendError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.partition_writer import Step, WriterState
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each
from tests.protocol.writing.partition_writers import (
    CLOSED,
    CUT,
    DROPPED,
    FAILED,
    FINAL,
    FULL,
    LOST,
    MAX_MESSAGE,
    OPEN,
    PLACE,
    REGISTERING,
    SEALED,
    TERMINATED,
    TIMEOUT,
    TOPIC,
    entries,
    ids,
    new_writer,
    outgoing,
    prove,
    register,
    success,
    with_pending,
    writer_in,
)

# ---- each state with each input

INPUTS = {
    "add one": lambda writer: ids(writer.add(entries(writer), 1.0)),
    "add three": lambda writer: ids(writer.add(entries(writer, 3), 1.0)),
    "resume": lambda writer: ids(writer.resume(1.0)),
    "receipt of the oldest": lambda writer: getattr(writer.receipt(0, *PLACE), "sequence_id", None),
    "receipt of a newer one": lambda writer: writer.receipt(1, *PLACE),
    "receipt of one that was dropped": lambda writer: writer.receipt(0, *DROPPED),
    "refused": lambda writer: writer.refused(0, pb.ServiceNotReady, "later"),
    "lost": lambda writer: writer.lost(CUT),
    "registering": lambda writer: writer.registering(),
    "next step": lambda writer: writer.next_step(1.0),
    "next step, too late": lambda writer: writer.next_step(TIMEOUT),
    "give up": lambda writer: writer.give_up(FINAL),
    "close": lambda writer: writer.close(),
}

# What it gives, or raises, and the next state; None: the same state. In the order of ``WriterState``.
TABLE: dict[str, list[tuple[Any, Any]]] = {
    "add one": [
        *(([], None), ([1], None), ([], None), ([], None), ([], None)),
        *((TopicNotFoundError, None), (ClosedError, None)),
    ],
    "add three": [
        *(([], None), ([1], FULL), ([], None), ([], None), ([], None)),
        *((TopicNotFoundError, None), (ClosedError, None)),
    ],
    "resume": [
        *(([], None), ([], None), ([], None), ([], None), ([], None)),
        *((TopicNotFoundError, None), (ClosedError, None)),
    ],
    "receipt of the oldest": [(None, None), (0, None), (0, None), *[(None, None)] * 4],
    "receipt of a newer one": [
        *((None, None), (ProtocolError, None), (ProtocolError, None)),
        *[(None, None)] * 4,
    ],
    "receipt of one that was dropped": [
        *((None, None), (None, FAILED), (None, FAILED)),
        *[(None, None)] * 4,
    ],
    "refused": [(None, LOST), (None, LOST), (None, LOST), *[(None, None)] * 4],
    "lost": [(None, LOST), (None, LOST), (None, LOST), *[(None, None)] * 4],
    "registering": [
        *((None, None), (None, REGISTERING), (None, REGISTERING)),
        *((None, REGISTERING), (None, None), (None, None), (None, None)),
    ],
    "next step": [
        *((Step.REOPEN, None), (Step.WAIT, None), (Step.WAIT, None)),
        *((Step.REOPEN, None), (Step.STOP, None), (Step.STOP, None), (Step.STOP, None)),
    ],
    "next step, too late": [*[(Step.STOP, FAILED)] * 4, *[(Step.STOP, None)] * 3],
    "give up": [*[(None, FAILED)] * 4, *[(None, None)] * 3],
    "close": [*[(None, CLOSED)] * 6, (None, None)],
}


ENDS = {
    "refused": lambda writer: writer.refused(0, pb.TopicTerminatedError, "terminated"),
    "lost": lambda writer: writer.lost(TERMINATED),
    "failed registration": lambda writer: writer.give_up(TERMINATED),
    "deleted": lambda writer: writer.give_up(FINAL),
}


@for_each("end", ENDS)
@for_each("state", WriterState)
def test_the_end_of_a_segment_is_no_failure(end, state):
    writer = writer_in(state, is_segment=True)
    ENDS[end](writer)
    assert writer.state is (state if state in (FAILED, CLOSED) else SEALED)


@for_each("end", ENDS)
def test_the_end_of_another_topic_is_a_failure(end):
    writer = writer_in(OPEN)
    ENDS[end](writer)
    assert writer.next_step(1.0) is Step.STOP
    assert writer.state is FAILED


def test_entries_that_a_sealed_segment_does_not_have_are_given_back_in_order():
    writer = new_writer(is_segment=True, keeps_rows=True)
    register(writer)
    first = entries(writer, 4)
    writer.add(first, 0.0)
    assert writer.receipt(0, *PLACE) is first[0]
    writer.resume(0.0)
    writer.refused(1, pb.TopicTerminatedError, "terminated")
    later = entries(writer, 2)
    assert writer.add(later, 1.0) == []
    proof = writer.proof
    prove(proof, first[1:2])
    assert (proof.after, proof.missing) == (MessageId(*PLACE), 1)
    assert writer.settle(proof.found) == [*first[2:], *later]
    assert (writer.tally.sent.messages, writer.state) == (2, CLOSED)
    assert writer.proof is None


def test_the_table_is_whole():
    assert TABLE.keys() == INPUTS.keys()
    assert {len(outcomes) for outcomes in TABLE.values()} == {len(WriterState)}


@for_each("state", WriterState)
@for_each("name", INPUTS)
def test_each_input_in_each_state(name, state):
    writer = writer_in(state)
    expected, after = TABLE[name][list(WriterState).index(state)]
    if isinstance(expected, type) and issubclass(expected, Exception):
        with pytest.raises(expected):
            INPUTS[name](writer)
    else:
        assert INPUTS[name](writer) == expected
    assert writer.state is (after or state)


# What goes out when the broker has answered, by what was pending or waited.
@pytest.mark.parametrize(
    ("state", "resent", "after"),
    [(REGISTERING, [0], OPEN), (OPEN, [0], OPEN), (FULL, [0, 1], FULL), (LOST, [0], OPEN)],
)
def test_what_is_pending_is_sent_again_in_order(state, resent, after):
    writer = writer_in(state)
    writer.lost(CUT)
    assert ids(register(writer, now=5.0)) == resent
    assert writer.state is after
    assert writer.window.due_at == TIMEOUT  # it counts from the first time


def test_what_was_added_while_lost_goes_out_after_what_was_pending():
    writer = writer_in(LOST)
    assert writer.add(entries(writer, 2), 1.0) == []
    assert (writer.has_waiting, writer.can_resume) == (True, False)
    assert ids(register(writer)) == [0, 1]
    assert writer.state is FULL
    assert writer.receipt(0, *PLACE) is not None
    assert writer.can_resume
    assert ids(writer.resume(1.0)) == [2]
    assert writer.state is OPEN


def test_a_connection_that_is_lost_before_the_resend_sends_nothing():
    writer = writer_in(LOST)
    writer.registering()
    writer.registered(success("p", -1), MAX_MESSAGE)
    writer.lost(CUT)
    assert writer.resend("2", 1.0) == []
    assert writer.state is LOST
    assert ids(register(writer)) == [0]


def test_a_closed_writer_sends_nothing_again():
    writer = writer_in(REGISTERING)
    writer.close()
    assert writer.resend("2", 1.0) == []
    assert writer.state is CLOSED


def test_receipts_still_count_after_the_send_timeout():
    writer = writer_in(OPEN)
    assert writer.next_step(TIMEOUT) is Step.STOP
    assert writer.state is FAILED
    assert writer.receipt(0, *PLACE) is not None
    assert writer.tally.sent.messages == 1
    writer.lost(CUT)
    assert writer.receipt(1, *PLACE) is None


def test_the_send_timeout_runs_from_the_last_receipts_or_bytes():
    writer = writer_in(FULL)
    writer.receipt(0, *PLACE)
    writer.window.progress(TIMEOUT - 1)
    assert writer.window.due_at == 2 * TIMEOUT - 1
    assert writer.next_step(TIMEOUT) is Step.WAIT
    writer.progress(TIMEOUT)
    assert writer.next_step(2 * TIMEOUT - 0.1) is Step.WAIT
    assert writer.next_step(2 * TIMEOUT) is Step.STOP


def test_resends_that_are_lost_again_do_not_begin_the_send_timeout_anew():
    writer = writer_in(LOST)
    for now in range(int(TIMEOUT)):
        assert writer.next_step(float(now)) is Step.REOPEN
        register(writer, now=float(now))
        writer.progress(now + 0.5)
        writer.refused(0, pb.PersistenceError, "not enough bookies")
        writer.progress(now + 0.6)  # of the connection that is lost
    assert writer.next_step(TIMEOUT) is Step.STOP
    assert writer.state is FAILED


def test_a_comparison_that_has_succeeded_begins_the_send_timeout_anew():
    writer, added = with_pending(2)
    register(writer, 1, now=TIMEOUT + 5, stored=added)
    assert writer.next_step(2 * TIMEOUT + 4) is Step.WAIT
    writer.lost(CUT)
    register(writer, 1, now=TIMEOUT + 9)  # nothing more was compared
    assert writer.next_step(2 * TIMEOUT + 4) is Step.WAIT
    assert writer.next_step(2 * TIMEOUT + 5) is Step.STOP


def test_a_comparison_that_ends_when_the_connection_is_lost_leaves_time_for_the_next():
    writer, added = with_pending(2)
    writer.registering()
    prove(writer.registered(success("p", 1), MAX_MESSAGE), added)
    writer.lost(CUT)
    assert writer.resend("2", TIMEOUT + 5) == []
    assert writer.next_step(TIMEOUT + 6) is Step.REOPEN


# ---- receipts


def test_receipts_add_up_and_older_ones_are_ignored():
    writer = new_writer(max_messages=10)
    register(writer)
    writer.add(entries(writer, 3), 0.0)
    for sequence_id in (0, 0, 1):
        writer.receipt(sequence_id, 7, sequence_id)
    assert writer.receipt(1, *PLACE) is None
    sent = writer.tally.sent
    assert (sent.messages, sent.first_id, sent.last_id) == (2, MessageId(7, 0), MessageId(7, 1))
    assert ids(list(writer.window)) == [2]
    assert bool(writer.window)
    writer.receipt(2, *PLACE)
    assert not bool(writer.window)
    assert writer.window.due_at is None


# ---- what went wrong


@pytest.mark.parametrize("last", [-1, 0])
def test_a_receipt_of_ledger_0_is_no_drop(last):
    writer = new_writer()
    register(writer, last)
    writer.add([outgoing(0)], 0.0)
    assert writer.receipt(0, 0, 5).sequence_id == 0
    writer.check()
    assert (writer.tally.first_entry, writer.dropped) == (MessageId(0, 5), 0)


def test_the_first_loss_counts():
    writer = writer_in(OPEN)
    writer.refused(0, pb.TopicTerminatedError, "terminated")
    writer.lost(CUT)
    assert isinstance(writer.loss, SendError)
    assert writer.next_step(1.0) is Step.STOP
    with pytest.raises(SendError, match=r"terminated.*persistent://a/b/t"):
        writer.check()


@pytest.mark.parametrize(
    ("state", "needs"), [(OPEN, False), (REGISTERING, False), (LOST, True), (FAILED, False)]
)
def test_only_what_is_lost_with_entries_needs_reopening(state, needs):
    assert writer_in(state).needs_reopening is needs


def test_without_pending_entries_a_final_loss_is_no_failure():
    writer = writer_in(OPEN)
    writer.receipt(0, *PLACE)
    writer.lost(AuthError("no more"))
    assert not writer.needs_reopening
    writer.check()


@pytest.mark.parametrize("error", [CUT, DeadlineError("no answer"), NotReadyError("busy")])
def test_what_may_pass_is_given_up_as_a_send_timeout(error):
    writer = writer_in(LOST)
    writer.give_up(error)
    with pytest.raises(SendError, match=rf"1 messages were not acknowledged within 30 s: {error.what}"):
        writer.check()


def test_what_is_final_is_given_up_as_it_is():
    writer = writer_in(LOST)
    writer.give_up(FINAL)
    writer.give_up(CUT)  # the first one counts
    with pytest.raises(TopicNotFoundError, match=TOPIC):
        writer.check()


# ---- room


def test_who_does_not_wait_gets_an_error_and_what_waited_is_dropped():
    writer = writer_in(OPEN, blocks_if_full=False)
    writer.check_room()
    assert ids(writer.add(entries(writer, 2), 0.0)) == [1]
    with pytest.raises(QueueFullError, match=r"maxPendingMessages.*persistent://a/b/t.*blockIfQueueFull"):
        writer.check_room()
    assert writer.state is OPEN
    writer.receipt(0, *PLACE)
    assert ids(writer.add(entries(writer), 0.0)) == [3]
    writer.check_room()


def test_who_waits_gets_none():
    writer = writer_in(FULL)
    writer.check_room()
    assert writer.has_waiting


def test_who_does_not_wait_may_resume_once_there_is_room():
    writer = writer_in(FULL, blocks_if_full=False)
    writer.receipt(0, *PLACE)
    writer.check_room()
    assert ids(writer.resume(0.0)) == [2]
