"""The dedup mark: a field in an entry's metadata with a digest of all messages sent up to the entry's end.

If rows are grouped by key, another field says where runs of the task have ended. Pulsar knows neither field:
brokers store them unchanged, and every client skips them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_spark.wire import pulsar_pb2 as pb

DIGEST_SIZE = 16
MAX_ENDS = 15  # maximum ends of runs in one entry

# They are far above Pulsar's own numbers, and small enough for tags of 2 bytes, which batch readers expect.
_FIELD, _ENDS_FIELD = 2019, 2020
_TAG, _ENDS_TAG = (bytes([field << 3 & 0x7F | 0x80 | 2, field >> 4]) for field in (_FIELD, _ENDS_FIELD))
_END_SIZE = 8

# This makes an entry invisible: it is a marker of a kind that does not exist. Brokers deliver no markers.
INVISIBLE = pb.MessageMetadata(marker_type=_FIELD).SerializePartialToString()


def encode_dedup_mark(digest: bytes) -> bytes:
    """Encode the field, to be appended to a serialized MessageMetadata; ``digest`` has at most 127 bytes."""
    return _TAG + bytes([len(digest)]) + digest


def read_dedup_mark(metadata: pb.MessageMetadata) -> bytes | None:
    """The digest in an entry's metadata; None if it has none."""
    return _read(metadata, _FIELD)


def encode_run_ends(ends: Sequence[int]) -> bytes:
    """Encode the field with numbers of rows, to be appended like the mark; empty if there are none.

    Args:
        ends: at most MAX_ENDS numbers, each below 2**64.
    """
    if not ends:
        return b""
    return _ENDS_TAG + bytes([len(ends) * _END_SIZE]) + struct.pack(f">{len(ends)}Q", *ends)


def read_run_ends(metadata: pb.MessageMetadata) -> tuple[int, ...]:
    """The numbers of rows in an entry's metadata; empty if the field is missing or cannot be read."""
    data = _read(metadata, _ENDS_FIELD) or b""
    count, rest = divmod(len(data), _END_SIZE)
    return () if rest or count > MAX_ENDS else struct.unpack(f">{count}Q", data)


def _read(metadata: pb.MessageMetadata, number: int) -> bytes | None:
    for field in UnknownFieldSet(metadata):  # type: ignore[attr-defined]
        if field.field_number == number and isinstance(field.data, bytes):
            return field.data
    return None
