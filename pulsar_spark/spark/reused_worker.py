"""Python workers that Spark reuses for many tasks."""

from __future__ import annotations

import gc
import os
import sys

_DAEMON = "pyspark.daemon"
_REUSED = "SPARK_REUSE_WORKER"  # what the daemon looks at


def exempt_modules() -> None:
    """In a worker that is reused, exempt what exists so far from garbage collection: modules, before all.

    PySpark's daemon collects all garbage after each run of a worker that it reuses. Most of what it looks
    through are modules, which stay as long as the worker does.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON and os.environ.get(_REUSED):
        gc.collect()
        gc.freeze()
