"""Lets Spark find ``format("pulsar")`` by itself: it imports all installed modules named ``pyspark_*``.

Spark does so with no guard of its own: an exception here would take all Python data sources from the session.
"""

import logging

try:
    from pulsar_spark.spark.data_source import PulsarDataSource as DefaultSource
except ImportError as _error:
    logging.getLogger(__name__).warning("format('pulsar') is not available: %s", _error)
else:
    __all__ = ["DefaultSource"]
