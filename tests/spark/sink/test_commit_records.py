"""The records of a commit log: their bytes, which restarts read, and what they add up to."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import TxnId
from pulsar_spark.spark.sink.commit_records import (
    CommittedRecord,
    Intent,
    LogState,
    OpenedRecord,
    RecordFormat,
    TokenRecord,
    decode_record,
    encode_record,
    lost_history,
)
from tests.loops import for_each

ONE, TWO, THREE = (TxnId(3, number) for number in (1, 2, 1 << 63))

# As they have been stored by all versions.
STORED = {
    b'{"opened": [3, 1]}': OpenedRecord(ONE),
    b'{"batch": 5, "after": null, "transactions": [[3, 1], [3, 9223372036854775808]]}': Intent(
        5, (ONE, THREE)
    ),
    b'{"batch": 6, "after": [3, 1], "transactions": [[3, 2]]}': Intent(6, (TWO,), ONE),
    b'{"batch": 0, "after": null, "transactions": [[0, 18446744073709551615]]}': Intent(
        0, (TxnId(0, 2**64 - 1),)
    ),
    b'{"committed": [3, 2]}': CommittedRecord(TWO),
    b'{"read to": "abc"}': TokenRecord("abc"),
}


@pytest.mark.parametrize(("value", "record"), STORED.items(), ids=lambda each: type(each).__name__)
def test_the_bytes_of_each_record(value, record):
    assert encode_record(record) == value
    assert decode_record(value) == record


@for_each(
    "value",
    [
        *(b"", b"plain", b"\xff", b"[]", b"5", b"null"),
        *(b'{"opened": 1}', b'{"opened": [1]}', b'{"opened": [1, "2"]}', b'{"opened": [true, 2]}'),
        *(b'{"opened": [1, -2]}', b'{"committed": null}', b'{"committed": [1, 2, 3]}'),
        *(b'{"batch": 1}', b'{"batch": 1, "transactions": []}', b'{"batch": 1.5, "transactions": [[1, 2]]}'),
        *(b'{"batch": 1, "transactions": {"1": 2}}', b'{"batch": 1, "transactions": [1]}'),
        *(b'{"batch": 1, "transactions": [[1, 2], [1, 2]]}', b'{"opened": [1, 18446744073709551616]}'),
        *(b'{"batch": 1, "after": 7, "transactions": [[1, 2]]}', b'{"later": 1}'),
        *(b'{"opened": [1, 2], "committed": [1, 2]}', b'{"opened": ' + b"[" * 100_000, b'{"read to": 7}'),
        # In a form that no version has stored as a record; the first one as a payload.
        *(b'{"batch": 5, "transactions": [[0, 1]]}', b'{"opened": [1, 2], "at": 5}'),
        *(b'{"batch": 5, "after": null}', b'{"batch": 5, "after": null, "transactions": [[0, 1]], "of": 1}'),
    ],
)
def test_what_is_no_record_is_an_error(value):
    with pytest.raises(CorruptError, match="not a record of a query's commits"):
        decode_record(value)


def state(intent=None, committed=(), opened=()):
    return LogState(intent, frozenset(committed), frozenset(opened))


INTENT = Intent(5, (ONE, TWO))
NEXT = Intent(6, (THREE,), ONE)
STATES = {
    "nothing": ([], state()),
    "tasks have opened": ([OpenedRecord(ONE), OpenedRecord(TWO)], state(opened=[ONE, TWO])),
    "an intent names some": ([OpenedRecord(ONE), OpenedRecord(THREE), INTENT], state(INTENT, opened=[THREE])),
    "the first marker": ([INTENT, CommittedRecord(ONE)], state(INTENT, [ONE])),
    "a token": ([INTENT, TokenRecord("a")], state(INTENT)),
    "the next intent": ([INTENT, NEXT], state(NEXT)),
    "a copy of the one before": ([INTENT, NEXT, INTENT], state(NEXT)),
    "a copy of the last one": ([INTENT, NEXT, NEXT], state(NEXT)),
    "one of who has not read the last one": ([INTENT, Intent(6, (THREE,))], state(INTENT)),
    "the first that is left": ([NEXT], state(NEXT)),
    "a copy of what a task has opened": ([INTENT, OpenedRecord(TWO)], state(INTENT)),
}


@pytest.mark.parametrize(("records", "expected"), STATES.values(), ids=STATES.keys())
def test_what_records_add_up_to(records, expected):
    assert LogState().after(records) == expected
    found = LogState()
    for record in records:
        found = found.after([record])
    assert found == expected


_txns = st.builds(TxnId, st.integers(0, 1), st.integers(0, 3))
_records = st.lists(
    st.one_of(
        st.builds(OpenedRecord, _txns),
        st.builds(CommittedRecord, _txns),
        st.builds(
            Intent, st.integers(0, 3), st.lists(_txns, min_size=1, unique=True).map(tuple), st.none() | _txns
        ),
    )
)


@given(_records, st.integers(0, 20))
def test_records_may_be_read_in_any_portions(records, cut):
    assert LogState().after(records[:cut]).after(records[cut:]) == LogState().after(records)


# ---- what is stored

TOPIC = "persistent://public/default/spark-transactions-id"

KEY = b"a secret of the query"


def test_a_signature_is_of_the_topic_and_the_record():
    record = OpenedRecord(ONE)
    stored = RecordFormat(TOPIC, KEY).encode(record)
    expected = hmac.digest(KEY, TOPIC.encode() + b'\0{"opened": [3, 1]}', "sha256").hex()
    assert stored == expected.encode() + b'{"opened": [3, 1]}'
    assert RecordFormat(TOPIC, KEY).decode(stored) == record
    assert RecordFormat(TOPIC, None).decode(stored) == record  # the key was given up
    assert RecordFormat(TOPIC, b"another").decode(stored) is None
    assert RecordFormat("another", KEY).decode(stored) is None


def test_without_a_key_a_record_is_its_json():
    record = Intent(5, (ONE,))
    assert RecordFormat(TOPIC, None).encode(record) == encode_record(record)
    assert RecordFormat(TOPIC, None).decode(encode_record(record)) == record


@given(st.binary())
def test_any_bytes_are_left_out_with_a_key_and_an_error_without(value):
    assert RecordFormat(TOPIC, KEY).decode(value) is None
    with pytest.raises(CorruptError, match="not a record"):
        RecordFormat(TOPIC, None).decode(value)


@given(st.integers(0, 8 * 82 - 1))
def test_each_bit_is_signed(bit):
    stored = bytearray(RecordFormat(TOPIC, KEY).encode(OpenedRecord(ONE)))
    stored[bit // 8] ^= 1 << bit % 8
    assert RecordFormat(TOPIC, KEY).decode(bytes(stored)) is None


# ---- what was removed: intent, found again, micro-batch, drivers before, a part of the warning

LOSSES = [
    *((INTENT, False, batch, drivers, None) for batch in (0, 1, 7) for drivers in (0, 1, 7)),
    *(
        (INTENT, True, batch, drivers, "they are still stored")
        for batch in (0, 1, 7)
        for drivers in (0, 1, 7)
    ),
    *(
        (None, False, batch, drivers, "removed, by a message TTL")
        for batch in (0, 1, 7)
        for drivers in (1, 7)
    ),
    *((None, False, batch, 0, "its topic was deleted, or") for batch in (1, 7)),
    (None, False, 0, 0, None),
]


@for_each(("intent", "again", "batch", "drivers", "expected"), LOSSES)
def test_what_is_warned_of(intent, again, batch, drivers, expected):
    # What tasks have opened tells nothing: those of this run have announced it before.
    log = state(intent, opened=[THREE])
    found = lost_history(log, batch, drivers_before=drivers, is_found_again=again)
    assert (found is None) if expected is None else (found is not None and expected in found)
