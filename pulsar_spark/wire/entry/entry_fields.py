"""The fields of MessageMetadata, the metadata of an entry: by column, or from protobuf's objects."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.fields.field_spans import BYTES, VARINT, Fields, Numbers
from pulsar_spark.wire.fields.field_walk import FieldKind, Layout


class EntryField(IntEnum):
    """The fields of MessageMetadata that are read, with their numbers on the wire."""

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
    ORIGIN = 2019  # this project's own: which run of a query wrote the entry, see origin.py

    @property
    def is_number(self) -> bool:
        """Whether the field's values are varints."""
        return self in _NUMBERS

    @property
    def is_text(self) -> bool:
        """Whether the field's values are bytes that represent text, which should be UTF-8."""
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
# These are used for each field of each entry: attributes of an enum take longer than globals.
_PROPERTIES, _COMPRESSION, _ORIGIN = EntryField.PROPERTIES, EntryField.COMPRESSION, EntryField.ORIGIN
_REPEATED = (EntryField.ENCRYPTION_KEYS, EntryField.REPLICATE_TO)


def fields_of(metadata: Sequence[pb.MessageMetadata]) -> tuple[bytes, Fields]:
    """Lay out the fields of parsed metadata as a walk would find them; also returns their bytes.

    For metadata that a walk does not understand, and for so few entries that a walk's fixed cost is higher.
    """
    found = _Laid(len(metadata))
    for row, one in enumerate(metadata):
        found.start[row] = len(found.body)
        for field, value in one.ListFields():
            found.add(row, field.number, value)
        for unknown in UnknownFieldSet(one):  # type: ignore[attr-defined]
            number, value = unknown.field_number, unknown.data
            # The runtime knows only the types of the enum.
            is_compression = number == _COMPRESSION and isinstance(value, int) and not one.compression
            if is_compression or (number == _ORIGIN and isinstance(value, bytes)):
                found.add(row, number, value)
    return bytes(found.body), found.finish()


class _Laid:
    """Collects fields, whose bytes are placed one after another."""

    def __init__(self, count: int) -> None:
        self.body = bytearray()
        self.start = [0] * count
        self.numbers: dict[int, dict[int, int]] = {}
        self.spans: dict[int, dict[int, tuple[int, int]]] = {}
        self.properties: array[int] = array("q")

    def add(self, row: int, number: int, value: object) -> None:
        if number == _PROPERTIES:
            assert isinstance(value, Sequence)
            for one in value:
                self.properties.extend((row, *self._put(one.key), *self._put(one.value)))
        elif number in _REPEATED:  # that there are some is all that is read
            self.spans.setdefault(number, {})[row] = self._put(b"")
        elif number in _SPANS:
            assert isinstance(value, bytes)
            self.spans.setdefault(number, {})[row] = self._put(value)
        elif number in _NUMBERS:
            assert isinstance(value, int)
            self.numbers.setdefault(number, {})[row] = value & _U64

    def finish(self) -> Fields:
        start = np.array(self.start, np.int64)
        fields = Fields(start, (start, start))
        for number, values in self.numbers.items():
            signed = np.array(list(values.values()), np.uint64).view(np.int64)
            fields.set_number(number, np.array(list(values), np.int64), signed)
        for number, spans in self.spans.items():
            at, end = np.array(list(spans.values()), np.int64).T
            fields.set_span(number, np.array(list(spans), np.int64), at, end)
        if self.properties:
            row, key, key_end, value, value_end = np.frombuffer(self.properties, np.int64).reshape(-1, 5).T
            fields.properties = row, key, key_end, value, value_end
        return fields

    def _put(self, value: bytes) -> tuple[int, int]:
        at = len(self.body)
        self.body += value
        return at, len(self.body)
