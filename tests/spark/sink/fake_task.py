"""A stand-in for Spark's TaskContext, of which the sink asks a few values."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark import TaskContext


class FakeTask:
    """What Spark tells a task.

    Args:
        task: number of the Spark partition.
        attempt: number of the attempt.
        properties: local properties.
    """

    def __init__(self, task: int = 0, attempt: int = 0, properties: Mapping[str, str] | None = None) -> None:
        self._task, self._attempt, self._properties = task, attempt, properties or {}

    def partitionId(self) -> int:  # noqa: N802
        return self._task

    def attemptNumber(self) -> int:  # noqa: N802
        return self._attempt

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._properties.get(name)


def of_micro_batch(number: int, task: int = 0, attempt: int = 0, run: str | None = "run") -> FakeTask:
    """A task of a micro-batch of the query "query"."""
    more = {} if run is None else {"spark.jobGroup.id": run}
    properties = {"sql.streaming.queryId": "query", "streaming.sql.batchId": str(number), **more}
    return FakeTask(task, attempt, properties)


def run_as(monkeypatch: pytest.MonkeyPatch, task: FakeTask | None) -> None:
    """Let what follows run in ``task``, or outside of any."""
    monkeypatch.setattr(TaskContext, "get", lambda: task)
