"""Ranges of entries, read from a fake broker."""

import pytest

from pulsar_spark.ids import MessageId, TxnId
from tests.client.clients import TOPIC, flat, numbered, singles
from tests.fake_broker import HANG
from tests.fake_topics import section_of, split_section
from tests.ranges import read_range

BAD = section_of(b"bad")[:-1] + b"!"  # its checksum is wrong


@pytest.fixture
def ids(broker, topic):
    """30 entries in three ledgers of ten, each of one message that says its number."""
    ids = []
    for first in (0, 10, 20):
        ids += broker.publish(TOPIC, *singles(numbered(10, first)))
        topic.roll()
    return ids


def read(client, start, end, **options):
    return list(flat(read_range(client, TOPIC, start, end, poll_timeout=HANG, **options)))


def before(first):
    """The position before a ledger's first entry."""
    return MessageId(first.ledger, -1)


def position(ids, number):
    return before(ids[0]) if number < 0 else ids[number]


def in_transactions(broker, topic, count, each):
    """Publish entries of transactions of `each` entries; the broker stores a marker after each."""
    ids = []
    with broker.changed:
        for number in range(count):
            transaction = TxnId(0, number)
            ids += [topic.append(section_of(b"in one"), transaction).id for _ in range(each)]
            topic.end(transaction, commit=True)
    return ids


def size_of(section):
    metadata, payload = split_section(section)
    return metadata.ByteSize() + len(payload)
