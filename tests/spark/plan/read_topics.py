"""Topics that a query reads, on a cluster in memory."""

import pytest

from pulsar_spark.spark.plan.scalable import ScalableTopics
from pulsar_spark.spark.plan.topics import Topics, find_partitions
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import options_of

# A stream of a scalable topic needs one.
ADMIN = "http://localhost:1"


@pytest.fixture
def cluster():
    found = SimulatedCluster()
    found.create("plain")
    found.create("parted", 2)
    found.create("a/b/other")
    found.create("odd-partition-7")
    return found


def names(topics):
    return [topic.local for topic in topics]


def watched(cluster, **options):
    given = options_of(**options)
    return Topics(cluster, given, ScalableTopics(cluster, given), find_partitions(cluster, given))
