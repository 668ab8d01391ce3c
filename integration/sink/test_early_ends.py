"""Runs of a micro-batch that end early: a step before the sink fails, and Spark ends the sink's rows."""

import random
from collections import Counter

import pytest

from integration.chaos.messages import number_of, numbered
from integration.helpers.replays import STRICT, Replays, no_duplicates_told, written
from integration.helpers.task_runs import run, task_of
from pulsar_spark.client import BatcherBuilder

pytestmark = pytest.mark.usefixtures("small_batches")

EARLY = "StepFailedError"


BY_KEY = {"pulsar.producer.batcherBuilder": "KEY_BASED"}


# By key, the last rows of up to 4 MiB are held back.
@pytest.mark.parametrize(
    ("options", "rows", "stored"),
    [
        ({}, 12_000, 11_000),
        pytest.param(STRICT, 12_000, 11_000, marks=pytest.mark.long),
        pytest.param(STRICT | BY_KEY, 25_000, 10_000, marks=pytest.mark.long),
    ],
)
def test_a_run_that_ends_earlier_than_the_one_before_doubles_nothing(
    pulsar_in_spark, admin, peer, once_topic, tmp_path, options, rows, stored
):
    query = Replays(pulsar_in_spark, admin.url, once_topic, tmp_path, rows=rows, size=500, keys=50)
    with no_duplicates_told(once_topic) as told:
        query.fails(EARLY, query.at(rows - 100, stored), **options)
        first = written(peer, once_topic)
        query.fails(EARLY, query.at(stored // 2), **options)
        second = written(peer, once_topic)
        query.run(**told, **options)
    assert stored <= len(first) < rows
    assert second == first
    assert Counter(written(peer, once_topic)) == Counter(range(rows))


ENDS = 40


@pytest.mark.parametrize(
    "builder", [BatcherBuilder.KEY_BASED, pytest.param(BatcherBuilder.DEFAULT, marks=pytest.mark.long)]
)
def test_many_runs_that_end_early_double_nothing(client, peer, once_topic, caplog, builder):
    """Each ends at another row, before or after the earlier ones."""
    records, chance = numbered(100 * (ENDS + 1), keys=20), random.Random(1)
    ends = chance.sample(range(100, len(records)), ENDS)
    for end in ends:
        run(client, once_topic, records[:end], task_of(client, strict=True), batcher_builder=builder)
        stored = max(ends[: ends.index(end) + 1])
        assert len(peer.read_all(once_topic)) == stored
    run(client, once_topic, records, task_of(client, strict=True), batcher_builder=builder)
    assert Counter(map(number_of, peer.read_all(once_topic))) == Counter(range(len(records)))
    assert not caplog.records
