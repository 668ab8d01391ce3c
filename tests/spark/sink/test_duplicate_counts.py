"""What the process that commits leaves for the one that listens."""

import pytest
from pyspark import SparkFiles

from pulsar_spark.spark.sink.duplicate_counts import add_duplicates, read_duplicates

QUERY = "53a07399-9325-45aa-b130-8ae28c14255c"


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    return tmp_path


def test_what_is_added_is_read(folder):
    assert read_duplicates(QUERY) == 0
    assert list(folder.iterdir()) == []
    add_duplicates(QUERY, 3)
    add_duplicates("another", 100)
    add_duplicates(QUERY, 4)
    assert read_duplicates(QUERY) == 7


def test_a_name_stays_in_the_folder(folder):
    add_duplicates("../../outside", 3)
    assert not (folder.parent / "outside").exists()
    assert read_duplicates("../../outside") == 3


def test_where_spark_does_not_run(monkeypatch, caplog):
    def fail():
        raise AssertionError("no context")

    monkeypatch.setattr(SparkFiles, "getRootDirectory", fail)
    with pytest.raises(RuntimeError, match="no folder"):
        read_duplicates(QUERY)
    add_duplicates(QUERY, 3)
    assert f"query {QUERY}: the listener is not told of possible duplicates" in caplog.text
