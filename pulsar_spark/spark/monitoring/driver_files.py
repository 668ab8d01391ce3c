"""DriverFiles: short texts passed from one process on the driver's host to another.

Spark plans and commits micro-batches in separate processes, and has no metrics for Python sources and sinks.
So these processes write files to Spark's folder for the application, which only its user can read, and which
is removed with the application. Three kinds of texts reach the listeners:

    SinkTotals            the sums that a query has written, from the process that commits
    topics of the sink    by service URL, from the process that commits, because rows may name the topics
    PlannerFile           a planner's report at each trigger; Spark shows a source's report only after the
                          micro-batch, which may take an hour
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pulsar_spark.spark.monitoring.source_report import Json, SourceReport
from pulsar_spark.spark.processes import application_folder, is_first_to_say

_log = logging.getLogger(__name__)


class DriverFiles:
    """The files in one subfolder of Spark's folder. A write is atomic, so no reader sees half a text.

    Its methods raise OSError if a file cannot be read or written, and RuntimeError outside of Spark's
    processes.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, name: str, text: str) -> None:
        """Creates or replaces a file."""
        file = self._file(name)
        file.parent.mkdir(exist_ok=True)
        new = file.with_name(f".{file.name}")
        new.write_text(text)
        new.replace(file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes other processes and threads that change a text of this folder.

        For example, threads of a foreachBatch write at the same time, each in a separate process.
        """
        path = self.path()
        path.mkdir(exist_ok=True)
        folder = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def read(self, name: str) -> str | None:
        """Returns the text of a file; None if it does not exist."""
        try:
            return self._file(name).read_text()
        except FileNotFoundError:
            return None

    def path(self) -> Path:
        """Returns the folder of the files, which the first write creates. Call it only on Spark's threads."""
        return self._file("name").parent

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        self._file(name).unlink(missing_ok=True)

    @staticmethod
    def read_all(path: Path) -> Iterator[tuple[str, str]]:
        """Yields the names and texts of all files in a folder from :meth:`path`; works in any thread."""
        for file in sorted(path.glob("[!.]*")):
            with suppress(FileNotFoundError):  # another process removed it
                yield file.name, file.read_text()

    def _file(self, name: str) -> Path:
        file_name = os.path.basename(name)  # noqa: PTH119 - a name with "/" must not lead to another folder
        return application_folder() / self._folder / file_name


_totals = DriverFiles("pulsar_spark_sinks")


class SinkTotals(NamedTuple):
    """Totals of a sink's micro-batches. ``bytes``: bytes of the written entries, as stored at the broker."""

    messages: int = 0
    bytes: int = 0
    possible_duplicates: int = 0
    retries: int = 0

    def plus(self, other: SinkTotals) -> SinkTotals:
        """Adds ``other``, field by field."""
        return SinkTotals(*(one + two for one, two in zip(self, other, strict=True)))

    def minus(self, other: SinkTotals) -> SinkTotals:
        """Subtracts ``other``, field by field."""
        return SinkTotals(*(one - two for one, two in zip(self, other, strict=True)))


def add_sink_totals(query: str, batch: SinkTotals) -> None:
    """Adds the totals of a micro-batch."""
    if not any(batch):
        return
    try:
        with _totals.locked():
            _totals.write(query, json.dumps(_read_totals(query).plus(batch)))
    except (OSError, RuntimeError, ValueError) as error:
        _log.warning("query %s: the listener does not see what the sink has written: %s", query, error)


def read_sink_totals(query: str) -> SinkTotals:
    """Returns a query's totals since Spark was started; all 0 outside of Spark's processes."""
    try:
        return _read_totals(query)
    except (OSError, RuntimeError, ValueError):
        return SinkTotals()


def _read_totals(query: str) -> SinkTotals:
    text = _totals.read(query)
    return SinkTotals() if text is None else SinkTotals(*json.loads(text))


# Maximum number of topics of a query, because rows may name any number of topics.
MAX_TOPICS = 1000

_topics = DriverFiles("pulsar_spark_sink_topics")


def add_sink_topics(query: str, service_url: str, topics: Collection[str]) -> None:
    """Adds the topics of a micro-batch.

    ``topics``: full names of topics, without partitions. Topics beyond ``MAX_TOPICS`` are left out with a
    warning.
    """
    if not topics:
        return
    try:
        with _topics.locked():
            known = _read_topics(query)
            before = known.get(service_url, [])
            room = MAX_TOPICS - sum(map(len, known.values()))
            new = sorted(set(topics) - set(before))
            if new[:room]:
                _topics.write(query, json.dumps({**known, service_url: [*before, *new[:room]]}))
        if len(new) > room and is_first_to_say(f"topics of query {query}"):
            _log.warning("query %s: listeners see only %d topics of the sink", query, MAX_TOPICS)
    except (OSError, RuntimeError, ValueError) as error:
        _log.warning("query %s: listeners do not see the sink's topics: %s", query, error)


def read_sink_topics(query: str) -> frozenset[tuple[str, str]]:
    """Returns service URL and name of each topic that a query has written to since Spark was started.

    Empty outside of Spark's processes.
    """
    try:
        return frozenset((url, topic) for url, topics in _read_topics(query).items() for topic in topics)
    except (OSError, RuntimeError, ValueError):
        return frozenset()


def _read_topics(query: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(_topics.read(query) or "{}")
    return found


_planners = DriverFiles("pulsar_spark_planners")


def new_planner_id() -> str:
    """Returns a new id for a planner; the id begins with this process's id."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:8]}"


class PlannerFile:
    """The file of one planner. Its methods never raise: a failure is logged once, and the query continues."""

    def __init__(self) -> None:
        self._planner: str | None = None
        self._written: Json = {}
        self._is_broken = False

    def write(self, report: Json) -> None:
        """Writes a report, unless only its time has changed."""
        content = report | {"timeMs": 0}
        if self._is_broken or content == self._written:
            return
        try:
            _planners.write(str(report["planner"]), json.dumps(report))
        except (OSError, RuntimeError) as error:
            self._is_broken = True
            _log.warning("the listener sees the backlog only after each micro-batch: %s", error)
        self._planner, self._written = str(report["planner"]), content

    def remove(self) -> None:
        """Removes the file, because the planner ends."""
        try:
            if self._planner is not None:
                _planners.remove(self._planner)
        except (OSError, RuntimeError) as error:
            _log.info("the file of the planner %s cannot be removed: %s", self._planner, error)


def planners_path() -> Path | None:
    """Returns the planners' folder on this host; None outside of Spark's processes."""
    try:
        return _planners.path()
    except RuntimeError:
        return None


def read_planners(path: Path | None) -> dict[str, SourceReport]:
    """Reads the last reports of all planners that run on this host, by planner id; works in any thread."""
    found: dict[str, SourceReport] = {}
    try:
        texts = [] if path is None else list(_planners.read_all(path))
    except OSError as error:
        _log.debug("the reports of planners cannot be read: %s", error)
        return found
    for name, text in texts:
        try:
            report = SourceReport.parse(text)
        except ValueError as error:
            _log.debug("the report of the planner %s cannot be read: %s", name, error)
            continue
        if report is not None and _runs(name):
            found[name] = report
    return found


def _runs(planner: str) -> bool:
    """Whether the planner's process is alive. A killed process does not remove its file."""
    try:
        with suppress(PermissionError):  # the process is another user's
            os.kill(int(planner.partition("-")[0]), 0)
    except (ValueError, ProcessLookupError):
        return False
    return True
