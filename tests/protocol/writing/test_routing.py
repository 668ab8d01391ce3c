from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.segments import Segment
from pulsar_spark.protocol.writing import routing
from pulsar_spark.protocol.writing.routing import (
    HashingScheme,
    RoutingMode,
    SegmentRouter,
    bucket_hashes,
    hash_keys,
    partitions_for_keys,
    raw_hashes,
)
from pulsar_spark.wire.columns.message_columns import encode_keys
from tests.loops import for_each

MANY = 2**31 - 1  # partitions; so many that a hash is its own partition, but for the largest
VECTORS = [
    ("" if key == "-" else key, {HashingScheme.JAVA_STRING: int(java), HashingScheme.MURMUR3_32: int(murmur)})
    for line in (Path(__file__).parent / "java_hashes.txt").read_text().splitlines()[1:]
    for key, java, murmur in [line.split()]
]
KEYS = pa.array([bytes.fromhex(key) for key, _ in VECTORS], pa.binary())
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=9), st.text("abc", max_size=40)), max_size=20)


@pytest.mark.parametrize("scheme", HashingScheme)
@pytest.mark.parametrize("partitions", [MANY, 1, 3, 16, 1000])
def test_keys_go_where_java_sends_them(scheme, partitions):
    expected = [hashes[scheme] % partitions for _, hashes in VECTORS]
    assert partitions_for_keys(KEYS, partitions, scheme).tolist() == expected


@pytest.mark.parametrize("scheme", HashingScheme)
def test_each_key_alone_goes_where_it_goes_among_others(scheme):
    together = partitions_for_keys(KEYS, MANY, scheme).tolist()
    assert [partitions_for_keys(KEYS.slice(i, 1), MANY, scheme)[0] for i in range(len(KEYS))] == together


@given(TEXTS, st.sampled_from(HashingScheme), st.integers(0, 3))
def test_other_keys_and_nulls_do_not_matter(texts, scheme, before):
    keys = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    found = partitions_for_keys(keys.slice(before), 97, scheme).tolist()
    for key, partition in zip(keys.to_pylist()[before:], found, strict=True):
        alone = -1 if key is None else partitions_for_keys(pa.array([key], pa.binary()), 97, scheme)[0]
        assert partition == alone


@given(st.text(max_size=30))
def test_java_string_hash_follows_its_definition(text):
    units = text.encode("utf-16-be")
    expected = 0
    for at in range(0, len(units), 2):
        expected = (expected * 31 + int.from_bytes(units[at : at + 2], "big")) % 2**32
    key = pa.array([text.encode()], pa.binary())
    assert partitions_for_keys(key, MANY)[0] == (expected & 0x7FFFFFFF) % MANY


def test_texts_of_many_blocks_and_longer_than_one_follow_it_too():
    few = [b"", b"x" * (1 << 16), b"y" * ((1 << 16) + 1), b"last"]
    keys = [*few, *(b"%d" % number for number in range(20_000)), *few]
    alone = {key: partitions_for_keys(pa.array([key], pa.binary()), MANY)[0] for key in [*few, b"19999"]}
    found = dict(zip(keys, partitions_for_keys(pa.array(keys, pa.binary()), MANY).tolist(), strict=True))
    assert {key: found[key] for key in alone} == alone
    for key in keys:
        expected = 0
        for unit in key:
            expected = expected * 31 + unit & 0xFFFFFFFF
        assert found[key] == (expected & 0x7FFFFFFF) % MANY


@for_each("longest", [1, 7, 8, 9, 16, 17, 40])
@for_each("spread", [0, 1, 9])
def test_short_keys_of_about_one_size_follow_it_too(longest, spread):
    keys = [
        bytes(33 + (row * 7 + at) % 95 for at in range(max(0, longest - row % (spread + 1))))
        for row in range(9000)
    ]
    found = hash_keys(pa.array(keys, pa.binary()).slice(3), HashingScheme.JAVA_STRING).tolist()
    expected = [reduce(lambda so_far, unit: so_far * 31 + unit & 0x7FFFFFFF, key, 0) for key in keys[3:]]
    assert found == expected


