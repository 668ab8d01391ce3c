"""Draws the pictures of these docs: python docs/img/draw.py, a test says when they drift.

flow.svg         source, query, sink: what a user writes
data.svg         the same with partitions, tasks and the planner
offsets.svg      a topic partition: what is acknowledged, processed, read now, in the backlog
checkpoint.svg   the order of a micro-batch: read, write, checkpoint, acknowledge
rates.svg        messages a second beside other connectors, from scaling.md and benchmarks.md
"""

from __future__ import annotations

from html import escape
from pathlib import Path

_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-size="14"
  font-family="Helvetica, Arial, sans-serif">
<title>{title}</title>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"
  orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="#333"/></marker></defs>
<rect width="{width}" height="{height}" rx="8" fill="#fff"/>
"""
PULSAR, SPARK, OURS, PLAIN = "#dbe9f8", "#fde9d2", "#dcf0dc", "#f3f3f3"


class Picture:
    """An SVG in the making; lengths are in its own units, from the upper left corner."""

    def __init__(self, title: str, width: int, height: int) -> None:
        self._parts = [_HEAD.format(title=escape(title), width=width, height=height)]

    def box(self, x: int, y: int, width: int, height: int, fill: str, *lines: str, top: bool = False) -> None:
        """A rectangle with lines of text in its middle, or at its top."""
        shape = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="5"'
        self._parts.append(f'<rect {shape} fill="{fill}" stroke="#888"/>')
        first = y + 20 if top else y + height // 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + width // 2, first + 18 * number, line)

    def text(self, x: int, y: int, line: str, anchor: str = "middle") -> None:
        """One line of text."""
        self._parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#222">{escape(line)}</text>')

    def label(self, x: int, y: int, line: str) -> None:
        """One line of text in the middle, with no line behind it."""
        width = 7 * len(line)
        shape = f'x="{x - width // 2}" y="{y - 13}" width="{width}" height="16"'
        self._parts.append(f'<rect {shape} fill="#fff"/>')
        self.text(x, y, line)

    def arrow(self, *points: tuple[int, int], dashed: bool = False, both: bool = False) -> None:
        """A line with a tip at its end, or at both."""
        path = " ".join(f"{x},{y}" for x, y in points)
        style = ' stroke-dasharray="5 4"' if dashed else ""
        style += ' marker-start="url(#tip)"' if both else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="#333" marker-end="url(#tip)"{style}/>'
        )

    def line(self, x: int, top: int, bottom: int) -> None:
        """A thin line downwards."""
        self._parts.append(f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="#bbb"/>')

    def svg(self) -> str:
        """The text of the file."""
        return "\n".join(part.rstrip("\n") for part in [*self._parts, "</svg>"]) + "\n"


def flow() -> str:
    """Source topic, source, query, sink, target topic; below it what a restart needs."""
    picture = Picture("Messages flow from a topic through Spark to a topic", 1080, 250)
    picture.box(20, 30, 170, 70, PULSAR, "Pulsar", "source topic")
    picture.box(270, 30, 150, 70, OURS, "source", "messages to rows")
    picture.box(480, 30, 120, 70, SPARK, "your query", "DataFrame")
    picture.box(660, 30, 150, 70, OURS, "sink", "rows to messages")
    picture.box(890, 30, 170, 70, PULSAR, "Pulsar", "target topic")
    for start, end in ((190, 270), (420, 480), (600, 660)):
        picture.arrow((start, 65), (end, 65))
    picture.arrow((810, 58), (890, 58))
    picture.arrow((890, 74), (810, 74), dashed=True)
    picture.text(850, 50, "batches")
    picture.text(850, 92, "receipts")
    picture.box(20, 170, 250, 56, PLAIN, "subscription: keeps messages", "that are not yet processed")
    picture.box(415, 170, 250, 56, SPARK, "checkpoint: says where", "a restart continues")
    picture.arrow((105, 170), (105, 100))
    picture.arrow((540, 100), (540, 170), both=True)
    picture.arrow((415, 198), (270, 198), dashed=True)
    picture.text(342, 188, "acknowledge")
    return picture.svg()


def data() -> str:
    """Source topic, reading tasks, query, writing tasks, target topic; above them the planner."""
    picture = Picture("Flow of the data", 1080, 400)
    picture.box(20, 150, 180, 220, PULSAR, "Pulsar: source topic", top=True)
    picture.box(300, 150, 170, 220, SPARK, "Spark: reading tasks", top=True)
    picture.box(550, 150, 120, 220, SPARK, "your query")
    picture.box(750, 150, 120, 220, SPARK, "writing tasks", top=True)
    picture.box(950, 150, 110, 220, PULSAR, "target topic", top=True)
    for number, y in enumerate((190, 240, 290)):
        picture.box(35, y, 150, 34, PLAIN, f"partition {number}")
        picture.box(315, y, 140, 34, OURS, f"reader {number}")
        picture.arrow((185, y + 17), (315, y + 17))
        picture.arrow((455, y + 17), (550, y + 17))
    picture.text(250, 198, "messages")
    picture.text(510, 198, "rows")
    for number, y in enumerate((210, 275)):
        picture.box(765, y, 90, 34, OURS, f"writer {number}")
        picture.box(962, y, 86, 34, PLAIN, f"partition {number}")
        picture.arrow((670, y + 17), (765, y + 17))
        picture.arrow((855, y + 12), (962, y + 12))
        picture.arrow((962, y + 26), (855, y + 26), dashed=True)
    picture.text(710, 217, "rows")
    picture.text(910, 215, "batches")
    picture.text(910, 322, "receipts")
    picture.text(110, 345, "its subscription holds")
    picture.text(110, 361, "what is not processed")
    picture.box(300, 20, 170, 64, OURS, "planner", "one for each query")
    picture.box(620, 20, 180, 64, SPARK, "Spark's checkpoint", "decides each restart")
    picture.arrow((300, 52), (110, 52), (110, 150), dashed=True, both=True)
    picture.text(122, 105, "where does each end?", "start")
    picture.text(122, 123, "acknowledge", "start")
    picture.arrow((385, 84), (385, 150))
    picture.text(395, 122, "ranges (start, end]", "start")
    picture.arrow((470, 52), (620, 52), both=True)
    picture.text(545, 42, "offsets")
    return picture.svg()


def offsets() -> str:
    """A topic partition from its first entry to its end, and what each stretch is called."""
    picture = Picture("Positions in a topic partition", 1080, 280)
    stretches = (
        (20, 200, PLAIN, "acknowledged", "the broker may delete it"),
        (220, 240, OURS, "processed", "in Spark's checkpoint"),
        (460, 240, SPARK, "this micro-batch", "planned, being read"),
        (700, 360, PULSAR, "later", "in no micro-batch yet"),
    )
    for x, width, fill, name, meaning in stretches:
        picture.box(x, 100, width, 60, fill, name, meaning)
    for x, name, meaning in (
        (220, "subscription", "its position at the broker"),
        (460, "start offset", "exclusive"),
        (700, "end offset", "inclusive"),
        (1060, "end", "last message"),
    ):
        anchor = "end" if x > 1000 else "middle"
        picture.arrow((x, 70), (x, 100))
        picture.text(x, 42, name, anchor)
        picture.text(x, 60, meaning, anchor)
    picture.arrow((460, 190), (1060, 190), both=True)
    picture.label(760, 195, "the query's backlog: not yet processed")
    picture.arrow((220, 228), (1060, 228), both=True)
    picture.label(640, 233, "kept by the subscription, whatever the retention policy")
    picture.text(20, 262, "older entries", "start")
    picture.text(1060, 262, "newer entries", "end")
    return picture.svg()


_WHO = {"broker": 90, "planner": 270, "spark": 450, "checkpoint": 630, "task": 810}
_STEPS = (
    ("spark", "planner", "what is new after N-1?"),
    ("planner", "broker", "acknowledge N-1"),
    ("planner", "broker", "where does it end?"),
    ("spark", "checkpoint", "write offsets/N"),
    ("spark", "task", "read this range"),
    ("broker", "task", "messages"),
    ("task", "broker", "send rows (a Pulsar sink)"),
    ("broker", "task", "receipts of all of them"),
    ("task", "spark", "done"),
    ("spark", "checkpoint", "write commits/N"),
    ("spark", "planner", "what is new after N?"),
    ("planner", "broker", "acknowledge N"),
)


def checkpoint() -> str:
    """The order of a micro-batch N, and what a crash means at each time."""
    picture = Picture("The order of a micro-batch", 1080, 560)
    names = {"broker": "Pulsar", "planner": "planner", "spark": "Spark", "task": "tasks"}
    fills = {"broker": PULSAR, "planner": OURS, "task": OURS}
    for who, x in _WHO.items():
        picture.box(x - 70, 15, 140, 34, fills.get(who, SPARK), names.get(who, who))
        picture.line(x, 49, 545)
    for number, (start, end, label) in enumerate(_STEPS):
        y = 88 + 38 * number
        first, last = _WHO[start], _WHO[end]
        picture.arrow((first, y), (last, y))
        picture.label((first + last) // 2, y - 6, label)
    for top, bottom, *lines in (
        (64, 195, "a crash here:", "N is planned again"),
        (
            207,
            423,
            "a crash here:",
            "the same range is",
            "read again; it is not",
            "acknowledged, so it",
            "is still there",
        ),
        (435, 545, "a crash here:", "the next run goes", "on after N"),
    ):
        picture.box(900, top, 165, bottom - top, PLAIN, *lines)
    return picture.svg()


# 100 bytes a message, 4 partitions. Kafka's are the best of its lines: a short wait, large batches.
_RATES = (
    ("read, beside the JVM connector", (("pulsar_spark", 2_153_000), ("JVM connector", 715_000))),
    ("read, beside Kafka", (("pulsar_spark", 2_113_000), ("Spark's Kafka source", 983_000))),
    ("write, beside the JVM connector", (("pulsar_spark", 1_850_000), ("JVM connector", 940_000))),
    ("write, beside Kafka", (("pulsar_spark", 1_424_000), ("Spark's Kafka sink", 1_079_000))),
)


def rates() -> str:
    """Messages a second, ours and another's, each pair measured in one run."""
    picture = Picture("Messages a second beside other connectors", 1080, 350)
    for pair, (what, sides) in enumerate(_RATES):
        top = 20 + 80 * pair
        picture.text(260, top + 33, what, "end")
        for side, (name, rate) in enumerate(sides):
            y, width = top + 28 * side, rate // 4000
            picture.box(280, y, width, 24, PLAIN if side else OURS)
            picture.text(290 + width, y + 17, f"{name}: {rate / 1e6:.2f} million a second", "start")
    picture.text(280, 342, "messages of 100 bytes, 4 partitions, 2 cores; each pair in one run", "start")
    return picture.svg()


PICTURES = {
    "flow.svg": flow,
    "data.svg": data,
    "offsets.svg": offsets,
    "checkpoint.svg": checkpoint,
    "rates.svg": rates,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / name).write_text(draw())
