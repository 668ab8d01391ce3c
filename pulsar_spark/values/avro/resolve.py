"""Makes the steps that read a writer's type as a reader's, by Avro's schema resolution with three changes.

* A field that the writer does not have and that has no default is null.
* Names of records, enums and fixed types need not be equal, unless a union has several types of that kind,
  because a branch that one side lacks must not be read as another branch.
* Timestamps are read in the writer's unit, whatever unit the reader's type has. Other times, decimals and
  strings must have the same logical type, because Avro ignores logical types, and would read days as
  milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import pyarrow as pa

from pulsar_spark.errors import SchemaError, UnsupportedError
from pulsar_spark.values.avro import steps
from pulsar_spark.values.avro.avro_types import (
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    arrow_type,
    branch_name,
    field_path,
    is_member_struct,
    is_null,
    shown_name,
)
from pulsar_spark.values.avro.defaults import Defaults, has_null
from pulsar_spark.values.interfaces import type_name
from pulsar_spark.values.time_units import MICROS, time_kind, unit_of

# Writer's kind -> the other kinds that it may be read as. ``time``: Spark's type of times of day.
PROMOTIONS: Final = {
    "int": ("long", "float", "double", "time"),
    "long": ("float", "double", "time"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
MAX_PAIRS = 50_000  # maximum number of compared pairs of types
MAX_CONSTANTS = 64 << 10  # maximum bytes of the defaults that are added to a row

_WAY_OUT = "Read the topic with valueFormat=raw"
_KINDS: Final = {
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.time64("ns"): "time",
}


_ByName: TypeAlias = "dict[str, list[AvroType]]"


class _TargetError(SchemaError):
    """TIME is requested for a field that is not a time of day. Other branches of unions are not tried."""


def resolve(writer: AvroType, reader: AvroType, target: pa.DataType) -> steps.Step:
    """Returns the tree of steps that decodes values of the writer's type; see ``formats.decoder``.

    Raises:
        SchemaError: no value of the writer's type can be read as the reader's type, or the target does not
            fit; has the path of the field.
        UnsupportedError: the defaults are too large, or the schemas take too long to compare.
    """
    check_target(arrow_type(reader), target)
    step = _Resolver().step(writer, reader, target, "")
    if steps.added_text(step) > MAX_CONSTANTS:
        raise UnsupportedError(
            "the defaults that the topic's schema adds to each row are too long", advice=_WAY_OUT
        )
    return step


def check_target(whole: pa.DataType, target: pa.DataType, path: str = "") -> None:
    """Raises SchemaError, with the field's path, if a column of ``whole`` cannot be read as ``target``."""
    if whole.equals(target):
        return
    if pa.types.is_struct(whole) and pa.types.is_struct(target):
        names = Counter(field.name for field in target)
        for field in target:
            below = field_path(path, field.name)
            if names[field.name] > 1 or whole.get_field_index(field.name) < 0:
                raise SchemaError(
                    f"the topic's schema has no field {below!a}, or the field is requested twice"
                )
            check_target(whole.field(field.name).type, field.type, below)
    elif pa.types.is_list(whole) and pa.types.is_list(target):
        check_target(whole.value_type, target.value_type, f"{path}[]")
    elif pa.types.is_map(whole) and pa.types.is_map(target) and target.key_type == pa.string():
        check_target(whole.item_type, target.item_type, f"{path}{{}}")
    elif _KINDS.get(target) not in PROMOTIONS.get(_KINDS.get(whole, ""), ()):
        raise SchemaError(
            f"field {shown_name(path)} of the topic's schema is {type_name(whole)}, which cannot be "
            f"read as {type_name(target)}"
        )


def check_times(writer: AvroType | None, reader: AvroType, target: pa.DataType, path: str) -> None:
    """Raises SchemaError if both types are times of different kinds, or only the target is a time of day.

    Otherwise, for example, days would be read as milliseconds.
    """
    theirs, own = time_kind(writer), time_kind(reader)
    if pa.types.is_time(target) and not own.startswith("time-"):
        raise _TargetError(
            f"field {shown_name(path)} of the topic's schema is {shown(reader)}, which cannot be read as "
            f"{type_name(target)}"
        )
    if theirs and own and theirs != own:
        raise SchemaError(f"{_place(path)}: {theirs} cannot be read as {own}", advice=_WAY_OUT)


