"""Arrays of parts: equal to what Arrow makes of all parts at once."""

import random
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow import growing_array
from pulsar_spark.arrow.growing_array import GrowingArray

RECORD = pa.struct([("n", pa.int64()), ("is_so", pa.bool_()), ("text", pa.string())])
VALUES: dict[pa.DataType, list[Any]] = {
    pa.null(): [None],
    pa.bool_(): [True, False, None],
    pa.int32(): [1, -1, None],
    pa.float64(): [0.5, None],
    pa.decimal128(20, 3): [1, None],
    pa.timestamp("us", "UTC"): [7, None],
    pa.binary(): [b"", b"abc", None],
    pa.string(): ["", "äbc", None],
    RECORD: [{"n": 1, "is_so": True, "text": "x"}, {"n": None, "is_so": None, "text": None}, None],
    pa.list_(pa.list_(pa.int32())): [[], [[1, 2], None, [3]], None],
    pa.list_(RECORD): [[], [{"n": 1, "is_so": False, "text": "yz"}, None], None],
    pa.map_(pa.string(), RECORD): [[], [("a", {"n": 1, "is_so": None, "text": ""}), ("b", None)], None],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_parts_become_one_array(kind):
    chance = random.Random(1)
    for count in (0, 1, 2, 5):
        for has_nulls in (True, False):
            values = [each for each in VALUES[kind] if has_nulls or each is not None]
            parts = []
            for _ in range(count):
                rows = chance.choices(values, k=chance.randrange(40)) if values else []
                before, behind = chance.randrange(3), chance.randrange(3)
                whole = pa.array([*values[:before], *rows, *values[:behind]], kind)
                parts.append(whole[min(before, len(values)) :][: len(rows)])
            array = GrowingArray(kind)
            for part in parts:
                array.add(part)
            found = array.finish()
            found.validate(full=True)
            assert found.type == kind
            assert found.equals(pa.concat_arrays(parts) if parts else pa.array([], kind))


def test_a_single_part_is_not_copied():
    part, array = pa.array([1, 2]), GrowingArray(pa.int64())
    array.add(part)
    assert array.finish() is part


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string())], ids=str)
def test_more_than_offsets_can_count_is_an_error(kind, monkeypatch):
    monkeypatch.setattr(growing_array, "_MAX_OFFSET", 3)
    array = GrowingArray(kind)
    part = pa.array(["ab"]) if kind == pa.string() else pa.array([["a", "b"]], kind)
    array.add(part)
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        array.add(part)
