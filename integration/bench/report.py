"""The results as a table on the terminal, as JSON, and as a page of the docs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from integration.bench import backlog
from integration.bench.backlog import Backlog
from integration.bench.measure import Result, Side
from integration.bench.memory import REQUIRED_MIB, Peak
from integration.bench.scaling import Scaling

_OTHERS = (Side.TRANSPORT, Side.ENDS, Side.CLIENT)
_BUSY = 0.9  # of all cores: there is nothing left to gain

_PAGE = """\
# Benchmarks

Written by `python3 -m integration bench --write-docs`; do not edit.

![Our rate as a multiple of pulsar-client's and as a share of Spark's transport](img/benchmark.svg)

{results}
Rates are messages a second. Each ratio is our rate over that of the other column's side; *needs* is the least
that the project asks of itself, for the messages and partitions that it is said of.

## Memory of a Python worker

{memory}
The highest resident size of a worker during the read, as the kernel keeps it (`VmHWM`), less the resident
size of a worker that has passed one row through Arrow and waits. Required: less than {limit} MiB.

## Two cores

{scaling}
The same messages, read by one task and by four on two cores, in turn. The cores are those of Spark's JVM,
the workers and the broker together: *busy* is the part of both that was used. Where both are, no more is to
be had.

## A long backlog

{backlog}
{messages} messages on one partition under a cap that makes 40 micro-batches. Speed: the median of the last
tenth's over that of the first's; required: within {steady:.0%}. Memory: a worker's highest resident size in a
read of a tenth as many, and in this one.

## What is measured

All sides work on the same machine and broker in one run, in turn: ours, transport, client, ours, ... The
broker writes no journal, so as to take less of the cores that it shares with them, but for the long backlog.
Each side is warmed up first; the best of {repeat} runs counts, for all sides alike, because what else a
machine does can only make a run slower. Values are slices of a log of orders in JSON, of which LZ4 leaves
40 %, keys are one of 10,000, and all messages have a key. One partition is a topic without partitions and one
Spark task; four are four tasks.

* **Read, pulsar_spark**: a streaming query with AvailableNow from the topic's beginning to `noop`. The time
  is Spark's `triggerExecution` of the micro-batch that has the rows: offsets, write-ahead log, planning,
  look-ups at the broker, reading and commit; not the start of the query.
* **Read, Spark's transport**: the same query over a Python data source whose `read()` gives one Arrow batch
  again and again: as many rows a batch as our source makes, of the same schema and with like values.
* **Read, both ends alone**: that, for as many rows as entries hold that are fetched meanwhile as our source
  fetches them, and thrown away: about what could be reached if it cost nothing to take messages apart.
* **Read, pulsar-client**: one process, one reader with its default settings on the same topic (on all
  partitions where there are four, which is not slower than one reader after the other), `read_next`, `data`
  and `partition_key` for each message, `properties` and `event_timestamp` where it has them, from opening
  the reader on.
* **Write, pulsar_spark**: `spark.range` made into messages and saved in a batch query with default options,
  to a new topic. The time is that of `save()`, which returns when the broker has acknowledged all.
* **Write, Spark's transport**: the same rows to a `DataSourceArrowWriter` that drops them.
* **Write, both ends alone**: that, for as many rows as are sent meanwhile in entries that were made, and
  compressed, beforehand: about what could be reached if it cost nothing to put messages together.
* **Write, pulsar-client**: one process, `send_async` without a callback for messages that are made
  beforehand, then `flush`; batching, compression and pending limits are those of our sink.

Topics that are read were filled by our writer with its default limits: batches of 1,000 messages of 100
bytes, or of 128 KiB. An idle subscriber stays attached to each, and the broker may keep all of it in its
cache.

## Machine

