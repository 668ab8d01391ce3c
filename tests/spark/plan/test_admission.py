import logging
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client import Calls, PendingCalls
from pulsar_spark.errors import ConnectError, DeadlineError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import Limits
from pulsar_spark.spark.plan import known_entries
from pulsar_spark.spark.plan.admission import Admission, Room, in_turn, take
from pulsar_spark.spark.plan.known_entries import KnownEntries, messages_in
from pulsar_spark.spark.plan.partition import Partition as PlannedPartition
from tests.client.clients import wait_until
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
        patch.setattr(known_entries, "SCAN_ENTRIES", entries)
        patch.setattr(known_entries, "SCAN_BYTES", size)
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


def beyond_one_entry(taken, measure):
    """How much a batch holds without the largest entry of each partition."""
    return sum(
        sum(map(measure, entries)) - max(map(measure, entries), default=0) for entries in taken.values()
    )


@given(brokers(indexed=False), limits)
def test_exact_facts_give_at_most_the_limit_and_one_entry_a_partition(broker, limits):
    for taken in run(broker, limits):
        if limits.max_messages is not None:
            assert beyond_one_entry(taken, messages_in) <= limits.max_messages
        if limits.max_bytes is not None:
            assert beyond_one_entry(taken, lambda entry: entry.size) <= limits.max_bytes


@given(brokers(indexed=True), limits, st.integers(1, 5))
def test_indexes_keep_messages_exact_beyond_what_is_looked_at(broker, limits, entries):
    with budget(entries):
        for taken in run(broker, limits):
            if limits.max_messages is not None:
                assert beyond_one_entry(taken, messages_in) <= limits.max_messages


@given(brokers(indexed=False), limits, st.integers(1, 5), st.integers(1, 3000))
def test_estimated_ends_are_visible_and_all_is_read_once(broker, limits, entries, size):
    with budget(entries, size):
        run(broker, limits)


@given(brokers(indexed=False))
def test_no_limit_or_a_large_one_takes_all_at_once(broker):
    assert len(run(broker, Limits())) <= 1
    assert len(run(broker, Limits(max_messages=10**9, max_bytes=1 << 40))) <= 1


@pytest.mark.parametrize("indexed", [False, True])
def test_estimates_of_equal_entries_are_right(indexed):
    broker = Broker({TOPICS[0]: uniform(20_000, messages=10, indexed=indexed)})
    batches = run(broker, Limits(max_messages=50_000))
    assert [sum(entry.messages for entry in taken[TOPICS[0]]) for taken in batches] == [50_000] * 4
    assert broker.scanned <= 4 * known_entries.SCAN_ENTRIES
    assert broker.probes <= 8


def test_an_estimated_end_stays_in_its_ledger():
    broker = Broker({TOPICS[0]: uniform(6000, ledger=1500)})
    batches = run(broker, Limits(max_messages=4000))
    assert [len(taken[TOPICS[0]]) for taken in batches] == [1500] * 4


@pytest.mark.parametrize("messages", [(1000, 1, 500, 50, 1500, 1, 26_500), (1000, 50, 2000, 1, 0, 1, 51_500)])
def test_indexes_find_the_end_exactly_among_entries_unlike_those_looked_at(messages):
    first, of_first, second, of_second, third, of_third, limit = messages
    ledger = [of_first] * first + [of_second] * second + [of_third] * third
    broker = Broker({TOPICS[0]: Partition([[(each, 100, False, True) for each in ledger]], indexed=True)})
    taken = run(broker, Limits(max_messages=limit))[0][TOPICS[0]]
    assert sum(entry.messages for entry in taken) == limit


def test_where_indexes_begin_later_the_end_is_estimated():
    partition = uniform(100, indexed=True)
    partition.visible[:50] = [replace(each, index=None) for each in partition.visible[:50]]
    with budget(10):
        batches = run(Broker({TOPICS[0]: partition}), Limits(max_messages=60))
    assert [len(taken[TOPICS[0]]) for taken in batches] == [60, 40]


