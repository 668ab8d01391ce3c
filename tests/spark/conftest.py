import pytest
from pyspark import SparkFiles


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Spark's folder for the files of an application."""
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def no_spark(monkeypatch):
    """Spark does not run in or beside this process."""

    def fail():
        raise AssertionError("no context")

    monkeypatch.setattr(SparkFiles, "getRootDirectory", fail)
