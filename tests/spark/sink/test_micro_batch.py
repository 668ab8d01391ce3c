"""How a task knows its micro-batch."""

import pytest

from pulsar_spark.spark.sink.micro_batch import MicroBatch, micro_batch
from tests.spark.sink.fake_task import FakeTask, of_micro_batch, run_as

QUERY, NUMBER = "sql.streaming.queryId", "streaming.sql.batchId"


def test_spark_names_the_micro_batch(monkeypatch):
    run_as(monkeypatch, of_micro_batch(4, task=2, attempt=1))
    assert micro_batch() == MicroBatch("query", "run", 4, 2, is_retried=True)
    run_as(monkeypatch, of_micro_batch(4, task=2))
    assert micro_batch() == MicroBatch("query", "run", 4, 2, is_retried=False)


def test_a_run_that_is_hidden_has_no_name(monkeypatch):
    """Not that of the query: a restart would seem to be the same run."""
    run_as(monkeypatch, of_micro_batch(4, run=None))
    found = micro_batch()
    assert found is not None
    assert found.run == ""


@pytest.mark.parametrize(
    "task",
    [None, FakeTask(), FakeTask(properties={QUERY: "query"}), FakeTask(properties={NUMBER: "4"})],
    ids=["no task", "neither", "no number", "no query"],
)
def test_a_plain_batch_write_has_none(monkeypatch, task):
    run_as(monkeypatch, task)
    assert micro_batch() is None
