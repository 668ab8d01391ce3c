"""SegmentEnds: brokers are asked with pauses, and a segment that has not ended is told once."""

import logging

from pulsar_spark.client import TopicEnd
from pulsar_spark.errors import ConnectError
from pulsar_spark.spark.plan.segment_ends import SegmentEnds
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import ScalableTopic


def test_one_that_has_not_ended_is_asked_again_later_and_told_once(caplog):
    cluster = SimulatedCluster()
    (name,) = ScalableTopic(cluster).active
    segment, ends = cluster.topics[name], SegmentEnds(cluster)
    (last,) = segment.produce()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert ends.find({name: last}, waits=False) == set()
        assert cluster.count("has ended") == 1
        cluster.failing[name] = ConnectError("lost")
        for _ in range(2):
            assert ends.find({name: last}, waits=True) == set()
    assert caplog.text.count("PULSAR_NOT_READY") == 1
    del cluster.failing[name]
    segment.topic_end = TopicEnd.TERMINATED
    assert cluster.clock < ends.due_at(cluster.clock) < float("inf")
    cluster.clock = ends.due_at(cluster.clock)
    assert ends.find({name: last}, waits=False) == {name}
