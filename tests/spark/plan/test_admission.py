from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import ConnectError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.source import Limits
from pulsar_spark.spark.plan import broker_probe
from pulsar_spark.spark.plan.admission import Room, in_turn, take
from pulsar_spark.spark.plan.broker_probe import messages_in
from tests.spark.plan.admissions import TOPICS, AdmissionByTopic, brokers, budget, limits, run, uniform
from tests.spark.plan.simulated_topics import Broker, CallsInTurn, Partition


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
    assert broker.scanned <= 4 * broker_probe.SCAN_ENTRIES
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
    end = broker_probe.LedgerEnd(9999, 9_100_000)
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


@pytest.mark.parametrize("size", [100, 100_000])
def test_of_many_partitions_each_is_probed_less(size):
    """200 partitions and a limit of 120,000 entries took 20 s to plan."""
    topics = [TopicName.parse("t").of_partition(number) for number in range(200)]
    broker = Broker(dict.fromkeys(topics, uniform(1000, size=size)))
    starts = dict.fromkeys(topics, MessageId(10, -1))
    ends = dict.fromkeys(topics, MessageId(10, 999))
    admission = AdmissionByTopic(Limits(max_messages=120_000), broker, CallsInTurn)
    planned = admission.plan(starts, ends, dict.fromkeys(topics, 1000), 0.0)
    assert broker.scanned <= broker_probe.SCAN_ENTRIES_IN_ALL
    assert broker.scanned * size <= broker_probe.SCAN_BYTES_IN_ALL + 200 * size
    assert broker.probes <= 200
    assert set(planned.values()) == {MessageId(10, 599)}
    assert sum(len(known.entries) for known in admission.known.values()) <= 16_000
    admission.close()


def test_chunks_are_looked_at_in_few_rounds():
    chunks = [(1, 1000, True, True)] * 400 + [(1, 1000, False, True)]
    broker = Broker({TOPICS[0]: Partition([chunks * 2])})
    batches = run(broker, Limits(max_messages=1))
    assert [sum(map(messages_in, taken[TOPICS[0]])) for taken in batches] == [1, 1]
    assert broker.rounds <= 20
