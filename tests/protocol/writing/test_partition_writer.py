"""PartitionWriter: each state with each input, and each of its decisions."""

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
    SchemaError,
    SendError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.partition_writer import Step, WriterState
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.loops import for_each
from tests.protocol.writing.partition_writers import (
    CUT,
    DROPPED,
    FINAL,
    MAX_MESSAGE,
    PLACE,
    TIMEOUT,
    TOPIC,
    entries,
    ids,
    metadata_of,
    new_writer,
    outgoing,
    prove,
    register,
    singles,
    success,
)

REGISTERING, OPEN, FULL, LOST, FAILED, CLOSED = WriterState


def writer_in(state, **options):
    """A writer in a state, with entry 0 pending; if it is full, 1 is pending too, and 2 waits."""
    writer = new_writer(**options)
    register(writer)
    writer.add(entries(writer), 0.0)
    if state is REGISTERING:
        writer.registering()
        writer.registered(success("p", -1), MAX_MESSAGE)
    elif state is FULL:
        writer.add(entries(writer, 2), 0.0)
    elif state is LOST:
        writer.lost(CUT)
    elif state is FAILED:
        writer.lost(CUT)
        writer.give_up(FINAL)
    elif state is CLOSED:
        writer.close()
    assert writer.state is state
    return writer


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
        ([], None),
        ([1], None),
        ([], None),
        ([], None),
        (TopicNotFoundError, None),
        (ClosedError, None),
    ],
    "add three": [
        *(([], None), ([1], FULL), ([], None), ([], None)),
        *((TopicNotFoundError, None), (ClosedError, None)),
    ],
    "resume": [
        ([], None),
        ([], None),
        ([], None),
        ([], None),
        (TopicNotFoundError, None),
        (ClosedError, None),
    ],
    "receipt of the oldest": [(None, None), (0, None), (0, None), (None, None), (None, None), (None, None)],
    "receipt of a newer one": [
        *((None, None), (ProtocolError, None), (ProtocolError, None)),
        *((None, None), (None, None), (None, None)),
    ],
    "receipt of one that was dropped": [
        *((None, None), (None, FAILED), (None, FAILED)),
        *((None, None), (None, None), (None, None)),
    ],
    "refused": [(None, LOST), (None, LOST), (None, LOST), (None, None), (None, None), (None, None)],
    "lost": [(None, LOST), (None, LOST), (None, LOST), (None, None), (None, None), (None, None)],
    "registering": [
        *((None, None), (None, REGISTERING), (None, REGISTERING)),
        *((None, REGISTERING), (None, None), (None, None)),
    ],
    "next step": [
        *((Step.REOPEN, None), (Step.WAIT, None), (Step.WAIT, None)),
        *((Step.REOPEN, None), (Step.STOP, None), (Step.STOP, None)),
    ],
    "next step, too late": [
        *((Step.STOP, FAILED), (Step.STOP, FAILED), (Step.STOP, FAILED)),
        *((Step.STOP, FAILED), (Step.STOP, None), (Step.STOP, None)),
    ],
    "give up": [(None, FAILED), (None, FAILED), (None, FAILED), (None, FAILED), (None, None), (None, None)],
    "close": [(None, CLOSED), (None, CLOSED), (None, CLOSED), (None, CLOSED), (None, CLOSED), (None, None)],
}


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
    writer.receipts_taken(TIMEOUT - 1)
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


# ---- sequence ids


def test_a_later_registration_does_not_change_the_ids():
    writer = writer_in(OPEN)
    writer.lost(CUT)
    register(writer, 0, stored=list(writer.window))
    assert writer.last_sequence_id == -1
    assert ids(entries(writer)) == [1]


# ---- registrations


def test_what_the_next_registration_repeats():
    writer = new_writer(name="orders")
    assert (writer.state, writer.name, writer.epoch, writer.topic_epoch) == (REGISTERING, "orders", 0, None)
    writer.registering()
    assert writer.registered(success("orders-1", -1, 3), MAX_MESSAGE) is None
    assert (writer.name, writer.epoch, writer.topic_epoch) == ("orders-1", 1, 3)
    writer.resend("1", 0.0)
    register(writer, name="orders-1")
    assert (writer.epoch, writer.topic_epoch) == (2, None)
    (entry,) = entries(writer)
    assert metadata_of(entry).producer_name == b"orders-1"


