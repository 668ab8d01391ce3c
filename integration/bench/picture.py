"""The ratios as bars, with the required levels; the same results give the same bytes of SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from integration.bench.measure import REQUIRED, Result, Side

_SCALES = {Side.CLIENT: "times pulsar-client", Side.TRANSPORT: "share of Spark's transport"}
_TITLES = {"read": "Reading", "write": "Writing"}
_COLOURS = {1: "#2f6f9f", 4: "#8fbcd4"}
_LEVEL = "#b23b3b"
_WIDTH = 0.38
# Ids without a random part, and letters as letters: small, searchable, and the same each time.
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "pulsar_spark",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
}


def draw(results: Sequence[Result], file: Path) -> None:
    """Write a panel for each direction and each of the other sides."""
    directions = [name for name in _TITLES if any(result.direction == name for result in results)]
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(5.2 * len(directions), 6.2), layout="constrained")
        panels = figure.subplots(len(_SCALES), len(directions), squeeze=False)
        for row, side in enumerate(_SCALES):
            for column, direction in enumerate(directions):
                chosen = [result for result in results if result.direction == direction]
                _panel(panels[row][column], chosen, direction, side)
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": "pulsar_spark"})


def _panel(axes: Axes, results: Sequence[Result], direction: str, side: Side) -> None:
    titles = list(dict.fromkeys(result.shape.title for result in results))
    counts = sorted({result.partitions for result in results})
    for number, count in enumerate(counts):
        chosen = [result for result in results if result.partitions == count]
        offset = (number - (len(counts) - 1) / 2) * _WIDTH
        places = [titles.index(result.shape.title) + offset for result in chosen]
        heights = [result.ratio(side) or 0 for result in chosen]
        label = f"{count} partition" + ("s" if count > 1 else "")
        bars = axes.bar(places, heights, _WIDTH, label=label, color=_COLOURS.get(count, "#777777"))
        axes.bar_label(bars, fmt="{:.0%}" if side is Side.TRANSPORT else "{:.1f}", padding=2)
    axes.axhline(
        REQUIRED[direction, "batched", 1, side],
        color=_LEVEL,
        linestyle="--",
        label="required of 100 bytes, batched, 1 partition",
    )
    axes.set_title(_TITLES[direction])
    axes.set_ylabel(_SCALES[side])
    axes.set_xticks(range(len(titles)), [title.replace(", ", ",\n") for title in titles])
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    if side is Side.TRANSPORT:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
