"""Values of schemas of type JSON -> a column: payloads that many clients write, each in its own way.

``fast`` reads by column what is usual, proven row by row, and leaves all else to ``general``, row by row.

``general`` has the table of what is read as what. A payload is exactly one JSON value in UTF-8, with
white space around it or not, and without a byte order mark.

Bytes are base64 in what Java's client and most others write, but Python's writes them as text. Where
properties of the schema show that Java's client has made it, text that is not base64 is bad. Else text that
is base64 to the letter (with its padding) is read as such, and other text as its UTF-8: text of Python's
that happens to be base64, such as ``test``, is misread.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints, offsets_of, parts_by_size
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import arrow_type
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.json.by_column.cursor import JsonPayloads
from pulsar_spark.values.json.by_column.fast import read_columns
from pulsar_spark.values.json.by_column.shape import JsonLayout
from pulsar_spark.values.json.by_column.tape_read import TapeReader
from pulsar_spark.values.json.columns import AGAIN, AGAIN_PER_BYTE
from pulsar_spark.values.json.general import explain, read_rows
from pulsar_spark.values.json.make_tree import make_tree
from pulsar_spark.values.json.scan import has_more_tokens
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

    Fields go by their names: versions always resolve, and a value that does not fit is bad by itself.

    Args:
        writer: the version that the values are of.
        reader: the version that they are read as; older or newer.
        target: ``column_type(reader)``, or what that can be projected or promoted to.

    Raises:
        SchemaError: the target is no such type, or a definition is malformed.
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
        self._tape = TapeReader(tree)
        self._layout = JsonLayout()
        self._is_regular = True  # most payloads were laid out as it says
        self._cost = ValueCost(added_text(tree), growth(tree))
        self._unchecked = largest_unchecked(self._cost.growth)
        self._tries = tries(tree)

    @property
    def type(self) -> pa.DataType:
        return self._tree.type

    @property
    def cost(self) -> ValueCost:
        return self._cost

    @property
    def plan(self) -> Hashable:
        return id(self)

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray) -> DecodedValues:
        """Read n values; see ``ValueDecoder``.

        Raises:
            UnsupportedError: the texts or the items of a column are more than 2 GiB.
        """
        try:
            return self._decode(values)
        except (OverflowError, pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise UnsupportedError(
                f"{len(values)} values are too large for one Arrow column: {error}",
                advice="Read fewer rows at a time, or read the topic with valueFormat=raw",
            ) from None

    def _decode(self, values: pa.BinaryArray) -> DecodedValues:
        if not len(values):
            return DecodedValues(pa.array([], self.type))
        parts = parts_by_size(offsets_of(values), _MAX_BYTES, _MAX_ROWS)
        done = [self._decode_some(values[first:end]) for first, end in parts]
        if len(done) == 1:
            return done[0]
        bad = [np.zeros(len(part.column), np.bool_) if part.is_bad is None else part.is_bad for part in done]
        is_bad = np.concatenate(bad)
        return DecodedValues(
            pa.concat_arrays([part.column for part in done]), is_bad if is_bad.any() else None
        )

    def _decode_some(self, values: pa.BinaryArray) -> DecodedValues:
        columns: list[pa.Array] = []
        rows: list[Ints] = []
        left = self._by_column(values)
        if len(left) >= _FEWEST_ROWS:
            payloads = JsonPayloads(values)
            usable = payloads.is_usable[left]
            left = left[usable]
            left = self._read_layout(values, payloads, left, columns, rows)
            if len(left) >= _FEWEST_ROWS and self._tape.can_read:
                some = payloads if len(left) == len(values) else JsonPayloads(values.take(pa.array(left)))
                column, done = self._tape.read(some)
                columns.append(column)
                rows.append(left[done])
        is_left = np.ones(len(values), np.bool_)
        for each in rows:
            is_left[each] = False
        others = np.flatnonzero(is_left)
        is_bad: npt.NDArray[np.bool_] | None = None
        if len(others) or not rows:
            read = read_rows(self._tree, (values[row].as_buffer() for row in others))
            columns.append(read.column)
            rows.append(others)
            if read.is_bad is not None:
                is_bad = np.zeros(len(values), np.bool_)
                is_bad[others] = read.is_bad
        return DecodedValues(_in_order(columns, rows), is_bad)

    def _read_layout(
        self,
        values: pa.BinaryArray,
        payloads: JsonPayloads,
        left: Ints,
        columns: list[pa.Array],
        rows: list[Ints],
    ) -> Ints:
        """Read what is laid out as most payloads were; returns the rows that are left.

        Where they were not laid out alike, some of the payloads show whether they are now.
        """
        parts = [left] if self._is_regular else [left[:_SAMPLE], left[_SAMPLE:]]
        for part in parts:
            if not len(part):
                continue
            if not self._is_regular:
                self._layout = JsonLayout()
            if not self._layout.is_known:
                for row in part[:: max(1, len(part) // _LEARNED)].tolist():
                    self._layout.learn(values[row].as_py())
            column, is_read = read_columns(self._tree, payloads, part, self._layout)
            done = np.flatnonzero(is_read)
            self._is_regular = 2 * len(done) >= len(part)
            if len(done):
                columns.append(column if len(done) == len(part) else column.take(pa.array(done)))
                rows.append(part[done])
            if not self._is_regular:
                break
        return np.setdiff1d(left, np.concatenate([np.zeros(0, np.int64), *rows]), assume_unique=True)

    def _by_column(self, values: pa.BinaryArray) -> Ints:
        """Which values are read by their tokens: not those that may be too large, or take too long."""
        sizes = np.diff(offsets_of(values).astype(np.int64))
        large = rows_to_check(values, self._unchecked)
        may = sizes * (self._tries - AGAIN_PER_BYTE) <= AGAIN
        may[large] = False
        return np.flatnonzero(may)

    def has_more_items(self, value: bytes | None, key: bytes | None, per_byte: float) -> bool:
        """Whether a value has more items than it may; see ``ValueDecoder``."""
        return value is not None and has_more_tokens(value, per_byte * len(value) / self._tries)

    def explain(self, value: bytes | None, key: bytes | None) -> str:
        """Say why a value is bad; see ``ValueDecoder``."""
        return "" if value is None else explain(self._tree, value)


def _in_order(columns: list[pa.Array], rows: list[Ints]) -> pa.Array:
    """Put columns together in the order of their rows."""
    if len(columns) == 1:
        return columns[0]
    order = np.argsort(np.concatenate(rows))
    return pa.concat_arrays(columns).take(pa.array(order))
