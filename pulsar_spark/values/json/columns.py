"""Columns of JSON values, as they are read: what all have in common, and those of values without parts.

A room is what one value may still take, and what its unions were found to be.

A column takes memory as its Arrow array does: values become bytes as soon as they are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_spark.values.json.leaves import make_parser
from pulsar_spark.values.json.scan import unexpected
from pulsar_spark.values.json.tree import JsonKind, JsonLeaf
from pulsar_spark.values.value_size import ValueRoom, accepted

_CODES: Final = {  # by the Arrow type, of Python's array
    pa.bool_().id: "b",
    pa.int32().id: "i",
    pa.int64().id: "q",
    pa.float32().id: "f",
    pa.float64().id: "d",
    pa.date32().id: "i",
    pa.timestamp("us").id: "q",
}


AGAIN: Final = 1_000_000  # characters that may be read again, of any value
AGAIN_PER_BYTE: Final = 16


class JsonRoom(ValueRoom):
    """What is accepted of one value, as columns and as work.

    Attributes:
        again: characters that may still be read again, to find the types of unions.
        at: the last position at which a name or an item began.
        tries: unions of which a member is being tried.
        choices: by the union's number and the position of a value, which member it is; None: it is of none.
            A value in a union is tried with each member around it: without this, that takes time that is
            exponential in how deep unions are in each other.
    """

    __slots__ = ("again", "at", "choices", "tries")

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)
        self.choices: dict[tuple[int, int], int | None] = {}
        self.begin(size)

    def begin(self, size: int) -> None:
        """Begin with a value of this many bytes."""
        self.left = self.accepted = accepted(size)
        self.again = AGAIN + AGAIN_PER_BYTE * size
        self.at = self.tries = 0
        self.choices.clear()

    @property
    def is_full(self) -> bool:
        """Whether the value is bad whatever member of a union it may be."""
        return self.left < 0 or self.again < 0


class JsonColumn(ABC):
    """Values of one node, as they are read.

    Attributes:
        unknown: names in the last value that its record does not have.
    """

    unknown = 0

    def __init__(self, arrow: pa.DataType) -> None:
        self._type = arrow
        self._valid = bytearray()

    def __len__(self) -> int:
        return len(self._valid)

    @abstractmethod
    def read(self, text: str, at: int) -> int:
        """Add the value that begins at ``at``; return where it ends.

        Raises:
            BadJsonError: it is none. Something of it may have been added.
        """

    @abstractmethod
    def add_null(self) -> None:
        """Add a null."""

    @abstractmethod
    def truncate(self, count: int) -> None:
        """Forget all after the first ``count`` values, and what was added of one that is bad."""

    @abstractmethod
    def finish(self) -> pa.Array:
        """Make an Arrow array of all values."""

    def _read_null(self, text: str, at: int, wanted: str) -> int:
        """Read the null that is there instead of what is wanted."""
        if not text.startswith("null", at):
            raise unexpected(text, at, wanted)
        self.add_null()
        return at + 4

    def _validity(self) -> pa.Buffer | None:
        """The bitmap of Arrow; None: all are valid."""
        if 0 not in self._valid:
            return None
        return pa.py_buffer(np.packbits(np.frombuffer(self._valid, np.uint8), bitorder="little"))


class NullColumn(JsonColumn):
    """Of a type that has no other value."""

    def read(self, text: str, at: int) -> int:
        """Add the value that begins at ``at``; return where it ends."""
        return self._read_null(text, at, "null")

    def add_null(self) -> None:
        """Add a null."""
        self._valid.append(0)

    def truncate(self, count: int) -> None:
        """Forget all after the first ``count`` values."""
        del self._valid[count:]

    def finish(self) -> pa.Array:
        """Make an Arrow array of all values."""
        return pa.nulls(len(self))


class NumberColumn(JsonColumn):
    """A leaf whose values are numbers."""

    def __init__(self, leaf: JsonLeaf) -> None:
        super().__init__(leaf.type)
        self._parse = make_parser(leaf)
        self._values = array(_CODES[leaf.type.id])

    def read(self, text: str, at: int) -> int:
        """Add the value that begins at ``at``; return where it ends."""
        if text[at] == "n":
            return self._read_null(text, at, "a value")
        value, at = self._parse(text, at)
        self._values.append(value)
        self._valid.append(1)
        return at

    def add_null(self) -> None:
        """Add a null."""
        self._values.append(0)
        self._valid.append(0)

    def truncate(self, count: int) -> None:
        """Forget all after the first ``count`` values."""
        del self._values[count:], self._valid[count:]

    def finish(self) -> pa.Array:
        """Make an Arrow array of all values."""
        if pa.types.is_boolean(self._type):
            values = np.packbits(np.frombuffer(self._values, np.uint8), bitorder="little")
        else:
            values = np.frombuffer(self._values, np.uint8)
        return pa.Array.from_buffers(self._type, len(self), [self._validity(), pa.py_buffer(values)])


class BytesColumn(JsonColumn):
    """A leaf whose values are bytes: of any length, or those of a decimal."""

    def __init__(self, leaf: JsonLeaf) -> None:
        super().__init__(leaf.type)
        self._parse = make_parser(leaf)
        self._null = bytes(16) if leaf.kind is JsonKind.DECIMAL else b""
        self._data = bytearray()
        self._offsets = array("i", [0])

    def read(self, text: str, at: int) -> int:
        """Add the value that begins at ``at``; return where it ends."""
        if text[at] == "n":
            return self._read_null(text, at, "a value")
        value, at = self._parse(text, at)
        self._add(value, 1)
        return at

    def add_null(self) -> None:
        """Add a null."""
        self._add(self._null, 0)

    def _add(self, value: bytes, is_valid: int) -> None:
        self._data += value
        self._offsets.append(len(self._data))
        self._valid.append(is_valid)

    def truncate(self, count: int) -> None:
        """Forget all after the first ``count`` values."""
        del self._offsets[count + 1 :], self._valid[count:]
        del self._data[self._offsets[count] :]

    def values_from(self, first: int) -> pa.BinaryArray:
        """The values from the one of that number on."""
        offsets = np.array(self._offsets[first:], np.int32)
        data = self._data[offsets[0] :]
        buffers = [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)

    def finish(self) -> pa.Array:
        """Make an Arrow array of all values."""
        buffers = [self._validity(), pa.py_buffer(self._offsets), pa.py_buffer(self._data)]
        if self._null:
            del buffers[1]
        return pa.Array.from_buffers(self._type, len(self), buffers)