{machine}"""


@dataclass(slots=True)
class Findings:
    """What a run has measured."""

    results: list[Result] = field(default_factory=list)
    peaks: list[Peak] = field(default_factory=list)
    scalings: list[Scaling] = field(default_factory=list)
    backlog: Backlog | None = None


def text_table(results: Sequence[Result]) -> str:
    """The results in columns for a terminal."""
    rows = [_header(), *(_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        texts = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(texts + numbers))
    return "\n".join(lines)


def line(result: Result) -> str:
    """One result in a line."""
    ratios = [f"{_ratio(result, side)} of {side.value}" for side in _OTHERS if side in result.rates]
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


def page(findings: Findings, machine: Mapping[str, str], repeat: int) -> str:
    """docs/benchmarks.md; of the whole run."""
    assert findings.backlog is not None
    return _PAGE.format(
        results=_markdown(_header(), [_cells(result) for result in findings.results], numbers_from=2),
        scaling=_markdown(
            ["read by", "over one task", "cores busy with one task", "with four"],
            [_scaling_cells(scaling) for scaling in findings.scalings],
            numbers_from=1,
        ),
        backlog=_markdown(
            ["messages", "last tenth's speed over the first's", "MiB for a tenth", "MiB"],
            [_backlog_cells(findings.backlog)],
            numbers_from=0,
        ),
        messages=f"{findings.backlog.messages:,}",
        steady=backlog.REQUIRED,
        memory=_markdown(
            ["messages read", "MiB above an idle worker"],
            [[f"{peak.messages:,}", f"{peak.mib_above_idle:.0f}"] for peak in findings.peaks],
            numbers_from=0,
        ),
        machine=_markdown(["what", "which"], [list(fact) for fact in machine.items()], numbers_from=2),
        limit=REQUIRED_MIB,
        repeat=repeat,
    )


def _header() -> list[str]:
    return [
        "",
        "messages",
        "partitions",
        *(side.value for side in Side),
        "of transport",
        "of both ends",
        "of client",
    ]


def _scaling_cells(scaling: Scaling) -> list[str]:
    enough = scaling.ratio >= scaling.required or scaling.busy[1] > _BUSY
    verdict = f"needs {scaling.required:g} x, or busy cores{'' if enough else ', BELOW'}"
    return [scaling.what, f"{scaling.ratio:.2f} x ({verdict})", *(f"{busy:.0%}" for busy in scaling.busy)]


def _backlog_cells(read: Backlog) -> list[str]:
    verdict = "" if abs(read.change) <= backlog.REQUIRED else ", BELOW"
    first, last = read.mib
    return [f"{read.messages:,}", f"{read.change:+.0%}{verdict}", f"{first:.0f}", f"{last:.0f}"]


def _cells(result: Result) -> list[str]:
    rates = [f"{result.best(side):,.0f}" if side in result.rates else "" for side in Side]
    ratios = [_ratio(result, side) for side in _OTHERS]
    return [result.direction, result.shape.title, str(result.partitions), *rates, *ratios]


def _ratio(result: Result, side: Side) -> str:
    ratio = result.ratio(side)
    if ratio is None:
        return ""
    percent = side is not Side.CLIENT
    text = f"{ratio:.0%}" if percent else f"{ratio:.1f} x"
    least = result.required(side)
    # Without transport it is not Spark that was measured, and nothing is asked of the client alone.
    if least is None or Side.TRANSPORT not in result.rates:
        return text
    needs = f"{least:.0%}" if percent else f"{least:g} x"
    holds, enough = ratio >= least, result.enough(side)
    if enough is not None:
        text += f", {result.bytes_a_second() / 1e6:.0f} MB/s"
        needs += f" or {enough / 1e6:.0f} MB/s"
        holds |= result.bytes_a_second() >= enough
    return f"{text} (needs {needs}{'' if holds else ', BELOW'})"


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "direction": result.direction,
        "shape": result.shape.name,
        "partitions": result.partitions,
        "rates": {side.value: [round(rate) for rate in rates] for side, rates in result.rates.items()},
        "ratios": {side.value: result.ratio(side) for side in _OTHERS if side in result.rates},
    }


def _markdown(header: list[str], rows: list[list[str]], *, numbers_from: int) -> str:
    marks = ["---:" if column >= numbers_from else "---" for column in range(len(header))]
    return "".join("| " + " | ".join(row) + " |\n" for row in [header, marks, *rows])
