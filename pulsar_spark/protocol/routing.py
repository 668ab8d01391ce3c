"""Which partition a keyed message goes to; equal to the Java client, as consumers of a key rely on it.

The hash is taken of the key as it goes on the wire: a key that is not UTF-8 counts as its base64 text. All
keys are hashed at once, in numpy's wrapping 32 bit arithmetic.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.wire.texts import encode_keys

Words: TypeAlias = npt.NDArray[np.uint32]
Ints: TypeAlias = npt.NDArray[np.int64]

_31 = 31
_INVERSE_OF_31 = pow(31, -1, 2**32)


class HashingScheme(Enum):
    """The Java client's ``hashingScheme``."""

    JAVA_STRING = "JavaStringHash"
    MURMUR3_32 = "Murmur3_32Hash"


def partitions_for_keys(
    keys: pa.BinaryArray, partitions: int, scheme: HashingScheme = HashingScheme.JAVA_STRING
) -> npt.NDArray[np.int32]:
    """Choose the partition of each key, int32[n] from 0 to ``partitions - 1``; -1 for a null key."""
    texts, _ = encode_keys(keys)
    chosen = np.full(len(texts), -1, np.int32)
    hashed = hash_keys(texts.drop_null(), scheme)
    has = texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else slice(None)
    chosen[has] = (hashed % np.uint32(partitions)).astype(np.int32)
    return chosen


def hash_keys(texts: pa.BinaryArray, scheme: HashingScheme) -> Words:
    """Hash UTF-8 texts, none of them null, to uint32[n] below 2**31, as ``makeHash`` does."""
    count = len(texts)
    if count == 0:
        return np.zeros(0, np.uint32)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    hashed = _murmur3(data, offsets) if scheme is HashingScheme.MURMUR3_32 else _java_hash(data, offsets)
    hashed &= np.uint32(0x7FFFFFFF)
    return hashed


def _java_hash(data: npt.NDArray[np.uint8], offsets: Ints) -> Words:
    """Java's ``String.hashCode``: the sum of unit[i] * 31**(length - 1 - i) over UTF-16 code units.

    31 has an inverse modulo 2**32, so with running sums of unit[i] * 31**-i over *all* texts, a text from s
    to e has the hash (sum[e] - sum[s]) * 31**(e - 1).
    """
    units: npt.NDArray[np.uint8 | np.uint16] = data
    if (data > 0x7F).any():
        units = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-16-le"), "<u2")
        # A character is as many code units as its first byte says, its other bytes none.
        units_to = np.zeros(len(data) + 1, np.int64)
        np.cumsum((data < 0x80).astype(np.int8) + (data >= 0xC0) + (data >= 0xF0), out=units_to[1:])
        offsets = units_to[offsets]
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * _powers(_INVERSE_OF_31, len(units)), out=sums[1:], dtype=np.uint32)
    start, end = offsets[:-1], offsets[1:]
    scale = _powers(_31, len(units) + 1)[end] * np.uint32(_INVERSE_OF_31)
    hashed: Words = (sums[end] - sums[start]) * scale
    return hashed


def _powers(base: int, count: int) -> Words:
    """Powers 0 to ``count - 1`` of ``base``, modulo 2**32."""
    powers = np.full(count, base, np.uint32)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint32)


def _murmur3(data: npt.NDArray[np.uint8], offsets: Ints) -> Words:
    """MurmurHash3 x86 32 bit with seed 0, a 4-byte word of every text a round."""
    padded = np.append(data, np.zeros(4, np.uint8))
    words = np.ndarray((len(data) + 1,), "<u4", padded, 0, (1,))  # the word that begins at each byte
    start = offsets[:-1]
    sizes = np.diff(offsets)
    hashed = np.zeros(len(start), np.uint32)
    for at in range(0, int(sizes.max()) - 3, 4):
        rows = np.flatnonzero(sizes >= at + 4)
        mixed = hashed[rows] ^ _scrambled(words[start[rows] + at])
        hashed[rows] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    whole = sizes & ~3
    left = (np.uint32(1) << (8 * (sizes - whole)).astype(np.uint32)) - np.uint32(1)
    hashed ^= _scrambled(words[start + whole] & left)
    hashed ^= sizes.astype(np.uint32)
    hashed ^= hashed >> np.uint32(16)
    hashed *= np.uint32(0x85EBCA6B)
    hashed ^= hashed >> np.uint32(13)
    hashed *= np.uint32(0xC2B2AE35)
    hashed ^= hashed >> np.uint32(16)
    return hashed


def _scrambled(words: Words) -> Words:
    scrambled: Words = _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return scrambled


def _rotated(words: Words, left: int) -> Words:
    rotated: Words = words << np.uint32(left) | words >> np.uint32(32 - left)
    return rotated
