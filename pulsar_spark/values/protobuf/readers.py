"""Converts parsed messages to columns, one field of all messages at a time.

A TypeReader converts a list of values of one type, as Protobuf's runtime returns them: numbers, bytes, or
messages. A FieldReader converts one field of many messages. In parsed messages, texts are bytes, and the
field of number n is the attribute ``f<n>``.

Messages that contain themselves become JSON text, because no column has their type. The text has the names
and values of columns. Absent fields are left out, bytes are base64, and NaN and infinity are text. A message
within the text may lack required fields.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain, compress, islice
from math import isfinite
from operator import attrgetter, methodcaller, truth
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, joined, offsets_from, with_nulls
from pulsar_spark.values.primitives import decode_texts, to_micros, why_no_text
from pulsar_spark.values.protobuf.definition import UNSIGNED

_SLICE = 8192  # maximum items of repeated fields whose Python objects exist at the same time


class ReadColumn(NamedTuple):
    """n rows as a column.

    Attributes:
        is_bad: flags of bad rows, bool[n]; None: no row is bad.
        why: error text of the first mistake: its path below the read values, and the reason.
    """

    column: pa.Array
    is_bad: Flags | None = None
    why: str = ""

    def spread(self, has: Flags) -> ReadColumn:
        """Returns a row for each flag in ``has``: the next row of this column if set, else null."""
        places = pa.array(np.cumsum(has) - 1, mask=~has)
        is_bad = None
        if self.is_bad is not None:
            is_bad = np.zeros(len(has), np.bool_)
            is_bad[has] = self.is_bad
        return ReadColumn(self.column.take(places), is_bad, self.why)


TypeReader: TypeAlias = (
    "NumberReader | TextReader | EnumReader | PresentReader | TimeReader | StructReader | JsonReader"
)
FieldReader: TypeAlias = "SingularReader | RepeatedReader | MapReader"

# ---------------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class NumberReader:
    """Reads numbers, bools and bytes of type ``natural``, and casts them to ``type``."""

    type: pa.DataType
    natural: pa.DataType

    def read(self, values: list[Any]) -> ReadColumn:
        """Converts parsed values to a column."""
        if self.natural == UNSIGNED:
            words = np.zeros((len(values), 2), np.uint64)
            words[:, 0] = np.fromiter(values, np.uint64, len(values))
            return ReadColumn(pa.Array.from_buffers(UNSIGNED, len(values), [None, pa.py_buffer(words)]))
        column = pa.array(values, self.natural)
        return ReadColumn(column if self.natural == self.type else column.cast(self.type, safe=False))


@dataclass(frozen=True, slots=True)
class TextReader:
    """Decodes texts, which the runtime returns as bytes; text that is not UTF-8 is bad."""

    type: pa.DataType

    def read(self, values: list[Any]) -> ReadColumn:
        """Converts parsed values to a column."""
        found = decode_texts(pa.array(values, pa.binary()))
        if found.is_bad is None:
            return ReadColumn(found.column)
        return ReadColumn(found.column, found.is_bad, f": {why_no_text(values[found.is_bad.argmax()])}")


@dataclass(frozen=True, slots=True)
class EnumReader:
    """Converts enum numbers to names; a number without a name becomes ``<unknown>_<number>``, as in Java."""

    type: pa.DataType
    names: Mapping[int, str]
    unknown: str

    def read(self, values: list[Any]) -> ReadColumn:
        """Converts parsed values to a column."""
        coded = pa.array(values, pa.int32()).dictionary_encode()
        numbers = coded.dictionary.to_pylist()
        names = pa.array(map(self.name_of, numbers), pa.string())
        return ReadColumn(names.cast(self.type).take(coded.indices))

    def name_of(self, number: int) -> str:
        """Returns the name of an enum value by its number."""
        return self.names.get(number) or f"{self.unknown}_{number}"


@dataclass(frozen=True, slots=True)
class PresentReader:
    """Reads messages without fields as true; absent messages are null."""

    type: ClassVar = pa.bool_()

    def read(self, values: list[Any]) -> ReadColumn:
        """Converts parsed values to a column."""
        return ReadColumn(pa.array(np.ones(len(values), np.bool_)))


@dataclass(frozen=True, slots=True)
class TimeReader:
    """Reads messages of seconds and nanoseconds; fractions of a microsecond are cut towards zero."""

    type: pa.DataType
    seconds: Callable[[Any], int]
    nanos: Callable[[Any], int]

    def read(self, values: list[Any]) -> ReadColumn:
        """Converts parsed values to a column."""
        seconds = np.fromiter(map(self.seconds, values), np.int64, len(values))
        nanos = np.fromiter(map(self.nanos, values), np.int64, len(values))
        micros, is_bad = to_micros(seconds, 1_000_000, np.sign(nanos) * (np.abs(nanos) // 1000))
        column = pa.array(micros).view(self.type)
        if not is_bad.any():
            return ReadColumn(column)
        return ReadColumn(column, is_bad, ": seconds that do not fit into 64 bits of microseconds")


@dataclass(frozen=True, slots=True)
class StructReader:
    """Reads messages as structs."""

    type: pa.DataType
    fields: Sequence[FieldReader]

    def read(self, values: list[Any]) -> ReadColumn:
        """Converts parsed values to a column."""
        columns, is_bad, why = [], None, ""
        for field in self.fields:
            column, is_bad_field, why_field = field.read(values)
            columns.append(column)
            if is_bad_field is not None:
                is_bad = is_bad_field if is_bad is None else is_bad | is_bad_field
                why = why or f".{field.name}{why_field}"
        column = pa.Array.from_buffers(self.type, len(values), [None], children=columns)
        return ReadColumn(column, is_bad, why)


# ---------------------------------------------------------------------------------------- fields


class Presence(Enum):
    """When a singular (not repeated) field is null in its column; a type's default is zero or empty."""

    ALWAYS = auto()  # never null: an absent field has its type's default
    NOT_ZERO = auto()  # null if the field is absent or has its type's default
    EXPLICIT = auto()  # null only if the field is absent


