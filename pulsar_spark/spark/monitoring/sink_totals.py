"""SinkTotals: what a query has written, passed from the process that commits to the one that listens."""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

from pulsar_spark.spark.monitoring.driver_files import DriverFiles

_files = DriverFiles("pulsar_spark_sinks")

_log = logging.getLogger(__name__)


class SinkTotals(NamedTuple):
    """Sums over micro-batches.

    Attributes:
        messages: messages acknowledged by brokers.
        bytes: stored bytes of their entries.
        possible_duplicates: maximum number of messages that may be duplicated.
        retries: number of requests to brokers that tasks have repeated.
    """

    messages: int = 0
    bytes: int = 0
    possible_duplicates: int = 0
    retries: int = 0

    def plus(self, other: SinkTotals) -> SinkTotals:
        """Add ``other``."""
        return SinkTotals(*(one + two for one, two in zip(self, other, strict=True)))

    def minus(self, other: SinkTotals) -> SinkTotals:
        """Subtract ``other``."""
        return SinkTotals(*(one - two for one, two in zip(self, other, strict=True)))


def add_sink_totals(query: str, batch: SinkTotals) -> None:
    """Add the totals of a micro-batch; only one process of a query may call it at a time."""
    if not any(batch):
        return
    try:
        _files.write(query, json.dumps(_read(query).plus(batch)))
    except (OSError, RuntimeError, ValueError) as error:
        _log.warning("query %s: the listener does not see what the sink has written: %s", query, error)


def read_sink_totals(query: str) -> SinkTotals:
    """The totals of a query since Spark was started; all 0 if Spark does not run beside this process."""
    try:
        return _read(query)
    except (OSError, RuntimeError, ValueError):
        return SinkTotals()


def _read(query: str) -> SinkTotals:
    text = _files.read(query)
    return SinkTotals() if text is None else SinkTotals(*json.loads(text))
