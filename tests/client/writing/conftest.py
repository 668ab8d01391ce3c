"""What tests of tasks that deduplicate share."""

import pytest

from pulsar_spark.client.reading import backward_search


@pytest.fixture
def quick_searches(monkeypatch):
    """The fake broker stores an entry before it is acknowledged, so searches need not wait."""
    monkeypatch.setattr(backward_search, "_SETTLING", 0.05)
    monkeypatch.setattr(backward_search, "_PAUSE", 0.01)
