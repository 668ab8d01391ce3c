"""Find out whether an earlier run of a micro-batch had more tasks than this one, and what they stored."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pulsar_spark.client import Client, Schema, last_sequence_id, run_all
from pulsar_spark.errors import DuplicatesError, PulsarError
from pulsar_spark.ids import TopicName

# Consecutive task numbers that the broker does not know, after which the search ends.
_MAX_GAP = 4

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DedupAttempt:
    """The driver's information about a micro-batch that may be a replay.

    Attributes:
        prefix: prefix of the producers' names, before the number of the task.
        first_sequence_id: first sequence id of the micro-batch.
        topics: topics that a task wrote to, without their partitions.
    """

    prefix: str
    first_sequence_id: int
    topics: frozenset[TopicName]


class TaskSearch:
    """The search for tasks of an earlier run: their numbers, and what the answers mean. Pure.

    Args:
        tasks: number of tasks now, which is also the first number that none of them has.
        first_sequence_id: first sequence id of the micro-batch.

    Attributes:
        number: number of the task to ask about now.
        last_found: number of the last task that has stored messages of the micro-batch; None if there is
            none.
        stored: number of messages of the micro-batch that the tasks have stored, by topic partition.
    """

    def __init__(self, tasks: int, first_sequence_id: int) -> None:
        self.number = tasks
        self.last_found: int | None = None
        self.stored: dict[TopicName, int] = {}
        self._first_sequence_id = first_sequence_id
        self._gap = 0

    @property
    def is_done(self) -> bool:
        """Whether the broker does not know so many numbers in a row that no more are expected."""
        return self._gap >= _MAX_GAP

    def add(self, last_sequence_ids: Mapping[TopicName, int]) -> None:
        """Add the broker's answer about the task, and go on to the next one.

        Args:
            last_sequence_ids: last sequence id of the task's producer on each topic partition; -1 if there
                was none.
        """
        for topic, last in last_sequence_ids.items():
            if last >= self._first_sequence_id:
                self.stored[topic] = self.stored.get(topic, 0) + last - self._first_sequence_id + 1
                self.last_found = self.number
        self._gap = 0 if max(last_sequence_ids.values(), default=-1) >= 0 else self._gap + 1
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
        strict: whether it is an error if there are such rows, or if it cannot be determined.

    Returns:
        Number of messages by topic partition; partitions without any are left out.

    Raises:
        DuplicatesError: there are such rows, and ``strict`` is true.
        PulsarError: it cannot be determined, and ``strict`` is true.
    """
    known = [attempt for attempt in attempts if attempt is not None]
    if not known:
        return {}
    prefix = known[0].prefix
    search = TaskSearch(tasks, known[0].first_sequence_id)
    try:
        topics = sorted(frozenset[TopicName]().union(*(attempt.topics for attempt in known)))
        schemas = {topic: _schema(client, topic) if has_schema else None for topic in topics}
        partitions = [
            (partition, schemas[topic]) for topic in topics for partition in client.partitions(topic)
        ]
        while not search.is_done:
            name = f"{prefix}-{search.number}"
            search.add(_last_sequence_ids(client, partitions, name, is_encrypted=is_encrypted))
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
