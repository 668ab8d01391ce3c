"""What the process that commits leaves for the one that listens."""

from concurrent.futures import ThreadPoolExecutor

from pulsar_spark.spark.monitoring.driver_files import SinkTotals, add_sink_totals, read_sink_totals

QUERY = "53a07399-9325-45aa-b130-8ae28c14255c"


def test_what_is_added_is_read(folder):
    assert read_sink_totals(QUERY) == SinkTotals()
    add_sink_totals(QUERY, SinkTotals())
    assert list(folder.iterdir()) == []
    add_sink_totals(QUERY, SinkTotals(3, 300, 1, 0))
    add_sink_totals("another", SinkTotals(100))
    add_sink_totals(QUERY, SinkTotals(4, 400, 0, 2))
    total = read_sink_totals(QUERY)
    assert total == SinkTotals(7, 700, 1, 2)
    assert total.minus(SinkTotals(3, 300, 1, 0)) == SinkTotals(4, 400, 0, 2)


def test_where_spark_does_not_run(no_spark, caplog):
    assert read_sink_totals(QUERY) == SinkTotals()
    add_sink_totals(QUERY, SinkTotals(3))
    assert f"query {QUERY}: the listener does not see what the sink has written" in caplog.text


def test_what_cannot_be_read_counts_for_nothing(folder, caplog):
    add_sink_totals(QUERY, SinkTotals(3))
    (folder / "pulsar_spark_sinks" / QUERY).write_text("no json")
    assert read_sink_totals(QUERY) == SinkTotals()
    add_sink_totals(QUERY, SinkTotals(3))
    assert "does not see what the sink has written" in caplog.text


def test_totals_that_threads_add_at_the_same_time_are_all_added(folder):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: add_sink_totals(QUERY, SinkTotals(1)), range(400)))
    assert read_sink_totals(QUERY) == SinkTotals(400)