def test_estimated_shares_of_bytes_keep_the_limit():
    broker = Broker({topic: uniform(100) for topic in TOPICS[:2]})
    with budget(10):
        batches = run(broker, Limits(max_bytes=6000))
    assert [[len(taken[topic]) for topic in TOPICS[:2]] for taken in batches[:3]] == [[30, 30]] * 3


def test_the_sizes_of_a_known_ledger_are_taken_for_those_of_its_rest(monkeypatch):
    ledger = [(1, 100, False, True)] * 1000 + [(1, 1000, False, True)] * 9000
    partition = Partition([ledger, [(1, 100, False, True)]])
    broker = Broker({TOPICS[0]: partition})
    end = known_entries.LedgerEnd(9999, 9_100_000)
    monkeypatch.setattr(broker, "ledger_end", lambda topic, position, last: end)
    first = run(broker, Limits(max_bytes=1_010_000))[0][TOPICS[0]]
    assert len(first) == 2000


@given(
    st.lists(st.sets(st.sampled_from(TOPICS), min_size=1).map(sorted), min_size=1, max_size=30),
    st.integers(1, 9),
    st.sampled_from(TOPICS),
)
def test_nobody_is_passed_over_in_turns(waiting, count, before):
    """Whatever waits: between two turns of a partition each other that waits all the time has one."""
    since: dict[TopicName, set[TopicName]] = {}
    for topics in waiting:
        turn = in_turn(topics, before, count)
        assert len(turn) == len(set(turn)) == min(count, len(topics))
        assert set(turn) <= set(topics)
        before = turn[-1]
        since = {topic: since.get(topic, set()) for topic in topics}
        for topic in set(topics) - set(turn):
            assert not since[topic] & set(turn)
            since[topic] |= set(turn)
        for topic in turn:
            since[topic] = set()


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
def test_more_partitions_than_messages_take_turns(limit):
    """The limit is kept, no other partition is probed, and none starves while the others grow."""
    broker = Broker({topic: uniform(10) for topic in TOPICS})
    admission = AdmissionByTopic(Limits(max_messages=limit), broker, CallsInTurn)
    starts = {topic: each.start for topic, each in broker.partitions.items()}
    ends = {topic: each.last for topic, each in broker.partitions.items()}
    taken: Counter[TopicName] = Counter()
    for _ in range(len(TOPICS)):
        planned = admission.plan(starts, ends, dict.fromkeys(TOPICS, 10), 0.0)
        moved = [topic for topic in TOPICS if planned[topic] != starts[topic]]
        assert len(moved) == limit
        taken.update(moved)
        starts = planned
    assert set(taken.values()) == {limit}


def test_turns_without_an_answer_do_not_end_a_run_that_reads_what_exists():
    broken = {topic: ConnectError("refused") for topic in TOPICS[:7]}
    broker = Broker({topic: uniform(1) for topic in TOPICS}, broken)
    admission = AdmissionByTopic(Limits(max_messages=1), broker, CallsInTurn)
    starts = {topic: each.start for topic, each in broker.partitions.items()}
    ends = {topic: each.last for topic, each in broker.partitions.items()}
    planned = admission.plan(starts, ends, {}, 0.0, available_now=True)
    assert [topic for topic in TOPICS if planned[topic] != starts[topic]] == TOPICS[7:]
    with pytest.raises(ConnectError):
        admission.plan(planned, ends, {}, 0.0, available_now=True)


def test_a_skewed_backlog():
    partitions = {topic: uniform(10) for topic in TOPICS}
    partitions[TOPICS[3]] = uniform(20_000)
    broker = Broker(partitions)
    batches = run(broker, Limits(max_messages=1000))
    assert all(len(batches[0][topic]) >= 1 for topic in TOPICS)
    assert all(sum(map(len, taken.values())) <= 1000 + len(TOPICS) for taken in batches)
    assert all(sum(map(len, taken.values())) >= 990 for taken in batches[:-1])


