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

import copy
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.schema import Schema
from pulsar_spark.values.avro.avro_types import arrow_type
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.json.cursor import JsonPayloads
from pulsar_spark.values.json.fast import can_read, read_columns
from pulsar_spark.values.json.general import explain, read_rows
from pulsar_spark.values.json.make_tree import make_tree
from pulsar_spark.values.json.scan import has_more_tokens
from pulsar_spark.values.json.shape import JsonLayout
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
_MAX_PASSES: Final = 4  # of different layouts, in a batch
_FEWEST_READ: Final = 4  # a pass that reads less than one of this many rows is the last


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
        self._can_read = can_read(tree)
        self._cost = ValueCost(added_text(tree), growth(tree))
        self._unchecked = largest_unchecked(self._cost.growth)
        self._tries = tries(tree)
        self._layout = JsonLayout()  # that most rows of the last batch had

    @property
    def type(self) -> pa.DataType:
        return self._tree.type

    @property
    def cost(self) -> ValueCost:
        return self._cost

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
        payloads = JsonPayloads.of(values) if self._can_read and len(values) >= _FEWEST_ROWS else None
        if payloads is None:
            return read_rows(self._tree, (value.as_buffer() for value in values))
        columns, rows = self._read_columns(values, payloads)
        is_left = np.ones(len(values), np.bool_)
        for done in rows:
            is_left[done] = False
        left = np.flatnonzero(is_left)
        is_bad: npt.NDArray[np.bool_] | None = None
        if len(left):
            others = read_rows(self._tree, (values[row].as_buffer() for row in left))
            columns.append(others.column)
            rows.append(left)
            if others.is_bad is not None:
                is_bad = np.zeros(len(values), np.bool_)
                is_bad[left] = others.is_bad
        return DecodedValues(_in_order(columns, rows), is_bad)

    def _read_columns(
        self, values: pa.BinaryArray, payloads: JsonPayloads
    ) -> tuple[list[pa.Array], list[Ints]]:
        """Read by column: one layout of the payloads after the other, as long as that is worth it.

        Returns:
            Columns, and which rows each of them has.
        """
        columns: list[pa.Array] = []
        rows: list[Ints] = []
        left = np.setdiff1d(
            payloads.usable_rows(), rows_to_check(values, self._unchecked), assume_unique=True
        )
        layout, most = self._layout, 0
        for attempt in range(_MAX_PASSES):
            if len(left) < _FEWEST_ROWS:
                break
            if attempt or not layout.is_known:
                layout = copy.deepcopy(layout)
                if not layout.learn(values[left[0]].as_py()):
                    layout.learn(values[left[-1]].as_py())
            column, is_read = read_columns(self._tree, payloads, left, layout)
            done = np.flatnonzero(is_read)
            if len(done) > most:
                self._layout, most = layout, len(done)
            if len(done):
                columns.append(column if len(done) == len(left) else column.take(pa.array(done)))
                rows.append(left[done])
            enough = len(done) * _FEWEST_READ >= len(left)
            left = left[~is_read]
            if attempt and not enough:
                break
        return columns, rows

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
