"""Compression of payloads, in the framings that all Pulsar clients use.

    ======  ==========================================================
    LZ4     one raw block, no frame
    ZLIB    zlib stream (RFC 1950); the Java client leaves out its last bytes
    ZSTD    one frame
    SNAPPY  raw: a varint of the size, then the block; no stream frame
    ======  ==========================================================

Only SNAPPY data always contains its size; other codecs need ``uncompressed_size`` of the MessageMetadata.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb

_ARROW_NAMES: dict[int, str] = {pb.LZ4: "lz4_raw", pb.ZSTD: "zstd", pb.SNAPPY: "snappy"}
_LZ4_MAGIC, _LZ4_END = b"\x04\x22\x4d\x18", bytes(4)
_LZ4_BLOCK_SIZES = (1 << 16, 1 << 18, 1 << 20, 1 << 22)  # sizes in bytes
_U32 = struct.Struct("<I")

# Follows each block that is decompressed with others. It is random, so no producer can fake it.
_SEPARATOR = os.urandom(8)
_SEPARATOR_BLOCK = _U32.pack(len(_SEPARATOR) | 1 << 31) + _SEPARATOR  # stored, not compressed
_U32_MASK = 0xFFFFFFFF
_ZSTD_LEVEL = 3  # the level of the Java and C++ clients; Arrow's own default is 1


def compress(kind: int, data: Buffer) -> Buffer:
    """Compresses ``data`` with the CompressionType ``kind``; NONE returns ``data`` itself.

    Raises:
        CorruptError: ``kind`` is unknown.
    """
    if kind == pb.NONE:
        return data
    if kind == pb.ZLIB:
        return zlib.compress(data)
    compressed: bytes = _codec(kind).compress(data, asbytes=True)
    return compressed


def decompress(kind: int, data: Buffer, uncompressed_size: int, limit: int) -> Buffer:
    """Decompresses to exactly ``uncompressed_size`` bytes; NONE returns ``data`` itself, unchecked.

    Args:
        kind: CompressionType.
        limit: maximum size of the output in bytes, checked before memory is allocated.

    Raises:
        CorruptError: ``kind`` is unknown, ``data`` is malformed or does not decompress to exactly
            ``uncompressed_size`` bytes, or the size is more than ``limit``.
    """
    if kind == pb.NONE:
        return data
    if not 0 <= uncompressed_size <= limit:
        raise CorruptError(f"a payload of {uncompressed_size} bytes uncompressed; the maximum is {limit}")
    if kind == pb.ZLIB:
        return _inflate(data, uncompressed_size)
    if kind == pb.SNAPPY and _snappy_size(data) != uncompressed_size:
        raise CorruptError("a SNAPPY payload does not have the declared size")
    codec = _codec(kind)
    try:
        if kind == pb.LZ4 and uncompressed_size and max(uncompressed_size, len(data)) <= _LZ4_BLOCK_SIZES[-1]:
            return _view(_decompress_lz4([data], [uncompressed_size]))
        plain = codec.decompress(data, uncompressed_size)
    except (OSError, pa.ArrowException):
        raise CorruptError(
            f"a payload does not decompress to {uncompressed_size} bytes with {codec.name}"
        ) from None
    if kind == pb.LZ4 and uncompressed_size and _fits(codec, data, uncompressed_size - 1):
        raise CorruptError("an LZ4 payload is shorter than declared")
    return _view(plain)


def decompress_together(blocks: Sequence[Buffer], sizes: Sequence[int]) -> list[memoryview] | None:
    """Decompresses LZ4 blocks in one call, several times faster than one by one.

    Args:
        blocks: one or more blocks.
        sizes: declared decompressed size of each block in bytes. For a wrong size the result is None, so that
            no block can shift the bytes of the next.

    Returns:
        The bytes of each block. None if a block is empty, malformed, larger than an LZ4 frame allows, or of
        another size; ``decompress`` finds the block and the fault.
    """
    if min(*sizes, *map(len, blocks)) == 0 or max(*sizes, *map(len, blocks)) > _LZ4_BLOCK_SIZES[-1]:
        return None
    try:
        plain = _decompress_lz4(blocks, sizes, _SEPARATOR_BLOCK)
    except (OSError, pa.ArrowException):
        return None
    view, at, found = _view(plain), 0, []
    for size in sizes:
        end = at + size
        # A block of a wrong size shifts the separator after it.
        if view[end : end + len(_SEPARATOR)] != _SEPARATOR:
            return None
        found.append(view[at:end])
        at = end + len(_SEPARATOR)
    return found


def _view(plain: pa.Buffer) -> memoryview:
    return memoryview(plain).cast("B")  # Arrow declares its bytes as signed


def _codec(kind: int) -> pa.Codec:
    """Returns a new codec for each call, because codecs are cheap and may not be thread-safe."""
    if kind not in _ARROW_NAMES:
        raise CorruptError(f"unknown compression type {kind}", advice="Use a newer version of pulsar_spark")
    name = _ARROW_NAMES[kind]
    return pa.Codec(name, compression_level=_ZSTD_LEVEL) if kind == pb.ZSTD else pa.Codec(name)


def _inflate(data: Buffer, size: int) -> bytes:
    # A stream may lack its end, because the Java client, and so the broker's compactor, only flushes it.
    try:
        plain = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error:
        raise CorruptError("a ZLIB payload is malformed") from None
    if len(plain) != size:
        raise CorruptError("a ZLIB payload does not have the declared size")
    return plain


def _snappy_size(data: Buffer) -> int:
    """Returns the varint before a raw SNAPPY block; -1 if there is none."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    return -1