@pytest.mark.parametrize("anew", [b"second", b""])
def test_what_is_pending_is_not_sent_by_a_number_that_is_another_schema_now(anew):
    """The topic was deleted and made anew, under the producer."""
    writer = new_writer(max_messages=9)
    writer.registered(success("p", -1, None, b"first"), MAX_MESSAGE)
    writer.resend("1", 0.0)
    writer.add(entries(writer), 0.0)
    writer.lost(CUT)
    writer.registering()
    writer.registered(success("p", -1, None, b"first"), MAX_MESSAGE)
    writer.resend("2", 0.0)
    writer.lost(CUT)
    writer.registering()
    writer.registered(success("p", -1, None, anew), MAX_MESSAGE)
    with pytest.raises(SchemaError, match="version number of the rows' schema has changed"):
        writer.resend("3", 0.0)


def test_what_is_acknowledged_is_not_foreign():
    writer = writer_in(OPEN)
    writer.receipt(0, *PLACE)
    writer.lost(CUT)
    assert register(writer, 0) == []
    writer.lost(CUT)
    writer.registering()
    with pytest.raises(SendError, match="somebody else"):
        writer.registered(success("p", 1), MAX_MESSAGE)


def test_what_was_stored_at_first_is_not_foreign():
    writer = new_writer()
    register(writer, 7)
    writer.lost(CUT)
    assert register(writer, 7) == []


def large(writer):
    return list(writer.packer.singles(singles(b"x" * 500), 5))


@pytest.mark.parametrize("found", [True, False])
def test_a_message_in_chunks_is_resent_only_if_it_is_stored(found):
    writer = new_writer(max_messages=10, chunking=True, is_shared_name=False)
    register(writer)
    chunks = large(writer)
    assert len(chunks) > 2
    writer.add(chunks, 0.0)
    writer.lost(CUT)
    writer.registering()
    proof = writer.registered(success("p", 0), MAX_MESSAGE)
    prove(proof, chunks if found else chunks[:-1])
    if found:
        assert writer.resend("2", 1.0) == chunks
        assert {metadata_of(entry).uuid for entry in chunks} == {b"p-0-2"}
        assert {metadata_of(entry).uuid for entry in large(writer)} == {b"p-1-2"}
        return
    with pytest.raises(SendError, match="while a chunked message was sent"):
        writer.resend("2", 1.0)
    assert writer.state is REGISTERING


def test_acknowledged_chunks_are_sent_again_though_no_other_is_pending():
    writer = new_writer(max_messages=1, chunking=True)
    register(writer)
    first, *_ = large(writer)
    writer.add([first], 0.0)
    assert writer.receipt(0, *PLACE) is first
    writer.lost(CUT)
    assert register(writer, now=5.0) == [first]
    assert writer.window.due_at == 5.0 + TIMEOUT


def test_a_message_in_chunks_of_which_the_last_was_not_sent_is_not_taken_for_stored():
    """The broker has restarted and taken the id from the first chunk: it would drop the last one."""
    writer = new_writer(max_messages=2, chunking=True)
    register(writer)
    chunks = large(writer)
    assert len(writer.add(chunks, 0.0)) == 2 < len(chunks)
    writer.lost(CUT)
    with pytest.raises(SendError, match="while a chunked message was sent"):
        register(writer, 0, stored=chunks[:2])
    assert writer.state is REGISTERING


def test_chunks_that_are_made_while_the_first_registration_is_lost_keep_their_size():
    """Their bytes are counted when they are added, and again when they are acknowledged."""
    writer = new_writer(max_messages=10, chunking=True)
    writer.registering()
    writer.registered(success("p", -1), MAX_MESSAGE)
    writer.lost(CUT)
    assert writer.resend("1", 1.0) == []
    chunks = large(writer)
    sizes = [entry.size for entry in chunks]
    assert writer.add(chunks, 1.0) == []
    assert register(writer) == chunks
    assert [entry.size for entry in chunks] == sizes


def test_what_was_proven_needs_no_proof_again():
    """Chunks then have another name than those that are stored."""
    writer = new_writer(max_messages=10, chunking=True)
    register(writer)
    chunks = large(writer)
    writer.add(chunks, 0.0)
    writer.lost(CUT)
    register(writer, 0, stored=chunks)
    writer.lost(CUT)
    writer.registering()
    assert writer.registered(success("p", 0), MAX_MESSAGE) is None
    assert writer.resend("3", 1.0) == chunks


# ---- what somebody else has written under the name


def with_pending(count, **options):
    """A writer that has lost its connection, with ids 0 to count - 1 pending; and its entries."""
    writer = new_writer(max_messages=10, **options)
    register(writer)
    added = entries(writer, count)
    writer.add(added, 0.0)
    writer.lost(CUT)
    return writer, added


def other(writer, sequence_id):
    """An entry that somebody else has stored by an id of this writer's."""
    message = singles(b"other")[0]._replace(sequence_ids=(sequence_id,) * 2)
    return next(writer.packer.singles([message], 6))


