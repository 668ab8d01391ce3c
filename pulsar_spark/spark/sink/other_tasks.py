"""Find out whether an earlier run of a micro-batch had more tasks than this one, and what they stored."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pulsar_spark.client import (
    Client,
    Origin,
    RunToFind,
    Schema,
    TaskIds,
    count_stored_run,
    first_sequence_id,
    last_sequence_id,
    run_all,
)
from pulsar_spark.errors import DuplicatesError, PulsarError
from pulsar_spark.ids import TopicName

# Consecutive task numbers that the broker does not know, after which the search ends; and how many it asks
# about in any case: anybody who may produce can make producers of such names.
_MAX_GAP = 4
_MAX_TASKS = 1000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DedupAttempt:
    """The driver's information about a micro-batch that may be a replay.

    Attributes:
        prefix: of the producers' names, before the number of the task.
        origin: numbers of the micro-batch and of the write.
        secret: of the query.
        topics: that a task wrote to, without their partitions.
    """

    prefix: str
    origin: Origin
    secret: bytes = field(repr=False)
    topics: frozenset[TopicName]


class TaskSearch:
    """The search for tasks of an earlier run: their numbers, and what the answers mean. Pure.

    It begins with the number of tasks now, the first number that none of them has.

    Attributes:
        number: number of the task to ask about now.
        last_found: number of the last task that has stored messages of the micro-batch; None for none.
        stored: number of messages of the micro-batch that the tasks have stored, by topic partition.
    """

    def __init__(self, tasks: int) -> None:
        self.number = tasks
        self.last_found: int | None = None
        self.stored: dict[TopicName, int] = {}
        self._last_number = tasks + _MAX_TASKS
        self._gap = 0

    @property
    def is_done(self) -> bool:
        """Whether the broker does not know enough numbers in a row that no more are expected."""
        return self._gap >= _MAX_GAP or self.number >= self._last_number

    def add(self, stored: Mapping[TopicName, int], *, is_known: bool) -> None:
        """Add the messages of the task that are stored, and whether brokers know it; go on to the next."""
        for topic, count in stored.items():
            if count:
                self.stored[topic] = self.stored.get(topic, 0) + count
                self.last_found = self.number
        self._gap = 0 if is_known else self._gap + 1
        self.number += 1


def count_of_other_tasks(
    client: Client,
    attempts: Iterable[DedupAttempt | None],
    tasks: int,
    *,
    is_encrypted: bool,
    has_schema: bool,
    strict: bool,
) -> dict[TopicName, int]:
    """Count rows of this micro-batch stored by tasks of an earlier run whose numbers no longer exist.

    Args:
        client: client of the cluster.
        attempts: one for each task; None if the micro-batch is certainly no replay.
        tasks: number of tasks now.
        is_encrypted: whether the tasks encrypt.
        has_schema: whether the tasks write with a schema; a namespace may refuse producers without one.
        strict: whether DuplicatesError is raised if there are such rows, and PulsarError if that cannot be
            determined; else both are warned of.

    Returns:
        Number of messages by topic partition; partitions without any are left out.
    """
    known = [attempt for attempt in attempts if attempt is not None]
    if not known:
        return {}
    prefix, origin = known[0].prefix, known[0].origin
    search = TaskSearch(tasks)
    try:
        topics = sorted(frozenset[TopicName]().union(*(attempt.topics for attempt in known)))
        schemas = {topic: _schema(client, topic) if has_schema else None for topic in topics}
        partitions = [
            (partition, schemas[topic]) for topic in topics for partition in client.partitions(topic)
        ]
        while not search.is_done:
            name = f"{prefix}-{search.number}"
            last = _last_sequence_ids(client, partitions, name, is_encrypted=is_encrypted)
            task, secret = replace(origin, task=search.number), known[0].secret
            stored: dict[TopicName, int] = {}
            for topic, each in last.items():
                if each >= first_sequence_id(origin.batch):
                    # Anybody may have used the name. Only the entries of the query count, and are waited for.
                    is_own = TaskIds(secret, name, str(topic)).may_be_own(each)
                    run = RunToFind(task, secret, name, each, may_be_own=is_own)
                    stored[topic] = count_stored_run(client, topic, run)
            # A name with ids of the micro-batch and without an entry of the query is somebody else's.
            search.add(
                stored, is_known=any(each >= 0 and stored.get(topic) != 0 for topic, each in last.items())
            )
    except PulsarError as error:
        if strict:
            raise
        _log.warning(
            "producers %s-*: not known whether other tasks of an earlier run have written rows: %s",
            prefix,
            error,
        )
        return {}
    if search.stored:
        text = (
            f"producers {prefix}-*: this run of the micro-batch differs from the earlier one: it has "
            f"{tasks} tasks, but task {search.last_found} wrote rows of the micro-batch in the earlier run"
        )
        count = sum(search.stored.values())
        if strict:
            raise DuplicatesError(f"{text}. All rows are written, and up to {count} messages are duplicated")
        _log.warning("%s. No row is missing, and up to %d messages may be duplicated", text, count)
    return search.stored


def _schema(client: Client, topic: TopicName) -> Schema | None:
    latest = client.schemas.latest(topic)
    return None if latest is None else latest.schema


def _last_sequence_ids(
    client: Client,
    partitions: Sequence[tuple[TopicName, Schema | None]],
    producer: str,
    *,
    is_encrypted: bool,
) -> dict[TopicName, int]:
    """The last sequence id of a producer on each topic partition, from the broker; raises the first error."""
    answers = run_all(
        [
            partial(last_sequence_id, client, topic, producer, is_encrypted=is_encrypted, schema=schema)
            for topic, schema in partitions
        ]
    )
    last = {}
    for (topic, _), answer in zip(partitions, answers, strict=True):
        if isinstance(answer, PulsarError):
            raise answer
        last[topic] = answer
    return last
