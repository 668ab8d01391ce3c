"""EndTracker: when a partition is asked, as a table, and its tails on a cluster in memory."""

import logging
import threading
import time
from itertools import pairwise

import pytest

from pulsar_spark.client import Calls, Kind, LastMessageId
from pulsar_spark.errors import (
    AuthError,
    ConnectError,
    DeadlineError,
    SubscriptionLimitError,
    TopicNotFoundError,
)
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan import ends
from pulsar_spark.spark.plan import partition as partition_module
from pulsar_spark.spark.plan.ends import EndTracker
from pulsar_spark.spark.plan.partition import EndSchedule, Partition, visible_end
from tests.client.clients import wait_until
from tests.fake_broker import HANG
from tests.spark.plan.simulated_cluster import SimulatedCluster

T = TopicName.parse("t")
TOPICS = [T.of_partition(number) for number in range(3)]


@pytest.mark.parametrize(
    ("seconds", "has_news", "due"),
    [(0.04, True, False), (0.05, True, True), (0.05, False, False), (9.9, False, False), (10.0, False, True)],
)
def test_when_a_partition_is_asked(seconds, has_news, due):
    schedule = EndSchedule.of(MessageId(1, 1), 100.0)
    schedule.followed(100.0, partitions=3, number=0)
    assert (schedule.due_at(has_news=has_news) <= 100.0 + seconds) is due


def test_of_many_partitions_each_is_asked_less_often():
    schedule = EndSchedule.of(MessageId(1, 1), 0.0)
    schedule.followed(0.0, partitions=100, number=0)
    assert schedule.due_at(has_news=False) == 50.0


def test_many_partitions_are_asked_in_groups():
    times = []
    for number in range(100):
        schedule = EndSchedule.of(MessageId(1, 1), 0.0)
        schedule.followed(1.0, partitions=100, number=number)
        times.append(schedule.due_at(has_news=False))
    assert times == sorted(times)
    assert min(times) >= 51.0
    assert max(times) <= 105.0
    assert len(set(times)) == 11


def test_a_partition_is_idle_when_no_message_came_for_a_while():
    schedule = EndSchedule.of(MessageId(1, 1), 0.0)
    schedule.answered(MessageId(1, 1), 0.2)
    assert not schedule.is_idle(0.24)
    assert schedule.is_idle(0.25)
    schedule.answered(MessageId(1, 2), 0.25)
    assert not schedule.is_idle(0.49)
    assert schedule.is_idle(0.5)


class Tracked:
    """A tracker of three partitions, and what it asked."""

    def __init__(self):
        self.cluster = SimulatedCluster()
        self.topics = self.cluster.create("t", 3)
        self.failing = {}
        self.asked = []
        self.calls = Calls()
        self.tracker = EndTracker(self.cluster, self.calls)
        self.partitions = {}
        for topic in TOPICS:
            self.add(topic)

    def add(self, topic):
        """Open a partition; all of it is acknowledged, unless a test says otherwise."""
        answer = self.answer(topic)
        self.partitions[topic] = Partition.opened(topic, None, answer)
        self.partitions[topic].acknowledged = MessageId.LATEST
        self.tracker.add({self.partitions[topic]: answer})

    def drop(self, topic):
        self.partitions.pop(topic).close(self.calls)

    def answer(self, topic):
        return LastMessageId(self.cluster.topics[topic].last, MessageId(10, -1))

    @property
    def chunks(self):
        return [topic for topic, partition in self.partitions.items() if partition.has_chunks]

    def ask(self, partitions):
        self.asked = [each.topic for each in partitions]
        return {each: self.failing.get(each.topic) or self.answer(each.topic) for each in partitions}

    def after(self, seconds):
        """What a refresh after some seconds asks, gives and finds gone."""
        self.cluster.clock += seconds
        self.asked = []
        answers, gone, _ = self.tracker.refresh(self.ask)
        for partition, answer in answers.items():
            partition.last = visible_end(answer.last)
        self.tracker.renew_tails(list(answers), len(self.partitions))
        found = {partition.topic: answer.last for partition, answer in answers.items()}
        return self.asked, found, [partition.topic for partition in gone]


