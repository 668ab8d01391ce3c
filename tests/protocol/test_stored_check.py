"""What the broker's last sequence id says of pending entries: each row of the table, and the edges."""

import pytest

from pulsar_spark.ids import TxnId
from pulsar_spark.protocol.pending import EntryKind, Outgoing
from pulsar_spark.protocol.stored_check import StoredCheck, check_stored, foreign_writes


def batch(first, last, transaction=None):
    return Outgoing(first, last, last - first + 1, b"", b"", EntryKind.BATCH, transaction)


def chunk(sequence_id, kind=EntryKind.CHUNK):
    return Outgoing(sequence_id, sequence_id, 1, b"", b"", kind)


IN_TRANSACTION = batch(10, 14, TxnId(1, 2))

CASES = {
    "nothing known, nothing pending": (-1, -1, [], StoredCheck.RESEND),
    "nothing known, all is sent again": (-1, -1, [batch(0, 4)], StoredCheck.RESEND),
    "nothing known, though this producer has written": (-1, 9, [batch(10, 14)], StoredCheck.RESEND),
    "nothing known, in a transaction": (-1, 9, [IN_TRANSACTION], StoredCheck.MAY_REPEAT),
    "nothing known, one of two in a transaction": (
        *(-1, 9, [batch(0, 9), IN_TRANSACTION]),
        StoredCheck.MAY_REPEAT,
    ),
    "in a transaction that deduplicates": (9, 9, [IN_TRANSACTION], StoredCheck.RESEND),
    "all is stored that was acknowledged": (9, 9, [], StoredCheck.RESEND),
    "more than was sent, nothing pending": (10, 9, [], StoredCheck.FOREIGN),
    "more than was sent": (15, 9, [batch(10, 14)], StoredCheck.FOREIGN),
    "less than was acknowledged": (5, 9, [batch(10, 14)], StoredCheck.RESEND),
    "none of what is pending": (9, 9, [batch(10, 14)], StoredCheck.RESEND),
    "all of what is pending": (14, 9, [batch(10, 14)], StoredCheck.RESEND),
    "the first of two": (14, 9, [batch(10, 14), batch(15, 19)], StoredCheck.RESEND),
    "the first message of a batch": (10, 9, [batch(10, 14)], StoredCheck.FOREIGN),
    "all but the last message of a batch": (13, 9, [batch(10, 14)], StoredCheck.FOREIGN),
    "inside the second of two": (17, 9, [batch(10, 14), batch(15, 19)], StoredCheck.FOREIGN),
    "between ids that rows brought": (16, 9, [batch(10, 14), batch(20, 24)], StoredCheck.RESEND),
    "a batch of one": (10, 9, [batch(10, 10)], StoredCheck.RESEND),
    "above all, with ids of the rows' own below": (12, 11, [batch(3, 5)], StoredCheck.FOREIGN),
    "a chunk": (10, 9, [chunk(10), chunk(10)], StoredCheck.CHUNK_IN_DOUBT),
    "a last chunk": (10, 9, [chunk(10, EntryKind.LAST_CHUNK)], StoredCheck.CHUNK_IN_DOUBT),
    "before a chunk": (9, 9, [chunk(10)], StoredCheck.RESEND),
    "after a chunk": (14, 9, [chunk(10), batch(11, 14)], StoredCheck.RESEND),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_table(case):
    last, sent, pending, expected = case
    assert check_stored(last, sent, pending) is expected


def test_foreign_writes_name_the_producer_and_what_to_do():
    error = foreign_writes("persistent://a/b/t", "orders")
    assert not error.retriable
    for part in ("orders", "persistent://a/b/t", "spark.task.maxFailures"):
        assert part in str(error)
