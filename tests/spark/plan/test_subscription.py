"""Subscription on a cluster in memory: opening, putting back, acknowledging, leaving."""

import threading
from itertools import pairwise

import pytest

from pulsar_spark.client import Calls, Kind, LastMessageId
from pulsar_spark.errors import AuthError, BusyError, ConnectError, DeadlineError, NotReadyError
from pulsar_spark.ids import MessageId
from pulsar_spark.spark.options.source import SubscriptionSettings
from pulsar_spark.spark.plan import subscription as plan_subscription
from pulsar_spark.spark.plan.subscription import Subscription
from tests.client.clients import wait_until
from tests.spark.plan.subscriptions import (
    EARLIEST,
    LATEST,
    P0,
    P1,
    P2,
    ask,
    mark,
    marks,
    opened,
    processed,
    three_partitions,
)


@pytest.fixture
def cluster():
    return three_partitions()


def test_a_new_subscription_begins_where_it_is_told(cluster):
    states = Subscription(cluster, Calls(), "s").open({P0: EARLIEST, P1: LATEST})
    assert states[P0].mark_delete == MessageId(10, -1)
    assert states[P1].mark_delete == MessageId(10, 2)


def test_a_partition_that_the_broker_removed_as_idle_is_made_again(cluster):
    del cluster.topics[P0]
    assert list(opened(cluster).partitions) == [P0, P1, P2]


def test_the_end_of_a_segment_is_looked_for_after_what_is_processed(cluster, monkeypatch):
    """A broker that repeats an old answer, and is slow, would seem to have lost what is processed."""
    monkeypatch.setattr(cluster, "may_have_old_end", (P0, P1).__contains__)
    monkeypatch.setattr(cluster, "visible_end", lambda topic, told, seen: seen)
    subscription = Subscription(cluster, Calls(), "s", processed={P0: MessageId(10, 1, 0)})
    answers = subscription.open({P0: EARLIEST, P1: EARLIEST})
    assert [answers[each].last for each in (P0, P1)] == [MessageId(10, 1), MessageId.EARLIEST.whole_entry]
    subscription.partitions[P1].last = MessageId(10, 7)
    assert ask(subscription, [P1])[P1].last == MessageId(10, 7)


def test_one_that_another_query_has_is_named(cluster):
    cluster.topics[P1].held.add("s")
    with pytest.raises(BusyError, match=r"'s' is in use.*partition-1.*choose another"):
        opened(cluster)
    cluster.topics[P1].held.clear()
    cluster.failing[P1] = AuthError("no")
    with pytest.raises(AuthError, match="partition-1"):
        opened(cluster)


def test_what_the_broker_is_told_of_it(cluster, monkeypatch):
    asked = []
    subscribe = cluster.subscribe
    monkeypatch.setattr(
        cluster, "subscribe", lambda topic, options: asked.append(options) or subscribe(topic, options)
    )
    opened(cluster, settings=SubscriptionSettings((("team", "sales"),), is_replicated=False)).close()
    opened(cluster)
    found = [(each.properties, each.is_replicated) for each in asked]
    assert found == [((("team", "sales"),), False)] * 3 + [((), None)] * 3


def test_where_it_is_missing(cluster):
    opened(cluster).close()
    del cluster.topics[P1].cursors["s"]
    del cluster.topics[P2]
    subscription = Subscription(cluster, Calls(), "s")
    assert subscription.missing([P0, P1, P2]) == {P1, P2}
    cluster.failing[P0] = DeadlineError("late")
    with pytest.raises(DeadlineError, match="partition-0"):
        subscription.missing([P0, P1, P2])


def test_a_partition_without_an_answer_holds_nobody_up(cluster):
    subscription = opened(cluster)
    answered = cluster.stalled[P1] = threading.Event()
    try:
        while (found := ask(subscription, [P0, P1, P2], 0.01)).keys() != {P0, P2}:
            pass
        assert subscription.silent == {P1}
        assert ask(subscription, [P1, P0, P2], 0.0).keys() == {P0, P2}
        assert subscription.backlogs([P0, P1]) == {P0: 3}
        processed(subscription, 2)
        subscription.acknowledge_processed(60.0)
        assert marks(cluster) == [2, -1, 2]
    finally:
        answered.set()
    del cluster.stalled[P1]
    while P1 not in (found := ask(subscription, [], 60.0)):
        pass
    assert found[P1].last == MessageId(10, 2)
    assert subscription.silent == set()
    assert subscription.partitions[P1].asked_at > 0


