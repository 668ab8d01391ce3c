"""Spark's calls on a planner in Spark's order, with its checkpoint in memory and rows that are entry ids."""

import json
from datetime import datetime, timedelta, timezone

from pulsar_spark.client import Range
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.stream import QueryPlanner
from tests.spark.plan.simulated_cluster import SimulatedCluster

T, U = TopicName.parse("t"), TopicName.parse("u")
P0, P1, P2 = (T.of_partition(number) for number in range(3))

# More than any time after which the planner asks a partition again, or plans a batch again that was not due.
POLL = 11.0

Row = tuple[TopicName, MessageId]


def options_of(mode: Mode = Mode.STREAM, **options: str) -> SourceOptions:
    """Options of a source as a user gives them; ``__`` in a name is a dot."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source({"service.url": "pulsar://localhost:1"} | given, mode)


def iso_time(ms: int) -> str:
    """A time as an option takes it; options take no numbers that are as small as those of tests."""
    return (datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=ms)).isoformat()


class SimulatedSpark:
    """A streaming query over its runs.

    Attributes:
        offsets: the offset log: the end of each batch that was planned.
        committed: how many batches finished.
        planner: of this run.
        rows: of all batches that finished.
        ranges: of the last batch.
    """

    def __init__(self, cluster: SimulatedCluster, topic: str = "t", **options: str) -> None:
        self.cluster = cluster
        self.options = {"topic": topic} | options
        self.offsets: list[str] = []
        self.committed = 0
        self.rows: list[Row] = []
        self.ranges: list[Range] = []
        self.start()

    def start(self, *, available_now: bool = False, **options: str) -> None:
        """Begin a run; ``options`` are the user's, changed."""
        self.options |= options
        self.planner = QueryPlanner(options_of(Mode.STREAM, **self.options), self.cluster)
        if available_now:
            self.planner.freeze()

    def restart(self, *, available_now: bool = False, **options: str) -> None:
        """Stop the run, if there is one, and begin another."""
        self.stop()
        self.start(available_now=available_now, **options)

    def trigger(self, *, fails: bool = False) -> list[Row] | None:
        """One micro-batch: its rows; None where there is none. One that ``fails`` is planned only."""
        self.cluster.clock += POLL
        if len(self.offsets) > self.committed:
            start = self._logged(-2) if self.committed else self._initial()
            end = self._logged(-1)
        else:
            start = self._logged(-1) if self.offsets else self._initial()
            end = self._copy(self.planner.latest(start))
            if self.offsets and end == start:
                return None
            self.offsets.append(json.dumps(end.to_json()))
        self.ranges = self.planner.ranges(start, end)
        if fails:
            return None
        rows = [(each.topic, found) for each in self.ranges for found in self._read(each)]
        self.rows += rows
        self.committed += 1
        return rows

    def _read(self, each: Range) -> list[MessageId]:
        topic = self.cluster.topics[each.topic]
        entries = {entry.id: entry for entry in topic.kept}
        return [
            found
            for found in topic.between(each.start, each.end)
            if each.copies is None or each.copies.rows_of(entries[found].source, entries[found].publish_time)
        ]

    def poll(self, seconds: float) -> None:
        """Trigger as often as Spark's default trigger, with the dict of the last offset; nothing may come."""
        start = self._logged(-1)
        until = self.cluster.clock + seconds
        while self.cluster.clock < until:
            self.cluster.clock += 0.1
            start = self.planner.latest(start)

    def drain(self) -> list[Row]:
        """Trigger until there is no batch any more; the rows of all."""
        found: list[Row] = []
        while (rows := self.trigger()) is not None:
            found += rows
        return found

    def play(self, words: str) -> None:
        """Calls methods by their names: ``drain stop start``; a trigger may also ``fail``."""
        for word in words.split():
            if word == "fail":
                self.trigger(fails=True)
            else:
                getattr(self, word)()

    def stop(self) -> None:
        """End the run."""
        self.planner.close()

    @property
    def subscription(self) -> str:
        return self._logged(-1).subscription

    def _initial(self) -> Offsets:
        return self._copy(self.planner.initial())

    def _logged(self, number: int) -> Offsets:
        return Offsets.from_json(json.loads(self.offsets[number]))

    def _copy(self, offsets: Offsets) -> Offsets:
        return Offsets.from_json(json.loads(json.dumps(offsets.to_json())))


class KeptOffsets(SimulatedSpark):
    """Hands over the same objects, as a reader does in a run: the planner goes over what has changed."""

    def _copy(self, offsets):
        self.kept = offsets
        return offsets

    def _logged(self, number):
        logged = super()._logged(number)
        return self.kept if number == -1 and self.kept == logged else logged


def reading(cluster, topic, count=2, **options):
    """A query that has read a topic's first messages."""
    spark = SimulatedSpark(cluster, startingOffsets="earliest", **options)
    topic.produce(count)
    spark.drain()
    return spark


def at(text):
    return MessageId.parse(text)


def rows_of(topic, ids):
    return [(topic, each) for each in ids]


def acked(cluster, topic=T):
    return [request[2] for request in cluster.requests if request[:2] == ("ack", topic)]


def mark(spark, topic=T):
    """Where the query's subscription stands."""
    return spark.cluster.topics[topic].cursors[spark.subscription]


def two_ledgers():
    """A topic with two ledgers of three entries, published at 0, 100, ... ms."""
    found = SimulatedCluster()
    (topic,) = found.create("t")
    for number in range(6):
        if number == 3:
            topic.roll_over()
        topic.produce(time=100 * number)
    return found
