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
from itertools import count

import pyarrow as pa

from pulsar_spark.arrow.arrays import Buffer
from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb

_ARROW_NAMES: dict[int, str] = {pb.LZ4: "lz4_raw", pb.ZSTD: "zstd", pb.SNAPPY: "snappy"}
_LZ4_MAGIC, _LZ4_END = b"\x04\x22\x4d\x18", bytes(4)
# Maximum bytes of a block -> LZ4 frame header after its magic: version 1, independent blocks, no checksums.
_LZ4_FRAMES = {
    1 << 16: b"\x60\x40\x82",
    1 << 18: b"\x60\x50\xfb",
    1 << 20: b"\x60\x60\x51",
    1 << 22: b"\x60\x70\x73",
}
_LZ4_LARGEST = max(_LZ4_FRAMES)
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
# Numbers put after each block to verify where it ends. The first is random, so nobody can forge one.
_separators = count(int.from_bytes(os.urandom(7), "little"))
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
        if kind == pb.LZ4 and uncompressed_size and max(uncompressed_size, len(data)) <= _LZ4_LARGEST:
            return _decompress_lz4([data], [uncompressed_size])[0]
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
        The bytes of each block. None if a block is empty, malformed, larger than an LZ4 frame allows, or not
        of its declared size. Then call ``decompress`` for each block, which raises the error.
    """
    if min(*sizes, *map(len, blocks)) == 0 or max(*sizes, *map(len, blocks)) > _LZ4_LARGEST:
        return None
    try:
        return _decompress_lz4(blocks, sizes)
    except (OSError, pa.ArrowException):
        return None


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


def _decompress_lz4(blocks: Sequence[Buffer], sizes: Sequence[int]) -> list[memoryview]:
    """Decompresses raw blocks as one LZ4 frame; raises OSError if a block is malformed or of another size.

    A separator follows each block. If it is not found there, the block does not have the declared size. Each
    call has a new separator, because the result's memory may still contain the previous call's.
    """
    separator = _U64.pack(next(_separators))
    stored = _U32.pack(len(separator) | 1 << 31) + separator  # the separator as an uncompressed LZ4 block
    largest = max(*sizes, *map(len, blocks))
    head = next(head for size, head in _LZ4_FRAMES.items() if largest <= size)
    pieces: list[Buffer] = [_LZ4_MAGIC, head]
    for block in blocks:
        pieces += (_U32.pack(len(block)), block, stored)
    frame = b"".join([*pieces, _LZ4_END])
    view = _view(pa.Codec("lz4").decompress(frame, sum(sizes) + len(separator) * len(blocks)))
    found, at = [], 0
    for size in sizes:
        end = at + size
        if view[end : end + len(separator)] != separator:
            raise OSError("an LZ4 block of another size")
        found.append(view[at:end])
        at = end + len(separator)
    return found


def _fits(codec: pa.Codec, data: Buffer, size: int) -> bool:
    """Whether the data decompresses to at most ``size`` bytes.

    Used for LZ4 blocks above 4 MiB, because Arrow does not report the decompressed size. Smaller blocks are
    put into a frame, whose decoder verifies the size.
    """
    try:
        codec.decompress(data, size)
    except (OSError, pa.ArrowException):
        return False
    return True
