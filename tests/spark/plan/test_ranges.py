import itertools
from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client import PartitionBounds, Range
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.ranges import Track, plan_batch, plan_ranges, share_tasks, split_ranges
from tests.loops import for_each

P0, P1 = TopicName.parse("t-partition-0"), TopicName.parse("t-partition-1")
NOTHING = MessageId.EARLIEST


def offsets(**positions: MessageId) -> Offsets:
    return Offsets("s", {{"p0": P0, "p1": P1}[name]: position for name, position in positions.items()})


def test_an_empty_batch_has_no_ranges():
    end = offsets(p0=MessageId(1, 1))
    assert plan_ranges(end, end, {}) == []


def test_a_batch_0_that_is_planned_again_begins_where_its_own_subscription_stands():
    end, begins = offsets(p0=MessageId(1, 9), p1=MessageId(2, 2)), {P0: MessageId(1, 1), P1: MessageId(2, 2)}
    expected = [Range(P0, MessageId(1, 1), MessageId(1, 9))]
    later = Offsets("made anew", {P0: MessageId(1, 9), P1: MessageId(5, 5)})
    assert plan_ranges(later, end, begins) == expected
    acknowledged = {P0: MessageId(1, 9), P1: MessageId(2, 2)}
    earliest = Offsets("made anew", {P0: MessageId(1, 1), P1: MessageId(2, 2)})
    assert plan_ranges(earliest, end, acknowledged) == expected


def test_a_new_partition_begins_where_it_was_opened_and_one_that_is_gone_is_left_out():
    start, end = offsets(p1=MessageId(2, 2)), offsets(p0=MessageId(1, 9), p1=MessageId(2, 2))
    assert plan_ranges(start, end, {P0: MessageId(1, 1)}) == [Range(P0, MessageId(1, 1), MessageId(1, 9))]
    for name in ("s", "made anew"):
        assert plan_ranges(Offsets(name, start.positions), end, {}) == []


def test_the_order_of_ranges_is_the_same_when_a_checkpoint_gives_the_end():
    names = ["b", "t-partition-10", "t-partition-9", "a", "t-partition-0"]
    end = Offsets("s", {TopicName.parse(each): MessageId(1, 1) for each in names})
    planned, again = (
        plan_ranges(Offsets("s", dict.fromkeys(each.positions, NOTHING)), each, {})
        for each in (end, Offsets.from_json(end.to_json()))
    )
    assert planned == again
    assert [each.topic for each in again] == [*Offsets.from_json(end.to_json()).positions]


def test_nothing_lies_before_the_first_entry():
    start, end = offsets(p0=MessageId(1, 9)), offsets(p0=MessageId(2, -1))
    assert plan_ranges(start, end, {P0: MessageId(1, 9)}) == []


def test_only_whole_entries_are_acknowledged():
    assert (MessageId(3, 4)).last_whole_entry == MessageId(3, 4)
    assert (MessageId(3, 4, 0)).last_whole_entry == MessageId(3, 3)
    assert (MessageId(3, 0, 5)).last_whole_entry == MessageId(3, -1)


@pytest.mark.parametrize(
    ("start", "end", "planned"),
    [
        (MessageId(1, -1), MessageId(5, 9), (MessageId(2, 3), MessageId(5, 9), True)),
        (MessageId(1, -1), MessageId(9, 9, 1), (MessageId(2, 3), MessageId(5, 9), True)),
        (MessageId(3, 1, 4), MessageId(4, 4), (MessageId(3, 1, 4), MessageId(4, 4), False)),
        (MessageId(5, 8), MessageId(5, 9, 2), (MessageId(5, 8), MessageId(5, 9, 2), False)),
        (MessageId(5, 9), MessageId(9, 9), None),
        (MessageId(9, 9), MessageId(9, 9), None),
        (MessageId(4, 4), MessageId(4, 4), None),
        (MessageId(1, 1), MessageId(2, 2), None),
    ],
)
def test_a_batch_reads_what_there_is_between_its_start_and_its_end(start, end, planned):
    begin, last = MessageId(2, 3), MessageId(5, 9, 7)
    ranges = plan_batch({P0: start}, {P0: end}, {P0: PartitionBounds(begin, last)})
    expected = [] if planned is None else [planned]
    assert ranges == [Range(P0, first, to, seen, begin, not seen) for first, to, seen in expected]


