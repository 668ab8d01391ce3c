"""The origin of an entry: a metadata field that names the micro-batch, task and run that wrote the entry.

A run lasts from a start of the query to its end. A task of a stream adds the field to each entry that it
sends, so a later run finds the entries. The field is signed with a secret of the query, so nobody else can
make one, but every reader can copy it into another entry. A micro-batch's first entry shows where it began,
so its signature covers the whole entry: only a copy of the whole entry is valid. Pulsar does not know the
field: brokers store it unchanged, and clients skip it.

    ======  =====================================================================================
    bytes   meaning
    ======  =====================================================================================
    0-3     number of the micro-batch
    4-7     number of the Spark task
    8-9     number of the write, because a foreachBatch function may write to a topic several times
    10-17   ledger id and
    18-21   entry id of the first entry of the micro-batch that the task has stored in the topic
            partition; both -1 in that entry itself
    22-25   the query's run, as a hash of Spark's run id; the first bit is 1 if an earlier run had stored rows
            of the micro-batch in the topic before this entry was sent
    26-37   signature of bytes 0-25 and the name of the topic partition; in that first entry also of its
            payload and its other metadata, but not of a chunk's metadata, which differ if it is sent again
    ======  =====================================================================================
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.ids import MessageId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entry_fields import EntryField

_FIELDS = struct.Struct(">IIHqiI")
_LEDGER = 10  # offset of the ledger id; the first byte of a negative id is above 0x7f
_SIGNATURE_SIZE = 12
_SIZE = _FIELDS.size + _SIGNATURE_SIZE
_AGAIN = 1 << 31

# The field number is far above Pulsar's field numbers. Readers by column expect a tag of 2 bytes.
_TAG = bytes([EntryField.ORIGIN << 3 & 0x7F | 0x80 | 2, EntryField.ORIGIN >> 4, _SIZE])


@dataclass(frozen=True, slots=True)
class Origin:
    """The writer of an entry.

    Attributes:
        write: number of the write within the micro-batch, from 0.
        begin: id of the first entry of the micro-batch that the task has stored in the topic partition; None
            in that entry itself.
        run: number of the query's run, a hash less than 2**31.
        is_again: whether an earlier run had stored rows of the micro-batch in the topic before this entry.
    """

    batch: int
    task: int
    write: int
    begin: MessageId | None = None
    run: int = 0
    is_again: bool = False

    @property
    def when(self) -> tuple[int, int]:
        """Returns (micro-batch, write); later writes of a query have larger pairs."""
        return self.batch, self.write


def encode_origin(
    origin: Origin, secret: bytes, topic: str, payload: Buffer = b"", metadata: bytes = b""
) -> bytes:
    """Encodes the field with its tag, to be appended to a serialized MessageMetadata.

    Args:
        secret: the query's secret, at most 64 bytes.
        payload: stored payload of the entry; used only if the origin has no ``begin``.
        metadata: the entry's other metadata, serialized; unused if there is a ``begin``. Empty for a chunk.
    """
    if metadata and origin.begin is None:  # orders the fields as ``metadata_before`` does
        metadata = _serialized(pb.MessageMetadata.FromString(metadata))
    begin = origin.begin or MessageId.EARLIEST
    run = origin.run | (_AGAIN if origin.is_again else 0)
    fields = _FIELDS.pack(origin.batch, origin.task, origin.write, begin.ledger, begin.entry, run)
    return _TAG + fields + _signature(fields, secret, topic, payload, metadata)


def decode_origin(
    field: bytes, secret: bytes, topic: str, payload: Buffer = b"", metadata: bytes = b""
) -> Origin | None:
    """Decodes a field without its tag; None if its signature is wrong for the secret, the topic or the entry.

    Arguments are as for ``encode_origin``; ``metadata`` is the result of ``metadata_before``.
    """
    fields, signature = field[: _FIELDS.size], field[_FIELDS.size :]
    if len(field) != _SIZE or signature != _signature(fields, secret, topic, payload, metadata):
        return None
    batch, task, write, ledger, number, run = _FIELDS.unpack(fields)
    begin = None if ledger < 0 else MessageId(ledger, number)
    return Origin(batch, task, write, begin, run & ~_AGAIN, is_again=run >= _AGAIN)


def task_of_origin(field: bytes) -> int:
    """Returns ``Origin.task`` of a valid field without its tag."""
    task: int = _FIELDS.unpack_from(field)[1]
    return task


def has_begin(field: bytes) -> bool:
    """Whether an encoded origin has ``begin``. If so, its signature does not cover the payload."""
    return field[_LEDGER : _LEDGER + 1] < b"\x80"


def metadata_before(field: bytes, metadata: pb.MessageMetadata) -> bytes | None:
    """Returns an entry's serialized metadata before its origin ``field``; None if the field is not last."""
    whole, tagged = _serialized(metadata), _TAG + field
    return whole[: -len(tagged)] if whole.endswith(tagged) else None


def _serialized(metadata: pb.MessageMetadata) -> bytes:
    """Serializes fields in the order of their numbers."""
    return metadata.SerializeToString(deterministic=True)


def _signature(fields: bytes, secret: bytes, topic: str, payload: Buffer, metadata: bytes) -> bytes:
    name = topic.encode()
    digest = hashlib.blake2b(
        fields + struct.pack(">H", len(name)) + name, key=secret, digest_size=_SIGNATURE_SIZE
    )
    if not has_begin(fields):
        digest.update(struct.pack(">I", len(metadata)) + metadata)
        digest.update(payload)
    return digest.digest()
