"""Option: one line of the table of options, and what its lines have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any

CLIENT = "pulsar.client."
PRODUCER = "pulsar.producer."
READER = "pulsar.reader."


class Mode(Enum):
    """How a source is read."""

    BATCH = "batch"
    STREAM = "stream"


class Scope(Flag):
    """Which side takes an option."""

    SOURCE = 1
    SINK = 2
    BOTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One line of the table.

    Attributes:
        name: as users write it; looked up without regard to case.
        kind: what is accepted, for the docs page.
        parse: makes the value, or raises ValueError with what would be right.
        default: as a user would write it; None where there is none.
        secret: whether no error may repeat the value.
        scope: which side takes it.
        doc: the meaning, one sentence or two.
        only: the mode of reading that it is for; None: both.
    """

    name: str
    kind: str
    parse: Callable[[str], Any]
    default: str | None
    scope: Scope
    doc: str
    only: Mode | None = None
    secret: bool = False


def names_of(kind: type[Enum]) -> str:
    """What an option of these texts takes, for the docs page."""
    return ", ".join(f"`{member.value}`" for member in kind)


def option(
    name: str,
    kind: str,
    parse: Callable[[str], Any],
    default: str | None,
    doc: str,
    *,
    scope: Scope,
    prefix: str = "",
    only: Mode | None = None,
    secret: bool = False,
) -> Option:
    """Make a line of the table: see :class:`Option`; ``prefix`` stands before the name."""
    return Option(
        name=prefix + name,
        kind=kind,
        parse=parse,
        default=default,
        scope=scope,
        doc=doc,
        only=only,
        secret=secret,
    )
