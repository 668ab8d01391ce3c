"""The listener, with progress as Spark hands it over."""

import contextlib
import http.client
import json
import logging
import uuid
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

import pulsar_spark
from pulsar_spark.spark.monitoring.driver_files import (
    PlannerFile,
    SinkTotals,
    add_sink_totals,
    new_planner_id,
)
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport
from pulsar_spark.spark.progress_listener import PulsarProgressListener

TOPIC = "persistent://public/default/orders"
QUERY = uuid.UUID(int=1)
RUN = uuid.UUID(int=7)
START_MS = 1795258800000  # 2026-11-21T11:00:00Z

pytestmark = pytest.mark.usefixtures("folder")


def source_report(topics, planner="1-a", time_ms=START_MS, **more):
    """What the source says; for each partition (end, entries, messages[, entries of the batch])."""
    partitions = tuple(
        PartitionBacklog(topic, number, found[0], found[1], (found[3:] or found[1:2])[0], found[2])
        for topic, partitions in topics.items()
        for number, found in partitions.items()
    )
    values = {"batch_bytes": 5000, "data_losses": 0, "retries": 0} | more
    return SourceReport(planner, "spark-pulsar-s", START_MS, time_ms, partitions, **values)


def report(topics, **more):
    """The same as JSON."""
    return json.dumps(source_report(topics, **more).to_json())


ORDERS_TOPICS = {TOPIC: {"0": ("12:99", 10, 1000), "1": ("13:4", 0, 0)}}
ORDERS = report(ORDERS_TOPICS)


def source(latest, rows):
    return {
        "description": "PythonStreamingSource",
        "startOffset": '{"subscription": "s", "topics": {}}',
        "endOffset": '{"subscription": "s", "topics": {}}',
        "latestOffset": latest,
        "numInputRows": rows,
        "inputRowsPerSecond": 50.0,
        "processedRowsPerSecond": 80.5,
    }


def progress(*latest, name="orders", run=RUN, batch=3, rows=100, rate=80.5):
    """One micro-batch of a query that reads from ``latest``'s sources."""
    return QueryProgressEvent(
        StreamingQueryProgress.fromJson(
            {
                "id": str(QUERY),
                "runId": str(run),
                "name": name,
                "timestamp": "2026-11-21T11:00:00.000Z",
                "batchId": batch,
                "batchDuration": 1234,
                "numInputRows": rows,
                "inputRowsPerSecond": 50.0,
                "processedRowsPerSecond": rate,
                "durationMs": {"triggerExecution": 1234},
                "stateOperators": [],
                "sources": [source(each, rows) for each in latest],
                "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
            }
        )
    )


def terminated(run=RUN, error=None):
    return QueryTerminatedEvent(QUERY, run, error, None)


def started(run=RUN, name="orders", timestamp="2026-11-21T11:00:00.000Z"):
    return QueryStartedEvent(QUERY, run, name, timestamp, set())


def idle(run=RUN, timestamp="2026-11-21T11:00:30.000Z"):
    return QueryIdleEvent(QUERY, run, timestamp)


@pytest.fixture
def listener():
    return PulsarProgressListener()


def samples(listener, metric):
    """By labels, what the listener gives for a metric."""
    lines = listener.prometheus_text().splitlines()
    found = [line.rpartition(" ") for line in lines if line.startswith(f"pulsar_spark_{metric}{{")]
    return {labels.partition("{")[2].rstrip("}"): float(value) for labels, _, value in found}


def value(listener, metric):
    """The one sample of a metric."""
    (found,) = samples(listener, metric).values()
    return found


def test_figures_of_micro_batches(listener):
    listener.onQueryProgress(progress(ORDERS, rows=100))
    later = report(ORDERS_TOPICS, time_ms=START_MS + 500, data_losses=2, retries=3, batch_bytes=200)
    listener.onQueryProgress(progress(later, rows=50, batch=4))
    end = START_MS / 1000 + 1.234
    expected = {
        "backlog_timestamp_seconds": START_MS / 1000 + 0.5,
        "last_progress_timestamp_seconds": end,
        "batch_id": 4,
        "batch_duration_seconds": 1.234,
        "read_rows_total": 150,
        "read_rows_per_second": 80.5,
        "read_bytes_estimate_total": 5200,
        "read_bytes_estimate_per_second": 200 / 1.234,
        "data_losses_total": 2,
    }
    assert {name: value(listener, name) for name in expected} == expected
    assert samples(listener, "retries_total") == {
        'query="orders",part="planner"': 3,
        'query="orders",part="sink"': 0,
    }
    labels = [f'query="orders",topic="{TOPIC}",partition="{number}"' for number in (0, 1)]
    assert samples(listener, "backlog_entries") == dict(zip(labels, (10, 0), strict=True))
    assert samples(listener, "backlog_messages_estimate") == dict(zip(labels, (1000, 0), strict=True))


