import base64
import binascii

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError, OptionError
from pulsar_spark.wire.columns.message_columns import check_properties, decode_keys, encode_keys, to_strings
from tests.loops import for_each

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=8), st.text(max_size=8).map(str.encode)), max_size=8)


@given(KEYS, st.booleans(), st.integers(0, 2))
def test_keys_are_text_on_the_wire_and_come_back(keys, as_bytes, before):
    given_keys = pa.array([b"\xff"] * before + keys, pa.binary()).slice(before)
    texts, is_base64 = encode_keys(given_keys, as_bytes=as_bytes)
    texts.validate(full=True)
    texts.cast(pa.string())
    flags = np.zeros(len(keys), np.bool_) if is_base64 is None else is_base64
    assert flags.tolist() == [key is not None and (as_bytes or not is_utf8(key)) for key in keys]
    for key, text, flag in zip(keys, texts.to_pylist(), flags, strict=True):
        assert text == (base64.b64encode(key) if flag else key)
    decoded = decode_keys(texts, flags)
    decoded.validate(full=True)
    assert decoded.to_pylist() == keys


def is_utf8(key):
    try:
        return key.decode() is not None
    except UnicodeDecodeError:
        return False


def decoded(text):
    if len(text) % 4:  # Python 3.10 takes more padding than there may be
        raise binascii.Error
    return base64.b64decode(text, validate=True)


TEXTS = st.binary(max_size=9) | st.text("AQZaz09+/=", max_size=9).map(str.encode)


@given(st.lists(st.tuples(st.none() | TEXTS | st.binary(max_size=9).map(base64.b64encode), st.booleans())))
def test_flagged_keys_are_decoded_as_python_does(rows):
    texts = pa.array([text for text, _ in rows], pa.binary())
    flags = np.array([flag for _, flag in rows], np.bool_)
    try:
        expected = [decoded(text) if flag and text is not None else text for text, flag in rows]
    except binascii.Error:
        with pytest.raises(CorruptError):
            decode_keys(texts, flags)
    else:
        assert decode_keys(texts, flags).to_pylist() == expected


@pytest.mark.parametrize("text", [b"not base64", b"abc", b"\xff\xff\xff\xff", b"====", b"a===", b"aw==aw=="])
def test_a_flagged_key_that_is_no_base64_is_refused(text):
    keys = pa.array([b"fine", text], pa.binary())
    assert decode_keys(keys, np.array([False, False])).to_pylist() == [b"fine", text]
    with pytest.raises(CorruptError):
        decode_keys(keys, np.array([False, True]))


@given(st.lists(st.none() | st.binary(max_size=8), max_size=8))
def test_strings_are_as_python_would_replace_what_is_malformed(texts):
    expected = [None if text is None else text.decode("utf-8", "replace") for text in texts]
    assert to_strings(pa.array(texts, pa.binary())).to_pylist() == expected


@pytest.mark.parametrize(("rows", "expected"), [(3, ["a", None, "bc"]), (4, ["a", None, "bc", "é"]), (0, [])])
def test_the_texts_of_a_slice(rows, expected):
    texts = pa.array([b"\xff", b"a", None, b"bc", "é".encode(), b"\xff"], pa.binary()).slice(1, rows)
    strings = to_strings(texts)
    strings.validate(full=True)
    assert strings.type == pa.string()
    assert strings.to_pylist() == expected


@for_each("before", [[], [b"ascii"], [b"\xff"]])
@for_each("after", [[], [b"ascii"], [b"\xff"]])
@for_each("odd", [b"\x80", b"\xff", b"k\xc3"])
def test_only_the_keys_of_a_slice_say_whether_they_are_base64(before, after, odd):
    for keys, flags in ([b"k1", b"k2"], None), ([b"k1", odd], [False, True]):
        array = pa.array(before + keys + after, pa.binary()).slice(len(before), len(keys))
        texts, is_base64 = encode_keys(array)
        assert (None if is_base64 is None else is_base64.tolist()) == flags
        assert texts.to_pylist() == [keys[0], keys[1] if flags is None else base64.b64encode(odd)]


def test_no_keys_at_all_may_have_no_offsets():
    none = pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    assert encode_keys(none) == (none, None)


def maps(*rows):
    """Properties of messages, of any bytes, as Spark gives them: nothing checks its strings."""
    column = pa.array([list(row.items()) for row in rows], pa.map_(pa.binary(), pa.binary()))
    offsets = pa.array(column.offsets.to_numpy())
    texts = (each.view(pa.string()) for each in (column.keys, column.items))
    return pa.MapArray.from_arrays(offsets, *texts)


def test_properties_that_are_utf8():
    for rows in ([], [{}], [{b"a": b"b"}, {}, {"\N{PILE OF POO}".encode(): "é".encode(), b"": b""}]):
        check_properties(maps(*rows))


@pytest.mark.parametrize(("name", "value", "what"), [(b"n\xff", b"", "name"), (b"n", b"\xc3(", "value")])
def test_a_property_that_is_not_utf8_is_named_with_its_row(name, value, what):
    rows = [{b"a": b"b", b"c": b"d"}, {}, {b"e": "é".encode(), name: value}, {b"f": b"\xff"}]
    for first in range(3):
        with pytest.raises(OptionError) as found:
            check_properties(maps(*rows).slice(first))
        wrong = f"row {2 - first} of the batch: the {what} of the property {name!r} is not UTF-8"
        assert found.value.what == wrong
    check_properties(maps(*rows).slice(0, 2))
