"""The fields of MessageMetadata, the metadata of an entry: by column, or from what protobuf parsed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.decode_columns import Numbers
from pulsar_spark.wire.field_spans import BYTES, VARINT, Fields
from pulsar_spark.wire.field_walk import FieldKind, Layout

PRODUCER_NAME, SEQUENCE_ID, PUBLISH_TIME, PROPERTIES, REPLICATED_FROM, KEY = 1, 2, 3, 4, 5, 6
COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, EVENT_TIME, ENCRYPTION_KEYS = 8, 9, 11, 12, 13
SCHEMA_VERSION, KEY_IS_BASE64, ORDERING_KEY, NULL_VALUE, CHUNKS, NULL_KEY = 16, 17, 18, 25, 27, 30

_SPANS = frozenset({PRODUCER_NAME, REPLICATED_FROM, KEY, ENCRYPTION_KEYS, SCHEMA_VERSION, ORDERING_KEY})
_NUMBERS = frozenset(
    {SEQUENCE_ID, PUBLISH_TIME, COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, EVENT_TIME, KEY_IS_BASE64}
    | {NULL_VALUE, CHUNKS, NULL_KEY}
)
_IGNORED_BYTES = (7, 14, 15, 26, 32)
_IGNORED_VARINTS = (19, 20, 22, 23, 24, 28, 29, 31, 33, 34)

LAYOUT = Layout(
    {
        **{number << 3 | VARINT: FieldKind.NUMBER for number in _NUMBERS},
        **{number << 3 | BYTES: FieldKind.SPAN for number in _SPANS},
        **{number << 3 | VARINT: FieldKind.IGNORED for number in _IGNORED_VARINTS},
        **{number << 3 | BYTES: FieldKind.IGNORED for number in _IGNORED_BYTES},
        PROPERTIES << 3 | BYTES: FieldKind.PROPERTY,
    },
    highest=34,
)
NUMBERS = Numbers(
    key=KEY,
    event_time=EVENT_TIME,
    key_is_base64=KEY_IS_BASE64,
    ordering_key=ORDERING_KEY,
    sequence_id=SEQUENCE_ID,
    null_value=NULL_VALUE,
    null_key=NULL_KEY,
)
_U64 = (1 << 64) - 1


def fields_of(metadata: Sequence[pb.MessageMetadata]) -> tuple[bytes, Fields]:
    """Lay the fields of parsed metadata out as a walk would find them; returns what holds them, too.

    For what a walk does not take, and for entries so few that a walk's fixed cost is more than this takes.
    """
    found = _Laid(len(metadata))
    for row, one in enumerate(metadata):
        found.start[row] = len(found.body)
        for field, value in one.ListFields():
            found.add(row, field.number, value)
        if not one.compression:  # the runtime knows no type but those in the enum
            for unknown in UnknownFieldSet(one):  # type: ignore[attr-defined]
                if unknown.field_number == COMPRESSION and isinstance(unknown.data, int):
                    found.numbers.setdefault(COMPRESSION, {})[row] = unknown.data & _U64
    return bytes(found.body), found.finish()


class _Laid:
    """Collects fields, their bytes one after the other."""

    def __init__(self, count: int) -> None:
        self.body = bytearray()
        self.start = [0] * count
        self.numbers: dict[int, dict[int, int]] = {}
        self.spans: dict[int, dict[int, tuple[int, int]]] = {}
        self.properties: list[tuple[int, int, int, int, int]] = []

    def add(self, row: int, number: int, value: object) -> None:
        if number == PROPERTIES:
            assert isinstance(value, Sequence)
            for one in value:
                self.properties.append((row, *self._put(one.key), *self._put(one.value)))
        elif number == ENCRYPTION_KEYS:
            self.spans.setdefault(number, {})[row] = self._put(b"")
        elif number in _SPANS:
            assert isinstance(value, str | bytes)
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
            row, key, key_end, value, value_end = np.array(self.properties, np.int64).T
            fields.properties = row, key, key_end, value, value_end
        return fields

    def _put(self, value: str | bytes) -> tuple[int, int]:
        """Append bytes; a text that is not UTF-8 comes out of protobuf as bytes, any other as str."""
        at = len(self.body)
        self.body += value.encode() if isinstance(value, str) else value
        return at, len(self.body)
