"""The fields of entries' metadata (MessageMetadata): read by column, or copied from protobuf objects.

``read_sections`` reads and verifies the payload sections of many MESSAGE frames by column; their layout is
drawn in :mod:`frames`. It refuses malformed sections, and sections without a checksum. If it does,
``frames.decode_payload_section`` decodes each section, and ``fields_of`` copies the fields of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_spark.arrow.arrays import Bytes, Flags, Ints, every
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.fields.field_spans import BYTES, VARINT, FieldLists, Fields, Numbers
from pulsar_spark.wire.fields.field_walk import FieldKind, Layout, big_endian, require, walk
from pulsar_spark.wire.frame_runs import Messages


class EntryField(IntEnum):
    """The fields of MessageMetadata that readers use, with their numbers on the wire."""

    PRODUCER_NAME = 1
    SEQUENCE_ID = 2
    PUBLISH_TIME = 3
    PROPERTIES = 4
    REPLICATED_FROM = 5
    KEY = 6
    REPLICATE_TO = 7
    COMPRESSION = 8
    UNCOMPRESSED_SIZE = 9
    MESSAGES = 11
    EVENT_TIME = 12
    ENCRYPTION_KEYS = 13
    SCHEMA_VERSION = 16
    KEY_IS_BASE64 = 17
    ORDERING_KEY = 18
    DELIVER_AT = 19
    NULL_VALUE = 25
    CHUNKS = 27
    NULL_KEY = 30
    SCHEMA_ID = 32
    ORIGIN = 2019  # this project's own field, see origin.py

    @property
    def is_number(self) -> bool:
        """Whether the field's values are varints."""
        return self in _NUMBERS

    @property
    def is_text(self) -> bool:
        """Whether the field's values are texts, which should be UTF-8."""
        return self in _TEXTS


_NUMBERS = frozenset(
    {
        EntryField.SEQUENCE_ID,
        EntryField.PUBLISH_TIME,
        EntryField.COMPRESSION,
        EntryField.UNCOMPRESSED_SIZE,
        EntryField.MESSAGES,
        EntryField.EVENT_TIME,
        EntryField.KEY_IS_BASE64,
        EntryField.DELIVER_AT,
        EntryField.NULL_VALUE,
        EntryField.CHUNKS,
        EntryField.NULL_KEY,
    }
)
_TEXTS = frozenset({EntryField.PRODUCER_NAME, EntryField.REPLICATED_FROM})
_SPANS = _TEXTS | {
    EntryField.KEY,
    EntryField.REPLICATE_TO,
    EntryField.ENCRYPTION_KEYS,
    EntryField.SCHEMA_VERSION,
    EntryField.ORDERING_KEY,
    EntryField.SCHEMA_ID,
    EntryField.ORIGIN,
}
_IGNORED_BYTES = (14, 15, 26)
_IGNORED_VARINTS = (20, 22, 23, 24, 28, 29, 31, 33, 34)

LAYOUT = Layout(
    {
        **{number << 3 | VARINT: FieldKind.NUMBER for number in _NUMBERS},
        **{number << 3 | BYTES: FieldKind.SPAN for number in _SPANS},
        **{number << 3 | VARINT: FieldKind.IGNORED for number in _IGNORED_VARINTS},
        **{number << 3 | BYTES: FieldKind.IGNORED for number in _IGNORED_BYTES},
        EntryField.PROPERTIES << 3 | BYTES: FieldKind.PROPERTY,
    },
    highest=34,
)
NUMBERS = Numbers(
    key=EntryField.KEY,
    event_time=EntryField.EVENT_TIME,
    key_is_base64=EntryField.KEY_IS_BASE64,
    ordering_key=EntryField.ORDERING_KEY,
    sequence_id=EntryField.SEQUENCE_ID,
    null_value=EntryField.NULL_VALUE,
    null_key=EntryField.NULL_KEY,
)
_U64 = (1 << 64) - 1
# Copied to globals, because access to an attribute of an enum takes longer.
_PROPERTIES, _COMPRESSION, _ORIGIN = EntryField.PROPERTIES, EntryField.COMPRESSION, EntryField.ORIGIN
_REPEATED = (EntryField.ENCRYPTION_KEYS, EntryField.REPLICATE_TO)