def test_messages_are_left_out_where_nobody_knows_them(listener, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark.progress")
    listener.onQueryProgress(progress(report({"a": {"0": ("1:1", 2, 20), "1": ("1:1", 3, None)}})))
    assert samples(listener, "backlog_messages_estimate") == {'query="orders",topic="a",partition="0"': 20}
    assert "backlog at its start: 5 entries; ends" in caplog.text


def test_labels_are_escaped(listener):
    name = 'a "query" \\ of\ntwo lines'
    listener.onQueryProgress(progress(report({'t"\\': {"-1": ("1:1", 2, 2)}}), name=name))
    lines = listener.prometheus_text().splitlines()
    label = r'query="a \"query\" \\ of\ntwo lines"'
    assert rf'pulsar_spark_backlog_entries{{{label},topic="t\"\\",partition="-1"}} 2' in lines
    assert f"pulsar_spark_read_rows_total{{{label}}} 100" in lines


def test_a_query_without_a_name_goes_by_its_id(listener):
    listener.onQueryProgress(progress(ORDERS, name=None))
    assert samples(listener, "read_rows_total") == {f'query="{QUERY}"': 100}


def test_a_stopped_query_disappears(listener):
    other = uuid.UUID(int=8)
    listener.onQueryProgress(progress(ORDERS))
    listener.onQueryProgress(progress(ORDERS, name="other", run=other))
    assert listener.prometheus_text().count("# TYPE pulsar_spark_read_rows_total") == 1
    listener.onQueryTerminated(terminated())
    assert 'query="orders"' not in listener.prometheus_text()
    assert 'query="other"' in listener.prometheus_text()
    listener.onQueryTerminated(terminated(other))
    listener.onQueryTerminated(terminated(uuid.UUID(int=9)))
    assert listener.prometheus_text() == ""


def test_a_new_run_takes_the_place_of_the_one_before(listener):
    """Though Spark may tell of the old one's end only later."""
    again = uuid.UUID(int=8)
    listener.onQueryProgress(progress(ORDERS, rows=100))
    listener.onQueryProgress(progress(ORDERS, rows=30, run=again))
    listener.onQueryTerminated(terminated())
    assert value(listener, "read_rows_total") == 30


def test_one_line_a_batch(listener, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark.progress")
    listener.onQueryProgress(progress(ORDERS))
    assert caplog.messages == [
        "query orders, batch 3: 100 rows in 1234 ms, 80.5 rows/s; backlog at its start: 10 entries, "
        f"about 1000 messages; ends {TOPIC} 0=12:99 1=13:4"
    ]
    caplog.clear()
    caplog.set_level(logging.DEBUG, "pulsar_spark.progress")
    listener.onQueryProgress(progress(ORDERS))
    assert caplog.messages[1:] == [
        f"query orders, batch 3: {TOPIC} partition {number}: end {end}, backlog at its start: {backlog}"
        for number, end, backlog in (
            (0, "12:99", "10 entries, about 1000 messages"),
            (1, "13:4", "0 entries, about 0 messages"),
        )
    ]


def test_the_line_of_a_wide_topic_stays_short(listener, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark.progress")
    listener.onQueryProgress(
        progress(report({"a": {str(number): ("1:1", 1, None) for number in range(500)}}))
    )
    assert len(caplog.text) < 500
    assert "backlog at its start: 500 entries" in caplog.text
    assert caplog.messages[0].endswith("19=1:1, and 480 more partitions")


def test_a_partition_that_is_read_twice_is_told_once(listener):
    behind = report({TOPIC: {"0": ("12:99", 30, 3000), "2": ("1:1", 1, None)}}, planner="1-b")
    listener.onQueryProgress(progress(ORDERS, behind))
    lines = [
        line for line in listener.prometheus_text().splitlines() if line.startswith("pulsar_spark_backlog_")
    ]
    assert len(lines) == len({line.partition("}")[0] for line in lines}) == 6
    assert f'pulsar_spark_backlog_entries{{query="orders",topic="{TOPIC}",partition="0"}} 30' in lines


@pytest.mark.parametrize("latest", [None, "null", "", "{}", '{"logOffset": 3}', "no json", "[1]", "7"])
def test_other_sources_are_passed_over(listener, caplog, latest):
    event = progress("null")
    event.progress.sources[0]["latestOffset"] = latest
    listener.onQueryProgress(event)
    assert listener.prometheus_text() == ""
    assert caplog.text == ""
    mixed = progress("null", ORDERS)
    mixed.progress.sources[0]["latestOffset"] = latest
    listener.onQueryProgress(mixed)
    assert "backlog_entries" in listener.prometheus_text()


def test_what_cannot_be_read_is_told_once_and_disturbs_nobody(listener, caplog):
    broken = json.dumps(json.loads(ORDERS) | {"topics": {TOPIC: {"0": "12:99"}}})
    for _ in range(3):
        listener.onQueryProgress(progress(broken))
    assert caplog.text.count("cannot be read") == 1
    assert listener.prometheus_text() == ""
    listener.onQueryProgress(progress(ORDERS))
    assert value(listener, "batch_id") == 3


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_speeds_that_json_does_not_know(listener, rate):
    listener.onQueryProgress(progress(ORDERS, rate=rate))
    (query,) = pages(listener)["queries"]
    assert query["rowsPerSecond"] is None
    assert query["batches"] == [[START_MS + 1234, None, 1.234]]


# ---- queries that are idle, that are behind, that fail


def test_an_idle_query_goes_on_and_has_processed_its_last_micro_batch(listener):
    behind = report({TOPIC: {"0": ("12:99", 10, 1000, 7)}})
    listener.onQueryProgress(progress(behind))
    assert value(listener, "backlog_entries") == 10
    listener.onQueryIdle(idle(run=uuid.UUID(int=99)))
    assert value(listener, "backlog_entries") == 10
    listener.onQueryIdle(idle())
    assert value(listener, "backlog_entries") == 3
    assert value(listener, "backlog_messages_estimate") == 300
    assert value(listener, "last_progress_timestamp_seconds") == START_MS / 1000 + 30
    assert value(listener, "backlog_timestamp_seconds") == START_MS / 1000 + 30
    listener.onQueryIdle(idle())
    assert value(listener, "backlog_entries") == 3


def test_a_backlog_is_seen_while_the_micro_batch_runs(listener):
    planner, file = new_planner_id(), PlannerFile()
    listener.onQueryProgress(progress(report(ORDERS_TOPICS, planner=planner)))
    million = {TOPIC: {"0": ("99:99", 1000, 1_000_000)}}
    file.write(source_report(million, planner=planner, time_ms=START_MS + 5000).to_json())
    assert value(listener, "backlog_messages_estimate") == 1_000_000
    assert value(listener, "batch_id") == 3
    listener.onQueryProgress(progress(report(million, planner=planner, time_ms=START_MS + 5000), batch=4))
    assert value(listener, "backlog_messages_estimate") == 1_000_000
    caught_up = source_report({TOPIC: {"0": ("99:99", 0, 0)}}, planner=planner, time_ms=START_MS + 9000)
    file.write(caught_up.to_json())
    listener.onQueryIdle(idle())
    assert value(listener, "backlog_entries") == 0
    (query,) = pages(listener)["queries"]
    assert [point[1] for point in query["backlogs"]] == [10, 1000, 0, 0]


def test_the_first_micro_batch_of_a_run_is_seen_before_it_ends(listener):
    """A planner does not know its query: it is the one that has started and not reported, if there is one."""
    listener.onQueryStarted(started())
    planner, file = new_planner_id(), PlannerFile()
    live = source_report({TOPIC: {"0": ("99:99", 1000, 1_000_000)}}, planner=planner)
    file.write(live.to_json())
    labels = f'topic="{TOPIC}",partition="0"'
    expected = {f'query="orders",{labels}': 1_000_000}
    assert samples(listener, "backlog_messages_estimate") == expected
    assert samples(listener, "batch_id") == {}
    other = uuid.UUID(int=8)
    listener.onQueryStarted(started(other, "others"))
    unclear = {f'query="spark-pulsar-s",{labels}': 1_000_000}
    assert samples(listener, "backlog_messages_estimate") == unclear
    listener.onQueryStarted(started(other, "others", "2026-11-21T11:00:10.000Z"))
    assert samples(listener, "backlog_messages_estimate") == expected, "the other one started later"
    listener.onQueryProgress(progress(json.dumps(live.to_json())))
    assert samples(listener, "backlog_messages_estimate") == expected
    listener.onQueryTerminated(terminated())
    assert samples(listener, "backlog_messages_estimate") == {}, "though its planner still ends"


def test_runs_that_fail_are_counted(listener):
    for number in range(2):
        run = uuid.UUID(int=20 + number)
        listener.onQueryStarted(started(run))
        listener.onQueryTerminated(terminated(run, error="it broke"))
    listener.onQueryStarted(started(RUN, "stopped"))
    listener.onQueryTerminated(terminated(RUN))
    assert samples(listener, "failed_runs_total") == {'query="orders"': 2}
    listener.onQueryProgress(progress(ORDERS, name="others", run=uuid.UUID(int=30)))
    assert samples(listener, "failed_runs_total") == {'query="orders"': 2, 'query="others"': 0}
    listener.onQueryTerminated(terminated(uuid.UUID(int=30)))
    found = pages(listener)
    assert (found["queries"], found["failedRuns"]) == ([], {"orders": 2})


# ---- what the sink has written


@pytest.mark.parametrize("latest", [ORDERS, None], ids=["reads from Pulsar", "only writes"])
def test_what_was_written_and_may_be_there_twice(listener, caplog, latest):
    add_sink_totals(str(QUERY), SinkTotals(50, 500, 100))
    listener.onQueryStarted(started())  # what was before is not of this run
    listener.onQueryProgress(progress(latest))
    assert caplog.messages == []
    add_sink_totals(str(QUERY), SinkTotals(20, 2000, 8, 1))
    listener.onQueryProgress(progress(latest, batch=4))
    listener.onQueryProgress(progress(latest, batch=5))
    assert value(listener, "possible_duplicates_total") == 8
    assert value(listener, "written_messages_total") == 20
    assert value(listener, "written_bytes_total") == 2000
    assert samples(listener, "retries_total")['query="orders",part="sink"'] == 1
    assert caplog.messages == [
        "query orders, batch 4: up to 8 messages may be duplicated, see the sink's log"
    ]
    add_sink_totals(str(QUERY), SinkTotals(0, 0, 2))
    listener.onQueryProgress(progress(latest, batch=6))
    assert value(listener, "possible_duplicates_total") == 10
    again = uuid.UUID(int=8)
    listener.onQueryStarted(started(again))
    add_sink_totals(str(QUERY), SinkTotals(0, 0, 5))
    listener.onQueryProgress(progress(latest, run=again, batch=7))
    assert value(listener, "possible_duplicates_total") == 5


# ---- served


def pages(listener):
    """What the live page gets."""
    url = listener.serve()
    try:
        with urlopen(f"{url}queries.json") as found:
            return json.load(found)
    finally:
        listener.close()


def test_it_is_served_on_the_loopback(listener):
    listener.onQueryProgress(progress(ORDERS))
    url = listener.serve()
    try:
        assert url.startswith("http://127.0.0.1:")
        with urlopen(f"{url}metrics") as found:
            assert found.read().decode() == listener.prometheus_text()
            assert found.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with urlopen(url) as found:
            assert b"queries.json" in found.read()
        with pytest.raises(RuntimeError, match="served at"):
            listener.serve()
    finally:
        listener.close()
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(url.split("/")[2]).connect()


def test_a_port_that_is_taken_is_named(listener):
    port = urlsplit(listener.serve()).port
    try:
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1 port {port}: .* Choose another"):
            PulsarProgressListener().serve(port)
    finally:
        listener.close()


def test_it_answers_to_the_names_that_are_allowed(listener):
    url = listener.serve(host="0.0.0.0", allowed_hosts=["driver.example"])
    address = url.split("/")[2].replace("0.0.0.0", "127.0.0.1")
    try:
        for name, status in {"driver.example": 200, "evil.example": 403}.items():
            connection = http.client.HTTPConnection(address)
            with contextlib.closing(connection):
                connection.request("GET", "/metrics", headers={"Host": name})
                assert connection.getresponse().status == status
    finally:
        listener.close()


def test_it_is_exported():
    assert pulsar_spark.PulsarProgressListener is PulsarProgressListener
