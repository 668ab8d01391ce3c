"""The listener, with progress as Spark hands it over, and the library's client and file transport."""

import json
import subprocess
import sys
import uuid

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

import pulsar_spark
from pulsar_spark.errors import LibraryError
from pulsar_spark.spark import lineage_listener
from pulsar_spark.spark.lineage_listener import PulsarLineageListener
from pulsar_spark.spark.monitoring.driver_files import add_sink_topics
from pulsar_spark.spark.monitoring.source_report import PartitionBacklog, SourceReport

URL = "pulsar://localhost:6650"
ORDERS, PAYMENTS = "persistent://public/default/orders", "persistent://public/default/payments"
TOTALS = "persistent://public/default/totals"
QUERY, RUN = uuid.UUID(int=1), uuid.UUID(int=7)
TIME = "2026-11-21T11:00:00.000Z"

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def clock(monkeypatch):
    """The time in ms since 1970, in a list."""
    now = [1795258800000]
    monkeypatch.setattr(lineage_listener, "epoch_ms", lambda: now[0])
    return now


@pytest.fixture
def lineage(tmp_path, clock):
    return Lineage(tmp_path / "events.jsonl")


class Lineage:
    """A listener, and what its client has written."""

    def __init__(self, path):
        self._path = path
        transport = FileTransport(FileConfig(log_file_path=str(path), append=True))
        self.client = OpenLineageClient(transport=transport)
        self.listener = PulsarLineageListener(self.client, namespace="shop")

    @property
    def events(self):
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def states(self):
        return [each["eventType"] for each in self.events]


def started(run=RUN, name="orders"):
    return QueryStartedEvent(QUERY, run, name, TIME, set())


def terminated(exception=None, run=RUN):
    return QueryTerminatedEvent(QUERY, run, exception, None)


def report(*topics, url=URL):
    partitions = tuple(PartitionBacklog(topic, number, "1:1", 1, 1, 1) for topic in topics for number in "01")
    return json.dumps(SourceReport("1-a", "s", 1, 2, partitions, None, 0, 0, service_url=url).to_json())


