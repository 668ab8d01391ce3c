"""What tests of reading share."""

import pytest

from pulsar_spark.client.reading import entry_range


@pytest.fixture(autouse=True)
def quick_silences(monkeypatch):
    """The fake broker answers at once, so a reader that receives nothing need not wait before it asks."""
    monkeypatch.setattr(entry_range, "_FIRST_IDLE", 0.02)
    monkeypatch.setattr(entry_range, "_MAX_IDLE", 0.1)


@pytest.fixture
def leaves_nothing(broker):
    """When a test ends, no consumer is open, and no topic has a subscription."""
    yield
    # A probe of entries closes its reader without waiting for the broker.
    broker.wait_for(lambda: not broker.open_consumers)
    assert all(not topic.cursors for topic in broker.topics.values())
