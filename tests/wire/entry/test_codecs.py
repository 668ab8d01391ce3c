import contextlib
import random
import tracemalloc
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.codecs import compress, decompress, decompress_together

KINDS = [pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]
LIMIT = 1_000_000
TEXT = b"the same words again and again, " * 50


def payloads():
    noise = st.builds(
        lambda seed, size: random.Random(seed).randbytes(size), st.integers(0, 9), st.integers(0, 300)
    )
    return st.one_of(
        st.binary(), noise, st.builds(lambda part, times: part * times, noise, st.integers(1, 30))
    )


@given(st.sampled_from([pb.NONE, *KINDS]), payloads())
def test_what_is_compressed_is_decompressed_to_the_same(kind, data):
    assert decompress(kind, compress(kind, data), len(data), LIMIT) == data


@given(st.sampled_from(KINDS), payloads(), st.integers(-3, 300))
def test_a_wrong_declared_size_is_refused(kind, data, more):
    if more:
        with pytest.raises(CorruptError):
            decompress(kind, compress(kind, data), len(data) + more, LIMIT)


@given(st.sampled_from(KINDS), payloads(), st.data())
def test_damaged_data_gives_nothing_but_the_declared_size_or_a_refusal(kind, data, draw):
    broken = bytearray(compress(kind, data))
    for _ in range(draw.draw(st.integers(1, 3))):
        broken[draw.draw(st.integers(0, len(broken) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptError):
        assert len(decompress(kind, broken, len(data), LIMIT)) == len(data)


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_data_is_refused(kind):
    compressed = flushed(TEXT)[:-5] if kind == pb.ZLIB else compress(kind, TEXT)
    for size in range(len(compressed)):
        with pytest.raises(CorruptError):
            decompress(kind, compressed[:size], len(TEXT), LIMIT)


def flushed(data, flushes=1):
    """A stream as the Java client makes it: flushed, and without its end."""
    stream = zlib.compressobj()
    return stream.compress(data) + b"".join(stream.flush(zlib.Z_FULL_FLUSH) for _ in range(flushes))


@given(payloads(), st.integers(1, 3), st.integers(-3, 300))
def test_a_zlib_stream_needs_no_end(data, flushes, more):
    stream = flushed(data, flushes)
    assert decompress(pb.ZLIB, stream, len(data), LIMIT) == data
    if more:
        with pytest.raises(CorruptError):
            decompress(pb.ZLIB, stream, len(data) + more, LIMIT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_beyond_the_limit_is_refused_before_memory_is_taken(kind):
    for size in (len(TEXT), 2**62, -1):
        with pytest.raises(CorruptError, match="the maximum is"):
            decompress(kind, compress(kind, TEXT), size, len(TEXT) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_gives_no_more_than_it_declares(kind):
    bomb = compress(kind, bytes(20_000_000))
    with pytest.raises(CorruptError):
        decompress(kind, bomb, 1000, LIMIT)


def test_a_zlib_bomb_takes_no_more_memory_than_it_declares():
    # The other codecs are given a buffer of the declared size; zlib takes memory as it goes.
    bomb = compress(pb.ZLIB, bytes(20_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError, match="does not have the declared size"):
            decompress(pb.ZLIB, bomb, 1000, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("buffer", [bytearray, memoryview])
def test_any_buffer_is_taken(kind, buffer):
    assert decompress(kind, buffer(compress(kind, buffer(TEXT))), len(TEXT), LIMIT) == TEXT


def test_a_zstd_frame_without_its_size_is_read():
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(TEXT)
    frame = sink.getvalue().to_pybytes()
    assert decompress(pb.ZSTD, frame, len(TEXT), LIMIT) == TEXT
    for wrong in (len(TEXT) - 1, len(TEXT) + 1):
        with pytest.raises(CorruptError):
            decompress(pb.ZSTD, frame, wrong, LIMIT)


def test_the_framings_are_those_of_pulsar():
    data = b"a" * 40
    assert compress(pb.LZ4, data)[:3] == b"\x1fa\x01"  # token, literal, offset: no frame magic
    assert zlib.decompress(compress(pb.ZLIB, data)) == data
    assert compress(pb.ZSTD, data)[:4] == b"\x28\xb5\x2f\xfd"
    assert compress(pb.SNAPPY, data)[0] == len(data)


def test_an_unknown_compression_is_refused():
    with pytest.raises(CorruptError, match="unknown compression type 9"):
        decompress(9, b"", 0, LIMIT)
    with pytest.raises(CorruptError, match="unknown compression type 9"):
        compress(9, b"")


@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1, 1 << 18, 1 << 20, 1 << 22, (1 << 22) + 1])
@pytest.mark.parametrize("noise", [False, True])
def test_lz4_blocks_of_every_size(size, noise):
    plain = random.Random(size).randbytes(size) if noise else bytes(size)
    packed = compress(pb.LZ4, plain)
    assert decompress(pb.LZ4, packed, size, size + 1) == plain
    for wrong in (size - 1, size + 1):
        with pytest.raises(CorruptError):
            decompress(pb.LZ4, packed, wrong, size + 1)


def lz4(parts):
    return [compress(pb.LZ4, part) for part in parts]


@given(st.lists(payloads(), min_size=1, max_size=5))
def test_blocks_together_give_what_they_give_one_by_one(parts):
    found = decompress_together(lz4(parts), [len(part) for part in parts])
    # An empty one is left to the other way.
    assert found == (parts if all(parts) else None)


@given(st.lists(payloads(), min_size=1, max_size=5), st.data())
def test_blocks_together_of_another_size_are_refused(parts, draw):
    sizes = [len(part) for part in parts]
    sizes[draw.draw(st.integers(0, len(sizes) - 1))] += draw.draw(st.integers(1, 300))
    assert decompress_together(lz4(parts), sizes) is None


@given(st.integers(2, 6), st.integers(1, 300), st.data())
def test_a_block_cannot_take_bytes_of_another_by_being_too_long(count, shift, draw):
    """One block is ``shift`` bytes longer than declared and a later one as much shorter: the sum is right."""
    parts = [random.Random(number).randbytes(400 + number) for number in range(count)]
    sizes = [len(part) for part in parts]
    long, short = draw.draw(st.permutations(range(count)))[:2]
    sizes[long] -= shift
    sizes[short] += shift
    assert sum(sizes) == sum(map(len, parts))
    assert decompress_together(lz4(parts), sizes) is None


def test_memory_that_another_call_has_used_does_not_hide_a_short_block():
    for _ in range(20):
        assert decompress_together(lz4([TEXT]), [len(TEXT)]) == [TEXT]
        assert decompress_together(lz4([TEXT[:-8]]), [len(TEXT)]) is None


@pytest.mark.parametrize("bad", [b"", b"\xff", compress(pb.LZ4, TEXT)[:-3]])
def test_blocks_together_with_a_bad_one_are_refused(bad):
    assert decompress_together([*lz4([TEXT]), bad], [len(TEXT)] * 2) is None


def test_blocks_beyond_what_a_frame_holds_are_left_to_the_other_way():
    size = (4 << 20) + 1
    assert decompress_together(lz4([bytes(size)]), [size]) is None
    assert decompress(pb.LZ4, lz4([bytes(size)])[0], size, size) == bytes(size)