def progress(*latest, run=RUN, name="orders"):
    """One micro-batch of a query that reads from ``latest``'s sources."""
    speed = {"numInputRows": 1, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    sources = [
        {"description": "s", "startOffset": "{}", "endOffset": "{}", "latestOffset": each, **speed}
        for each in latest
    ]
    found = {"id": str(QUERY), "runId": str(run), "name": name, "timestamp": TIME, "batchId": 3}
    found |= {"batchDuration": 1, "durationMs": {}, "stateOperators": [], "sources": sources, **speed}
    found |= {"sink": {"description": "made up", "numOutputRows": -1}}
    return QueryProgressEvent(StreamingQueryProgress.fromJson(found))


def datasets(event, kind):
    return [(each["namespace"], each["name"]) for each in event[kind]]


def test_a_run_from_its_start_to_its_end(lineage):
    lineage.listener.onQueryStarted(started())
    add_sink_topics(str(QUERY), URL, {TOTALS})
    lineage.listener.onQueryProgress(progress(report(ORDERS), report(PAYMENTS, url="pulsar://other:6650")))
    lineage.listener.onQueryTerminated(terminated())
    assert lineage.states == ["START", "RUNNING", "COMPLETE"]
    start, running, complete = lineage.events
    for event in lineage.events:
        assert event["run"]["runId"] == str(RUN)
        assert (event["job"]["namespace"], event["job"]["name"]) == ("shop", "orders")
    assert start["inputs"] == start["outputs"] == []
    for event in (running, complete):
        assert datasets(event, "inputs") == [(URL, ORDERS), ("pulsar://other:6650", PAYMENTS)]
        assert datasets(event, "outputs") == [(URL, TOTALS)]


def test_a_failure_has_spark_s_error(lineage):
    lineage.listener.onQueryStarted(started(name=None))
    lineage.listener.onQueryTerminated(terminated("[PULSAR_DATA_LOSS] lost"))
    assert lineage.states == ["START", "FAIL"]
    event = lineage.events[1]
    assert event["run"]["facets"]["errorMessage"]["message"] == "[PULSAR_DATA_LOSS] lost"
    assert event["job"]["name"] == str(QUERY)


def test_running_comes_with_new_topics_and_else_each_minute(lineage, clock):
    lineage.listener.onQueryStarted(started())
    lineage.listener.onQueryIdle(QueryIdleEvent(QUERY, RUN, TIME))
    steps = [
        (0, [ORDERS], [], True),
        (0, [ORDERS], [], False),
        (59_999, [ORDERS], [], False),
        (1, [ORDERS], [], True),
        (0, [ORDERS, PAYMENTS], [], True),
        (0, [ORDERS], [TOTALS], True),
        (59_999, [ORDERS], [TOTALS], False),
    ]
    for milliseconds, inputs, outputs, is_emitted in steps:
        before = len(lineage.events)
        clock[0] += milliseconds
        add_sink_topics(str(QUERY), URL, outputs)
        lineage.listener.onQueryProgress(progress(report(*inputs)))
        assert len(lineage.events) - before == is_emitted
    assert lineage.events[-1]["eventTime"] == "2026-11-21T11:01:00.000+00:00"
    assert datasets(lineage.events[-1], "inputs") == [(URL, ORDERS), (URL, PAYMENTS)], "of the whole run"


def test_a_query_that_started_before_the_listener_was_added(lineage):
    lineage.listener.onQueryTerminated(terminated(run=uuid.UUID(int=9)))  # nothing is known of it
    lineage.listener.onQueryProgress(progress(report(ORDERS)))
    lineage.listener.onQueryProgress(progress(report(ORDERS)))
    assert lineage.states == ["START", "RUNNING"]


@pytest.mark.parametrize("latest", [None, "no json", '{"topics": {"t": 1}}', "7"])
def test_other_sources_are_no_datasets(lineage, latest):
    lineage.listener.onQueryStarted(started())
    lineage.listener.onQueryProgress(progress(latest))
    lineage.listener.onQueryTerminated(terminated())
    assert lineage.states == ["START", "COMPLETE"]
    assert lineage.events[1]["inputs"] == lineage.events[1]["outputs"] == []


def test_each_run_is_a_run_of_the_same_job(lineage):
    for run in (RUN, uuid.UUID(int=8)):
        lineage.listener.onQueryStarted(started(run))
        lineage.listener.onQueryProgress(progress(report(ORDERS), run=run))
        lineage.listener.onQueryTerminated(terminated(run=run))
    assert lineage.states == ["START", "RUNNING", "COMPLETE"] * 2
    assert len({each["run"]["runId"] for each in lineage.events}) == 2
    assert {each["job"]["name"] for each in lineage.events} == {"orders"}


def test_a_server_that_fails_is_logged_once_a_run(lineage, caplog, monkeypatch):
    emit = lineage.client.transport.emit

    def fail(event):
        raise ConnectionError("refused")

    monkeypatch.setattr(lineage.client.transport, "emit", fail)
    lineage.listener.onQueryStarted(started())
    lineage.listener.onQueryProgress(progress(report(ORDERS)))
    assert caplog.messages == [f"the lineage of query {RUN} is incomplete"]
    monkeypatch.setattr(lineage.client.transport, "emit", emit)
    lineage.listener.onQueryTerminated(terminated())
    assert lineage.states == ["COMPLETE"]
    assert datasets(lineage.events[0], "inputs") == [(URL, ORDERS)]


def test_a_report_that_cannot_be_read_is_logged(lineage, caplog):
    lineage.listener.onQueryStarted(started())
    lineage.listener.onQueryProgress(progress('{"planner": "1-a", "topics": {}}'))
    lineage.listener.onQueryTerminated(terminated())
    assert caplog.messages == [f"the lineage of query {RUN} is incomplete"]
    assert lineage.states == ["START", "COMPLETE"]


def test_the_library_is_an_extra(monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "openlineage":
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LibraryError, match="pip install 'openlineage-python>=") as caught:
        PulsarLineageListener(None)
    assert "requires the package openlineage-python, which is not installed" in str(caught.value)


def test_the_library_is_not_loaded_before_it_is_used():
    code = "import sys, pulsar_spark; sys.exit('openlineage' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_exported():
    assert pulsar_spark.PulsarLineageListener is PulsarLineageListener
