"""What tests of reading share."""

import pytest

from pulsar_spark.client.reading import entry_range


@pytest.fixture(autouse=True)
def quick_silences(monkeypatch):
    """The fake broker answers at once, so a reader that receives nothing need not wait before it asks."""
    monkeypatch.setattr(entry_range, "_FIRST_IDLE", 0.02)
    monkeypatch.setattr(entry_range, "_MAX_IDLE", 0.1)
