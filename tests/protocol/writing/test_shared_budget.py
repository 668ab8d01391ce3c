"""MemoryBudget with a lock: owners of several threads share it."""

import sys
import threading

from pulsar_spark.protocol.writing.pending import MemoryBudget


def test_owners_of_several_threads_are_all_counted():
    memory = MemoryBudget(1000, threading.Lock())

    def change(owner):
        for _ in range(2000):
            memory.share(owner, 7)
            memory.share(owner, 1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=change, args=(owner,)) for owner in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert memory.part == 250
