"""A JVM connector's jar beside ours: the same messages, on the same broker, in one run.

    python3 -m integration bench --peer-jar JAR

Both call their format ``pulsar``, so each has a Spark of its own, in a process of its own. They work in turn;
the one that waits takes no CPU. Reads and writes are batch queries, since any connector has these. Rows are
checked by count and checksum: what each reads, and what each has written, as ours reads it. Writes are shown
beside those of both ends alone, the limit of any sink in Python.
"""

from __future__ import annotations

import multiprocessing
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from integration.bench.ends import Ends
from integration.bench.measure import Cost, Result, Side, Trial, interleaved
from integration.bench.shapes import Shape, rows_to_write
from integration.bench.spark import timed, write_rows
from integration.bench.topics import Topics
from integration.helpers.local_spark import local_spark

# The least ratios to a JVM connector's rates.
REQUIRED = {("read", "batched"): 1.8, ("read", "lz4"): 2.5, ("read", "unbatched"): 1.5}
REQUIRED_WRITE = 1.0

_SERVICES = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_OURS = "pulsar"
_WARM_UPS = 3  # runs of each: both JVMs compile meanwhile
_Options = dict[str, str]
_Made = TypeVar("_Made")
_Runs = dict[Side, Callable[[int], Cost]]


@dataclass(frozen=True, slots=True)
class Rows:
    """What rows are.

    Attributes:
        checksum: the sum of their hashes; the same in any order.
    """

    count: int
    checksum: int


class Place(NamedTuple):
    """A Spark of its own.

    Attributes:
        jar: on its class path; None: none.
        data_source: what ``format`` is given.
    """

    jar: Path | None
    data_source: str
    folder: Path


def data_source_of(jar: Path) -> str:
    """The class that a jar registers with Spark. Its short name would be that of ours.

    Raises:
        ValueError: it registers none, or several.
    """
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(_SERVICES).decode() if _SERVICES in opened.namelist() else ""
    names = [name for line in text.splitlines() if (name := line.partition("#")[0].strip())]
    if len(names) != 1:
        raise ValueError(f"{jar} registers {len(names)} data sources with Spark, not one")
    return names[0]


class Connector:
    """A connector in its own process; a context manager."""

    def __init__(self, place: Place, options: _Options) -> None:
        self._place = place
        self._options = options
        context = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(max_workers=1, mp_context=context)

    def __enter__(self) -> Connector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._result(partial(_stop, self._place))
        self._process.shutdown()

    def read(self, topic: str, shape: Shape) -> Cost:
        """Read all of a topic."""
        return self._result(partial(_read, self._place, self._of(topic), shape))

    def rows(self, topic: str, shape: Shape) -> Rows:
        """What it reads from a topic."""
        return self._result(partial(_rows, self._place, self._of(topic), shape))

    def write(self, topic: str, shape: Shape, count: int, partitions: int) -> Cost:
        """Write the first messages of a shape."""
        options = self._of(topic) | {
            "pulsar.producer.batchingEnabled": str(shape.batching).lower(),
            "pulsar.producer.compressionType": "LZ4" if shape.lz4 else "NONE",
            "pulsar.producer.blockIfQueueFull": "true",  # Java's default fails when rows come fast
        }
        data_source = self._place.data_source
        return self._result(partial(_write, self._place, data_source, options, shape, count, partitions))

    def write_ends(self, topic: str, shape: Shape, count: int, partitions: int) -> Cost:
        """Give as many rows to a sink that only compresses and sends batches that were made before."""
        options = self._of(topic) | {"shape": shape.name}
        return self._result(partial(_write, self._place, Ends.name(), options, shape, count, partitions))

    def rows_to_write(self, shape: Shape, count: int) -> Rows:
        """What these are."""
        return self._result(partial(_rows_to_write, self._place, shape, count))

    def _result(self, run: Callable[[], _Made]) -> _Made:
        return self._process.submit(reported, run, self._place.data_source).result()

    def _of(self, topic: str) -> _Options:
        return self._options | {"topic": topic}


@dataclass(frozen=True, slots=True)
class Pair:
    """Ours and a peer, on the topics of one broker."""

    topics: Topics
    ours: Connector
    peer: Connector

    def read(self, shape: Shape, partitions: int, repeat: int) -> Result:
        """One topic, read by both.

        Raises:
            ValueError: one of them gives other rows.
        """
        count = shape.reads
        with self.topics.filled(shape, partitions, count) as topic:
            for name, connector in (("pulsar_spark", self.ours), ("the peer", self.peer)):
                self._check(name, connector.rows(topic, shape), shape, count)
            runs: _Runs = {
                Side.OURS: lambda _: self.ours.read(topic, shape),
                Side.PEER: lambda _: self.peer.read(topic, shape),
            }
            return _compared("read", shape, partitions, count, repeat, runs)

    def write(self, shape: Shape, partitions: int, repeat: int) -> Result:
        """Both, and what both ends alone take, each time to a new topic.

        Raises:
            ValueError: one of them has written other rows.
        """
        count = shape.writes

        def written(write: Callable[[str, Shape, int, int], Cost], messages: int) -> Cost:
            with self.topics.empty(partitions) as topic:
                return write(topic, shape, messages, partitions)

        for name, connector in (("pulsar_spark", self.ours), ("the peer", self.peer)):
            with self.topics.empty(partitions) as topic:
                connector.write(topic, shape, count, partitions)
                self._check(name, self.ours.rows(topic, shape), shape, count)
        runs: _Runs = {
            Side.OURS: lambda messages: written(self.ours.write, messages),
            Side.PEER: lambda messages: written(self.peer.write, messages),
            Side.ENDS: lambda messages: written(self.ours.write_ends, messages),
        }
        return _compared("write", shape, partitions, count, repeat, runs)

    def warm_up(self, shape: Shape) -> None:
        """Let the JVMs of both and of the broker compile."""
        with self.topics.filled(shape, 1, shape.reads) as topic:
            for connector in (self.ours, self.peer) * _WARM_UPS:
                connector.read(topic, shape)
        for connector in (self.ours, self.peer) * _WARM_UPS:
            with self.topics.empty(1) as topic:
                connector.write(topic, shape, shape.writes, 1)

    def _check(self, name: str, found: Rows, shape: Shape, count: int) -> None:
        expected = self.ours.rows_to_write(shape, count)
        if found != expected:
            raise ValueError(f"{shape.title}: the rows of {name} are {found}, not {expected}")