@pytest.fixture
def tracked():
    return Tracked()


def test_an_idle_partition_costs_nothing_and_what_comes_is_seen(tracked):
    assert tracked.after(0.01) == ([], {}, [])
    assert tracked.after(0.1)[0] == TOPICS
    assert tracked.cluster.open_readers == 0
    assert tracked.after(0.2)[0] == TOPICS
    assert tracked.cluster.open_readers == 3
    for _ in range(40):
        assert tracked.after(0.2) == ([], {}, [])
    for count in (1, 2, 16, 1):
        place = tracked.topics[1].produce(count)[-1]
        assert tracked.tracker.has_arrivals
        assert tracked.after(0.06) == ([TOPICS[1]], {TOPICS[1]: place}, [])
        assert tracked.after(0.06) == ([], {}, []), "its tail follows"
        tail = tracked.partitions[TOPICS[1]].tail
        assert (tail.after, tail.reached) == (MessageId.EARLIEST, place)
    assert tracked.cluster.open_readers == 3
    assert tracked.cluster.count("tail") == 3
    assert tracked.chunks == []
    tracked.drop(TOPICS[0])
    assert tracked.cluster.open_readers == 2
    for _ in range(3):
        assert sorted(tracked.after(30.0)[0]) == TOPICS[1:]
    assert tracked.cluster.count("tail") == 3, "none is opened again"
    for topic in TOPICS[1:]:
        tracked.drop(topic)
    assert tracked.cluster.open_readers == 0
    assert tracked.after(60.0) == ([], {}, [])


def test_idle_partitions_are_asked_at_different_times(tracked, monkeypatch):
    monkeypatch.setattr(partition_module, "_STEP", 1.0)
    tracked.after(0.3)
    asked = {}
    for second in range(25):
        for topic in tracked.after(1.0)[0]:
            asked.setdefault(topic, second)
    assert sorted(asked) == TOPICS
    assert len(set(asked.values())) == 3


def test_a_partition_that_was_asked_meanwhile_is_asked_again_after_its_time(tracked):
    tracked.after(0.3)
    tracked.topics[0].produce()
    assert tracked.after(6.0)[0] == TOPICS[:1]
    assert TOPICS[0] not in tracked.after(9.0)[0]
    assert TOPICS[0] in tracked.after(5.0)[0]


def test_what_comes_of_a_dropped_partition_hides_no_other(tracked):
    tracked.drop(TOPICS[2])
    assert tracked.after(0.3)[0] == TOPICS[:2]
    place = tracked.topics[1].produce()[-1]
    came = [tracked.partitions[topic] for topic in TOPICS[:2]]
    tracked.drop(TOPICS[0])
    tracked.tracker._arrivals.take = lambda: came
    assert tracked.after(0.06)[1] == {TOPICS[1]: place}


def test_a_partition_to_which_much_comes_has_no_tail_until_it_is_idle(tracked):
    tracked.after(0.3)
    tracked.topics[1].produce(17)
    assert tracked.after(0.06)[0] == [TOPICS[1]]
    assert tracked.cluster.open_readers == 2
    assert tracked.partitions[TOPICS[1]].tail is None
    for _ in range(3):
        tracked.topics[1].produce(1)
        assert tracked.after(0.06)[0] == [TOPICS[1]]
    assert tracked.cluster.open_readers == 2
    tracked.after(0.3)
    assert tracked.cluster.open_readers == 3
    assert tracked.after(0.06)[0] == []


@pytest.mark.parametrize("has_permits", [True, False])
def test_where_triggers_are_rare_a_partition_is_asked_if_its_tail_lacked_permits(tracked, has_permits):
    """Without them it has not waited for what came meanwhile; with them it would show that."""
    tracked.after(0.3)
    tracked.topics[1].produce(3)
    assert tracked.after(0.06)[0] == [TOPICS[1]]
    (tail,) = tracked.topics[1].tails
    tail.has_permits = has_permits
    tail._on_arrival()  # as when what lies up to the end has come
    assert tracked.after(0.5) == ([], {}, [])
    tail._on_arrival()
    assert tracked.after(1.1)[0] == ([] if has_permits else [TOPICS[1]])
    place = tracked.topics[1].produce()[-1]
    assert tracked.after(0.06)[1] == {TOPICS[1]: place}


