"""How many messages a driver says may be duplicated when runs of tasks have come to their end."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pulsar_spark.client import DedupTask, Origin, SentTotals
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.driver import find_duplicates
from pulsar_spark.spark.sink.report import TaskReport, add_up

_RUNS = itertools.count(1)

Ended = tuple[DedupTask, Mapping[TopicName, SentTotals]]


def new_origin(batch: int, task: int, write: int) -> Origin:
    """An origin of another run of the query."""
    return Origin(batch, task, write, run=next(_RUNS))


def told(*ended: Ended, strict: bool = False) -> int:
    """How many, by tasks that are finished and what their writers have sent; raises as the driver does."""
    client, secret = ended[0][0].client, ended[0][0].secret
    return sum(find_duplicates(client, reports_of(ended), secret, strict=strict).values())


def reports_of(ended: Sequence[Ended]) -> list[TaskReport]:
    """The reports of tasks."""
    return [
        replace(TaskReport.of(add_up([task.sent, sent])), origin=task.origin, replays=task.replays)
        for task, sent in ended
    ]
