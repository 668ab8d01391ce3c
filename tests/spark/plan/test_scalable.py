"""SegmentOrder: no key comes out of order, in any history of splits, merges and clean-ups."""

import logging
import random
import threading

import pytest

from pulsar_spark.client import Calls, Kind, Segment, TopicEnd, TopicLayout
from pulsar_spark.errors import ConnectError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan import scalable as scalable_module
from pulsar_spark.spark.plan.offsets import DONE, Offsets, done_in, is_moved
from pulsar_spark.spark.plan.partition import Partition
from pulsar_spark.spark.plan.scalable import SegmentOrder, find_ended, skipped, without_done
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import ScalableTopic

TOPIC = TopicName.parse("topic://public/default/st", scalable=True)
HASHES = 16


def order(*segments, ends=None):
    """One of ``(number, first hash, last hash)``; a segment with an end is sealed."""
    ends = {number: MessageId(number, last) for number, last in (ends or {}).items()}
    named = {number: TOPIC.segment(first, last, number) for number, first, last in segments}
    layout = {
        named[number]: Segment(named[number], number in ends, first, last) for number, first, last in segments
    }
    return SegmentOrder(
        TopicLayout(0, layout, is_scalable=True), {named[each]: end for each, end in ends.items()}
    )


def held(given, **processed):
    names = {name.partition: name for name in given.layout.segments}
    positions = {names[int(number[1:])]: position for number, position in processed.items()}
    return [name.partition for name in given.layout.segments if name in given.held(positions)]


def test_children_are_held_until_the_last_entry_of_their_parent_is_processed():
    split = order((0, 0, 15), (1, 0, 7), (2, 8, 15), ends={0: 4})
    assert held(split) == [1, 2]
    assert held(split, _0=MessageId(0, 3)) == [1, 2]
    assert held(split, _0=MessageId(0, 4, 0)) == [1, 2]
    assert held(split, _0=MessageId(0, 4)) == []
    assert held(split, _0=DONE) == []


def test_only_those_are_held_that_have_a_key_in_common():
    both = order((1, 0, 7), (2, 8, 15), (3, 0, 3), (4, 4, 7), ends={1: 9})
    assert held(both) == [3, 4]


def test_an_empty_segment_releases_nothing_while_it_is_held():
    three = order((0, 0, 15), (1, 0, 7), (3, 0, 15), ends={0: 4, 1: -1})
    assert held(three) == [1, 3]
    assert held(three, _0=DONE) == []


def test_one_that_left_the_layout_hides_no_older_one():
    """As brokers do with an empty segment, whose own parent nobody has read yet."""
    assert held(order((0, 0, 15), (5, 0, 3), ends={0: 4})) == [5]


def test_a_sealed_segment_of_unknown_end_is_not_done():
    layout = order((0, 0, 15), (1, 0, 15), ends={0: 4}).layout
    assert held(SegmentOrder(layout, {}), _0=MessageId(0, 4)) == [1]


def test_what_was_done_before_is_never_read_again():
    segment = TOPIC.segment(0, 15, 0)
    old = done_in({segment: DONE})
    for end in (DONE, MessageId(0, 4)):
        assert without_done(Offsets("s", {segment: end}), old, {}) == Offsets("s", {})


def test_sealed_ones_that_are_read_and_not_known_to_be_done_are_unsure():
    given = order((0, 0, 15), (1, 0, 7), (2, 8, 15), ends={0: 4, 1: 3})
    first, second, _ = names = list(given.layout.segments)
    assert given.unsure({}, names[1:]) == {first}
    assert given.unsure({first: MessageId(0, 4)}, []) == {second}
    assert SegmentOrder(given.layout, {}).unsure({first: DONE, second: DONE}, []) == set()


def test_a_micro_batch_of_segments_that_left_their_topic_moves_nothing():
    first, second, third = (TOPIC.segment(0, 15, number) for number in range(3))
    start = Offsets("s", {first: DONE, second: DONE, third: MessageId(2, 0)})
    for planned, moves in (
        (dict(start.positions), False),
        ({second: DONE, third: MessageId(2, 0)}, False),
        ({second: DONE, third: MessageId(2, 1)}, True),
        ({first: DONE, second: DONE}, True),
    ):
        assert is_moved(planned, start) is moves


@pytest.mark.parametrize(
    ("known", "now", "count"),
    [
        ([0], [0, 1], 0),
        ([0, 2], [3], 0),
        ([0, 1], [0, 1], 0),
        ([-1], [1], 0),
        ([-1], [2], 1),
        ([1], [4, 5], 2),
    ],
)
def test_numbers_that_nobody_saw_are_of_segments_that_came_and_went(known, now, count):
    """What was a topic without partitions has the first one."""
    names = [TOPIC.segment(0, 15, each) if each >= 0 else TopicName.parse("t") for each in known]
    assert skipped(names, order(*((each, 0, 15) for each in now)).layout) == count


def read_to(name, last):
    """A segment that is processed up to its last message."""
    return Partition(name, None, MessageId.EARLIEST, last, last, position=last)


