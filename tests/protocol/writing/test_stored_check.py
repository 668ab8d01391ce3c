"""What the broker's last sequence id says of pending entries: each row of the tables, and the edges."""

import re

import pytest

from pulsar_spark.errors import SendError
from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.writing.outgoing import EntryKind, Outgoing
from pulsar_spark.protocol.writing.stored_check import StoredProof, check_stored, foreign_writes
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entry
from pulsar_spark.wire.entry.origin import Origin, encode_origin
from pulsar_spark.wire.frames import decode_payload_section, encode_section_head
from tests.loops import for_each

# What is judged: entries to be compared, all to be sent again, or the text of an error.
COMPARE, RESEND = "compare", "send again"
FOREIGN, INCOMPLETE = "somebody else, .* producer name me", "while a chunked message was sent"
MAY_REPEAT = "5 messages of a transaction .* it is not certain that the namespace deduplicates"
UNREADABLE = r"\d+ messages of a transaction .* before the transaction ends"
TOPIC = "persistent://a/b/t"
ORIGIN = encode_origin(Origin(3, 1, 0), b"secret", TOPIC)


def batch(first, last, transaction=None):
    return Outgoing(first, last, last - first + 1, b"", b"", EntryKind.BATCH, transaction)


def chunk(sequence_id, kind=EntryKind.CHUNK, transaction=None):
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
    "chunks, and the last one": (10, 9, [chunk(10), chunk(10, LAST)], COMPARE, [10, 10]),
    "chunks, of which the last was not sent": (10, 9, [chunk(10), chunk(10)], INCOMPLETE, []),
    "a last chunk": (10, 9, [chunk(10, LAST)], COMPARE, [10]),
    "a last chunk of a transaction": (10, 9, [chunk(10, LAST, TxnId(1, 2))], UNREADABLE, []),
    "before a chunk": (9, 9, [chunk(10)], RESEND, []),
    "after a chunk": (14, 9, [chunk(10, LAST), batch(11, 14)], COMPARE, [10, 11]),
}


def judge(last, known, pending, **options):
    """What is judged, and the entries in doubt."""
    try:
        found = check_stored(TOPIC, "me", last, known, pending, **options)
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
    found = check_stored(TOPIC, "me", last, 9, pending, is_shared_name=is_shared_name, refused=10)
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
