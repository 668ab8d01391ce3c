"""Effectively once through Spark: what failed and is run again, in the same way and in another.

Logs of Spark's workers go past the tests; that it is warned is looked at in ``chaos once``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f

from integration.broker.waiting import wait_until
from integration.fixtures.spark import InjectedError, finish, start
from integration.helpers.replays import STRICT, Replays, number_in
from integration.helpers.users_code import notes_of
from pulsar_spark import PulsarProgressListener

pytestmark = pytest.mark.usefixtures("small_batches")

ROWS = 8000
KEYS = 50
SIZE = 200


@pytest.fixture
def query(pulsar_in_spark, admin, once_topic, tmp_path):
    """Each key is in one of its two tasks, as a task has each second number."""
    return Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=ROWS, tasks=2, size=SIZE, keys=KEYS)


def fails_midway(query, **options):
    """Run the query until one of its tasks fails, when rows are stored."""
    query.fails("StepFailedError", query.at(3000, stored=1), **options)


def by_key(records):
    numbers: dict[str | None, list[int]] = {}
    for record in records:
        numbers.setdefault(record.key, []).append(number_in(record.value))
    return numbers


EXPECTED = {f"key-{key}": list(range(key, ROWS, KEYS)) for key in range(KEYS)}


@pytest.mark.parametrize("builder", ["DEFAULT", pytest.param("KEY_BASED", marks=pytest.mark.long)])
def test_a_batch_that_is_run_again_with_other_sizes_is_written_once(query, peer, once_topic, builder):
    """With KEY_BASED, the rows of a task are twice what it holds to put them together by key."""
    options = {"pulsar.producer.batcherBuilder": builder}
    if builder == "KEY_BASED":
        query = replace(query, size=10 * SIZE)
    fails_midway(query, **options)
    assert peer.read_all(once_topic)
    query.run(**{**options, "pulsar.producer.batchingMaxMessages": "37", "delivery": "effectively-once"})
    assert by_key(peer.read_all(once_topic)) == EXPECTED


@pytest.mark.long
def test_a_batch_that_is_run_again_in_another_way_misses_nothing(query, peer, once_topic):
    fails_midway(query)
    query.run(None, lambda rows: rows.repartition(3))
    found = by_key(peer.read_all(once_topic))
    assert {key: sorted(set(numbers)) for key, numbers in found.items()} == EXPECTED


def test_what_may_be_there_twice_is_told_or_refused(query, spark, peer, once_topic, caplog):
    """A part of the first run is stored. In the next one all values are others; the last one has one task."""
    fails_midway(query)
    refusal = r"\[PULSAR_DUPLICATES\].*failOnDuplicates=false"
    query.fails(refusal, None, lambda rows: rows.withColumn("value", f.concat("value", f.lit("."))), **STRICT)
    assert set(Counter(peer.read_all(once_topic)).values()) == {1}
    listener = PulsarProgressListener()
    spark.streams.addListener(listener)
    notes = notes_of(once_topic)
    try:
        told = {"onBatchWritten": "integration.helpers.users_code.note_duplicates"}
        query.run(None, lambda rows: rows.coalesce(1), **told)
        # Counted afterwards: a task of a failed run may write on for a moment.
        numbers = Counter(number_in(record.value) for record in peer.read_all(once_topic))
        twice = numbers.total() - len(numbers)
        wait_until(lambda: f"up to {twice} messages may be duplicated" in caplog.text)
        assert [int(line) for line in notes.read_text().splitlines()] == [twice]
    finally:
        spark.streams.removeListener(listener)
        notes.unlink(missing_ok=True)


def test_an_initial_sequence_id_is_not_ignored(pulsar_in_spark, once_topic, checkpoint):
    rows = pulsar_in_spark.ticks(10, 1).selectExpr("cast(value as string) as value")
    initial = {"pulsar.producer.initialSequenceId": "7"}
    with pytest.raises(
        StreamingQueryException, match=r"\[PULSAR_OPTION\] option initialSequenceId has no effect"
    ):
        finish(pulsar_in_spark.write_stream(rows, checkpoint, once_topic, **initial).start())


def test_what_foreach_batch_writes_is_written_once(pulsar_in_spark, peer, once_topic, checkpoint):
    failed: list[int] = []

    def write(batch, number):
        pulsar_in_spark.write(batch.selectExpr("cast(value as string) as value"), once_topic)
        if number == 1 and not failed:
            failed.append(number)
            raise InjectedError(number)

    for _ in range(2):
        query = start(pulsar_in_spark.ticks(1000, 2).where("value < 3000"), write, checkpoint)
        wait_until(lambda query=query: query.exception() or (query.lastProgress or {}).get("batchId", 0) >= 2)
        query.stop()
    assert failed
    values = [int(record.value or b"-1") for record in peer.read_all(once_topic)]
    assert sorted(values) == list(range(3000))


def test_effectively_once_cannot_be_asked_for_in_vain(
    pulsar_in_spark, peer, admin, topic, once_topic, checkpoint
):
    admin.create_partitioned_topic(topic, 2)
    ticks = pulsar_in_spark.spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=10, numPartitions=2
    )
    rows = ticks.load().selectExpr("cast(value as string) as value")
    sink = pulsar_in_spark.write_stream(rows, checkpoint, topic, delivery="effectively-once")
    with pytest.raises(StreamingQueryException, match=r"PULSAR_OPTION.*set-deduplication"):
        finish(sink.start())
    plain = pulsar_in_spark.rows([("v",)], "value string")
    with pytest.raises(PySparkException, match=r"PULSAR_OPTION.*plain batch write"):
        pulsar_in_spark.write(plain, once_topic, delivery="effectively-once")
    assert peer.read_all(once_topic) == []
