"""Serialized MessageIdData of many messages, with the same bytes as the C++ client writes.

    08 ledger 10 entry [18 partition] [20 batch_index 30 batch_size] [3a size first_chunk_message_id]

Ids of one length are rows of a matrix, so bytes that are equal in many rows are filled in one call.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.arrow.join import binary_of, join
from pulsar_spark.ids import MessageId
from pulsar_spark.unparsable import UNPARSABLE
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.message_columns import number_field
from pulsar_spark.wire.wire_values import varint

_Bytes = npt.NDArray[np.uint8]

_UNSET = (1 << 64) - 1  # -1 in the unsigned fields of MessageIdData

# One call of _mixed is faster than a call of _alike for each group of similar entries, if there are at least
# _MANY_GROUPS groups with fewer than _FEW_IDS ids each on average.
_MANY_GROUPS, _FEW_IDS = 5, 500
KEPT_SIZE = 20_000  # maximum messages of a batch for which the result of ``_suffixes`` is cached


def serialize_ids(ledger: Ints, entry: Ints, sizes: Ints, partition: int | Ints) -> pa.BinaryArray:
    """Serializes the ids of all messages of entries.

    Args:
        ledger: ledger ids, int64[n], not negative.
        entry: entry ids, int64[n], not negative.
        sizes: number of messages in each batch, int64[n]; 0 for any other entry, which has one id.
        partition: partition number, or int64[n]; -1 for a topic without partitions.
    """
    if not len(entry):
        return pa.array([], pa.binary())
    if not isinstance(partition, int):
        return _mixed(ledger, entry, sizes, partition)
    if len(entry) == 1 and not sizes[0]:  # one unbatched entry, usual for a short range
        return pa.array([_single(MessageId(int(ledger[0]), int(entry[0])), partition)], pa.binary())
    widths = _widths(entry)
    changes = np.flatnonzero((np.diff(ledger) != 0) | (np.diff(widths) != 0) | (np.diff(sizes) != 0)) + 1
    bounds = [0, *changes.tolist(), len(ledger)]
    if len(bounds) > _MANY_GROUPS and len(bounds) * _FEW_IDS > sizes.sum():
        return _mixed(ledger, entry, sizes, np.full(len(entry), partition))
    parts = [
        _alike(int(ledger[first]), entry[first:last], int(widths[first]), int(sizes[first]), partition)
        for first, last in pairwise(bounds)
    ]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _mixed(ledger: Ints, entry: Ints, sizes: Ints, partition: Ints) -> pa.BinaryArray:
    """Serializes ids of any batch sizes and partitions, with a fixed number of numpy calls."""
    of_row = np.repeat(np.arange(len(sizes)), np.maximum(sizes, 1))
    is_single = sizes[of_row] == 0
    begins = np.flatnonzero(np.diff(of_row, prepend=-1))
    index = np.arange(len(of_row)) - begins[of_row]
    fields = [
        *number_field(b"\x08", pa.array(ledger[of_row])),
        *number_field(b"\x10", pa.array(entry[of_row])),
        *number_field(b"\x18", pa.array(partition[of_row], mask=partition[of_row] < 0)),
        *number_field(b"\x20", pa.array(index, mask=is_single)),
        *number_field(b"\x30", pa.array(sizes[of_row], mask=is_single)),
    ]
    joined = join(fields, len(of_row))
    return binary_of(joined.buffer, joined.offsets)


def serialize_chunked_id(last: MessageId, first: MessageId, partition: int) -> bytes:
    """Serializes the id of a chunked message: its last chunk's id, which contains its first chunk's."""
    inner = _single(first, partition)
    return _single(last, partition) + b"\x3a" + varint(len(inner)) + inner


def parse_message_id(data: bytes) -> MessageId:
    """Reads a serialized MessageIdData, for example from ``MessageId.toByteArray()`` of the Java client.

    Raises:
        ValueError: the bytes are not a MessageIdData.
    """
    try:
        found = pb.MessageIdData.FromString(data)
    except UNPARSABLE as error:
        raise ValueError(str(error)) from None
    if not found.IsInitialized():
        raise ValueError("a message id without ledger or entry")
    ledger, entry = (-1 if part == _UNSET else part for part in (found.ledgerId, found.entryId))
    return MessageId(ledger, entry, max(found.batch_index, -1))


def _single(place: MessageId, partition: int) -> bytes:
    return b"\x08" + varint(place.ledger) + b"\x10" + varint(place.entry) + _partition_field(partition)


def _partition_field(partition: int) -> bytes:
    return b"" if partition < 0 else b"\x18" + varint(partition)


def _alike(ledger: int, entry: Ints, width: int, size: int, partition: int) -> pa.BinaryArray:
    """Serializes ids of entries in one ledger, with ``size`` messages each; entry ids have ``width`` bytes.

    The common bytes are copied to every entry. Then each numpy call sets one byte of many entry ids, because
    a call takes as long for a few bytes as for thousands.
    """
    head, tail = b"\x08" + varint(ledger) + b"\x10", _partition_field(partition)
    prefix = np.frombuffer(head + bytes(width) + tail, np.uint8)
    suffixes = _suffixes(size)
    lengths = np.concatenate([np.full(len(each), len(prefix) + each.shape[1]) for each in suffixes])
    ends = np.cumsum(lengths)
    body = np.empty((len(entry), int(ends[-1])), np.uint8)
    body[:] = np.concatenate([_prefixed(prefix, each).ravel() for each in suffixes])
    varints = np.empty((len(entry), width), np.uint8)
    _put_varints(varints, entry)
    at = len(head)
    for suffix in suffixes:
        length = len(prefix) + suffix.shape[1]
        for place in range(width):
            first, last = at + place, at + place + (len(suffix) - 1) * length + 1
            body[:, first:last:length] = varints[:, place, np.newaxis]
        at += len(suffix) * length
    offsets = np.zeros(len(entry) * len(ends) + 1, np.int32)
    offsets[1:].reshape(len(entry), -1)[:] = np.arange(len(entry))[:, np.newaxis] * ends[-1] + ends
    return binary_of(body.data, offsets)


def _prefixed(prefix: _Bytes, suffixes: _Bytes) -> _Bytes:
    rows = np.empty((len(suffixes), len(prefix) + suffixes.shape[1]), np.uint8)
    rows[:, : len(prefix)] = prefix
    rows[:, len(prefix) :] = suffixes
    return rows


def _suffixes(size: int) -> list[_Bytes]:
    """Serializes batch_index and batch_size of each message as a row; rows of one length form a matrix."""
    return _kept_suffixes(size) if size <= KEPT_SIZE else _new_suffixes(size)


def _new_suffixes(size: int) -> list[_Bytes]:
    if size == 0:
        return [np.empty((1, 0), np.uint8)]
    batch_size = np.frombuffer(b"\x30" + varint(size), np.uint8)
    made, first, width = [], 0, 1
    while first < size:
        last = min(size, 1 << (7 * width))
        ids = np.empty((last - first, 1 + width + len(batch_size)), np.uint8)
        ids[:, 0] = 0x20
        _put_varints(ids[:, 1 : 1 + width], np.arange(first, last))
        ids[:, 1 + width :] = batch_size
        made.append(ids)
        first, width = last, width + 1
    return made


_kept_suffixes = lru_cache(maxsize=64)(_new_suffixes)


def _put_varints(into: _Bytes, values: Ints) -> None:
    """Writes varints with as many bytes as ``into`` has columns."""
    width = into.shape[1]
    for place in range(width):
        into[:, place] = (values >> (7 * place) & 0x7F) | (0x80 if place < width - 1 else 0)


def _widths(values: Ints) -> Ints:
    return 1 + np.searchsorted([1 << (7 * size) for size in range(1, 9)], values, side="right")
