"""Arrow arrays: nulls in place of values, where rows begin, and rows cut and joined."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.arrays import joined, offsets_of, parts_by_size, with_nulls


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.int32(), pa.bool_(), pa.float64()])
def test_values_of_a_slice_become_null_and_the_others_stay(kind):
    numbers = pa.array(range(20))
    whole = (numbers.cast(pa.string()) if kind == pa.binary() else numbers).cast(kind)
    values = whole.slice(5, 7)
    is_null = np.arange(7) % 3 == 0
    made = with_nulls(values, is_null)
    made.validate(full=True)
    assert made.to_pylist() == [
        None if null else value for value, null in zip(values.to_pylist(), is_null, strict=True)
    ]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.list_(pa.int8())])
def test_rows_begin_where_the_ones_before_end(kind):
    rows = [b"ab", b"", b"cde", b"f"]
    values = [list(row) for row in rows] if pa.types.is_list(kind) else rows
    array = pa.array(values, kind)
    assert offsets_of(array).tolist() == [0, 2, 2, 5, 6]
    assert offsets_of(array[1:3]).tolist() == [2, 2, 5]


def test_a_null_row_has_no_length():
    assert offsets_of(pa.array([b"ab", None, b"c"])).tolist() == [0, 2, 2, 3]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 12), st.none() | st.integers(1, 4))
def test_parts_are_as_large_as_they_may_be(sizes, max_size, max_rows):
    for kind in (np.int32, np.int64):
        offsets = np.append(0, np.cumsum(sizes)).astype(kind) + kind(5)
        parts = [*parts_by_size(offsets, max_size, max_rows)]
        assert [row for part in parts for row in range(*part)] == list(range(len(sizes)))
        for first, stop in parts:
            fits = sum(sizes[first:stop]) <= max_size and stop - first <= (max_rows or 99)
            assert fits or stop == first + 1
            is_full = sum(sizes[first : stop + 1]) > max_size or stop - first == max_rows
            assert is_full or stop == len(sizes)


def test_a_limit_beyond_the_offsets_type():
    assert [*parts_by_size(np.array([0, 2**31 - 1], np.int32), 2**31 - 1)] == [(0, 1)]


NESTED = pa.struct(
    [
        ("a", pa.int32()),
        ("inner", pa.struct([("t", pa.string()), ("items", pa.list_(pa.int8()))])),
        ("empty", pa.struct([])),
        ("by", pa.map_(pa.string(), pa.int64())),
    ]
)


@pytest.mark.parametrize("kind", [NESTED, pa.string(), pa.struct([])])
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.booleans())
def test_joined_rows_are_in_their_order(kind, part_of, is_ordered):
    """Each part is a slice, as of a part that PyArrow has cut."""
    row = {"a": 1, "inner": {"t": "x", "items": [1, None]}, "empty": {}, "by": [("k", 2)]}
    values = [row if kind == NESTED else str(number) if kind == pa.string() else {} for number in part_of]
    if kind == NESTED:
        values = [
            {**row, "a": number, "inner": None if number % 3 == 0 else row["inner"]} for number in part_of
        ]
    values = [None if number == 2 else value for number, value in zip(part_of, values, strict=True)]
    whole = pa.array([None, *values], kind)
    part_of = np.sort(part_of) if is_ordered else np.array(part_of)
    rows = [np.flatnonzero(part_of == number) for number in np.unique(part_of)]
    parts = [whole.take(pa.array([0, *(some + 1)]))[1:] for some in rows]
    made = joined(parts, rows)
    made.validate(full=True)
    assert made.equals(whole[1:])
    assert parts == []


def test_joined_structs_without_nulls_have_no_mask():
    """The entries of a map must not have one: PyArrow 18 ends the process."""
    entries = pa.array([{"key": "k", "value": 1}])
    assert joined([entries, entries]).buffers()[0] is None


@pytest.mark.parametrize("is_ordered", [True, False])
def test_few_of_the_values_that_are_joined_are_in_memory_twice(monkeypatch, is_ordered):
    """With all of them it would be twice as much, and three times where rows are moved."""
    rows, fields, count = 1000, 50, 4
    concat_arrays, allocated = pa.concat_arrays, []

    def watched(arrays):
        made = concat_arrays(arrays)
        allocated.append(pa.total_allocated_bytes())
        return made

    before = pa.total_allocated_bytes()
    places = np.arange(rows * count).reshape(count, rows)
    parts = [
        pa.StructArray.from_arrays(
            [pa.array([*range(rows)]) for _ in range(fields)], names=[*map(str, range(fields))]
        )
        for _ in range(count)
    ]
    whole = pa.total_allocated_bytes() - before
    assert whole >= 8 * rows * fields * count
    monkeypatch.setattr(pa, "concat_arrays", watched)
    made = joined(parts, list(places if is_ordered else places[::-1]))
    assert len(made) == rows * count
    assert max(allocated) - before < 1.2 * whole
