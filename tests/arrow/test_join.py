"""Columns of bytes are joined row by row, whatever their sizes."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow import join as joining
from pulsar_spark.arrow.join import EncodedField, join, join_in_order, lengths
from pulsar_spark.errors import OptionError


def items_of(pieces: list[EncodedField], count: int) -> list[bytes]:
    encoded = join(pieces, count)
    return [bytes(encoded.buffer[i:j]) for i, j in zip(encoded.offsets, encoded.offsets[1:], strict=False)]


def field(data: pa.BinaryArray) -> EncodedField:
    return EncodedField(data, lengths(data))


def shared_field(data: bytes) -> EncodedField:
    """The same bytes in all rows."""
    return EncodedField(pa.scalar(data, pa.binary()), len(data))


@given(st.lists(st.none() | st.binary(max_size=3), max_size=8), st.integers(0, 3))
def test_shared_bytes_and_columns_keep_their_places(parts, count):
    """None stands for a column."""
    pieces, expected = [], [b""] * count
    for place, part in enumerate(parts):
        column = [part if part is not None else b"%d.%d" % (place, row) for row in range(count)]
        expected = [before + own for before, own in zip(expected, column, strict=True)]
        sizes = np.array([len(own) for own in column], np.int64)
        pieces.append(
            EncodedField(pa.array(column, pa.binary()), sizes) if part is None else shared_field(part)
        )
    assert items_of(pieces, count) == expected


def test_more_than_arrow_can_index_is_refused_before_it_is_made():
    column = EncodedField(pa.array([b"", b""], pa.binary()), np.array([2**30, 2**30]))
    with pytest.raises(OptionError, match="2 GiB"):
        join([column], 2)


def test_bytes_below_nulls_count_where_rows_are_put_into_another_order(monkeypatch):
    whole = pa.array([b"x" * 90, b"y" * 20], pa.binary())
    last = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), *whole.buffers()[1:]])
    pieces, order = [EncodedField(pa.array([b"a", b"b"], pa.binary()), 1), field(last)], np.array([1, 0])
    assert bytes(join_in_order(pieces, order).buffer) == b"b" + b"y" * 20 + b"a"
    monkeypatch.setattr(joining, "MAX_SIZE", 100)
    with pytest.raises(OptionError, match="2 GiB"):
        join_in_order(pieces, order)
    pieces = [EncodedField(pa.array([b"a"], pa.binary()), 1), field(last.slice(1))]
    assert bytes(join_in_order(pieces, order[1:]).buffer) == b"a" + b"y" * 20


@pytest.fixture
def small_blocks(monkeypatch):
    """Rows that are joined at a time: one or a few, and not all."""
    monkeypatch.setattr(joining, "_BLOCK", 24)


def columns_of(sizes, count, before):
    """Columns whose rows have one size each, as slices, and what they hold."""
    rows = [
        [bytes([65 + place]) * (size - 1) + bytes([row]) for row in range(count)] for place, size in sizes
    ]
    arrays = [pa.array([b"?" * 5] * before + column, pa.binary()).slice(before) for column in rows]
    fields = [
        EncodedField(array, np.full(count, size, np.int64))
        for array, (_, size) in zip(arrays, sizes, strict=True)
    ]
    return fields, [b"".join(row) for row in zip(*rows, strict=True)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("count", [1, 2, 3, 17])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("sizes", [[1], [3, 8], [8, 1, 40]])
def test_rows_whose_fields_have_one_size(count, before, sizes, monkeypatch):
    """They are joined block by block, and not by Arrow's general function."""
    monkeypatch.setattr(
        pc, "binary_join_element_wise", lambda *_, **__: pytest.fail("joined as rows of any size")
    )
    fields, expected = columns_of(list(enumerate(sizes)), count, before)
    parts = [shared_field(b"<"), *fields, shared_field(b""), shared_field(b">!")]
    assert items_of(parts, count) == [b"<" + row + b">!" for row in expected]
    order = np.random.default_rng(count).permutation(count)
    encoded = join_in_order([shared_field(b"<"), *fields], order)
    found = [bytes(encoded.buffer[i:j]) for i, j in zip(encoded.offsets, encoded.offsets[1:], strict=False)]
    assert found == [b"<" + expected[row] for row in order]
    assert encoded.offsets[-1] == len(encoded.buffer)


@pytest.mark.parametrize("in_order", [False, True])
def test_a_large_row_takes_no_memory_beside_its_own(in_order):
    """Memory of Arrow, which holds the result, is not counted here."""
    pieces = [shared_field(b"<"), field(pa.array([b"v" * 1_000_000] * 2, pa.binary()))]
    order = np.array([1, 0])
    tracemalloc.start()
    try:
        encoded = join_in_order(pieces, order) if in_order else join(pieces, 2)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(encoded.buffer) == 2_000_002
    assert most < (1_500_000 if in_order else 500_000)  # numpy puts one item at a time into another order


@pytest.mark.parametrize("odd", [b"", b"x", None])
def test_one_row_of_another_size_is_enough_for_the_general_way(odd):
    rows = [b"ab", b"cd", odd, b"ef"]
    encoded = join_in_order([shared_field(b"<"), field(pa.array(rows, pa.binary()))], np.array([3, 2, 1, 0]))
    found = [bytes(encoded.buffer[i:j]) for i, j in zip(encoded.offsets, encoded.offsets[1:], strict=False)]
    assert found == [b"<" + (row or b"") for row in rows[::-1]]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.string()])
def test_rows_of_another_type_are_never_taken_for_binary(kind):
    """Their offsets have another width: they are left to Arrow, which refuses them."""
    rows = pa.array(["zz", "ab", "cd", "ef"], kind).slice(1)
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        join([shared_field(b"<"), EncodedField(rows, np.full(3, 2))], 3)
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError)):
        join_in_order([shared_field(b"<"), field(rows)], np.array([2, 0]))


def test_no_rows_of_one_size():
    encoded = join_in_order(
        [shared_field(b"<"), field(pa.array([b"ab"], pa.binary()))], np.zeros(0, np.int64)
    )
    assert (bytes(encoded.buffer), encoded.offsets.tolist()) == (b"", [0])
