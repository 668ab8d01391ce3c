"""One topic partition of 50 does not answer one kind of request: what that costs the others.

The planners of two queries are triggered in turn, as by Spark's default trigger, and new messages come to all
partitions before that. One query has all answers. The other one is not answered about one partition. So other
work of the machine delays both. Tasks are planned and not run. In the end, with all answers again, the query
must have planned all messages.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from integration.bench.planning import Producers
from integration.broker import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.helpers.background import again_and_again
from integration.helpers.cluster import TEST_JVM
from integration.helpers.proxies import REQUESTS, SilentProxy
from pulsar_spark.client import Client, ClientOptions, PlanningClient
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.reader import PulsarStreamReader
from pulsar_spark.spark.rows.schema import SOURCE_SCHEMA

_PARTITIONS = 50
_SILENT = 7
_WARM = 5.0  # seconds
_NEW_TOPIC_EVERY = 5.0  # seconds; then the topics are listed
_LEAST_RATIO = 0.9
_MORE_THREADS = 16
# Requests a second, of the kind and the partition, that may be without an answer.
_MAX_UNANSWERED = 1.0
_CATCHES_UP_WITHIN = 120.0  # seconds


class Part(NamedTuple):
    """What was measured of one query for some seconds.

    Attributes:
        batches: micro-batches with messages of other partitions.
        seconds: that writing and this query's triggers took.
        longest: seconds of the longest latestOffset.
    """

    batches: int
    seconds: float
    longest: float

    @property
    def rate(self) -> float:
        """Micro-batches a second."""
        return self.batches / self.seconds


class _Query:
    """The planner of a query."""

    def __init__(self, service_url: str, topic: TopicName) -> None:
        given = {"service.url": service_url, "topicsPattern": f"{topic.local}.*"}
        self._reader = PulsarStreamReader(given, SOURCE_SCHEMA)
        self._topic = topic
        self._offset = json.dumps(self._reader.initialOffset())

    @property
    def positions(self) -> dict[str, str]:
        """By the number of the partition."""
        found: dict[str, str] = json.loads(self._offset)["topics"][str(self._topic)]
        return found

    @property
    def topics(self) -> int:
        """How many topics are read."""
        return len(json.loads(self._offset)["topics"])

    def trigger(self) -> Part:
        """One micro-batch, or none."""
        before, began = self.positions, time.monotonic()
        end = json.dumps(self._reader._next_end(json.loads(self._offset), limited=True))
        longest = time.monotonic() - began
        if end != self._offset:
            list(self._reader.partitions(json.loads(self._offset), json.loads(end)))
            self._offset = end
        json.dumps(self._reader.reportLatestOffset())
        after = self.positions
        has_moved = any(before[each] != after[each] for each in after if int(each) != _SILENT)
        return Part(int(has_moved), time.monotonic() - began, longest)

    def stop(self) -> None:
        assert self._reader._started is not None
        self._reader._started.close()


def _run(producers: Producers, queries: list[_Query], seconds: float) -> tuple[list[Part], int]:
    """Write, and trigger one query after the other, until each had so long; and the most threads."""
    totals, threads = [Part(0, 0.0, 0.0) for _ in queries], 0
    while min(total.seconds for total in totals) < seconds:
        began = time.monotonic()
        producers.produce_everywhere()
        writing = time.monotonic() - began
        for number, query in enumerate(queries):
            part, total = query.trigger(), totals[number]
            totals[number] = Part(
                total.batches + part.batches,
                total.seconds + writing + part.seconds,
                max(total.longest, part.longest),
            )
        threads = max(threads, threading.active_count())
    return totals, threads


def silent(seconds: float, *, is_judged: bool = True) -> Iterator[tuple[object, ...]]:
    """Take each kind of request away for so long; the rows of the chaos table.

    Args:
        is_judged: whether a broken promise is an error, as soon as it is found.
    """
    yield (
        *("request without an answer", "micro-batches a second", "with all answers", "ratio"),
        *("longest latestOffset, s", "with all answers", "threads", "with all answers"),
        *("unanswered requests", "caught up after, s"),
    )
    with StandaloneBroker(jvm=TEST_JVM) as broker:
        for request in REQUESTS:
            yield _measure(broker, request, seconds, is_judged=is_judged)


def _measure(
    broker: StandaloneBroker, request: str, seconds: float, *, is_judged: bool
) -> tuple[object, ...]:
    topic = TopicName.parse(f"silent-{request.lower().replace('_', '-')}")
    one = topic.of_partition(_SILENT)
    broker.admin.create_partitioned_topic(str(topic), _PARTITIONS)
    with ExitStack() as stack:
        producers = stack.enter_context(Producers(broker.service_url, str(topic), _PARTITIONS))
        proxies = [stack.enter_context(SilentProxy(broker.service_url)) for _ in range(2)]
        new: list[str] = []

        def create() -> None:
            name = f"{topic}-{len(new)}"
            broker.admin.create_topic(name)
            new.append(name)

        stack.enter_context(again_and_again(create, _NEW_TOPIC_EVERY))
        queries = [_Query(proxy.service_url, topic) for proxy in proxies]
        _, threads_before = _run(producers, queries, _WARM)
        proxies[0].silence(request, str(topic if request == "PARTITIONED_METADATA" else one))
        if request in ("LOOKUP", "SUBSCRIBE"):
            broker.admin.unload(str(one))
        (without, others), threads = _run(producers, queries, seconds)
        proxies[0].answer_all()
        caught_up = _catch_up(broker, queries[0], topic, new)
        for query in queries:
            query.stop()
        unanswered = proxies[0].unanswered
    ratio = without.rate / others.rate
    row = (
        request,
        *(f"{without.rate:.1f}", f"{others.rate:.1f}", f"{ratio:.2f}"),
        *(f"{without.longest:.2f}", f"{others.longest:.2f}"),
        *(threads, threads_before, unanswered, f"{caught_up:.0f}"),
    )
    if is_judged:
        assert ratio >= _LEAST_RATIO, row
        assert threads <= threads_before + _MORE_THREADS, row
        assert unanswered <= max(5.0, _MAX_UNANSWERED * without.seconds), row
    return row


def _catch_up(broker: StandaloneBroker, query: _Query, topic: TopicName, new: list[str]) -> float:
    """Trigger until all messages are planned, and all topics read; returns the seconds."""
    began, created = time.monotonic(), len(new)
    with Client(ClientOptions(service_url=broker.service_url)) as client:
        last = {
            str(number): PlanningClient(client).bounds(topic.of_partition(number)).last
            for number in range(_PARTITIONS)
        }

    def is_caught_up() -> bool:
        query.trigger()
        return query.topics > created and query.positions == {
            number: str(position) for number, position in last.items()
        }

    wait_until(is_caught_up, timeout=_CATCHES_UP_WITHIN)
    return time.monotonic() - began
