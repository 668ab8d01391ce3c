"""Reads consecutive frames of one type by column, without a Python object for each frame.

``Messages`` holds consecutive MESSAGE frames, ``Receipts`` consecutive SEND_RECEIPT frames. MESSAGE commands
that a broker sends to one consumer usually differ only in the bytes of the entry id. So each command is
compared with a template, and the ids are read by column. Protobuf parses each command that differs more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
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
from pulsar_spark.wire.wire_values import varint

_U32 = struct.Struct(">I")
_MAX_GROUP_SIZE = 1 << 20  # maximum bytes of messages that are decoded in one call
_TAIL_TAGS = frozenset(b"\x18\x28")  # tags of partition and redelivery_count, consumer_epoch


class Messages(NamedTuple):
    """n MESSAGE frames for one consumer, in order of arrival; each column is int64[n].

    Attributes:
        data: bytes that contain the payload sections; section i is ``data[at[i]:end[i]]``.
    """

    consumer_id: int
    data: bytes
    ledger: Ints
    entry: Ints
    at: Ints
    end: Ints


class Template(NamedTuple):
    """A MESSAGE command with which other commands are compared; only their entry ids may differ.

    Attributes:
        head: bytes of the frame from the command's size up to the entry id.
        entry_size: bytes of the entry id, a varint.
        tail: bytes of the command after the entry id.
    """

    head: bytes
    entry_size: int
    tail: bytes
    consumer_id: int
    ledger: int

    def messages(self, data: bytes, start: Ints, ends: Ints) -> Messages | None:
        """Reads the frames at ``data[start[i]:ends[i]]``, each of which has ``head`` at its fifth byte.

        Returns None if one of the frames does not match the rest of the template.
        """
        if self is NO_TEMPLATE:
            return None
        body = np.frombuffer(data, np.uint8)
        cursor = start + 4 + len(self.head)
        sections = cursor + self.entry_size + len(self.tail)
        if (sections > ends).any():
            return None
        entry = np.zeros(len(start), np.int64)
        for place in range(self.entry_size):
            byte = body[cursor + place]
            if ((byte > 0x7F) != (place < self.entry_size - 1)).any():
                return None
            entry |= (byte & 0x7F).astype(np.int64) << (7 * place)
        for place, expected in enumerate(self.tail, self.entry_size):
            if (body[cursor + place] != expected).any():
                return None
        return Messages(self.consumer_id, data, np.full(len(start), self.ledger), entry, sections, ends)


NO_TEMPLATE = Template(b"no command", 0, b"", 0, 0)


def template_of(command: bytes, parsed: pb.BaseCommand) -> Template:
    """Returns a template of a MESSAGE command; NO_TEMPLATE, which matches nothing, for unexpected bytes."""
    message = parsed.message
    place = message.message_id
    if place.ledgerId >> 63 or place.entryId >> 56:
        return NO_TEMPLATE
    ids = b"\x08" + varint(place.ledgerId) + b"\x10"
    consumer = b"\x08" + varint(message.consumer_id) + b"\x12"
    # The expected first bytes of ``command``; only the lengths of its two nested messages are copied from it.
    head = b"\x08\x09\x4a" + command[3:4] + consumer + command[4 + len(consumer) : 5 + len(consumer)] + ids
    entry = varint(place.entryId)
    tail = command[len(head) + len(entry) :]
    if not command.startswith(head + entry) or max(command[3], command[4 + len(consumer)]) > 0x7F:
        return NO_TEMPLATE
    if not _is_plain(tail):
        return NO_TEMPLATE
    head = _U32.pack(len(command)) + head
    return Template(head, len(entry), tail, message.consumer_id, place.ledgerId)


def _is_plain(tail: bytes) -> bool:
    """Whether the bytes after the entry id are only numeric fields that this client ignores."""
    begins = True
    for byte in tail:
        if begins and byte not in _TAIL_TAGS:
            return False
        # Each field is a tag of one byte and a varint, whose last byte is below 0x80.
        begins = not begins and byte < 0x80
    return begins


def group_for_decoding(received: Iterable[Messages]) -> Iterator[list[Messages]]:
    """Yields messages in groups of up to about 1 MiB, because each decode call has a high fixed cost."""
    waiting: list[Messages] = []
    waiting_size = 0
    for messages in received:
        size = int(messages.end[-1] - messages.at[0])
        if waiting and waiting_size + size > _MAX_GROUP_SIZE:
            yield waiting
            waiting, waiting_size = [], 0
        waiting.append(messages)
        waiting_size += size
    if waiting:
        yield waiting


def joined(parts: Sequence[Messages]) -> Messages:
    """Joins messages for one consumer; copies their bytes unless one object contains all."""
    if len(parts) == 1:
        return parts[0]
    if all(part.data is parts[0].data for part in parts):
        data, shifts = parts[0].data, [0] * len(parts)
    else:
        pieces, shifts, size = [], [], 0
        for part in parts:
            first, last = int(part.at[0]), int(part.end[-1])
            pieces.append(memoryview(part.data)[first:last])
            shifts.append(size - first)
            size += last - first
        data = b"".join(pieces)
    return Messages(
        parts[0].consumer_id,
        data,
        np.concatenate([part.ledger for part in parts]),
        np.concatenate([part.entry for part in parts]),
        np.concatenate([part.at + shift for part, shift in zip(parts, shifts, strict=True)]),
        np.concatenate([part.end + shift for part, shift in zip(parts, shifts, strict=True)]),
    )


# First bytes of a SEND_RECEIPT command: its type, and the tag of its body.
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
# Field numbers of MessageIdData: the two fields that receipts have, and the highest number.
_LEDGER, _ENTRY, _LAST_FIELD = 1, 2, 7
_ID = Layout({_LEDGER << 3 | VARINT: FieldKind.NUMBER, _ENTRY << 3 | VARINT: FieldKind.NUMBER}, _LAST_FIELD)


class Receipts(NamedTuple):
    """n SEND_RECEIPT commands for one producer, in order of arrival.

    Attributes:
        ledgers: ledger ids, [n]; negative: the broker dropped the entry, because its sequence id is not above
            the producer's last stored sequence id.
    """

    producer_id: int
    sequence_ids: list[int]
    ledgers: list[int]
    entries: list[int]


def receipt_of(command: pb.CommandSendReceipt) -> Receipts:
    """Converts a parsed command."""
    place = np.array([command.message_id.ledgerId, command.message_id.entryId], np.uint64).view(np.int64)
    ledger, entry = place.tolist()
    return Receipts(command.producer_id, [command.sequence_id], [ledger], [entry])


def receipts_of(data: bytes, start: Ints, ends: Ints) -> list[Receipts] | None:
    """Reads consecutive frames whose commands begin with RECEIPT_HEAD, by column.

    Returns:
        The receipts of each producer; None if a frame is unusual, so the caller must parse it with protobuf.
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
    """Returns a numeric field; raises NotPlainError unless all commands have it."""
    require(number in fields.numbers)
    values, has = fields.numbers[number]
    require(every(has))
    return values
