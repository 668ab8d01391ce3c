"""Runs of a task that deduplicates, for tests of the client: one that comes to its end, and one that dies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from integration.broker.waiting import FAR_AWAY
from integration.chaos.messages import columns_of
from integration.helpers.peer import Record
from pulsar_spark.client import NO_USER_CODE, Client, DedupTask, Origin, ProducerOptions, TopicWriter
from pulsar_spark.ids import TopicName

NAME = "spark-query-0"
SECRET = b"only the query knows this"
_RUNS = itertools.count(1)


def task_of(
    client: Client,
    batch: int = 0,
    *,
    name: str = NAME,
    task: int = 0,
    write: int = 0,
    required: bool = False,
    **given: Any,
) -> DedupTask:
    """A task of another run of the query; others are given as ``DedupTask`` takes it. Close it."""
    return DedupTask(
        client, name, Origin(batch, task, write, run=next(_RUNS)), SECRET, required=required, **given
    )


def open_writer(client: Client, topic: str, task: DedupTask | None, **options: Any) -> TopicWriter:
    """A writer of a task's run, whose send timeout is far away unless ``options`` say otherwise."""
    code = options.pop("code", NO_USER_CODE)
    how = ProducerOptions(**{"send_timeout": FAR_AWAY, **options})
    return TopicWriter(client, TopicName.parse(topic), how, dedup=task, code=code)


def run(
    client: Client,
    topic: str,
    records: Sequence[Record],
    task: DedupTask | None = None,
    *,
    dies_after: int | None = None,
    at_a_time: int = 100,
    **options: Any,
) -> int:
    """One run of a task; returns how many of the records it has sent.

    Args:
        task: whose run it is; None: as ``task_of(client)``.
        dies_after: it dies when so many records are stored; None: it comes to its end.
        at_a_time: how many records are given to the writer at a time.
    """
    own = task_of(client) if task is None else task
    records = records[:dies_after]
    with closing(own), closing(open_writer(client, topic, own, **options)) as writer:
        for first in range(0, len(records), at_a_time):
            writer.send(columns_of(records[first : first + at_a_time]))
        writer.flush()
        if dies_after is None:
            own.finish()
        return sum(each.messages for each in writer.sent.values())