def test_shares_are_in_proportion_and_what_is_left_goes_to_the_larger():
    broker = Broker({TOPICS[0]: uniform(300), TOPICS[1]: uniform(100), TOPICS[2]: uniform(30, messages=50)})
    first = run(broker, Limits(max_messages=430))[0]
    assert [len(first[topic]) for topic in TOPICS[:3]] == [285, 95, 1]


def test_a_byte_limit_of_one_batch():
    broker = Broker({topic: uniform(250, messages=100, size=11_000) for topic in TOPICS[:4]})
    batches = run(broker, Limits(max_bytes=11_000))
    assert len(batches) == 250
    assert all(len(entries) == 1 for taken in batches for entries in taken.values())


def test_what_was_looked_at_is_not_looked_at_again():
    broker = Broker({TOPICS[0]: uniform(500)})
    run(broker, Limits(max_messages=50))
    assert broker.scanned == 500


def test_a_start_within_an_entry():
    partition = uniform(10, messages=10)
    partition.start = MessageId(10, 2, 4)
    batches = run(Broker({TOPICS[0]: partition}), Limits(max_messages=10))
    assert [len(taken[TOPICS[0]]) for taken in batches] == [1] * 8


def test_a_start_elsewhere_is_looked_at_anew():
    broker = Broker({TOPICS[0]: uniform(100)})
    admission = AdmissionByTopic(Limits(max_messages=10), broker, CallsInTurn)
    for entry in (9, 50, 20, -1):
        planned = admission.plan({TOPICS[0]: MessageId(10, entry)}, {TOPICS[0]: MessageId(10, 99)}, {}, 0.0)
        assert planned == {TOPICS[0]: MessageId(10, entry + 10)}
    assert admission.plan({}, {}, {}, 0.0) == {}
    assert broker.open == 0


class Waiting:
    """A query of one partition, with a least number of messages."""

    def __init__(self, **limits):
        self.broker = Broker({TOPICS[0]: uniform(100, messages=2)})
        self.admission = AdmissionByTopic(Limits(**limits), self.broker, CallsInTurn)

    def plan(self, start, end, now, **how):
        (planned,) = self.admission.plan(
            {TOPICS[0]: MessageId(10, start)},
            {TOPICS[0]: MessageId(10, end)},
            {TOPICS[0]: end - start},
            now,
            **how,
        ).values()
        return planned.entry


def test_fewer_than_the_least_wait_for_the_delay():
    waiting = Waiting(min_messages=10, max_delay=60.0)
    assert waiting.plan(-1, 3, 100.0) == -1
    assert waiting.plan(-1, 4, 101.0) == 4
    assert waiting.plan(4, 5, 102.0) == 4
    assert waiting.plan(4, 6, 160.9) == 4
    assert waiting.plan(4, 6, 161.0) == 6
    assert waiting.plan(6, 7, 162.0) == 6
    assert waiting.plan(6, 7, 221.0) == 7
    assert waiting.plan(7, 7, 1000.0) == 7
    assert waiting.broker.scanned == 8


def test_the_least_and_the_most_hold_together():
    waiting = Waiting(min_messages=10, max_messages=20)
    assert waiting.plan(-1, 3, 0.0) == -1
    assert waiting.plan(-1, 50, 0.0) == 9
    known, end = waiting.admission.known[TOPICS[0]], MessageId(10, 5)
    assert take(known, Room(14, None), end).end == end, "never beyond it"
    assert take(known, Room(10, None), end).end == end.back(1)
    assert waiting.plan(46, 50, 0.0) == 46


def test_available_now_does_not_wait():
    assert Waiting(min_messages=10).plan(-1, 3, 0.0, available_now=True) == 3
    assert Waiting(min_messages=10, max_messages=2).plan(-1, 3, 0.0, available_now=True) == 0


