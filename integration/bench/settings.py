"""What Spark's own settings change: each configuration in processes of its own, in turn.

    python3 -m integration bench settings [N]

Two million rows of 100 bytes are read, and 1.25 million written, N times in each configuration; the medians
are compared with those of Spark's defaults.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from integration.bench.measure import Cost, in_new_process
from integration.bench.queries import Queries
from integration.bench.shapes import SHAPES
from integration.bench.spark import session
from integration.bench.topics import Topics
from integration.broker import Admin, StandaloneBroker
from pulsar_spark.client import Client, ClientOptions

_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
_BUFFER = {"spark.buffer.size": "1048576"}
_CONFIGURATIONS: dict[str, dict[str, str]] = {
    "Spark's defaults": {},
    "Unix domain sockets": _SOCKETS,
    "spark.buffer.size of 1 MiB": _BUFFER,
    "both": _SOCKETS | _BUFFER,
}
_SHAPE, _PARTITIONS, _TURNS = SHAPES["batched"].scaled(2), 4, 3


class Costs(NamedTuple):
    """Of one process: the last read and the last write."""

    read: Cost
    write: Cost


def measure(service_url: str, admin_url: str, topic: str, settings: dict[str, str]) -> Costs:
    """Read a topic and write others, some times; the last ones count."""
    with (
        tempfile.TemporaryDirectory() as name,
        session(Path(name), settings) as spark,
        Client(ClientOptions(service_url=service_url)) as client,
    ):
        queries = Queries(spark, Topics(Admin(admin_url), client, itertools.count(1)), Path(name))
        for _ in range(_TURNS):
            read = queries.read_topic(topic, _SHAPE.reads)
            write = queries.write_topic(_SHAPE, _PARTITIONS, _SHAPE.writes)
    return Costs(read, write)


def main(broker: StandaloneBroker, repeat: int = 3) -> int:
    """Measure and print."""
    found: dict[str, list[Costs]] = {name: [] for name in _CONFIGURATIONS}
    with broker, Client(ClientOptions(service_url=broker.service_url)) as client:
        topics = Topics(broker.admin, client)
        with topics.filled(_SHAPE, _PARTITIONS, _SHAPE.reads) as topic:
            for _ in range(repeat):
                for name, settings in _CONFIGURATIONS.items():
                    urls = broker.service_url, broker.admin_url
                    found[name].append(in_new_process(measure, *urls, topic, settings))
    usual = next(iter(found.values()))
    for name, costs in found.items():
        print(f"{name}: read {_line(costs, usual, 0)}; write {_line(costs, usual, 1)}", flush=True)
    return 0


def _line(costs: list[Costs], usual: list[Costs], what: int) -> str:
    """The rate and the CPU a row, beside those of Spark's defaults in the same round."""
    rate = median(other[what].seconds / mine[what].seconds for mine, other in zip(costs, usual, strict=True))
    cpu = median(mine[what].cpu / other[what].cpu for mine, other in zip(costs, usual, strict=True))
    return f"{rate:.2f} x the rows a second, {cpu:.2f} x the CPU"
