"""Python workers that Spark reuses for many tasks."""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def exempt_modules() -> None:
    """In a worker, exempt what is loaded so far from garbage collection.

    PySpark's daemon collects all garbage after each run of a worker that it reuses. Most of what it looks
    through are modules, which stay as long as the worker does.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON:
        gc.collect()
        gc.freeze()
