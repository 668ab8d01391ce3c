"""EndTracker: when a partition is asked, as a table, and its watches on a cluster in memory."""

import logging

import pytest

from pulsar_spark.client import LastMessageId
from pulsar_spark.errors import AuthError, ConnectError, DeadlineError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.ends import EndSchedule, EndTracker
from tests.spark.plan.simulated_cluster import SimulatedCluster

T = TopicName.parse("t")
TOPICS = [T.of_partition(number) for number in range(3)]


@pytest.mark.parametrize(
    ("seconds", "has_news", "due"),
    [
        (0.04, None, False),
        (0.04, True, False),
        (0.05, None, True),
        (0.05, True, True),
        (0.05, False, False),
        (9.9, False, False),
        (10.0, False, True),
    ],
)
def test_when_a_partition_is_asked(seconds, has_news, due):
    schedule = EndSchedule.of(MessageId(1, 1), 100.0)
    schedule.watched(100.0, partitions=3)
    assert schedule.is_due(100.0 + seconds, has_news=has_news) is due


def test_of_many_partitions_each_is_asked_less_often():
    schedule = EndSchedule.of(MessageId(1, 1), 0.0)
    schedule.watched(0.0, partitions=100)
    assert not schedule.is_due(49.0, has_news=False)
    assert schedule.is_due(50.0, has_news=False)


def test_a_partition_is_idle_when_no_message_came_for_a_while():
    schedule = EndSchedule.of(MessageId(1, 1), 0.0)
    schedule.answered(MessageId(1, 1), 0.2)
    assert not schedule.is_idle(0.24)
    assert schedule.is_idle(0.25)
    schedule.answered(MessageId(1, 2), 0.25)
    assert not schedule.is_idle(0.49)
    assert schedule.is_idle(0.5)


class Tracked:
    """A tracker of three partitions, and what it asked and met."""

    def __init__(self):
        self.cluster = SimulatedCluster()
        self.topics = self.cluster.create("t", 3)
        self.failing = {}
        self.asked = []
        self.chunks = []
        self.tracker = EndTracker(self.cluster, self.ask, self.chunks.append)
        self.tracker.add({topic: self.answer(topic) for topic in TOPICS})

    def answer(self, topic):
        return LastMessageId(self.cluster.topics[topic].last, MessageId(10, -1))

    def ask(self, topics):
        self.asked = list(topics)
        return {topic: self.failing.get(topic) or self.answer(topic) for topic in topics}

    def after(self, seconds):
        """What a refresh after some seconds asks, gives and finds gone."""
        self.cluster.clock += seconds
        self.asked = []
        answers, gone = self.tracker.refresh()
        self.tracker.renew_watches(list(answers))
        return self.asked, {topic: each.last for topic, each in answers.items()}, list(gone)


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
    (place,) = tracked.topics[1].produce()
    assert tracked.after(0.06) == ([TOPICS[1]], {TOPICS[1]: place}, [])
    assert tracked.cluster.open_readers == 2, "a watch is used once"
    assert tracked.after(0.06)[0] == [TOPICS[1]]
    assert tracked.after(0.25)[0] == [TOPICS[1]]
    assert tracked.cluster.open_readers == 3
    assert tracked.chunks == []
    tracked.tracker.drop(TOPICS[0])
    assert tracked.cluster.open_readers == 2
    assert tracked.after(11.0)[0] == TOPICS[1:]
    tracked.tracker.close()
    assert tracked.cluster.open_readers == 0
    assert tracked.after(60.0) == ([], {}, [])


def test_chunks_that_wake_a_partition_are_reported(tracked):
    tracked.after(0.3)
    tracked.topics[2].produce(2, chunks=True)
    tracked.after(0.1)
    assert tracked.chunks == [TOPICS[2]]


@pytest.mark.parametrize("error", [DeadlineError("late"), ConnectError("cut")])
def test_a_broker_that_is_silent_is_asked_again(tracked, error, caplog):
    tracked.failing = {TOPICS[0]: error}
    with caplog.at_level(logging.WARNING):
        asked, answers, gone = tracked.after(0.1)
    assert (asked, sorted(answers), gone) == (TOPICS, TOPICS[1:], [])
    assert "it is asked again" in caplog.text
    assert tracked.after(0.01)[0] == [], "not at once"
    tracked.failing = {}
    assert sorted(tracked.after(0.1)[1]) == TOPICS


def test_a_partition_that_is_gone_is_told(tracked):
    tracked.failing = {TOPICS[0]: TopicNotFoundError("gone")}
    assert tracked.after(0.1)[2] == [TOPICS[0]]


def test_a_broker_that_refuses_is_an_error(tracked):
    tracked.failing = {TOPICS[0]: AuthError("no")}
    with pytest.raises(AuthError):
        tracked.after(0.1)


def test_a_partition_that_cannot_be_watched_is_asked_again_and_again(tracked, caplog):
    tracked.cluster.failing = {TOPICS[0]: ConnectError("cut")}
    with caplog.at_level(logging.INFO):
        tracked.after(0.3)
    assert "cannot be watched" in caplog.text
    assert tracked.cluster.open_readers == 2
    assert tracked.after(0.1)[0] == [TOPICS[0]]
