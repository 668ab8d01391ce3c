"""Interceptors: what they change, and that nothing is sent if they fail."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pulsar_spark.client.writing.interceptors import Interceptors, ProducerInterceptor
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing
from pulsar_spark.wire.columns.message_columns import MessageColumns

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


class Counts(ProducerInterceptor):
    calls = 0

    def before_send(self, columns):
        self.calls += 1
        return columns


class Notes(ProducerInterceptor):
    def __init__(self):
        self.told = []

    def on_send_acknowledgement(self, *told):
        self.told.append(told)


def outgoing(sequence_id, messages=1, kind=EntryKind.BATCH):
    return Outgoing(sequence_id, sequence_id + messages - 1, messages, b"", b"", kind)


def test_they_are_called_in_their_order():
    both = Interceptors([Appends(b"1"), Appends(b"2")])
    assert both.before_send(COLUMNS, "t").value.to_pylist() == [b"a12", b"b12"]
    assert Interceptors([]).before_send(COLUMNS, "t") is COLUMNS
    assert Interceptors([ProducerInterceptor()]).before_send(COLUMNS, "t") is COLUMNS


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Fails(), "raised RuntimeError in before_send"),
        (Returns(None), "NoneType instead of MessageColumns"),
        (Returns(replace(COLUMNS, value=pa.array(["a", "b"]))), "column value is not an array of binary"),
        (Returns(replace(COLUMNS, value=pa.array([b"a"]))), "column value has 1 rows instead of 2"),
        (Returns(replace(COLUMNS, key=None)), "column key is not an array"),
        (Returns(replace(COLUMNS, deliver_at=pa.array([1, 2], pa.int32()))), "column deliver_at is not"),
        (Returns(replace(COLUMNS, partition=[1, 2])), "column partition is not an array"),
    ],
)
def test_a_mistake_is_an_error_that_names_the_class_and_no_value(wrong, why):
    last = Counts()
    with pytest.raises(OptionError, match=why) as caught:
        Interceptors([Appends(b"1"), wrong, last]).before_send(COLUMNS, "t")
    assert caught.value.topic == "t"
    assert f"{__name__}.{type(wrong).__name__}" in str(caught.value)
    assert "a user's mistake" not in str(caught.value)
    assert last.calls == 0


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
