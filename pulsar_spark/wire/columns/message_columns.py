"""Messages as Arrow columns <-> protobuf fields, in batches and unbatched.

``MessageColumns`` are messages to write; the functions below encode their columns as fields.
``DecodedColumns`` are messages that were read; the bytes of a column are copied once, when it is first
requested. On the wire keys are text or base64, and texts are UTF-8.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import (
    Flags,
    Ints,
    bytes_and_offsets,
    bytes_of,
    gather,
    offsets_from,
    with_nulls,
)
from pulsar_spark.arrow.join import (
    MAX_SIZE,
    EncodedField,
    binary_of,
    bytes_field,
    encode_distinct,
    join,
    one_field,
    to_mask,
    too_large,
    total_sizes,
    varints,
)
from pulsar_spark.errors import CorruptError, OptionError
from pulsar_spark.wire.fields.field_spans import AlikeHeaders, Fields, Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumns:
    """Messages of one topic, one per row; all arrays have the same length, in the order of the topic.

    Attributes:
        value: ``binary``; null means a tombstone (``null_value``), which differs from the empty value.
        key: ``binary``; null means no key. Keys flagged as base64 on the wire are stored decoded.
        event_time: ``int64`` in ms since the epoch, null if unset; None if no message has one.
        properties: ``map<string, string>``, null-free; None if no message has any.
        ordering_key: ``binary``, null if unset; None if no message has one.
        sequence_id: ``int64``, null if unset; None if no message has one.
        deliver_at: ``int64``, delivery time of messages to write, in ms since the epoch, for consumers of
            shared subscriptions. Null, or None for all messages: immediately.
        partition: ``int32``, partition of messages to write. Null, or None for all messages: routing decides.
    """

    value: pa.BinaryArray
    key: pa.BinaryArray
    event_time: pa.Int64Array | None = None
    properties: pa.MapArray | None = None
    ordering_key: pa.BinaryArray | None = None
    sequence_id: pa.Int64Array | None = None
    deliver_at: pa.Int64Array | None = None
    partition: pa.Int32Array | None = None

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: pa.Int64Array) -> MessageColumns:
        """Returns the rows at the given indexes, in that order."""
        columns = ((field.name, getattr(self, field.name)) for field in fields(self))
        return MessageColumns(
            **{name: None if column is None else column.take(rows) for name, column in columns}
        )


class DecodedColumns:
    """Decoded messages by column, as in MessageColumns; nulls as in :func:`entry_messages.decode_batches`.

    A column is made when it is first requested.

    Args:
        body: bytes that contain the fields.
        selected: indexes of the selected messages, ascending; None: all.
        value: values of the messages, if they are not in ``body``; then ``selected`` must be None.

    Raises:
        CorruptError: a key flagged as base64 is not base64.
    """

    def __init__(
        self,
        body: pa.Buffer,
        fields: Fields,
        numbers: Numbers,
        selected: Ints | None = None,
        value: pa.BinaryArray | None = None,
    ) -> None:
        self._body = body
        self._fields = fields
        self._numbers = numbers
        self._selected = selected
        self._value = value
        if flag(fields, numbers.key_is_base64) is not None:
            _ = self.key  # raises for a key that is not base64, even if nobody requests the keys

    def __len__(self) -> int:
        return len(self._fields.start) if self._selected is None else len(self._selected)

    @property
    def starts(self) -> Ints:
        """Start of each message in ``body``, also of messages that are not selected, int64[n]."""
        return self._fields.start

    @cached_property
    def value(self) -> pa.BinaryArray:
        """``binary``; null means a tombstone."""
        if self._value is not None:
            return self._value
        fields, (at, end) = self._fields, self._fields.value
        null = flag(fields, self._numbers.null_value)
        grid = None if fields.grid is None else fields.grid.moved(int(at[0]))
        return gather(self._body, at, end, None if null is None else ~null, self._selected, grid)

    @cached_property
    def key(self) -> pa.BinaryArray:
        """``binary``; null means no key."""
        fields, numbers, selected = self._fields, self._numbers, self._selected
        keys = self._span(numbers.key, flag(fields, numbers.null_key))
        base64_text = flag(fields, numbers.key_is_base64)
        if keys is None:
            return pa.nulls(len(self), pa.binary())
        if base64_text is None:
            return keys
        return decode_keys(keys, base64_text if selected is None else base64_text[selected])

    @cached_property
    def event_time(self) -> pa.Int64Array | None:
        """``int64`` in ms since the epoch, null if unset; None if no message has one."""
        return _signed(self._fields, self._numbers.event_time, self._selected)

    @cached_property
    def properties(self) -> pa.MapArray | None:
        """``map<string, string>``, null-free; None if no message has any."""
        fields = self._fields
        if fields.alike is None:
            return _properties(self._body, fields, self._selected)
        return _alike_properties(self._selected_of(fields.alike)) if fields.alike.layout.properties else None

    @cached_property
    def ordering_key(self) -> pa.BinaryArray | None:
        """``binary``, null if unset; None if no message has one."""
        return self._span(self._numbers.ordering_key, None)

    @cached_property
    def sequence_id(self) -> pa.Int64Array | None:
        """``int64``, null if unset; None if no message has one."""
        return _signed(self._fields, self._numbers.sequence_id, self._selected)

    def rows(self, rows: Ints) -> DecodedColumns:
        """Returns the messages at ascending indexes; not available if the object was made with ``value``."""
        selected = rows if self._selected is None else self._selected[rows]
        return DecodedColumns(self._body, self._fields, self._numbers, selected)

    def _selected_of(self, alike: AlikeHeaders) -> AlikeHeaders:
        return alike if self._selected is None else alike.take(self._selected)

    def _span(self, number: int, null: Flags | None) -> pa.BinaryArray | None:
        """Returns a field of bytes, null if unset or if ``null`` is true; None if no message has it."""
        alike = self._fields.alike
        if alike is not None:
            if number not in alike.layout.spans:
                return None
            column = self._selected_of(alike).column(number)
            if null is None:
                return column
            return with_nulls(column, null if self._selected is None else null[self._selected])
        if number not in self._fields.spans:
            return None
        at, end, has = self._fields.spans[number]
        if not has.any():
            return None
        return gather(self._body, at, end, has if null is None else has & ~null, self._selected)


def flag(fields: Fields, number: int) -> Flags | None:
    """Whether each message has the bool field set to true; None if none has."""
    if number not in fields.numbers:
        return None
    true = fields.numbers[number][0] != 0
    return true if true.any() else None


def _signed(fields: Fields, number: int, selected: Ints | None) -> pa.Int64Array | None:
    """Returns a numeric field of the selected rows, null if unset; None if no message has it."""
    if number not in fields.numbers:
        return None
    values, has = fields.numbers[number]
    if not has.any():
        return None
    if selected is not None:
        values, has = values[selected], has[selected]
    return pa.array(values, mask=None if has.all() else ~has)


def _properties(body: pa.Buffer, fields: Fields, selected: Ints | None) -> pa.MapArray | None:
    if fields.properties is None:
        return None
    row, key, key_end, value, value_end = fields.properties
    per_message = np.bincount(row, minlength=len(fields.start))
    chosen = None
    if selected is not None:
        chosen = np.flatnonzero(np.isin(row, selected))
        per_message = per_message[selected]
    offsets = offsets_from(per_message, np.int32)
    names = to_strings(gather(body, key, key_end, None, chosen))
    values = to_strings(gather(body, value, value_end, None, chosen))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _alike_properties(headers: AlikeHeaders) -> pa.MapArray:
    each = len(headers.layout.properties)
    offsets = np.arange(0, (len(headers) + 1) * each, each, dtype=np.int32)
    names = to_strings(headers.property_names())
    values = to_strings(headers.property_values())
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def number_field(tag: bytes, numbers: pa.Int64Array | None) -> list[EncodedField]:
    """Encodes a varint field, negative numbers as their two's complement; null rows lack the field."""
    if numbers is None or numbers.null_count == len(numbers):
        return []
    has = None if numbers.null_count == 0 else to_mask(numbers.is_valid())
    return [one_field(varints(tag, numbers.fill_null(0).to_numpy(), has))]


