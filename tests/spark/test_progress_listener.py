"""The listener, with progress as Spark hands it over."""

import json
import logging
import uuid

import pytest
from pyspark import SparkFiles
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

import pulsar_spark
from pulsar_spark.spark.progress_listener import PulsarProgressListener
from pulsar_spark.spark.sink.duplicate_counts import add_duplicates

TOPIC = "persistent://public/default/orders"
RUN = uuid.UUID(int=7)


def report(topics):
    """What the source says of the latest offsets; for each partition (end, entries[, messages])."""
    names = ("end", "backlogEntries", "backlogMessages")
    return json.dumps(
        {
            "topics": {
                topic: {number: dict(zip(names, found, strict=False)) for number, found in partitions.items()}
                for topic, partitions in topics.items()
            },
            "backlogEntries": sum(
                found[1] for partitions in topics.values() for found in partitions.values()
            ),
        }
    )


ORDERS = report({TOPIC: {"0": ("12:99", 10, 1000), "1": ("13:4", 0, 0)}})


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


def progress(*latest, name="orders", run=RUN, batch=3, rows=100):
    """One micro-batch of a query that reads from ``latest``'s sources."""
    return QueryProgressEvent(
        StreamingQueryProgress.fromJson(
            {
                "id": str(uuid.UUID(int=1)),
                "runId": str(run),
                "name": name,
                "timestamp": "2026-11-21T11:00:00.000Z",
                "batchId": batch,
                "batchDuration": 1234,
                "numInputRows": rows,
                "inputRowsPerSecond": 50.0,
                "processedRowsPerSecond": 80.5,
                "durationMs": {"triggerExecution": 1234},
                "stateOperators": [],
                "sources": [source(each, rows) for each in latest],
                "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
            }
        )
    )


def terminated(run=RUN):
    return QueryTerminatedEvent(uuid.UUID(int=1), run, None, None)


@pytest.fixture
def listener():
    return PulsarProgressListener()


def test_prometheus_text(listener):
    listener.onQueryProgress(progress(ORDERS, rows=100))
    lossy = json.dumps(json.loads(ORDERS) | {"dataLosses": 2})
    listener.onQueryProgress(progress(lossy, rows=50, batch=4))
    assert listener.prometheus_text() == (
        "# HELP pulsar_spark_rows_total Rows read.\n"
        "# TYPE pulsar_spark_rows_total counter\n"
        'pulsar_spark_rows_total{query="orders"} 150\n'
        "# HELP pulsar_spark_possible_duplicates_total Messages that may be there twice.\n"
        "# TYPE pulsar_spark_possible_duplicates_total counter\n"
        'pulsar_spark_possible_duplicates_total{query="orders"} 0\n'
        "# HELP pulsar_spark_batch_id Last batch.\n"
        "# TYPE pulsar_spark_batch_id gauge\n"
        'pulsar_spark_batch_id{query="orders"} 4\n'
        "# HELP pulsar_spark_batch_duration_ms Milliseconds that the last batch took.\n"
        "# TYPE pulsar_spark_batch_duration_ms gauge\n"
        'pulsar_spark_batch_duration_ms{query="orders"} 1234\n'
        "# HELP pulsar_spark_processed_rows_per_second Rows a second in the last batch.\n"
        "# TYPE pulsar_spark_processed_rows_per_second gauge\n"
        'pulsar_spark_processed_rows_per_second{query="orders"} 80.5\n'
        "# HELP pulsar_spark_data_losses Losses of this run that the planner warned of.\n"
        "# TYPE pulsar_spark_data_losses gauge\n"
        'pulsar_spark_data_losses{query="orders"} 2\n'
        "# HELP pulsar_spark_backlog_entries Broker entries that are in no batch yet.\n"
        "# TYPE pulsar_spark_backlog_entries gauge\n"
        f'pulsar_spark_backlog_entries{{query="orders",topic="{TOPIC}",partition="0"}} 10\n'
        f'pulsar_spark_backlog_entries{{query="orders",topic="{TOPIC}",partition="1"}} 0\n'
        "# HELP pulsar_spark_backlog_messages Messages that are in no batch yet, where known.\n"
        "# TYPE pulsar_spark_backlog_messages gauge\n"
        f'pulsar_spark_backlog_messages{{query="orders",topic="{TOPIC}",partition="0"}} 1000\n'
        f'pulsar_spark_backlog_messages{{query="orders",topic="{TOPIC}",partition="1"}} 0\n'
    )


