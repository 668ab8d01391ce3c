"""One of two clusters is killed with -9 while a query reads it, and the query continues on the other one.

Four producers write to the first cluster: batches, LZ4, chunks, and rows with a schema. Before the kill,
replication stands still for a while, so that the query has read messages that have no copy. The cluster
returns later, and what it has not copied is copied then.

This file is also the driver of the query:
``python -m integration.chaos.clusters SERVICE_URL TOPIC FOLDER {stream|available|until-idle} COUNTED
OPTION=VALUE...``.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from integration.broker.two_clusters import TwoClusters
from integration.broker.waiting import wait_until
from integration.chaos.four_producers import PRODUCERS, FourProducers, StoredRow, stored_rows
from integration.chaos.harness import Driver, batches
from integration.fixtures.spark import PulsarInSpark, begun, start
from integration.helpers.local_spark import SHORT_RUN, local_spark
from pulsar_spark.ids import MessageId

_NOT_COPIED = "have not been copied to this cluster"
_MOVED = "the query moves from cluster 'a'"
_LOST = re.compile(r"(persistent://[^ ,]+-partition-\d).*\((\d+:\d+(?::\d+)?), (\d+:\d+(?::\d+)?)\]")

_PARTITIONS = 4
_PATIENCE = 300.0
_ROWS = 5_000  # of each producer
_WRITES_FOR = 10.0  # seconds, in which the cluster is killed


class _Kind(NamedTuple):
    """How a query reads: the driver's trigger, whether it counts keys instead of keeping rows, options."""

    trigger: str
    is_counted: bool
    options: dict[str, str]


_KINDS = {
    "stream": _Kind("stream", False, {}),
    "limit": _Kind("stream", False, {"maxMessagesPerTrigger": "900"}),
    "AvailableNow": _Kind("available", False, {}),
    "split": _Kind("stream", False, {"minPartitions": "9"}),
    "count": _Kind("stream", True, {"maxMessagesPerTrigger": "1500"}),
    "all": _Kind("available", False, {"maxMessagesPerTrigger": "1700", "minPartitions": "7"}),
}


class Turn(NamedTuple):
    """What came of one move.

    Attributes:
        kind: how the query reads.
        rows: written to the first cluster.
        read_before: read there.
        read_uncopied: of these, without a copy when the cluster was killed.
        read_late: not copied by then, and read in the other cluster when they were.
        lost: of a micro-batch that did not finish, and named by position.
        left_out: by Pulsar's replicator, for ever.
        seconds: duration.
    """

    kind: str
    rows: int
    read_before: int
    read_uncopied: int
    read_late: int
    lost: int
    left_out: int
    seconds: int


def clusters(seed: int, times: int) -> Iterable[tuple[object, ...]]:
    """Move ``times`` queries; the rows of the chaos table."""
    yield (
        "query",
        "rows",
        "read before",
        "not copied then",
        "read late",
        "lost, named",
        "never copied",
        "seconds",
    )
    with TwoClusters() as pair:
        namespace = pair.create_namespace("chaos", deduplicationEnabled=True)
        for number in range(times):
            kind = list(_KINDS)[number % len(_KINDS)]
            topic = f"persistent://{namespace}/moved-{number}"
            with tempfile.TemporaryDirectory() as folder:
                turn = _Move(pair, topic, kind, Path(folder), random.Random(f"{seed} {number}")).run()
            print(f"turn {number}:", *turn, flush=True)
            yield tuple(turn)


