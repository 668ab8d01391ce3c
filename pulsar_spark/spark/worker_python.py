"""The Python of Spark's processes on this machine."""

from __future__ import annotations

import os
import sys

from pyspark import SparkContext

_VARIABLE = "PYSPARK_PYTHON"


def use_this_python(context: SparkContext) -> None:
    """Let a local session start its Python processes with the Python that runs this.

    By default Spark uses ``python3`` of the PATH, and does not name it if that Python lacks a package. The
    Python of a notebook's kernel, of an IDE, or of an environment that is not activated is often another one.
    Executors of a cluster have their own Pythons at other paths, so nothing is changed there.

    Args:
        context: context of the session. Whatever was registered or run before keeps its Python.
    """
    if _VARIABLE not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
