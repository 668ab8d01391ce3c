"""Objects of a reused worker that garbage collection leaves alone."""

import gc

import pytest
from pyspark import TaskContext

from pulsar_spark.spark import reused_worker


@pytest.fixture(autouse=True)
def not_exempt_afterwards():
    yield
    gc.unfreeze()
    reused_worker._exempt_once.cache_clear()


def test_the_first_task_exempts_what_is_loaded_and_later_ones_nothing(monkeypatch):
    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext())
    before = gc.get_freeze_count()
    reused_worker.exempt_modules()
    first = gc.get_freeze_count()
    assert first > before
    kept = [[] for _ in range(1000)]
    reused_worker.exempt_modules()
    assert gc.get_freeze_count() <= first
    assert len(kept) == 1000


def test_outside_of_a_task_nothing_changes():
    before = gc.get_freeze_count()
    reused_worker.exempt_modules()
    assert gc.get_freeze_count() == before
