"""The origin of an entry: a field in its metadata that says which run of a query wrote it.

A task of a stream adds the field to each entry that it sends. A later run of the task finds the entries by
it. The field is signed with a secret of the query, so nobody else can make one. But everybody who reads an
entry can copy its field into another entry. Pulsar does not know the field: brokers store it unchanged, and
every client skips it.

    ======  =====================================================================================
    bytes   meaning
    ======  =====================================================================================
    0-3     number of the micro-batch
    4-7     number of the Spark task
    8-9     number of the write: a function of foreachBatch may write to a topic several times
    10-17   ledger id and
    18-21   entry id of the first entry of the micro-batch that the task has stored in the topic
            partition; both -1 in that entry itself
    22-25   how many rows for the topic the task had taken when the entry was made
    26-37   signature, over the name of the topic partition and the bytes before
    ======  =====================================================================================
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from pulsar_spark.ids import MessageId
from pulsar_spark.wire.entry_fields import EntryField

_FIELDS = struct.Struct(">IIHqiI")
_SIGNATURE_SIZE = 12
_SIZE = _FIELDS.size + _SIGNATURE_SIZE
_MAX_ROWS = (1 << 32) - 1

# The number is far above Pulsar's own, and small enough for a tag of 2 bytes, which readers expect.
_TAG = bytes([EntryField.ORIGIN << 3 & 0x7F | 0x80 | 2, EntryField.ORIGIN >> 4, _SIZE])


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote an entry.

    Attributes:
        batch: number of the micro-batch.
        task: number of the Spark task.
        write: number of the write within the micro-batch, from 0.
        begin: id of the first entry of the micro-batch that the task has stored in the topic partition; None
            in that entry itself.
        rows: how many rows for the topic the task had taken when the entry was made, at most 2**32 - 1. So
            all rows of the entry are among the first ``rows`` ones.
    """

    batch: int
    task: int
    write: int
    begin: MessageId | None = None
    rows: int = 0


def encode_origin(origin: Origin, secret: bytes, topic: str) -> bytes:
    """Encode the field with its tag, to be appended to a serialized MessageMetadata.

    Args:
        origin: the values.
        secret: of the query, at most 64 bytes.
        topic: full name of the topic partition.
    """
    ledger, entry = (-1, -1) if origin.begin is None else (origin.begin.ledger, origin.begin.entry)
    rows = min(origin.rows, _MAX_ROWS)
    fields = _FIELDS.pack(origin.batch, origin.task, origin.write, ledger, entry, rows)
    return _TAG + fields + _signature(fields, secret, topic)


def decode_origin(field: bytes, secret: bytes, topic: str) -> Origin | None:
    """Decode a field without its tag; None if it is not signed with this secret for this topic partition."""
    fields, signature = field[: _FIELDS.size], field[_FIELDS.size :]
    if len(field) != _SIZE or signature != _signature(fields, secret, topic):
        return None
    batch, task, write, ledger, entry, rows = _FIELDS.unpack(fields)
    return Origin(batch, task, write, None if ledger < 0 else MessageId(ledger, entry), rows)


def _signature(fields: bytes, secret: bytes, topic: str) -> bytes:
    return hashlib.blake2b(fields + topic.encode(), key=secret, digest_size=_SIGNATURE_SIZE).digest()
