"""The Python processes that Spark starts: their Python, their common folder, their memory and their log.

Planner and tasks log to standard error, which Spark adds to its own log on that machine, because users'
programs cannot configure logging in these processes. The option ``logLevel`` sets the level for each query,
because a worker may serve another query next.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
from pyspark import SparkContext, SparkFiles

from pulsar_spark.client import ClientOptions, login_risk, variables_of_secrets

_VARIABLE = "PYSPARK_PYTHON"


def use_this_python(context: SparkContext) -> None:
    """Lets a local session start its Python processes with the current Python.

    By default Spark uses ``python3`` of the PATH, and does not name it if that Python lacks a package. The
    Python of a notebook's kernel, of an IDE, or of an environment that is not activated is often different.
    Executors of a cluster have their own Pythons at other paths, so they are not changed.

    ``context``: context of the session. Functions registered or run before keep their Python.
    """
    if _VARIABLE not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def application_folder() -> Path:
    """Returns Spark's folder for the application's files, which only its user can read.

    Raises RuntimeError: this process is neither Spark's driver nor started by Spark.
    """
    try:
        root = SparkFiles.getRootDirectory()
    except Exception as error:
        raise RuntimeError(
            f"Spark has no folder for files in this process ({type(error).__name__})"
        ) from error
    folder = Path(root)
    # In a stream's planner, Spark 4.2 and 4.3 return a subfolder that does not exist; its parent is used.
    return folder.parent if folder.name == "streaming_job" else folder


_DAEMON = "pyspark.daemon"
_REUSED = "SPARK_REUSE_WORKER"  # read by PySpark's daemon

# Bytes. After freeing a block of this size, glibc serves blocks up to this size from its heap and keeps
# up to twice this size of free memory. Larger blocks are rare, except in Arrow, which has its own pool.
_LARGEST_KEPT = 16 * 1024 * 1024


@cache
def prepare_worker() -> None:
    """Lets a reused Python worker keep freed memory, and exempts its present objects from garbage collection.

    Each task calls this at its start; only the first call in a reused worker has an effect. PySpark's daemon
    runs the garbage collector after each task. It need not visit present objects, because most belong to
    modules and are never freed.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == _DAEMON and os.environ.get(_REUSED):
        gc.collect()
        gc.freeze()
        # By default glibc returns freed memory to the system, and each record batch then causes hundreds of
        # page faults. After a large block was freed, glibc keeps memory up to that size: free one now.
        np.empty(_LARGEST_KEPT, np.uint8)


LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}

# The default of spark.redaction.regex.
REDACTED = "(?i)secret|password|token|access[.]?key"

_logger = logging.getLogger("pulsar_spark")

# The format of Spark's console: time, level, logger, message.
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S")


def set_up_logs(level: int | None) -> None:
    """Lets this process print this package's log lines of a level and above, each once.

    Args:
        level: level of :mod:`logging`; None: the configured level, or WARNING.
    """
    _logger.setLevel(logging.NOTSET if level is None else level)
    if not _logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_FORMAT)
        _logger.addHandler(handler)


def warn_of_login(options: ClientOptions, log_key: str | None = None) -> None:
    """Warns, once per application and host, if others can read a secret; raises errors as ``login_risk``."""
    risks = [login_risk(options)]
    risks += [
        f"Spark shows the environment variable {name} in the UI and in YARN's logs. Rename it: Spark hides "
        "only names with SECRET, PASSWORD or TOKEN"
        for name in variables_of_secrets(options, log_key)
        if not re.search(REDACTED, name)
    ]
    for risk in risks:
        if risk is not None and is_first_to_say(risk):
            _logger.warning("%s", risk)


def is_first_to_say(what: str) -> bool:
    """Whether this is the application's first call with this text on this machine, in any process.

    Spark runs the tasks of a query in several processes, and each step of its driver in another process. A
    file in Spark's folder for the application records the texts; without such a folder the result is True.
    """
    try:
        folder = application_folder() / "pulsar_spark_said"
        folder.mkdir(exist_ok=True)
        (folder / hashlib.sha256(what.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    except (OSError, RuntimeError):
        return True  # outside of Spark's processes, or the folder is not writable
    return True
