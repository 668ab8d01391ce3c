"""PartitionWriter: what somebody else has written under the name."""

from __future__ import annotations

import pytest

from pulsar_spark.errors import SendError
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.protocol.writing.partition_writers import (
    CUT,
    DROPPED,
    FAILED,
    PLACE,
    REGISTERING,
    entries,
    ids,
    large,
    new_writer,
    register,
    singles,
    with_pending,
)


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