def test_one_that_has_not_ended_is_asked_again_later_and_told_once(caplog):
    cluster, calls = SimulatedCluster(), Calls()
    (name,) = ScalableTopic(cluster).active
    topic, pauses = cluster.topics[name], calls[Kind.FINAL_END].pauses
    segment = read_to(name, topic.produce()[-1])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert find_ended(cluster, calls, [segment], waits=False) == set()
        assert cluster.count("has ended") == 1
        cluster.failing[name] = ConnectError("lost")
        for _ in range(2):
            assert find_ended(cluster, calls, [segment], waits=True) == set()
    assert len(caplog.records) == caplog.text.count("PULSAR_NOT_READY") == 1
    del cluster.failing[name]
    topic.topic_end = TopicEnd.TERMINATED
    assert cluster.clock < pauses.due_at(cluster.clock) < float("inf")
    cluster.clock = pauses.due_at(cluster.clock)
    assert find_ended(cluster, calls, [segment], waits=False) == {segment}
    assert pauses.due_at(cluster.clock) == float("inf")


def test_the_pause_of_one_that_has_ended_is_forgotten():
    cluster, calls = SimulatedCluster(), Calls()
    (name,) = ScalableTopic(cluster).active
    segment = read_to(name, cluster.topics[name].produce()[-1])
    assert find_ended(cluster, calls, [segment], waits=True) == set()
    cluster.topics[name].topic_end = TopicEnd.TERMINATED
    assert find_ended(cluster, calls, [segment], waits=True) == {segment}
    assert calls[Kind.FINAL_END].pauses.due_at(cluster.clock) == float("inf")


def test_only_a_run_over_what_there_is_waits_until_brokers_say_what_has_ended(monkeypatch):
    monkeypatch.setattr(scalable_module, "PROMPT", 0.0)
    cluster, calls, answered = SimulatedCluster(), Calls(), threading.Event()
    monkeypatch.setattr(cluster, "has_ended", lambda *_: answered.wait(60))
    asked = {read_to(each, MessageId(0, 4)) for each in (TOPIC.segment(0, 7, 0), TOPIC.segment(8, 15, 1))}
    assert find_ended(cluster, calls, asked, waits=False) == set()
    assert calls[Kind.FINAL_END].has_more
    timer = threading.Timer(0.1, answered.set)
    timer.start()
    assert find_ended(cluster, calls, asked, waits=True) == asked
    timer.join()


def test_random_histories():
    """The decision alone, over many histories: order, completeness, and always something to read."""
    for seed in range(600):
        History(random.Random(seed)).run()


@pytest.mark.long
def test_very_many_random_histories():
    for seed in range(600, 102_000):
        History(random.Random(seed)).run()


class History:
    """A topic of segments with numbered messages, a reader that obeys the decision, and a broker."""

    def __init__(self, rng):
        self.rng = rng
        self.segments = [(0, HASHES - 1)]
        self.sealed = set()
        self.removed = set()
        self.messages = {0: []}  # keys, by segment
        self.read = {}  # how many were read of each
        self.rows = []
        self.written = []

    def run(self):
        for _ in range(self.rng.randint(5, 60)):
            self.rng.choice((self.write, self.write, self.change, self.clean_up, self.take))()
        while self.take(limit=None):
            pass
        for key in range(HASHES):
            assert [each for each in self.rows if each[0] == key] == [
                each for each in self.written if each[0] == key
            ]

    def active(self):
        numbers = [each for each in range(len(self.segments)) if each not in self.sealed]
        return sorted(numbers, key=self.segments.__getitem__)

    def write(self):
        key = self.rng.randrange(HASHES)
        (segment,) = [each for each in self.active() if self.covers(each, key)]
        message = key, len(self.written)
        self.written.append(message)
        self.messages[segment].append(message)

    def covers(self, segment, key):
        first, last = self.segments[segment]
        return first <= key <= last

    def change(self):
        """Split one or merge two."""
        active = self.active()
        left = self.rng.randrange(len(active))
        first, last = self.segments[active[left]]
        if self.rng.random() < 0.5 and first < last:
            middle = (first + last) // 2
            self.replace([active[left]], [(first, middle), (middle + 1, last)])
        elif left + 1 < len(active):
            self.replace(active[left : left + 2], [(first, self.segments[active[left + 1]][1])])

    def replace(self, old, new):
        self.sealed.update(old)
        for hashes in new:
            self.messages[len(self.segments)] = []
            self.segments.append(hashes)

    def clean_up(self):
        """Remove sealed segments in which nothing is left to read, some of them."""
        for each in self.sealed - self.removed:
            if self.read.get(each, 0) == len(self.messages[each]) and self.rng.random() < 0.7:
                self.removed.add(each)

    def take(self, limit=3):
        """A micro-batch: from each segment that may be read a few messages, in any order of the segments."""
        here = [each for each in range(len(self.segments)) if each not in self.removed]
        ends = {each: len(self.messages[each]) - 1 for each in here if each in self.sealed}
        now = order(*((each, *self.segments[each]) for each in here), ends=ends)
        positions = {
            name: MessageId(name.partition, self.read.get(name.partition, 0) - 1)
            for name in now.layout.segments
        }
        held = {name.partition for name in now.held(positions)}
        open_ = [each for each in here if each not in held]
        self.rng.shuffle(open_)
        before = len(self.rows)
        for each in open_:
            begin = self.read.get(each, 0)
            taken = self.messages[each][begin:][: None if limit is None else self.rng.randint(0, limit)]
            self.rows += taken
            self.read[each] = begin + len(taken)
        return len(self.rows) > before
