"""Chunk probes: what a subscription acknowledges where there are chunked messages, or may be."""

import threading
from types import SimpleNamespace

import pytest

from pulsar_spark.client import Kind
from pulsar_spark.errors import AuthError, DeadlineError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.plan import acknowledge
from tests.client.clients import wait_until
from tests.spark.plan.subscriptions import P0, P1, P2, ask, mark, marks, opened, processed, three_partitions


@pytest.fixture
def cluster():
    return three_partitions()


def test_partitions_are_probed_for_chunks_before_they_are_acknowledged(cluster):
    subscription = opened(cluster)
    cluster.topics[P1].produce(2, chunks=True)
    processed(subscription, 2)
    subscription.acknowledge_processed(60.0)
    assert [cluster.count("chunks", each) for each in (P0, P1, P2)] == [1, 1, 1]
    assert marks(cluster) == [2, 2, 2]
    for state in subscription.partitions.values():
        state.last = MessageId(10, 4)
    processed(subscription, 4)
    subscription.acknowledge_processed(60.0)
    assert mark(cluster, P1).entry == 2, "chunks are held"
    assert mark(cluster, P0).entry == 4
    cluster.clock += 60.0
    subscription.acknowledge_processed(60.0)
    assert mark(cluster, P1).entry == 2, "what came meanwhile is not known"
    ask(subscription, [P1])
    subscription.acknowledge_processed(60.0)
    assert mark(cluster, P1).entry == 4
    assert cluster.count("chunks", P1) == 2, "it is known"
    assert cluster.count("probe", P1) == 1, "it is dated once"


@pytest.mark.parametrize(("published", "acknowledged"), [(60, -1), (61, 2), (10_000, 2), (-5, -1)])
def test_where_chunks_were_met_publish_times_decide(cluster, published, acknowledged):
    subscription = opened(cluster)
    subscription.partitions[P0].meet_chunks()
    cluster.topics[P0].produce(1, time=1000 * published)
    processed(subscription, 2)
    subscription.acknowledge_processed(60.0)
    cluster.clock += 500.0
    subscription.partitions[P0].last = MessageId(10, 3)
    processed(subscription, 3)
    subscription.acknowledge_processed(60.0)
    assert mark(cluster).entry == acknowledged


def test_a_fast_clock_does_not_expire_the_chunks_of_others(cluster):
    subscription = opened(cluster)
    cluster.topics[P0].produce(1, time=1_000_000)
    cluster.topics[P0].produce(1, time=9_000_000)
    subscription.partitions[P0].last = MessageId(10, 4)
    subscription.partitions[P0].meet_chunks()
    for entry in (3, 4):
        processed(subscription, entry)
        subscription.acknowledge_processed(60.0)
    assert mark(cluster).entry == -1


def test_an_answer_that_is_late_shows_no_silence_before_it_is_taken_in(cluster):
    """The last chunk of a message may have come with it."""
    subscription = opened(cluster)
    cluster.topics[P0].produce(1, chunks=True)
    subscription.partitions[P0].meet_chunks()
    processed(subscription, 2)
    subscription.acknowledge_processed(60.0)
    cluster.clock += 60.0
    late = cluster.stalled[P0] = threading.Event()
    assert ask(subscription, [P0], 0.0) == {}
    cluster.topics[P0].produce(1)
    late.set()
    wait_until(lambda: not subscription.silent)
    subscription.acknowledge_processed(60.0)
    assert mark(cluster).entry == -1
    assert ask(subscription, [P0], 0.0).keys() == {P0}
    assert subscription.partitions[P0].asked_at == cluster.clock


def test_chunks_that_never_expire_are_held_with_a_warning(cluster, caplog):
    subscription = opened(cluster)
    subscription.partitions[P0].meet_chunks()
    for _ in range(3):
        cluster.clock += 1000.0
        ask(subscription, [P0, P1])
        processed(subscription, 2)
        subscription.acknowledge_processed(0.0)
    assert [mark(cluster, each).entry for each in (P0, P1)] == [-1, 2]
    assert cluster.count("probe", P0) == cluster.count("chunks", P0) == 0, "no reader for nothing"
    assert caplog.text.count("it is not acknowledged any more") == 1
    assert "partition-0" in caplog.text


