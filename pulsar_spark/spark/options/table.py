"""``TABLE``: names, defaults and meanings of all options, for the code and for docs/options.md alike."""

from __future__ import annotations

from pulsar_spark.spark.options.connection import CONNECTION
from pulsar_spark.spark.options.option import Option
from pulsar_spark.spark.options.sink import SINK
from pulsar_spark.spark.options.source import SOURCE

TABLE: tuple[Option, ...] = (*CONNECTION, *SOURCE, *SINK)
