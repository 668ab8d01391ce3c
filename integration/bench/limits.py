"""How near our source and sink come to both ends alone, and to a reader that decodes nothing.

    python3 -m integration bench limits [N]

N runs of each, in turn. When reading: both ends alone, the same with each entry decompressed and copied, and
our source. When writing: both ends alone and our sink. The medians are compared: the rates of a shared
machine differ from run to run by more than these do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from integration.bench.measure import Result, Side
from integration.bench.queries import Queries
from integration.bench.shapes import PARTITIONS, SHAPES
from integration.bench.spark import session
from integration.bench.topics import Topics
from integration.broker import StandaloneBroker
from pulsar_spark.client import Client, ClientOptions

_WRITTEN = ("batched", "lz4", "lz4-whole")
_READ = ("batched", "value", "lz4", "lz4-whole")


def main(broker: StandaloneBroker, repeat: int = 7) -> int:
    """Measure and print."""
    for result in measure(broker, repeat):
        print(line(result), flush=True)
    return 0


def measure(broker: StandaloneBroker, repeat: int) -> Iterator[Result]:
    """Write and read each shape with each number of partitions."""
    with ExitStack() as stack:
        stack.enter_context(broker)
        client = stack.enter_context(Client(ClientOptions(service_url=broker.service_url)))
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pulsar_spark_bench_")))
        queries = Queries(stack.enter_context(session(folder)), Topics(broker.admin, client), folder)
        queries.warm_spark(SHAPES["batched"])
        # Writes first, as in the other runs: gigabytes of topics that are read would keep the broker busy.
        for compare, names in ((queries.write_limits, _WRITTEN), (queries.read_limits, _READ)):
            for name in names:
                for partitions in PARTITIONS:
                    yield compare(SHAPES[name], partitions, repeat)


def line(result: Result) -> str:
    """Medians: rates, shares of both ends alone, and CPU."""
    ends = median(result.rates[Side.ENDS])
    sides = (
        f"{side.value} {median(rates):,.0f} ({median(rates) / ends:.0%}), {median(result.cpus[side]):.2f} us"
        for side, rates in result.rates.items()
    )
    return f"{result.direction}, {result.shape.title}, partitions {result.partitions}: {'; '.join(sides)}"