@pytest.mark.parametrize("how", ["drop", "close", "unsubscribe"])
def test_one_that_is_closed_under_a_question_is_closed_after_it(cluster, monkeypatch, caplog, how):
    subscription = opened(cluster)
    answered = cluster.stalled[P1] = threading.Event()
    closed = threading.Event()
    monkeypatch.setattr(subscription.partitions[P1].consumer, "begin_close", closed.set)
    ask(subscription, [P1], 0.0)
    if how == "drop":
        subscription.drop(P1)
    else:
        getattr(subscription, how)()
    assert not closed.is_set()
    answered.set()
    assert closed.wait(60)
    assert ("cannot be removed" in caplog.text) is (how == "unsubscribe")


def test_backlogs_of_partitions_whose_broker_answers(cluster):
    subscription = opened(cluster)
    cluster.failing[P1] = DeadlineError("late")
    assert subscription.backlogs([P0, P1, P2]) == {P0: 3, P2: 3}


def test_positions_are_acknowledged_where_that_is_new(cluster):
    subscription = opened(cluster)
    subscription.acknowledge({P0: MessageId(10, 1), P1: MessageId(10, 2, 0), P2: MessageId(10, 0, 0)})
    assert marks(cluster) == [1, 1, -1]
    subscription.acknowledge({P0: MessageId(10, 1), P1: MessageId(10, 0)})
    assert cluster.count("ack") == 2


def test_one_that_was_put_back_is_acknowledged_anew(cluster):
    subscription = opened(cluster)
    subscription.acknowledge({P0: MessageId(10, 2)})
    subscription.put_back(P0, MessageId(10, 1))
    assert mark(cluster) == subscription.partitions[P0].start == MessageId(10, 0)
    subscription.acknowledge({P0: MessageId(10, 2)})
    assert mark(cluster) == MessageId(10, 2)
    subscription.put_back(P0, MessageId(10, -1))
    assert ("seek", P0, MessageId.EARLIEST) in cluster.requests


def test_one_that_skips_to_the_end_holds_nothing_up_to_it(cluster):
    subscription = opened(cluster)
    cluster.topics[P0].produce(1)
    answer = ask(subscription, [P0])[P0]
    subscription.partitions[P0].position = MessageId(20, 5)
    subscription.skip_to_end(P0, answer)
    state = subscription.partitions[P0]
    assert mark(cluster) == state.start == state.position == state.last == MessageId(10, 3)
    assert mark(cluster, P1) == MessageId(10, -1)


def test_it_is_removed_where_that_is_possible(cluster, caplog):
    subscription = opened(cluster)
    cluster.failing[P1] = DeadlineError("late")
    subscription.unsubscribe()
    cluster.failing.clear()
    assert [bool(cluster.topics[each].cursors) for each in (P0, P1, P2)] == [False, True, False]
    assert "partition-1" in caplog.text
    assert subscription.partitions == {}


def test_it_is_removed_from_one_partition(cluster, caplog):
    subscription = opened(cluster)
    cluster.failing[P1] = DeadlineError("late")
    for topic in (P0, P1):
        subscription.remove(topic)
    assert [bool(cluster.topics[each].cursors) for each in (P0, P1, P2)] == [False, True, True]
    assert list(subscription.partitions) == [P1, P2]
    assert caplog.text.count("cannot be removed from topic") == 1
    assert str(P1) in caplog.text


def test_a_partition_may_be_dropped_twice(cluster):
    subscription = opened(cluster)
    subscription.drop(P0)
    subscription.drop(P0)
    assert list(subscription.partitions) == [P1, P2]


# ---- partitions that do not answer


