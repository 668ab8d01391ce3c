"""Admission where a broker is silent, slow, or refuses."""

import logging
import threading

import pytest

from pulsar_spark.errors import ConnectError, DeadlineError, TopicNotFoundError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.options.source import Limits
from pulsar_spark.spark.plan.broker_probe import KnownEntries
from pulsar_spark.spark.plan.partition import Partition as PlannedPartition
from tests.client.clients import wait_until
from tests.spark.plan.admissions import TOPICS, AdmissionByTopic, budget, uniform
from tests.spark.plan.simulated_topics import Broker, CallsInTurn


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
    left, same = (
        KnownEntries(broker, TOPICS[n], MessageId(10, entry))  # type: ignore[arg-type]  # it answers alike
        for n, entry in ((0, 5), (1, -1))
    )
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
