"""The results as a table on the terminal, as JSON, and as a page of the docs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from integration.bench import backlog
from integration.bench.backlog import Backlog
from integration.bench.measure import Result, Side
from integration.bench.memory import REQUIRED_MIB, Peak
from integration.bench.scaling import Scaling

_OTHERS = (Side.TRANSPORT, Side.ENDS, Side.CLIENT)
_SIDES = (Side.OURS, *_OTHERS)
_BUSY = 0.9  # of all cores: there is nothing left to gain

_VALUES_TITLE = "\n## Values with a schema\n"
_PAGE = """\
# Benchmarks

Written by `python3 -m integration bench --write-docs`; do not edit.

![Our rate as a multiple of pulsar-client's and as a share of Spark's transport](../img/benchmark.svg)

{results}
Rates are messages per second. Each ratio is our rate divided by the rate of the other side. CPU is in
microseconds per message, of Spark's JVM and its Python processes together, without the broker's: with
pulsar_spark, with Spark's transport, and what pulsar_spark takes more. What the project wants to reach:
[Goals](#goals).

## Memory of a Python worker

{memory}
The highest resident size of a worker during the read (`VmHWM`), minus the resident size of a worker that
has passed one row through Arrow and waits.

## Two cores

{scaling}
The same messages, read by one task and by four on two cores, in turn. Spark's JVM, the workers and the
broker share the cores. *Busy* is the part of both cores that was used. Once both are busy, more tasks
cannot help.

## A long backlog

{backlog}
{messages} messages on one partition, with a limit that makes 40 micro-batches. Speed: the median of the last
tenth of them compared with the median of the first tenth. Memory: a worker's highest resident size in a
read of a tenth as many messages, and in this read.

## What is measured

All sides run on the same machine and broker in one run, in turn: ours, transport, client, ours, ... The
broker writes no journal, so it uses less of the cores that all share; the long backlog is the exception.
Each side is warmed up first. The best of {repeat} runs counts, for all sides alike, and so does the lowest
CPU of them, because other work of a machine can only make a run slower. Values are slices of a log of
orders in JSON, which LZ4 compresses to 40 %. Keys are one of 10,000, and all messages have a key. Messages
of a batch have one size, and so have their keys. Where both differ, reading takes 70 ns of CPU a message of
100 bytes more, and 0.35 us of one of 1 KiB; writing takes 75 ns and 0.13 us more. One partition is a topic
without partitions and one Spark task; four are four tasks.

* **Read, pulsar_spark**: a streaming query with AvailableNow from the topic's beginning to `noop`. The
  time is Spark's `triggerExecution` of the micro-batch that has the rows: offsets, write-ahead log,
  planning, lookups at the broker, reading and commit; not the start of the query.
* **Read, CPU**: that of the query from when the offsets of this micro-batch are logged to its end; not
  the start of the planner.
* **Value only**: the same messages, read with an empty `metadataColumns`; the other sides have no other
  columns either, and pulsar-client reads `data` only.
* **Read, Spark's transport**: the same query over a Python data source whose `read()` gives the same
  Arrow batch repeatedly: as many rows in a batch as our source makes, with the same schema and similar
  values.
* **Read, both ends alone**: Spark's transport, while as many entries are fetched as our source fetches,
  and dropped: about the rate that could be reached if decoding messages cost nothing.
* **Read, pulsar-client**: one process, one reader with its default settings on the same topic (on all
  partitions where there are four, which is not slower than one reader after the other), `read_next`,
  `data` and `partition_key` for each message, `properties` and `event_timestamp` if it has them. The time
  includes opening the reader.
* **Write, pulsar_spark**: `spark.range` made into messages and saved in a batch query with default
  options, to a new topic. Time and CPU are those of `save()`, which returns when the broker has
  acknowledged all.
* **Write, Spark's transport**: the same rows to a `DataSourceArrowWriter` that drops them.
* **Write, both ends alone**: Spark's transport, while as many rows are sent in batches that were encoded
  before, and are compressed again: about the rate that could be reached if encoding messages cost nothing.
* **Write, pulsar-client**: one process, `send_async` without a callback for messages made before, then
  `flush`. Batching, compression and pending limits are those of our sink.

Topics that are read were written by our writer with its default limits: batches of 1,000 messages of 100
bytes, or of 128 KiB. An idle subscriber stays attached to each topic, and the broker may keep all of it
in its cache.

## Machine

{machine}
## Goals

What the project wants to reach, for those who change it.

{goals}"""


@dataclass(slots=True)
class Findings:
    """What a run has measured."""

    results: list[Result] = field(default_factory=list)
    peaks: list[Peak] = field(default_factory=list)
    scalings: list[Scaling] = field(default_factory=list)
    backlog: Backlog | None = None


def text_table(results: Sequence[Result]) -> str:
    """The results in columns for a terminal."""
    rows = [_header(), *(_cells(result, _judged, _judged_cpu) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        texts = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(texts + numbers))
    return "\n".join(lines)


def line(result: Result) -> str:
    """One result in a line."""
    ratios = [f"{_judged(result, side)} of {side.value}" for side in _OTHERS if side in result.rates]
    above = _judged_cpu(result)
    if above:
        ratios.append(f"us of CPU a row: {_cpu(result, Side.OURS)}, above transport {above}")
    where = f"{result.direction}, {result.shape.title}, partitions: {result.partitions}"
    return f"{where}: {result.best(Side.OURS):,.0f}/s, {', '.join(ratios)}"


def memory_lines(peaks: Sequence[Peak]) -> str:
    """The peaks for a terminal."""
    return "\n".join(
        f"a worker that reads {peak.messages:,} messages: at most {peak.mib_above_idle:.0f} MiB above "
        f"an idle one (needs < {REQUIRED_MIB})"
        for peak in peaks
    )


def scaling_lines(scalings: Sequence[Scaling]) -> str:
    """The comparisons of one task with four, for a terminal."""
    return "\n".join(", ".join(cells) for cells in map(_scaling_cells, scalings))


def backlog_line(read: Backlog) -> str:
    """A long backlog, for a terminal."""
    return ", ".join(_backlog_cells(read))


def as_json(findings: Findings, machine: Mapping[str, str]) -> str:
    """Everything, with the rate of each run."""
    return json.dumps(
        {
            "machine": dict(machine),
            "results": [_result_json(result) for result in findings.results],
            "memory": [asdict(peak) for peak in findings.peaks],
            "scaling": [asdict(scaling) for scaling in findings.scalings],
            "backlog": None if findings.backlog is None else asdict(findings.backlog),
        },
        indent=2,
    )


def values_part(page: str) -> str:
    """The part of the page that ``bench values`` is the source of, which is kept."""
    _, title, rest = page.partition(_VALUES_TITLE)
    return title + rest


def page(findings: Findings, machine: Mapping[str, str], repeat: int) -> str:
    """docs/developers/benchmarks.md; of the whole run."""
    assert findings.backlog is not None
    return _PAGE.format(
        results=_markdown(
            _header(), [_cells(result, _plain, _plain_cpu) for result in findings.results], numbers_from=2
        ),
        scaling=_markdown(
            ["read by", "over one task", "cores busy with one task", "with four"],
            [_scaling_cells(scaling, goals=False) for scaling in findings.scalings],
            numbers_from=1,
        ),
        backlog=_markdown(
            ["messages", "last tenth's speed over the first's", "MiB for a tenth", "MiB"],
            [_backlog_cells(findings.backlog, goals=False)],
            numbers_from=0,
        ),
        messages=f"{findings.backlog.messages:,}",
        memory=_markdown(
            ["messages read", "MiB above an idle worker"],
            [[f"{peak.messages:,}", f"{peak.mib_above_idle:.0f}"] for peak in findings.peaks],
            numbers_from=0,
        ),
        machine=_markdown(["what", "which"], [list(fact) for fact in machine.items()], numbers_from=2),
        goals=_markdown(["what", "measured", "goal", "reached"], _goals(findings), numbers_from=4),
        repeat=repeat,
    )


def _header() -> list[str]:
    return [
        "",
        "messages",
        "partitions",
        *(side.value for side in _SIDES),
        "of transport",
        "of both ends",
        "of client",
        "CPU",
        "transport's CPU",
        "CPU above it",
    ]


def _scaling_cells(scaling: Scaling, *, goals: bool = True) -> list[str]:
    below = "" if _is_enough(scaling) else ", BELOW"
    verdict = f" (needs {scaling.required:g} x, or busy cores{below})" if goals else ""
    return [scaling.what, f"{scaling.ratio:.2f} x{verdict}", *(f"{busy:.0%}" for busy in scaling.busy)]


def _is_enough(scaling: Scaling) -> bool:
    return scaling.ratio >= scaling.required or scaling.busy[1] > _BUSY


def _backlog_cells(read: Backlog, *, goals: bool = True) -> list[str]:
    verdict = ", BELOW" if goals and abs(read.change) > backlog.REQUIRED else ""
    first, last = read.mib
    return [f"{read.messages:,}", f"{read.change:+.0%}{verdict}", f"{first:.0f}", f"{last:.0f}"]


def _cells(
    result: Result, ratio: Callable[[Result, Side], str], cpu_above: Callable[[Result], str]
) -> list[str]:
    rates = [f"{result.best(side):,.0f}" if side in result.rates else "" for side in _SIDES]
    ratios = [ratio(result, side) for side in _OTHERS]
    cpus = [_cpu(result, Side.OURS), _cpu(result, Side.TRANSPORT), cpu_above(result)]
    return [result.direction, result.shape.title, str(result.partitions), *rates, *ratios, *cpus]


def _cpu(result: Result, side: Side) -> str:
    cpu = result.cpu(side)
    return "" if cpu is None else f"{cpu:.2f}"


def _plain_cpu(result: Result) -> str:
    """Our CPU above that of transport; empty where it was not measured."""
    above = result.cpu_above_transport()
    return "" if above is None else f"{above:.2f}"


def _judged_cpu(result: Result) -> str:
    """The same with the goal."""
    goal = _cpu_goal(result)
    if goal is None:
        return _plain_cpu(result)
    measured, needs, is_reached = goal
    return f"{measured} (needs {needs}{'' if is_reached else ', ABOVE'})"


def _cpu_goal(result: Result) -> tuple[str, str, bool] | None:
    """As :func:`_goal`, of CPU above that of transport."""
    above, allowed = result.cpu_above_transport(), result.max_cpu_above_transport()
    if above is None or allowed is None:
        return None
    return _plain_cpu(result), f"at most {allowed:.2f}", above <= allowed


def _plain(result: Result, side: Side) -> str:
    """Our rate over another side's; empty where it was not measured."""
    ratio = result.ratio(side)
    if ratio is None:
        return ""
    return f"{ratio:.1f} x" if side is Side.CLIENT else f"{ratio:.0%}"


def _judged(result: Result, side: Side) -> str:
    """The same with the goal, for those who change the project."""
    goal = _goal(result, side)
    if goal is None:
        return _plain(result, side)
    measured, needs, is_reached = goal
    return f"{measured} (needs {needs}{'' if is_reached else ', BELOW'})"


def _goal(result: Result, side: Side) -> tuple[str, str, bool] | None:
    """What was measured, what is wanted, and whether it is reached; None where nothing is wanted."""
    ratio, least = result.ratio(side), result.required(side)
    if ratio is None or least is None:
        return None
    measured = _plain(result, side)
    needs = f"{least:g} x" if side is Side.CLIENT else f"{least:.0%}"
    is_reached, enough = ratio >= least, result.enough(side)
    if enough is not None:
        measured += f", {result.bytes_a_second() / 1e6:.0f} MB/s"
        needs += f" or {enough / 1e6:.0f} MB/s"
        is_reached |= result.bytes_a_second() >= enough
    return measured, needs, is_reached


def _goals(findings: Findings) -> list[list[str]]:
    """A row for each goal."""
    assert findings.backlog is not None
    rows: list[tuple[str, str, str, bool]] = []
    for result in findings.results:
        where = f"{result.direction}, {result.shape.title}, partitions: {result.partitions}"
        for side in _OTHERS:
            goal = _goal(result, side)
            if goal is not None:
                rows.append((f"{where}: ratio to {side.value}", *goal))
        cpu_goal = _cpu_goal(result)
        if cpu_goal is not None:
            rows.append((f"{where}: CPU above that of Spark's transport, us", *cpu_goal))
    for peak in findings.peaks:
        what = f"MiB of a worker that reads {peak.messages:,} messages, above an idle one"
        is_small = peak.mib_above_idle < REQUIRED_MIB
        rows.append((what, f"{peak.mib_above_idle:.0f}", f"less than {REQUIRED_MIB}", is_small))
    for scaling in findings.scalings:
        measured = f"{scaling.ratio:.2f} x, cores {scaling.busy[1]:.0%} busy"
        goal_text = f"{scaling.required:g} x, or busy cores"
        rows.append((f"read by {scaling.what}, over one task", measured, goal_text, _is_enough(scaling)))
    change = findings.backlog.change
    within = f"within {backlog.REQUIRED:.0%}"
    rows.append(
        ("speed at the end of a long backlog", f"{change:+.0%}", within, abs(change) <= backlog.REQUIRED)
    )
    return [
        [what, measured, goal, "yes" if is_reached else "no"] for what, measured, goal, is_reached in rows
    ]


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "direction": result.direction,
        "shape": result.shape.name,
        "partitions": result.partitions,
        "rates": {side.value: [round(rate) for rate in rates] for side, rates in result.rates.items()},
        "cpus": {side.value: [round(cpu, 3) for cpu in cpus] for side, cpus in result.cpus.items()},
        "ratios": {side.value: result.ratio(side) for side in _OTHERS if side in result.rates},
    }


def _markdown(header: list[str], rows: list[list[str]], *, numbers_from: int) -> str:
    marks = ["---:" if column >= numbers_from else "---" for column in range(len(header))]
    return "".join("| " + " | ".join(row) + " |\n" for row in [header, marks, *rows])
