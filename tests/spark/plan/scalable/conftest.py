import pytest

from tests.spark.plan.simulated_segments import ScalableTopic


@pytest.fixture
def topic(cluster):
    return ScalableTopic(cluster)
