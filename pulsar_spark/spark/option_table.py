"""``TABLE``: names, defaults and meanings of all options, for the code and for docs/options.md alike."""

from __future__ import annotations

from pulsar_spark.spark.connection_options import CONNECTION
from pulsar_spark.spark.option import Option
from pulsar_spark.spark.sink_options import SINK
from pulsar_spark.spark.source_options import SOURCE

TABLE: tuple[Option, ...] = (*CONNECTION, *SOURCE, *SINK)
