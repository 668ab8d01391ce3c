"""Values of schemas of type JSON -> a column.

``arrow_read`` reads payloads in their usual form, and ``objects`` all other payloads. ``objects`` has the
table of the forms of each type. A payload is exactly one JSON value in UTF-8, which white space may surround
and a byte order mark may precede. Brackets nest at most ``MAX_DEPTH`` deep.

Java's client and most other clients write bytes as base64, but Python's as text. If properties of the
schema show that Java's client made it, text that is not base64 is bad. Otherwise text that is exactly base64,
with its padding, is decoded, and other text becomes its UTF-8 bytes. So text of Python's client that happens
to be base64, such as ``test``, is misread.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import (
    Flags,
    Ints,
    count_bytes,
    joined,
    offsets_of,
    parts_by_size,
    with_nulls,
)
from pulsar_spark.schema import Schema
from pulsar_spark.values.interfaces import DecodedValues, ValueDecoder
from pulsar_spark.values.json.arrow_read import FEWEST_ROWS, ArrowReader
from pulsar_spark.values.json.objects import ObjectReader, explain
from pulsar_spark.values.json.parse import MAX_DEPTH, is_too_deep
from pulsar_spark.values.json.tree import JsonNode, added_text, growth, make_tree
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

    Fields match by their names. A field must not have different kinds of times in the two versions. A value
    that does not fit its type is bad.
    """
    return _of_tree(make_tree(writer, reader, target))


@lru_cache(maxsize=256)
def _of_tree(tree: JsonNode) -> _JsonDecoder:
    return _JsonDecoder(tree)


class _JsonDecoder:
    """Reads payloads in their usual form by PyArrow, and other payloads through Python objects."""

    def __init__(self, tree: JsonNode) -> None:
        self._tree = tree
        self._lines = ArrowReader(tree)
        self._objects = ObjectReader(tree)
        self._are_plain = True  # PyArrow read most rows of the last call
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
        if work.is_limited:  # counts only tokens above one per two bytes: ordinary values have fewer
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
        """Reads rows by PyArrow; of payloads that are mostly in another form, only a sample."""
        rows = self._usual(values)
        done: list[tuple[pa.Array, Ints]] = []
        for part in (rows,) if self._are_plain else (rows[:_SAMPLE], rows[_SAMPLE:]):
            if len(part) < FEWEST_ROWS:
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
