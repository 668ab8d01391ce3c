"""What receipts add up to."""

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.partition_writer import ReceiptTally, SentTotals
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing

HAD_IT = -1, -1


def batch(messages):
    return Outgoing(0, messages - 1, messages, b"h" * 4, b"p" * 6, EntryKind.BATCH)


def single(kind=EntryKind.SINGLE):
    return Outgoing(0, 0, 1, b"h" * 4, b"p" * 2, kind)


def test_nothing_is_sent_yet():
    assert ReceiptTally().sent == SentTotals(0, 0, None, None)


def test_batches_and_singles_are_added_up():
    tally = ReceiptTally()
    tally.add(batch(5), 7, 1)
    assert tally.sent == SentTotals(5, 10, MessageId(7, 1, 0), MessageId(7, 1, 4))
    tally.add(batch(1), 7, 2)
    assert tally.sent == SentTotals(6, 20, MessageId(7, 1, 0), MessageId(7, 2, 0))
    tally.add(single(), 8, 0)
    assert tally.sent == SentTotals(7, 26, MessageId(7, 1, 0), MessageId(8, 0))


def test_what_the_broker_had_already_counts_but_has_no_id():
    tally = ReceiptTally()
    tally.add(batch(5), *HAD_IT)
    assert tally.sent == SentTotals(5, 10, None, None)
    tally.add(single(), 7, 1)
    tally.add(batch(2), *HAD_IT)
    assert tally.sent == SentTotals(8, 26, MessageId(7, 1), MessageId(7, 1))


def test_the_last_chunk_is_the_message():
    tally = ReceiptTally()
    tally.add(single(EntryKind.CHUNK), 7, 1)
    assert tally.sent == SentTotals(0, 6, None, None)
    tally.add(single(EntryKind.LAST_CHUNK), 7, 3)
    assert tally.sent == SentTotals(1, 12, MessageId(7, 3), MessageId(7, 3))


def test_ledger_0_is_a_ledger():
    tally = ReceiptTally()
    tally.add(single(), 0, 0)
    tally.add(batch(2), 0, 1)
    assert tally.sent == SentTotals(3, 16, MessageId(0, 0), MessageId(0, 1, 1))
    assert tally.first_entry == MessageId(0, 0)