def _decompress_lz4(blocks: Sequence[Buffer], sizes: Sequence[int], separator: bytes = b"") -> pa.Buffer:
    """Decompresses raw blocks as one LZ4 frame; the decoder verifies the sum of their sizes.

    The sum must not be 0, because 0 means unknown. ``separator``: encoded block to add after each block.
    """
    total = sum(sizes) + (len(_SEPARATOR) * len(blocks) if separator else 0)
    pieces: list[Buffer] = [_lz4_frame_head(total, max(*sizes, *map(len, blocks)))]
    for block in blocks:
        pieces += (_U32.pack(len(block)), block, separator)
    pieces.append(_LZ4_END)
    return pa.Codec("lz4").decompress(b"".join(pieces), total)


@lru_cache(maxsize=4096)
def _lz4_frame_head(size: int, largest: int) -> bytes:
    """Returns an LZ4 frame's head; ``largest``: maximum bytes of a block, compressed or decompressed."""
    block_size = next(code for code, limit in enumerate(_LZ4_BLOCK_SIZES, 4) if largest <= limit)
    # Version 1, independent blocks, no checksums, with the content size.
    descriptor = bytes((0x68, block_size << 4)) + size.to_bytes(8, "little")
    return _LZ4_MAGIC + descriptor + bytes((_xxh32(descriptor) >> 8 & 0xFF,))


def _xxh32(data: bytes) -> int:
    """XXH32 of less than 16 bytes, with seed 0."""
    value = 374761393 + len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * 3266489917 & _U32_MASK
        value = (value << 17 | value >> 15) * 668265263 & _U32_MASK
    for byte in data[whole:]:
        value = value + byte * 374761393 & _U32_MASK
        value = (value << 11 | value >> 21) * 2654435761 & _U32_MASK
    value = (value ^ value >> 15) * 2246822519 & _U32_MASK
    value = (value ^ value >> 13) * 3266489917 & _U32_MASK
    return value ^ value >> 16


def _fits(codec: pa.Codec, data: Buffer, size: int) -> bool:
    """Whether the data decompresses to at most ``size`` bytes.

    Arrow does not report the decompressed size of an LZ4 block. So blocks up to 4 MiB are put into a frame,
    whose decoder verifies the size.
    """
    try:
        codec.decompress(data, size)
    except (OSError, pa.ArrowException):
        return False
    return True
