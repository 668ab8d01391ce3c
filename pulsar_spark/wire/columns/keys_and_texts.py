"""Bytes of Spark columns <-> text fields of the wire, for keys and properties that are not UTF-8.

Reading, writing and routing share these rules.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import bytes_and_offsets, bytes_of
from pulsar_spark.errors import CorruptError, OptionError

if TYPE_CHECKING:
    import numpy.typing as npt

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_IN_ALPHABET = np.isin(np.arange(256), np.frombuffer(_ALPHABET, np.uint8))
_PAD, _ZERO = ord("="), ord("A")
_NOT_BASE64 = "a key is flagged as base64, but is not base64"

_MAX_SIZE = 2**31 - 1  # maximum bytes; Arrow's binary offsets are int32


class EncodedKeys(NamedTuple):
    """Encoded keys of n messages.

    Attributes:
        texts: keys as sent, binary[n]; null for no key.
        is_base64: whether each text is base64, bool[n]; None if none is.
    """

    texts: pa.BinaryArray
    is_base64: npt.NDArray[np.bool_] | None

    def take(self, rows: npt.NDArray[np.int64]) -> EncodedKeys:
        """Returns the keys at the given indexes, in that order."""
        is_base64 = None if self.is_base64 is None else self.is_base64[rows]
        return EncodedKeys(self.texts.take(pa.array(rows)), is_base64)


def encode_keys(keys: pa.BinaryArray, *, as_bytes: bool = False) -> EncodedKeys:
    """Encodes keys for the wire.

    UTF-8 keys stay unchanged; other keys become base64 text, as with Java's ``keyBytes``. Null stays null.

    Args:
        keys: keys of n messages.
        as_bytes: whether UTF-8 keys become base64 text, too.

    Raises:
        OptionError: there are more than 2 GiB of keys at once.
    """
    if as_bytes:
        is_base64: npt.NDArray[np.bool_] = keys.is_valid().to_numpy(zero_copy_only=False)
    elif _are_utf8(keys):
        return EncodedKeys(keys, None)
    else:
        is_base64 = np.array([not _is_utf8(key) for key in keys.to_pylist()])
    texts = _converted(keys, is_base64, _to_base64)
    return EncodedKeys(texts, is_base64 if is_base64.any() else None)


def decode_keys(keys: pa.BinaryArray, is_base64: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """Decodes the keys that are flagged as base64 text.

    Raises:
        CorruptError: a flagged key is not base64.
    """
    if keys.null_count:
        is_base64 = is_base64 & keys.is_valid().to_numpy(zero_copy_only=False)
    return _converted(keys, is_base64, _from_base64)


def check_properties(properties: pa.MapArray) -> None:
    """Raises OptionError for a name or value that is not UTF-8, because readers would get another text."""
    offsets = properties.offsets.to_numpy()
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    names = properties.keys.slice(first, count).cast(pa.binary())
    values = properties.items.slice(first, count).cast(pa.binary())
    for what, texts in (("name", names), ("value", values)):
        if not _are_utf8(texts):
            bad = next(place for place, text in enumerate(texts.to_pylist()) if not _is_utf8(text))
            row, name = int(np.searchsorted(offsets, first + bad, side="right")) - 1, names[bad].as_py()
            raise OptionError(
                f"row {row} of the batch: the {what} of the property {name[:40]!r} is not UTF-8",
                advice="Write such bytes as text, such as base64(...)",
            )


def to_strings(texts: pa.BinaryArray) -> pa.StringArray:
    """Casts to strings, with U+FFFD for each part that is not UTF-8. Null stays null."""
    if len(texts) and _is_ascii(texts):
        return texts.view(pa.string())
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        replaced = (None if text is None else text.decode("utf-8", "replace") for text in texts.to_pylist())
        return pa.array(replaced, pa.string())


def _is_ascii(texts: pa.BinaryArray) -> bool:
    """Whether all bytes are ASCII; for many keys three times as fast as Arrow's UTF-8 check."""
    return bool(bytes_of(texts).max(initial=0) <= 0x7F)


def _are_utf8(texts: pa.BinaryArray) -> bool:
    if len(texts) and texts.type == pa.binary() and _is_ascii(texts):
        return True
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(key: bytes | None) -> bool:
    try:
        return key is None or key.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def _converted(
    keys: pa.BinaryArray,
    is_chosen: npt.NDArray[np.bool_],
    convert: Callable[[pa.BinaryArray], pa.BinaryArray],
) -> pa.BinaryArray:
    """Replaces the chosen keys, none of which is null, by the result of ``convert``."""
    rows = np.flatnonzero(is_chosen)
    if len(rows) == 0:
        return keys
    if len(rows) == len(keys):
        return convert(keys)
    indexes = np.arange(len(keys))
    indexes[rows] = len(keys) + np.arange(len(rows))
    return pa.concat_arrays([keys, convert(keys.take(pa.array(rows)))]).take(pa.array(indexes))


def _to_base64(keys: pa.BinaryArray) -> pa.BinaryArray:
    data, offsets = bytes_and_offsets(keys)
    sizes = np.diff(offsets)
    groups = -(-sizes // 3)
    ends = np.cumsum(groups)
    if len(data) + 4 * int(groups.sum()) > _MAX_SIZE:
        raise OptionError(
            "the keys of one Arrow batch have more than 2 GiB",
            advice="Lower spark.sql.execution.arrow.maxRecordsPerBatch",
        )
    missing = 3 * groups - sizes
    lacks_one, lacks_two = ends[missing >= 1], ends[missing == 2]
    is_data = np.ones(3 * int(groups.sum()), np.bool_)
    is_data[3 * lacks_one - 1] = False
    is_data[3 * lacks_two - 2] = False
    padded = np.zeros(len(is_data), np.uint8)
    padded[is_data] = data
    text = np.frombuffer(bytearray(base64.b64encode(padded.data)), np.uint8)
    text[4 * lacks_one - 1] = _PAD
    text[4 * lacks_two - 2] = _PAD
    return _array(text, 4 * ends)


def _from_base64(texts: pa.BinaryArray) -> pa.BinaryArray:
    """Decodes each row's base64 text, which must be padded, in one call."""
    data, offsets = bytes_and_offsets(texts)
    sizes = np.diff(offsets)
    has_text = sizes > 0
    ends = offsets[1:][has_text]
    if (sizes % 4).any():
        raise CorruptError(_NOT_BASE64)
    text = data.copy()
    has_one = text[ends - 1] == _PAD
    has_two = has_one & (text[ends - 2] == _PAD)
    text[ends[has_one] - 1] = _ZERO
    text[ends[has_two] - 2] = _ZERO
    if not _IN_ALPHABET[text].all():
        raise CorruptError(_NOT_BASE64)
    decoded = np.frombuffer(base64.b64decode(text), np.uint8)
    is_held = np.ones(len(decoded), np.bool_)
    is_held[ends[has_one] // 4 * 3 - 1] = False
    is_held[ends[has_two] // 4 * 3 - 2] = False
    decoded_sizes = sizes // 4 * 3
    decoded_sizes[has_text] -= has_one.astype(np.int64) + has_two
    return _array(decoded[is_held], np.cumsum(decoded_sizes))


def _array(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> pa.BinaryArray:
    offsets = pa.py_buffer(np.append(0, ends).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, offsets, pa.py_buffer(data)])
