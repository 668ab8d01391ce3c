"""The Java client sends keys where we do, and reads what we write."""

from __future__ import annotations

import random

import pyarrow as pa

from integration.java_peer import partitions_in_java
from pulsar_spark.protocol.routing import HashingScheme, partitions_for_keys

ALPHABETS = (
    [chr(code) for code in range(128)],
    [chr(code) for code in range(0x80, 0x800)],
    [chr(code) for code in (*range(0x800, 0xD800), *range(0xE000, 0x10000))],
    [chr(code) for code in range(0x10000, 0x110000)],
)


def random_keys(count: int, seed: int) -> list[bytes]:
    """Keys of all lengths: any bytes, and texts of characters that are one to four bytes in UTF-8."""
    draw = random.Random(seed)
    keys = []
    for number in range(count):
        length = draw.choice((0, 1, 2, 3, 4, 5, 7, 8, 16, draw.randrange(200)))
        if number % 3 == 0:
            keys.append(draw.randbytes(length))
        else:
            alphabets = draw.sample(ALPHABETS, draw.randrange(1, 5))
            keys.append("".join(draw.choice(draw.choice(alphabets)) for _ in range(length)).encode())
    return keys


def test_ten_thousand_keys_go_where_the_java_client_sends_them() -> None:
    partitions = 2**31 - 1  # So many that a hash is its own partition.
    seed = random.randrange(2**32)
    keys = random_keys(10_000, seed)
    array = pa.array(keys, pa.binary())
    expected = partitions_in_java(keys, partitions)
    for number, scheme in enumerate((HashingScheme.JAVA_STRING, HashingScheme.MURMUR3_32)):
        found = partitions_for_keys(array, partitions, scheme).tolist()
        wrong = [key for key, ours, java in zip(keys, found, expected, strict=True) if ours != java[number]]
        assert not wrong, f"{len(wrong)} keys of seed {seed} go elsewhere, {scheme}: {wrong[:3]}"
