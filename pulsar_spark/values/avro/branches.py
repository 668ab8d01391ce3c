"""The branches of a reader's union, by what a writer's type is called."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from pulsar_spark.values.avro.avro_types import (
    AvroEnum,
    AvroFixed,
    AvroPrimitive,
    AvroRecord,
    AvroType,
    AvroUnion,
    branch_name,
    is_null,
)

# Kinds that a writer's may become.
PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class Branches:
    """Finds the branches that a type may be read as; takes no longer with many of them.

    Args:
        types: the branches of a union, or the one type that is none.
    """

    def __init__(self, types: Iterable[AvroType]) -> None:
        self._by_kind: dict[type, list[AvroType]] = defaultdict(list)
        # Of records, enums and fixed types, those that come first first.
        names: tuple[dict[str, list[AvroType]], ...] = (
            defaultdict(list),
            defaultdict(list),
            defaultdict(list),
        )
        self._names, self._aliases, self._short_names = names
        self._members: dict[int, int] = {}  # by id
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
        """Which of the members, that is the branches without null, one of them is."""
        return self._members[id(branch)]

    def candidates(self, writer: AvroType, *, has_siblings: bool = False) -> Iterator[AvroType]:
        """Branches that a type may be, best first: by name, alias, short name, kind; then promotions.

        Args:
            writer: a type that is no union.
            has_siblings: whether it is one of several of its kind in a union of the writer.
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


def with_siblings(avro: AvroType) -> set[type]:
    """The kinds of types of which a union has several."""
    if not isinstance(avro, AvroUnion):
        return set()
    return {kind for kind, count in Counter(map(type, avro.branches)).items() if count > 1}


def _short(name: str) -> str:
    return name.rpartition(".")[2]
