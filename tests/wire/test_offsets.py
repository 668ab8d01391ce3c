"""Where the rows of Arrow arrays begin, also of slices."""

import pyarrow as pa
import pytest

from pulsar_spark.wire.offsets import offsets_of


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.list_(pa.int8())])
def test_rows_begin_where_the_ones_before_end(kind):
    rows = [b"ab", b"", b"cde", b"f"]
    values = [list(row) for row in rows] if pa.types.is_list(kind) else rows
    array = pa.array(values, kind)
    assert offsets_of(array).tolist() == [0, 2, 2, 5, 6]
    assert offsets_of(array[1:3]).tolist() == [2, 2, 5]


def test_a_null_row_has_no_length():
    assert offsets_of(pa.array([b"ab", None, b"c"])).tolist() == [0, 2, 2, 3]
