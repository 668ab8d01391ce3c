import pytest
from pyspark import SparkFiles

from tests.fake_broker import FakeBroker
from tests.spark.plan.simulated_cluster import SimulatedCluster


@pytest.fixture
def broker():
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def cluster():
    return SimulatedCluster()


@pytest.fixture
def topic(cluster):
    """A topic without partitions."""
    return cluster.create("t")[0]


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