def test_an_ack_without_an_answer_holds_nobody_up_and_is_sent_again_after_pauses(cluster, monkeypatch):
    monkeypatch.setattr(plan_subscription, "PROMPT", 0.01)
    subscription = opened(cluster)
    held = cluster.held["ack", P1] = []
    processed(subscription, 2)
    wait_until(lambda: subscription.acknowledge_processed(60.0) or marks(cluster) == [2, -1, 2])
    for _ in range(20):
        assert not subscription.acknowledge_processed(60.0)
    assert marks(cluster) == [2, -1, 2]
    assert len(held) == 1, "it is pending"
    times = []
    for number in range(6):
        held[number].set_exception(DeadlineError("late"))
        while len(held) == number + 1:
            cluster.clock += 0.5
            for _ in range(3):  # what one call asks, the next one takes
                subscription.acknowledge_processed(60.0)
                wait_until(lambda: not (subscription.silent or subscription._calls[Kind.CHUNKS].busy))
        times.append(cluster.clock)
        assert cluster.count("lose", P1) == number + 1, "the broker may have lost the consumer"
        assert subscription.silent == set(), "it is read meanwhile"
    assert [round(after - before) for before, after in pairwise(times)] == [2, 4, 8, 16, 30]
    held[-1].set_result(MessageId(10, 2))
    assert subscription.acknowledge_processed(60.0)
    assert subscription.partitions[P1].acknowledged == MessageId(10, 2)


def test_an_ack_that_fails_is_warned_of_once(cluster, caplog, monkeypatch):
    monkeypatch.setattr(plan_subscription, "PROMPT", 0.01)
    subscription = opened(cluster)
    held = cluster.held["ack", P1] = []
    refused = AuthError("no")
    for answer, warnings in ((refused, 1), (refused, 1), (MessageId(10, 1), 1), (refused, 2), (refused, 2)):
        subscription.acknowledge({P1: MessageId(10, 2)})
        (held[-1].set_result if answer is not refused else held[-1].set_exception)(answer)
        subscription.acknowledge_processed(60.0)
        cluster.clock += 30.0
        assert caplog.text.count("an acknowledgement") == warnings
    assert str(P1) in caplog.text
    assert cluster.count("lose") == 0, "the broker has its consumer"


def test_the_ack_of_a_consumer_that_was_closed_is_sent_again_at_once(cluster):
    subscription = opened(cluster)
    processed(subscription, 2)
    asked = cluster.count("last", P1)
    cluster.refused["ack", P1] = NotReadyError("the broker closed the consumer")
    assert subscription.acknowledge_processed(60.0)
    assert marks(cluster) == [2, 2, 2]
    assert cluster.count("last", P1) == asked + 1, "that opens it again"
    assert ask(subscription, []).keys() == {P1}, "and nothing is lost"


def test_answers_that_come_while_consumers_are_opened_again_are_given_later(cluster):
    subscription = opened(cluster)
    cluster.held["last message", P1] = []
    ask(subscription, [P1], 0.0)
    (request,) = cluster.held.pop(("last message", P1))
    request.set_result(LastMessageId(MessageId(10, 2), MessageId(10, -1)))
    for topic in (P0, P2):
        cluster.refused["ack", topic] = NotReadyError("the broker closed the consumer")
        subscription.acknowledge({topic: MessageId(10, 1)})
    assert ask(subscription, [], 0.0).keys() == {P0, P1, P2}


def test_a_backlog_that_is_not_counted_holds_nobody_up(cluster, monkeypatch):
    monkeypatch.setattr(plan_subscription, "PROMPT", 0.01)
    subscription = opened(cluster)
    held = cluster.held["backlog", P1] = []
    for _ in range(20):
        assert subscription.backlogs([P0, P1, P2]) == {P0: 3, P2: 3}
    assert len(held) == 1
    held[0].set_result(7)
    assert subscription.backlogs([P0, P1, P2]) == {P0: 3, P1: 7, P2: 3}


def test_a_request_without_an_answer_takes_no_thread_and_is_sent_once(cluster):
    subscription = opened(cluster)
    held = {topic: cluster.held.setdefault(("last message", topic), []) for topic in (P0, P1, P2)}
    before = set(threading.enumerate())
    for _ in range(20):
        assert ask(subscription, [P0, P1, P2], 0.0) == {}
    assert [len(each) for each in held.values()] == [1, 1, 1]
    assert set(threading.enumerate()) == before
    assert subscription.silent == {P0, P1, P2}
    answer = LastMessageId(MessageId(10, 2), MessageId(10, -1))
    held[P1][0].set_result(answer)
    assert ask(subscription, [P0, P1, P2], 0.0) == {P1: answer}
    held[P0][0].set_exception(ConnectError("cut"))
    wait_until(lambda: subscription.silent == {P2})
    found = ask(subscription, [], 0.0)
    assert found[P0].last == MessageId(10, 2), "it is opened again, and asked, on a thread"
    held[P2][0].set_result(answer)


