"""Decodes JSON payloads to a column: most payloads by PyArrow, others by ``objects``.

The docstring of ``objects`` has a table of the JSON that each column type accepts. A payload is exactly one
JSON value in UTF-8, which white space may surround and a byte order mark may precede. Brackets nest at most
``MAX_DEPTH`` deep.

Java's client and most other clients write bytes as base64, but Python's as text. If properties of the
schema show that Java's client made it, text that is not base64 is bad. Otherwise text that is exactly base64,
with its padding, is decoded, and other text becomes its UTF-8 bytes. So text of Python's client that happens
to be base64, such as ``test``, is misread.

PyArrow's reader of JSON lines lacks some types, such as maps. Payloads that it does not read, or might read
otherwise than ``objects``, are read by ``objects``. PyArrow reads all lines of a call or none. If it refuses
a call, the lines are cut into parts, so that one refused row does not send all rows to ``objects``. Small
parts are read by ``objects``, because a call of PyArrow takes as long as ``objects`` with a hundred rows.

Each payload is a line that begins with ``{`` and ends with ``}``. A JSON value never has ``}``, a line end
and ``{`` in a row, so no value continues in the next line. If PyArrow reads as many values as lines, each
line is one value. PyArrow crashes if the first value is null, but a line with braces is not null.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pulsar_spark.arrow.arrays import (
    Flags,
    Ints,
    bytes_and_offsets,
    count_bytes,
    joined,
    offsets_of,
    parts_by_size,
    with_nulls,
)
from pulsar_spark.schema import Schema
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.json.leaves import LeftError, column_of, leave_unless, plain_type
from pulsar_spark.values.json.objects import ObjectReader, explain
from pulsar_spark.values.json.parse import MAX_DEPTH, is_too_deep
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonLeaf,
    JsonNode,
    JsonRecord,
    added_text,
    growth,
    make_tree,
    parts_of,
    rows_without_values,
)
from pulsar_spark.values.value_bounds import (
    ANY_WORK,
    ValueCost,
    ValueWork,
    largest_unchecked,
    rows_to_check,
    too_large,
)

_SAMPLE: Final = 256
# Tokens: commas, colons and opening brackets, even in strings. Each JSON value but the first follows one.
_IS_TOKEN: Final = np.isin(np.arange(256), [ord(each) for each in ",:[{"])
# Maximum payload bytes of a call, because Python's objects use up to forty bytes for each payload byte.
_MAX_BYTES: Final = 1 << 20
_MAX_ROWS: Final = 2000  # maximum rows of a call; more objects would not fit into the processor's caches


def decoder(writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
    """Returns the decoder of values of one version of a schema; see ``formats.decoder``.

    Fields match by their names. Raises SchemaError if a field has different kinds of times in the versions,
    such as date and timestamp. A value that does not fit its type is bad.
    """
    return _of_tree(make_tree(writer, reader, target))


@lru_cache(maxsize=256)
def _of_tree(tree: JsonNode) -> _JsonDecoder:
    return _JsonDecoder(tree)


class _JsonDecoder:
    """Decodes payloads by PyArrow if possible, and other payloads through Python objects."""

    def __init__(self, tree: JsonNode) -> None:
        self._tree = tree
        self._lines = ArrowReader(tree)
        self._objects = ObjectReader(tree)
        self._are_plain = True  # True if PyArrow read most rows of the last call
        self.type = tree.type
        self.cost = ValueCost(added_text(tree), growth(tree))
        self.plan: Hashable = id(self)
        self._unchecked = largest_unchecked(self.cost.growth)

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        try:
            return self._decode(values, work)
        except (OverflowError, pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise too_large(values, error) from None

    def _decode(self, values: pa.BinaryArray, work: ValueWork) -> DecodedValues:
        if not len(values):
            return DecodedValues(pa.array([], self.type))
        is_bad: Flags = np.zeros(len(values), np.bool_)
        if work.is_limited:  # work: tokens beyond half the number of bytes; ordinary values have 0
            tokens = count_bytes(values, _IS_TOKEN)
            dense = np.maximum(tokens - np.diff(offsets_of(values)) / 2, 0.0)
            values = with_nulls(values, ~work.take_each(dense))
        done: list[tuple[pa.Array, Ints]] = []
        is_left = np.ones(len(values), np.bool_)
        if self._lines.can_read:
            done = self._read_lines(values)
            for _, rows in done:
                is_left[rows] = False
        others = np.flatnonzero(is_left)
        if len(others):
            rest = values if len(others) == len(values) else values.take(pa.array(others))
            for first, end in parts_by_size(offsets_of(rest), _MAX_BYTES, _MAX_ROWS):
                rows = others[first:end]
                found = self._objects.read(rest[first:end], work.part(rows))
                done.append((found.column, rows))
                if found.is_bad is not None:
                    is_bad[rows] |= found.is_bad
        columns, places = ([each[at] for each in done] for at in (0, 1))
        done.clear()
        return DecodedValues(joined(columns, places), is_bad if is_bad.any() else None)

    def _read_lines(self, values: pa.BinaryArray) -> list[tuple[pa.Array, Ints]]:
        """Reads rows by PyArrow; only a sample if PyArrow read few rows before. Returns columns and rows."""
        rows = self._usual(values)
        done: list[tuple[pa.Array, Ints]] = []
        for part in (rows,) if self._are_plain else (rows[:_SAMPLE], rows[_SAMPLE:]):
            if len(part) < _FEWEST_ROWS:
                break
            found = self._lines.read(values, part)
            done += found
            self._are_plain = 2 * sum(len(some) for _, some in found) >= len(part)
            if not self._are_plain:
                break
        return done

    def _usual(self, values: pa.BinaryArray) -> Ints:
        """Returns the rows that PyArrow may read: payloads that are neither too large nor too deep."""
        is_usual = np.ones(len(values), np.bool_)
        is_usual[rows_to_check(values, self._unchecked)] = False
        long = np.flatnonzero(is_usual & (np.diff(offsets_of(values)) > 2 * MAX_DEPTH))
        is_usual[[row for row in long.tolist() if is_too_deep(values[row].as_py() or b"")]] = False
        return np.flatnonzero(is_usual)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        return "" if value is None else explain(self._tree, value)


# ---------------------------------------------------------------------------------------- PyArrow

_OPEN, _CLOSE, _I, _N, _LOWER_N, _A, _F, _MINUS = b"{}INnaf-"
_MAY_FOLLOW: Final = np.isin(np.arange(256), list(b" \t\n\r,]}"))  # bytes that may follow a number
_PARTS: Final = 8  # parts into which lines are cut if PyArrow refuses them
_FEWEST_OF_PART: Final = 1024
_FEWEST_ROWS: Final = 8
# Maximum values and nulls of a call: PyArrow uses about ten bytes for each value besides its column.
_MAX_VALUES: Final = 1 << 21
# Maximum values of a row: max(_FEW_VALUES, _MAX_PER_BYTE * bytes). Nulls count, because each takes 0.1 us.
_FEW_VALUES: Final = 256
_MAX_PER_BYTE: Final = 2
_NULL_ITEM: Final = r"[\[,][ \t\r\n]*null"
_LEAST_ITEM: Final = 3  # minimum bytes of a record in a list: ``{},``
# Parts of the texts of PyArrow's errors.
_UNKNOWN: Final = "unexpected field"
_TEXT: Final = "changed from number to string"
_NUMBER: Final = "changed from string to number"


class _Form(NamedTuple):
    """Properties of payloads; ``has_unknown``: True if payloads have names that are not in the tree."""

    has_unknown: bool = False
    times_are_text: bool = False

    def learned(self, words: str, has_times: bool) -> _Form:
        """Returns the properties that PyArrow's error text ``words`` implies; self if it implies none."""
        if _UNKNOWN in words:
            return self._replace(has_unknown=True)
        if has_times and (_TEXT in words or _NUMBER in words):
            return self._replace(times_are_text=_TEXT in words)
        return self


