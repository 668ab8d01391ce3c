"""Texts from one process to another."""

import threading

import pytest
from pyspark import SparkFiles

from pulsar_spark.spark.monitoring.driver_files import DriverFiles

FILES = DriverFiles("kind")


def test_what_is_written_is_read(folder):
    assert FILES.read("a") is None
    assert list(FILES.read_all(FILES.path())) == []
    assert list(folder.iterdir()) == []
    FILES.write("a", "1")
    FILES.write("b", "2")
    FILES.write("a", "3")
    DriverFiles("other").write("a", "4")
    assert FILES.read("a") == "3"
    assert list(FILES.read_all(FILES.path())) == [("a", "3"), ("b", "2")]
    FILES.remove("a")
    FILES.remove("a")
    assert list(FILES.read_all(FILES.path())) == [("b", "2")]


def test_the_planner_of_a_stream_writes_where_others_read(folder, monkeypatch):
    """Spark names it a folder within that of the others, which is not there."""
    others = SparkFiles.getRootDirectory()
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: f"{others}/streaming_job")
    FILES.write("a", "1")
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: others)
    assert FILES.read("a") == "1"
    assert not (folder / "streaming_job").exists()


def test_a_name_stays_in_the_folder(folder):
    FILES.write("../../outside", "3")
    assert not (folder.parent / "outside").exists()
    assert FILES.read("../../outside") == "3"


def test_a_reader_never_sees_a_part(folder):
    texts = {str(number) * 100_000 for number in range(10)}
    FILES.write("a", "0" * 100_000)

    def write():
        for text in texts:
            FILES.write("a", text)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        assert FILES.read("a") in texts
        assert {text for _, text in FILES.read_all(FILES.path())} <= texts
    writer.join()


def test_where_spark_does_not_run(no_spark):
    with pytest.raises(RuntimeError, match="no folder"):
        FILES.read("a")
