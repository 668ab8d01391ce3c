"""StoredIds: each decision about what the broker has dropped or stored, by what came before."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pulsar_spark.errors import NotReadyError, SchemaError, SendError
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing
from pulsar_spark.protocol.writing.stored_ids import StoredIds, StoredProof, foreign_writes
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entry
from pulsar_spark.wire.entry.origin import Origin, encode_origin
from pulsar_spark.wire.frames import decode_payload_section, encode_section_head
from tests.loops import for_each
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


# What is judged: entries to be compared, all to be sent again, or the text of an error.
COMPARE, RESEND = "compare", "send again"
FOREIGN, INCOMPLETE = "somebody else, .* producer name me", "while a chunked message was sent"
MAY_REPEAT = "5 messages of a transaction .* it is not certain that the namespace deduplicates"
UNREADABLE = r"\d+ messages of a transaction .* before the transaction ends"
ORIGIN = encode_origin(Origin(3, 1, 0), b"secret", TOPIC)


def batch(first, last, transaction=None):
    return Outgoing(first, last, last - first + 1, b"", b"", EntryKind.BATCH, transaction)


def chunk_entry(sequence_id, kind=EntryKind.CHUNK, transaction=None):
    return Outgoing(sequence_id, sequence_id, 1, b"", b"", kind, transaction)


IN_TRANSACTION = batch(10, 14, TxnId(1, 2))
IN_NEXT = batch(15, 19, TxnId(1, 2))
LAST = EntryKind.LAST_CHUNK

# Under a name that others may use: last id, known, pending, judged, ids of the entries in doubt.
CASES = {
    "nothing known, nothing pending": (-1, -1, [], RESEND, []),
    "nothing known, all is sent again": (-1, -1, [batch(0, 4)], RESEND, []),
    "nothing known, though this producer has written": (-1, 9, [batch(10, 14)], RESEND, []),
    "nothing known, in a transaction": (-1, 9, [IN_TRANSACTION], MAY_REPEAT, []),
    "nothing known, one of two in a transaction": (-1, 9, [batch(0, 9), IN_TRANSACTION], MAY_REPEAT, []),
    "in a transaction that deduplicates": (9, 9, [IN_TRANSACTION], RESEND, []),
    "claimed in a transaction": (14, 9, [IN_TRANSACTION], UNREADABLE, []),
    "claimed in a transaction, and after one": (16, 9, [IN_TRANSACTION, batch(15, 16)], UNREADABLE, []),
    "claimed after a transaction that is known": (16, 14, [IN_TRANSACTION, batch(15, 16)], COMPARE, [15]),
    "one of two in a transaction is claimed": (14, 9, [IN_TRANSACTION, IN_NEXT], UNREADABLE, []),
    "all is stored that was acknowledged": (9, 9, [], RESEND, []),
    "more than was sent, nothing pending": (10, 9, [], FOREIGN, []),
    "more than was sent": (15, 9, [batch(10, 14)], FOREIGN, []),
    "less than was acknowledged": (5, 9, [batch(10, 14)], RESEND, []),
    "none of what is pending": (9, 9, [batch(10, 14)], RESEND, []),
    "all of what is pending": (14, 9, [batch(10, 14)], COMPARE, [10]),
    "two of three": (19, 9, [batch(10, 14), batch(15, 19), batch(20, 20)], COMPARE, [10, 15]),
    "known already": (14, 14, [batch(10, 14), batch(15, 19)], RESEND, []),
    "one of two is known already": (19, 14, [batch(10, 14), batch(15, 19)], COMPARE, [15]),
    "the first message of a batch": (10, 9, [batch(10, 14)], FOREIGN, []),
    "all but the last message of a batch": (13, 9, [batch(10, 14)], FOREIGN, []),
    "inside the second of two": (17, 9, [batch(10, 14), batch(15, 19)], FOREIGN, []),
    "between ids that rows brought": (16, 9, [batch(10, 14), batch(20, 24)], FOREIGN, []),
    "before the first id that rows brought": (12, 9, [batch(20, 24)], RESEND, []),
    "a batch of one": (10, 9, [batch(10, 10)], COMPARE, [10]),
    "above all, with ids of the rows' own below": (12, 11, [batch(3, 5)], FOREIGN, []),
    "inside a batch that begins at a known id": (11, 11, [batch(11, 14)], FOREIGN, []),
    "ids of the rows' own that are known": (11, 11, [batch(3, 5)], RESEND, []),
    "chunks, and the last one": (10, 9, [chunk_entry(10), chunk_entry(10, LAST)], COMPARE, [10, 10]),
    "chunks, of which the last was not sent": (10, 9, [chunk_entry(10), chunk_entry(10)], INCOMPLETE, []),
    "a last chunk": (10, 9, [chunk_entry(10, LAST)], COMPARE, [10]),
    "a last chunk of a transaction": (10, 9, [chunk_entry(10, LAST, TxnId(1, 2))], UNREADABLE, []),
    "before a chunk": (9, 9, [chunk_entry(10)], RESEND, []),
    "after a chunk": (14, 9, [chunk_entry(10, LAST), batch(11, 14)], COMPARE, [10, 11]),
}


def in_doubt_of(last, known, pending, *, refused=None, **options):
    ids = StoredIds(TOPIC, **options)
    ids.registered("me", -1, -1, [])
    if refused is not None:
        ids.refused(refused, pb.UnknownError, "")
    return ids.in_doubt(last, known, pending)


def judge(last, known, pending, **options):
    """What is judged, and the entries in doubt."""
    try:
        found = in_doubt_of(last, known, pending, **options)
    except SendError as error:
        return next(each for each in ERRORS if re.search(f"{each}.*{TOPIC}", str(error))), []
    return COMPARE if found else RESEND, found


ERRORS = (FOREIGN, INCOMPLETE, MAY_REPEAT, UNREADABLE)


@for_each("case", CASES.values())
def test_the_tables(case):
    last, known, pending, expected, in_doubt = case
    judged, found = judge(last, known, pending, is_shared_name=True)
    assert (judged, [entry.sequence_id for entry in found]) == (expected, in_doubt)


@for_each("case", CASES.values())
def test_under_a_name_that_nobody_else_has_only_chunks_are_in_doubt(case):
    """Nothing is read for it, so no right to read is needed."""
    last, known, pending, expected, _ = case
    judged, found = judge(last, known, pending, is_shared_name=False)
    chunks = [entry for entry in pending if entry.kind.is_chunk and known < entry.sequence_id == last]
    if expected is COMPARE:
        expected = COMPARE if chunks else RESEND
    assert judged is expected
    assert found == (chunks if judged is COMPARE else [])


@for_each("case", CASES.values())
def test_what_may_be_stored_twice_is_sent_again_where_nothing_is_known(case):
    last, known, pending, expected, _ = case
    judged, _ = judge(last, known, pending, is_shared_name=True, may_repeat=True)
    assert judged is (RESEND if expected is MAY_REPEAT else expected)


@pytest.mark.parametrize("is_shared_name", [True, False])
@pytest.mark.parametrize(("last", "in_doubt"), [(16, True), (9, False)])
def test_what_the_broker_refused_is_in_doubt_where_later_ones_are_stored(is_shared_name, last, in_doubt):
    pending = [batch(10, 14), batch(15, 16)]
    found = in_doubt_of(last, 9, pending, is_shared_name=is_shared_name, refused=10)
    assert found == (pending if in_doubt else [])


@pytest.mark.parametrize("is_shared_name", [True, False])
@pytest.mark.parametrize(
    ("last", "expected"), [(9, RESEND), (14, UNREADABLE), (16, UNREADABLE), (17, UNREADABLE)]
)
def test_what_the_broker_refused_in_a_transaction_cannot_be_compared(is_shared_name, last, expected):
    pending = [batch(first, last, TxnId(1, 2)) for first, last in ((10, 14), (15, 16), (17, 17))]
    judged = judge(last, 9, pending, is_shared_name=is_shared_name, refused=15)
    assert judged == (expected, [])


def test_what_came_before_a_refused_entry_is_not_in_doubt():
    pending = [batch(10, 14), batch(15, 16), batch(17, 17)]
    assert judge(16, 9, pending, is_shared_name=False, refused=15) == (COMPARE, pending[1:2])
    assert judge(14, 9, pending, is_shared_name=False, refused=15) == (RESEND, [])


def test_foreign_writes_name_the_producer_and_what_to_do():
    error = foreign_writes(TOPIC, "orders")
    assert not error.retriable
    for part in ("orders", TOPIC, "spark.task.maxFailures"):
        assert part in str(error)


# ---- the proof


def sent(sequence_id, payload=b"payload", *, messages=1, kind=EntryKind.SINGLE, origin=ORIGIN, **fields):
    """An entry as it goes out, its metadata with a field that Pulsar does not know."""
    metadata = pb.MessageMetadata(producer_name=b"me", sequence_id=sequence_id, publish_time=5, **fields)
    if messages > 1:
        metadata.num_messages_in_batch = messages
    head = encode_section_head(metadata.SerializeToString() + origin, payload)
    return Outgoing(sequence_id, sequence_id + messages - 1, messages, head, payload, kind)


def stored(entry, at=0):
    """The same as the broker gives it back."""
    return Entry(7, at, *decode_payload_section(memoryview(entry.head + bytes(entry.payload))))


def sent_chunks(attempt, kinds=(EntryKind.CHUNK, EntryKind.CHUNK, LAST)):
    return [
        sent(4, b"part", kind=kind, uuid=b"me-4-" + attempt, chunk_id=number, num_chunks_from_msg=len(kinds))
        for number, kind in enumerate(kinds)
    ]


def proof_of(*entries):
    return StoredProof(TOPIC, "me", entries)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_all_must_be_found(order):
    entries = [sent(4), sent(5, b"body", messages=3), sent(8, b"")]
    proof = proof_of(*entries)
    assert (proof.first_sequence_id, proof.last_sequence_id, proof.count) == (4, 8, 3)
    for number in order:
        assert not proof.is_found
        proof.take(stored(entries[number]))
    assert proof.is_found


OTHERS = {
    "another payload": sent(4, b"other"),
    "another time": sent(4, event_time=1),
    "another origin": sent(4, origin=encode_origin(Origin(4, 1, 0), b"secret", TOPIC)),
    "no origin": sent(4, origin=b""),
    "a batch": sent(4, messages=2),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_is_stored_by_the_id_and_differs_is_somebody_elses(other):
    proof = proof_of(sent(4))
    proof.take(stored(other))
    assert not proof.is_found
    assert "somebody else" in str(proof.error())


def test_what_is_not_found_is_an_error_with_the_count_of_messages():
    proof = proof_of(sent(4), sent(5, messages=3))
    proof.take(stored(sent(99)))
    proof.take(stored(sent(4)))
    error = proof.error()
    assert not error.retriable
    for part in ("3 messages", "producer me", TOPIC, "not found in the topic"):
        assert part in str(error)


@pytest.mark.parametrize("kind", [EntryKind.SINGLE, LAST])
def test_what_a_search_that_was_cut_short_has_not_found_may_be_found_later(kind):
    proof = proof_of(sent(4, kind=kind))
    proof.cut_short()
    error = proof.error()
    assert error.retriable
    for part in ("producer me", TOPIC, "operationTimeoutMs"):
        assert part in str(error)


def test_what_differs_is_final_however_the_search_has_ended():
    proof = proof_of(sent(4), sent(5))
    proof.take(stored(sent(4, b"other")))
    proof.cut_short()
    assert not proof.error().retriable
    assert "somebody else" in str(proof.error())


def test_of_a_message_in_chunks_each_must_be_found_and_other_attempts_count_for_nothing():
    chunks = sent_chunks(b"1")
    proof = proof_of(*chunks)
    for one in [*sent_chunks(b"0"), *chunks[:2]]:
        proof.take(stored(one))
    assert not proof.is_found
    assert "while a chunked message was sent" in str(proof.error())
    proof.take(stored(chunks[2]))
    assert proof.is_found
