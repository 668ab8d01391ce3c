"""Arrow batches are joined into larger ones: same rows, same order, within the limits."""

import weakref

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.spark.rows.read import joined

SCHEMA = pa.schema(
    {
        "value": pa.binary(),
        "key": pa.string(),
        "__properties": pa.map_(pa.string(), pa.string()),
        "nested": pa.struct({"many": pa.list_(pa.int32())}),
    }
)


def batch_of(numbers, size=5):
    rows = [
        {
            "value": None if number % 7 == 3 else b"%0*d" % (size, number),
            "key": str(number),
            "__properties": [("p", str(number))] * (number % 3),
            "nested": {"many": list(range(number % 4))},
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def batches_of(counts):
    """Batches of so many rows, numbered through all of them."""
    first = 0
    for count in counts:
        yield batch_of(range(first, first + count))
        first += count


@given(counts=st.lists(st.integers(0, 12), max_size=12), max_rows=st.integers(1, 20))
def test_all_rows_come_in_order_in_the_fewest_batches_that_the_limit_allows(counts, max_rows):
    found = list(joined(batches_of(counts), max_rows, 1 << 30, lambda: 0.0))
    assert [row for each in found for row in each.to_pylist()] == batch_of(range(sum(counts))).to_pylist()
    sizes, expected = [each.num_rows for each in found], []
    for count in filter(None, counts):
        if len(expected) > 1 and expected[-1] + count <= max_rows:
            expected[-1] += count
        else:
            expected.append(count)
    assert sizes == expected


def test_bytes_are_limited_too():
    each = batch_of(range(10))
    found = joined([each] * 10, 1 << 30, 3 * each.nbytes)
    assert [batch.num_rows for batch in found] == [10, 30, 30, 30]
    found = joined([each] * 10, 1 << 30, 3 * each.nbytes - 1)
    assert [batch.num_rows for batch in found] == [10, 20, 20, 20, 20, 10]


@pytest.mark.parametrize(("max_rows", "max_bytes"), [(9, 1 << 30), (1 << 30, 9)])
def test_a_batch_above_a_limit_is_given_as_it_is_and_joined_with_nothing(max_rows, max_bytes):
    given_ = [batch_of(range(2)), batch_of(range(10)), batch_of(range(2))]
    found = list(joined(given_, max_rows, max_bytes))
    assert [one is other for one, other in zip(found, given_, strict=True)] == [True] * 3


def test_slices_are_joined_by_what_they_hold():
    whole = batch_of(range(40))
    parts = [whole.slice(3, 5), whole.slice(20, 7)]
    _, found = joined([whole, *parts], 100, 1 << 20)
    assert found.to_pylist() == whole.to_pylist()[3:8] + whole.to_pylist()[20:27]


SIZE = batch_of(range(10)).nbytes


@pytest.mark.parametrize(("max_rows", "max_bytes"), [(20, 1 << 20), (1 << 20, 2 * SIZE)])
def test_what_has_reached_a_limit_is_given_before_more_is_read(max_rows, max_bytes):
    read = []

    def source():
        for number in range(4):
            read.append(number)
            yield batch_of(range(10))

    found = joined(source(), max_rows, max_bytes)
    assert next(found).num_rows == 10
    assert read == [0]  # the first is given at once
    assert next(found).num_rows == 20
    assert read == [0, 1, 2]


def test_one_batch_at_most_is_read_before_what_is_below_the_limits_is_given():
    read = []

    def source():
        for number in range(4):
            read.append(number)
            yield batch_of(range(10))

    found = joined(source(), 19, 1 << 20)
    for number in range(3):
        assert next(found).num_rows == 10
        assert read == list(range(number + 2 if number else 1))


def test_no_reference_to_a_batch_is_kept_once_it_is_given():
    found = joined((batch_of(range(10)) for _ in range(4)), 10, 1 << 30)
    for _ in range(4):
        given_ = next(found)
        dead = weakref.ref(given_)
        del given_
        assert dead() is None


def test_rows_that_come_slowly_are_not_held_for_more():
    clock = [100.0]

    def source():
        for seconds in (0.0, 5.0, 0.03, 0.03, 0.05, 0.0, 5.0):
            clock[0] += seconds
            yield batch_of(range(10))

    found = joined(source(), 1000, 1 << 20, lambda: clock[0])
    assert [each.num_rows for each in found] == [10, 30, 20, 10]


def test_an_error_of_the_rows_is_raised():
    def source():
        yield batch_of(range(10))
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        list(joined(source()))
