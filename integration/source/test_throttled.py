"""A broker that gives out no more than so much a second: a pause, and no error."""

import time

import pytest

from integration.chaos.messages import numbered
from integration.fixtures.spark import Collector, drain

RATE = 100
COUNT = 3 * RATE


@pytest.mark.long
def test_a_dispatch_rate_makes_reads_wait(pulsar_in_spark, peer, admin, namespace, own_topic, checkpoint):
    admin.set_dispatch_rate(namespace, messages=RATE)
    admin.create_held_topic(own_topic)
    records = numbered(COUNT)
    peer.produce(own_topic, records)
    began = time.monotonic()
    read = pulsar_in_spark.read(own_topic, pollTimeoutMs="20s").collect()
    assert [bytes(row["value"]) for row in read] == [record.value for record in records]
    assert time.monotonic() - began > 1.0  # or nothing was throttled

    sink = Collector()
    drain(
        pulsar_in_spark.stream(own_topic, startingOffsets="earliest", pollTimeoutMs="20s"), sink, checkpoint
    )
    assert [bytes(row["value"]) for row in sink.rows] == [record.value for record in records]
