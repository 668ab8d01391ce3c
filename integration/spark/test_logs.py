"""What a query's processes write to Spark's log: what the option logLevel asks for, each line once."""

import re
import subprocess
import sys

import pytest

from integration.helpers.local_spark import ROOT
from integration.helpers.peer import Peer, Record

pytestmark = pytest.mark.long

PROGRAM = """
import sys
from pathlib import Path
from integration.helpers.local_spark import local_spark

service_url, topic, home, *levels = sys.argv[1:]
spark = local_spark(Path(home), "logs", {})
options = {"service.url": service_url, **({"logLevel": levels[0]} if levels else {})}
rows = spark.readStream.format("pulsar").options(**options).option("topic", topic)
rows = rows.option("startingOffsets", "earliest").option("maxMessagesPerTrigger", 20).load()
sink = rows.selectExpr("value", "__messageId").repartition(2).writeStream.format("pulsar").options(**options)
sink = sink.option("topic", topic + "-copy").option("checkpointLocation", home + "/checkpoint")
sink.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""
LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|WARNING) pulsar_spark\.[\w.]+: (.*)")


@pytest.fixture
def lines_of(cluster, topic, tmp_path):
    """Copies 60 messages in three micro-batches of two writing tasks each; gives levels and texts."""

    def run(*level):
        with Peer(cluster.service_url) as peer:
            peer.produce(topic, [Record(b"%d" % number) for number in range(60)])
        command = [sys.executable, "-c", PROGRAM, cluster.service_url, topic, str(tmp_path), *level]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [(found[1], found[2]) for line in done.stderr.splitlines() if (found := LINE.fullmatch(line))]

    return run


def test_by_default_there_are_warnings_and_each_once(lines_of):
    warnings = [text for level, text in lines_of() if level == "WARNING"]
    assert [text[:40] for text in sorted(warnings, key=len)] == [
        "columns that only the source has are not",
        warnings[-1][:40],
    ]
    assert re.search(r"the broker has deduplication disabled\. Enable deduplication for", warnings[-1])


def test_at_info_each_micro_batch_says_rows_bytes_seconds_and_backlog(lines_of):
    texts = [text for _, text in lines_of("INFO")]

    def count(pattern):
        return sum(re.search(pattern, text) is not None for text in texts)

    assert count(r"^a micro-batch of 1 tasks: ") == 3
    assert count(r": 20 rows \(\d+ bytes\) in \d+\.\d{3} s$") == 3
    assert count(r"^\d+ messages \(\d+ bytes\) are stored in \d topic partitions after \d+\.\d{3} s$") == 6
    assert count(r"^micro-batch [012] is written: 20 messages, \d+ bytes to 1 topic partitions") == 3
    assert [re.search(r"backlog after it: (\d+) entries", text)[1] for text in texts if "took" in text] == [
        "40",
        "20",
        "0",
    ]
    assert count("rows are written at least once, because the broker has deduplication disabled") == 1
    assert count("the subscription of the new query is spark-pulsar-") == 1