def test_messages_are_left_out_where_nobody_counts_them(listener, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark.progress")
    listener.onQueryProgress(progress(report({"a": {"0": ("1:1", 2, 20), "1": ("1:1", 3)}})))
    text = listener.prometheus_text()
    assert 'backlog_messages{query="orders",topic="a",partition="0"} 20\n' in text
    assert 'backlog_messages{query="orders",topic="a",partition="1"}' not in text
    assert "backlog 5 entries; ends" in caplog.text


def test_labels_are_escaped(listener):
    name = 'a "query" \\ of\ntwo lines'
    listener.onQueryProgress(progress(report({'t"\\': {"-1": ("1:1", 2)}}), name=name))
    lines = listener.prometheus_text().splitlines()
    label = r'query="a \"query\" \\ of\ntwo lines"'
    assert rf'pulsar_spark_backlog_entries{{{label},topic="t\"\\",partition="-1"}} 2' in lines
    assert f"pulsar_spark_rows_total{{{label}}} 100" in lines


def test_a_query_without_a_name_goes_by_its_id(listener):
    listener.onQueryProgress(progress(ORDERS, name=None))
    assert f'rows_total{{query="{uuid.UUID(int=1)}"}} 100\n' in listener.prometheus_text()


def test_a_stopped_query_disappears(listener):
    other = uuid.UUID(int=8)
    listener.onQueryProgress(progress(ORDERS))
    listener.onQueryProgress(progress(ORDERS, name="other", run=other))
    assert listener.prometheus_text().count("# TYPE pulsar_spark_rows_total") == 1
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
    lines = listener.prometheus_text().splitlines()
    assert [line for line in lines if "rows_total{" in line] == ['pulsar_spark_rows_total{query="orders"} 30']


def test_one_line_a_batch(listener, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark.progress")
    listener.onQueryProgress(progress(ORDERS))
    assert caplog.messages == [
        "query orders, batch 3: 100 rows in 1234 ms, 80.5 rows/s; backlog 10 entries, 1000 messages; "
        f"ends {TOPIC} 0=12:99 1=13:4"
    ]
    caplog.clear()
    caplog.set_level(logging.DEBUG, "pulsar_spark.progress")
    listener.onQueryProgress(progress(ORDERS))
    assert caplog.messages[1:] == [
        f"query orders, batch 3: {TOPIC} partition 0: end 12:99, backlog 10 entries, 1000 messages",
        f"query orders, batch 3: {TOPIC} partition 1: end 13:4, backlog 0 entries, 0 messages",
    ]


def test_the_line_of_a_wide_topic_stays_short(listener, caplog):
    caplog.set_level(logging.INFO, "pulsar_spark.progress")
    listener.onQueryProgress(progress(report({"a": {str(number): ("1:1", 1) for number in range(500)}})))
    assert len(caplog.text) < 500
    assert "backlog 500 entries" in caplog.text
    assert caplog.messages[0].endswith("19=1:1, and 480 more partitions")


def test_a_partition_that_is_read_twice_is_told_once(listener):
    behind = report({TOPIC: {"0": ("12:99", 30, 3000), "2": ("1:1", 1)}})
    listener.onQueryProgress(progress(ORDERS, behind))
    lines = [line for line in listener.prometheus_text().splitlines() if line.startswith("pulsar_spark_back")]
    assert len(lines) == len({line.partition("}")[0] for line in lines}) == 5
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


@pytest.mark.parametrize(
    "partitions", [{"0": "12:99"}, {"0": {}}, {"0": {"end": "1:1", "backlogEntries": "?"}}, [], 3, None]
)
def test_what_cannot_be_read_is_told_once_and_disturbs_nobody(listener, caplog, partitions):
    for _ in range(3):
        listener.onQueryProgress(progress(json.dumps({"topics": {TOPIC: partitions}})))
    assert caplog.text.count("cannot be read") == 1
    assert listener.prometheus_text() == ""
    listener.onQueryProgress(progress(ORDERS))
    assert "backlog_entries" in listener.prometheus_text()


# ---- what the sink says may be there twice

QUERY = uuid.UUID(int=1)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))


def started(run=RUN):
    return QueryStartedEvent(QUERY, run, "orders", "2026-11-21T11:00:00.000Z", set())


def duplicates(listener):
    found = [line for line in listener.prometheus_text().splitlines() if line.startswith("pulsar_spark_poss")]
    return [int(line.rpartition(" ")[2]) for line in found]


@pytest.mark.parametrize("latest", [ORDERS, None], ids=["reads from Pulsar", "only writes"])
def test_what_may_be_there_twice(folder, listener, caplog, latest):
    add_duplicates(str(QUERY), 100)
    listener.onQueryStarted(started())  # what was before is not of this run
    listener.onQueryProgress(progress(latest))
    assert caplog.messages == []
    add_duplicates(str(QUERY), 8)
    listener.onQueryProgress(progress(latest, batch=4))
    listener.onQueryProgress(progress(latest, batch=5))
    assert duplicates(listener) == [8]
    assert caplog.messages == [
        "query orders, batch 4: up to 8 messages may be there twice, see the sink's log"
    ]
    add_duplicates(str(QUERY), 2)
    listener.onQueryProgress(progress(latest, batch=6))
    assert duplicates(listener) == [10]
    again = uuid.UUID(int=8)
    listener.onQueryStarted(started(again))
    add_duplicates(str(QUERY), 5)
    listener.onQueryProgress(progress(latest, run=again, batch=7))
    assert duplicates(listener) == [5]


def test_it_is_exported():
    assert pulsar_spark.PulsarProgressListener is PulsarProgressListener
