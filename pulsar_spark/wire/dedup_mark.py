"""The dedup mark: a field in an entry's metadata with a digest of all messages sent up to the entry's end.

It is a field that Pulsar does not know: brokers store it as it is, and every client skips it.
"""

from __future__ import annotations

from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_spark.wire import pulsar_pb2 as pb

DIGEST_SIZE = 16

# Far above Pulsar's own numbers, and small enough for a tag of 2 bytes, which is what batch readers expect.
_FIELD = 2019
_TAG = bytes([_FIELD << 3 & 0x7F | 0x80 | 2, _FIELD >> 4])

# What makes an entry invisible: a marker, of no kind that there is. Brokers keep all markers to themselves.
INVISIBLE = pb.MessageMetadata(marker_type=_FIELD).SerializePartialToString()


def encode_dedup_mark(digest: bytes) -> bytes:
    """Make the field, to be appended to a serialized MessageMetadata; ``digest`` has at most 127 bytes."""
    return _TAG + bytes([len(digest)]) + digest


def read_dedup_mark(metadata: pb.MessageMetadata) -> bytes | None:
    """The digest in an entry's metadata; None if it has none."""
    for field in UnknownFieldSet(metadata):  # type: ignore[attr-defined]
        if field.field_number == _FIELD and isinstance(field.data, bytes):
            return field.data
    return None