class _Resolver:
    def __init__(self) -> None:
        self._pairs = 0
        self._branches: dict[int, Branches] = {}  # branches of the reader's unions, by id() of the union
        self._defaults = Defaults(_WAY_OUT)

    def step(
        self,
        writer: AvroType,
        reader: AvroType,
        target: pa.DataType,
        path: str,
        *,
        has_siblings: bool = False,
    ) -> steps.Step:
        """Returns the step of a writer's type; ``has_siblings``: see :meth:`Branches.candidates`."""
        self._pairs += 1
        if self._pairs > MAX_PAIRS:
            raise UnsupportedError(
                "two versions of the topic's schema are too large to compare", advice=_WAY_OUT
            )
        if isinstance(writer, AvroUnion):
            return self._from_union(writer, reader, target, path)
        if isinstance(reader, AvroUnion):
            return self._to_union(writer, reader, target, path, has_siblings=has_siblings)
        fitting = Branches((reader,)).candidates(writer, has_siblings=has_siblings)
        if not isinstance(writer, AvroPrimitive) and next(fitting, None) is None:
            raise _mismatch(writer, reader, path)
        if isinstance(writer, AvroRecord) and isinstance(reader, AvroRecord):
            return self._record(writer, reader, target, path)
        if isinstance(writer, AvroArray) and isinstance(reader, AvroArray):
            item = self.step(writer.items, reader.items, target.value_type, f"{path}[]")
            return steps.ListStep(target, item)
        if isinstance(writer, AvroMap) and isinstance(reader, AvroMap):
            value = self.step(writer.values, reader.values, target.item_type, f"{path}{{}}")
            return steps.map_step(target, value)
        if isinstance(writer, AvroEnum) and isinstance(reader, AvroEnum):
            known = set(reader.symbols)
            symbols = (symbol if symbol in known else reader.default for symbol in writer.symbols)
            return steps.EnumStep(target, tuple(symbols))
        if isinstance(writer, AvroFixed) and isinstance(reader, AvroFixed) and writer.size == reader.size:
            _check_scale(writer, reader, path)
            return steps.BytesStep(target, writer.size, is_text=pa.types.is_string(target))
        if isinstance(writer, AvroPrimitive) and isinstance(reader, AvroPrimitive):
            return _primitive(writer, reader, target, path)
        raise _mismatch(writer, reader, path)

    def _record(
        self, writer: AvroRecord, reader: AvroRecord, target: pa.DataType, path: str
    ) -> steps.RecordStep:
        by_name = {field.name: field for field in reader.fields}
        matches = field_matches(writer, reader)
        indexes = {field.name: i for i, field in enumerate(target)}
        fields = []
        found = set()
        for field in writer.fields:
            wanted = matches.get(field.name)
            if wanted is None or wanted.name not in indexes:
                fields.append(steps.FieldStep(field.name, steps.skip(field.type), -1))
                continue
            found.add(wanted.name)
            index = indexes[wanted.name]
            below = field_path(path, wanted.name)
            step = self.step(field.type, wanted.type, target[index].type, below)
            fields.append(steps.FieldStep(field.name, step, index))
        constants, reason = [], ""
        for name, index in indexes.items():
            if name not in found:
                below = field_path(path, name)
                try:
                    constant = self._defaults.constant(by_name[name], target[index].type, below)
                except SchemaError as error:
                    if not path:
                        raise  # the root record lacks the field, so no value could be read
                    reason = error.what
                else:
                    constants.append((index, constant))
        return steps.RecordStep(target, tuple(fields), tuple(constants), reason)

    def _from_union(
        self, writer: AvroUnion, reader: AvroType, target: pa.DataType, path: str
    ) -> steps.UnionStep:
        branches: list[steps.Step | str] = []
        siblings = with_siblings(writer)
        for branch in writer.branches:
            has_siblings = type(branch) in siblings
            try:
                branches.append(self.step(branch, reader, target, path, has_siblings=has_siblings))
            except _TargetError:
                raise
            except SchemaError as error:
                # Removes the path, because ``explain`` puts the path of the bad field before this text.
                branches.append(error.what.removeprefix(f"{_place(path)}: "))
        if all(isinstance(branch, str) for branch in branches):
            raise _mismatch(writer, reader, path)
        return steps.UnionStep(target, tuple(branches))

    def _to_union(
        self,
        writer: AvroType,
        reader: AvroUnion,
        target: pa.DataType,
        path: str,
        *,
        has_siblings: bool,
    ) -> steps.Step:
        if is_null(writer) and has_null(reader):
            return steps.NullStep(target)
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = Branches(reader.branches)
        for branch in branches.candidates(writer, has_siblings=has_siblings):
            try:
                return self._member(writer, reader, branch, target, path)
            except _TargetError:
                raise
            except SchemaError:
                continue
        raise _mismatch(writer, reader, path)

    def _member(
        self, writer: AvroType, reader: AvroUnion, branch: AvroType, target: pa.DataType, path: str
    ) -> steps.Step:
        if not is_member_struct(reader):
            return self.step(writer, branch, target, path)
        index = target.get_field_index(f"member{self._branches[id(reader)].member(branch)}")
        if index < 0:
            self.step(writer, branch, arrow_type(branch), path)  # raises if no value fits this branch
            return steps.MemberStep(target, steps.skip(writer), -1)
        return steps.MemberStep(target, self.step(writer, branch, target[index].type, path), index)


