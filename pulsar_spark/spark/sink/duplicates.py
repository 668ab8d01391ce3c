"""Finds how many rows a replayed micro-batch may have stored twice."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial

from pulsar_spark.client import (
    Client,
    Origin,
    Replay,
    SentTotals,
    find_stored_batch,
    possible_duplicates,
    run_all,
)
from pulsar_spark.errors import DuplicatesError, PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.report import TaskReport, add_up

_log = logging.getLogger(__name__)


def find_duplicates(
    client: Client, reports: Sequence[TaskReport], secret: bytes, *, strict: bool
) -> dict[TopicName, int]:
    """Counts the messages that may be duplicated (upper bound); call it after all tasks have ended.

    Rows may have moved to other tasks, and an earlier run may have had more tasks. So all rows of earlier
    runs are counted, in topics where a task has found such rows and the new rows may differ.

    Args:
        client: client of the cluster.
        reports: reports of all tasks.
        secret: secret of the query.
        strict: whether possible duplicates raise DuplicatesError, and a failed count raises PulsarError; else
            both are warnings.

    Returns:
        Number of messages by topic partition; partitions without any are left out.
    """
    twice: dict[TopicName, int] = {}
    totals: dict[TopicName, dict[TopicName, SentTotals]] = defaultdict(dict)
    all_totals = add_up(report.sent for report in reports)
    for name, of_name in all_totals.items():
        totals[name.base][name] = of_name
    replays: dict[TopicName, list[Replay]] = defaultdict(list)
    for report in reports:
        for topic, replay in report.replays.items():
            replays[topic].append(replay)
    origin = next((each.origin for each in reports if each.origin is not None), None)
    for topic in sorted(replays):
        own = totals[topic.base]
        total = own if topic == topic.base else {name: own[name] for name in [topic] if name in own}
        # Some may be partitions of the topic before it became scalable.
        segments = {segment for each in replays[topic] for segment in each.segments}
        total = total | {name: all_totals[name] for name in segments & all_totals.keys()}
        sent = {name: each.messages - each.found for name, each in total.items()}
        found = {name: each.found for name, each in total.items()}
        new = sum(sent.values())
        if origin is None or not (new or any(each.missed or each.is_again for each in replays[topic])):
            continue
        stored, error = _stored(client, topic, sorted(segments), secret, origin)
        if error is not None:
            if strict:
                raise error
            _log.warning("%s: not known how many messages earlier runs have stored: %s", topic, error)
        by_run = sum(stored.values(), Counter[int]())
        count = possible_duplicates(by_run, origin.run, new, sum(found.values()))
        unread = sum(each.unread for each in replays[topic])
        count = max(count, new if error is not None else min(unread, new))
        # A partition has at most as many duplicates as messages that this run has neither sent nor found.
        for name, each in stored.items():
            twice[name] = min(count, max(each.total() - sent.get(name, 0) - found.get(name, 0), 0))
            count -= twice[name]
        twice[topic] = twice.get(topic, 0) + count
    twice = {topic: count for topic, count in twice.items() if count}
    if strict and twice:
        raise DuplicatesError(
            "this run of the micro-batch differs from an earlier one, or its rows went to other tasks. All "
            f"rows are written, and up to {sum(twice.values())} messages are duplicated",
            topic=", ".join(map(str, sorted(twice))),
        )
    return twice


def _stored(
    client: Client, topic: TopicName, segments: Sequence[TopicName], secret: bytes, origin: Origin
) -> tuple[dict[TopicName, Counter[int]], PulsarError | None]:
    """Returns the counts of a micro-batch's stored messages, by partition and run; and an error or None.

    With an error, the counts lack messages. ``segments``: segments that may have such messages.
    """
    try:
        names = segments or client.partitions(topic)
    except PulsarError as error:
        return {}, error
    found = run_all([partial(find_stored_batch, client, name, secret, origin) for name in names])
    errors = [each for each in found if isinstance(each, PulsarError)]
    stored = {
        name: each.stored
        for name, each in zip(names, found, strict=True)
        if not isinstance(each, PulsarError)
    }
    return stored, next(iter(errors), None)
