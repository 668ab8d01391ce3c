"""QuietTime: when triggers have nothing to do, and how long they wait then."""

import pytest

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.ends import QuietTime
from pulsar_spark.spark.plan.offsets import Offsets

T = TopicName.parse("t")
START = Offsets("s", {T: MessageId(1, 1)})
PARTITIONS = [T]


@pytest.fixture
def quiet():
    found = QuietTime()
    found.begin(START, PARTITIONS, 110.0, limited=True)
    return found


def test_it_lasts_while_all_is_the_same_object_and_nothing_is_due(quiet):
    assert quiet.lasts(START, PARTITIONS, 109.9, limited=True)
    assert not quiet.lasts(START, PARTITIONS, 110.0, limited=True)
    assert not quiet.lasts(START, PARTITIONS, 100.0, limited=False)
    assert not quiet.lasts(START, [T], 100.0, limited=True)
    assert not quiet.lasts(Offsets("s", {T: MessageId(1, 1)}), PARTITIONS, 100.0, limited=True)
    quiet.end()
    assert not quiet.lasts(START, PARTITIONS, 100.0, limited=True)
    assert not QuietTime().lasts(START, PARTITIONS, 100.0, limited=True)


def test_the_more_partitions_the_longer_a_trigger_waits(quiet):
    assert QuietTime().seconds_to_wait(100.0) == 0.0
    quiet.trigger(START, 99.0)
    assert quiet.seconds_to_wait(99.0) == 0.0
    quiet.trigger(START, 99.5)
    assert quiet.seconds_to_wait(100.0) == 0.05
    assert quiet.seconds_to_wait(109.99) == pytest.approx(0.01)
    assert quiet.seconds_to_wait(120.0) == 0.0
    for count, seconds in ((100, 0.05), (500, 0.075), (1000, 0.15), (10_000, 0.5)):
        quiet.begin(START, [T] * count, 110.0, limited=True)
        assert quiet.seconds_to_wait(100.0) == pytest.approx(seconds)
    quiet.end()
    assert quiet.seconds_to_wait(100.0) == 0.0


def test_triggers_that_follow_one_another_at_once(quiet):
    assert not quiet.is_polled
    quiet.trigger(START, 100.0)
    assert not quiet.is_polled
    quiet.trigger(START, 100.9)
    assert quiet.is_polled
    quiet.trigger(Offsets("s", {}), 150.0)
    assert quiet.is_polled, "a batch may take long"
    quiet.trigger(START, 151.0)
    assert not quiet.is_polled
