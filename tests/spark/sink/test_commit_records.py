"""The records of a commit log: their bytes, which restarts read, and what they add up to."""

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
    TokenRecord,
    decode_record,
    encode_record,
)

ONE, TWO, THREE = (TxnId(3, number) for number in (1, 2, 1 << 63))

# As they have been stored by all versions.
STORED = {
    b'{"opened": [3, 1]}': OpenedRecord(ONE),
    b'{"batch": 5, "transactions": [[3, 1], [3, 9223372036854775808]]}': Intent(5, (ONE, THREE)),
    b'{"committed": [3, 2]}': CommittedRecord(TWO),
    b'{"read to": "abc"}': TokenRecord("abc"),
}


@pytest.mark.parametrize(("value", "record"), STORED.items(), ids=lambda each: type(each).__name__)
def test_the_bytes_of_each_record(value, record):
    assert encode_record(record) == value
    assert decode_record(value) == record


def test_a_record_of_an_unknown_kind_means_nothing():
    assert decode_record(b'{"later": 1}') is None
    assert LogState().after([None]) == LogState()


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"plain", b"\xff", b"[]", b"5", b"null"),
        *(b'{"opened": 1}', b'{"opened": [1]}', b'{"opened": [1, "2"]}', b'{"opened": [true, 2]}'),
        *(b'{"opened": [1, -2]}', b'{"committed": null}', b'{"committed": [1, 2, 3]}'),
        *(b'{"batch": 1}', b'{"batch": 1, "transactions": []}', b'{"batch": 1.5, "transactions": [[1, 2]]}'),
        *(b'{"batch": 1, "transactions": {"1": 2}}', b'{"batch": 1, "transactions": [1]}'),
        b'{"read to": 7}',
    ],
)
def test_what_is_no_record_is_an_error(value):
    with pytest.raises(CorruptError, match="somebody else writes to this topic"):
        decode_record(value)


def state(intent=None, committed=(), opened=()):
    return LogState(intent, frozenset(committed), frozenset(opened))


INTENT = Intent(5, (ONE, TWO))
STATES = {
    "nothing": ([], state()),
    "tasks have opened": ([OpenedRecord(ONE), OpenedRecord(TWO)], state(opened=[ONE, TWO])),
    "an intent names some": (
        [OpenedRecord(ONE), OpenedRecord(THREE), INTENT],
        state(INTENT, opened=[THREE]),
    ),
    "the first marker": ([INTENT, CommittedRecord(ONE)], state(INTENT, [ONE])),
    "a token": ([INTENT, TokenRecord("a")], state(INTENT)),
    "the next intent": ([INTENT, Intent(6, (THREE,))], state(Intent(6, (THREE,)))),
}


@pytest.mark.parametrize(("records", "expected"), STATES.values(), ids=STATES.keys())
def test_what_records_add_up_to(records, expected):
    assert LogState().after(records) == expected


_txns = st.builds(TxnId, st.integers(0, 1), st.integers(0, 3))
_records = st.lists(
    st.one_of(
        st.builds(OpenedRecord, _txns),
        st.builds(CommittedRecord, _txns),
        st.builds(Intent, st.integers(0, 3), st.lists(_txns, min_size=1).map(tuple)),
    )
)


@given(_records, st.integers(0, 20))
def test_records_may_be_read_in_any_portions(records, cut):
    assert LogState().after(records[:cut]).after(records[cut:]) == LogState().after(records)
