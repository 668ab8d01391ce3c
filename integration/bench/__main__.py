"""Measure our source and sink against Spark's transport alone and pulsar-client alone.

    python3 -m integration bench [--quick] [--only read|write|backlog]
                                 [--shapes ...] [--partitions ...] [--repeat N]
    python3 -m integration bench --peer-jar JAR    our source and sink against a JVM connector's
    python3 -m integration bench values [TEXT]    values with a schema alone, against fastavro and orjson
    python3 -m integration bench small [N [JAR]]  ten rows beside a minimal source, N rounds
    python3 -m integration bench typed [N]    typed rows through Spark against raw ones, N rounds
    python3 -m integration bench kafka [N [ROWS]]  beside Spark's Kafka source and sink, N rounds
    python3 -m integration bench planning [N ...]   what planning N partitions costs
    python3 -m integration bench replays [N]  a replay of a deduplicating task beside its first run, N pairs
    python3 -m integration bench segments [N] a scalable topic of Pulsar 5 beside one with partitions, N reads
    python3 -m integration bench latency [N]  milliseconds from produce to foreachBatch, N samples

It starts a broker of its own. docs/developers/benchmarks.md says what is timed, and has the figures.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from integration.bench import (
    backlog,
    kafka,
    latency,
    memory,
    peer_jar,
    planning,
    replays,
    report,
    segments,
    small,
    typed,
    values,
)
from integration.bench.measure import Result
from integration.bench.queries import Queries
from integration.bench.shapes import PARTITIONS, SHAPES, Shape
from integration.bench.spark import session
from integration.bench.topics import Topics
from integration.broker import Jvm, StandaloneBroker
from pulsar_spark.client import Client, ClientOptions

_QUICK = 10  # --quick measures a tenth of the messages
_MEMORY_COUNTS = (200_000, 2_000_000)
_BACKLOG = 20_000_000
_JVM = Jvm(heap="4g", direct_memory="6g")
# Without a journal each entry is written once: a broker has cores of its own elsewhere, this one shares ours.
# The idle subscriber lets the broker keep what readers have taken: for the whole run, not for a second and
# up to 1,000 entries, or it would be the broker's storage that is measured.
_SETTINGS = {
    "journalWriteData": "false",
    "managedLedgerCacheSizeMB": "2048",
    "managedLedgerCacheEvictionTimeThresholdMillis": "600000",
    "managedLedgerCursorBackloggedThreshold": "100000000",
}

Step = Callable[[Shape, int, int], Result]


def _with_broker(run: Callable[..., int]) -> Callable[..., int]:
    return lambda *given: run(StandaloneBroker(_SETTINGS, jvm=_JVM), *given)


_COMMANDS: dict[str, Callable[..., int]] = {
    "kafka": _with_broker(kafka.main),
    "latency": latency.main,
    "planning": planning.main,
    "replays": _with_broker(replays.main),
    "segments": segments.main,
    "small": _with_broker(small.main),
    "typed": typed.main,
    "values": lambda *words: values.main(*map(str, words)),
}


def main() -> int:
    """Measure, print, and write what is asked for."""
    command = _COMMANDS.get("".join(sys.argv[1:2]))
    if command is not None:
        return command(*(int(word) if word.isdigit() else word for word in sys.argv[2:]))
    options = _parsed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.peer_jar is not None:
        _beside_peer(options)
        return 0
    if options.only != "backlog":
        _short_runs(options)
    if options.only in (None, "backlog"):
        print(report.backlog_line(_long_backlog(_BACKLOG // (_QUICK if options.quick else 1))), flush=True)
    return 0


def _short_runs(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        print("starting a broker", flush=True)
        broker = stack.enter_context(StandaloneBroker(_SETTINGS, jvm=_JVM))
        client = stack.enter_context(Client(ClientOptions(service_url=broker.service_url)))
        topics = Topics(broker.admin, client)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsar_spark_bench_")))
        queries = Queries(stack.enter_context(session(folder)), topics, folder)
        if options.only in (None, "read"):
            peaks = memory.measure(queries, SHAPES["batched"], _MEMORY_COUNTS)
            print(report.memory_lines(peaks), flush=True)
        print("warming Spark up", flush=True)
        queries.warm_spark(options.shapes[0])
        results = []
        for shape, partitions, step in _steps(options, queries.read, queries.write):
            results.append(step(shape, partitions, options.repeat))
            print(report.line(results[-1]), flush=True)
        print("\nmessages a second:\n" + report.text_table(results))


def _beside_peer(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(StandaloneBroker(_SETTINGS, jvm=_JVM))
        client = stack.enter_context(Client(ClientOptions(service_url=broker.service_url)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsar_spark_bench_")))
        pair = stack.enter_context(peer_jar.pair(Topics(broker.admin, client), options.peer_jar, folder))
        print("warming both up", flush=True)
        pair.warm_up(options.shapes[0])
        for shape, partitions, step in _steps(options, pair.read, pair.write):
            print(peer_jar.line(step(shape, partitions, options.repeat)), flush=True)


def _steps(options: argparse.Namespace, read: Step, write: Step) -> list[tuple[Shape, int, Step]]:
    # Writes first: gigabytes of topics that are read would keep the broker's disk and collector busy.
    steps = {"write": write, "read": read}
    return [
        (shape, partitions, step)
        for direction, step in steps.items()
        if options.only in (None, direction)
        for shape in options.shapes
        if direction == "read" or not shape.value_only
        for partitions in options.partitions
    ]


def _long_backlog(messages: int) -> backlog.Backlog:
    """On a broker as it comes: one that keeps only a part of a backlog in memory would show two speeds."""
    with ExitStack() as stack:
        broker = stack.enter_context(StandaloneBroker(jvm=_JVM))
        client = stack.enter_context(Client(ClientOptions(service_url=broker.service_url)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsar_spark_bench_")))
        queries = Queries(stack.enter_context(session(folder)), Topics(broker.admin, client), folder)

        def restart() -> None:
            broker.stop()
            broker.start()

        return backlog.measure(queries, SHAPES["batched"], messages, restart)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m integration bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the messages: a try, not a measurement"
    )
    parser.add_argument("--only", choices=("read", "write", "backlog"))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--partitions", nargs="+", type=int, default=list(PARTITIONS), metavar="N")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each side (default: 3)")
    parser.add_argument("--peer-jar", type=Path, metavar="JAR", help="a JVM connector, beside ours")
    options = parser.parse_args()
    if options.peer_jar is not None and options.only == "backlog":
        parser.error("--peer-jar reads and writes through Spark only")
    if options.repeat < 1 or min(options.partitions) < 1:
        parser.error("counts begin at 1")
    shapes = [SHAPES[name] for name in options.shapes]
    options.shapes = [shape.scaled(_QUICK) for shape in shapes] if options.quick else shapes
    return options


if __name__ == "__main__":
    sys.exit(main())