@dataclass(frozen=True, slots=True)
class SingularReader:
    """Reads a field that a message has at most once.

    Attributes:
        attribute: name of the field in parsed messages, such as ``f1``.
        default: value that replaces nulls in the column; None: nulls stay null.
    """

    name: str
    attribute: str
    reader: TypeReader
    presence: Presence
    default: pa.Scalar | None = None
    is_required: bool = False

    def read(self, messages: Sequence[Any]) -> ReadColumn:
        """Converts the field of each message to a column."""
        get = attrgetter(self.attribute)
        if self.presence is not Presence.EXPLICIT:
            values = list(map(get, messages))
            found = self.reader.read(values)
            if self.presence is Presence.NOT_ZERO:
                return found._replace(column=with_nulls(found.column, ~_are_not_zero(values)))
            return (
                found if self.default is None else found._replace(column=found.column.fill_null(self.default))
            )
        has = np.fromiter(map(methodcaller("HasField", self.attribute), messages), np.bool_, len(messages))
        if has.all():
            return self.reader.read(list(map(get, messages)))
        found = self.reader.read(list(map(get, compress(messages, has)))).spread(has)
        if self.default is not None:
            return found._replace(column=found.column.fill_null(self.default))
        if self.is_required:
            is_bad = ~has if found.is_bad is None else found.is_bad | ~has
            return found._replace(is_bad=is_bad, why=found.why or ": it is required, but missing")
        return found


def _are_not_zero(values: list[Any]) -> Flags:
    are_not_zero = np.fromiter(map(truth, values), np.bool_, len(values))
    if values and isinstance(values[0], float):
        are_not_zero |= np.signbit(np.array(values))  # -0.0 is not the default
    return are_not_zero


@dataclass(frozen=True, slots=True)
class RepeatedReader:
    """Reads a field that a message has any number of times."""

    name: str
    attribute: str
    reader: TypeReader
    type: pa.DataType

    def read(self, messages: Sequence[Any]) -> ReadColumn:
        """Converts the field of each message to a column."""
        lists = list(map(attrgetter(self.attribute), messages))
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        items = _in_slices(self.reader, chain.from_iterable(lists))
        column = _nested(self.type, sizes, items.column)
        if items.is_bad is None:
            return ReadColumn(column)
        first = int(items.is_bad.argmax())
        upto = np.cumsum(sizes)
        begin = int((upto - sizes)[np.searchsorted(upto, first, "right")])
        return ReadColumn(column, _of_rows(items.is_bad, sizes), f"[{first - begin}]{items.why}")