def test_a_batch_of_an_empty_topic_has_no_ranges():
    assert plan_batch({P0: NOTHING}, {P0: MessageId(9, 9)}, {P0: PartitionBounds(NOTHING, NOTHING)}) == []


def test_the_ranges_of_a_stream_end_in_visible_messages():
    (planned,) = plan_ranges(offsets(p0=MessageId(1, 1)), offsets(p0=MessageId(1, 3)), {})
    assert planned.visible
    assert not planned.followed


def test_nothing_is_read_where_the_end_lies_before_the_start():
    start, end = offsets(p0=MessageId(900, 5)), offsets(p0=MessageId(3, 7))
    assert plan_ranges(start, end, {P0: MessageId(2, -1)}) == []


# ---- several tasks for one range


TOPICS = [TopicName.parse("t").of_partition(number) for number in range(4)]


class Ledgers:
    """The ledgers of topics, with the ids 10, 20 and so on: a broker that counts their entries."""

    def __init__(self, lengths, mean=1.0):
        self.lengths, self.mean = lengths, mean
        self.asked = []

    def entries(self, topic):
        return [
            MessageId(10 * n + 10, e) for n, length in enumerate(self.lengths[topic]) for e in range(length)
        ]

    def within(self, each: Range) -> list[MessageId]:
        """The entries of which a range holds something."""
        start, end = each.start.last_whole_entry, each.end.whole_entry
        return [entry for entry in self.entries(each.topic) if start < entry <= end]

    def tracks(self, ranges):
        self.asked.append("tracks")
        return {
            each.topic: Track(each.start.last_whole_entry, each.end.whole_entry, len(self.within(each)))
            for each in ranges
        }

    def find(self, offsets):
        self.asked.append("find")
        for topic, (track, numbers) in offsets.items():
            for number in numbers:
                track.find(
                    number, lambda position, topic=topic, end=track.end: self.count(topic, end, position)
                )

    def count(self, topic, end, position):
        entries = self.entries(topic)
        before = [each for each in entries if each < position]
        last = before[-1] if before else MessageId(position.ledger, -1)
        return last, sum(position <= each <= end for each in entries)

    def messages_per_entry(self, ranges):
        self.asked.append("messages")
        return {each.topic: self.mean for each in ranges}


@st.composite
def topics_with_ranges(draw):
    """Ranges, and the ledgers in which they lie."""
    ranges, ledgers = [], Ledgers({}, draw(st.floats(1, 10)))
    for topic in draw(st.lists(st.sampled_from(TOPICS), unique=True)):
        ledgers.lengths[topic] = draw(st.lists(st.integers(1, 30), min_size=1, max_size=12))
        entries = ledgers.entries(topic)
        positions = [MessageId(10, -1), *entries]
        positions += [MessageId(each.ledger, each.entry, 1) for each in entries]
        start, end = sorted(draw(st.lists(st.sampled_from(positions), min_size=2, max_size=2, unique=True)))
        visible, begins = draw(st.booleans()), draw(st.sampled_from([None, MessageId(1, -1)]))
        ranges.append(Range(topic, start, end, visible, begins))
    return ranges, ledgers


