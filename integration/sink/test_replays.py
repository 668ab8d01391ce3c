"""Micro-batches that are run again in another way, on the real broker: each row is stored once."""

import subprocess
import sys
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from integration.fixtures.spark import Collector, InjectedError, await_rows, drain, start
from integration.helpers.failing_steps import LosesShuffle
from integration.helpers.local_spark import ROOT
from integration.helpers.replays import STRICT, Replays, number_in, written

pytestmark = pytest.mark.usefixtures("small_batches")

FAILED = "StepFailedError"
ROWS = 6000
SIZE = 300


def half_with_keys(rows):
    number = f.substring_index("value", ".", 1).cast("int")
    return rows.withColumn("__key", f.when(number % 2 == 0, (number % 50).cast("string")))


def test_partitions_that_are_added_between_two_runs_double_no_row(
    pulsar_in_spark, admin, peer, once_topic, tmp_path
):
    """Most keys belong to other partitions then."""
    query = Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS, size=SIZE, keys=50)
    query.fails(FAILED, query.at(4500, stored=3000))
    admin.grow_partitioned_topic(once_topic, 7)
    query.run(**STRICT)
    assert Counter(written(peer, once_topic)) == Counter(range(ROWS))
    assert len({record.partition for record in peer.read_all(once_topic)}) == 7


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="default"), pytest.param(STRICT, marks=pytest.mark.long, id="strict")]
)
def test_two_writes_of_foreach_batch_to_one_topic_are_each_stored_once(
    pulsar_in_spark, admin, peer, once_topic, tmp_path, options
):
    """They have rows in common. The first one is interrupted, then the second one, then all after both."""
    here = pulsar_in_spark
    query = Replays(here, admin.url, once_topic, tmp_path, rows=ROWS, size=SIZE)
    bounds = [(0, 4000), (2000, ROWS)]

    def attempt(failing, stored=0):
        def write(batch, number):
            for turn, (first, last) in enumerate(bounds):
                rows = batch.where(f.col("value").between(first, last - 1))
                rows = rows.select(f.rpad(f.col("value").cast("string"), SIZE, ".").alias("value"))
                if turn == failing:
                    rows = rows.mapInArrow(query.at(3000, stored), rows.schema)
                here.write(rows, once_topic, **options)
            if failing == len(bounds):
                raise InjectedError(number)

        running = start(here.ticks(ROWS, 1).where(f.col("value") < ROWS), write, tmp_path / "checkpoint")
        try:
            await_rows(running, lambda: running.lastProgress is not None)
        finally:
            running.stop()

    expected = Counter(number for bound in bounds for number in range(*bound))
    for failing, stored in ((0, 2000), (1, 6000), (2, 0)):
        with pytest.raises(StreamingQueryException, match=f"{FAILED}|{InjectedError.__name__}"):
            attempt(failing, stored)
        assert Counter(written(peer, once_topic)) <= expected
    assert Counter(written(peer, once_topic)) == expected
    attempt(None)
    assert Counter(written(peer, once_topic)) == expected


@pytest.mark.long
def test_where_deduplication_is_disabled_nothing_is_in_the_way_when_it_is_enabled(
    pulsar_in_spark, admin, peer, namespace, own_topic, tmp_path
):
    """The first rows are stored; they can be read by a stream and a batch, and are not stored again."""
    here, topic = pulsar_in_spark, own_topic
    admin.set_retention(namespace, minutes=-1, megabytes=-1)
    admin.create_partitioned_topic(topic, 2)
    query = Replays(here, admin.url, topic, tmp_path, rows=ROWS)
    for _ in range(2):
        query.fails(r"\[PULSAR_OPTION\].*disabled.*set-deduplication", None, half_with_keys, **STRICT)
    stored = written(peer, topic)
    assert 0 < len(stored) < ROWS
    assert set(Counter(stored).values()) == {1}
    collected = Collector()
    drain(here.stream(topic), collected, tmp_path / "reader")
    for read in (here.read(topic).collect(), collected.rows):
        assert Counter(number_in(bytes(row.value)) for row in read) == Counter(stored)
    admin.set_deduplication(namespace, True)
    admin.unload_namespace(namespace)
    query.run(None, half_with_keys, **STRICT)
    assert Counter(written(peer, topic)) == Counter(range(ROWS))
    drain(here.stream(topic), collected, tmp_path / "reader")
    assert Counter(number_in(bytes(row.value)) for row in collected.rows) == Counter(range(ROWS))


PROGRAM = """
import resource, sys
from integration.chaos.messages import numbered
from integration.helpers.task_runs import run, task_of
from pulsar_spark.client import Client, ClientOptions

service_url, topic = sys.argv[1:]
records = numbered(6000, keys=600)
with Client(ClientOptions(service_url=service_url)) as client:
    run(client, topic, records, dies_after=4000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
    print(run(client, topic, records, task_of(client, strict=True)))
"""


def test_many_partitions_are_compared_with_few_open_files(cluster, admin, peer, plain_once_topic):
    admin.create_partitioned_topic(plain_once_topic, 60)
    command = [sys.executable, "-c", PROGRAM, cluster.service_url, plain_once_topic]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2000\n"), done.stderr
    assert len(peer.read_all(plain_once_topic)) == 6000


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, STRICT], ids=["default", "strict"])
def test_a_second_attempt_of_a_stage_stores_each_row_once(
    pulsar_in_spark, spark, admin, peer, once_topic, tmp_path, options
):
    """Its task is a first attempt, as Spark counts. 60 MB are more than any socket buffer holds ahead."""
    query = Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS, size=10_000, tasks=20)
    notes = tmp_path / "notes"
    step = LosesShuffle(spark.conf.get("spark.local.dir") or "", 500, notes, admin.url, once_topic)
    query.run(step, lambda rows: rows.repartition(1), **options)
    assert Counter(written(peer, once_topic)) == Counter(range(ROWS))
    attempts = Counter(line for line in notes.read_text().splitlines() if line.endswith(" 0"))
    assert 2 in attempts.values(), attempts
