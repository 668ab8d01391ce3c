"""What messages say of the version of their schema: of batches and singles, in many entries and one."""

import pytest

from pulsar_spark.client.reading.decode import decode_entries
from pulsar_spark.client.reading.schema_versions import EXTERNAL, NO_VERSION, schema_versions
from pulsar_spark.ids import MessageId
from pulsar_spark.wire.entry.entries import Entries
from tests.client.reading.stored_entries import TOPIC, batch_entry, columns, single_entry


def version(number):
    return {"schema_version": number.to_bytes(8, "big")}


def found(*groups):
    """The version of each message, by one group of entries after the other."""
    entries = [Entries.of(group) for group in groups]
    (messages,) = decode_entries(TOPIC, entries, max_rows=10_000, max_bytes=2**20)
    distinct, of_row = schema_versions(messages)
    if of_row is None:
        assert len(distinct) == 1
        return [distinct[0]] * len(messages)
    assert len(of_row) == len(messages)
    return [distinct[place] for place in of_row]


def test_one_version_of_all_is_no_work_a_row():
    entries = [batch_entry(1, n, columns([b"a"] * 3), **version(7)) for n in range(3)]
    (messages,) = decode_entries(TOPIC, [Entries.of(entries)], max_rows=100, max_bytes=1000)
    assert schema_versions(messages) == ([7], None)


def test_each_message_has_the_version_of_its_entry():
    groups = [
        [batch_entry(1, 0, columns([b"a", None]), **version(1)), single_entry(1, 1, b"s", **version(0))],
        [single_entry(1, 2, b"s", **version(1)), batch_entry(1, 3, columns([b"a"] * 3), **version(2**62))],
    ]
    assert found(*groups) == [1, 1, 0, 1, 2**62, 2**62, 2**62]
    assert found(groups[0]) == [1, 1, 0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, NO_VERSION),
        ({"schema_version": b""}, NO_VERSION),
        ({"schema_version": b"\0\1"}, "the message's schema version is not a number: 0001"),
        (
            {"schema_version": b"\x80" + bytes(7)},
            f"the message's schema version is not a number: 80{'00' * 7}",
        ),
        ({"schema_version": bytes(1000)}, f"the message's schema version is not a number: {'00' * 16}"),
        ({"schema_id": b"\xff\0\0\0\1"}, EXTERNAL),
        ({**version(1), "schema_id": b""}, EXTERNAL),
    ],
)
def test_a_message_without_a_number_has_words_that_say_why(fields, words):
    bad = batch_entry(1, 1, columns([b"b"] * 2), **fields)
    assert set(found([bad])) == {words}
    good = [single_entry(1, number, b"s", **version(3)) for number in (0, 2)]
    assert found([good[0], bad, good[1]]) == [3, words, words, 3]
    # A walk over the metadata of many entries finds the same.
    singles = [single_entry(1, number, b"s", **fields) for number in range(3, 100)]
    assert found([*good, *singles]) == [3, 3, *[words] * 97]


def test_rows_outside_of_the_range_have_none():
    entries = [batch_entry(1, n, columns([b"a"] * 3), **version(n)) for n in range(2)]
    (messages,) = decode_entries(
        TOPIC, [Entries.of(entries)], MessageId(1, 0, 1), MessageId(1, 1, 0), max_rows=100, max_bytes=100
    )
    assert schema_versions(messages).of_row.tolist() == [0, 1]