class ArrowReader:
    """Reads payloads of one type by PyArrow.

    If PyArrow refuses a call, its rows are cut into parts. Parts of at least ``fewest_of_part`` rows are
    tried again; smaller parts are left to ``objects``.
    """

    def __init__(self, tree: JsonNode, fewest_of_part: int = _FEWEST_OF_PART) -> None:
        self._tree = tree
        self._fewest_of_part = fewest_of_part
        self._types = {
            times_are_text: _line_type(tree, times_are_text) if isinstance(tree, JsonRecord) else None
            for times_are_text in (False, True)
        }
        self._has_times = self._types[False] != self._types[True]
        self._width = _width(tree)
        self._item_width = _item_width(tree)
        self._has_wide_items = self._item_width > _LEAST_ITEM * _MAX_PER_BYTE
        self._form = _Form()  # form of the payloads read so far

    @property
    def can_read(self) -> bool:
        """Whether PyArrow's JSON reader supports all types of the tree."""
        return self._types[False] is not None

    def read(self, values: pa.BinaryArray, rows: Ints) -> list[tuple[pa.Array, Ints]]:
        """Reads ``rows`` of payloads; returns columns and their rows, without rows that PyArrow refuses."""
        counts = self._count(values)
        offsets = offsets_of(values).astype(np.int64)
        sizes = offsets[1:] - offsets[:-1]
        most = np.clip(_MAX_PER_BYTE * sizes, _FEW_VALUES, _MAX_VALUES)
        rows = rows[(_are_braced(values) & (counts <= most))[rows]]
        if not self._has_wide_items:
            counts += self._item_width * sizes // _LEAST_ITEM
        parts = parts_by_size(np.append(0, np.cumsum(counts[rows])), _MAX_VALUES)
        return [done for first, end in parts for done in self._read(values, rows[first:end])]

    def _count(self, values: pa.BinaryArray) -> Ints:
        """Returns the maximum number of values in each payload; counts list items only if _has_wide_items."""
        counts = np.full(len(values), self._width, np.int64)
        if self._has_wide_items:
            body, offsets = bytes_and_offsets(values)
            braces = np.diff(np.searchsorted(np.flatnonzero(body == _OPEN), offsets))
            nulls = pc.fill_null(pc.count_substring_regex(values, _NULL_ITEM), 0).to_numpy()
            counts += self._item_width * (braces - 1 + nulls)  # items: all ``{`` but the first, and nulls
        return counts

    def _read(self, values: pa.BinaryArray, rows: Ints) -> list[tuple[pa.Array, Ints]]:
        some = values if len(rows) == len(values) else values.take(pa.array(rows))
        try:
            column = self._column(some)
        except (pa.ArrowInvalid, LeftError):
            cut = np.array_split(rows, min(len(rows), _PARTS)) if len(rows) > 1 else []
            parts = [part for part in cut if len(part) >= self._fewest_of_part]
            return [done for part in parts for done in self._read(values, part)]
        if self._form.has_unknown and isinstance(self._tree, JsonRecord):
            # Rows whose fields are all null may have names in the wrong case, which ``objects`` finds.
            left = rows_without_values(column)
            if len(left):
                kept = np.setdiff1d(np.arange(len(rows)), left)
                return [(column.take(pa.array(kept)), rows[kept])]
        return [(column, rows)]

    def _column(self, values: pa.BinaryArray) -> pa.Array:
        lines = pc.binary_join_element_wise(values, b"", b"\n").cast(pa.string())  # checks for UTF-8
        text = lines.buffers()[2]
        if np.count_nonzero(np.frombuffer(text, np.uint8)) < text.size:
            raise LeftError  # PyArrow stops at a zero byte
        table = self._parsed(text)
        if len(table) != len(values):
            raise LeftError
        columns = [column.chunk(0) for column in table.columns]
        return _converted(self._tree, pa.StructArray.from_arrays(columns, fields=list(table.schema)))

    def _parsed(self, text: pa.Buffer) -> pa.Table:
        """Parses lines to a table; after an error, tries the form that the error implies."""
        form, tried = self._form, set()  # other threads may change ``self._form``
        while True:
            tried.add(form)
            if form.has_unknown:
                _check_words(text)
            try:
                return pj.read_json(
                    pa.BufferReader(text),
                    read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
                    parse_options=pj.ParseOptions(
                        explicit_schema=pa.schema(list(self._types[form.times_are_text] or ())),
                        unexpected_field_behavior="ignore" if form.has_unknown else "error",
                    ),
                )
            except pa.ArrowInvalid as error:
                form = self._form = form.learned(str(error), self._has_times)
                if form in tried:
                    raise


