"""Admission of the partitions of a simulated broker."""

from collections import Counter
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from pulsar_spark.client import Calls, PendingCalls
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.source import Limits
from pulsar_spark.spark.plan import broker_probe
from pulsar_spark.spark.plan.admission import Admission
from pulsar_spark.spark.plan.partition import Partition as PlannedPartition
from tests.spark.plan.simulated_topics import Broker, CallsInTurn, Partition

TOPICS = [TopicName.parse("t").of_partition(number) for number in range(8)]


class AdmissionByTopic(Admission):
    """Admission of partitions that are open while they are planned, by their names."""

    def __init__(self, limits, broker, make_calls=PendingCalls):
        self.calls, self.partitions = Calls(make_calls), {}
        super().__init__(limits, broker, self.calls)

    def plan(self, starts, ends, backlogs, now, **how):
        for topic in self.partitions.keys() - starts.keys():
            self.drop(topic)
        for topic, start in starts.items():
            if topic not in self.partitions:
                self.partitions[topic] = PlannedPartition(topic, None, start, start, ends[topic])
        starts, ends, backlogs = (
            {self.partitions[each]: of[each] for each in of} for of in (starts, ends, backlogs)
        )
        planned = super().plan(starts, ends, backlogs, now, **how)
        return {each.topic: end for each, end in planned.items()}

    @property
    def failed_topics(self):
        return {each.topic for each in self.failed}

    @property
    def known(self):
        return {topic: each.known for topic, each in self.partitions.items() if each.known}

    def drop(self, topic):
        self.partitions.pop(topic).close(self.calls)

    def close(self):
        for topic in [*self.partitions]:
            self.drop(topic)


@contextmanager
def budget(entries, size=1 << 40):
    """Look at so much and no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_probe, "SCAN_ENTRIES", entries)
        patch.setattr(broker_probe, "SCAN_BYTES", size)
        yield


def uniform(entries, messages=1, size=100, *, ledger=10**9, indexed=False):
    """A partition of equal entries, in ledgers of a length."""
    left = [min(ledger, entries - first) for first in range(0, entries, ledger)]
    return Partition([[(messages, size, False, True)] * count for count in left], indexed=indexed)


entry = st.tuples(
    st.integers(1, 20), st.integers(1, 1000), st.just(False), st.sampled_from([True, True, False])
)
chunk = st.tuples(st.just(1), st.integers(1, 1000), st.just(True), st.just(True))
ledgers = st.lists(st.lists(entry | chunk, min_size=1, max_size=25), min_size=1, max_size=4)


@st.composite
def brokers(draw, *, indexed):
    topics = draw(st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4, unique=True))
    found = {topic: Partition(draw(ledgers), indexed=indexed) for topic in topics}
    return Broker({topic: each for topic, each in found.items() if each.visible})


limits = st.builds(
    Limits, max_messages=st.none() | st.integers(1, 200), max_bytes=st.none() | st.integers(1, 10_000)
)


def run(broker, limits, *, available_now=True):
    """Plan until nothing is left; each batch as what it takes of each partition."""
    admission = AdmissionByTopic(limits, broker, CallsInTurn)
    starts = {topic: each.start for topic, each in broker.partitions.items()}
    ends = {topic: each.last for topic, each in broker.partitions.items()}
    batches, waited = [], Counter()
    while starts != ends:
        backlogs = {topic: each.backlog(starts[topic]) for topic, each in broker.partitions.items()}
        planned = admission.plan(starts, ends, backlogs, 0.0, available_now=available_now)
        for topic, each in broker.partitions.items():
            assert starts[topic] <= planned[topic] <= ends[topic]
            assert planned[topic] == starts[topic] or planned[topic] in each.ids
            has_moved = planned[topic] > starts[topic] or starts[topic] == ends[topic]
            waited[topic] = 0 if has_moved else waited[topic] + 1
            assert waited[topic] * (limits.max_messages or len(starts)) < len(starts), "it starves"
        taken = {
            topic: each.between(starts[topic], planned[topic]) for topic, each in broker.partitions.items()
        }
        batches.append(taken)
        starts = planned
    admission.close()
    assert broker.open == 0
    for topic, each in broker.partitions.items():
        assert [entry for taken in batches for entry in taken[topic]] == each.between(each.start, each.last)
    return batches
