"""Monitoring, with a real Spark, a real broker and a real browser."""

import json
import re
import time
import uuid
from urllib.request import urlopen

import pytest
from pyspark.sql.streaming.listener import QueryTerminatedEvent

from integration.broker.waiting import wait_until
from integration.fixtures.spark import Collector, begun, start
from integration.helpers.chromium import find_chromium, page_dom
from integration.helpers.made_up_progress import progress
from integration.helpers.peer import Record
from pulsar_spark import PulsarProgressListener

BATCH = 100


def shown(listener, metric, **labels):
    """The sum of the samples of a metric that have these labels; None where there is none."""
    found = []
    for line in listener.prometheus_text().splitlines():
        name, _, rest = line.partition("{")
        has_labels = all(f'{label}="{value}"' in rest for label, value in labels.items())
        if name == f"pulsar_spark_{metric}" and has_labels:
            found.append(float(rest.rpartition(" ")[2]))
    return sum(found) if found else None


class HeldSink:
    """A sink for foreachBatch that holds each micro-batch until it is told to go on, and counts rows."""

    def __init__(self):
        self.is_open = False
        self.has_begun = False
        self.rows = 0

    def __call__(self, batch, number):
        self.has_begun = True
        wait_until(lambda: self.is_open or not self.has_begun)
        self.rows += batch.count()

    def let_go_on(self):
        """Let one micro-batch go on."""
        self.has_begun = False


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_query_that_is_behind_shows_it_within_its_first_trigger(
    pulsar_in_spark, peer, topic, checkpoint, listener, rows, tmp_path
):
    """Default options but for the start: one micro-batch takes all, and is seen while it runs and after."""
    begun_at = time.time()
    peer.produce(topic, [Record(b"%d" % each) for each in range(rows)], batch_size=BATCH)
    ended_at = time.time()
    page = listener.serve()
    name = f"behind-{uuid.uuid4().hex[:8]}"
    sink = HeldSink()
    writer = pulsar_in_spark.stream(topic).writeStream.foreachBatch(sink).queryName(name)
    query = begun(writer.option("checkpointLocation", str(checkpoint)))
    try:
        wait_until(lambda: sink.has_begun)
        assert shown(listener, "backlog_entries", query=name, topic=topic) == rows / BATCH
        assert shown(listener, "backlog_messages_estimate", query=name) == rows
        assert shown(listener, "batch_id", query=name) is None, "nothing has ended yet"
        lag, now = shown(listener, "lag_seconds", query=name, topic=topic), time.time()
        assert now - ended_at - 1 < lag < now - begun_at + 1
        (on_page,) = (each for each in page_data(page)["queries"] if each["name"] == name)
        assert (on_page["backlogMessages"], on_page["batch"]) == (rows, None)
        if rows == 1_000_000:
            dom = page_dom(find_chromium(), page, tmp_path / "profile")
            assert "<b>≈ 1 M</b><span>messages behind</span>" in dom
        sink.is_open = True
        wait_until(lambda: shown(listener, "read_rows_total", query=name) == rows)
        # Until the query is seen to wait, its last trigger counts.
        wait_until(lambda: shown(listener, "backlog_messages_estimate", query=name) == 0)
        assert shown(listener, "lag_seconds", query=name, topic=topic) == 0
        report = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])
        assert report["backlogEntries"] == report["batchEntries"] == rows / BATCH
        assert report["backlogMessagesEstimate"] == rows
        assert rows < shown(listener, "read_bytes_estimate_total", query=name) < 100 * rows
        (on_page,) = (each for each in page_data(page)["queries"] if each["name"] == name)
        assert [point[2] for point in on_page["backlogs"]][:1] == [rows]
        assert len(on_page["batches"]) >= 1
    finally:
        sink.is_open = True
        query.stop()
    wait_until(lambda: shown(listener, "batch_id", query=name) is None)
    assert sink.rows == rows


