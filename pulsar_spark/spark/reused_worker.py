"""Python workers that Spark reuses for many tasks."""

from __future__ import annotations

import gc
from functools import lru_cache

from pyspark import TaskContext


def exempt_modules() -> None:
    """In a worker's first task, exempt what it has loaded so far from garbage collection.

    PySpark collects all garbage after each task of a worker that it reuses. Most of what it looks through
    are modules, which stay as long as the worker does.
    """
    if TaskContext.get() is not None:
        _exempt_once()


@lru_cache(maxsize=1)
def _exempt_once() -> None:
    gc.collect()
    gc.freeze()
