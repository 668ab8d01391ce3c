import base64

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptError
from pulsar_spark.wire.keys_and_texts import decode_keys, encode_keys, to_strings

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=8), st.text(max_size=8).map(str.encode)), max_size=8)


@given(KEYS)
def test_keys_are_text_on_the_wire_and_come_back(keys):
    texts, is_base64 = encode_keys(pa.array(keys, pa.binary()))
    texts.cast(pa.string())
    flags = np.zeros(len(keys), np.bool_) if is_base64 is None else is_base64
    for key, text, flag in zip(keys, texts.to_pylist(), flags, strict=True):
        assert text == (base64.b64encode(key) if flag else key)
    assert decode_keys(texts, flags).to_pylist() == keys


@pytest.mark.parametrize("text", [b"not base64", b"abc", b"\xff\xff\xff\xff"])
def test_a_flagged_key_that_is_no_base64_is_refused(text):
    keys = pa.array([b"fine", text], pa.binary())
    assert decode_keys(keys, np.array([False, False])).to_pylist() == [b"fine", text]
    with pytest.raises(CorruptError):
        decode_keys(keys, np.array([False, True]))


@given(st.lists(st.none() | st.binary(max_size=8), max_size=8))
def test_strings_are_as_python_would_replace_what_is_malformed(texts):
    expected = [None if text is None else text.decode("utf-8", "replace") for text in texts]
    assert to_strings(pa.array(texts, pa.binary())).to_pylist() == expected
