"""PartitionWriter: what is sent, and by which ids, after a later registration."""

from __future__ import annotations

import pytest

from pulsar_spark.errors import SchemaError, SendError
from tests.protocol.writing.partition_writers import (
    CUT,
    MAX_MESSAGE,
    OPEN,
    PLACE,
    REGISTERING,
    TIMEOUT,
    entries,
    ids,
    large,
    metadata_of,
    new_writer,
    prove,
    register,
    singles,
    success,
    writer_in,
)

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