def test_the_least_is_estimated_beyond_what_is_looked_at():
    with budget(5):
        assert Waiting(min_messages=100).plan(-1, 49, 0.0) == 49
        assert Waiting(min_messages=101).plan(-1, 49, 0.0) == -1


@pytest.mark.parametrize("error", [ConnectError("cut"), DeadlineError("late")])
def test_a_partition_without_an_answer_lets_the_others_go_on(error, caplog):
    broker = Broker({topic: uniform(10) for topic in TOPICS[:2]})
    admission = AdmissionByTopic(Limits(max_messages=4), broker, CallsInTurn)
    starts = dict.fromkeys(TOPICS[:2], MessageId(10, -1))
    ends = dict.fromkeys(TOPICS[:2], MessageId(10, 9))
    starts = admission.plan(starts, ends, {}, 0.0)
    broker.broken = {TOPICS[0]: error}
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            starts = admission.plan(starts, ends, {}, 0.0, available_now=True)
    assert starts == {TOPICS[0]: MessageId(10, 1), TOPICS[1]: MessageId(10, 9)}
    assert str(TOPICS[0]) in caplog.text
    with pytest.raises(type(error), match=str(TOPICS[0])):
        admission.plan(starts, ends, {}, 0.0, available_now=True)
    assert admission.plan(starts, ends, {}, 0.0) == starts
    broker.broken = {}
    assert admission.plan(starts, ends, {}, 0.0)[TOPICS[0]] == MessageId(10, 5)


@pytest.mark.parametrize("limits", [Limits(max_messages=8), Limits(max_bytes=800)])
def test_silence_lifts_no_limit(limits, caplog):
    """An entry that is late is taken for none that is never delivered."""
    broker = Broker({topic: uniform(1000) for topic in TOPICS[:2]})
    admission = AdmissionByTopic(limits, broker, CallsInTurn)
    starts = dict.fromkeys(TOPICS[:2], MessageId(10, -1))
    ends = dict.fromkeys(TOPICS[:2], MessageId(10, 999))
    broker.silent_after = {TOPICS[0]: MessageId(10, 5)}
    for first, late in ((3, set()), (5, {TOPICS[0]}), (5, {TOPICS[0]})):
        starts = admission.plan(starts, ends, {}, 0.0)
        assert starts[TOPICS[0]] == MessageId(10, first)
        assert admission.failed_topics == late
    assert starts[TOPICS[1]] > MessageId(10, 8)
    assert caplog.text.count(str(TOPICS[0])) == 2
    opened = broker.opened
    broker.silent_after = {}
    assert admission.plan(starts, ends, {}, 0.0)[TOPICS[0]] == MessageId(10, 9)
    assert broker.opened == opened + 1, "by another reader"
    admission.close()
    assert broker.open == 0


class SlowBroker(Broker):
    """A broker of so many partitions that sends nothing of the first before :attr:`answered` is set."""

    def __init__(self, count):
        super().__init__({topic: uniform(10) for topic in TOPICS[:count]})
        self.answered, self.waited = threading.Event(), 0

    def probe_entries(self, topic, after):
        if topic == TOPICS[0]:
            self.waited += 1
            self.answered.wait(60)
        return super().probe_entries(topic, after)


def test_a_probe_without_an_answer_holds_nobody_up_and_is_used_when_it_comes():
    broker = SlowBroker(3)
    admission = AdmissionByTopic(Limits(max_messages=6), broker)
    starts = dict.fromkeys(TOPICS[:3], MessageId(10, -1))
    ends = dict.fromkeys(TOPICS[:3], MessageId(10, 9))
    while starts[TOPICS[1]] < ends[TOPICS[1]]:
        starts = admission.plan(starts, ends, {}, 0.0, patience=0.01)
        assert starts[TOPICS[0]] == MessageId(10, -1)
    assert broker.waited == 1
    assert admission.is_busy
    broker.answered.set()
    wait_until(lambda: not admission.is_busy)
    while starts != ends:
        before = starts[TOPICS[0]]
        starts = admission.plan(starts, ends, {}, 0.0, patience=60)
        assert before < starts[TOPICS[0]]
    assert broker.waited == 1, "it is asked once"
    admission.close()
    assert broker.open == 0


