"""What is processed when Spark 4.0 and 4.1 call latestOffset(), by the order of their calls.

Each sequence was traced on both versions with a source that logs its calls.
"""

import itertools

import pytest

from pulsar_spark.spark.older_spark import CallOrder


def end(number):
    return {"end": number}


class SimulatedCalls:
    """Makes the calls of one run of a query, with its checkpoint, and checks what counts as processed.

    Attributes:
        log: the offset log: ends of batches.
        committed: how many of them are in the commit log.
    """

    def __init__(self, log=(), committed=0):
        self.log, self.committed = list(log), committed
        self.newest = max(self.log, default=0)  # the last end that was found

    def run(self, *, available_now=False, reads=True, batches=3, dies=None, idle=0):
        """One run; it dies after so many batches were planned and before the last of them is committed."""
        self.calls, self.reads = CallOrder(), reads
        fixed = self.latest() if available_now else None
        if self.log:
            self.partitions(self.log[-1], self.log[-1])
        if len(self.log) > self.committed and not self.batch(dies=dies == 0):
            return
        for number in itertools.count(1):
            if available_now:
                if not self.log:
                    self.calls.initial()
                self.latest()
                found = fixed
            else:
                found = self.latest()
            if self.log and found == self.log[-1]:
                break
            self.log.append(found)
            if not self.batch(dies=dies == number) or (not available_now and number == batches):
                break
        for _ in range(idle):
            self.latest()

    def batch(self, *, dies):
        start = self.log[-2] if len(self.log) > 1 else None
        if start is None:
            self.calls.initial()
        if self.reads:
            self.partitions(start, self.log[-1])
        if not dies:
            self.committed += 1
        return not dies

    def partitions(self, start, last):
        self.calls.partitions(end(last))

    def latest(self):
        processed = self.calls.latest()
        done = self.log[self.committed - 1] if self.committed else None
        if processed is not None:
            assert done is not None, "nothing is processed yet"
            assert processed["end"] <= done
            self.known = processed["end"] == done
        self.newest += 1
        if processed is None and self.calls.first_end is not None:
            return self.calls.answered(self.calls.first_end)["end"]
        return self.calls.answered(end(self.newest))["end"]


WAYS = [
    {"available_now": now, "reads": reads, "dies": dies, "batches": batches}
    for now, reads, dies, batches in itertools.product((False, True), (False, True), (None, 0, 1, 2), (1, 3))
]


@pytest.mark.parametrize("first", WAYS, ids=str)
def test_nothing_counts_as_processed_that_is_not_committed(first):
    for second, third in itertools.product(WAYS, WAYS):
        query = SimulatedCalls()
        for way in (first, second, third):
            query.run(**way)
            assert query.log == sorted(query.log)


def test_a_restart_knows_its_start_at_once():
    calls = CallOrder()
    calls.partitions(end(5))
    assert calls.latest() == end(5)
    assert calls.answered(end(7)) == end(7)
    assert calls.latest() == end(7)


def test_a_new_query_goes_on_from_what_it_answered_first():
    calls = CallOrder()
    assert calls.latest() is None
    assert calls.answered(end(3)) == end(3)
    assert calls.first_batch_end == end(3)
    calls.initial()
    calls.partitions(end(3))
    assert calls.latest() == end(3)
    assert calls.run_end is None


def test_with_available_now_all_answers_are_the_end_of_the_run():
    calls = CallOrder()
    assert calls.latest() is None
    calls.answered(end(9))
    calls.partitions(end(4))
    assert calls.run_end is not None
    assert calls.latest() == end(4)
    assert calls.answered(end(10)) == end(9)
    calls.partitions(end(9))
    assert calls.latest() == end(9)
    assert calls.answered(end(12)) == end(9)


def test_a_report_before_the_first_batch_of_available_now_counts_nothing_as_processed():
    """Spark 4.0 and 4.1 call latestOffset() for their progress, and do not use the answer."""
    calls = CallOrder()
    calls.latest()
    calls.answered(end(9))
    calls.initial()
    assert calls.latest() is None
    assert calls.answered(end(9)) == end(9)
    calls.initial()
    calls.partitions(end(9))
    assert calls.run_end is not None
    assert calls.latest() == end(9)


def test_a_batch_0_whose_rows_are_not_used_is_processed_at_the_third_call():
    calls = CallOrder()
    calls.latest()
    calls.answered(end(9))
    calls.initial()
    assert calls.latest() is None
    calls.answered(end(9))
    assert calls.latest() == end(9)
    assert calls.run_end is None
    assert calls.answered(end(10)) == end(10)


def test_the_end_of_a_batch_0_that_runs_again_bounds_its_start():
    calls = CallOrder()
    calls.latest()
    calls.answered(end(9))
    calls.partitions(end(4))
    assert calls.first_batch_end == end(4)
