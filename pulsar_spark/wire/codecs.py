"""Compression of payloads, in the framings that all Pulsar clients use.

    ======  ==========================================================
    LZ4     one raw block, no frame
    ZLIB    zlib stream (RFC 1950)
    ZSTD    one frame
    SNAPPY  raw: a varint of the size, then the block; no stream frame
    ======  ==========================================================

None but SNAPPY is sure to hold its own size: MessageMetadata's ``uncompressed_size`` gives it.
"""

from __future__ import annotations

import zlib
from typing import TypeAlias

import pyarrow as pa

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb

Readable: TypeAlias = "bytes | bytearray | memoryview"

_ARROW_NAMES: dict[int, str] = {pb.LZ4: "lz4_raw", pb.ZSTD: "zstd", pb.SNAPPY: "snappy"}
_ZSTD_LEVEL = 3  # what the Java and C++ clients use; Arrow's own default is 1


def compress(kind: int, data: Readable) -> Readable:
    """Compress ``data`` with the CompressionType ``kind``; NONE returns ``data`` itself.

    Raises:
        CorruptError: ``kind`` is not known.
    """
    if kind == pb.NONE:
        return data
    if kind == pb.ZLIB:
        return zlib.compress(data)
    compressed: bytes = _codec(kind).compress(data, asbytes=True)
    return compressed


def decompress(kind: int, data: Readable, uncompressed_size: int, limit: int) -> Readable:
    """Decompress ``data`` to exactly ``uncompressed_size`` bytes; NONE returns ``data`` itself, unlooked at.

    Args:
        kind: CompressionType.
        data: the compressed bytes.
        uncompressed_size: bytes, as the message declares it.
        limit: the most bytes that are accepted; checked before memory is taken.

    Raises:
        CorruptError: ``kind`` is not known, ``data`` is malformed, or it does not hold just
            ``uncompressed_size`` bytes, or these are more than ``limit``.
    """
    if kind == pb.NONE:
        return data
    if not 0 <= uncompressed_size <= limit:
        raise CorruptError(f"a payload of {uncompressed_size} bytes uncompressed, where {limit} are accepted")
    if kind == pb.ZLIB:
        return _inflate(data, uncompressed_size)
    codec = _codec(kind)
    if kind == pb.SNAPPY and _snappy_size(data) != uncompressed_size:
        raise CorruptError("a SNAPPY payload has not the size that is declared")
    try:
        plain: bytes = codec.decompress(data, uncompressed_size, asbytes=True)
    except (OSError, pa.ArrowException):
        raise CorruptError(f"a payload is not {uncompressed_size} bytes in {codec.name}") from None
    if kind == pb.LZ4 and uncompressed_size and _fits(codec, data, uncompressed_size - 1):
        raise CorruptError("an LZ4 payload is shorter than declared")
    return plain


def _codec(kind: int) -> pa.Codec:
    """Make a codec, one for each call: they are cheap, and not promised to be thread-safe."""
    if kind not in _ARROW_NAMES:
        raise CorruptError(f"unknown compression {kind}", advice="Use a newer version of this connector")
    name = _ARROW_NAMES[kind]
    return pa.Codec(name, compression_level=_ZSTD_LEVEL) if kind == pb.ZSTD else pa.Codec(name)


def _inflate(data: Readable, size: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, size + 1)
    except zlib.error:
        raise CorruptError("a ZLIB payload is malformed") from None
    if len(plain) != size or not stream.eof:
        raise CorruptError("a ZLIB payload has not the size that is declared")
    return plain


def _snappy_size(data: Readable) -> int:
    """Read the varint in front of a raw SNAPPY block; -1 where there is none."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    return -1


def _fits(codec: pa.Codec, data: Readable, size: int) -> bool:
    """Tell whether the data decompresses to ``size`` bytes or fewer.

    Arrow does not say how many bytes an LZ4 block gave, and leaves the rest of the output as it was.
    """
    try:
        codec.decompress(data, size)
    except (OSError, pa.ArrowException):
        return False
    return True
