"""CRC-32C without the processor's instruction is the same as with it."""

import random

import pytest
from crc32c import crc32c as by_instruction
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.wire.crc32c import crc32c, crc32c_by_numpy


def test_the_instruction_is_used_where_it_is_there():
    assert crc32c is by_instruction


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_short_data(data, value):
    assert crc32c_by_numpy(data, value) == crc32c(data, value)


@given(st.integers(4000, 20_000), st.integers(0, 2**32 - 1), st.integers(0, 2**32))
def test_long_data(size, value, seed):
    data = random.Random(seed).randbytes(size)
    assert crc32c_by_numpy(data, value) == crc32c(data, value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_data_of_a_large_message_in_pieces(kind):
    data = random.Random(1).randbytes(5_000_003)
    first = crc32c_by_numpy(kind(data[:1_000_001]))
    assert crc32c_by_numpy(memoryview(data)[1_000_001:], first) == crc32c(data)
