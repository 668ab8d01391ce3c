"""DriverFiles: short texts passed from one process on the driver's host to another.

Spark plans and commits micro-batches in separate processes, and has no metrics of Python sources and sinks.
All these processes know Spark's folder for the application, which only its user can read, and which is
removed with the application.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pulsar_spark.spark.application_folder import application_folder


class DriverFiles:
    """The files of one kind. Each is replaced as a whole, so a reader never sees a part of one.

    Args:
        folder: name of the files' folder.

    Its methods raise OSError if a file cannot be read or written, and RuntimeError if Spark does not run in
    or beside this process.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, name: str, text: str) -> None:
        """Create or replace a file."""
        file = self._file(name)
        file.parent.mkdir(exist_ok=True)
        new = file.with_name(f".{file.name}")
        new.write_text(text)
        new.replace(file)

    def read(self, name: str) -> str | None:
        """The text of a file; None if it does not exist."""
        try:
            return self._file(name).read_text()
        except FileNotFoundError:
            return None

    def path(self) -> Path:
        """The folder of the files, which exists once the first file does. Asks Spark, in this thread."""
        return self._file("name").parent

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        self._file(name).unlink(missing_ok=True)

    @staticmethod
    def read_all(path: Path) -> Iterator[tuple[str, str]]:
        """Yield the names and texts of all files in a folder from :meth:`path`; works in any thread."""
        for file in sorted(path.glob("[!.]*")):
            with suppress(FileNotFoundError):  # it was removed in the meantime
                yield file.name, file.read_text()

    def _file(self, name: str) -> Path:
        return application_folder() / self._folder / os.path.basename(name)  # noqa: PTH119 - a name, whatever it holds
