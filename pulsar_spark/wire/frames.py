"""Framing of the binary protocol, in both directions.

    simple command    | u32 total | u32 size | BaseCommand |
    with a payload    | u32 total | u32 size | BaseCommand | payload section |
    payload section   [ 0e 02 | u32 size | BrokerEntryMetadata ]        if the broker adds it
                      [ 0e 01 | u32 CRC32-C ]  u32 size | MessageMetadata | payload

Parts in brackets are optional. Integers are big-endian. ``total`` and checksum cover the bytes after them.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import CorruptError, ProtocolError
from pulsar_spark.unparsable import UNPARSABLE
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.fields.field_spans import MAX_PROPERTIES
from pulsar_spark.wire.frame_runs import (
    NO_TEMPLATE,
    RECEIPT_HEAD,
    Messages,
    Receipts,
    receipt_of,
    receipts_of,
    template_of,
)

Received: TypeAlias = "Frame | Messages | Receipts"

# Maximum bytes of a frame beyond the maximum message size, as in the broker.
FRAME_PADDING = 10 * 1024
DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
# Maximum bytes of a frame with the names of all topics of a namespace: about 800,000 names.
MAX_LIST_SIZE = 64 * 1024 * 1024
LIST_REQUESTS = (pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, pb.BaseCommand.WATCH_TOPIC_LIST)
_LISTS = (pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
# Offset of a frame's command, after both sizes; its first field is the type.
_KIND_AT = 8
_KIND_TAG = 0x08
_MESSAGE, _RECEIPT = pb.BaseCommand.MESSAGE, pb.BaseCommand.SEND_RECEIPT

_CHECKSUM_MAGIC = b"\x0e\x01"
_BROKER_ENTRY_MAGIC = b"\x0e\x02"
_HTTP = b"HTTP"  # first bytes of an HTTP server's answer to an unknown request
_TLS_ALERT = b"\x15\x03"  # first bytes of a TLS server's answer to an unknown request
_BINARY_PORT = "Set service.url to the broker's binary port, usually 6650, or 6651 with TLS"
_FEW_MESSAGES, _FEW_RECEIPTS = 3, 24  # frames; fewer are parsed one by one, which is faster than numpy
_MANY = 64  # frames that are compared one by one before numpy compares blocks
_U32 = struct.Struct(">I")
_SIZES = struct.Struct(">II")
_CHECKED_HEAD = struct.Struct(">2sI")


class Frame(NamedTuple):
    """One received frame: the command, and its payload section (empty if it has none)."""

    command: pb.BaseCommand
    payload_section: memoryview


class StoredMessage(NamedTuple):
    """A decoded payload section; ``broker_index`` or ``broker_time`` is None if the broker sends none."""

    metadata: pb.MessageMetadata
    payload: memoryview
    broker_index: int | None
    broker_time: int | None


def encode_command(command: pb.BaseCommand, section_size: int = 0) -> bytes:
    """Frames a command; ``section_size`` bytes of payload section must follow."""
    body = command.SerializeToString()
    return _SIZES.pack(len(body) + 4 + section_size, len(body)) + body


def encode_section_head(metadata: bytes, payload: Buffer) -> bytes:
    """Returns the part of a payload section before ``payload``, so that a large payload is never copied.

    Args:
        payload: payload to send; only read for the checksum.
    """
    sized = _U32.pack(len(metadata)) + metadata
    return _CHECKED_HEAD.pack(_CHECKSUM_MAGIC, crc32c(payload, crc32c(sized))) + sized


def metadata_of_head(section_head: bytes) -> pb.MessageMetadata:
    """Parses the metadata that was passed to ``encode_section_head``."""
    return pb.MessageMetadata.FromString(section_head[10:])


def is_intact(section_head: bytes, payload: Buffer) -> bool:
    """Whether an encoded payload section still matches its checksum."""
    (expected,) = _U32.unpack_from(section_head, 2)
    return bool(crc32c(payload, crc32c(section_head[6:])) == expected)


class FrameReader:
    """Cuts a byte stream into frames, for any division of the stream into calls of :meth:`feed`.

    Consecutive MESSAGE frames for one consumer become one :class:`Messages`, and consecutive SEND_RECEIPT
    frames for one producer one :class:`Receipts`.

    Attributes:
        max_message_size: maximum message size in bytes. A frame that exceeds it by more than FRAME_PADDING
            is refused before it is buffered.
        expects_list: whether a list of topics was requested. Its frame may have up to MAX_LIST_SIZE bytes.
    """

    def __init__(self, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE) -> None:
        self.max_message_size = max_message_size
        self.expects_list = False
        self._pending: list[Buffer] = []
        self._held = 0
        self._needed = 4
        self._template = NO_TEMPLATE

    def feed(self, data: bytes) -> list[Received]:
        """Adds bytes; returns the frames that are complete now.

        Raises:
            ProtocolError: a length is out of bounds, or bytes are not a BaseCommand. The stream cannot be
                used any more.
        """
        frames: list[Received] = []
        position = self._finish_pending(data, frames) if self._pending else 0
        run = array("q")  # starts of consecutive frames of one type, to be read by column
        run_kind = None
        while not self._pending:
            left = len(data) - position
            self._needed = 4 if left < 4 else self._size(data, position)
            if left < self._needed:
                break
            kind, head_size = None, 0
            if data.startswith(self._template.head, position + 4):
                kind, head_size = _MESSAGE, 4 + len(self._template.head)
            elif data.startswith(RECEIPT_HEAD, position + _KIND_AT):
                kind, head_size = _RECEIPT, _KIND_AT + len(RECEIPT_HEAD)
            if run and kind != run_kind:
                self._take_run(run_kind, data, run, position, frames)
                run = array("q")
            run_kind = kind
            if kind is None:
                self._take(data, position, position + self._needed, frames)
                position += self._needed
                continue
            # Frames of one type mostly have one size, so the next frames are tried with this size.
            head, size = data[position : position + head_size], self._needed
            last = len(data) - size
            for _ in range(_MANY):
                if position > last or not data.startswith(head, position):
                    break
                run.append(position)
                position += size
            else:
                past = position + size * _count_alike(data, position, head, size)
                run.frombytes(np.arange(position, past, size, dtype=np.int64).tobytes())
                position = past
        self._take_run(run_kind, data, run, position, frames)
        if position < len(data):
            self._pending = [memoryview(data)[position:]]
            self._held = len(data) - position
        return frames

    def _finish_pending(self, data: bytes, frames: list[Received]) -> int:
        """Completes the pending frame, the only one that is copied; returns the number of bytes used."""
        position = 0
        while True:
            missing = self._needed - self._held
            if missing > len(data) - position:
                self._pending.append(memoryview(data)[position:])
                self._held += len(data) - position
                return len(data)
            self._pending.append(memoryview(data)[position : position + missing])
            self._held += missing
            position += missing
            whole = b"".join(self._pending)
            self._pending = [whole]
            self._needed = self._size(whole, 0)
            if self._held == self._needed:
                self._take(whole, 0, len(whole), frames)
                self._pending, self._held = [], 0
                return position

    def _take_run(
        self, kind: int | None, data: bytes, run: array[int], end: int, frames: list[Received]
    ) -> None:
        """Reads consecutive frames of one type, by column if possible."""
        if len(run) >= (_FEW_RECEIPTS if kind == _RECEIPT else _FEW_MESSAGES):
            starts = np.frombuffer(run, np.int64)
            ends = np.append(starts[1:], end)
            if kind == _RECEIPT:
                receipts = receipts_of(data, starts, ends)
                if receipts is not None:
                    frames += receipts
                    return
            else:
                messages = self._template.messages(data, starts, ends)
                if messages is not None:
                    frames.append(messages)
                    return
        for first, last in zip(run, [*run[1:], end], strict=False):
            self._take(data, first, last, frames)

    def _take(self, data: bytes, position: int, end: int, frames: list[Received]) -> None:
        frame = _parse_frame(memoryview(data)[position + 4 : end])
        command = frame.command
        if command.type == _RECEIPT and command.HasField("send_receipt"):
            frames.append(receipt_of(command.send_receipt))
            return
        if command.type != _MESSAGE or not command.HasField("message"):
            frames.append(frame)
            return
        at = end - len(frame.payload_section)
        self._template = template_of(data[position + 8 : at], command)
        place = command.message.message_id
        ids = np.array([place.ledgerId, place.entryId], np.uint64).view(np.int64).reshape(2, 1)
        places = np.array([[at], [end]])
        frames.append(Messages(command.message.consumer_id, data, *ids, *places))

    def _size(self, data: bytes, position: int) -> int:
        """Returns a frame's size in bytes; or the bytes up to its type, if its size is only valid for lists.

        ``data`` must have at least four bytes of the frame.
        """
        (total,) = _U32.unpack_from(data, position)
        allowed = self.max_message_size + FRAME_PADDING
        if 4 < total <= allowed:
            return 4 + int(total)
        if self.expects_list and allowed < total <= MAX_LIST_SIZE:
            if len(data) - position < _KIND_AT + 2:
                return _KIND_AT + 2
            if _has_kind(data, position, _LISTS):
                return 4 + int(total)
        begin = bytes(data[position : position + 4])
        if begin == _HTTP:
            raise ProtocolError("the peer answers in HTTP, so this is a web port", advice=_BINARY_PORT)
        if begin.startswith(_TLS_ALERT):
            raise ProtocolError("the peer requires TLS", advice="Write pulsar+ssl:// in service.url")
        raise ProtocolError(
            f"the peer announced a frame of {total} bytes; 5 to {allowed} are allowed", advice=_BINARY_PORT
        )


def _count_alike(data: bytes, position: int, head: bytes, size: int) -> int:
    """Counts the complete frames of ``size`` bytes from ``position`` on that begin with ``head``.

    Compares blocks of growing size, so a run that ends early costs little.
    """
    count, most = 0, (len(data) - position) // size
    while count < most:
        block = min(_MANY + count, most - count)
        heads = np.ndarray((block,), f"V{len(head)}", data, position + count * size, (size,))
        alike = heads == np.void(head)
        if not alike.all():
            return count + int(alike.argmin())
        count += block
    return count


def kind_of(frame: bytes) -> int:
    """Returns the type of a request that was framed by :func:`encode_command`."""
    return frame[_KIND_AT + 1]


def _has_kind(data: bytes, position: int, kinds: tuple[int, ...]) -> bool:
    """Whether the frame at a position has a command of one of these types, all below 128."""
    kind = data[position + _KIND_AT : position + _KIND_AT + 2]
    return len(kind) == 2 and kind[0] == _KIND_TAG and kind[1] in kinds


def _parse_frame(body: memoryview) -> Frame:
    (size,) = _U32.unpack_from(body)
    if size > len(body) - 4:
        raise ProtocolError(f"a command of {size} bytes in a frame of {len(body)}")
    try:
        command = pb.BaseCommand.FromString(bytes(body[4 : 4 + size]))
    except UNPARSABLE as error:
        raise ProtocolError("the peer sent bytes that are not a Pulsar command") from error
    if command.type in _TYPES_WITH_TEXT and not _is_utf8(command):
        raise ProtocolError("the peer sent a command with text that is not UTF-8")
    # Protobuf also parses commands without required fields. A command of an unknown type has no ``type``.
    if command.HasField("type") and not command.IsInitialized():
        raise ProtocolError(f"the peer sent a command of type {command.type} without a required field")
    return Frame(command, body[4 + size :])


def _has_text(kind: Any) -> bool:
    """Whether a message type may contain text, directly or in a nested message."""
    return any(
        field.type == FieldDescriptor.TYPE_STRING
        # ``kind`` itself is not visited again, because a message id may contain a message id.
        or (field.message_type not in (None, kind) and _has_text(field.message_type))
        for field in kind.fields
    )


_TYPES_WITH_TEXT = frozenset(
    field.number
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None and _has_text(field.message_type)
)


def _is_utf8(message: Message) -> bool:
    """Whether all texts are UTF-8; protobuf's C runtime returns bytes for a text that is not UTF-8."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if not all(map(_is_utf8, [value] if isinstance(value, Message) else value)):
                return False
        elif field.type == FieldDescriptor.TYPE_STRING:
            texts = [value] if isinstance(value, str | bytes) else value
            if not all(isinstance(text, str) for text in texts):
                return False
    return True