def test_where_triggers_are_rare_a_partition_is_asked_if_its_tail_lacks_an_entry(tracked):
    tracked.after(0.3)
    place = tracked.topics[1].produce(3)[-1]
    (tail,) = tracked.topics[1].tails
    follow = tail.follow
    tail.follow = lambda end: follow(place.back(1))
    assert tracked.after(0.06)[0] == [TOPICS[1]]
    tail.was_waiting = False
    tail.follow = lambda end: True  # the last entry is on its way
    tail._on_arrival()
    assert tracked.after(1.1)[0] == [TOPICS[1]]


def test_what_a_tail_has_missed_opens_another(tracked):
    tracked.after(0.3)
    tracked.topics[1].tails.clear()  # what comes is not pushed any more
    tracked.topics[1].tails.append(tracked.partitions[TOPICS[1]].tail)
    tracked.topics[1].tails[0]._is_armed = False
    place = tracked.topics[1].produce()[-1]
    tracked.topics[1].tails[0].has_passed = lambda end: False
    assert tracked.after(1.0)[0] == []
    assert tracked.after(30.0)[1][TOPICS[1]] == place
    assert tracked.cluster.open_readers == 2
    tracked.after(0.3)
    assert tracked.cluster.open_readers == 3
    tracked.after(30.0)
    assert tracked.cluster.count("tail", TOPICS[1]) == 2, "the other one has missed nothing"
    tracked.topics[1].produce()
    assert tracked.after(0.1)[0] == [TOPICS[1]]


def test_what_a_tail_took_in_after_an_answer_is_asked_for(tracked):
    """The answer may be older than it: of a broker that took long. What came was reported before."""
    tracked.after(0.3)
    first = tracked.topics[1].produce()[-1]
    late = tracked.answer(TOPICS[1])
    second = tracked.topics[1].produce()[-1]
    (tail,) = tracked.topics[1].tails
    follow = tail.follow
    tail.follow = lambda end: follow(second)  # it had permits for both
    tracked.failing = {TOPICS[1]: late}
    assert tracked.after(0.06)[1] == {TOPICS[1]: first}
    tracked.failing = {}
    assert tracked.after(0.06)[1] == {TOPICS[1]: second}
    assert tracked.after(0.06) == ([], {}, [])


def test_a_topic_that_is_emptied_is_not_asked_again_and_again(tracked):
    """Where all ledgers are removed its last message lies before what was seen."""
    tracked.after(0.3)
    tracked.topics[1].produce(3)
    tracked.after(0.06)
    tracked.after(0.06)
    tracked.topics[1].roll_over()
    tracked.topics[1].trim()
    tracked.failing = {TOPICS[1]: LastMessageId(MessageId(-1, -1), MessageId(20, -1))}
    assert TOPICS[1] in tracked.after(20.0)[1]
    assert tracked.after(0.06) == ([], {}, [])
    tracked.failing = {}
    place = tracked.topics[1].produce()[-1]
    assert tracked.after(0.06)[1] == {TOPICS[1]: place}


def test_entries_too_large_for_a_tail_are_not_begun_with_again_and_again(tracked):
    """They wait, perhaps for hours, for others that are to be read with them."""
    tracked.after(0.3)
    before = tracked.topics[1].last
    tracked.partitions[TOPICS[1]].acknowledged = before
    tracked.topics[1].produce(5, messages=200)
    for _ in range(50):
        tracked.after(0.06)
    assert tracked.cluster.count("tail", TOPICS[1]) <= 3
    assert tracked.after(0.06) == ([], {}, [])
    assert tracked.partitions[TOPICS[1]].tail.after == tracked.topics[1].last
    tracked.partitions[TOPICS[1]].acknowledged = tracked.topics[1].last
    for _ in range(3):
        place = tracked.topics[1].produce(2)[-1]
        assert tracked.after(0.06)[1] == {TOPICS[1]: place}
        tracked.after(0.06)
    assert tracked.partitions[TOPICS[1]].tail.reached == place, "it follows what is small enough"


