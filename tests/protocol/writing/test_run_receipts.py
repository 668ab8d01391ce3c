"""Receipts for runs: what they acknowledge at once, and where each one is judged by itself."""

import pytest

from pulsar_spark.errors import ProtocolError, SendError
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.partition_writer import WriterState
from pulsar_spark.wire.frame_runs import Receipts
from tests.protocol.writing.partition_writers import CUT, ids, new_writer, outgoing, register, run_of


def with_run(count, **options):
    """A writer with a run of ids 0 to count - 1 pending."""
    writer = new_writer(max_messages=100, **options)
    register(writer)
    (run,) = writer.add([run_of(*[b"x"] * count)], 0.0)
    assert run.messages == count
    return writer


def taken(writer, *receipts):
    """The ids that receipts acknowledge, at once or one by one."""
    found = writer.receipts(Receipts(3, *map(list, zip(*receipts, strict=True))))
    return [(ids(acknowledged.entries), first) for acknowledged, first in found]


def stored(*numbers):
    return [(number, 7, 100 + number) for number in numbers]


def dropped(*numbers):
    return [(number, -1, -1) for number in numbers]


def test_all_receipts_of_a_run_are_taken_at_once():
    writer = with_run(5)
    size = sum(entry.size for entry in list(writer.window))
    assert taken(writer, *stored(0, 1)) == [([0, 1], 0)]
    assert (writer.tally.sent.first_id, writer.tally.sent.last_id) == (MessageId(7, 100), MessageId(7, 101))
    assert ids(list(writer.window)) == [2, 3, 4]
    assert taken(writer, *stored(2, 3, 4)) == [([2, 3, 4], 0)]
    assert (writer.tally.sent.messages, writer.tally.sent.bytes) == (5, size)
    assert writer.tally.first_entry == MessageId(7, 100)
    assert (writer.tally.sent.first_id, writer.tally.sent.last_id) == (MessageId(7, 100), MessageId(7, 104))
    assert not bool(writer.window)


def test_receipts_reach_from_one_run_into_the_next():
    writer = with_run(2)
    writer.add([run_of(*[b"y"] * 3, first_id=2)], 0.0)
    assert taken(writer, *stored(0, 1, 2, 3)) == [([0, 1], 0), ([2, 3], 2)]
    assert ids(list(writer.window)) == [4]


def test_a_dropped_message_in_a_run_is_an_error_unless_it_is_known_to_be_stored():
    writer = with_run(5)
    assert taken(writer, *stored(0, 1), *dropped(2), *stored(3, 4)) == [([0, 1], 0)]
    assert writer.state is WriterState.FAILED
    assert writer.tally.sent.messages == 2
    with pytest.raises(SendError, match="somebody else"):
        writer.check()


def test_messages_of_a_run_that_are_sent_again_may_be_dropped():
    writer = with_run(5, is_shared_name=False)
    writer.lost(CUT)
    (again,) = register(writer, 2)
    assert ids(again.entries) == [0, 1, 2, 3, 4]
    found = taken(writer, *dropped(0, 1, 2), *stored(3, 4))
    assert found == [([0], 0), ([1], 1), ([2], 2), ([3, 4], 3)]
    assert (writer.tally.sent.messages, writer.tally.sent.first_id) == (5, MessageId(7, 103))


def test_the_highest_id_of_an_acknowledged_run_is_known_to_be_stored():
    writer = with_run(5)
    taken(writer, *stored(0, 1, 2, 3, 4))
    writer.lost(CUT)
    assert register(writer, 4) == []
    writer.add([run_of(b"y", first_id=5)], 0.0)
    assert taken(writer, *stored(5)) == [([5], 0)]
    assert writer.tally.sent.messages == 6


def test_receipts_of_a_lost_registration_acknowledge_nothing():
    writer = with_run(3)
    writer.lost(CUT)
    assert taken(writer, *stored(0, 1, 2)) == []
    assert ids(list(writer.window)) == [0, 1, 2]


def test_receipts_that_came_before_are_ignored():
    writer = with_run(5)
    taken(writer, *stored(0, 1))
    assert taken(writer, *stored(0, 1, 2)) == [([2], 2)]


def test_receipts_that_come_twice_are_taken_once():
    writer = with_run(3)
    assert taken(writer, *stored(0, 0, 1, 2, 2)) == [([0], 0), ([1, 2], 2)]


def test_a_receipt_that_is_missing_ends_the_connection():
    writer = with_run(5)
    with pytest.raises(ProtocolError, match="sequence id 3 came before that of 2"):
        taken(writer, *stored(0, 1, 3, 4))
    assert ids(list(writer.window)) == [2, 3, 4]


@pytest.mark.parametrize("last", [-1, 0, None])
def test_a_receipt_of_ledger_0_is_no_drop(last):
    """Of a run, or of an entry that is above the last id, or is not."""
    if last is None:
        writer = with_run(1)
    else:
        writer = new_writer(max_messages=100)
        register(writer, last)
        writer.add([outgoing(0)], 0.0)
    ((entry, number),) = writer.receipts(Receipts(3, [0], [0], [5]))
    assert (entry.sequence_id, number) == (0, 0)
    writer.check()
    assert (writer.tally.first_entry, writer.dropped) == (MessageId(0, 5), 0)
