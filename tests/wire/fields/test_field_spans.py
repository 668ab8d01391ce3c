"""Fields are copied from the same place of all headers."""

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.arrow.arrays import Grid
from pulsar_spark.wire.fields.field_spans import AlikeHeaders, HeaderLayout, PropertySpans

KEY, ORDERING_KEY, EMPTY = 2, 7, 3
LAYOUT = HeaderLayout(
    8,
    bytearray(),
    spans={KEY: (0, 2), ORDERING_KEY: (5, 8), EMPTY: (4, 4)},
    properties=[PropertySpans((0, 1), (1, 3)), PropertySpans((3, 3), (3, 4))],
)
BODY = np.frombuffer(b"..abcdefgh..ijklmnop....qrstuvwx..ABCDEFGH", np.uint8)
HEADERS = AlikeHeaders(LAYOUT, BODY, Grid(2, (2, 2), (22, 10)))  # four headers in two rows


def read(headers, number):
    column = headers.column(number)
    column.validate(full=True)
    assert column.type == pa.binary()
    return column.to_pylist()


def test_a_field_is_copied_from_each_header():
    assert len(HEADERS) == 4
    assert read(HEADERS, KEY) == [b"ab", b"ij", b"qr", b"AB"]
    assert read(HEADERS, ORDERING_KEY) == [b"fgh", b"nop", b"vwx", b"FGH"]
    assert read(HEADERS, EMPTY) == [b""] * 4


def test_the_properties_of_a_message_stand_together():
    assert HEADERS.property_names().to_pylist() == [b"a", b"", b"i", b"", b"q", b"", b"A", b""]
    assert HEADERS.property_values().to_pylist() == [b"bc", b"d", b"jk", b"l", b"rs", b"t", b"BC", b"D"]


@pytest.mark.parametrize("which", [[], [0], [1, 3], [0, 1, 2, 3]])
def test_headers_of_some_messages(which):
    taken = HEADERS.take(np.array(which, np.int64))
    assert len(taken) == len(which)
    for number in LAYOUT.spans:
        assert read(taken, number) == [read(HEADERS, number)[row] for row in which]
    assert taken.property_values().to_pylist() == [
        value for row in which for value in HEADERS.property_values().to_pylist()[2 * row : 2 * row + 2]
    ]


def test_words_lie_at_one_place_of_each_header():
    assert HEADERS.words(0).tobytes() == b"abcdefghijklmnopqrstuvwxABCDEFGH"
    with pytest.raises(ValueError, match="strides"):
        HEADERS.words(1)  # the body ends with the last header
