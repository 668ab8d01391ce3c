"""Checks single values: returns the position after a value, or raises an error for its first mistake.

The checks find exactly the mistakes that ``avro_read`` finds. They find the ends of the few arrays that are
longer than the others, refuse large values before they use memory, and say why a value is bad.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pulsar_spark.values.avro import steps
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroRecursive,
    AvroType,
    AvroUnion,
)
from pulsar_spark.values.value_bounds import ValueRoom

_MAX_OPEN = 10_000  # maximum depth of a recursive record
_WORK_PER_BYTE = 64  # maximum types visited in a recursive record: this per byte left, plus ``_MAX_OPEN``
BLOCK_WORK = 4  # units of work for reading the item count of a block


class BadAvroError(Exception):
    """Bytes that are not a value; ``path``: names of the fields around the mistake, innermost first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []

    @property
    def where(self) -> str:
        """Returns the path of the field as the beginning of an error; empty at the root."""
        if not self.path:
            return ""
        parts = (name if name in ("[]", "{}") else f".{name}" for name in reversed(self.path))
        return f"field {ascii(''.join(parts).removeprefix('.'))[:1000]}: "


@dataclass(slots=True)
class AvroValue:
    """One row: its bytes are in ``bytes``, up to the index ``end``.

    Attributes:
        credit: remaining bytes of the allowance ``AvroPayloads.credit``.
        room: column memory that the row's items may still use; None: memory is not limited.
        work: units of work that the row may still use.
    """

    bytes: bytes | memoryview
    end: int
    credit: int
    room: ValueRoom | None = None
    work: float = math.inf


# Receives the position of a value, returns the position after it; raises BadAvroError.
Walker: TypeAlias = Callable[[AvroValue, int], int]


def walker(step: steps.Step) -> Walker:
    """Returns the function that checks a value by its step, and returns the position after the value."""
    return _WALKERS[type(step)](step)