def murmur3(text: bytes) -> int:
    """MurmurHash3 x86 32 bit with seed 0, by its definition, without its sign."""

    def scrambled(word: int) -> int:
        word = word * 0xCC9E2D51 % 2**32
        return (word << 15 | word >> 17) % 2**32 * 0x1B873593 % 2**32

    hashed = 0
    for at in range(0, len(text) - 3, 4):
        hashed ^= scrambled(int.from_bytes(text[at : at + 4], "little"))
        hashed = ((hashed << 13 | hashed >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32
    hashed ^= scrambled(int.from_bytes(text[len(text) // 4 * 4 :], "little")) ^ len(text)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B % 2**32
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 % 2**32
    return (hashed ^ hashed >> 16) & 0x7FFFFFFF


def test_long_keys_among_short_ones_follow_murmur3_too():
    sizes = [*range(12), *range(250, 270), 3, 1023, 1024, 5000, 0]
    keys = [bytes(33 + (size * 7 + at * at) % 95 for at in range(size)) for size in sizes]
    found = hash_keys(pa.array(keys, pa.binary()).slice(1), HashingScheme.MURMUR3_32).tolist()
    assert found == [murmur3(key) for key in keys[1:]]


@for_each("size", [0, 1, 4, 7, 8, 263])
def test_keys_of_one_size_follow_murmur3_too(size):
    keys = [bytes(33 + (row * 7 + at * at) % 95 for at in range(size)) for row in range(20)]
    found = hash_keys(pa.array(keys, pa.binary()).slice(1), HashingScheme.MURMUR3_32).tolist()
    assert found == [murmur3(key) for key in keys[1:]]


def test_a_long_key_does_not_slow_the_hashing_of_others(monkeypatch):
    """Numpy's calls do not grow with the longest key: a round of all keys for each of its words would."""
    calls = []
    scrambled = routing._scrambled
    monkeypatch.setattr(routing, "_scrambled", lambda words: calls.append(len(words)) or scrambled(words))
    keys = pa.array([b"k" * 1_000_000, *([b"short"] * 100)], pa.binary())
    hash_keys(keys, HashingScheme.MURMUR3_32)
    assert len(calls) < 100
    assert 250_000 <= sum(calls) < 251_000


@pytest.mark.parametrize("scheme", HashingScheme)
def test_a_key_that_is_not_utf8_goes_where_its_base64_text_goes(scheme):
    keys = encode_keys(pa.array([b"\xff\x00", b"/wA=", "ключ".encode()], pa.binary()))
    found = partitions_for_keys(keys.texts, MANY, scheme)
    assert found[0] == found[1] != found[2]


def test_null_keys_have_no_partition():
    assert partitions_for_keys(pa.nulls(3, pa.binary()), 4).tolist() == [-1, -1, -1]
    assert partitions_for_keys(pa.array([], pa.binary()), 4).tolist() == []


def test_the_schemes_have_the_names_of_the_java_client():
    assert HashingScheme("JavaStringHash") is HashingScheme.JAVA_STRING
    assert HashingScheme("Murmur3_32Hash") is HashingScheme.MURMUR3_32


# ---- segments of scalable topics

TOPIC = TopicName.parse("topic://a/b/c", scalable=True)


def binaries(*keys):
    return pa.array([None if key is None else key.encode() for key in keys], pa.binary())


def segments(*firsts):
    """Segments that begin at these hashes, by numbers from 10 on."""
    lasts = [*(first - 1 for first in firsts[1:]), 0xFFFF]
    return {
        10 + at: Segment(TOPIC, False, *hashes) for at, hashes in enumerate(zip(firsts, lasts, strict=True))
    }


def segment_router(mode=RoutingMode.ROUND_ROBIN, **options):
    given = {"start": 1, "block": 2, "switch_after": None, **options}
    return SegmentRouter(mode, HashingScheme.JAVA_STRING, None, **given)


def test_hashes_are_those_of_the_java_client_of_version_5():
    assert [f"{each:08x}" for each in raw_hashes(binaries("key-0", "a", "", None))] == [
        *("e337f8bf", "3c2569b2", "00000000", "00000000")
    ]
    without_sign = [each & 0x7FFFFFFF for each in raw_hashes(KEYS).tolist()]
    assert without_sign == [hashes[HashingScheme.MURMUR3_32] for _, hashes in VECTORS]
    assert raw_hashes(binaries()).tolist() == []
    assert raw_hashes(binaries(None)).tolist() == [0]


def test_an_ordering_key_chooses_the_bucket_in_place_of_the_key():
    hashes = raw_hashes(binaries("key-0", "a", None))
    assert bucket_hashes(hashes, None).tolist() == [0xF8BF, 0x69B2, 0]
    assert bucket_hashes(hashes, binaries(None, "key-0", "a")).tolist() == [0xF8BF, 0xF8BF, 0x69B2]


def test_the_upper_half_of_a_hash_chooses_the_segment():
    router = segment_router()
    keys = binaries("key-0", "a")
    for count, places in ((1, [0, 0]), (2, [1, 0]), (3, [2, 0]), (4, [3, 0])):
        router.follow(segments(*(number * (65536 // count) for number in range(count))))
        assert router.route_hashes(raw_hashes(keys), keys, 0.0).tolist() == [10 + place for place in places]


def test_the_ends_of_a_range_of_hashes_are_its_own():
    router = segment_router()
    router.follow(dict(reversed(segments(0, 0x4000, 0xC000).items())))
    hashes = [0, 0x3FFF, 0x4000, 0xBFFF, 0xC000, 0xFFFF]
    found = router.route_hashes((np.array(hashes, np.uint32) << 16) + 0xFFFF, binaries(*"abcdef"), 0.0)
    assert found.tolist() == [10, 10, 11, 11, 12, 12]


@pytest.mark.parametrize("mode", [RoutingMode.ROUND_ROBIN, RoutingMode.SINGLE])
def test_rows_without_a_key_take_turns_by_the_mode(mode):
    router, hashes, keys = segment_router(mode), np.zeros(5, np.uint32), binaries(*[None] * 5)
    router.follow(segments(0, 0x8000))
    found = router.route_hashes(hashes, keys, 0.0).tolist()
    assert found == ([11] * 5 if mode is RoutingMode.SINGLE else [11, 11, 10, 10, 11])
    router.follow(segments(0))
    assert router.route_hashes(hashes, keys, 0.0).tolist() == [10] * 5
