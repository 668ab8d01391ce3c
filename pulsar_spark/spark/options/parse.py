"""Parses the user's options by the tables of source or sink: names, values and defaults.

Owns the rules that all options share. The meaning of each option is in its table, and checks of combinations
are in the table's module.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.connection import CONNECTION, SERVICE_URL
from pulsar_spark.spark.options.option import Mode, Option, Values
from pulsar_spark.spark.options.sink import SINK, SinkOptions, sink_options
from pulsar_spark.spark.options.source import SOURCE, SourceOptions, source_options
from pulsar_spark.spark.other_names import advice_for, advice_for_prefix

_TABLES = {"source": SOURCE, "sink": SINK}

# Minimum similarity (0 to 1) of a name to suggest; prefixes such as ``pulsar.client.`` are not compared.
_NEAR = 0.75
_PREFIX = re.compile(r"pulsar\.\w+\.")

# Options of writeStream that Spark adds to the sink's options.
_SPARKS_OWN = {"source": frozenset[str](), "sink": frozenset({"checkpointlocation", "queryname"})}


def parse_source(options: Mapping[str, str], mode: Mode | None) -> SourceOptions:
    """Parses the options of ``spark.read`` and ``spark.readStream``.

    Args:
        mode: mode of reading; None: not known yet, because Spark requests the schema first. Then options
            of either mode are accepted, and the start is a batch's.

    Raises:
        OptionError: an unknown name (the text suggests a similar one), a bad value, a missing option, or
            options that cannot be used together.
    """
    values = _read(options, "source")
    if mode is not None and SERVICE_URL not in values.given:
        # Spark did not request the schema, so the schema is the user's or a table's.
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
    """Parses the options of ``df.write`` and ``df.writeStream``."""
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


def _value(option: Option[Any], text: str) -> Any:
    try:
        return option.parser(text)
    except ValueError as error:
        given = "wrong" if option.secret else repr(text[:500])
        raise OptionError(f"option {option.name} is {given}", advice=f"It must be {error}") from None


def _unknown(name: str, side: str, known: Mapping[str, str]) -> OptionError:
    """Returns the error for an unknown option; ``name`` and the keys of ``known`` are in lower case."""
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
    """Returns a question that suggests the most similar name; None: no name is similar."""
    stems = {_PREFIX.sub("", each): each for each in known}
    near = difflib.get_close_matches(_PREFIX.sub("", name), stems, n=1, cutoff=_NEAR)
    return f"Did you mean {known[stems[near[0]]]}?" if near else None
