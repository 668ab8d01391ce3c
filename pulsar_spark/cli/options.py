"""``pulsar_spark options``: show the options of the source and the sink."""

from __future__ import annotations

import sys
from typing import Any

from pulsar_spark.cli.explain import INDENTED, nearest
from pulsar_spark.errors import OptionError


def add_command(commands: Any) -> None:
    """Adds ``options`` to the subparsers of a command line."""
    parser = commands.add_parser(
        "options",
        help="show the options of the source and the sink",
        description="Show the options of the source and the sink: what each takes, its default, its meaning.",
    )
    parser.add_argument("name", nargs="?", help="of an option, or a part of it (default: print all)")
    parser.set_defaults(run=lambda parsed: _run(parsed.name or ""))


def _run(name: str) -> None:
    from pulsar_spark.spark.options.connection import CONNECTION  # noqa: PLC0415 - only this needs Spark
    from pulsar_spark.spark.options.sink import SINK  # noqa: PLC0415
    from pulsar_spark.spark.options.source import SOURCE  # noqa: PLC0415

    tables = {"source and sink": CONNECTION, "source": SOURCE, "sink": SINK}
    all_options = [(scope, option) for scope, table in tables.items() for option in table]
    found = [(scope, option) for scope, option in all_options if name.lower() in option.name.lower()]
    if not found:
        near = nearest(name, [option.name for _, option in all_options])
        advice = f"Did you mean {near}?" if near else "Leave the name out to print all of them"
        raise OptionError(f"there is no option {name[:100]!r}", advice=advice)
    for scope, option in found:
        default = "no default" if option.default is None else f"default: {option.default}"
        only = f", {option.only.value} only" if option.only else ""
        sys.stdout.write(f"{option.name} ({scope}{only}; {option.parser.accepts}; {default})\n")
        sys.stdout.write(f"{INDENTED.fill(option.doc)}\n")