def test_new_partitions_that_are_slow_to_open_are_given_later(cluster, monkeypatch):
    subscription, opening, real = Subscription(cluster, Calls(), "s"), threading.Event(), cluster.subscribe

    def subscribe(topic, options):
        if topic == P1:
            opening.wait(60)
        return real(topic, options)

    monkeypatch.setattr(cluster, "subscribe", subscribe)
    wanted = dict.fromkeys((P0, P1), EARLIEST)
    opened_now = subscription.try_open(wanted, 0.01).opened
    while not opened_now:
        opened_now = subscription.try_open(wanted, 0.01).opened
    assert opened_now.keys() == subscription.partitions.keys() == {P0}
    assert subscription.openings.has_more
    opening.set()
    wait_until(lambda: not subscription.openings.busy)
    assert subscription.openings.has_more, "a result is to be taken"
    assert subscription.try_open({}, 0.0).opened.keys() == {P1}
    assert subscription.partitions.keys() == {P0, P1}
    assert not subscription.openings.has_more


@pytest.mark.parametrize("is_taken", [True, False])
def test_one_that_was_slow_to_open_is_closed_with_the_others(cluster, monkeypatch, is_taken):
    subscription, closed, real = Subscription(cluster, Calls(), "s"), [], cluster.subscribe

    def subscribe(topic, options):
        consumer = real(topic, options)
        consumer.begin_close = lambda: closed.append(topic)
        return consumer

    monkeypatch.setattr(cluster, "subscribe", subscribe)
    with monkeypatch.context() as patch:
        if not is_taken:
            patch.setattr(subscription.openings, "take", dict)
        subscription.try_open({P0: EARLIEST}, 60.0)
    assert (P0 in subscription.partitions) is is_taken
    subscription.close()
    assert closed == [P0]


def test_one_that_is_opened_after_the_end_is_closed(cluster, monkeypatch):
    subscription, opening, closed = Subscription(cluster, Calls(), "s"), threading.Event(), threading.Event()
    real = cluster.subscribe

    def subscribe(topic, options):
        consumer = real(topic, options)
        consumer.begin_close = closed.set
        opening.wait(60)
        return consumer

    monkeypatch.setattr(cluster, "subscribe", subscribe)
    subscription.try_open({P0: EARLIEST}, 0.0)
    subscription.close()
    assert not closed.is_set()
    opening.set()
    assert closed.wait(60)


# ---- what is known of acknowledgements when an answer is judged


def without_consumer(monkeypatch, subscription):
    """Let the broker close the consumer of P0 each time: no acknowledgement can be sent."""
    monkeypatch.setattr(subscription.partitions[P0].consumer, "begin_ack_cumulative", lambda entry: None)


def test_what_could_not_be_sent_does_not_count_as_acknowledged(cluster, monkeypatch, caplog):
    subscription = opened(cluster)
    state = subscription.partitions[P0]
    with monkeypatch.context() as patch:
        without_consumer(patch, subscription)
        asked = cluster.count("last", P0)
        for _ in range(3):
            subscription.acknowledge({P0: MessageId(10, 1)})
        assert cluster.count("last", P0) == asked + 1, "it is not opened again at once"
    assert state.asked == MessageId(10, -1)
    assert "the broker has closed its consumer" in caplog.text
    cluster.clock += 10.0
    cluster.refused["ack", P0] = AuthError("no")
    subscription.acknowledge({P0: MessageId(10, 1)})
    assert state.asked == MessageId(10, 1), "the broker may have done it"
    assert state.acknowledged == MessageId(10, -1)


def test_an_answer_knows_what_had_been_acknowledged_when_it_was_requested(cluster):
    subscription = opened(cluster)
    state = subscription.partitions[P0]
    cluster.held["last message", P0] = []
    assert ask(subscription, [P0], 0.0) == {}
    (request,) = cluster.held.pop(("last message", P0))
    request.set_result(LastMessageId(MessageId(10, 2), MessageId(10, -1)))
    subscription.acknowledge({P0: MessageId(10, 1)})
    assert state.asked == MessageId(10, 1)
    assert P0 in ask(subscription, [P0], 0.0)
    assert state.asked_before == MessageId(10, -1)
    ask(subscription, [P0], 60.0)
    assert state.asked_before == MessageId(10, 1)