@given(topics_with_ranges(), st.none() | st.integers(1, 50), st.none() | st.integers(1, 50))
def test_the_pieces_are_the_ranges(drawn, wanted, largest):
    ranges, ledgers = drawn
    pieces = split_ranges(ranges, ledgers, min_partitions=wanted, max_messages=largest)
    assert pieces == split_ranges(ranges, ledgers, min_partitions=wanted, max_messages=largest)
    assert list(dict.fromkeys(each.topic for each in pieces)) == [each.topic for each in ranges]
    for whole in ranges:
        own = [each for each in pieces if each.topic == whole.topic]
        assert (own[0].start, own[-1].end, own[-1].visible) == (whole.start, whole.end, whole.visible)
        assert all(before.end == after.start and not before.visible for before, after in pairwise(own))
        is_followed = whole.followed or whole.visible
        assert [each.followed for each in own] == [is_followed] * (len(own) - 1) + [whole.followed]
        assert all(each.start < each.end and each.begins == whole.begins for each in own)
        assert [entry for each in own for entry in ledgers.within(each)] == ledgers.within(whole)


@given(topics_with_ranges(), st.integers(1, 200), st.integers(1, 50))
def test_as_many_pieces_as_asked_for(drawn, wanted, largest):
    ranges, ledgers = drawn
    counts = [len(ledgers.within(each)) for each in ranges]
    pieces = split_ranges(ranges, ledgers, min_partitions=wanted, max_messages=None)
    assert len(pieces) == max(len(ranges), min(wanted, sum(counts)))
    pieces = split_ranges(ranges, ledgers, min_partitions=None, max_messages=largest)
    in_one = max(1, int(largest / ledgers.mean))
    assert len(pieces) == sum(-(-count // in_one) for count in counts)
    assert all(len(ledgers.within(piece)) <= in_one for piece in pieces)
    for whole in ranges:
        sizes = [len(ledgers.within(each)) for each in pieces if each.topic == whole.topic]
        assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 200)), min_size=2, max_size=60), st.data())
def test_an_entry_is_found_with_few_requests(steps, data):
    """Twice the halvings of all ledger ids, and one."""
    ids = list(itertools.accumulate(step for step, _ in steps))
    entries = [
        MessageId(each, e) for each, (_, length) in zip(ids, steps, strict=True) for e in range(length)
    ]
    asked = []

    def count(position):
        asked.append(position)
        place = bisect_left(entries, position)
        return (entries[place - 1] if place else MessageId(ids[0], -1)), len(entries) - place

    track = Track(MessageId(ids[0], -1), entries[-1], len(entries))
    number = data.draw(st.integers(1, len(entries)))
    track.find(number, count)
    assert track.place(number) == entries[number - 1]
    assert len(asked) <= 2 * (ids[-1] - ids[0]).bit_length() + 1


@given(st.lists(st.integers(1, 499), min_size=1, max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_rollovers_hide_ends_of_ledgers_for_a_moment(numbers, hidden):
    """Readers then stand before the next ledger."""
    entries = [MessageId(10 * n, e) for n in range(1, 101) for e in range(5)]
    turns = itertools.cycle([*hidden, 0])

    def count(position):
        place = bisect_left(entries, position)
        is_shown = place and next(turns) == 0
        return entries[place - 1] if is_shown else entries[place].ledger_start, len(entries) - place

    track = Track(MessageId(10, -1), entries[-1], len(entries))
    for number in numbers:
        track.find(number, count)
        assert track.place(number) == entries[number - 1]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=80), st.integers(1, 299))
def test_a_search_ends_if_counts_are_wrong(errors, number):
    """Those of a topic that grows may be too large; the borders are in order all the same."""
    entries = [MessageId(10 * n, e) for n in range(1, 61) for e in range(5)]
    answers = itertools.cycle(errors)

    def count(position):
        place = bisect_left(entries, position)
        left = len(entries) - place + next(answers)
        return (entries[place - 1] if place else MessageId(10, -1)), left

    track = Track(MessageId(10, -1), entries[-1], len(entries))
    for each in (number, number + 1):
        track.find(each, count)
    assert MessageId(10, -1) < track.place(number) <= track.place(number + 1) <= entries[-1]


