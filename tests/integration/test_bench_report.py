"""The page of the benchmark: rates for its readers, and the project's goals in a table of their own."""

from integration.bench import report
from integration.bench.backlog import Backlog
from integration.bench.measure import Result, Side
from integration.bench.memory import Peak
from integration.bench.report import Findings
from integration.bench.scaling import Scaling
from integration.bench.shapes import SHAPES

BATCHED = SHAPES["batched"]
LZ4 = SHAPES["lz4"]
FINDINGS = Findings(
    results=[
        Result(
            "write", BATCHED, 1, {Side.OURS: [650.0, 600.0], Side.TRANSPORT: [1000.0], Side.CLIENT: [100.0]}
        ),
        Result("write", LZ4, 1, {Side.OURS: [300_000.0], Side.TRANSPORT: [600_000.0]}),
    ],
    peaks=[Peak(2_000_000, 43.2)],
    scalings=[Scaling("4 partitions, 4 tasks", (100.0, 99.0), (0.84, 0.98), 1.5)],
    backlog=Backlog(20_000, [100.0, 80.0], (196.0, 197.0)),
)


def rows_of(text, heading):
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]


def test_the_page_has_goals_in_their_own_table_only():
    page = report.page(FINDINGS, {"cores": "2"}, repeat=2)
    assert rows_of(page, "Goals") == [
        ["write, 100 bytes, batched, partitions: 1: ratio to Spark's transport", "65%", "70%", "no"],
        ["write, 100 bytes, batched, partitions: 1: ratio to pulsar-client", "6.5 x", "3 x", "yes"],
        [
            "write, 1 KiB, LZ4, partitions: 1: ratio to Spark's transport",
            "50%, 307 MB/s",
            "75% or 300 MB/s",
            "yes",
        ],
        ["MiB of a worker that reads 2,000,000 messages, above an idle one", "43", "less than 300", "yes"],
        [
            "read by 4 partitions, 4 tasks, over one task",
            "0.99 x, cores 98% busy",
            "1.5 x, or busy cores",
            "yes",
        ],
        ["speed at the end of a long backlog", "-20%", "within 15%", "no"],
    ]
    before = page.partition("## Goals")[0]
    assert "needs" not in before
    assert "BELOW" not in before
    assert rows_of(page, "Two cores") == [["4 partitions, 4 tasks", "0.99 x", "84%", "98%"]]


def test_the_terminal_shows_goals_beside_the_figures():
    assert "65% (needs 70%, BELOW)" in report.text_table(FINDINGS.results)
    assert "0.99 x (needs 1.5 x, or busy cores)" in report.scaling_lines(FINDINGS.scalings)
    assert "-20%, BELOW" in report.backlog_line(FINDINGS.backlog)