def test_a_reader_that_opens_after_the_end_is_closed():
    broker = SlowBroker(1)
    admission = AdmissionByTopic(Limits(max_messages=6), broker)
    starts = {TOPICS[0]: MessageId(10, -1)}
    assert admission.plan(starts, {TOPICS[0]: MessageId(10, 9)}, {}, 0.0, patience=0.01) == starts
    admission.close()
    broker.answered.set()
    wait_until(lambda: not admission.is_busy)
    wait_until(lambda: broker.open == 0)
    assert broker.opened == 1


@pytest.mark.parametrize("error", [ConnectError("cut"), TopicNotFoundError("gone")])
def test_where_a_search_fails_what_is_known_is_taken(error, monkeypatch, caplog):
    def probe_entry(topic, position):
        raise error

    broker = Broker({TOPICS[0]: uniform(100)})
    monkeypatch.setattr(broker, "probe_entry", probe_entry)
    admission = AdmissionByTopic(Limits(max_messages=50), broker, CallsInTurn)
    start, end = {TOPICS[0]: MessageId(10, -1)}, {TOPICS[0]: MessageId(10, 99)}
    with budget(10):
        if not error.is_passing:
            with pytest.raises(TopicNotFoundError, match=str(TOPICS[0])):
                admission.plan(start, end, {}, 0.0)
            return
        assert admission.plan(start, end, {}, 0.0) == {TOPICS[0]: MessageId(10, 9)}
    assert admission.failed_topics == set(TOPICS[:1])
    assert str(TOPICS[0]) in caplog.text


def test_a_search_in_a_partition_that_is_gone_says_nothing(monkeypatch):
    broker, answered = Broker({TOPICS[0]: uniform(100)}), threading.Event()

    def probe_entry(topic, position):
        answered.wait(60)
        raise TopicNotFoundError("gone")

    monkeypatch.setattr(broker, "probe_entry", probe_entry)
    admission = AdmissionByTopic(Limits(max_messages=50), broker)
    admission._scans = CallsInTurn()
    with budget(10):
        admission.plan({TOPICS[0]: MessageId(10, -1)}, {TOPICS[0]: MessageId(10, 99)}, {}, 0.0, patience=0.01)
    assert admission.is_busy
    admission.drop(TOPICS[0])
    answered.set()
    wait_until(lambda: not admission.is_busy)
    assert admission._searches.take() == {}
    assert broker.open == 0


@pytest.mark.parametrize("size", [100, 100_000])
def test_of_many_partitions_each_is_probed_less(size):
    """200 partitions and a limit of 120,000 entries took 20 s to plan."""
    topics = [TopicName.parse("t").of_partition(number) for number in range(200)]
    broker = Broker(dict.fromkeys(topics, uniform(1000, size=size)))
    starts = dict.fromkeys(topics, MessageId(10, -1))
    ends = dict.fromkeys(topics, MessageId(10, 999))
    admission = AdmissionByTopic(Limits(max_messages=120_000), broker, CallsInTurn)
    planned = admission.plan(starts, ends, dict.fromkeys(topics, 1000), 0.0)
    assert broker.scanned <= known_entries.SCAN_ENTRIES_IN_ALL
    assert broker.scanned * size <= known_entries.SCAN_BYTES_IN_ALL + 200 * size
    assert broker.probes <= 200
    assert set(planned.values()) == {MessageId(10, 599)}
    assert sum(len(known.entries) for known in admission.known.values()) <= 16_000
    admission.close()


