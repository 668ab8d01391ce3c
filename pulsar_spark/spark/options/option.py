"""Option, Table and Values: one option, the options of one scope, and the values read for them.

Owns the shape of a table and typed access to what was read. Must not know any option, nor Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Mode(Enum):
    """How a source is read."""

    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option(Generic[T]):
    """One line of a table; each is equal to itself only.

    Attributes:
        name: name that users write, in any case.
        kind: accepted values, for the docs page.
        parse: function that returns the value, or raises ValueError with the accepted ones.
        default: text of the default; None: the value is then None.
        doc: the meaning, one sentence or two.
        only: the mode of reading that it is for; None: both.
        secret: whether errors must not repeat the value.
    """

    name: str
    kind: str
    parse: Callable[[str], T]
    default: str | None
    doc: str
    only: Mode | None
    secret: bool


class Table:
    """The options of one scope, in the order of the docs page."""

    def __init__(self) -> None:
        self._options: list[Option[Any]] = []

    def __iter__(self) -> Iterator[Option[Any]]:
        return iter(self._options)

    def extend(self, table: Iterable[Option[Any]]) -> None:
        """Add the lines of another table at the end: it is a part of this scope."""
        self._options += table

    @overload
    def add(
        self,
        name: str,
        kind: str,
        parse: Callable[[str], T],
        default: str,
        doc: str,
        *,
        only: Mode | None = None,
        secret: bool = False,
    ) -> Option[T]: ...

    @overload
    def add(
        self,
        name: str,
        kind: str,
        parse: Callable[[str], T],
        default: None,
        doc: str,
        *,
        only: Mode | None = None,
        secret: bool = False,
    ) -> Option[T | None]: ...

    def add(
        self,
        name: str,
        kind: str,
        parse: Callable[[str], Any],
        default: str | None,
        doc: str,
        *,
        only: Mode | None = None,
        secret: bool = False,
    ) -> Option[Any]:
        """Add a line at the end: see :class:`Option`. Without a default its value may be None."""
        line = Option(name=name, kind=kind, parse=parse, default=default, doc=doc, only=only, secret=secret)
        self._options.append(line)
        return line


@dataclass(frozen=True, slots=True)
class Values:
    """The values of all options that a side takes; ``values[option]`` has the option's type.

    Attributes:
        by_name: the value of each option: what the user gave, or the default.
        given: the options that the user gave, in the order of their tables.
    """

    by_name: Mapping[str, Any]
    given: tuple[Option[Any], ...]

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self.by_name[option.name]
        return value
