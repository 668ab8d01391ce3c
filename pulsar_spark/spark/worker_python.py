"""Which Python Spark's processes on this machine are."""

from __future__ import annotations

import os
import sys

from pyspark import SparkContext

_VARIABLE = "PYSPARK_PYTHON"


def use_this_python(context: SparkContext) -> None:
    """Let a local session start its Python processes with the Python that runs this.

    Spark takes ``python3`` of the PATH where nothing is said, and names it nowhere when that one lacks a
    package. The Python of a notebook's kernel, of an IDE, or of an environment that is not activated is often
    another one. Executors of a cluster have Pythons of their own, at other paths: there nothing is changed.

    Args:
        context: of the session. What is registered or run before keeps the Python it had.
    """
    if _VARIABLE not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