def fields_of(metadata: Sequence[pb.MessageMetadata]) -> tuple[bytes, Fields]:
    """Converts parsed metadata to fields like those of ``field_walk.walk``; returns bytes and fields.

    Used for metadata that ``walk`` refuses, and for few entries, for which it takes less time.
    """
    body, found = bytearray(), FieldLists(len(metadata))
    for row, one in enumerate(metadata):
        found.start[row] = len(body)
        for field, value in one.ListFields():
            _add(found, body, row, field.number, value)
        for unknown in UnknownFieldSet(one):  # type: ignore[attr-defined]
            number, value = unknown.field_number, unknown.data
            # Protobuf keeps an unknown value of CompressionType among the unknown fields; readers need it.
            is_compression = number == _COMPRESSION and isinstance(value, int) and not one.compression
            if is_compression or (number == _ORIGIN and isinstance(value, bytes)):
                _add(found, body, row, number, value)
    return bytes(body), found.finish()


def _add(found: FieldLists, body: bytearray, row: int, number: int, value: Any) -> None:
    """Adds a field of one entry, and its bytes to ``body``."""
    if number == _PROPERTIES:
        for one in value:
            found.properties.extend((row, *_put(body, one.key), *_put(body, one.value)))
    elif number in _REPEATED:  # readers use only their presence
        found.set_span(number, row, *_put(body, b""))
    elif number in _SPANS:
        found.set_span(number, row, *_put(body, value))
    elif number in _NUMBERS:
        found.set_number(number, row, value & _U64)


def _put(body: bytearray, data: bytes) -> tuple[int, int]:
    """Appends bytes; returns their start and end."""
    at = len(body)
    body += data
    return at, len(body)


_CHECKSUM_MAGIC = 0x0E01
_BROKER_ENTRY_MAGIC = 0x0E02
_TIMESTAMP, _INDEX = 1, 2
_BROKER_ENTRY = Layout(
    {_TIMESTAMP << 3 | VARINT: FieldKind.NUMBER, _INDEX << 3 | VARINT: FieldKind.NUMBER}, highest=2
)


class Sections(NamedTuple):
    """n payload sections.

    Attributes:
        fields: fields of the metadata; ``start`` is the metadata's start, ``value`` the payload's bounds.
        indexes: the broker's index of each entry's last message, int64[n]; -1 if the broker sends none.
        times: arrival times at the broker in ms since the epoch, int64[n]; -1 if the broker sends none.
    """

    fields: Fields
    indexes: Ints
    times: Ints


def read_sections(messages: Messages) -> Sections:
    """Decodes the sections and verifies their checksums.

    Raises:
        NotPlainError: the sections must be decoded one by one.
    """
    body = np.frombuffer(messages.data, np.uint8)
    at, end = messages.at, messages.end
    require(every(end - at >= 6))
    indexes, times, at = _broker_entries(body, at, end)
    require(every(end - at >= 10) and every(big_endian(body, at, 2) == _CHECKSUM_MAGIC))
    # Slices of bytes are copies, which cost less than views of small entries.
    data, checked = messages.data, zip((at + 6).tolist(), end.tolist(), strict=True)
    checksums = [crc32c(data[first:last]) for first, last in checked]
    require(every(big_endian(body, at + 2, 4) == np.array(checksums, np.int64)))
    start = at + 10
    payload = start + big_endian(body, at + 6, 4)
    require(every(payload <= end))
    fields = walk(body, start, start, payload, LAYOUT)
    fields.value = payload, end
    require(EntryField.PRODUCER_NAME in fields.spans and every(fields.spans[EntryField.PRODUCER_NAME][2]))
    for number in (EntryField.SEQUENCE_ID, EntryField.PUBLISH_TIME):
        require(number in fields.numbers and every(fields.numbers[number][1]))
    return Sections(fields, indexes, times)


def _broker_entries(body: Bytes, at: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Reads BrokerEntryMetadata, if any; returns indexes, times, and the start of the bytes after it."""
    found = {number: np.full(len(at), -1, np.int64) for number in (_INDEX, _TIMESTAMP)}
    has: Flags = big_endian(body, at, 2) == _BROKER_ENTRY_MAGIC
    if not has.any():
        return found[_INDEX], found[_TIMESTAMP], at
    rows = np.flatnonzero(has)
    first = at[rows] + 6
    last = first + big_endian(body, at[rows] + 2, 4)
    require(every(last <= end[rows]))
    numbers = walk(body, first, first, last, _BROKER_ENTRY).numbers
    for number in found.keys() & numbers.keys():
        values, given = numbers[number]
        found[number][rows[given]] = np.maximum(values[given], -1)  # -1 (none) for a number beyond int64
    rest = at.copy()
    rest[rows] = last
    return found[_INDEX], found[_TIMESTAMP], rest
