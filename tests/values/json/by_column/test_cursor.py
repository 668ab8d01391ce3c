import json
import random
import re

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.values.json.by_column.cursor import MAX_DIGITS, JsonPayloads


def at_start(*texts):
    """JsonPayloads, and a cursor at the beginning of all of them."""
    payloads = JsonPayloads(pa.array([text.encode() for text in texts], pa.binary()))
    return payloads, payloads.cursor(np.arange(len(texts)))


def test_digits_are_read_and_counted_up_to_24():
    texts = [
        "",
        "x",
        "0",
        "7",
        "00",
        "-1",
        *("123456789012345678901234"[:count] + "," for count in range(1, 25)),
    ]
    payloads, cursor = at_start(*texts)
    values, counts = payloads.digits(cursor.at)
    # The bytes of the next payload follow at once.
    joined = "".join(texts)
    for text, value, count, at in zip(texts, values, counts, cursor.at, strict=True):
        expected = re.match("[0-9]*", joined[at : at + 24])[0]
        assert count == len(expected), text
        if 0 < count <= MAX_DIGITS:
            assert value == int(expected)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0", (False, 0, 1, 0, 0)),
        ("-12.050", (True, 12, 2, 50, 3)),
        ("123456789.987654321", (False, 123456789, 9, 987654321, 9)),
        ("-0.0", (True, 0, 1, 0, 1)),
        ("01", None),
        ("1.", None),
        (".5", None),
        ("-", None),
        ("+1", None),
        ("", None),
    ],
)
def test_numbers_are_read_in_parts(text, parts):
    payloads, cursor = at_start("8 ", text + "x", text + " ")
    number = payloads.number(cursor)
    assert cursor.ok.tolist() == [True, parts is not None, parts is not None]
    for row in (1, 2):
        if parts is not None:
            found = (number.is_negative, number.whole, number.wholes, number.fraction, number.fractions)
            assert tuple(each[row] for each in found) == parts
            assert number.end[row] - number.start[row] == len(text) == cursor.at[row] - number.start[row]


def test_numbers_do_not_reach_into_the_next_payload():
    payloads, cursor = at_start("1", "23", "", "45.6", "7.", "8 ", "9")
    payloads.number(cursor)
    assert cursor.ok.tolist() == [False, False, False, False, False, True, True]
    payloads, cursor = at_start("e", "5", "e1")
    payloads.exponent(cursor)
    assert cursor.ok.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("text", "is_read"),
    [("e5", True), ("E-12", True), ("e+1", True), ("e", False), ("e+", False), ("e123", False), ("5", True)],
)
def test_exponents_have_one_or_two_digits(text, is_read):
    payloads, cursor = at_start(text)
    has = payloads.exponent(cursor)
    assert has.tolist() == [text != "5"]
    assert cursor.ok.tolist() == [is_read]


def test_strings_are_those_of_json_loads_or_fail():
    pick = random.Random(3)
    texts = []
    for _ in range(2_000):
        parts = [
            pick.choice(
                ("a", "é", "\\\\", '\\"', "\\", '"', "\\n", "\\u00e9", "\\ud834\\udd1e", "\\ud834", " ")
            )
            for _ in range(6)
        ]
        texts.append(f'"{"".join(parts)}"')
    payloads, cursor = at_start(*texts)
    start, end = payloads.string(cursor)
    found = payloads.texts(cursor, start, end)
    is_read = cursor.ok & (cursor.at == cursor.limit)
    for text, value, ok in zip(texts, found.to_pylist(), is_read, strict=True):
        try:
            expected = json.loads(text)
            expected.encode()
        except ValueError:
            assert not ok, text
        else:
            assert (value, ok) == (expected, True)
    assert 200 < np.count_nonzero(is_read) < 1_800


def test_rows_that_are_null_not_utf8_or_have_odd_strings_are_not_usable():
    texts = [b'"a"', b'"\xff"', b'"\n"', b'\n"a"\n', None, b'"\\"\n"', b'"\\"",\n', b"\xc3\xa9", b'"', b'\n"']
    payloads = JsonPayloads(pa.array(texts, pa.binary()))
    assert np.flatnonzero(payloads.is_usable).tolist() == [0, 3, 6, 7]


def test_texts_are_looked_for_without_reading_behind_the_buffer():
    payloads, cursor = at_start('"a', '"ab"', '"abcdefghijk"', "")
    assert payloads.is_at(cursor, b'"ab"').tolist() == [False, True, False, False]
    assert payloads.is_at(cursor, b'"abcdefghijk"').tolist() == [False, False, True, False]
    assert payloads.is_at(cursor, b'"' + b"a" * 3_000).tolist() == [False] * 4
