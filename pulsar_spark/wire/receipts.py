"""Receipts: runs of SEND_RECEIPT frames, without a Python object for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulsar_spark.arrow.arrays import Ints, every
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.fields.field_spans import BYTES, VARINT, Fields
from pulsar_spark.wire.fields.field_walk import (
    FieldKind,
    Layout,
    NotPlainError,
    big_endian,
    lengths,
    require,
    walk,
)

# How a SEND_RECEIPT command begins: its type, and the tag of its body.
RECEIPT_HEAD = b"\x08\x07\x3a"
_SIZES = 8  # bytes of a frame before its command

_PRODUCER_ID, _SEQUENCE_ID, _MESSAGE_ID, _HIGHEST_SEQUENCE_ID = 1, 2, 3, 4
_BODY = Layout(
    {
        _PRODUCER_ID << 3 | VARINT: FieldKind.NUMBER,
        _SEQUENCE_ID << 3 | VARINT: FieldKind.NUMBER,
        _MESSAGE_ID << 3 | BYTES: FieldKind.SPAN,
        _HIGHEST_SEQUENCE_ID << 3 | VARINT: FieldKind.IGNORED,
    },
    _HIGHEST_SEQUENCE_ID,
)
# Of a MessageIdData; its other fields are for consumers.
_LEDGER, _ENTRY, _LAST_FIELD = 1, 2, 7
_ID = Layout({_LEDGER << 3 | VARINT: FieldKind.NUMBER, _ENTRY << 3 | VARINT: FieldKind.NUMBER}, _LAST_FIELD)


class Receipts(NamedTuple):
    """n SEND_RECEIPT commands for one producer, in the order they came.

    Attributes:
        producer_id: of the producer on the connection.
        sequence_ids: n ids, as they were sent.
        ledgers: n ledger ids; negative: the broker has not stored the entry, since its sequence id is not
            above the last one that is stored.
        entries: n entry ids.
    """

    producer_id: int
    sequence_ids: list[int]
    ledgers: list[int]
    entries: list[int]


def receipt_of(command: pb.CommandSendReceipt) -> Receipts:
    """Take a command that was parsed."""
    place = np.array([command.message_id.ledgerId, command.message_id.entryId], np.uint64).view(np.int64)
    ledger, entry = place.tolist()
    return Receipts(command.producer_id, [command.sequence_id], [ledger], [entry])


def receipts_of(data: bytes, start: Ints, ends: Ints) -> list[Receipts] | None:
    """Read consecutive frames whose commands begin with RECEIPT_HEAD, by column.

    Args:
        data: bytes that contain the frames.
        start: start of each frame, int64[n].
        ends: end of each frame, int64[n].

    Returns:
        The receipts of each producer; None if one of the frames must be parsed by itself.
    """
    body = np.frombuffer(data, np.uint8)
    try:
        require(every(big_endian(body, start + 4, 4) == ends - start - _SIZES))
        at, stop = lengths(body, start + _SIZES + len(RECEIPT_HEAD), ends)
        require(every(stop == ends))
        fields = walk(body, start, at, stop, _BODY)
        require(_MESSAGE_ID in fields.spans)
        id_at, id_end, has_id = fields.spans[_MESSAGE_ID]
        require(every(has_id))
        place = walk(body, start, id_at, id_end, _ID)
        columns = (
            _number(fields, _PRODUCER_ID).view(np.uint64),
            _number(fields, _SEQUENCE_ID).view(np.uint64),
            _number(place, _LEDGER),
            _number(place, _ENTRY),
        )
    except NotPlainError:
        return None
    producers, *others = columns
    if every(producers == producers[0]):
        return [Receipts(int(producers[0]), *(column.tolist() for column in others))]
    order = np.argsort(producers, kind="stable")
    cuts = np.flatnonzero(np.diff(producers[order])) + 1
    return [
        Receipts(int(producers[rows[0]]), *(column[rows].tolist() for column in others))
        for rows in np.split(order, cuts)
    ]


def _number(fields: Fields, number: int) -> Ints:
    """A field that all commands must have."""
    require(number in fields.numbers)
    values, has = fields.numbers[number]
    require(every(has))
    return values
