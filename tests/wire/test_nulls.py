"""Nulls in place of values."""

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.wire.nulls import with_nulls


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