@pytest.mark.parametrize("ours", [0, 1, 2, 3, 4])
def test_what_somebody_else_has_stored_by_pending_ids_is_an_error(ours):
    """Ours up to some id, and then somebody else's up to the last one, which is one of ours too."""
    writer, added = with_pending(6)
    foreign = [other(writer, number) for number in range(ours, 5)]
    if foreign:
        with pytest.raises(SendError, match=r"somebody else.* name p"):
            register(writer, 4, stored=[*added[:ours], *foreign])
        assert writer.state is REGISTERING
    else:
        assert ids(register(writer, 4, stored=added[:5])) == [0, 1, 2, 3, 4, 5]


def test_a_refusal_is_settled_by_the_receipt():
    """A resend alone settles nothing: the broker may not take it before it has stored what came after."""
    writer = new_writer(max_messages=10, is_shared_name=False)
    register(writer)
    added = entries(writer, 4)
    writer.add(added, 0.0)
    writer.refused(1, pb.ChecksumError, "damaged on the way")
    assert ids(register(writer, 0)) == [0, 1, 2, 3]
    writer.lost(CUT)
    with pytest.raises(SendError, match="not found in the topic"):
        register(writer, 2, stored=[added[0], added[2]])
    assert ids(register(writer, 1, stored=added[:2])) == [0, 1, 2, 3]
    for sequence_id in (0, 1):
        writer.receipt(sequence_id, *PLACE)
    writer.lost(CUT)
    assert ids(register(writer, 3)) == [2, 3]


def test_an_entry_that_the_broker_is_still_storing_is_not_refused():
    writer = new_writer(max_messages=10, is_shared_name=False)
    register(writer)
    writer.add(entries(writer, 4), 0.0)
    writer.refused(1, pb.PersistenceError, "Cannot determine whether the message is a duplicate")
    assert ids(register(writer, 2)) == [0, 1, 2, 3]


def test_what_is_dropped_as_known_counts_as_stored():
    writer, added = with_pending(3)
    register(writer, 1, stored=added)
    assert ids([writer.receipt(number, *DROPPED) for number in (0, 1)]) == [0, 1]
    assert writer.receipt(2, *DROPPED) is None
    assert writer.receipt(2, *PLACE) is None  # nothing counts any more
    with pytest.raises(SendError, match="somebody else"):
        writer.check()
    assert (writer.tally.sent.messages, ids(list(writer.window))) == (2, [2])
    assert writer.dropped == 0, "they were not stored before this producer"


@pytest.mark.parametrize("last", [-1, 4])
def test_what_is_sent_once_must_not_be_dropped(last):
    writer = new_writer(is_shared_name=False)
    register(writer, last)
    writer.add(entries(writer), 0.0)
    assert writer.receipt(last + 1, *DROPPED) is None
    with pytest.raises(SendError, match="somebody else"):
        writer.check()


def test_rows_with_ids_that_were_stored_before_may_be_dropped_and_are_counted():
    """That is what the user wants with ids of the rows' own."""
    writer = new_writer(max_messages=10)
    register(writer, 4)
    for sequence_id, place in ((2, DROPPED), (4, DROPPED), (9, PLACE), (10, PLACE)):
        writer.add([other(writer, sequence_id)], 0.0)
        assert writer.receipt(sequence_id, *place) is not None
    assert (writer.tally.sent.messages, writer.dropped) == (4, 2)


def test_rows_with_ids_that_do_not_ascend_may_be_stored():
    writer = new_writer(max_messages=10)
    register(writer)
    for sequence_id in (9, 3, 3, 10):
        writer.add([other(writer, sequence_id)], 0.0)
        assert writer.receipt(sequence_id, *PLACE) is not None
    assert (writer.tally.sent.messages, writer.dropped) == (4, 0)


def test_the_chunks_of_a_message_do_not_excuse_its_last_one():
    writer = new_writer(max_messages=10, chunking=True)
    register(writer)
    chunks = large(writer)
    writer.add(chunks, 0.0)
    for _ in chunks[:-1]:
        assert writer.receipt(0, *PLACE) is not None
    assert writer.receipt(0, *DROPPED) is None
    assert writer.state is FAILED


# ---- another name


def test_under_another_name_all_begins_again():
    writer = new_writer(name="first", first_sequence_id=100)
    register(writer, 120, name="first")
    writer.restart("second", 0)
    assert (writer.state, writer.name, writer.epoch) == (REGISTERING, "second", 0)
    register(writer, name="second")
    assert writer.last_sequence_id == -1
    (entry,) = writer.packer.singles(singles(b"a"), 5)
    assert (entry.sequence_id, entry.messages) == (0, 1)
    assert metadata_of(entry).producer_name == b"second"


def test_a_name_is_not_changed_with_entries_pending():
    with pytest.raises(AssertionError, match="pending"):
        writer_in(OPEN).restart("other", 0)
