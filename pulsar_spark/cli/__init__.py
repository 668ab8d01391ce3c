"""The command line, ``pulsar_spark COMMAND`` or ``python -m pulsar_spark COMMAND``; it needs no Spark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pulsar_spark.cli import admin, explain, messages, package, subscriptions
from pulsar_spark.errors import OptionError, PulsarError
from pulsar_spark.version import VERSION
from pulsar_spark_broker import command as broker


def parser() -> argparse.ArgumentParser:
    """Builds the parser of the command line; the parsed arguments' function ``run`` runs the command."""
    made = argparse.ArgumentParser(prog="pulsar_spark", description="Tools for pulsar_spark queries.")
    made.add_argument("--version", action="version", version=f"pulsar_spark {VERSION}")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    admin.add_command(commands)
    broker.add_command(commands)
    explain.add_commands(commands)
    messages.add_commands(commands)
    package.add_command(commands)
    subscriptions.add_command(commands)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0 success, 1 an error, 2 wrong usage.

    ``arguments``: command line without the program's name; None: the process's own.
    """
    known = parser()
    parsed = known.parse_args(arguments)
    try:
        parsed.run(parsed)
    except OptionError as error:
        known.exit(2, f"pulsar_spark: {error}\n")
    except (PulsarError, OSError) as error:
        sys.stderr.write(f"pulsar_spark: {error}\n")
        return 1
    return 0
