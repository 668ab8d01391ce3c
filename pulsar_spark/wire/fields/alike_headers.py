"""Headers of messages that are laid out alike: each field is copied from the same offset of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import Bytes
from pulsar_spark.arrow.grid import Grid, Span, copy_spans, grid_of_rows

Words: TypeAlias = npt.NDArray[np.uint64]

WORD = np.dtype("<u8")


class PropertySpans(NamedTuple):
    """Where the name and the value of a property begin and end."""

    name: Span
    value: Span


@dataclass(frozen=True, slots=True)
class HeaderLayout:
    """The layout of a header: positions in bytes from the start of its message.

    Attributes:
        size: position of the value.
        may_differ: the bits that may differ between messages, in whole words of 8 bytes.
        spans: field number -> (at, end).
        numbers: field number -> (at, end) of its varint.
        properties: spans of each.
    """

    size: int
    may_differ: bytearray
    spans: dict[int, Span] = field(default_factory=dict)
    numbers: dict[int, Span] = field(default_factory=dict)
    properties: list[PropertySpans] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class AlikeHeaders:
    """The headers of n messages, which are laid out alike.

    Attributes:
        layout: of all of them.
        body: bytes that contain them.
        grid: where they begin in ``body``.
    """

    layout: HeaderLayout
    body: Bytes
    grid: Grid

    def __len__(self) -> int:
        return self.grid.shape[0] * self.grid.shape[1]

    def held(self, which: npt.NDArray[np.int64]) -> AlikeHeaders:
        """Those of the messages at the given indexes, copied without the bytes after them."""
        size = self.layout.size
        items = self.grid.items(self.body, np.dtype((np.void, size))).reshape(-1)[which]
        return AlikeHeaders(self.layout, items.view(np.uint8), grid_of_rows(len(items), size))

    def words(self, place: int) -> Words:
        """The eight bytes of each header from ``place`` on, little-endian, [n].

        Raises:
            ValueError: ``body`` ends before those of the last header.
        """
        return self.grid.items(self.body, WORD, place).reshape(-1)

    def column(self, number: int) -> pa.BinaryArray:
        """A field of bytes that the layout has, null-free, [n]."""
        return copy_spans(self.body, self.grid, [self.layout.spans[number]])

    def property_names(self) -> pa.BinaryArray:
        """The names of all properties of the first message, then those of the next, null-free."""
        return copy_spans(self.body, self.grid, [one.name for one in self.layout.properties])

    def property_values(self) -> pa.BinaryArray:
        """The values, in the order of :meth:`property_names`."""
        return copy_spans(self.body, self.grid, [one.value for one in self.layout.properties])
