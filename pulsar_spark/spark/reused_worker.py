"""Python workers that Spark reuses for many tasks: what they keep from one to the next."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache

import numpy as np

_DAEMON = "pyspark.daemon"
_REUSED = "SPARK_REUSE_WORKER"  # what the daemon looks at

# Bytes. Once a block of this size is freed, glibc takes blocks up to this size from its heap, and keeps at
# least twice as much there. Few blocks of a record batch that are not Arrow's are larger.
_LARGEST_KEPT = 16 * 1024 * 1024


@cache
def prepare_worker() -> None:
    """In a worker that is reused, keep what the next task needs too; each task calls this at its start.

    It does nothing the next time, and in other processes. PySpark's daemon collects all garbage after each
    run of a worker that it reuses. Most of what it looks through are modules, which stay as long as the
    worker does: what exists so far is exempted.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON and os.environ.get(_REUSED):
        gc.collect()
        gc.freeze()
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Make the C library (glibc) keep more of the memory that is freed.

    It gives freed memory back to the system, which hands it out again page by page: hundreds of page faults a
    record batch. Freeing one large block, which is never touched, makes it keep more.
    """
    np.empty(_LARGEST_KEPT, np.uint8)  # freed at once