class _Move:
    """A query on a topic of its own, which moves from cluster a to cluster b when a is killed."""

    def __init__(self, pair: TwoClusters, topic: str, kind: str, folder: Path, chance: random.Random) -> None:
        self._pair, self._topic, self._kind, self._folder, self._chance = pair, topic, kind, folder, chance
        self._how = _KINDS[kind]

    def run(self) -> Turn:
        """Raises AssertionError where a promise is not kept."""
        began, pair, topic = time.monotonic(), self._pair, self._topic
        pair.create_topic(topic, partitions=_PARTITIONS)
        writing = FourProducers(pair.a.service_url, topic, _ROWS)
        wait_until(lambda: len(self._stored("b")) >= PRODUCERS - 1)
        self._read_and_kill(writing)
        before, copied = self._rows(), self._stored("b")
        self._continue(self._chance.choice(("stream", "until-idle")), copied)
        rows = self._rows()
        if not self._how.is_counted:
            self._require(copied.keys() - rows.keys(), "has not read")
        pair.a.start()
        writing.join(_PATIENCE)
        written = self._stored("a")  # which loads all its partitions
        assert sorted(written) == list(range(_ROWS * PRODUCERS))
        pair.await_replicated("a", topic)
        arrived = self._stored("b")
        self._continue("until-idle", arrived)
        rows, lost = self._rows(), self._named(written).keys() - copied.keys()
        if self._how.is_counted:
            found = Counter(dict(json.loads(batches(self._folder)[-1].read_text())))
            least, most = (
                Counter(written[each].key for each in numbers - lost)
                for numbers in (arrived.keys(), written.keys())
            )
            assert least <= found <= most, (least - found, found - most)
        else:
            self._require(
                (arrived.keys() - rows.keys()) ^ (lost & arrived.keys()),
                "has not read, or has and named as lost,",
            )
        assert rows.keys() <= written.keys()
        uncopied, late = before.keys() - copied.keys() - lost, rows.keys() - before.keys() - copied.keys()
        seconds = round(time.monotonic() - began)
        return Turn(
            self._kind,
            len(written),
            len(before),
            len(uncopied),
            len(late),
            len(lost),
            len(written) - len(arrived),
            seconds,
        )

    def _read_and_kill(self, writing: FourProducers) -> None:
        """Read in cluster a until it is killed, while the producers write."""
        link, chance = self._pair.links["a"], self._chance
        with self._driver("a", self._how.trigger) as process:
            wait_until(lambda: process.wait_for(0) is not None or batches(self._folder))
            writing.go_on.set()
            assert process.wait_for(chance.uniform(0.5, _WRITES_FOR)) is None, process.log_tail()
            link.stall()
            assert process.wait_for(chance.uniform(0.0, 3.0)) is None, process.log_tail()
            self._pair.a.kill()
            process.wait_for(chance.choice((0.0, 1.0)))
        link.cut_all()
        link.resume()

    def _continue(self, trigger: str, present: Mapping[int, StoredRow]) -> None:
        """Read all that cluster b has. A loss must be an error first."""
        trigger = "until-idle" if self._how.is_counted else trigger
        for options in ({}, {"failOnDataLoss": "false"}):
            with self._driver("b", trigger, **options) as process:
                until = time.monotonic() + _PATIENCE
                while process.wait_for(0.2) is None and time.monotonic() < until:
                    has_all = trigger == "stream" and self._rows(is_whole=False).keys() >= present.keys()
                    if has_all and _MOVED in process.log:
                        break
                if process.wait_for(0) in ((None,) if trigger == "stream" else (0,)):
                    assert _MOVED in process.log
                    return
                assert _NOT_COPIED in process.log, process.log_tail()
        raise AssertionError(process.log_tail())

    def _driver(self, cluster: str, trigger: str, **options: str) -> AbstractContextManager[Driver]:
        how = self._how.options | options
        url = self._pair.broker(cluster).service_url
        return query(url, self._topic, self._folder, trigger, is_counted=self._how.is_counted, **how)

    def _stored(self, cluster: str) -> dict[int, StoredRow]:
        return stored_rows(self._pair.broker(cluster).service_url, self._topic)

    def _rows(self, *, is_whole: bool = True) -> Counter[int]:
        """The numbers that the query has read: each once, and those of a key in order."""
        if self._how.is_counted:
            return Counter()
        files = [json.loads(file.read_text()) for file in batches(self._folder)]
        rows = Counter(number for file in files for _, number in file)
        if is_whole:
            by_key = defaultdict(list)
            for key, number in (row for file in files for row in file):
                by_key[key].append(number)
            self._require((number for number, count in rows.items() if count > 1), "has read twice")
            unordered = {key: numbers for key, numbers in by_key.items() if numbers != sorted(numbers)}
            assert not unordered, unordered
        return rows

    def _named(self, written: Mapping[int, StoredRow]) -> dict[int, StoredRow]:
        """The rows at positions that a WARNING named as lost."""
        ranges = {
            (name, MessageId.parse(first), MessageId.parse(last))
            for name, first, last in _LOST.findall(self._log())
        }
        return {
            number: each
            for number, each in written.items()
            if any(each.partition == name and first < each.id <= last for name, first, last in ranges)
        }

    def _log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")

    def _require(self, wrong: Iterable[int], what: str) -> None:
        """Fails where there are such rows, with what helps to find the reason."""
        numbers = sorted(wrong)
        if not numbers:
            return
        files = [
            (file.stem, dict(map(reversed, json.loads(file.read_text())))) for file in batches(self._folder)
        ]
        stored = self._stored("b")
        shown = [
            f"{each}: in b {stored.get(each)}, in files {[name for name, rows in files if each in rows]}"
            for each in numbers[:: -(-len(numbers) // 30)]
        ]
        offsets = sorted(
            (self._folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda each: int(each.name)
        )
        shown += [f"{each.name}: {each.read_text()}" for each in offsets[-10:]]
        raise AssertionError(
            "\n".join([f"the query {what} {len(numbers)} rows", *shown, self._log()[-8000:]])
        )


@contextmanager
def query(
    service_url: str, topic: str, folder: Path, trigger: str, *, is_counted: bool = False, **options: str
) -> Iterator[Driver]:
    """A driver that is killed at the end; ``options`` are of the source."""
    given = [f"{name}={value}" for name, value in options.items()]
    arguments = [service_url, topic, str(folder), trigger, str(is_counted), *given]
    process = Driver(folder / "driver.log", *arguments, module=__spec__.name)
    try:
        yield process
    finally:
        process.kill()


def run_driver(
    service_url: str, topic: str, folder: Path, trigger: str, options: dict[str, str], *, is_counted: bool
) -> None:
    """Keep the key and number of each row in a file of its micro-batch, or the count of each key."""
    spark = local_spark(folder, "clusters", {"spark.log.level": "OFF"}, java=SHORT_RUN)
    out = folder / "out"
    out.mkdir(exist_ok=True)
    rows = PulsarInSpark(spark, service_url).stream(topic, valueFormat="columns", **options)
    keyed = rows.selectExpr("CAST(__key AS STRING) AS key", "number")

    def write(batch: DataFrame, number: int) -> None:
        (out / f"{number}.tmp").write_text(json.dumps([tuple(row) for row in batch.collect()]))
        (out / f"{number}.tmp").replace(out / f"{number}.json")

    def begin(**how: Any) -> StreamingQuery:
        if not is_counted:
            return start(keyed, write, folder / "checkpoint", **how)
        counts = keyed.groupBy("key").count().writeStream.outputMode("complete").foreachBatch(write)
        counts = counts.option("checkpointLocation", str(folder / "checkpoint"))
        return begun(counts.trigger(**how) if how else counts)

    while True:
        begin(**({} if trigger == "stream" else {"availableNow": True})).awaitTermination()
        if trigger == "until-idle":
            break
    spark.stop()


if __name__ == "__main__":
    run_driver(
        sys.argv[1],
        sys.argv[2],
        Path(sys.argv[3]),
        sys.argv[4],
        dict(option.split("=", 1) for option in sys.argv[6:]),
        is_counted=sys.argv[5] == "True",
    )
