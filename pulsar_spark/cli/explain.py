"""``pulsar_spark explain``: what an error code means, and what to do."""

from __future__ import annotations

import difflib
import sys
import textwrap
from typing import Any

from pulsar_spark.error_table import ErrorExplanation, explanations
from pulsar_spark.errors import OptionError

_PREFIX = "PULSAR_"
_INDENTED = textwrap.TextWrapper(100, initial_indent="    ", subsequent_indent="    ")

_DESCRIPTION = """
Print what an error code means, whether it is tried again, and what to do. The text of an error begins with
its code, such as [PULSAR_AUTH].
"""


def add_command(commands: Any) -> None:
    """Add ``explain`` to the subparsers of a command line."""
    parser = commands.add_parser("explain", help="what an error code means", description=_DESCRIPTION)
    parser.add_argument("code", nargs="?", help="such as PULSAR_AUTH, or AUTH; without it all are printed")
    parser.set_defaults(run=lambda parsed: _run(parsed.code))


def _run(code: str | None) -> None:
    table = {each.code: each for each in explanations()}
    found = list(table.values()) if code is None else [_find(table, code)]
    sys.stdout.write("\n".join(map(_text, found)))


def _find(table: dict[str, ErrorExplanation], given: str) -> ErrorExplanation:
    name = given.strip("[] ").upper().removeprefix(_PREFIX)
    if _PREFIX + name not in table:
        near = difflib.get_close_matches(name, [code.removeprefix(_PREFIX) for code in table], n=1)
        advice = f"Did you mean {_PREFIX}{near[0]}?" if near else "Without a code all of them are printed"
        raise OptionError(f"there is no error code {given[:100]!r}", advice=advice)
    return table[_PREFIX + name]


def _text(each: ErrorExplanation) -> str:
    again = "Tried again until the operation's time is over." if each.is_retriable else ""
    said = [each.meaning, again, f"What to do: {each.advice}"]
    return "\n".join([each.code, *(_INDENTED.fill(text) for text in said if text)]) + "\n"
