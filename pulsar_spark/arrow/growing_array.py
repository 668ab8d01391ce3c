"""GrowingArray: concatenates parts to one array, without all parts in memory at the same time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.arrow.arrays import offsets_of

_MAX_OFFSET = 2**31 - 1


class GrowingArray:
    """Copies each part when it is added, so that the caller can free it; Arrow's own concat needs all parts.

    A single part is not copied.

    Args:
        kind: type of the array and its parts: null, bool, a type of fixed width, binary, string, or a struct,
            list or map of these types.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._first: pa.Array | None = None
        self._grown: _Grown | None = None

    def add(self, part: pa.Array) -> None:
        """Appends a part.

        Raises:
            pa.ArrowInvalid: the array would have more than 2 ** 31 - 1 bytes of text or items.
        """
        if self._grown is None:
            if self._first is None:
                self._first = part
                return
            self._grown = _grown(self._kind)
            self._grown.add(self._first)
            self._first = None
        self._grown.add(part)

    def finish(self) -> pa.Array:
        """Returns all parts as one array; nothing may be added afterwards."""
        if self._grown is not None:
            return self._grown.finish()
        return pa.array([], self._kind) if self._first is None else self._first


class _Bits:
    def __init__(self) -> None:
        self._bytes = bytearray()
        self._rest: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)  # remaining bits, fewer than 8

    def add(self, flags: npt.NDArray[np.bool_]) -> None:
        flags = np.concatenate((self._rest, flags))
        whole = len(flags) & ~7
        self._bytes += np.packbits(flags[:whole], bitorder="little").data
        self._rest = flags[whole:]

    def finish(self) -> pa.Buffer:
        self._bytes += np.packbits(self._rest, bitorder="little").data
        return pa.py_buffer(self._bytes)


class _Grown:
    """Rows of the null type; base class for types with buffers or children."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.count = 0
        self._valid: _Bits | None = None

    def add(self, part: pa.Array) -> None:
        if part.null_count and not pa.types.is_null(self.kind) and self._valid is None:
            self._valid = _Bits()
            self._valid.add(np.ones(self.count, np.bool_))
        if self._valid is not None:
            self._valid.add(part.is_valid().to_numpy(zero_copy_only=False))
        self.count += len(part)

    def finish(self) -> pa.Array:
        return pa.nulls(self.count)

    def validity(self) -> pa.Buffer | None:
        return None if self._valid is None else self._valid.finish()


class _Booleans(_Grown):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._bits = _Bits()

    def add(self, part: pa.Array) -> None:
        super().add(part)
        self._bits.add(part.fill_null(False).to_numpy(zero_copy_only=False))

    def finish(self) -> pa.Array:
        return pa.Array.from_buffers(self.kind, self.count, [self.validity(), self._bits.finish()])


class _Fixed(_Grown):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._width = kind.bit_width // 8
        self._bytes = bytearray()

    def add(self, part: pa.Array) -> None:
        super().add(part)
        start = part.offset * self._width
        self._bytes += memoryview(part.buffers()[1])[start : start + len(part) * self._width]

    def finish(self) -> pa.Array:
        return pa.Array.from_buffers(self.kind, self.count, [self.validity(), pa.py_buffer(self._bytes)])


class _Offsets(_Grown):
    """Rows of variable size, with offsets."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._offsets = bytearray(4)
        self._end = 0

    def taken(self, part: pa.Array) -> tuple[int, int]:
        """Adds the offsets of a part; returns start and end of its bytes or items."""
        _Grown.add(self, part)
        if not len(part):
            return 0, 0
        offsets = offsets_of(part).astype(np.int64)
        start, end = int(offsets[0]), int(offsets[-1])
        offsets += self._end - start
        self._end = int(offsets[-1])
        if self._end > _MAX_OFFSET:
            raise pa.ArrowInvalid("offset overflow while parts of an array are put together")
        self._offsets += offsets[1:].astype(np.int32).data.cast("B")
        return start, end

    def offsets(self) -> pa.Buffer:
        return pa.py_buffer(self._offsets)


class _Bytes(_Offsets):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._bytes = bytearray()

    def add(self, part: pa.Array) -> None:
        start, end = self.taken(part)
        if end > start:
            self._bytes += memoryview(part.buffers()[2])[start:end]

    def finish(self) -> pa.Array:
        buffers = [self.validity(), self.offsets(), pa.py_buffer(self._bytes)]
        return pa.Array.from_buffers(self.kind, self.count, buffers)


class _Lists(_Offsets):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._items = _grown(kind.value_type)

    def add(self, part: pa.Array) -> None:
        start, end = self.taken(part)
        self._items.add(part.values[start:end])

    def finish(self) -> pa.Array:
        buffers = [self.validity(), self.offsets()]
        return pa.Array.from_buffers(self.kind, self.count, buffers, children=[self._items.finish()])


class _Maps(_Offsets):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._keys, self._items = _grown(kind.key_type), _grown(kind.item_type)

    def add(self, part: pa.Array) -> None:
        start, end = self.taken(part)
        self._keys.add(part.keys[start:end])
        self._items.add(part.items[start:end])

    def finish(self) -> pa.Array:
        entries = pa.StructArray.from_arrays(
            [self._keys.finish(), self._items.finish()], fields=[self.kind.key_field, self.kind.item_field]
        )
        return pa.Array.from_buffers(
            self.kind, self.count, [self.validity(), self.offsets()], children=[entries]
        )


class _Structs(_Grown):
    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._columns = [_grown(field.type) for field in kind]

    def add(self, part: pa.Array) -> None:
        super().add(part)
        for number, column in enumerate(self._columns):
            column.add(part.field(number))

    def finish(self) -> pa.Array:
        columns = [column.finish() for column in self._columns]
        return pa.Array.from_buffers(self.kind, self.count, [self.validity()], children=columns)


def _grown(kind: pa.DataType) -> _Grown:
    for is_kind, grown in (
        (pa.types.is_null, _Grown),
        (pa.types.is_boolean, _Booleans),
        (pa.types.is_struct, _Structs),
        (pa.types.is_map, _Maps),
        (pa.types.is_list, _Lists),
        (pa.types.is_string, _Bytes),
        (pa.types.is_binary, _Bytes),
    ):
        if is_kind(kind):
            return grown(kind)
    return _Fixed(kind)