def test_when_there_is_something_to_do(tracked):
    tracker, clock = tracked.tracker, tracked.cluster
    assert tracker.due_at == clock.clock + 0.05, "no tail yet"
    tracked.after(0.3)
    assert clock.clock + 10.0 <= tracker.due_at <= clock.clock + 15.0
    began = time.monotonic()
    tracker.wait_for_arrivals(0.01)
    assert time.monotonic() >= began + 0.01
    assert not tracker.has_arrivals
    pushing = threading.Timer(0.01, tracked.topics[2].produce)
    pushing.start()
    tracker.wait_for_arrivals(HANG)
    assert tracker.has_arrivals
    pushing.join()
    assert tracked.after(0.1)[0] == [TOPICS[2]]
    assert not tracker.has_arrivals


def test_a_partition_that_is_made_again_is_asked_in_its_time(tracked):
    tracked.after(0.3)
    tracked.drop(TOPICS[0])
    tracked.add(TOPICS[0])
    assert tracked.after(0.3)[0] == [TOPICS[0]]
    assert tracked.after(9.0)[0] == []
    assert sorted(tracked.after(30.0)[0]) == TOPICS


def test_chunks_at_a_tail_are_reported(tracked):
    tracked.after(0.3)
    tracked.topics[2].produce(2, chunks=True)
    tracked.after(0.1)
    assert TOPICS[2] in tracked.chunks
    assert set(tracked.chunks) == {TOPICS[2]}


def test_chunks_are_reported_when_a_tail_opens_and_before_the_next_answer(tracked):
    tracked.partitions[TOPICS[2]].acknowledged = tracked.topics[2].last
    tracked.topics[2].produce(2, chunks=True)
    tracked.after(0.3)
    tracked.after(0.3)
    assert tracked.chunks == [TOPICS[2]]
    (tail,) = tracked.topics[1].tails
    tail.has_chunks = True
    tail._on_arrival()  # as when what lies up to the end has come
    tracked.after(0.0)
    assert set(tracked.chunks) == {TOPICS[1], TOPICS[2]}


@pytest.mark.parametrize("error", [DeadlineError("late"), ConnectError("cut")])
def test_a_broker_that_is_silent_is_asked_again(tracked, error, caplog):
    tracked.failing = {TOPICS[0]: error}
    with caplog.at_level(logging.WARNING):
        asked, answers, gone = tracked.after(0.1)
    assert (asked, sorted(answers), gone) == (TOPICS, TOPICS[1:], [])
    assert "the broker is asked again" in caplog.text
    assert tracked.after(0.01)[0] == [], "not at once"
    tracked.after(0.1)
    assert len(caplog.records) == 1
    failing, tracked.failing = tracked.failing, {}
    assert sorted(tracked.after(0.1)[1]) == TOPICS
    tracked.failing = failing
    tracked.after(30.0)
    assert len(caplog.records) == 2, "once each time"


def test_a_partition_that_is_gone_is_told(tracked):
    tracked.failing = {TOPICS[0]: TopicNotFoundError("gone")}
    assert tracked.after(0.1)[2] == [TOPICS[0]]


def test_a_broker_that_refuses_is_an_error(tracked):
    tracked.failing = {TOPICS[0]: AuthError("no")}
    with pytest.raises(AuthError):
        tracked.after(0.1)


def test_a_partition_that_cannot_have_a_tail_is_asked_again_and_again(tracked, caplog):
    tracked.cluster.failing = {TOPICS[0]: ConnectError("cut")}
    with caplog.at_level(logging.INFO):
        tracked.after(0.3)
    assert "its end is requested regularly" in caplog.text
    assert tracked.cluster.open_readers == 2
    tracked.topics[1].produce()
    assert tracked.after(0.1)[0] == [TOPICS[0], TOPICS[1]]
    assert tracked.after(0.1)[0] == [TOPICS[0]], "the tails of the others follow"


