"""PlannerFile: a planner's report, which the listener reads while a micro-batch is still running.

Spark shows a source's report only after the micro-batch. A micro-batch of an hour would hide the backlog for
an hour, so each trigger writes its report to a file.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from pathlib import Path

from pulsar_spark.spark.monitoring.driver_files import DriverFiles
from pulsar_spark.spark.monitoring.source_report import Json, SourceReport

_files = DriverFiles("pulsar_spark_planners")

_log = logging.getLogger(__name__)


def new_planner_id() -> str:
    """A new id for this planner; it begins with the id of its process."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:8]}"


class PlannerFile:
    """The file of one planner. It never raises: the query continues without it, and logs that once."""

    def __init__(self) -> None:
        self._planner: str | None = None
        self._written: Json = {}
        self._is_broken = False

    def write(self, report: Json) -> None:
        """Write a report, unless only its time has changed."""
        content = report | {"timeMs": 0}
        if self._is_broken or content == self._written:
            return
        try:
            _files.write(str(report["planner"]), json.dumps(report))
        except (OSError, RuntimeError) as error:
            self._is_broken = True
            _log.warning("the listener sees the backlog only after each micro-batch: %s", error)
        self._planner, self._written = str(report["planner"]), content

    def remove(self) -> None:
        """Remove the file, because the planner ends."""
        try:
            if self._planner is not None:
                _files.remove(self._planner)
        except (OSError, RuntimeError) as error:
            _log.info("the file of the planner %s cannot be removed: %s", self._planner, error)


def planners_path() -> Path | None:
    """The folder of the planners on this host; None if Spark does not run in or beside this process."""
    try:
        return _files.path()
    except RuntimeError:
        return None


def read_planners(path: Path | None) -> dict[str, SourceReport]:
    """Read the last reports of all planners that run on this host, by planner id.

    It works in any thread.

    Args:
        path: result of :func:`planners_path`; None gives an empty dict.
    """
    found: dict[str, SourceReport] = {}
    try:
        texts = [] if path is None else list(_files.read_all(path))
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
    """Whether the planner's process is alive. A process that was killed leaves its file behind."""
    try:
        os.kill(int(planner.partition("-")[0]), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
