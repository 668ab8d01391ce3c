"""The CPU of Spark's processes: nothing is lost when a worker ends, and nothing counts twice."""

from integration.bench.cpu import CpuCount, Process

JVM, DAEMON, WORKER, PLANNER = 10, 11, 12, 13


def test_a_worker_that_ended_still_counts():
    count = CpuCount(JVM)
    spark = {JVM: Process(1, 0, 100, 0), DAEMON: Process(JVM, 1, 5, 0)}
    assert count.add({**spark, WORKER: Process(DAEMON, 2, 40, 0)}) == 145
    assert count.add(spark) == 145
    assert count.add({**spark, WORKER: Process(DAEMON, 9, 7, 0)}) == 152  # another one of the same number


def test_what_the_jvm_has_waited_for_counts_once():
    count = CpuCount(JVM)
    assert count.add({JVM: Process(1, 0, 100, 0), PLANNER: Process(JVM, 1, 30, 0)}) == 130
    assert count.add({JVM: Process(1, 0, 100, 30)}) == 130


def test_others_do_not_count():
    broker = {20: Process(1, 0, 500, 500), 21: Process(20, 0, 500, 0), 22: Process(99, 0, 500, 0)}
    assert CpuCount(JVM).add({JVM: Process(1, 0, 100, 0), **broker}) == 100
