"""Option, Parser, Table and Values: one option, the options of one scope, and their parsed values.

This module owns the form of tables and the typed access to values. It must import neither options nor Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from pulsar_spark.errors import OptionError

T = TypeVar("T")


class Mode(Enum):
    """The mode of reading: batch or stream."""

    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """A parser that converts an option's text to its value.

    Attributes:
        accepts: accepted values, for the docs page.
        parse: function that returns the value, or raises ValueError with the accepted values.
    """

    accepts: str
    parse: Callable[[str], T]

    def __call__(self, text: str) -> T:
        """Parses a value."""
        return self.parse(text)


@dataclass(frozen=True, slots=True, eq=False)
class Option(Generic[T]):
    """One option of a table. Options are compared by identity.

    Attributes:
        default: text of the default; None: the default is None.
        only: mode of reading that accepts the option; None: both.
        secret: True if errors must not repeat the value.
    """

    name: str
    parser: Parser[Any]
    default: str | None
    doc: str
    only: Mode | None = None
    secret: bool = False


class Table(list[Option[Any]]):
    """The options of one scope, in the order of the docs page."""

    def add(
        self, name: str, parser: Parser[T], default: str, doc: str, *, only: Mode | None = None
    ) -> Option[T]:
        """Appends an option to the table; :class:`Option` explains the arguments."""
        line: Option[T] = Option(name, parser, default, doc, only)
        self.append(line)
        return line

    def add_optional(
        self, name: str, parser: Parser[T], doc: str, *, only: Mode | None = None, secret: bool = False
    ) -> Option[T | None]:
        """Appends an option without a default; its value is None if the user does not set it."""
        line: Option[T | None] = Option(name, parser, None, doc, only, secret)
        self.append(line)
        return line


@dataclass(frozen=True, slots=True)
class Values:
    """The values of all options of source or sink; ``values[option]`` has the option's type.

    ``given``: options that the user set, in the order of the tables.
    """

    by_name: Mapping[str, Any]
    given: tuple[Option[Any], ...]

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self.by_name[option.name]
        return value

    def refuse(self, options: Iterable[Option[Any]], why: str, advice: str) -> None:
        """Raises OptionError if the user set one of ``options``, because it would have no effect."""
        for option in options:
            if option in self.given:
                raise OptionError(f"option {option.name} has no effect {why}", advice=advice)
