"""Starts and batch reads leave one subscription a partition, with nothing left to acknowledge.

``chaos starts`` does it more often, and shows the memory.
"""

from integration.chaos.starts import turn

TIMES = 3


def test_starts_and_batch_reads_leave_nothing(pulsar_in_spark, admin, topic, tmp_path):
    assert len(list(turn(pulsar_in_spark, admin, topic, tmp_path, TIMES))) == TIMES