def _line_type(node: JsonNode, times_are_text: bool) -> pa.DataType | None:
    """Returns the type as which PyArrow reads a node; None: its JSON reader lacks a type of the node."""
    if isinstance(node, JsonRecord):
        types = [_line_type(member.node, times_are_text) for member in node.members]
        keys = [member.key for member in node.members]
        if not types or None in types or len(set(keys)) < len(keys):
            return None
        return pa.struct(list(zip(keys, types, strict=True)))
    if isinstance(node, JsonArray):
        item = None if node.is_map else _line_type(node.item, times_are_text)
        return None if item is None else pa.list_(item)
    return plain_type(node, times_are_text) if isinstance(node, JsonLeaf) else None


def _width(node: JsonNode) -> int:
    """Returns the number of values in a row, without values in list items."""
    return 1 + sum(map(_width, parts_of(node))) if isinstance(node, JsonRecord) else 1


def _item_width(node: JsonNode) -> int:
    """Returns the number of values in the widest record that is a list item; 0: no list item is a record."""
    own = _width(node.item) if isinstance(node, JsonArray) and isinstance(node.item, JsonRecord) else 0
    return max([own, *map(_item_width, parts_of(node))])


def _are_braced(values: pa.BinaryArray) -> Flags:
    offsets = offsets_of(values).astype(np.int64)
    body = np.frombuffer(values.buffers()[2] or b" ", np.uint8)
    last = len(body) - 1
    braced: Flags = np.diff(offsets) > 1
    braced &= body[np.minimum(offsets[:-1], last)] == _OPEN
    braced &= body[np.clip(offsets[1:] - 1, 0, last)] == _CLOSE
    if values.null_count:
        braced &= values.is_valid().to_numpy(zero_copy_only=False)
    return braced


