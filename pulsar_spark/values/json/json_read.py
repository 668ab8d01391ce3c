"""Values of schemas of type JSON -> a column: payloads that many clients write, each in its own way.

``by_column`` reads what is usual, in three ways, of which each takes what the one before has left. All else
is left to ``general``, row by row.

``general`` has the table of what is read as what. A payload is exactly one JSON value in UTF-8, with
white space around it or not, and without a byte order mark.

Bytes are base64 in what Java's client and most others write, but Python's writes them as text. Where
properties of the schema show that Java's client has made it, text that is not base64 is bad. Else text that
is base64 to the letter (with its padding) is read as such, and other text as its UTF-8: text of Python's
that happens to be base64, such as ``test``, is misread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints, joined, offsets_of, parts_by_size, with_nulls
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import arrow_type
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.json.by_column.arrow_read import FEWEST_ROWS as FEWEST_LINES
from pulsar_spark.values.json.by_column.arrow_read import ArrowReader
from pulsar_spark.values.json.by_column.cursor import JsonPayloads
from pulsar_spark.values.json.by_column.fast import read_columns
from pulsar_spark.values.json.by_column.shape import JsonLayout
from pulsar_spark.values.json.by_column.tape_read import TapeReader
from pulsar_spark.values.json.columns import AGAIN, AGAIN_PER_BYTE
from pulsar_spark.values.json.general import explain, read_rows
from pulsar_spark.values.json.make_tree import make_tree
from pulsar_spark.values.json.scan import count_tokens
from pulsar_spark.values.json.tree import (
    JsonArray,
    JsonMap,
    JsonNode,
    JsonRecord,
    JsonUnion,
    added_text,
    growth,
    tries,
)
from pulsar_spark.values.json_types import parse
from pulsar_spark.values.value_size import ValueCost, largest_unchecked, rows_to_check
from pulsar_spark.values.value_work import ANY_WORK, ValueWork

_FEWEST_ROWS: Final = 64  # fewer take less time one by one
_SAMPLE: Final = 256
_LEARNED: Final = 8  # payloads, or some more, whose names are learned: few have all
# What is read together; the tokens of a byte take some forty, at most.
_MAX_BYTES: Final = 1 << 20
_MAX_ROWS: Final = 1 << 14


def column_type(schema: Schema) -> pa.DataType:
    """The Arrow type of a column of the schema's values.

    Raises:
        SchemaError: the definition is malformed.
        UnsupportedError: a field, which is named, has no type in Spark.
    """
    return arrow_type(parse(schema))


def decoder(writer: Schema, reader: Schema, target: pa.DataType) -> ValueDecoder:
    """Make a decoder of values of one version of a schema.

    Fields go by their names. Versions resolve unless they have times of different kinds; a value that does
    not fit is bad by itself.

    Args:
        writer: the version that the values are of.
        reader: the version that they are read as; older or newer.
        target: ``column_type(reader)``, or what that can be projected or promoted to.

    Raises:
        SchemaError: the target is no such type, a definition is malformed, or versions do not resolve.
        UnsupportedError: as :func:`column_type`.
    """
    tree = make_tree(writer, reader, target)
    _check_defaults(tree, "")
    return _of_tree(tree)


@lru_cache(maxsize=256)
def _of_tree(tree: JsonNode) -> _JsonDecoder:
    """One decoder for all versions that are read alike."""
    return _JsonDecoder(tree)


def _check_defaults(node: JsonNode, path: str) -> None:
    """Read each default once, so that no row finds one wrong."""
    if isinstance(node, JsonRecord):
        for member in node.members:
            below = f"{path}.{member.key}" if path else member.key
            reason = explain(member.node, member.default.encode())
            if reason:
                raise SchemaError(
                    f"the default of field {below!r} of the topic's schema is wrong: {reason}",
                    advice="Correct the schema, or read the topic with valueFormat=raw",
                )
            _check_defaults(member.node, below)
    elif isinstance(node, JsonArray):
        _check_defaults(node.item, f"{path}[]")
    elif isinstance(node, JsonMap):
        _check_defaults(node.value, f"{path}{{}}")
    elif isinstance(node, JsonUnion):
        for each in node.members:
            _check_defaults(each, path)


class _JsonDecoder:
    """Reads by column what it can, and the rest one by one.

    Args:
        tree: how values are read.
    """

    def __init__(self, tree: JsonNode) -> None:
        self._tree = tree
        self._lines = ArrowReader(tree)
        self._are_plain = _MostRows()
        self._layout = JsonLayout()
        self._is_regular = _MostRows()  # payloads were laid out as it says
        self._tape = TapeReader(tree)
        self._cost = ValueCost(added_text(tree), growth(tree))
        self._unchecked = largest_unchecked(self._cost.growth)
        self._tries = tries(tree)
        self._token_work = 2.0 + self._tries  # units that a token takes that is read by itself

    @property
    def type(self) -> pa.DataType:
        return self._tree.type

    @property
    def cost(self) -> ValueCost:
        return self._cost

    @property
    def plan(self) -> Hashable:
        return id(self)

    def decode(
        self, values: pa.BinaryArray, keys: pa.BinaryArray, work: ValueWork = ANY_WORK
    ) -> DecodedValues:
        """Read n values; see ``ValueDecoder``.

        Raises:
            UnsupportedError: the texts or the items of a column are more than 2 GiB.
        """
        try:
            return self._decode(values, work)
        except (OverflowError, pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise UnsupportedError(
                f"{len(values)} values are too large for one Arrow column: {error}",
                advice="Read fewer rows at a time, or read the topic with valueFormat=raw",
            ) from None

    def _decode(self, values: pa.BinaryArray, work: ValueWork) -> DecodedValues:
        if not len(values):
            return DecodedValues(pa.array([], self.type))
        if work.is_limited:  # honest values have at most a token in two bytes
            dense = np.maximum(count_tokens(values) - np.diff(offsets_of(values)) / 2, 0.0)
            values = with_nulls(values, ~work.take_each(dense))
        done: list[tuple[pa.Array, Ints]] = []
        if self._lines.can_read:
            self._are_plain.read(
                self._by_column(values), FEWEST_LINES, lambda part: self._lines.read(values, part), done
            )
        others = _left(len(values), done)
        is_bad = np.zeros(len(values), np.bool_)
        if len(others):
            rest = values if len(others) == len(values) else values.take(pa.array(others))
            for first, end in parts_by_size(offsets_of(rest), _MAX_BYTES, _MAX_ROWS):
                part = self._decode_some(rest[first:end], work.part(others[first:end]))
                done.append((part.column, others[first:end]))
                if part.is_bad is not None:
                    is_bad[others[first:end]] = part.is_bad
        return DecodedValues(_in_order(done), is_bad if is_bad.any() else None)

    def _decode_some(self, values: pa.BinaryArray, work: ValueWork) -> DecodedValues:
        done: list[tuple[pa.Array, Ints]] = []
        left = self._by_column(values)
        if len(left) >= _FEWEST_ROWS:
            payloads = JsonPayloads(values)
            left = self._is_regular.read(
                left[payloads.is_usable[left]],
                _FEWEST_ROWS,
                lambda part: self._read_layout(values, payloads, part),
                done,
            )
            if len(left) >= _FEWEST_ROWS and self._tape.can_read:
                some = payloads if len(left) == len(values) else JsonPayloads(values.take(pa.array(left)))
                column, read = self._tape.read(some)
                done.append((column, left[read]))
        others = _left(len(values), done)
        is_bad: Flags | None = None
        if len(others):
            rows = pa.array(others)
            if work.is_limited:
                units = self._token_work * (2 + count_tokens(values)[others])
                rows = pa.array(others, mask=~work.part(others).take_each(units))
            found = read_rows(self._tree, (value.as_buffer() for value in values.take(rows)))
            done.append((found.column, others))
            if found.is_bad is not None:
                is_bad = np.zeros(len(values), np.bool_)
                is_bad[others] = found.is_bad
        return DecodedValues(_in_order(done), is_bad)

    def _read_layout(
        self, values: pa.BinaryArray, payloads: JsonPayloads, rows: Ints
    ) -> list[tuple[pa.Array, Ints]]:
        """Read what is laid out as most payloads were, or where those were not, as some of these are."""
        if not self._is_regular.holds:
            self._layout = JsonLayout()
        if not self._layout.is_known:
            for row in rows[:: max(1, len(rows) // _LEARNED)].tolist():
                self._layout.learn(values[row].as_py())
        column, is_read = read_columns(self._tree, payloads, rows, self._layout)
        read = np.flatnonzero(is_read)
        if not len(read):
            return []
        return [(column if len(read) == len(rows) else column.take(pa.array(read)), rows[read])]

    def _by_column(self, values: pa.BinaryArray) -> Ints:
        """Which values are read by their tokens: not those that may be too large, or take too long."""
        sizes = np.diff(offsets_of(values).astype(np.int64))
        large = rows_to_check(values, self._unchecked)
        may = sizes * (self._tries - AGAIN_PER_BYTE) <= AGAIN
        may[large] = False
        return np.flatnonzero(may)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        """Say why a value is bad; see ``ValueDecoder``."""
        return "" if value is None else explain(self._tree, value)


class _MostRows:
    """Reads rows in a way that has read most of those before, or now reads most of a sample.

    Attributes:
        holds: whether it has.
    """

    def __init__(self) -> None:
        self.holds = True

    def read(
        self,
        rows: Ints,
        fewest: int,
        read: Callable[[Ints], list[tuple[pa.Array, Ints]]],
        done: list[tuple[pa.Array, Ints]],
    ) -> Ints:
        """Read rows.

        Args:
            rows: which, ascending.
            fewest: rows that are read at all.
            read: gives columns of some rows, and which rows each has.
            done: what is read is added to.

        Returns:
            The rows that are left.
        """
        is_left = np.ones(len(rows), np.bool_)
        for part in (rows,) if self.holds else (rows[:_SAMPLE], rows[_SAMPLE:]):
            if len(part) < fewest:
                break
            found = read(part)
            done += found
            count = 0
            for _, some in found:
                is_left[np.searchsorted(rows, some)] = False
                count += len(some)
            self.holds = 2 * count >= len(part)
            if not self.holds:
                break
        return rows[is_left]


def _left(count: int, done: list[tuple[pa.Array, Ints]]) -> Ints:
    """The rows, of this many, that no column has."""
    is_left = np.ones(count, np.bool_)
    for _, rows in done:
        is_left[rows] = False
    return np.flatnonzero(is_left)


def _in_order(done: list[tuple[pa.Array, Ints]]) -> pa.Array:
    """Put columns together in the order of their rows; they are let go of."""
    columns, rows = [column for column, _ in done], [some for _, some in done]
    done.clear()
    return joined(columns, rows)