@dataclass(frozen=True, slots=True)
class MapReader:
    """Reads a map, which is a repeated field of entries.

    If a key is repeated, the last entry counts. A row is bad if any entry is bad, as in Protobuf.
    """

    name: str
    attribute: str
    key: str  # name of the key in parsed entries, such as ``f1``
    entry: StructReader
    type: pa.DataType

    def read(self, messages: Sequence[Any]) -> ReadColumn:
        """Converts the field of each message to a column."""
        lists = list(map(attrgetter(self.attribute), messages))
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        rows = np.repeat(np.arange(len(lists)), sizes)
        keys = map(attrgetter(self.key), chain.from_iterable(lists))
        last = {pair: place for place, pair in enumerate(zip(rows.tolist(), keys, strict=True))}
        items = _in_slices(self.entry, chain.from_iterable(lists))
        is_bad, column = _of_rows(items.is_bad, sizes), items.column
        if len(last) < len(rows):
            counts = np.zeros(len(rows), np.bool_)
            counts[list(last.values())] = True
            column = column.filter(pa.array(counts))
            sizes = np.bincount(rows[counts], minlength=len(lists))
        return ReadColumn(_nested(self.type, sizes, column), is_bad, items.why)


def _in_slices(reader: TypeReader, items: Iterator[Any]) -> ReadColumn:
    columns, bad, why = [], [], ""
    values = list(islice(items, _SLICE))
    while True:
        found = reader.read(values)
        columns.append(found.column)
        bad.append(np.zeros(len(values), np.bool_) if found.is_bad is None else found.is_bad)
        why = why or found.why
        values = list(islice(items, _SLICE))
        if not values:
            break
    is_bad = np.concatenate(bad)
    return ReadColumn(joined(columns), is_bad if is_bad.any() else None, why)


def _nested(kind: pa.DataType, sizes: Ints, items: pa.Array) -> pa.Array:
    offsets = pa.py_buffer(offsets_from(sizes, np.int32))
    return pa.Array.from_buffers(kind, len(sizes), [None, offsets], children=[items])


def _of_rows(is_bad: Flags | None, sizes: Ints) -> Flags | None:
    if is_bad is None:
        return None
    rows: Flags = np.zeros(len(sizes), np.bool_)
    rows[np.repeat(np.arange(len(sizes)), sizes)[is_bad]] = True
    return rows


@dataclass(slots=True)
class JsonReader:
    """Converts messages to JSON text; ``fields``: field's full name in the parser, as M0.f1 -> its reader."""

    fields: dict[str, FieldReader] = dataclasses.field(default_factory=dict)
    type: ClassVar = pa.string()

    def read(self, values: list[Any]) -> ReadColumn:
        """Converts parsed values to a column."""
        texts: list[str | None] = []
        for value in values:
            try:
                texts.append(json.dumps(self._plain(self, value), ensure_ascii=False, separators=(",", ":")))
            except UnicodeDecodeError:
                texts.append(None)
        column = pa.array(texts, pa.string())
        if not column.null_count:
            return ReadColumn(column)
        return ReadColumn(column, np.array(column.is_null()), ": text in it is not UTF-8")

    def _plain(self, reader: TypeReader, value: Any) -> object:
        """Converts a value to an object that ``json`` encodes."""
        if isinstance(reader, JsonReader):
            return self._object(value)
        if isinstance(reader, TextReader):
            return value.decode()
        if isinstance(reader, EnumReader):
            return reader.name_of(value)
        if isinstance(value, bytes):
            return b64encode(value).decode()
        if not isinstance(value, float):
            return value
        if not isfinite(value):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        is_float = isinstance(reader, NumberReader) and reader.natural == pa.float32()
        return float(str(np.float32(value))) if is_float else value

    def _object(self, message: Any) -> dict[str, object]:
        found: dict[str, object] = {}
        for descriptor, value in message.ListFields():
            own = self.fields.get(descriptor.full_name)  # None for a field that ``plan.parser`` added
            if isinstance(own, MapReader):
                key, item = map(_single, own.entry.fields)
                found[own.name] = {
                    self._plain(key.reader, getattr(entry, key.attribute)): self._plain(
                        item.reader, getattr(entry, item.attribute)
                    )
                    for entry in value
                }
            elif isinstance(own, RepeatedReader):
                found[own.name] = [self._plain(own.reader, each) for each in value]
            elif own is not None:
                single = _single(own)
                if single.presence is Presence.EXPLICIT or value or str(value) == "-0.0":
                    found[own.name] = self._plain(single.reader, value)
        return found


def _single(own: FieldReader) -> SingularReader:
    assert isinstance(own, SingularReader)
    return own