def test_a_tail_that_cannot_be_opened_is_tried_again_after_pauses_that_grow(tracked, monkeypatch):
    real, tried = tracked.cluster.open_tail, []

    def refuse(topic, after, on_arrival):
        if topic == TOPICS[0]:
            tried.append(tracked.cluster.clock)
            raise SubscriptionLimitError("too many")
        return real(topic, after, on_arrival)

    monkeypatch.setattr(tracked.cluster, "open_tail", refuse)
    asked = 0
    for _ in range(200):
        asked += TOPICS[0] in tracked.after(1.0)[0]
    assert asked == 200, "its end is requested meanwhile"
    assert [after - before for before, after in pairwise(tried)] == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]
    tracked.drop(TOPICS[0])
    tracked.add(TOPICS[0])
    tried.clear()
    tracked.after(1.0)
    assert tried == [tracked.cluster.clock], "another topic of that name does not wait"


def test_a_tail_that_is_slow_to_open_holds_nobody_up_and_misses_nothing(tracked, monkeypatch):
    real, opening, tried = tracked.cluster.open_tail, threading.Event(), []

    def open_slowly(topic, after, on_arrival):
        tail = real(topic, after, on_arrival)
        if topic == TOPICS[0]:
            tried.append(topic)
            opening.wait(HANG)
        return tail

    monkeypatch.setattr(tracked.cluster, "open_tail", open_slowly)
    monkeypatch.setattr(ends, "PROMPT", 0.01)
    place = None
    for _ in range(20):
        tracked.after(0.3)
    (place,) = tracked.topics[0].produce(1)
    assert tracked.after(0.3)[1][TOPICS[0]] == place
    assert tried == TOPICS[:1]
    (place,) = tracked.topics[0].produce(1)
    (tail,) = tracked.topics[0].tails
    tail._came, tail.follow = place, lambda end: True  # nothing reports it again
    opening.set()
    wait_until(lambda: not tracked.calls[Kind.TAIL].busy)
    assert tracked.after(0.01)[0] == [], "the tail is taken"
    assert tracked.after(0.1)[1] == {TOPICS[0]: place}
    wait_until(lambda: not tracked.calls[Kind.TAIL].busy)
    assert tried == TOPICS[:1], "the one that was slow is used, and no other is opened"
    for topic in TOPICS:
        tracked.drop(topic)
    assert tracked.cluster.open_readers == 0


def test_what_came_to_a_tail_that_is_slow_to_open_is_asked_for(tracked, monkeypatch):
    real, opening = tracked.cluster.open_tail, threading.Event()

    def open_slowly(topic, after, on_arrival):
        tail = real(topic, after, on_arrival)
        opening.wait(HANG)
        return tail

    monkeypatch.setattr(tracked.cluster, "open_tail", open_slowly)
    monkeypatch.setattr(ends, "PROMPT", 0.01)
    tracked.after(0.3)
    before = tracked.answer(TOPICS[0])
    (place,) = tracked.topics[0].produce(1)
    opening.set()
    wait_until(lambda: not tracked.calls[Kind.TAIL].busy)
    tracked.failing = {TOPICS[0]: before}  # an answer that was made before the entry came
    assert tracked.after(0.3)[1][TOPICS[0]] == before.last
    tracked.failing = {}
    assert tracked.after(0.06) == ([TOPICS[0]], {TOPICS[0]: place}, [])


def test_a_tail_that_opens_too_late_is_closed(tracked, monkeypatch):
    real, opening = tracked.cluster.open_tail, threading.Event()

    def open_slowly(topic, after, on_arrival):
        opening.wait(HANG)
        return real(topic, after, on_arrival)

    monkeypatch.setattr(tracked.cluster, "open_tail", open_slowly)
    monkeypatch.setattr(ends, "PROMPT", 0.01)
    tracked.after(0.3)
    for topic in TOPICS:
        tracked.drop(topic)
    opening.set()
    wait_until(lambda: not tracked.calls[Kind.TAIL].busy and not tracked.cluster.open_readers)
    assert tracked.cluster.count("tail") == 3