@pytest.mark.long
def test_the_lag_of_a_query_that_catches_up(pulsar_in_spark, peer, topic, checkpoint, listener, tmp_path):
    """With a micro-batch for each message: the lag is the age of the one that is being processed."""
    sink, written = HeldSink(), []
    for number in range(3):
        written.append(time.time())
        peer.produce(topic, [Record(b"%d" % number)])
        time.sleep(2.5)  # the ages differ
    name = f"catches-up-{uuid.uuid4().hex[:8]}"
    rows = pulsar_in_spark.stream(topic, maxMessagesPerTrigger="1")
    writer = rows.writeStream.foreachBatch(sink).queryName(name)
    query = begun(writer.option("checkpointLocation", str(checkpoint)))
    try:
        for number in range(3):
            wait_until(lambda: sink.has_begun)
            age = time.time() - written[number]
            assert shown(listener, "lag_seconds", query=name) == pytest.approx(age, abs=1), number
            sink.let_go_on()
        wait_until(lambda: shown(listener, "lag_seconds", query=name) == 0)
    finally:
        sink.is_open = True
        query.stop()


def test_what_a_sink_writes_and_a_run_that_fails(pulsar_in_spark, topic, tmp_path, listener):
    ticks = pulsar_in_spark.spark.readStream.format("rate-micro-batch")
    rows = ticks.options(rowsPerBatch=100, startTimestamp=0).load().selectExpr("string(value) AS value")
    query = pulsar_in_spark.write_stream(rows, tmp_path / "sink", topic).queryName("writes").start()
    try:
        wait_until(lambda: (shown(listener, "written_messages_total", query="writes") or 0) >= 300)
        assert shown(listener, "written_bytes_total", query="writes") > 300
        assert shown(listener, "failed_runs_total", query="writes") == 0
    finally:
        query.stop()
    wait_until(lambda: shown(listener, "written_messages_total", query="writes") is None)
    failing = start(pulsar_in_spark.stream(topic), Collector(fail_at={0}), tmp_path / "fails")
    wait_until(lambda: failing.exception())
    wait_until(lambda: shown(listener, "failed_runs_total", query=str(failing.id)) == 1)


def page_data(url):
    """What the live page gets."""
    with urlopen(f"{url}queries.json") as found:
        return json.load(found)


# ---- in a browser


@pytest.mark.long
def test_the_live_page_in_a_browser(tmp_path):
    """It draws what it gets, and names that are made to look like HTML are text."""
    hostile = "</script><img src=x onerror=\"document.title='broken into'\">&amp;"
    listener = PulsarProgressListener()
    for batch in range(10):
        made_up = progress(
            hostile,
            f"persistent://public/default/{hostile}",
            batch,
            waiting=[1_000_000 // (batch + 1)],
            rows=5000,
            seconds=2.0,
            end_ms=1795258800000 + 1000 * batch,
            data_losses=1,
        )
        listener.onQueryProgress(made_up)
    listener.onQueryTerminated(QueryTerminatedEvent(uuid.UUID(int=3), uuid.UUID(int=4), "it broke", None))
    try:
        dom = page_dom(find_chromium(), listener.serve(), tmp_path / "profile")
    finally:
        listener.close()
    body = dom.partition("<script>")[0]
    assert "<title>Pulsar queries</title>" in dom
    assert "<img" not in dom.partition("<body>")[2].replace(dom.partition("<script>")[2], "")
    assert f"<h2>{hostile.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</h2>" in body
    assert len(re.findall(r"<svg ", body)) == 3
    lines = re.findall(r'<polyline points="([^"]*)"', body)
    assert [len(line.split()) for line in lines] == [10, 10, 10]
    assert "1 loss of data" in body
    assert "<b>≈ 100 k</b><span>messages behind</span>" in body
    assert "<b>2.5 k</b><span>rows a second</span>" in body
    assert str(uuid.UUID(int=3)) in body, "what failed and is gone"
    assert "live, " in body