def test_what_cannot_be_dated_is_tried_again(cluster, monkeypatch):
    def fail(*_):
        raise AuthError("no")

    subscription = opened(cluster)
    subscription.partitions[P0].meet_chunks()
    processed(subscription, 2)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "probe_entry", fail)
        subscription.acknowledge_processed(60.0)
    subscription.acknowledge_processed(60.0)
    assert cluster.count("probe", P0) == 0, "not at once"
    cluster.clock += 1.0
    subscription.acknowledge_processed(60.0)
    assert cluster.count("probe", P0) == 1
    assert mark(cluster).entry == -1


def test_chunks_that_a_probe_meets_are_held_though_nothing_dates_them(cluster, monkeypatch):
    def fail(*_):
        raise AuthError("no")

    subscription = opened(cluster)
    first, _ = cluster.topics[P0].produce(2, chunks=True)
    subscription.partitions[P0].last = MessageId(10, 4)
    monkeypatch.setattr(cluster, "probe_entry", fail)
    processed(subscription, 4)
    for _ in range(2):
        subscription.acknowledge_processed(60.0)
    assert mark(cluster) < first


@pytest.mark.parametrize(
    ("error", "is_acknowledged"), [(DeadlineError("late"), False), (AuthError("no"), True)]
)
def test_what_cannot_be_probed_now_is_acknowledged_later(cluster, monkeypatch, error, is_acknowledged):
    def fail(*_):
        raise error

    subscription = opened(cluster)
    processed(subscription, 2)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "has_chunks_before", fail)
        subscription.acknowledge_processed(60.0)
    assert (mark(cluster).entry == 2) is is_acknowledged
    cluster.clock += 1.0
    subscription.acknowledge_processed(60.0)
    assert mark(cluster).entry == 2


def test_within_a_ledger_one_probe_is_enough_until_its_end(cluster):
    subscription = opened(cluster)
    for entry in (0, 1):
        processed(subscription, entry)
        assert subscription.acknowledge_processed(60.0)
        assert mark(cluster).entry == entry
    assert cluster.count("chunks", P0) == 1
    processed(subscription, 2)
    assert not subscription.acknowledge_processed(60.0, is_polled=True)
    assert mark(cluster).entry == 1, "a tail is waited for"
    cluster.clock += 1.0
    assert subscription.acknowledge_processed(60.0, is_polled=True)
    assert mark(cluster).entry == 2
    assert cluster.count("chunks", P0) == 2


def test_what_a_tail_has_seen_is_not_probed(cluster):
    subscription = opened(cluster)
    processed(subscription, 2)
    for topic, reached in ((P0, 2), (P1, 1)):
        subscription.partitions[topic].tail = SimpleNamespace(
            after=MessageId(10, -1), reached=MessageId(10, reached)
        )
    assert not subscription.acknowledge_processed(60.0, is_polled=True)
    assert marks(cluster) == [2, -1, -1]
    assert cluster.count("chunks") == 0


def test_probes_for_chunks_without_an_answer_hold_nobody_up(cluster, monkeypatch):
    monkeypatch.setattr(acknowledge, "PROMPT", 0.01)
    subscription = opened(cluster)
    answered, real, tried = threading.Event(), cluster.has_chunks_before, []

    def take_long(topic, position, entries):
        if topic == P1:
            tried.append(topic)
            answered.wait(60)
        return real(topic, position, entries)

    monkeypatch.setattr(cluster, "has_chunks_before", take_long)
    processed(subscription, 1)
    wait_until(lambda: subscription.acknowledge_processed(60.0) or marks(cluster) == [1, -1, 1])
    for _ in range(20):
        assert not subscription.acknowledge_processed(60.0)
    assert marks(cluster) == [1, -1, 1]
    assert len(tried) == 1
    processed(subscription, 2)
    answered.set()
    wait_until(lambda: not subscription._calls[Kind.CHUNKS].busy)
    subscription.acknowledge_processed(60.0)
    assert mark(cluster, P1).entry == 1, "what was probed is acknowledged, and no more"
