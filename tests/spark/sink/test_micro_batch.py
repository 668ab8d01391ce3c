"""How a task knows its micro-batch, and whether it may have been run before."""

import pytest

from pulsar_spark.spark.sink import micro_batch as module
from pulsar_spark.spark.sink.micro_batch import MicroBatch, micro_batch
from tests.spark.sink.fake_task import FakeTask, of_micro_batch, run_as

QUERY, NUMBER = "sql.streaming.queryId", "streaming.sql.batchId"


def test_spark_names_the_micro_batch(monkeypatch):
    run_as(monkeypatch, of_micro_batch(4, task=2, attempt=1))
    assert micro_batch() == MicroBatch("query", "run", 4, 2, is_retried=True)
    run_as(monkeypatch, of_micro_batch(4, task=2))
    assert micro_batch() == MicroBatch("query", "run", 4, 2, is_retried=False)


def test_a_run_without_a_name_is_its_query(monkeypatch):
    run_as(monkeypatch, of_micro_batch(4, run=None))
    found = micro_batch()
    assert found is not None
    assert found.run == "query"


@pytest.mark.parametrize(
    "task",
    [None, FakeTask(), FakeTask(properties={QUERY: "query"}), FakeTask(properties={NUMBER: "4"})],
    ids=["no task", "neither", "no number", "no query"],
)
def test_a_plain_batch_write_has_none(monkeypatch, task):
    run_as(monkeypatch, task)
    assert micro_batch() is None


def test_all_tasks_of_the_first_micro_batch_of_a_run_may_be_a_replay(monkeypatch):
    """A process runs many tasks, and those of later runs of the query, too."""
    monkeypatch.setattr(module, "_first_batches", {})
    table = [
        (MicroBatch("query", "run", 4, 0, is_retried=False), True),
        (MicroBatch("query", "run", 4, 1, is_retried=False), True),
        (MicroBatch("query", "run", 5, 0, is_retried=False), False),
        (MicroBatch("query", "run", 5, 1, is_retried=True), True),
        (MicroBatch("query", "again", 5, 0, is_retried=False), True),
        (MicroBatch("query", "again", 5, 7, is_retried=False), True),
        (MicroBatch("query", "again", 6, 0, is_retried=False), False),
    ]
    found = [batch.is_possible_replay(is_later=False) for batch, _ in table]
    assert found == [expected for _, expected in table]


@pytest.mark.parametrize("is_retried", [False, True])
def test_a_later_micro_batch_of_a_run_is_no_replay_in_a_new_process(monkeypatch, is_retried):
    monkeypatch.setattr(module, "_first_batches", {})
    batch = MicroBatch("query", "run", 4, 0, is_retried=is_retried)
    assert batch.is_possible_replay(is_later=True) is is_retried
