"""How old what waits is, on topics in memory."""

import pytest

from pulsar_spark.errors import ConnectError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.source_reporter import OldestMessages, Waiting

T = TopicName.parse("t")
BEGIN = MessageId(10, -1)
NOW = 1_700_000_000_000


@pytest.fixture
def oldest(cluster):
    return OldestMessages(cluster)


def refresh(oldest, topic, position, seconds):
    """A trigger of a query of one partition, which is processed up to ``position``; the time in seconds."""
    oldest.refresh({T: Waiting(position, topic.last)}, NOW + seconds * 1000)
    found = oldest.time_ms(T)
    return None if found is None else (found - NOW) / 1000


def test_the_first_message_is_probed_when_a_query_begins(cluster, topic, oldest):
    topic.produce(time=NOW - 3_600_000)
    topic.produce(3, time=NOW)
    assert refresh(oldest, topic, BEGIN, 1) == -3600
    assert cluster.open_readers == 0
    assert cluster.count("probe entries") == 1
    assert refresh(oldest, topic, BEGIN, 100) == -3600, "a query that does not go on"
    assert cluster.count("probe entries") == 1


def test_it_follows_a_query_that_catches_up(cluster, topic, oldest):
    ids = [*topic.produce(time=NOW - 60_000), *topic.produce(time=NOW - 30_000), *topic.produce(time=NOW)]
    assert [refresh(oldest, topic, position, 1) for position in (BEGIN, *ids[:2])] == [-60, -30, 0]
    assert refresh(oldest, topic, ids[2], 2) is None


def test_what_comes_in_less_than_a_second_is_not_probed(cluster, topic, oldest):
    assert refresh(oldest, topic, BEGIN, 0) is None
    last = BEGIN
    for trigger in range(1, 6):
        topic.produce(time=NOW + trigger * 500)
        assert refresh(oldest, topic, last, trigger * 0.5) == (trigger - 1) * 0.5, "the trigger before"
        last = topic.last
    assert cluster.count("probe entries") == 0


def test_what_comes_in_a_long_micro_batch_is_probed(cluster, topic, oldest):
    assert refresh(oldest, topic, BEGIN, 0) is None
    topic.produce(time=NOW + 19_000)
    assert refresh(oldest, topic, BEGIN, 20) == 19
    assert cluster.count("probe entries") == 1


def test_a_producer_cannot_choose_a_time_before_what_was_processed_or_in_the_future(topic, oldest):
    assert refresh(oldest, topic, BEGIN, 0) is None
    topic.produce(time=1)
    assert refresh(oldest, topic, BEGIN, 20) == 0
    (second,) = topic.produce(time=NOW + 10**9)
    assert refresh(oldest, topic, MessageId(second.ledger, second.entry - 1), 30) == 30


def test_of_many_partitions_those_that_keep_up_are_not_probed(cluster, oldest):
    partitions = [T.of_partition(number) for number in range(9)]
    topics = dict(zip(partitions, cluster.create("t", 9), strict=True))
    oldest.refresh({each: Waiting(BEGIN, BEGIN) for each in partitions}, NOW)
    for each in topics.values():
        each.produce(time=NOW + 20_000)
    oldest.refresh({each: Waiting(BEGIN, topics[each].last) for each in partitions}, NOW + 20_000)
    assert {oldest.time_ms(each) for each in partitions} == {NOW}
    assert cluster.count("probe entries") == 0
    few = partitions[:8]
    oldest.refresh({each: Waiting(BEGIN, topics[each].last) for each in few}, NOW + 21_000)
    assert {oldest.time_ms(each) for each in few} == {NOW + 20_000}


def test_unknown_ones_of_many_partitions_are_probed_in_turns(cluster, oldest):
    partitions = [T.of_partition(number) for number in range(20)]
    topics = dict(zip(partitions, cluster.create("t", 20), strict=True))
    for number, each in enumerate(topics.values()):
        each.produce(time=NOW + number)
    waiting = {each: Waiting(BEGIN, topics[each].last) for each in partitions}
    known = []
    for _ in range(3):
        oldest.refresh(waiting, NOW + 10_000)
        known.append(sum(oldest.time_ms(each) is not None for each in partitions))
    assert known == [8, 16, 20]


@pytest.mark.parametrize("error", [ConnectError("gone"), RuntimeError("a bug")])
def test_a_probe_that_fails_is_made_again_after_a_pause(cluster, topic, oldest, error):
    topic.produce(time=NOW)
    cluster.failing[T] = error
    assert refresh(oldest, topic, BEGIN, 10) is None
    cluster.failing.clear()
    cluster.clock += 0.9
    assert refresh(oldest, topic, BEGIN, 20) is None
    cluster.clock += 0.2
    assert refresh(oldest, topic, BEGIN, 20) == 0


def test_what_is_not_read_any_more_is_forgotten(topic, oldest):
    topic.produce(time=NOW)
    assert refresh(oldest, topic, BEGIN, 10) == 0
    oldest.forget([T])
    assert oldest.time_ms(T) is None
