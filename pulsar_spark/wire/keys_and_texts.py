"""Bytes of Spark columns <-> the text fields of the wire: keys that are not UTF-8, properties that are not.

Owns the rules for both, which reading, writing and routing must share.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pulsar_spark.errors import CorruptError

if TYPE_CHECKING:
    import numpy.typing as npt


def encode_keys(keys: pa.BinaryArray) -> tuple[pa.BinaryArray, npt.NDArray[np.bool_] | None]:
    """Return the keys as they go on the wire, and which are base64 (bool[n], None if none is).

    UTF-8 stays as it is; what is not becomes base64 text, as Java's ``keyBytes`` makes it. Null stays null.
    """
    try:
        keys.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    else:
        return keys, None
    texts = keys.to_pylist()
    is_base64 = np.zeros(len(texts), np.bool_)
    for row, key in enumerate(texts):
        try:
            if key is not None:
                key.decode("utf-8")
        except UnicodeDecodeError:
            texts[row] = base64.b64encode(key)
            is_base64[row] = True
    return pa.array(texts, pa.binary()), is_base64


def decode_keys(keys: pa.BinaryArray, is_base64: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """Decode the keys that are flagged as base64 text.

    Raises:
        CorruptError: one of them is not base64.
    """
    decoded = keys.to_pylist()
    try:
        for row in np.flatnonzero(is_base64):
            if decoded[row] is not None:
                decoded[row] = base64.b64decode(decoded[row], validate=True)
    except binascii.Error:
        raise CorruptError("a key that is flagged as base64 is not") from None
    return pa.array(decoded, pa.binary())


def to_strings(texts: pa.BinaryArray) -> pa.StringArray:
    """Cast to strings; each malformed part of what is not UTF-8 becomes U+FFFD. Null stays null."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        replaced = (None if text is None else text.decode("utf-8", "replace") for text in texts.to_pylist())
        return pa.array(replaced, pa.string())
