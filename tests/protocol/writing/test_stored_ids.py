"""StoredIds: each decision about what the broker has dropped or stored, by what came before."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pulsar_spark.errors import NotReadyError, SchemaError, SendError
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.writing.outgoing import EntryKind
from pulsar_spark.protocol.writing.stored_ids import StoredIds
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.protocol.writing.partition_writers import (
    TOPIC,
    chunk,
    new_packer,
    outgoing,
    prove,
    singles,
)

IS_BEING_STORED = "Cannot determine whether the message is a duplicate at this time"


def new_ids(acknowledged_to=-1, *, last=None, **options):
    """Ids of a producer that was registered once, if ``last`` is given."""
    stored = StoredIds(TOPIC, **options)
    if last is not None:
        assert stored.registered("p", last, last, []) is None
    stored.acknowledged_to = acknowledged_to
    return stored


def entries(count):
    """Entries of one message each, with ids from 0 on, that can be compared with stored ones."""
    packer = new_packer()
    packer.registered("p", 5000, b"")
    return list(packer.singles(singles(*[b"x"] * count), 5))


# ---- dropped entries

FOREIGN, UNSORTED = "producer name p", "sequence id 7 on .* ids .*__sequenceId.* do not ascend"
# The broker's last id, the highest that was acknowledged, the oldest entry, and the error.
DROPPED = {
    "above all": (4, 6, outgoing(7), FOREIGN),
    "acknowledged before": (4, 7, outgoing(7), UNSORTED),
    "below what was acknowledged": (4, 9, outgoing(7, 2), UNSORTED),
    "named at the registration": (7, 4, outgoing(7), None),
    "named at the registration, and acknowledged before": (7, 7, outgoing(7), UNSORTED),
    "nothing is known": (-1, -1, outgoing(7), FOREIGN),
    "a chunk before the last one": (4, 9, chunk(7), None),
    "the last chunk": (4, 6, chunk(7, EntryKind.LAST_CHUNK), FOREIGN),
    "another entry is the oldest": (4, 6, outgoing(8), None),
    "nothing is pending": (4, 6, None, None),
}


@pytest.mark.parametrize(("last", "acknowledged_to", "oldest", "text"), DROPPED.values(), ids=DROPPED)
def test_a_dropped_entry_is_an_error_unless_it_is_stored(last, acknowledged_to, oldest, text):
    error = new_ids(acknowledged_to, last=last).judge_drop(7, oldest)
    if text is None:
        assert error is None
    else:
        assert isinstance(error, SendError)
        assert re.search(f"{text}.*{TOPIC}", str(error))


def test_what_was_found_stored_may_be_dropped():
    pending = entries(2)
    stored = new_ids(last=-1)
    prove(stored.registered("p", 1, -1, pending), pending)
    assert stored.take_proof()
    for sequence_id, entry in enumerate(pending):
        assert stored.judge_drop(sequence_id, entry) is None
        stored.acknowledged_to = sequence_id
    assert stored.judge_drop(0, entries(1)[0]) is not None


# ---- registrations


def test_pending_entries_that_the_broker_does_not_claim_are_sent_again():
    stored = new_ids(4, last=-1)
    assert stored.registered("p", 4, -1, [outgoing(5), outgoing(6)]) is None
    assert not stored.take_proof()


# The last ids that the broker names at each registration, the highest that is acknowledged before the last
# one, and whether the broker has forgotten what it had stored.
FORGOTTEN = {
    "nothing was ever named: perhaps it does not deduplicate": ([-1, -1], 9, False),
    "what was named at first": ([4, 3], -1, True),
    "all that was named at first": ([4, -1], -1, True),
    "the only one that was named at first": ([0, -1], -1, True),
    "what was acknowledged since": ([4, 8], 9, True),
    "the same, and nothing was named at first": ([-1, 8], 9, True),
    "all that was acknowledged": ([-1, 9, -1], 9, True),
    "what is still pending: it was named before it was stored": ([4, 7, 4], -1, False),
    "nothing": ([4, 9], 9, False),
}


@pytest.mark.parametrize(("named", "acknowledged_to", "is_forgotten"), FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_broker_that_has_forgotten_what_it_had_stored_is_an_error(named, acknowledged_to, is_forgotten):
    pending = [outgoing(number) for number in range(10, 12)]
    stored = StoredIds(TOPIC, is_shared_name=False)
    for last in named[:-1]:
        stored.registered("p", last, named[0], [*map(outgoing, range(5, 10)), *pending])
    stored.acknowledged_to = acknowledged_to
    if is_forgotten:
        with pytest.raises(SendError, match=f"no longer knows.*producer p: .*topic {TOPIC}.*Let Spark retry"):
            stored.registered("p", named[-1], named[0], pending)
    else:
        assert stored.registered("p", named[-1], named[0], pending) is None


def test_a_broker_that_has_forgotten_what_was_found_stored_is_an_error():
    pending = entries(2)
    stored = new_ids(last=-1)
    prove(stored.registered("p", 1, -1, pending), pending)
    assert stored.take_proof()
    with pytest.raises(SendError, match="no longer knows"):
        stored.registered("p", 0, -1, pending)


@pytest.mark.parametrize(("acknowledged_to", "at_first"), [(6, -1), (-1, 6)])
def test_what_is_known_to_be_stored_is_not_foreign(acknowledged_to, at_first):
    stored = new_ids(acknowledged_to)
    assert stored.registered("p", 6, at_first, []) is None
    with pytest.raises(SendError, match=r"somebody else.*producer name p.*persistent://a/b/t"):
        stored.registered("p", 7, at_first, [])


def test_claimed_entries_are_compared_and_then_known_to_be_stored():
    pending = entries(3)
    stored = new_ids(last=-1)
    proof = stored.registered("p", 1, -1, pending)
    assert (proof.producer_name, proof.first_sequence_id, proof.last_sequence_id) == ("p", 0, 1)
    with pytest.raises(SendError, match="not found in the topic"):
        stored.take_proof()
    prove(proof, pending[:2])
    assert stored.take_proof()
    assert not stored.take_proof()
    assert stored.registered("p", 1, -1, pending) is None


def test_a_search_that_was_cut_short_may_be_repeated():
    pending = entries(2)
    stored = new_ids(last=-1)
    stored.registered("p", 1, -1, pending).cut_short()
    with pytest.raises(NotReadyError):
        stored.take_proof()
    prove(stored.registered("p", 1, -1, pending), pending)
    assert stored.take_proof()


def test_messages_of_a_transaction_are_sent_again_only_if_they_may_repeat():
    """The broker names no id: it may not deduplicate."""
    pending = [replace(outgoing(0), transaction=TxnId(1, 2))]
    assert StoredIds(TOPIC, may_repeat=True).registered("p", -1, -1, pending) is None
    with pytest.raises(SendError, match="it is not certain that the namespace deduplicates"):
        StoredIds(TOPIC).registered("p", -1, -1, pending)


# ---- refused entries


# Ids that were refused, and of 5 entries, under a name that nobody else has, those that are compared.
REFUSED = {
    "one": ([1], [1, 2, 3, 4]),
    "two": ([1, 4], [1, 2, 3, 4]),
    "two, reported in another order": ([4, 1], [1, 2, 3, 4]),
    "the last": ([4], [4]),
    "none": ([], []),
}


@pytest.mark.parametrize(("refused", "compared"), REFUSED.values(), ids=REFUSED)
def test_from_the_first_refused_entry_on_all_is_compared(refused, compared):
    """Refusals of later ones may have been lost with the connection."""
    stored = new_ids(last=-1, is_shared_name=False)
    for sequence_id in refused:
        stored.refused(sequence_id, pb.ChecksumError, "damaged on the way")
    proof = stored.registered("p", 4, -1, entries(5))
    if compared:
        assert (proof.first_sequence_id, proof.count) == (compared[0], len(compared))
    else:
        assert proof is None


@pytest.mark.parametrize(
    ("code", "text", "is_compared"),
    [
        (pb.PersistenceError, IS_BEING_STORED, False),
        (pb.PersistenceError, "not enough bookies", True),
        (pb.ChecksumError, IS_BEING_STORED, True),
    ],
)
def test_what_the_broker_is_still_storing_is_not_refused(code, text, is_compared):
    stored = new_ids(last=-1, is_shared_name=False)
    stored.refused(0, code, text)
    assert (stored.registered("p", 1, -1, entries(2)) is not None) == is_compared


@pytest.mark.parametrize(("acknowledged_to", "count"), [(0, 3), (1, 1), (3, 0)])
def test_a_refusal_is_settled_once_the_entry_is_known_to_be_stored(acknowledged_to, count):
    pending = entries(4)
    stored = new_ids(last=-1, is_shared_name=False)
    for sequence_id in (1, 3):
        stored.refused(sequence_id, pb.ChecksumError, "damaged on the way")
    stored.acknowledged_to = acknowledged_to
    proof = stored.registered("p", 3, -1, pending[acknowledged_to + 1 :])
    assert (0 if proof is None else proof.count) == count


# ---- schema versions


@pytest.mark.parametrize(("last", "is_refused"), [(-1, True), (3, True), (4, False)])
def test_an_entry_of_an_old_version_must_not_be_stored_now(last, is_refused):
    packed = [outgoing(0, 2), outgoing(2, 3)]
    stored = new_ids()
    stored.version_changed(packed)
    stored.registered("p", last, last, [])
    if is_refused:
        with pytest.raises(SchemaError, match=r"version number of the rows' schema.*persistent://a/b/t"):
            stored.check_versions(packed)
    else:
        stored.check_versions(packed)


def test_entries_of_the_new_version_may_be_stored():
    stored = new_ids(last=-1)
    stored.check_versions([outgoing(0)])
    stored.version_changed([])
    stored.check_versions([outgoing(0)])
    stored.version_changed([outgoing(0)])
    stored.check_versions([outgoing(1)])


# ---- another name


def test_under_another_name_nothing_is_known():
    pending = entries(2)
    stored = new_ids(9, last=9, is_shared_name=False)
    stored.refused(0, pb.ChecksumError, "damaged on the way")
    stored.version_changed([outgoing(9)])
    stored.restart()
    assert stored.acknowledged_to == -1
    stored.check_versions([outgoing(0)])
    assert stored.judge_drop(0, outgoing(0)) is not None
    assert stored.registered("q", 1, -1, pending) is None  # nothing is refused
    assert "producer name q" in str(stored.judge_drop(2, outgoing(2)))