def _check_words(text: pa.Buffer) -> None:
    """Raises LeftError for Inf and -NaN, which are not JSON, but which PyArrow accepts for unknown names.

    ``text``: lines, each of which ends with a brace.
    """
    body = np.frombuffer(text, np.uint8)
    at = np.flatnonzero((body == _I) | (body == _N))
    following = body[at + 1]
    inf, nan = at[following == _LOWER_N], at[following == _A]
    is_inf = (body[inf] == _I) & (body[inf + 2] == _F) & _MAY_FOLLOW[body[np.minimum(inf + 3, len(body) - 1)]]
    is_nan = (body[nan] == _N) & (body[nan - 1] == _MINUS)
    if is_inf.any() or is_nan.any():
        raise LeftError


def _converted(node: JsonNode, column: pa.Array) -> pa.Array:
    """Converts an array that PyArrow has read, without an offset, to the node's column."""
    validity = column.buffers()[0]
    if isinstance(node, JsonRecord):
        children = []
        for number, member in enumerate(node.members):
            child = column.field(number)
            # PyArrow reads a missing name as null, so ``objects`` must read the row if a default exists.
            leave_unless(member.default is None or not child.null_count)
            children.append(_converted(member.node, child))
        return pa.Array.from_buffers(node.type, len(column), [validity], children=children)
    if isinstance(node, JsonArray):
        items = _converted(node.item, column.values)
        return pa.Array.from_buffers(node.type, len(column), column.buffers()[:2], children=[items])
    assert isinstance(node, JsonLeaf)
    return column_of(node, column)
