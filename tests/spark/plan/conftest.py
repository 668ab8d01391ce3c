"""A cluster in memory, and a topic on it."""

import pytest

from tests.spark.plan.simulated_cluster import SimulatedCluster


@pytest.fixture
def cluster():
    return SimulatedCluster()


@pytest.fixture
def topic(cluster):
    """A topic without partitions."""
    return cluster.create("t")[0]
