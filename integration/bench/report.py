"""The results as lines and a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from integration.bench import backlog
from integration.bench.backlog import Backlog
from integration.bench.measure import Result, Side
from integration.bench.memory import REQUIRED_MIB, Peak

_OTHERS = (Side.TRANSPORT, Side.ENDS, Side.CLIENT)
_SIDES = (Side.OURS, *_OTHERS)
_HEADER = ["", "messages", "partitions", *(side.value for side in _SIDES)]
_HEADER += ["of transport", "of both ends", "of client", "CPU", "transport's CPU", "CPU above it"]


def text_table(results: Sequence[Result]) -> str:
    """The results in columns."""
    rows = [_HEADER, *map(_cells, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = []
    for row in rows:
        texts = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(texts + numbers))
    return "\n".join(lines)


def line(result: Result) -> str:
    """One result in a line."""
    ratios = [f"{_ratio(result, side)} of {side.value}" for side in _OTHERS if side in result.rates]
    above = _cpu_above(result)
    if above:
        ratios.append(f"us of CPU a row: {_cpu(result, Side.OURS)}, above transport {above}")
    where = f"{result.direction}, {result.shape.title}, partitions: {result.partitions}"
    return f"{where}: {result.best(Side.OURS):,.0f}/s, {', '.join(ratios)}"


def memory_lines(peaks: Sequence[Peak]) -> str:
    """One line for each peak."""
    return "\n".join(
        f"a worker that reads {peak.messages:,} messages: at most {peak.mib_above_idle:.0f} MiB above "
        f"an idle one (needs < {REQUIRED_MIB})"
        for peak in peaks
    )


def backlog_line(read: Backlog) -> str:
    """A long backlog in a line: messages, the change of speed, MiB of a tenth and of all."""
    below = ", BELOW" if abs(read.change) > backlog.REQUIRED else ""
    return f"{read.messages:,}, {read.change:+.0%}{below}, {', '.join(f'{mib:.0f}' for mib in read.mib)}"


def _cells(result: Result) -> list[str]:
    rates = [f"{result.best(side):,.0f}" if side in result.rates else "" for side in _SIDES]
    ratios = [_ratio(result, side) for side in _OTHERS]
    cpus = [_cpu(result, Side.OURS), _cpu(result, Side.TRANSPORT), _cpu_above(result)]
    return [result.direction, result.shape.title, str(result.partitions), *rates, *ratios, *cpus]


def _cpu(result: Result, side: Side) -> str:
    cpu = result.cpu(side)
    return "" if cpu is None else f"{cpu:.2f}"


def _cpu_above(result: Result) -> str:
    """Our CPU above that of transport, with the goal; empty where it was not measured."""
    above, allowed = result.cpu_above_transport(), result.max_cpu_above_transport()
    if above is None:
        return ""
    return f"{above:.2f}" + _verdict(f"at most {allowed:.2f}" if allowed else "", above <= (allowed or 0))


def _ratio(result: Result, side: Side) -> str:
    """Our rate over another side's, with the goal; empty where it was not measured."""
    ratio, least, enough = result.ratio(side), result.required(side), result.enough(side)
    if ratio is None:
        return ""
    measured, needs = (
        "" if each is None else f"{each:g} x" if side is Side.CLIENT else f"{each:.0%}"
        for each in (round(ratio, 2), least)
    )
    is_reached = ratio >= (least or 0)
    if enough is not None:
        measured += f", {result.bytes_a_second() / 1e6:.0f} MB/s"
        needs += f" or {enough / 1e6:.0f} MB/s"
        is_reached |= result.bytes_a_second() >= enough
    return measured + _verdict(needs, is_reached)


def _verdict(needs: str, is_reached: bool) -> str:
    return f" (needs {needs}{'' if is_reached else ', MISSED'})" if needs else ""