def _compared(direction: str, shape: Shape, partitions: int, count: int, repeat: int, runs: _Runs) -> Result:
    trials = [Trial(side, count, run, count) for side, run in runs.items()]
    return interleaved(direction, shape, partitions, trials, repeat)


def line(result: Result) -> str:
    """One result in a line, with the goals."""
    ratio, ours, peers = result.ratio(Side.PEER), result.cpu(Side.OURS), result.cpu(Side.PEER)
    assert ratio is not None
    assert ours is not None
    assert peers is not None
    required = REQUIRED_WRITE if result.direction == "write" else REQUIRED.get(("read", result.shape.name))
    goal = ""
    if required is not None:
        goal = f" (needs {required:g} x{', BELOW' * (ratio < required)})"
    limit = ""
    if (ends := result.cpu(Side.ENDS)) is not None:
        share = result.best(Side.ENDS) / result.best(Side.PEER)
        limit = f"; both ends alone {share:.2f} x the peer's rate, {ends:.2f} us"
    return (
        f"{result.direction}, {result.shape.title}, partitions: {result.partitions}: "
        f"{result.best(Side.OURS):,.0f}/s, peer {result.best(Side.PEER):,.0f}/s, {ratio:.2f} x{goal}; "
        f"us of CPU a row: {ours:.2f}, peer {peers:.2f} (needs less{', ABOVE' * (ours >= peers)})"
        f"{limit}"
    )


@contextmanager
def pair(topics: Topics, jar: Path, folder: Path) -> Iterator[Pair]:
    """Ours and the connector of ``jar``, each with a Spark that keeps its files in ``folder``.

    Raises:
        ValueError: as :func:`data_source_of`.
    """
    given = {"service.url": topics.service_url}
    places = (Place(None, _OURS, folder / "ours"), Place(jar.resolve(), data_source_of(jar), folder / "peer"))
    # Some connectors ask brokers over HTTP.
    options = (given, given | {"admin.url": topics.admin.url})
    with Connector(places[0], options[0]) as ours, Connector(places[1], options[1]) as peers:
        yield Pair(topics, ours, peers)


# What follows runs in a connector's process.


@cache
def _spark(place: Place) -> SparkSession:
    settings = {"spark.driver.memory": "2g"}
    if place.jar is not None:
        settings["spark.jars"] = str(place.jar)
    spark = local_spark(place.folder, "bench", settings, cores="*")
    spark.dataSource.register(Ends)
    return spark


def reported(run: Callable[[], _Made], data_source: str) -> _Made:
    """What ``run`` gives; its error as text, since Spark's errors cannot go to another process."""
    try:
        return run()
    except Exception as error:
        raise RuntimeError(f"{data_source}: {error}") from error


def _stop(place: Place) -> None:
    _spark(place).stop()


def _loaded(place: Place, options: _Options, shape: Shape) -> DataFrame:
    more = {"startingOffsets": "earliest"}
    if shape.value_only and place.data_source == _OURS:
        more["metadataColumns"] = ""  # Spark tells no Python source which columns it needs
    rows = _spark(place).read.format(place.data_source).options(**options, **more).load()
    return rows.select("value") if shape.value_only else rows


def _read(place: Place, options: _Options, shape: Shape) -> Cost:
    def run() -> None:
        _loaded(place, options, shape).write.format("noop").mode("overwrite").save()

    return timed(_spark(place), run)


def _write(
    place: Place, data_source: str, options: _Options, shape: Shape, count: int, partitions: int
) -> Cost:
    rows = rows_to_write(_spark(place), shape, count, partitions)
    if shape.event_time and place.data_source != _OURS:
        # The JVM connector writes the microseconds of a timestamp as milliseconds.
        rows = rows.withColumn("__eventTime", f.unix_millis("__eventTime"))
    return write_rows(rows, data_source, options)


def _rows(place: Place, options: _Options, shape: Shape) -> Rows:
    return rows_of(_loaded(place, options, shape), shape)


def _rows_to_write(place: Place, shape: Shape, count: int) -> Rows:
    return rows_of(rows_to_write(_spark(place), shape, count, 1), shape)


def rows_of(rows: DataFrame, shape: Shape) -> Rows:
    """What rows with the columns of a shape are."""
    hashed = [f.col("value")]
    if not shape.value_only:
        hashed.append(f.col("__key").cast("binary"))
    if shape.properties:
        hashed.append(f.to_json(f.array_sort(f.map_entries("__messageProperties"))))
    if shape.event_time:
        hashed.append(f.unix_millis("__eventTime"))
    each = f.xxhash64(*hashed).cast("decimal(20)")
    found = rows.agg(f.count("*"), f.coalesce(f.sum(each), f.lit(0))).head()
    assert found is not None
    return Rows(int(found[0]), int(found[1]))
