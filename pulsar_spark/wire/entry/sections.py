"""Payload sections of many MESSAGE frames, decoded and verified by column.

The layout is drawn in :mod:`frames`. A malformed or unusual section (one without a checksum) is not plain,
and is left to :func:`frames.decode_payload_section`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulsar_spark.arrow.arrays import Bytes, Flags, Ints, every
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.entry.entry_fields import LAYOUT, EntryField
from pulsar_spark.wire.fields.field_spans import VARINT, Fields
from pulsar_spark.wire.fields.field_walk import FieldKind, Layout, big_endian, require, walk
from pulsar_spark.wire.messages import Messages

_CHECKSUM_MAGIC = 0x0E01
_BROKER_ENTRY_MAGIC = 0x0E02
_TIMESTAMP, _INDEX = 1, 2
_BROKER_ENTRY = Layout(
    {_TIMESTAMP << 3 | VARINT: FieldKind.NUMBER, _INDEX << 3 | VARINT: FieldKind.NUMBER}, highest=2
)


class Sections(NamedTuple):
    """n payload sections.

    Attributes:
        fields: fields of the metadata; ``start`` is where the metadata begins, ``value`` where the stored
            payload is.
        indexes: int64[n], the broker's index of each entry's last message; -1 if it sends none.
        times: int64[n], when the broker took each entry, in ms since the epoch; -1 if it does not say.
    """

    fields: Fields
    indexes: Ints
    times: Ints


def read_sections(messages: Messages) -> Sections:
    """Decode the sections and verify their checksums.

    Raises:
        NotPlainError: the sections must be decoded one by one.
    """
    body = np.frombuffer(messages.data, np.uint8)
    at, end = messages.at, messages.end
    require(every(end - at >= 6))
    indexes, times, at = _broker_entries(body, at, end)
    require(every(end - at >= 10) and every(big_endian(body, at, 2) == _CHECKSUM_MAGIC))
    # Slices of bytes are copies, but for small entries cheaper than views.
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
    """Read the broker's metadata where present; returns its indexes, its times, and where the rest begins."""
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
        found[number][rows[given]] = np.maximum(values[given], -1)  # what is beyond int64 counts as none
    rest = at.copy()
    rest[rows] = last
    return found[_INDEX], found[_TIMESTAMP], rest
