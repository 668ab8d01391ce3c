"""Rows within rows: items of arrays, and columns that some rows have. Errors name the row of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.values.encode import cells
from pulsar_spark.values.encode.cells import Piece
from pulsar_spark.values.encode.column_values import Misfit, mask, require
from pulsar_spark.values.interfaces import EncodedValues


class PieceWriter(Protocol):
    """Writes the values of one field."""

    def pieces(self, column: pa.Array) -> list[Piece]:
        """The bytes of each row of ``column``.

        Raises:
            Misfit: a value that the field cannot hold.
        """
        ...


class RowEncoder:
    """Writes rows by the writer of their whole."""

    def __init__(self, writer: PieceWriter) -> None:
        self._writer = writer

    def encode(self, rows: pa.Array) -> EncodedValues:
        """Write n rows.

        Raises:
            SchemaError: a row does not fit the schema.
            OptionError: they have more than 2 GiB.
        """
        try:
            return EncodedValues(cells.to_binary(joined(self._writer.pieces, rows)))
        except Misfit as misfit:
            raise misfit.error() from None


def joined(pieces: Callable[[pa.Array], list[Piece]], column: pa.Array) -> EncodedMessages:
    """The bytes of each row of a column, by what makes the pieces of them."""
    if len(column) == 0:
        return EncodedMessages(memoryview(b""), np.zeros(1, np.int64))
    return cells.join_rows(pieces(column), len(column))


def of_some(writer: PieceWriter, column: pa.Array, has: Flags) -> Piece:
    """The piece of all rows, of which only those that ``has`` names are written."""
    try:
        found = joined(writer.pieces, column.filter(pa.array(has)))
    except Misfit as misfit:
        raise misfit.at(int(np.flatnonzero(has)[misfit.row])) from None
    return cells.spread_rows(found, has)


def of_items(pieces: Callable[[pa.Array], list[Piece]], items: pa.Array, starts: Ints) -> Piece:
    """The piece of all rows that holds the items of each, one after the other.

    Args:
        pieces: makes those of items.
        items: of all rows.
        starts: see :func:`items_of`.
    """
    try:
        found = joined(pieces, items)
    except Misfit as misfit:
        raise misfit.at(int(np.searchsorted(starts, misfit.row, "right")) - 1) from None
    return cells.texts(cells.to_binary(found, found.offsets[starts]))


def members_of(
    column: pa.StructArray, path: str, *, is_nullable: bool
) -> tuple[list[pa.Array], list[Flags], Ints]:
    """The members of a union that has a column for each.

    Args:
        column: n rows.
        path: of the union.
        is_nullable: whether rows may have none of them.

    Returns:
        A column for each member, which rows have it, and how many each row has: 0 or 1.

    Raises:
        Misfit: a row has several members, or none where one is needed.
    """
    members = column.flatten()
    has = [mask(member.is_valid()) for member in members]
    count: Ints = np.sum(has, axis=0)
    require(count <= 1, path, "several members of a union, which can have only one value")
    if not is_nullable:
        require(count == 1, path, "null, but the topic's field is not nullable")
    return members, has, count


def items_of(column: pa.ListArray | pa.MapArray) -> tuple[pa.Array, Ints]:
    """The items of all rows, those of a map as structs; and where those of each row begin, int64[n + 1].

    Args:
        column: without nulls.
    """
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if not pa.types.is_map(column.type):
        return column.values.slice(first, count), offsets - first
    parts = [column.keys.slice(first, count), column.items.slice(first, count)]
    return pa.StructArray.from_arrays(parts, ["key", "value"]), offsets - first