def field_matches(writer: AvroRecord, reader: AvroRecord) -> dict[str, AvroField]:
    """Returns the name of a writer's field -> the reader's field that it is read as."""
    theirs = {field.name for field in writer.fields}
    found = {field.name: field for field in reader.fields if field.name in theirs}
    for field in reader.fields:
        if field.name not in theirs:
            for alias in field.aliases:
                if alias in theirs and alias not in found:
                    found[alias] = field
                    break
    return found


class Branches:
    """Finds the branches that a writer's type may be read as, in a time independent of their number.

    ``types``: branches of the reader's union, or the reader's only type.
    """

    def __init__(self, types: Iterable[AvroType]) -> None:
        self._by_kind: dict[type, list[AvroType]] = defaultdict(list)
        # Records, enums and fixed types by name, in the order of the branches.
        self._names: _ByName = defaultdict(list)
        self._aliases: _ByName = defaultdict(list)
        self._short_names: _ByName = defaultdict(list)
        self._members: dict[int, int] = {}  # indexes among the branches without null, by id() of the branch
        for each in types:
            if is_null(each):
                continue
            self._members[id(each)] = len(self._members)
            self._by_kind[type(each)].append(each)
            if isinstance(each, AvroRecord | AvroEnum | AvroFixed):
                self._names[each.name].append(each)
                for alias in each.aliases:
                    self._aliases[alias].append(each)
                for name in {_short(name) for name in (each.name, *each.aliases)}:
                    self._short_names[name].append(each)

    def member(self, branch: AvroType) -> int:
        """Returns the index of a branch among the members, which are the branches without null."""
        return self._members[id(branch)]

    def candidates(self, writer: AvroType, *, has_siblings: bool = False) -> Iterator[AvroType]:
        """Yields the branches that ``writer`` may be read as; the best matches come first.

        Args:
            writer: type that is not a union.
            has_siblings: True if ``writer`` is in a union with more types of its kind, such as two records.
        """
        same = self._by_kind[type(writer)]
        if isinstance(writer, AvroPrimitive):
            for kinds in ((writer.kind,), PROMOTIONS.get(writer.kind, ())):
                yield from (branch for branch in same if branch_name(branch) in kinds)
        elif len(same) < 2 and not has_siblings:
            yield from same
        else:
            name = branch_name(writer)
            found: set[int] = set()
            for branches in (self._names[name], self._aliases[name], self._short_names[_short(name)]):
                for branch in branches:
                    if type(branch) is type(writer) and id(branch) not in found:
                        found.add(id(branch))
                        yield branch

    def renamed(self, writer: AvroType) -> AvroType | None:
        """Returns the branch of the same class whose name is an alias of ``writer``; None: no such branch."""
        old = (branch for alias in getattr(writer, "aliases", ()) for branch in self._names.get(alias, ()))
        return next((branch for branch in old if type(branch) is type(writer)), None)


def with_siblings(avro: AvroType) -> set[type]:
    """Returns the classes, such as AvroRecord, of which a union has several branches."""
    if not isinstance(avro, AvroUnion):
        return set()
    return {kind for kind, count in Counter(map(type, avro.branches)).items() if count > 1}


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _primitive(writer: AvroPrimitive, reader: AvroPrimitive, target: pa.DataType, path: str) -> steps.Step:
    if reader.kind != writer.kind:
        # Decimals and text are not read as each other; Avro would do so, because it ignores logical types.
        is_decimal = "decimal" in (writer.logical, writer.form, reader.logical, reader.form)
        if is_decimal or reader.kind not in PROMOTIONS.get(writer.kind, ()):
            raise _mismatch(writer, reader, path)
    if writer.kind in ("int", "long"):
        check_times(writer, reader, target, path)
        unit = MICROS
        if "timestamp" in reader.logical or pa.types.is_time(target):
            unit = unit_of(writer if "timestamp" in writer.logical else reader, target)
        return steps.IntegerStep(target, writer.kind == "int", unit, through_float=reader.kind == "float")
    _check_scale(writer, reader, path)
    return steps.primitive_step(writer.kind, target)


