"""The folder on a host that all of Spark's processes of an application know, and that goes with it."""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkFiles


def application_folder() -> Path:
    """Spark's folder for the application's files, which only its user may read.

    Raises:
        RuntimeError: Spark does not run in or beside this process.
    """
    try:
        root = SparkFiles.getRootDirectory()
    except Exception as error:
        raise RuntimeError(
            f"Spark has no folder for files in this process ({type(error).__name__})"
        ) from error
    folder = Path(root)
    # Spark 4.2 and 4.3 name to a stream's planner a folder within that of all others, and do not make it.
    return folder.parent if folder.name == "streaming_job" else folder