def test_the_longest_are_cut_first():
    long, short = (
        Range(topic, MessageId(1, -1), MessageId(1, last))
        for topic, last in zip(TOPICS, (899, 99), strict=False)
    )
    pieces = split_ranges([long, short], Ledgers({}), min_partitions=5, max_messages=None)
    assert [each.topic for each in pieces] == [TOPICS[0]] * 4 + [TOPICS[1]]
    assert [each.end.entry for each in pieces] == [224, 449, 674, 899, 99]


def test_ledgers_before_an_unknown_start_stay_whole():
    """What compaction kept of them is not in the log."""
    whole = Range(TOPICS[0], MessageId.EARLIEST, MessageId(9, 9))
    pieces = split_ranges([whole], Ledgers({}), min_partitions=5, max_messages=None)
    assert [each.end for each in pieces] == [MessageId(9, entry) for entry in (1, 3, 5, 7, 9)]


def test_nothing_is_cut_unless_asked():
    ranges = [Range(TOPICS[0], MessageId(1, -1), MessageId(1, 10**9), visible=False)]
    assert split_ranges(ranges, Ledgers({}), min_partitions=None, max_messages=None) == ranges
    assert split_ranges([], Ledgers({}), min_partitions=10, max_messages=10) == []


@pytest.mark.parametrize(
    ("min_partitions", "max_messages", "ends", "asked"),
    [
        (None, None, ["20:3"], []),
        (1, None, ["20:3"], []),
        (2, None, ["10:3", "20:3"], ["tracks", "find"]),
        (None, 4, ["10:1", "10:3", "20:1", "20:3"], ["tracks", "messages", "find"]),
        (1, 100, ["20:3"], ["tracks", "messages", "find"]),
    ],
)
def test_the_broker_is_asked_only_where_a_range_is_to_be_split(min_partitions, max_messages, ends, asked):
    ledgers = Ledgers({P0: [4, 4]}, 2.0)
    ranges = [Range(P0, MessageId(10, -1), MessageId(20, 3))]
    found = split_ranges(ranges, ledgers, min_partitions=min_partitions, max_messages=max_messages)
    assert [str(each.end) for each in found] == ends
    assert ledgers.asked == asked


# ---- one task for several ranges

# So many ranges have a task each. A task of several has no more entries, and no more ranges, than this.
MIN_TASKS, MAX_ENTRIES, MAX_RANGES = 16, 512, 64


def ranges_of(*sizes: int) -> list[Range]:
    """Ranges of so many entries, each of another partition."""
    return [
        Range(TopicName.parse("t").of_partition(number), MessageId(number, 6), MessageId(number, 6 + size))
        for number, size in enumerate(sizes)
    ]


def entries_of(tasks):
    return [[each.end.entry - each.start.entry for each in task] for task in tasks]


@for_each(
    ("sizes", "expected"),
    [
        ([], []),
        ([5], [[5]]),
        ([1] * 16, [[1]] * 16),
        ([1] * 17, [[1]] * 17),
        ([1] * 32, [[1, 1]] * 16),
        ([1] * 35, [[1, 1]] * 17 + [[1]]),
        ([5] * 40, [[5, 5]] * 20),
        ([5] * 500, [[5] * 31] * 16 + [[5] * 4]),
        ([1] * 2000, [[1] * 64] * 31 + [[1] * 16]),
        ([512] * 20, [[512]] * 20),
        ([511] * 20, [[511]] * 20),
        ([200] * 100, [[200, 200]] * 50),
        ([10_000] + [2] * 16, [[10_000], [2, 2]] + [[2]] * 14),
        ([1, 10_000] * 64, [[1] * 64] + [[10_000]] * 64),
        ([100] + [1] * 16, [[100], [1, 1]] + [[1]] * 14),
    ],
)
def test_which_ranges_share_a_task(sizes, expected):
    found = entries_of(share_tasks(ranges_of(*sizes)))
    assert found == expected
    assert sorted(size for task in found for size in task) == sorted(sizes)


