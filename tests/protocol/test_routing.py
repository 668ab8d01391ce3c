import base64
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.routing import HashingScheme, hash_keys, partitions_for_keys

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


@pytest.mark.parametrize("longest", [1, 7, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("spread", [0, 1, 9])
def test_short_keys_of_about_one_size_follow_it_too(longest, spread):
    keys = [
        bytes(33 + (row * 7 + at) % 95 for at in range(max(0, longest - row % (spread + 1))))
        for row in range(9000)
    ]
    found = hash_keys(pa.array(keys, pa.binary()).slice(3), HashingScheme.JAVA_STRING).tolist()
    expected = [reduce(lambda so_far, unit: so_far * 31 + unit & 0x7FFFFFFF, key, 0) for key in keys[3:]]
    assert found == expected


@pytest.mark.parametrize("scheme", HashingScheme)
def test_a_key_that_is_not_utf8_goes_where_its_base64_text_goes(scheme):
    found = partitions_for_keys(pa.array([b"\xff\x00", b"/wA=", "ключ".encode()], pa.binary()), MANY, scheme)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("scheme", HashingScheme)
def test_keys_as_bytes_go_where_their_base64_text_goes(scheme):
    keys = [b"", b"k", b"\xff\x00", None, "ключ".encode()]
    texts = [None if key is None else base64.b64encode(key) for key in keys]
    found = partitions_for_keys(pa.array(keys, pa.binary()), MANY, scheme, key_bytes=True)
    assert found.tolist() == partitions_for_keys(pa.array(texts, pa.binary()), MANY, scheme).tolist()


def test_null_keys_have_no_partition():
    assert partitions_for_keys(pa.nulls(3, pa.binary()), 4).tolist() == [-1, -1, -1]
    assert partitions_for_keys(pa.array([], pa.binary()), 4).tolist() == []


def test_the_schemes_have_the_names_of_the_java_client():
    assert HashingScheme("JavaStringHash") is HashingScheme.JAVA_STRING
    assert HashingScheme("Murmur3_32Hash") is HashingScheme.MURMUR3_32