def _check_scale(writer: AvroPrimitive | AvroFixed, reader: AvroPrimitive | AvroFixed, path: str) -> None:
    if writer.logical == reader.logical == "decimal" and writer.scale != reader.scale:
        raise SchemaError(
            f"field {path!a}: a decimal of scale {writer.scale} cannot be read as one of scale "
            f"{reader.scale}",
            advice=_WAY_OUT,
        )


def _mismatch(writer: AvroType, reader: AvroType, path: str) -> SchemaError:
    what = f"{_place(path)}: {shown(writer)} cannot be read as {shown(reader)}"
    return SchemaError(what, advice=_WAY_OUT)


def _place(path: str) -> str:
    return f"field {path[:100]!a}" if path else "the root"


def shown(avro: AvroType) -> str:
    """Returns the name of a type in errors."""
    if isinstance(avro, AvroUnion):
        return f"a union of {', '.join(shown(branch) for branch in avro.branches[:5])}"
    if isinstance(avro, AvroPrimitive):
        return avro.logical or avro.form or avro.kind
    name = ascii(branch_name(avro)[:100])
    if isinstance(avro, AvroFixed):
        return f"fixed {name} of {avro.size} bytes"
    if isinstance(avro, AvroRecord | AvroEnum):
        return f"{'record' if isinstance(avro, AvroRecord) else 'enum'} {name}"
    return name.strip("'")


def new_values(newer: AvroType, older: AvroType, path: str = "", *, has_tags: bool = True) -> Iterator[str]:
    """Yields descriptions of the values of a newer type that the older type cannot hold, at any depth.

    Such values are nulls, symbols, and branches of a union that no branch of the older type reads.

    Args:
        has_tags: True if a payload has the index of its branch, as in Avro; False for JSON, where a renamed
            branch is found by its fields.

    Yields:
        Texts such as ``x as null``, ``e as 'Q'`` and ``u as record 'R'``.
    """
    where = path or "the value"
    if has_null(newer) and not has_null(older):
        yield f"{where} as null"
    wanted = Branches(_branches(older))
    siblings = with_siblings(newer)
    for each in _branches(newer):
        known = next(wanted.candidates(each, has_siblings=type(each) in siblings), None)
        if known is None and not has_tags:
            known = wanted.renamed(each)
        if isinstance(each, AvroRecord) and isinstance(known, AvroRecord):
            yield from _of_record(each, known, path, has_tags=has_tags)
        elif isinstance(each, AvroArray) and isinstance(known, AvroArray):
            yield from new_values(each.items, known.items, f"{path}[]", has_tags=has_tags)
        elif isinstance(each, AvroMap) and isinstance(known, AvroMap):
            yield from new_values(each.values, known.values, f"{path}{{}}", has_tags=has_tags)
        elif isinstance(each, AvroEnum) and isinstance(known, AvroEnum):
            symbols = set(known.symbols)
            yield from (f"{where} as {symbol[:100]!a}" for symbol in each.symbols if symbol not in symbols)
        elif has_tags and not is_null(each) and not _is_read(each, known):
            yield f"{where} as {shown(each)}"


def _is_read(newer: AvroType, older: AvroType | None) -> bool:
    if older is None:
        return False
    try:
        resolve(newer, older, arrow_type(older))
    except SchemaError:
        return False
    except UnsupportedError:  # a type without a column cannot be compared, and is not reported
        pass
    return True


def _of_record(newer: AvroRecord, older: AvroRecord, path: str, *, has_tags: bool) -> Iterator[str]:
    by_name = {field.name: field for field in older.fields}
    by_alias = {alias: field for field in older.fields for alias in field.aliases}
    for field in newer.fields:
        known = by_name.get(field.name) or by_alias.get(field.name)
        if known is not None:
            below = field_path(path, known.name)
            yield from new_values(field.type, known.type, below, has_tags=has_tags)


def _branches(avro: AvroType) -> tuple[AvroType, ...]:
    return avro.branches if isinstance(avro, AvroUnion) else (avro,)