def size_field(tag: bytes, sizes: Ints) -> EncodedField:
    """Encodes a varint field that every row has; fast if few different numbers occur."""
    return encode_distinct(sizes, lambda different: varints(tag, different, None))


def flag_field(tag: bytes, is_set: Flags | None) -> list[EncodedField]:
    """Encodes a bool field, which only rows set to true have."""
    if is_set is None or not is_set.any():
        return []
    table = pa.array([b"", tag + b"\x01"], pa.binary())
    return [one_field(table.take(pa.array(is_set.astype(np.int8))))]


def properties_field(tag: bytes, properties: pa.MapArray | None) -> list[EncodedField]:
    """Encodes a repeated KeyValue field.

    Raises:
        OptionError: a map, name or value is null.
    """
    if properties is None or len(properties) == 0:
        return []
    offsets = properties.offsets.to_numpy()
    count = int(offsets[-1] - offsets[0])
    names = properties.keys.slice(offsets[0], count).cast(pa.binary())
    values = properties.items.slice(offsets[0], count).cast(pa.binary())
    if properties.null_count or names.null_count or values.null_count:
        raise OptionError(
            "a property of a message is null", advice="Leave out properties whose value is null"
        )
    inner = [*bytes_field(b"\x0a", names), *bytes_field(b"\x12", values)]
    sizes = total_sizes(inner, count)
    joined = join([size_field(tag, sizes), *inner], count)
    starts = joined.offsets[offsets - offsets[0]]
    return [EncodedField(binary_of(joined.buffer, starts), np.diff(starts))]


_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_IN_ALPHABET = np.isin(np.arange(256), np.frombuffer(_ALPHABET, np.uint8))
_PAD, _ZERO = ord("="), ord("A")
_NOT_BASE64 = "a key is flagged as base64, but is not base64"


class EncodedKeys(NamedTuple):
    """Encoded keys of n messages.

    Attributes:
        texts: keys as sent, binary[n]; null for no key.
        is_base64: whether each text is base64, bool[n]; None if none is.
    """

    texts: pa.BinaryArray
    is_base64: Flags | None

    def take(self, rows: Ints) -> EncodedKeys:
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
        is_base64: Flags = keys.is_valid().to_numpy(zero_copy_only=False)
    elif _are_utf8(keys):
        return EncodedKeys(keys, None)
    else:
        is_base64 = np.array([not _is_utf8(key) for key in keys.to_pylist()])
    texts = _converted(keys, is_base64, _to_base64)
    return EncodedKeys(texts, is_base64 if is_base64.any() else None)


def decode_keys(keys: pa.BinaryArray, is_base64: Flags) -> pa.BinaryArray:
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
    keys: pa.BinaryArray, is_chosen: Flags, convert: Callable[[pa.BinaryArray], pa.BinaryArray]
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
    if len(data) + 4 * int(groups.sum()) > MAX_SIZE:
        raise too_large("keys")
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
    return binary_of(text.data, np.append(0, 4 * ends))


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
    return binary_of(decoded[is_held].data, np.append(0, np.cumsum(decoded_sizes)))
