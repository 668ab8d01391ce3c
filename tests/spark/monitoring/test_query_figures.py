"""Figures of a query over its micro-batches."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.spark.monitoring.driver_files import SinkTotals
from pulsar_spark.spark.monitoring.query_figures import (
    MAX_POINTS,
    BatchFigures,
    QueryFigures,
    StartedQuery,
    not_yet_reported,
)
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport


def report(time_ms=1000, entries=10, batch=10, planner="1-a", start_ms=500, partition="0"):
    backlog = PartitionBacklog("t", partition, "1:1", entries, batch, entries * 100)
    return SourceReport(planner, "s", start_ms, time_ms, (backlog,), 50, 1, 2)


def batch(number, *sources):
    return BatchFigures(number, 1000 * number, 2.0, 100, 50.0, sources, SinkTotals(5, 50))


def test_sums_grow_and_the_rest_is_of_the_last_micro_batch():
    figures = QueryFigures("q", "run")
    assert (figures.backlog_ms, figures.progress_ms, figures.backlog_messages) == (None, None, 0)
    figures = figures.after(batch(1, report(1000))).after(
        batch(2, report(2000, entries=4), report(1900, planner="b"))
    )
    assert (figures.rows, figures.read_bytes, figures.written) == (200, 150, SinkTotals(10, 100))
    assert (figures.data_losses, figures.planner_retries) == (2, 4)
    assert figures.backlog_entries == 10, "the larger one of a partition that is read twice"
    assert figures.backlog_ms == 1900
    assert [each.time_ms for each in figures.batches] == [1000, 2000]
    assert [(each.time_ms, each.entries) for each in figures.backlogs] == [(1000, 10), (2000, 10)]


def test_partitions_are_summed():
    figures = QueryFigures("q").after(
        batch(1, report(entries=3), report(entries=4, planner="b", partition="1"))
    )
    assert (figures.backlog_entries, figures.backlog_messages) == (7, 700)


def test_points_are_bounded():
    figures = QueryFigures("q")
    for number in range(MAX_POINTS + 50):
        figures = figures.after(batch(number, report(1000 + number)))
    assert len(figures.batches) == len(figures.backlogs) == MAX_POINTS
    assert figures.batches[-1].time_ms == 1000 * (MAX_POINTS + 49)


@given(st.lists(st.integers(0, 5), min_size=1))
def test_only_later_reports_count(times):
    figures = QueryFigures("q").after(batch(1, report(3)))
    for time in times:
        figures = figures.with_live([report(time), report(99, planner="of another query")])
    assert figures.sources[0].time_ms == max(3, *times)
    shown = [each.time_ms for each in figures.backlogs]
    assert shown == sorted(set(shown))


def test_idle_means_that_the_micro_batch_is_processed():
    figures = QueryFigures("q").after(batch(1, report(1000, entries=10, batch=8)))
    idle = figures.when_idle(9000, {})
    assert (idle.backlog_entries, idle.progress_ms, idle.backlog_ms) == (2, 9000, 9000)
    live = {"1-a": report(5000, entries=7, batch=0)}
    idle = figures.when_idle(9000, live)
    assert (idle.backlog_entries, idle.backlog_ms) == (7, 9000), "its planner knows better"
    assert figures.when_idle(4000, live).backlog_ms == 5000, "the next trigger has run already"


def test_planners_of_queries_that_have_reported_nothing():
    one, other = StartedQuery("one", 100), StartedQuery("other", 600)
    (found,) = not_yet_reported([report()], [one, other])
    assert (found.name, found.backlog_entries, found.last) == ("one", 10, None)
    (found,) = not_yet_reported([report(start_ms=700)], [one, other])
    assert found.name == "s"
    assert not_yet_reported([], [one]) == ()
    (found,) = not_yet_reported([report(), report(planner="2-b", partition="1")], [one])
    assert found.backlog_entries == 20, "two sources of one query"
    (found,) = not_yet_reported([replace(report(), subscription="x")], [])
    assert found.name == "x"
