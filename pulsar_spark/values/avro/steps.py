"""Steps: a tree with a node for each type of the writer's schema, which says how its values are decoded.

``resolve`` makes the tree. ``type`` of a step is the type of its column. None: the query does not need the
value, so readers only find the value's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroRecursive,
    AvroType,
    AvroUnion,
)
from pulsar_spark.values.avro.defaults import Constant
from pulsar_spark.values.time_units import MICROS, TimeUnit
from pulsar_spark.values.value_bounds import item_width

# Bytes of added text (see ``added_text``) for which a list item uses 1 byte of ``AvroPayloads.credit``.
TEXT_PER_BYTE = 64


@dataclass(frozen=True, slots=True)
class NullStep:
    """A null, which has no bytes."""

    type: pa.DataType | None


@dataclass(frozen=True, slots=True)
class BooleanStep:
    """A boolean: one byte, 0 or 1."""

    type: pa.DataType | None


@dataclass(frozen=True, slots=True)
class IntegerStep:
    """An int or long: a varint.

    Attributes:
        is_int: True if the number must fit into 32 bits.
        through_float: True if the number is rounded to a 32-bit float first.
    """

    type: pa.DataType | None
    is_int: bool
    unit: TimeUnit = MICROS
    through_float: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """Returns the least and the largest number that the column can hold."""
        if self.is_int and self.unit == MICROS:
            return -(1 << 31), (1 << 31) - 1
        return self.unit.bounds(self.type)


@dataclass(frozen=True, slots=True)
class FloatStep:
    """A float or double: ``size`` bytes, 4 or 8."""

    type: pa.DataType | None
    size: int


@dataclass(frozen=True, slots=True)
class BytesStep:
    """Binary, text or a decimal: bytes after their length, or ``size`` bytes.

    Attributes:
        size: size of Avro's ``fixed``; None: the length precedes the bytes.
        is_text: True if the bytes must be UTF-8.
    """

    type: pa.DataType | None
    size: int | None
    is_text: bool


@dataclass(frozen=True, slots=True)
class EnumStep:
    """An enum: a varint that is the index of a symbol.

    ``symbols``: the reader's symbol for each index of the writer; None: the reader has no such symbol.
    """

    type: pa.DataType | None
    symbols: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ListStep:
    """Blocks of items: an array; or a map, whose items are records of a key and a value."""

    type: pa.DataType | None
    item: Step
    is_map: bool = False


@dataclass(frozen=True, slots=True)
class FieldStep:
    """A field of the writer's record.

    Attributes:
        name: name for errors; None for the key and the value of a map.
        index: index in the struct; -1: the struct lacks the field.
    """

    name: str | None = field(compare=False)
    step: Step
    index: int


@dataclass(frozen=True, slots=True)
class RecordStep:
    """A record: the writer's fields one after the other.

    Attributes:
        constants: index in the struct and default, for each field that the writer does not have.
        reason: error text if such a field has an invalid default, which makes every value bad; empty: none.
    """

    type: pa.DataType | None
    fields: tuple[FieldStep, ...]
    constants: tuple[tuple[int, Constant], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UnionStep:
    """A union: a varint that is the index of a branch, and a value of that branch.

    ``branches``: step of each branch, or the reason why the reader cannot read the branch.
    """

    type: pa.DataType | None
    branches: tuple[Step | str, ...]


@dataclass(frozen=True, slots=True)
class MemberStep:
    """A value whose column is one field of the struct for a reader's union.

    Attributes:
        type: type of the struct; not compared, because comparing it for each of many members takes long.
        index: index of the field in the struct; -1: the struct lacks the member.
    """

    type: pa.DataType = field(compare=False)
    inner: Step
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class RecursiveStep:
    """A record within its own definition. It is never decoded; only its end is found."""

    avro: AvroRecursive

    @property
    def type(self) -> None:
        """Returns None, because the record has no column."""
        return


Step: TypeAlias = (
    "NullStep | BooleanStep | IntegerStep | FloatStep | BytesStep | EnumStep | ListStep | RecordStep | "
    "UnionStep | MemberStep | RecursiveStep"
)


def map_step(kind: pa.MapType | None, value: Step) -> ListStep:
    """Returns the step of a map; ``kind``: type of its column, None: no column. ``value``: step of values."""
    key = pa.string() if kind is not None else None
    entry = pa.struct([("key", key), ("value", kind.item_type)]) if kind is not None else None
    fields = (
        FieldStep(None, BytesStep(key, None, is_text=kind is not None), 0),
        FieldStep(None, value, 1),
    )
    return ListStep(kind, RecordStep(entry, fields), is_map=True)


def skip(writer: AvroType) -> Step:
    """Returns the step that only finds the ends of values of a type, because they have no column."""
    if isinstance(writer, AvroRecursive):
        return RecursiveStep(writer)
    if isinstance(writer, AvroRecord):
        fields = (FieldStep(each.name, skip(each.type), -1) for each in writer.fields)
        return RecordStep(None, tuple(fields))
    if isinstance(writer, AvroUnion):
        return UnionStep(None, tuple(skip(branch) for branch in writer.branches))
    if isinstance(writer, AvroArray):
        return ListStep(None, skip(writer.items))
    if isinstance(writer, AvroMap):
        return map_step(None, skip(writer.values))
    if isinstance(writer, AvroEnum):
        return EnumStep(None, writer.symbols)
    if isinstance(writer, AvroFixed):
        return BytesStep(None, writer.size, is_text=False)
    return primitive_step(writer.kind, None)


def primitive_step(kind: str, target: pa.DataType | None) -> Step:
    """Returns the step of a primitive type; ``target``: type of the column, None: no column."""
    if kind == "null":
        return NullStep(target)
    if kind == "boolean":
        return BooleanStep(target)
    if kind in ("int", "long"):
        return IntegerStep(target, kind == "int")
    if kind in ("float", "double"):
        return FloatStep(target, 4 if kind == "float" else 8)
    is_text = target is not None and (kind == "string" or pa.types.is_string(target))
    return BytesStep(target, None, is_text)


def parts_of(step: Step) -> Sequence[Step]:
    """Returns the steps directly within a step, without branches that the reader cannot read."""
    if isinstance(step, ListStep):
        return (step.item,)
    if isinstance(step, RecordStep):
        return [each.step for each in step.fields]
    if isinstance(step, UnionStep):
        return [each for each in step.branches if not isinstance(each, str)]
    return (step.inner,) if isinstance(step, MemberStep) else ()


def fixed_width(step: Step) -> int | None:
    """Returns the size of each value in bytes; None: values differ in size."""
    if isinstance(step, RecordStep | MemberStep):
        widths = [fixed_width(each) for each in parts_of(step)]
        return None if None in widths else sum(width or 0 for width in widths)
    if isinstance(step, NullStep | BooleanStep):
        return int(isinstance(step, BooleanStep))
    return step.size if isinstance(step, FloatStep | BytesStep) else None


def is_unchecked(step: Step) -> bool:
    """Whether every sequence of ``fixed_width(step)`` bytes is a valid value, so values need no check."""
    if isinstance(step, RecordStep | MemberStep):
        return not getattr(step, "reason", "") and all(map(is_unchecked, parts_of(step)))
    if isinstance(step, BytesStep):
        is_plain = step.type is None or not (step.is_text or pa.types.is_decimal(step.type))
        return step.size is not None and is_plain
    if isinstance(step, BooleanStep):
        return step.type is None
    return isinstance(step, NullStep | FloatStep)


def is_varint(step: Step) -> bool:
    """Whether each value is one varint."""
    if isinstance(step, MemberStep):
        return is_varint(step.inner)
    return isinstance(step, IntegerStep | EnumStep)


def item_cost(step: Step) -> int:
    """Returns the bytes of credit that a list item uses; see ``AvroPayloads.credit``."""
    return (fixed_width(step) == 0) + added_text(step) // TEXT_PER_BYTE


def item_size(step: ListStep) -> int:
    """Returns the maximum column bytes of an item, without its nested items and the payload's text.

    0: the reader skips the list.
    """
    return 0 if step.type is None else item_width(step.type) + added_text(step.item)


def item_work(step: Step) -> float:
    """Returns the units of work of reading a list item, without the items of lists inside it."""
    if is_varint(step):
        return 0.5
    if isinstance(step, RecordStep):
        return 1 + sum(map(item_work, parts_of(step)))
    if isinstance(step, UnionStep):
        return 1 + max(map(item_work, parts_of(step)))
    if isinstance(step, MemberStep):
        return item_work(step.inner)
    return 0 if is_unchecked(step) else 1


def lists(step: Step) -> Iterator[tuple[ListStep, int]]:
    """Yields all lists and maps in a step, each with the minimum payload bytes of an item."""
    if isinstance(step, ListStep):
        yield step, _least_size(step.item)
    for each in parts_of(step):
        yield from lists(each)


def _least_size(step: Step) -> int:
    if isinstance(step, RecordStep | MemberStep):
        return sum(map(_least_size, parts_of(step)))
    if isinstance(step, UnionStep):
        return 1 + min(map(_least_size, parts_of(step)), default=0)
    width = fixed_width(step)
    return 1 if width is None else width


def added_text(step: Step) -> int:
    """Returns the maximum bytes that the schema adds to a value: symbols of enums, and defaults."""
    if isinstance(step, EnumStep):
        symbols = () if step.type is None else step.symbols
        return max((len(each.encode()) for each in symbols if each), default=0)
    if isinstance(step, UnionStep):
        return max(map(added_text, parts_of(step)))
    if not isinstance(step, RecordStep | MemberStep):
        return 0
    total = sum(map(added_text, parts_of(step)))
    for _, constant in step.constants if isinstance(step, RecordStep) else ():
        total += constant.column.nbytes
    return total