def _read_varint(value: AvroValue, position: int) -> tuple[int, int]:
    whole, end = value.bytes, value.end
    raw = shift = 0
    while True:
        if position >= end:
            raise BadAvroError("the value ends within a number, or before it")
        byte = whole[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise BadAvroError("a number has more than 10 bytes")
    if raw >> 64:
        raise BadAvroError("a number has more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), position


def read_block(value: AvroValue, position: int, cost: int) -> tuple[int, int]:
    """Returns a block's item count and first item's position; subtracts count * ``cost`` from ``credit``."""
    count, position = _read_varint(value, position)
    if count < 0:
        count = -count
        _, position = _read_varint(value, position)
    if cost:
        value.credit -= count * cost
        if value.credit < 0:
            raise BadAvroError(f"{count} items, which is too many for the size of the value")
    return count, position


def _boolean(step: steps.BooleanStep) -> Walker:
    most = 255 if step.type is None else 1

    def walk(value: AvroValue, position: int) -> int:
        if position >= value.end:
            raise BadAvroError("the value ends before a boolean")
        if value.bytes[position] > most:
            raise BadAvroError(f"a boolean is 0 or 1, not {value.bytes[position]}")
        return position + 1

    return walk


def _integer(step: steps.IntegerStep) -> Walker:
    if step.type is None:
        return lambda value, position: _read_varint(value, position)[1]
    least, most = step.bounds

    def walk(value: AvroValue, position: int) -> int:
        number, position = _read_varint(value, position)
        if not least <= number <= most:
            raise BadAvroError("a number that is out of range")
        return position

    return walk


def _fixed(size: int) -> Walker:
    def walk(value: AvroValue, position: int) -> int:
        if size > value.end - position:
            raise BadAvroError(f"{size} bytes are required, but {value.end - position} are left")
        return position + size

    return walk


def _bytes(step: steps.BytesStep) -> Walker:
    fixed = None if step.size is None else _fixed(step.size)
    is_decimal = step.type is not None and pa.types.is_decimal(step.type)
    precision = step.type.precision if step.type is not None and is_decimal else 0

    def walk(value: AvroValue, position: int) -> int:
        if fixed is not None:
            end = fixed(value, position)
        else:
            size, position = _read_varint(value, position)
            end = position + size
            if size < 0 or end > value.end:
                raise BadAvroError(f"{size} bytes are required, but {value.end - position} are left")
        if step.is_text:
            try:
                bytes(value.bytes[position:end]).decode()
            except UnicodeDecodeError:
                raise BadAvroError("text that is not UTF-8") from None
        elif is_decimal:
            _check_decimal(bytes(value.bytes[position:end]), precision)
        return end

    return walk


def _check_decimal(raw: bytes, precision: int) -> None:
    if not raw:
        raise BadAvroError("a decimal without bytes")
    # Converts only the last 17 bytes, because long numbers are slow; bytes before may only repeat the sign.
    short = raw[-17:]
    sign = b"\xff" if short[0] >= 0x80 else b"\x00"
    number = int.from_bytes(short, "big", signed=True)
    if raw[:-17].strip(sign) or abs(number) >= 10**precision:
        raise BadAvroError(f"a decimal of more than {precision} digits")


def _enum(step: steps.EnumStep) -> Walker:
    def walk(value: AvroValue, position: int) -> int:
        index, position = _read_varint(value, position)
        if step.type is not None:
            if not 0 <= index < len(step.symbols):
                raise BadAvroError(f"symbol {index}, but the enum has {len(step.symbols)}")
            if step.symbols[index] is None:
                raise BadAvroError(f"symbol {index} of an enum is not in the reader's schema")
        return position

    return walk


def _recursive(step: steps.RecursiveStep) -> Walker:
    """Checks a recursive record with a list as stack, because records may nest deeper than Python's stack."""

    def walk(value: AvroValue, position: int) -> int:
        # Stack of the types around the position, each with a number. Record: number of checked fields; array
        # or map: number of remaining items in the block.
        open_types: list[tuple[AvroType, int]] = [(step.avro, 0)]
        most = _MAX_OPEN + _WORK_PER_BYTE * (value.end - position)
        while open_types:
            avro, at = open_types.pop()
            if isinstance(avro, AvroRecursive):
                (avro,) = avro.definition
            if isinstance(avro, AvroRecord):
                if at + 1 < len(avro.fields):
                    open_types.append((avro, at + 1))
                if avro.fields:
                    open_types.append((avro.fields[at].type, 0))
            elif isinstance(avro, AvroUnion):
                index, position = _read_varint(value, position)
                if not 0 <= index < len(avro.branches):
                    raise BadAvroError(f"branch {index}, but the union has {len(avro.branches)}")
                open_types.append((avro.branches[index], 0))
            elif isinstance(avro, AvroArray | AvroMap):
                if not at:
                    at, position = read_block(value, position, 1)
                    if not at:
                        continue
                open_types.append((avro, at - 1) if at > 1 else (avro, 0))
                if isinstance(avro, AvroMap):
                    position = _TEXT(value, position)
                open_types.append((avro.items if isinstance(avro, AvroArray) else avro.values, 0))
            else:
                position = walker(steps.skip(avro))(value, position)
            value.work -= 1
            most -= 1
            if len(open_types) > _MAX_OPEN or value.work < 0 or most < 0:
                raise BadAvroError("records in each other that are too many")
        return position

    return walk


def _items(step: steps.ListStep) -> Walker:
    item = walker(step.item)
    width = steps.fixed_width(step.item) if steps.is_unchecked(step.item) else None
    cost, size, work = steps.item_cost(step.item), steps.item_size(step), steps.item_work(step.item)

    def walk(value: AvroValue, position: int) -> int:
        try:
            while True:
                count, position = read_block(value, position, cost)
                if not count:
                    return position
                if count * (width or 1) > value.end - position and width != 0:
                    raise BadAvroError(f"{count} items, but {value.end - position} bytes are left")
                value.work -= BLOCK_WORK + count * work
                if value.work < 0:
                    raise BadAvroError("it has too many items")
                if value.room is not None:
                    value.room.left -= count * size
                    if value.room.left < 0:
                        raise BadAvroError(value.room.why)
                if width is not None:
                    position += count * width
                    continue
                for _ in range(count):
                    position = item(value, position)
        except BadAvroError as error:
            error.path.append("{}" if step.is_map else "[]")
            raise

    return walk


def _record(step: steps.RecordStep) -> Walker:
    names = [field.name for field in step.fields]
    fields = [walker(field.step) for field in step.fields]

    def walk(value: AvroValue, position: int) -> int:
        index = 0
        try:
            for index, field in enumerate(fields):  # noqa: B007 - index of the field that raises
                position = field(value, position)
        except BadAvroError as error:
            if (name := names[index]) is not None:
                error.path.append(name)
            raise
        if step.reason:
            raise BadAvroError(step.reason)
        return position

    return walk


def _union(step: steps.UnionStep) -> Walker:
    branches = [each if isinstance(each, str) else walker(each) for each in step.branches]

    def walk(value: AvroValue, position: int) -> int:
        index, position = _read_varint(value, position)
        if not 0 <= index < len(branches):
            raise BadAvroError(f"branch {index}, but the union has {len(branches)}")
        branch = branches[index]
        if isinstance(branch, str):
            raise BadAvroError(branch)
        return branch(value, position)

    return walk


_WALKERS: Final[dict[type[steps.Step], Callable[[Any], Walker]]] = {
    steps.NullStep: lambda _: lambda _, position: position,
    steps.BooleanStep: _boolean,
    steps.IntegerStep: _integer,
    steps.FloatStep: lambda step: _fixed(step.size),
    steps.BytesStep: _bytes,
    steps.EnumStep: _enum,
    steps.ListStep: _items,
    steps.RecordStep: _record,
    steps.UnionStep: _union,
    steps.RecursiveStep: _recursive,
    steps.MemberStep: lambda step: walker(step.inner),
}
_TEXT = walker(steps.skip(AvroPrimitive("string")))
