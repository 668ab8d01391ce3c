import pyarrow as pa
import pytest

from pulsar_spark.values.json.tree import filled_type, select

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
WHOLE = pa.struct(
    [
        ("a", pa.int32()),
        ("l", pa.list_(pa.field("element", INNER))),
        ("m", pa.map_(pa.string(), pa.field("value", INNER))),
    ]
)
X, Y = pa.struct([INNER[0]]), pa.struct([INNER[1]])
ROWS = [
    {"a": 1, "l": [{"x": 1, "y": "a"}, None], "m": [("k", {"x": 2, "y": "b"}), ("l", None)]},
    None,
    {"a": None, "l": None, "m": None},
    {"a": 2, "l": [], "m": []},
]


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        (WHOLE, ROWS),
        (pa.struct([("a", pa.int32())]), [{"a": 1}, None, {"a": None}, {"a": 2}]),
        (pa.struct([]), [{}, None, {}, {}]),
        (
            pa.struct([("m", pa.map_(pa.string(), Y)), ("l", pa.list_(X))]),
            [
                {"m": [("k", {"y": "b"}), ("l", None)], "l": [{"x": 1}, None]},
                None,
                {"m": None, "l": None},
                {"m": [], "l": []},
            ],
        ),
    ],
)
def test_the_fields_of_a_part_are_selected_at_any_depth(part, rows):
    assert filled_type(WHOLE, part) == WHOLE
    found = select(pa.array(ROWS, WHOLE), part)
    found.validate(full=True)
    assert found.type == part
    assert found.to_pylist() == rows


def test_the_fields_that_a_part_has_keep_its_types():
    part = pa.struct([("l", pa.list_(pa.struct([("y", pa.binary())]))), ("a", pa.float64())])
    filled = filled_type(WHOLE, part)
    assert filled.names == ["a", "l", "m"]
    assert filled.field("a").type == pa.float64()
    assert filled.field("l").type.value_type == pa.struct([("x", pa.int64()), ("y", pa.binary())])
    assert filled.field("m").type == WHOLE.field("m").type
