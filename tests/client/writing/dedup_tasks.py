"""Tasks that deduplicate, and their runs."""

from __future__ import annotations

import pytest

from pulsar_spark.client import DedupTask, TopicWriter
from tests.client.clients import TOPIC, columns, producing
from tests.client.writing.told import new_origin, told
from tests.fake_broker import FakeBroker

SECRET = b"only the query knows this"
NAME = "query-0"


@pytest.fixture
def broker():
    with FakeBroker(deduplicates=True) as broker:
        broker.create(TOPIC)
        yield broker


class Task(DedupTask):
    """A task; it knows how many messages its driver says may be duplicated."""

    told = 0


def task_of(client, batch=0, *, required=False, strict=False, write=0, **given):
    return Task(client, NAME, new_origin(batch, 0, write), SECRET, required=required, strict=strict, **given)


def open_writer(client, task, topic=TOPIC, **options):
    options = {"batching_max_publish_delay": 1000.0, "batching_max_messages": 4, **options}
    return TopicWriter(client, topic, producing(**options), dedup=task)


def run(client, values, batch=0, *, topic=TOPIC, blocks=1, task=None, **options):
    """One run of a task; gives the task, and how many rows it says are stored."""
    given = {key: options.pop(key) for key in ("required", "strict", "write") if key in options}
    task = task or task_of(client, batch, **given)
    try:
        with open_writer(client, task, topic, **options) as writer:
            for number in range(blocks):
                writer.send(
                    columns(values[number * len(values) // blocks : (number + 1) * len(values) // blocks])
                )
            writer.flush()
            task.finish()
            task.told = told((task, writer.sent))
            return task, sum(part.messages for part in (*writer.sent.values(), *task.sent.values()))
    finally:
        task.close()