def test_an_error_that_stays_is_raised():
    broker = Broker({TOPICS[0]: uniform(10)}, {TOPICS[0]: TopicNotFoundError("gone")})
    with pytest.raises(TopicNotFoundError, match=str(TOPICS[0])):
        AdmissionByTopic(Limits(max_messages=4), broker, CallsInTurn).plan(
            {TOPICS[0]: MessageId(10, -1)}, {TOPICS[0]: MessageId(10, 9)}, {}, 0.0
        )


def test_an_error_that_stays_leaves_no_reader_of_the_others_open():
    gone, *others = TOPICS
    broker = Broker(dict.fromkeys(TOPICS, uniform(10)), {gone: TopicNotFoundError("gone")})
    admission = AdmissionByTopic(Limits(max_messages=8), broker, CallsInTurn)
    starts, ends = dict.fromkeys(TOPICS, MessageId(10, -1)), dict.fromkeys(TOPICS, MessageId(10, 9))
    with pytest.raises(TopicNotFoundError):
        admission.plan(starts, ends, {}, 0.0)
    assert broker.open == len(others)
    admission.drop(others[0])
    assert broker.open == len(others) - 1
    admission.close()
    assert broker.open == 0


def test_what_is_found_of_a_position_that_was_left_meanwhile_is_not_used():
    broker = SlowBroker(1)
    admission = AdmissionByTopic(Limits(max_messages=4), broker)
    ends = {TOPICS[0]: MessageId(10, 9)}
    assert admission.plan({TOPICS[0]: MessageId(10, 5)}, ends, {}, 0.0, patience=0.0) != ends
    broker.answered.set()
    set_back = {TOPICS[0]: MessageId(10, -1)}
    take = admission._scans.take
    wait_until(lambda: not admission.is_busy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission._scans, "take", dict)
        patch.setattr(admission._scans, "run", lambda *_, **__: take())
        assert admission.plan(set_back, ends, {}, 0.0, patience=60.0) == set_back
    assert broker.open == 0
    assert admission.plan(set_back, ends, {}, 0.0, patience=60.0) == {TOPICS[0]: MessageId(10, 3)}
    admission.close()


def test_what_is_found_of_such_a_position_hides_nothing_of_the_others():
    broker = Broker({topic: uniform(10) for topic in TOPICS[:2]})
    admission = AdmissionByTopic(Limits(max_messages=4), broker, CallsInTurn)
    left, same = (KnownEntries(broker, TOPICS[n], MessageId(10, entry)) for n, entry in ((0, 5), (1, -1)))
    starts = dict.fromkeys(TOPICS[:2], MessageId(10, -1))
    admission.partitions = {each: PlannedPartition(each, None, at, at, at) for each, at in starts.items()}
    one, other = admission.partitions.values()
    admission._take_scans({one: left, other: same}, dict.fromkeys((one, other), MessageId(10, -1)))
    assert admission.known == {TOPICS[1]: same}
    assert broker.open == 1


def test_what_is_gone_is_left_to_the_task():
    """Nothing visible is found up to the end: it is planned, so that its task tells of the loss."""
    partition = uniform(10)
    partition.last = MessageId(10, 20)
    admission = AdmissionByTopic(Limits(max_messages=100), Broker({TOPICS[0]: partition}), CallsInTurn)
    for start in (MessageId(10, 9), MessageId(10, 5)):
        assert admission.plan({TOPICS[0]: start}, {TOPICS[0]: partition.last}, {}, 0.0) == {
            TOPICS[0]: partition.last
        }


def test_chunks_are_looked_at_in_few_rounds():
    chunks = [(1, 1000, True, True)] * 400 + [(1, 1000, False, True)]
    broker = Broker({TOPICS[0]: Partition([chunks * 2])})
    batches = run(broker, Limits(max_messages=1))
    assert [sum(map(messages_in, taken[TOPICS[0]])) for taken in batches] == [1, 1]
    assert broker.rounds <= 20
