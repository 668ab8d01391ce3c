"""The folder of an application, in whatever process of Spark's it is asked for."""

import pytest
from pyspark import SparkFiles

from pulsar_spark.spark.processes import application_folder


@pytest.mark.parametrize("named", ["", "streaming_job"])
def test_the_planner_of_a_stream_has_the_folder_of_the_others(named, tmp_path, monkeypatch):
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path / named))
    assert application_folder() == tmp_path


def test_where_spark_does_not_run(monkeypatch):
    def fail():
        raise AssertionError

    monkeypatch.setattr(SparkFiles, "getRootDirectory", fail)
    with pytest.raises(RuntimeError, match=r"no folder for files in this process \(AssertionError\)"):
        application_folder()
