"""How many messages of a query may be there twice: from the process that commits to the one that listens.

Spark commits each micro-batch in a process of its own, and has no metrics of Python sinks. Both processes are
on the driver's host and know the folder that Spark has for the application, which only its user may read, and
which goes with it. A file in it, one a query, is written where there is something to tell, and only then.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pyspark import SparkFiles

_FOLDER = "pulsar_spark_duplicates"

_log = logging.getLogger(__name__)


def add_duplicates(query: str, messages: int) -> None:
    """Add messages to what :func:`read_duplicates` gives; called by one process of a query at a time."""
    try:
        file = _file(query)
        file.parent.mkdir(exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(str(read_duplicates(query) + messages))
        new.replace(file)
    except (OSError, RuntimeError) as error:
        _log.warning("query %s: the listener is not told of possible duplicates: %s", query, error)


def read_duplicates(query: str) -> int:
    """Messages that may be there twice, of all micro-batches of a query since Spark was started; 0: none.

    Raises:
        RuntimeError: Spark does not run in or beside this process.
        OSError: the file cannot be read.
    """
    file = _file(query)
    return int(file.read_text()) if file.exists() else 0


def _file(query: str) -> Path:
    try:
        root = SparkFiles.getRootDirectory()
    except Exception as error:
        raise RuntimeError(f"Spark has no folder for files here ({type(error).__name__})") from error
    return Path(root) / _FOLDER / os.path.basename(query)  # noqa: PTH119 - a name, whatever it holds
