"""MemoryBudget with a lock: what windows report from several threads adds up."""

import sys
import threading

from pulsar_spark.protocol.writing.pending import MemoryBudget


def test_reports_of_several_threads_add_up():
    memory = MemoryBudget(1000, threading.Lock())

    def change():
        for _ in range(2000):
            memory.report(0, 7)
            memory.report(7, 0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=change) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert memory.max_bytes(0) == 1000
