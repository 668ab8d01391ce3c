"""What a replay costs beside the first run: a deduplicating task finds all its rows stored.

    python3 -m integration bench replays [N]

Our client alone: a task writes a million rows of a micro-batch, and a second one with the same rows reads and
compares what is stored, and sends nothing. N pairs, one after the other; medians are compared. The bytes are
those that the broker took and gave. Beside each pair, pulsar-client's reader reads what another first run has
stored, a fifth of the rows: that topic had no reader before, so the broker reads it from its storage,
too. A replay can hardly be faster than that, where the broker is what takes the time.
"""

from __future__ import annotations

from contextlib import closing
from statistics import median
from typing import NamedTuple

from integration.bench import peer, shapes
from integration.bench.cpu import process_cpu_seconds
from integration.bench.measure import Cost, Stopwatch
from integration.bench.shapes import PARTITIONS, SHAPES, Shape
from integration.bench.topics import Topics
from integration.broker import StandaloneBroker
from integration.helpers.task_runs import task_of
from pulsar_spark.client import Client, ClientOptions, TopicWriter
from pulsar_spark.ids import TopicName

_ROWS = 1_000_000
_WARM_UP = _ROWS // 2  # until then a broker takes twice the CPU for an entry
_READER_ROWS = _ROWS // 5
_SHAPES = ("batched", "lz4", "unbatched")
_NAMESPACE = "public/default"


class Pair(NamedTuple):
    """A first run and its replay.

    Attributes:
        first: what the first run took.
        replay: what the replay took.
        broker: CPU that the broker took for the replay, over that for the first run.
        read: bytes that the replay read, over those that were stored.
        reader: seconds of pulsar-client's reader, over those of the first run that wrote what it reads.
    """

    first: Cost
    replay: Cost
    broker: float
    read: float
    reader: float


def main(broker: StandaloneBroker, repeat: int = 3) -> int:
    """Measure and print."""
    with broker, Client(ClientOptions(service_url=broker.service_url)) as client:
        broker.admin.set_deduplication(_NAMESPACE, True)
        topics = Topics(broker.admin, client)
        for name in _SHAPES:
            for partitions in PARTITIONS:
                shape = SHAPES[name]
                _pair(topics, broker.pid, shape, partitions, _WARM_UP)
                pairs = [_pair(topics, broker.pid, shape, partitions, _ROWS) for _ in range(repeat)]
                print(f"{shape.title}, partitions {partitions}: {line(pairs)}", flush=True)
    return 0


def line(pairs: list[Pair]) -> str:
    """The medians of the replays' costs, over those of the first runs."""
    seconds = median(pair.replay.seconds / pair.first.seconds for pair in pairs)
    cpu = median(pair.replay.cpu / pair.first.cpu for pair in pairs)
    broker = median(pair.broker for pair in pairs)
    reader = median(pair.reader for pair in pairs)
    read = max(pair.read for pair in pairs)
    rate = _ROWS / median(pair.first.seconds for pair in pairs)
    return (
        f"replay {seconds:.2f} x the seconds, {cpu:.2f} x our CPU and {broker:.2f} x the broker's of a first "
        f"run ({rate:,.0f} rows/s), {read:.2f} x its bytes read; pulsar-client's reader {reader:.2f} x the "
        "seconds"
    )


def _pair(topics: Topics, pid: int, shape: Shape, partitions: int, rows: int) -> Pair:
    with topics.empty(partitions) as topic:
        name = TopicName.parse(topic)
        began = process_cpu_seconds(pid)
        first = _run(topics.client, name, shape, rows, sent=rows)
        between = process_cpu_seconds(pid)
        before = _bytes(topics, topic, partitions)
        replay = _run(topics.client, name, shape, rows, sent=0)
        ended = process_cpu_seconds(pid)
        after = _bytes(topics, topic, partitions)
    broker = (ended - between) / (between - began)
    read = (after.given - before.given) / before.taken
    return Pair(first, replay, broker, read, _reader(topics, shape, partitions))


def _reader(topics: Topics, shape: Shape, partitions: int) -> float:
    """Seconds of pulsar-client's reader, over those of a first run that wrote what it reads."""
    with topics.empty(partitions) as topic:
        written = _run(topics.client, TopicName.parse(topic), shape, _READER_ROWS, sent=_READER_ROWS)
        return peer.read(topics.service_url, topic, shape, _READER_ROWS).seconds / written.seconds


class _Bytes(NamedTuple):
    """What the broker has taken from producers, and given to consumers."""

    taken: int
    given: int


def _bytes(topics: Topics, topic: str, partitions: int) -> _Bytes:
    stats = topics.admin.stats(topic) if partitions == 1 else topics.admin.partitioned_stats(topic)
    return _Bytes(stats["bytesInCounter"], stats["bytesOutCounter"])


def _run(client: Client, topic: TopicName, shape: Shape, rows: int, *, sent: int) -> Cost:
    """A run of the task; raises AssertionError if it sends another number of rows."""
    columns = list(shapes.chunks(shape, rows))
    watch = Stopwatch()
    options = shapes.producer_options(shape)
    with closing(task_of(client)) as task, closing(TopicWriter(client, topic, options, dedup=task)) as writer:
        for part in columns:
            writer.send(part)
        writer.flush()
        task.finish()
        count = sum(each.messages for each in writer.sent.values())
    cost = watch.cost()
    assert count == sent, f"{count} rows were sent, not {sent}"
    return cost
