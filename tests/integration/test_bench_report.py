"""The page of the benchmark: rates for its readers, and the project's goals in a table of their own."""

import json

import pytest

from integration.bench import report
from integration.bench.backlog import Backlog
from integration.bench.measure import Cost, Result, Side, Trial, interleaved
from integration.bench.memory import Peak
from integration.bench.report import Findings
from integration.bench.scaling import Scaling
from integration.bench.shapes import SHAPES, row_columns
from integration.bench.transport import Transport, repeated_batch

BATCHED = SHAPES["batched"]
VALUE = SHAPES["value"]
LZ4 = SHAPES["lz4"]
FINDINGS = Findings(
    results=[
        Result(
            "write",
            BATCHED,
            1,
            {Side.OURS: [650.0, 600.0], Side.TRANSPORT: [1000.0], Side.CLIENT: [100.0]},
            {Side.OURS: [1.7, 1.6], Side.TRANSPORT: [1.5], Side.CLIENT: [9.0]},
        ),
        Result("write", LZ4, 1, {Side.OURS: [300_000.0], Side.TRANSPORT: [600_000.0]}),
        Result("read", VALUE, 4, {Side.OURS: [2e6]}, {Side.OURS: [1.36], Side.TRANSPORT: [0.83]}),
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
            "write, 100 bytes, batched, partitions: 1: CPU above that of Spark's transport, us",
            "0.10",
            "at most 0.25",
            "yes",
        ],
        [
            "write, 1 KiB, LZ4, partitions: 1: ratio to Spark's transport",
            "50%, 307 MB/s",
            "75% or 300 MB/s",
            "yes",
        ],
        [
            "read, 100 bytes, batched, value only, partitions: 4: CPU above that of Spark's transport, us",
            "0.53",
            "at most 0.35",
            "no",
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


def test_cpu_stands_beside_the_rates():
    cells = {row[0]: row for row in map(str.split, report.text_table(FINDINGS.results).splitlines())}
    assert cells["read"][-8:] == ["1.36", "0.83", "0.53", "(needs", "at", "most", "0.35,", "ABOVE)"]
    table = report.page(FINDINGS, {}, repeat=2).partition("\nRates")[0].splitlines()
    header, _, write, lz4, read = (
        line.removesuffix(" |").split(" | ")[-3:] for line in table if line.startswith("|")
    )
    assert header == ["CPU", "transport's CPU", "CPU above it"]
    assert write == ["1.60", "1.50", "0.10"]
    assert lz4 == ["", "", ""]
    assert read == ["1.36", "0.83", "0.53"]
    assert "us of CPU a row: 1.60, above transport 0.10 (needs at most 0.25)" in report.line(
        FINDINGS.results[0]
    )
    assert json.loads(report.as_json(FINDINGS, {}))["results"][0]["cpus"]["pulsar_spark"] == [1.7, 1.6]


def test_cpu_is_shared_out_to_messages():
    costs = iter([Cost(9.0, 9.0), Cost(2.0, 0.003), Cost(1.0, 0.005)])
    result = interleaved(
        "read", BATCHED, 1, [Trial(Side.OURS, 1000, lambda count: next(costs), 10)], repeat=2
    )
    assert result.rates == {Side.OURS: [500.0, 1000.0]}
    assert result.cpus == {Side.OURS: [pytest.approx(3.0), pytest.approx(5.0)]}
    assert result.cpu(Side.OURS) == pytest.approx(3.0)
    assert result.cpu_above_transport() is None


@pytest.mark.parametrize("name", SHAPES)
def test_transport_gives_the_columns_that_our_source_gives(name):
    batch = repeated_batch(SHAPES[name])
    given = {"shape": name}
    assert Transport(given).schema() == row_columns(SHAPES[name]).schema
    assert batch.schema == row_columns(SHAPES[name]).arrow_schema
    assert (batch.schema.names == ["value"]) == (name == "value")