def decode_payload_section(section: memoryview) -> StoredMessage:
    """Decodes a MESSAGE frame's payload section and verifies its checksum.

    Raises:
        CorruptError: the checksum is wrong, sizes are out of bounds, the metadata cannot be parsed, or it has
            more than MAX_PROPERTIES.
    """
    index, stamp, rest = _split_broker_entry(section)
    if rest[:2] == _CHECKSUM_MAGIC:
        if len(rest) < 6:
            raise CorruptError("an entry ends inside its checksum")
        (expected,) = _U32.unpack_from(rest, 2)
        rest = rest[6:]
        if crc32c(rest) != expected:
            raise CorruptError("an entry's checksum does not match its bytes")
    metadata, payload = _sized(rest, "metadata")
    try:
        parsed = pb.MessageMetadata.FromString(bytes(metadata))
    except UNPARSABLE as error:
        raise CorruptError("an entry's metadata cannot be parsed") from error
    if not parsed.IsInitialized():
        raise CorruptError("an entry's metadata lacks a required field")
    # A property has more than one byte, so properties are counted only in long metadata: counting is slow.
    if len(metadata) > MAX_PROPERTIES and len(parsed.properties) > MAX_PROPERTIES:
        raise CorruptError(
            f"an entry of {len(parsed.properties)} properties; the maximum is {MAX_PROPERTIES}"
        )
    return StoredMessage(parsed, payload, index, stamp)


def _split_broker_entry(section: memoryview) -> tuple[int | None, int | None, memoryview]:
    """Splits the broker's index and time, in ms since the epoch, off a payload section."""
    if section[:2] != _BROKER_ENTRY_MAGIC:
        return None, None, section
    raw, rest = _sized(section[2:], "broker metadata")
    try:
        metadata = pb.BrokerEntryMetadata.FromString(bytes(raw))
    except UNPARSABLE as error:
        raise CorruptError("an entry's broker metadata cannot be parsed") from error
    # A number beyond int64, and so beyond Java's long, counts as none.
    index = metadata.index if metadata.HasField("index") and not metadata.index >> 63 else None
    stamp = metadata.broker_timestamp
    return index, stamp if metadata.HasField("broker_timestamp") and not stamp >> 63 else None, rest


def _sized(data: memoryview, what: str) -> tuple[memoryview, memoryview]:
    if len(data) < 4:
        raise CorruptError(f"an entry ends before its {what}")
    (size,) = _U32.unpack_from(data)
    if size > len(data) - 4:
        raise CorruptError(f"an entry's {what} of {size} bytes is larger than the entry")
    return data[4 : 4 + size], data[4 + size :]
