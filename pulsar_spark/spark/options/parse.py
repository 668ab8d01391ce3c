"""The reading of what a user gave: names, values and defaults by the tables of a side.

Owns what is the same for all options. The meaning of each option is in its table, and checks of combinations
are beside that.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TypeVar

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.connection import CONNECTION, SERVICE_URL
from pulsar_spark.spark.options.option import Mode, Option, Values
from pulsar_spark.spark.options.sink import SINK, SinkOptions, sink_options
from pulsar_spark.spark.options.source import SOURCE, SourceOptions, source_options
from pulsar_spark.spark.other_names import advice_for, advice_for_prefix

T = TypeVar("T")

_TABLES = {"source": SOURCE, "sink": SINK}

# Minimum similarity (0 to 1) of two names for a suggestion, without their common prefixes.
_NEAR = 0.75
_PREFIX = re.compile(r"pulsar\.\w+\.")

# What Spark itself puts among the options of a side: those of writeStream.
_SPARKS_OWN = {"source": frozenset[str](), "sink": frozenset({"checkpointlocation", "queryname"})}


def parse_source(options: Mapping[str, str], mode: Mode | None) -> SourceOptions:
    """Read the options of ``spark.read`` and ``spark.readStream``.

    Args:
        options: options of the user.
        mode: None where Spark does not say which it will be, when it asks for the schema: what is for one
            mode only is then let through, and the start is that of a batch.

    Raises:
        OptionError: an unknown name (with a known one where one is near), a bad value, a missing option,
            or options that cannot be used together.
    """
    values = _read(options, "source")
    if mode is not None and SERVICE_URL not in values.given:
        # Spark has not asked for the schema, so it is the user's or that of a table.
        raise OptionError(
            "the option service.url is missing. A table has no options if it was made with listed columns, "
            "AS SELECT, saveAsTable or toTable",
            advice='Set .option("service.url", "pulsar://host:6650"), or create the table with OPTIONS (...) '
            "and without columns",
        )
    for option in values.given:
        if mode is not None and option.only not in (None, mode):
            raise OptionError(
                f"option {option.name} is not allowed for reading a {mode.value}", advice="Leave it out"
            )
    return source_options(values, mode)


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of ``df.write`` and ``df.writeStream``.

    Args:
        options: options of the user.

    Raises:
        OptionError: an unknown name (with a known one where one is near), a bad value, a missing option,
            or options that cannot be used together.
    """
    values = _read(options, "sink")
    if not values.given:
        raise OptionError(
            "the option service.url is missing. A write does not use the options of its table",
            advice='Set .option("service.url", "pulsar://host:6650") and .option("topic", ...), in SQL '
            "INSERT INTO t WITH (...). Instead of CREATE TABLE ... AS SELECT, create the table, then insert",
        )
    return sink_options(values)


def _read(options: Mapping[str, str], side: str) -> Values:
    known = {option.name.lower(): option for option in (*CONNECTION, *_TABLES[side])}
    texts = {name.lower(): text.strip() for name, text in options.items()}
    for name in sorted(texts.keys() - known.keys() - _SPARKS_OWN[side]):
        raise _unknown(name, side, {name: option.name for name, option in known.items()})
    by_name = {}
    for name, option in known.items():
        text = texts.get(name, option.default)
        by_name[option.name] = None if text is None else _value(option, text)
    return Values(by_name, tuple(option for name, option in known.items() if name in texts))


def _value(option: Option[T], text: str) -> T:
    try:
        return option.parse(text)
    except ValueError as error:
        given = "wrong" if option.secret else repr(text[:500])
        raise OptionError(f"option {option.name} is {given}", advice=f"It must be {error}") from None


def _unknown(name: str, side: str, known: Mapping[str, str]) -> OptionError:
    """The error for a name in lower case; ``known`` has the names of the side by those in lower case."""
    for other, table in _TABLES.items():
        for option in table:
            if option.name.lower() == name:
                what = f"option {option.name} is not one of the {side}"
                return OptionError(what, advice=f"It is an option of the {other}")
    advice = advice_for(name) or _nearest(name, known) or advice_for_prefix(name)
    return OptionError(
        f"the {side} has no option {name!r}",
        advice=advice or f"docs/options.md lists all options of the {side}",
    )


def _nearest(name: str, known: Mapping[str, str]) -> str | None:
    """A question after the known name that is like this one, except for the prefix; None where none is."""
    stems = {_PREFIX.sub("", each): each for each in known}
    near = difflib.get_close_matches(_PREFIX.sub("", name), stems, n=1, cutoff=_NEAR)
    return f"Did you mean {known[stems[near[0]]]}?" if near else None