def test_tasks_are_in_the_order_of_their_first_ranges():
    ranges = ranges_of(*[600, 3] * 20)
    tasks = share_tasks(ranges)
    places = [[ranges.index(each) for each in task] for task in tasks]
    assert places == sorted(places)
    assert len(tasks) < len(ranges)


@pytest.mark.parametrize(
    ("wanted", "tasks"), [(1, 17), (17, 18), (100, 100), (499, 500), (500, 500), (900, 500)]
)
def test_there_are_as_many_tasks_as_the_user_wants(wanted, tasks):
    assert len(share_tasks(ranges_of(*[5] * 500), min_tasks=wanted)) == tasks


@pytest.mark.parametrize(
    ("most", "ranges"), [(1, 1), (5_000, 1), (9_999, 1), (10_000, 2), (25_000, 5), (10**9, 31)]
)
def test_a_shared_task_has_no_more_messages_than_the_user_wants(most, ranges):
    """By estimate: 1,000 an entry."""
    found = entries_of(share_tasks(ranges_of(*[5] * 500), max_messages=most))
    assert max(map(len, found)) == ranges


@pytest.mark.parametrize(
    ("start", "end", "is_short"),
    [
        (MessageId(3, 4), MessageId(3, 9), True),
        (MessageId(3, -1), MessageId(3, 0), True),
        (MessageId(3, 4, 2), MessageId(3, 4), True),
        (MessageId(3, 4, 2), MessageId(3, 5, 1), True),
        (MessageId(3, 4), MessageId(3, 400), False),
        (MessageId(3, 4), MessageId(7, 9), False),
        (MessageId.EARLIEST, MessageId(3, 2), False),
    ],
)
def test_what_may_be_long_has_a_task_of_its_own(start, end, is_short):
    """Where a ledger ends is not known."""
    ranges = ranges_of(*[5] * 100)
    ranges[50] = Range(ranges[50].topic, start, end)
    (task,) = (task for task in share_tasks(ranges) if ranges[50] in task)
    assert (len(task) > 1) == is_short


sizes_of_ranges = st.lists(
    st.one_of(st.integers(1, 8), st.integers(1, 8), st.integers(1, 600), st.just(10**6)), max_size=200
)


@given(sizes_of_ranges, st.none() | st.integers(1, 250), st.none() | st.integers(1, 10**6))
def test_all_tasks_together_are_the_ranges(sizes, wanted, most):
    ranges = ranges_of(*sizes)

    def again():
        return share_tasks(list(ranges), min_tasks=wanted, max_messages=most)

    tasks = again()
    assert tasks == again()
    assert sorted(each for task in tasks for each in task) == sorted(ranges)
    assert all(list(task) == sorted(task, key=ranges.index) and task for task in tasks)
    assert [task[0] for task in tasks] == sorted((task[0] for task in tasks), key=ranges.index)
    assert len(tasks) >= min(len(ranges), max(MIN_TASKS, wanted or 0))
    for task in tasks:
        held = sum(each.end.entry - each.start.entry for each in task)
        assert len(task) == 1 or (len(task) <= MAX_RANGES and held <= MAX_ENTRIES)
        assert len(task) == 1 or most is None or 1000 * held <= most


@given(sizes_of_ranges)
def test_there_are_no_more_tasks_than_needed(sizes):
    """Twice as many as if all were of one size, and those that are long."""
    tasks = share_tasks(ranges_of(*sizes))
    long = sum(size >= MAX_ENTRIES for size in sizes)
    needed = max(
        MIN_TASKS, sum(min(size, MAX_ENTRIES) for size in sizes) / MAX_ENTRIES, len(sizes) / MAX_RANGES
    )
    assert len(tasks) <= long + 2 * (needed + MIN_TASKS)
