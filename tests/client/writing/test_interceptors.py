"""Interceptors: what they change, and that their mistakes change nothing."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pulsar_spark.client.writing.interceptors import Interceptors, ProducerInterceptor
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.outgoing import EntryKind, Outgoing
from pulsar_spark.wire.message_columns import MessageColumns

COLUMNS = MessageColumns(value=pa.array([b"a", b"b"]), key=pa.nulls(2, pa.binary()))


class Appends(ProducerInterceptor):
    def __init__(self, text):
        self.text = text

    def before_send(self, columns):
        values = [value + self.text for value in columns.value.to_pylist()]
        return replace(columns, value=pa.array(values, pa.binary()))


class Returns(ProducerInterceptor):
    def __init__(self, answer):
        self.answer = answer

    def before_send(self, columns):
        return self.answer


class Fails(ProducerInterceptor):
    def before_send(self, columns):
        raise RuntimeError("a user's mistake")

    def on_send_acknowledgement(self, *told):
        raise RuntimeError("another one")


class Notes(ProducerInterceptor):
    def __init__(self):
        self.told = []

    def on_send_acknowledgement(self, *told):
        self.told.append(told)


def outgoing(sequence_id, messages=1, kind=EntryKind.BATCH):
    return Outgoing(sequence_id, sequence_id + messages - 1, messages, b"", b"", kind)


def test_they_are_called_in_their_order():
    both = Interceptors([Appends(b"1"), Appends(b"2")])
    assert both.before_send(COLUMNS).value.to_pylist() == [b"a12", b"b12"]
    assert Interceptors([]).before_send(COLUMNS) is COLUMNS
    assert Interceptors([ProducerInterceptor()]).before_send(COLUMNS) is COLUMNS


@pytest.mark.parametrize(
    "wrong",
    [
        Fails(),
        Returns(None),
        Returns(replace(COLUMNS, value=pa.array(["a", "b"]))),
        Returns(replace(COLUMNS, value=pa.array([b"a"]))),
        Returns(replace(COLUMNS, key=None)),
        Returns(replace(COLUMNS, deliver_at=pa.array([1, 2], pa.int32()))),
        Returns(replace(COLUMNS, partition=[1, 2])),
    ],
)
def test_a_mistake_is_logged_and_changes_nothing(wrong, caplog):
    found = Interceptors([Appends(b"1"), wrong, Appends(b"2")]).before_send(COLUMNS)
    assert found.value.to_pylist() == [b"a12", b"b12"]
    (record,) = caplog.records
    assert record.message == f"{type(wrong).__name__}.before_send failed; the rows are sent unchanged"
    assert record.exc_info is not None


def test_acknowledgements_are_told_in_the_callers_thread(caplog):
    notes = Notes()
    interceptors = Interceptors([Fails(), notes])
    take = interceptors.on_receipt("t")
    take(outgoing(5, 3), MessageId(1, 2))
    take(outgoing(8, 1, EntryKind.CHUNK), MessageId(1, 3))
    take(outgoing(8, 1, EntryKind.LAST_CHUNK), MessageId(1, 4))
    take(outgoing(9, 2), None)
    assert notes.told == []
    interceptors.acknowledge()
    interceptors.acknowledge()
    expected = [
        ("t", 5, 3, MessageId(1, 2), None),
        ("t", 8, 1, MessageId(1, 4), None),
        ("t", 9, 2, None, None),
    ]
    assert notes.told == expected
    assert len(caplog.records) == 3
    error = ValueError()
    interceptors.failed("t", [outgoing(11, 2)], error)
    assert notes.told[3:] == [("t", 11, 2, None, error)]


def test_without_any_receipts_are_not_kept():
    assert Interceptors([]).on_receipt("t") is None