def test_an_answer_that_is_not_given_out_yet_shows_no_silence(cluster, monkeypatch):
    """It may show more chunks than are known."""
    subscription = opened(cluster)
    state = subscription.partitions[P0]
    ask(subscription, [P0])
    began = state.asked_at
    cluster.clock += 500.0
    without_consumer(monkeypatch, subscription)
    subscription.acknowledge({P0: MessageId(10, 1)})
    assert state.asked_at == began
    cluster.clock += 10.0
    ask(subscription, [P0])
    assert state.asked_at == began + 500.0


def test_an_answer_is_not_given_out_when_the_next_one_is_requested(cluster, monkeypatch):
    """The consumer may be in use by then, and must not be moved."""
    subscription = opened(cluster)
    without_consumer(monkeypatch, subscription)
    subscription.acknowledge({P0: MessageId(10, 1)})
    cluster.clock += 10.0
    cluster.held["last message", P0] = []
    monkeypatch.setattr(plan_subscription, "PROMPT", 0.0)
    subscription.acknowledge({P0: MessageId(10, 1)})
    assert subscription.silent == {P0}
    assert ask(subscription, [P0], 0.0) == {}
    cluster.held.pop(("last message", P0))[0].set_result(LastMessageId(MessageId(10, 2), MessageId(10, -1)))
    assert P0 in ask(subscription, [P0], 60.0)


def test_what_is_answered_of_a_partition_after_it_was_dropped_is_ignored(cluster, monkeypatch):
    monkeypatch.setattr(plan_subscription, "PROMPT", 0.0)
    subscription = opened(cluster)
    cluster.held["ack", P1] = []
    subscription.acknowledge({P1: MessageId(10, 1)})
    without_consumer(monkeypatch, subscription)
    subscription.acknowledge({P0: MessageId(10, 1)})
    for topic in (P0, P1):
        subscription.drop(topic)
    cluster.held["ack", P1][0].set_result(MessageId(10, 1))
    processed(subscription, 1)
    subscription.acknowledge_processed(60.0)
    assert ask(subscription, [P2]).keys() == {P2}


def test_acknowledgements_before_a_topic_was_set_back_say_nothing_after_it(cluster, monkeypatch):
    monkeypatch.setattr(plan_subscription, "PROMPT", 0.0)
    subscription = opened(cluster)
    state = subscription.partitions[P0]
    state.goes_on = MessageId(30, -1)
    cluster.held["ack", P0] = []
    subscription.acknowledge({P0: MessageId(20, 5)})
    cluster.held.pop(("ack", P0))[0].set_result(MessageId(20, 5))
    state.position = MessageId(20, 5)
    subscription.skip_to_end(P0, LastMessageId(MessageId(10, 2), MessageId(10, -1)))
    assert state.acknowledged == MessageId(10, 2)
    assert state.goes_on == MessageId.EARLIEST


def test_an_acknowledgement_before_it_was_put_back_says_nothing_after_it(cluster, monkeypatch):
    monkeypatch.setattr(plan_subscription, "PROMPT", 0.0)
    subscription = opened(cluster)
    cluster.held["ack", P0] = []
    subscription.acknowledge({P0: MessageId(10, 2)})
    (request,) = cluster.held.pop(("ack", P0))
    subscription.put_back(P0, MessageId(10, 0))
    request.set_result(MessageId(10, 2))
    subscription.acknowledge_processed(60.0)
    assert subscription.partitions[P0].acknowledged == mark(cluster)


def test_a_late_answer_about_a_topic_that_was_made_again_is_dropped(cluster):
    """Its last message is of another log. The consumer that asked for it is closed after it."""
    subscription = opened(cluster)
    held = cluster.held["last message", P1] = []
    old = subscription.partitions[P1]
    old.consumer.begin_close = (closed := threading.Event()).set
    ask(subscription, [P1], 0.0)
    subscription.drop(P1)
    assert subscription.silent == subscription._calls[Kind.LAST_MESSAGE].late == set()
    del cluster.held["last message", P1]
    cluster.topics[P1].held.clear()
    subscription.open({P1: EARLIEST})
    last = cluster.topics[P1].produce(1)[-1]
    assert ask(subscription, [P1], 60.0)[P1].last == last, "the new one is asked at once"
    assert not closed.is_set()
    held[0].set_result(LastMessageId(MessageId(99, 9), MessageId(99, 9)))
    assert closed.is_set()
    assert ask(subscription, [P1], 60.0)[P1].last == last
