"""``pulsar_spark explain`` and ``options``: show the meaning of error codes, and of options."""

from __future__ import annotations

import difflib
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pulsar_spark.errors import OptionError, PulsarError

_PREFIX = "PULSAR_"
_INDENTED = textwrap.TextWrapper(100, initial_indent="    ", subsequent_indent="    ")

_DESCRIPTION = """
Print what an error code means, whether the operation is retried, and what to do. The text of an error starts
with its code, such as [PULSAR_AUTH].
"""


def add_commands(commands: Any) -> None:
    """Adds ``explain`` and ``options`` to the subparsers of a command line."""
    parser = commands.add_parser("explain", help="explain an error code", description=_DESCRIPTION)
    parser.add_argument(
        "code", nargs="?", help="an error code, such as PULSAR_AUTH or AUTH (default: print all)"
    )
    parser.set_defaults(run=lambda parsed: _explain(parsed.code))
    parser = commands.add_parser(
        "options",
        help="show the options of the source and the sink",
        description="Show the options of the source and the sink: what each takes, its default, its meaning.",
    )
    parser.add_argument("name", nargs="?", help="name of an option, or a part of it (default: print all)")
    parser.set_defaults(run=lambda parsed: _show_options(parsed.name or ""))


def _explain(code: str | None) -> None:
    table = {each.code: each for each in explanations()}
    found = list(table.values()) if code is None else [_find(table, code)]
    sys.stdout.write("\n".join(map(_text, found)))


def _find(table: dict[str, ErrorExplanation], given: str) -> ErrorExplanation:
    name = given.strip("[] ").upper().removeprefix(_PREFIX)
    if _PREFIX + name not in table:
        near = _nearest(name, [code.removeprefix(_PREFIX) for code in table])
        advice = f"Did you mean {_PREFIX}{near}?" if near else "Leave the code out to print all of them"
        raise OptionError(f"there is no error code {given[:100]!r}", advice=advice)
    return table[_PREFIX + name]


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the name most similar to a mistyped name; None if no name is similar."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1)), None)


def _text(each: ErrorExplanation) -> str:
    again = "The operation is retried until its timeout." if each.is_retriable else ""
    said = [each.meaning, again, f"What to do: {each.advice}"]
    return "\n".join([each.code, *(_INDENTED.fill(text) for text in said if text)]) + "\n"


class ErrorExplanation(NamedTuple):
    """The explanation of one error code; a row of the table in ``docs/errors.md``."""

    code: str
    meaning: str
    is_retriable: bool
    advice: str


def explanations() -> list[ErrorExplanation]:
    """Returns the explanations of all codes, in the order of the classes in ``errors.py``."""
    return [
        ErrorExplanation(
            kind.code,
            (kind.__doc__ or "").splitlines()[0].replace("``", "`"),
            kind.retriable,
            (kind.usual_advice or "See the text of the error").rstrip(".") + ".",
        )
        for kind in _kinds(PulsarError)
    ]


def _kinds(base: type[PulsarError]) -> Iterator[type[PulsarError]]:
    """Yields all subclasses in the module of ``base``, in source order, each before its own subclasses."""
    for kind in base.__subclasses__():
        if kind.__module__ == base.__module__:
            yield kind
            yield from _kinds(kind)


def _show_options(name: str) -> None:
    from pulsar_spark.spark.options.connection import CONNECTION  # noqa: PLC0415 - only this needs Spark
    from pulsar_spark.spark.options.sink import SINK  # noqa: PLC0415
    from pulsar_spark.spark.options.source import SOURCE  # noqa: PLC0415

    tables = {"source and sink": CONNECTION, "source": SOURCE, "sink": SINK}
    all_options = [(scope, option) for scope, table in tables.items() for option in table]
    found = [(scope, option) for scope, option in all_options if name.lower() in option.name.lower()]
    if not found:
        near = _nearest(name, [option.name for _, option in all_options])
        advice = f"Did you mean {near}?" if near else "Leave the name out to print all of them"
        raise OptionError(f"there is no option {name[:100]!r}", advice=advice)
    for scope, option in found:
        default = "no default" if option.default is None else f"default: {option.default}"
        only = f", {option.only.value} only" if option.only else ""
        sys.stdout.write(f"{option.name} ({scope}{only}; {option.parser.accepts}; {default})\n")
        sys.stdout.write(f"{_INDENTED.fill(option.doc)}\n")
