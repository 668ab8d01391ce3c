"""Lineage of real queries: the events of OpenLineage's own client, in a file."""

import json
import uuid

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport

from integration.broker.waiting import wait_until
from integration.fixtures.spark import InjectedError, PulsarInSpark, finish
from integration.helpers.peer import Record
from pulsar_spark import PulsarLineageListener


class Lineage:
    """A listener whose client writes to a file, and the events of one query."""

    def __init__(self, file):
        self.name = f"lineage-{uuid.uuid4().hex[:8]}"
        transport = FileTransport(FileConfig(log_file_path=str(file), append=True))
        self.listener = PulsarLineageListener(OpenLineageClient(transport=transport), namespace="tests")
        self._file = file

    @property
    def events(self):
        """The events so far; a line that is being written counts later."""
        lines = self._file.read_text().split("\n")[:-1] if self._file.exists() else []
        return [each for each in map(json.loads, lines) if each["job"]["name"] == self.name]

    def ended(self):
        """The events of the query when it has ended, which Spark tells later than the program."""
        wait_until(lambda: self.events and self.events[-1]["eventType"] in ("COMPLETE", "FAIL"))
        return self.events


@pytest.fixture
def lineage(spark, tmp_path):
    found = Lineage(tmp_path / "lineage.jsonl")
    spark.streams.addListener(found.listener)
    yield found
    spark.streams.removeListener(found.listener)


def topics(event, kind):
    return [(each["namespace"], each["name"]) for each in event[kind]]


def test_topics_of_source_and_sink(pulsar_in_spark, peer, topic, checkpoint, lineage):
    """The rows name their topics, so no option says where they were written."""
    written = [f"{topic}-even", f"{topic}-odd"]
    peer.produce(topic, [Record(b"%d" % each) for each in range(10)])
    where = f"if(cast(cast(value as string) as int) % 2 = 0, '{written[0]}', '{written[1]}') as __topic"
    rows = pulsar_in_spark.stream(topic).selectExpr("value", where)
    writer = pulsar_in_spark.write_stream(rows, checkpoint).queryName(lineage.name)
    query = writer.trigger(availableNow=True).start()
    finish(query)
    url = pulsar_in_spark.service_url
    events = lineage.ended()
    assert [each["eventType"] for each in events] == ["START", "RUNNING", "COMPLETE"]
    assert {each["run"]["runId"] for each in events} == {str(query.runId)}
    for event in events[1:]:
        assert topics(event, "inputs") == [(url, topic)]
        assert topics(event, "outputs") == [(url, each) for each in written]


def test_a_write_in_foreach_batch_and_a_failure(pulsar_in_spark, peer, topic, checkpoint, lineage):
    written = f"{topic}-written"
    peer.produce(topic, [Record(b"%d" % each) for each in range(2)])

    def write(batch, number):
        if number == 1:
            raise InjectedError(number)
        pulsar_in_spark.write(batch.select("value"), written)

    rows = pulsar_in_spark.stream(topic, maxMessagesPerTrigger="1")
    writer = rows.writeStream.foreachBatch(write).queryName(lineage.name)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="InjectedError"):
        finish(query)
    *_, last = lineage.ended()
    assert last["eventType"] == "FAIL"
    assert "InjectedError" in last["run"]["facets"]["errorMessage"]["message"]
    assert topics(last, "inputs") == [(pulsar_in_spark.service_url, topic)]
    assert topics(last, "outputs") == [(pulsar_in_spark.service_url, written)]


def test_scalable_topics_of_source_and_sink(spark, line_5, scalable, checkpoint, lineage):
    """The segments are no datasets of their own."""
    name, pulsar = str(scalable.name), PulsarInSpark(spark, line_5.service_url)
    pulsar.write(pulsar.rows([("a",), ("b",)], "value string"), name)
    rows = pulsar.stream(name, **{"admin.url": line_5.admin_url}).select("value")
    writer = pulsar.write_stream(rows, checkpoint, f"{name}-written").queryName(lineage.name)
    finish(writer.trigger(availableNow=True).start())
    last = lineage.ended()[-1]
    assert last["eventType"] == "COMPLETE"
    assert topics(last, "inputs") == [(line_5.service_url, name)]
    assert topics(last, "outputs") == [(line_5.service_url, f"{name}-written")]
