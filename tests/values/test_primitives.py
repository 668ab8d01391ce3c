"""Values of primitive schemas: bytes as a broker has stored them from the Java client, and limits."""

import datetime as dt
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import SchemaError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.values import primitives
from tests.loops import for_each

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
SEEN_AT = dt.datetime(2023, 11, 14, 22, 13, 20, 123000, dt.timezone.utc)
SEEN = [
    ("NONE", pa.binary(), "00ff", b"\x00\xff"),
    ("NONE", pa.binary(), "", b""),
    ("STRING", pa.string(), "68c3a9", "h\u00e9"),
    ("STRING", pa.string(), "", ""),
    ("BOOL", pa.bool_(), "01", True),
    ("BOOL", pa.bool_(), "00", False),
    ("INT8", pa.int8(), "fe", -2),
    ("INT16", pa.int16(), "0102", 258),
    ("INT32", pa.int32(), "01020304", 16909060),
    ("INT32", pa.int32(), "ffffffff", -1),
    ("INT64", pa.int64(), "0102030405060708", 72623859790382856),
    ("FLOAT", pa.float32(), "3fc00000", 1.5),
    ("DOUBLE", pa.float64(), "3ff8000000000000", 1.5),
    ("DATE", UTC, "0000018bcfe5687b", SEEN_AT),
    ("TIME", UTC, "0000018bcfe5687b", SEEN_AT),
    ("TIMESTAMP", UTC, "0000018bcfe5687b", SEEN_AT),
    ("LOCAL_DATE", pa.date32(), "0000000000004cdb", dt.date(2023, 11, 14)),
    ("LOCAL_TIME", pa.int64(), "00000362d417ae04", 3723000000004),
]
# What cannot be written as it was: there is more in it than a microsecond.
CUT = [
    ("INSTANT", UTC, "000000006553f100075bcd15", SEEN_AT.replace(microsecond=123456)),
    (
        "INSTANT",
        UTC,
        "ffffffffffffffff00000005",
        dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.timezone.utc),
    ),
    ("LOCAL_DATE_TIME", LOCAL, "0000000000004cdb00000362d417ae04", dt.datetime(2023, 11, 14, 1, 2, 3)),
]
NOT_WRITTEN = ("TIME",)
EDGES = [
    ("INT8", "80", -128),
    ("INT64", "8000000000000000", -(2**63)),
    ("LOCAL_DATE", "000000007fffffff", 2**31 - 1),
    ("LOCAL_DATE", "ffffffff80000000", -(2**31)),
    ("LOCAL_TIME", "0000000000000000", 0),
    ("LOCAL_TIME", "00004e94914effff", 86_400_000_000_000 - 1),
    ("TIMESTAMP", struct.pack(">q", 2**63 // 1000).hex(), 2**63 // 1000 * 1000),
    ("TIMESTAMP", struct.pack(">q", -(2**63 // 1000)).hex(), -(2**63 // 1000) * 1000),
    ("INSTANT", struct.pack(">qi", 9223372036854, 775807999).hex(), 2**63 - 1),
    ("INSTANT", struct.pack(">qi", -9223372036855, 224192000).hex(), -(2**63)),
    ("INSTANT", struct.pack(">qi", 1, -1).hex(), 999_999),  # as Java's Instant.ofEpochSecond takes it
    ("LOCAL_DATE_TIME", struct.pack(">qq", 106751991, 14454775807999).hex(), 2**63 - 1),
    ("LOCAL_DATE_TIME", struct.pack(">qq", -106751992, 71945224192000).hex(), -(2**63)),
    ("LOCAL_DATE_TIME", struct.pack(">qq", -1, 86399999999999).hex(), -1),
]
BAD = [
    *(
        (kind, "")
        for kind in ("BOOL", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE", "INSTANT")
    ),
    ("STRING", "ff"),
    ("STRING", "c3"),
    ("STRING", "eda080"),
    ("BOOL", "02"),
    ("BOOL", "0100"),
    ("INT32", "010203"),
    ("INT32", "0102030405"),
    ("INT64", "01020304"),
    ("TIMESTAMP", struct.pack(">q", 2**63 // 1000 + 1).hex()),
    ("TIMESTAMP", struct.pack(">q", -(2**63 // 1000) - 1).hex()),
    ("DATE", "7fffffffffffffff"),
    ("TIME", "8000000000000000"),
    ("INSTANT", struct.pack(">qi", 9223372036854, 775808000).hex()),
    ("INSTANT", struct.pack(">qi", -9223372036855, 224191999).hex()),
    ("INSTANT", "7fffffffffffffff00000000"),
    ("LOCAL_DATE", "0000000080000000"),
    ("LOCAL_DATE", "ffffffff7fffffff"),
    ("LOCAL_TIME", "ffffffffffffffff"),
    ("LOCAL_TIME", struct.pack(">q", 86_400_000_000_000).hex()),
    ("LOCAL_DATE_TIME", struct.pack(">qq", 0, -1).hex()),
    ("LOCAL_DATE_TIME", struct.pack(">qq", 0, 86_400_000_000_000).hex()),
    ("LOCAL_DATE_TIME", struct.pack(">qq", 106751991, 14454775808000).hex()),
    ("LOCAL_DATE_TIME", struct.pack(">qq", -106751992, 71945224191999).hex()),
    ("LOCAL_DATE_TIME", "8000000000000000" + "0000000000000000"),
]


def schema(kind):
    return Schema(SchemaType[kind])


def decode(kind, values, target=None):
    own = schema(kind)
    array = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    made = primitives.decoder(own, own, target or primitives.column_type(own))
    found = made.decode(array, pa.nulls(len(array), pa.binary()))
    found.column.validate(full=True)
    assert found.column.type == made.type
    return found


def encode(kind, rows):
    values = primitives.encoder(schema(kind), rows.type)(rows).values
    values.validate(full=True)
    assert values.type == pa.binary()
    return values


def unchecked_strings(values):
    """Strings as Spark may have them: a cast of binary to string looks at no byte."""
    array = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())


def plain(column):
    """Times as numbers: Python's datetime does not reach as far."""
    is_time = pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type)
    return column.view(pa.int64() if column.type.bit_width == 64 else pa.int32()) if is_time else column


@for_each(("kind", "column", "seen", "value"), [*SEEN, *CUT])
def test_values_that_java_has_written(kind, column, seen, value):
    assert primitives.column_type(schema(kind)) == column
    found = decode(kind, [bytes.fromhex(seen)])
    assert found.column == pa.array([value], column)
    assert found.is_bad is None


@for_each(("kind", "column", "seen", "value"), [each for each in SEEN if each[0] not in NOT_WRITTEN])
def test_rows_are_written_as_java_writes_them(kind, column, seen, value):
    assert encode(kind, pa.array([value], column)).to_pylist() == [bytes.fromhex(seen)]


@for_each(("kind", "stored", "value"), EDGES)
def test_values_at_the_limits(kind, stored, value):
    found = decode(kind, [bytes.fromhex(stored)])
    assert found.is_bad is None
    assert plain(found.column).to_pylist() == [value]


@for_each(("kind", "stored"), BAD)
def test_a_bad_value_is_told_and_its_neighbours_are_whole(kind, stored):
    good = next(bytes.fromhex(seen) for name, _, seen, _ in [*SEEN, *CUT] if name == kind)
    (whole,) = decode(kind, [good]).column.to_pylist()
    bad = bytes.fromhex(stored)
    found = decode(kind, [good, bad, None, good, bad])
    assert found.column.to_pylist() == [whole, None, None, whole, None]
    assert found.is_bad.tolist() == [False, True, False, False, True]
    assert decode(kind, [bad]).is_bad.tolist() == [True]
    own = schema(kind)
    why = primitives.decoder(own, own, primitives.column_type(own)).explain(bad, None)
    assert kind in why or "UTF-8" in why
    assert stored not in why or len(stored) < 4


@for_each("kind", [kind.name for kind in primitives.KINDS])
def test_tombstones_empty_and_sliced_arrays(kind):
    good = next(bytes.fromhex(seen) for name, _, seen, _ in [*SEEN, *CUT] if name == kind)
    (whole,) = decode(kind, [good]).column.to_pylist()
    assert decode(kind, []).column.to_pylist() == []
    found = decode(kind, [None, None])
    assert found.column.to_pylist() == [None, None]
    assert found.is_bad is None
    around = pa.array([b"other", None, good, None, good, b"x"], pa.binary())
    for first, stop in [(2, 5), (2, 3), (1, 5), (3, 3)]:
        found = decode(kind, around.slice(first, stop - first))
        assert found.column.to_pylist() == [
            None if first + row in (1, 3) else whole for row in range(stop - first)
        ]
        assert found.is_bad is None
    if kind in NOT_WRITTEN:
        return
    rows = decode(kind, [None, good, None, good]).column
    assert (
        encode(kind, rows[1:]).to_pylist()
        == encode(kind, pa.array([whole, None, whole], rows.type)).to_pylist()
    )
    assert encode(kind, rows[:0]).to_pylist() == []


def test_bytes_below_a_null_are_not_looked_at():
    validity = pa.py_buffer(b"\x01")
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    values = pa.Array.from_buffers(pa.binary(), 2, [validity, offsets, pa.py_buffer(b"\x01\xff")])
    for kind, whole in [("BOOL", True), ("INT8", 1), ("STRING", "\x01")]:
        found = decode(kind, values)
        assert found.column.to_pylist() == [whole, None]
        assert found.is_bad is None


ROWS = {
    "NONE": st.binary(max_size=6),
    "STRING": st.text(max_size=6),
    "BOOL": st.booleans(),
    "INT8": st.integers(-(2**7), 2**7 - 1),
    "INT16": st.integers(-(2**15), 2**15 - 1),
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "DATE": st.integers(-(2**63) // 1000 + 1, 2**63 // 1000).map(lambda ms: ms * 1000),
    "TIME": st.integers(-(2**63) // 1000 + 1, 2**63 // 1000).map(lambda ms: ms * 1000),
    "TIMESTAMP": st.integers(-(2**63) // 1000 + 1, 2**63 // 1000).map(lambda ms: ms * 1000),
    "INSTANT": st.integers(-(2**63), 2**63 - 1),
    "LOCAL_DATE": st.integers(-(2**31), 2**31 - 1),
    "LOCAL_TIME": st.integers(0, 86_400_000_000_000 - 1),
    "LOCAL_DATE_TIME": st.integers(-(2**63), 2**63 - 1),
}


@pytest.mark.parametrize("kind", [kind for kind in ROWS if kind not in NOT_WRITTEN])
@given(st.data())
def test_what_is_written_is_read(kind, data):
    rows = pa.array(data.draw(st.lists(st.none() | ROWS[kind], max_size=6)), plain_type(kind))
    rows = rows.view(primitives.column_type(schema(kind)))
    values = encode(kind, rows)
    found = decode(kind, values)
    assert found.is_bad is None
    assert found.column.equals(rows)
    assert encode(kind, rows) == values


def plain_type(kind):
    return plain(pa.array([], primitives.column_type(schema(kind)))).type


def test_every_kind_is_tried():
    assert list(ROWS) == [kind.name for kind in primitives.KINDS]


@pytest.mark.parametrize("kind", ROWS)
@given(st.lists(st.none() | st.binary(max_size=17), max_size=6))
def test_any_bytes_are_a_value_or_bad_each_by_itself(kind, values):
    found = decode(kind, values)
    alone = [decode(kind, [value]) for value in values]
    column = plain(found.column)
    assert column.to_pylist() == pytest.approx(
        [value for one in alone for value in plain(one.column).to_pylist()], nan_ok=True
    )
    is_bad = np.zeros(len(values), bool) if found.is_bad is None else found.is_bad
    assert is_bad.tolist() == [one.is_bad is not None for one in alone]
    for value, bad, valid in zip(values, is_bad, column.is_valid().to_pylist(), strict=True):
        assert bad == (value is not None and not valid)


@pytest.mark.parametrize(
    ("kind", "stored", "target", "value"),
    [
        ("INT8", "fe", pa.int64(), -2),
        ("INT32", "01020304", pa.float64(), 16909060.0),
        ("INT64", "0102030405060708", pa.float64(), float(0x0102030405060708)),
        ("FLOAT", "3fc00000", pa.float64(), 1.5),
        ("STRING", "68c3a9", pa.binary(), b"h\xc3\xa9"),
        ("NONE", "68c3a9", pa.string(), "h\u00e9"),
    ],
)
def test_values_are_promoted(kind, stored, target, value):
    found = decode(kind, [bytes.fromhex(stored), None], target)
    assert found.column.to_pylist() == [value, None]
    assert found.is_bad is None


def test_bytes_that_are_no_text_are_bad_as_text_only():
    assert decode("NONE", [b"\xff", b"a"], pa.string()).is_bad.tolist() == [True, False]
    assert decode("STRING", [b"\xff", b"a"], pa.binary()).is_bad is None


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("INT64", pa.int32()),
        ("DOUBLE", pa.float32()),
        ("INT32", pa.string()),
        ("STRING", pa.int32()),
        ("BOOL", pa.int8()),
        ("TIMESTAMP", LOCAL),
        ("LOCAL_DATE_TIME", UTC),
        ("LOCAL_DATE", UTC),
    ],
)
def test_other_types_are_refused(kind, target):
    own = schema(kind)
    with pytest.raises(SchemaError, match=kind):
        primitives.decoder(own, own, target)
    with pytest.raises(SchemaError, match=kind):
        primitives.encoder(schema(kind), pa.list_(target))


@pytest.mark.parametrize(
    ("kind", "rows", "stored"),
    [
        ("INT64", pa.array([-2, None], pa.int8()), ["fffffffffffffffe", None]),
        ("DOUBLE", pa.array([1], pa.int32()), ["3ff0000000000000"]),
        ("DOUBLE", pa.array([-(2**53), -(2**63), None]), ["c340000000000000", "c3e0000000000000", None]),
        ("DOUBLE", pa.array([0.5], pa.float32()), ["3fe0000000000000"]),
        ("FLOAT", pa.array([2**24, 2**62]), ["4b800000", "5e800000"]),
        (
            "FLOAT",
            pa.array([1.5, None, float("inf"), float("nan")]),
            ["3fc00000", None, "7f800000", "7fc00000"],
        ),
        ("TIMESTAMP", pa.array([-1000], pa.timestamp("us", "Asia/Tokyo")), ["ffffffffffffffff"]),
        ("INSTANT", pa.array([-1], pa.timestamp("us", "Asia/Tokyo")), ["ffffffffffffffff3b9ac618"]),
        ("STRING", pa.array([b"a"], pa.binary()), ["61"]),
        ("NONE", pa.array(["a"], pa.string()), ["61"]),
    ],
)
def test_rows_of_narrower_types_are_written(kind, rows, stored):
    expected = [None if text is None else bytes.fromhex(text) for text in stored]
    assert encode(kind, rows).to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("INT32", pa.int64()),
        ("TIMESTAMP", LOCAL),
        ("LOCAL_DATE_TIME", UTC),
        ("LOCAL_DATE", UTC),
        ("TIME", UTC),
        ("BOOL", pa.int8()),
    ],
)
def test_rows_of_other_types_are_refused(kind, source):
    with pytest.raises(SchemaError, match=kind):
        primitives.encoder(schema(kind), source)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("LOCAL_TIME", pa.array([None, 0, 86_400_000_000_000])),
        ("LOCAL_TIME", pa.array([None, 0, -1])),
        ("STRING", pa.array([None, b"a", b"\xff"])),
        ("STRING", unchecked_strings([b"", b"a", b"\xff"])),
    ],
)
def test_a_row_that_is_no_value_is_named(kind, rows):
    what = {"STRING": "text that is not UTF-8"}.get(kind, f"not a valid {kind}")
    with pytest.raises(SchemaError, match=f"row 2 of the batch: {what}"):
        encode(kind, rows)


@pytest.mark.parametrize(
    ("kind", "rows", "what"),
    [
        ("DOUBLE", pa.array([1, None, 2**53 + 1]), r"loses digits .*: cast it to double"),
        ("FLOAT", pa.array([1.0, None, 0.1]), r"loses digits .*: cast it to float"),
        ("FLOAT", pa.array([1, None, 123456789]), r"loses digits .*: cast it to float"),
        ("FLOAT", pa.array([1, None, 2**24 + 1], pa.int32()), r"loses digits .*: cast it to float"),
        ("FLOAT", pa.array([1, None, 2**63 - 1]), r"loses digits .*: cast it to float"),
        ("TIMESTAMP", pa.array([1000, None, 1001], UTC), "microseconds, .*date_trunc"),
        ("DATE", pa.array([1000, None, -1], UTC), "microseconds, .*date_trunc"),
    ],
)
def test_a_row_that_would_become_another_value_is_named(kind, rows, what):
    with pytest.raises(SchemaError, match=f"row 2 of the batch: .*{what}"):
        encode(kind, rows)
    with pytest.raises(SchemaError, match=f"row 0 of the batch: .*{what}"):
        encode(kind, rows[2:])
    assert encode(kind, rows[1:2]).to_pylist() == [None]


def by_charset(charset):
    return Schema(SchemaType.STRING, b"", {"__charset": charset})


@pytest.mark.parametrize(
    ("charset", "bad", "text"),
    [
        ("UTF-16BE", b"\xd8\x00", "tea \u2603 \U0001f600"),
        ("ISO-8859-1", None, "t\xe9"),
        ("windows-1252", b"\x81", "\u20ac"),
        ("US-ASCII", b"\xe9", "tea"),
    ],
)
@pytest.mark.parametrize("target", [pa.string(), pa.binary()])
def test_text_is_read_and_written_by_its_charset(charset, bad, text, target):
    own = by_charset(charset)
    rows = pa.array([text, None, "", text]).cast(target)
    values = primitives.encoder(own, target)(rows).values
    assert values.to_pylist() == [text.encode(charset), None, b"", text.encode(charset)]
    decoder = primitives.decoder(own, own, target)
    found = decoder.decode(values, values)
    assert (found.column.equals(rows), found.is_bad) == (True, None)
    if bad is not None:
        found = decoder.decode(pa.array([bad, *values.to_pylist()[:2], bad], pa.binary()), values)
        assert found.column.cast(pa.string()).to_pylist() == [None, text, None, None]
        assert found.is_bad.tolist() == [True, False, False, True]
        assert decoder.explain(bad, None) == f"not text in the charset {charset}"


def test_text_that_a_charset_lacks_is_not_written():
    encoder = primitives.encoder(by_charset("ISO-8859-1"), pa.string())
    with pytest.raises(SchemaError, match="row 1 of the batch: text that the topic's charset ISO-8859-1"):
        encoder(pa.array(["\xe9", "\u20ac"]))
