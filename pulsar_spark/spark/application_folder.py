"""The folder on a host that all of an application's Spark processes know, removed with the application."""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkFiles


def application_folder() -> Path:
    """Spark's folder for the application's files, which only its user can read.

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
    # In Spark 4.2 and 4.3 a stream's planner is given a subfolder of this folder, which Spark does not
    # create.
    return folder.parent if folder.name == "streaming_job" else folder
