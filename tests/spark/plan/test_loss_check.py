"""LossCheck on a cluster in memory: what it reports, and where the subscription stands after it."""

import logging

import pytest

from pulsar_spark.client import Calls, InitialPosition
from pulsar_spark.errors import DataLossError, DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.loss_check import LossCheck
from pulsar_spark.spark.plan.subscription import Subscription
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import options_of
from tests.spark.plan.subscriptions import ask

T = TopicName.parse("t")
P0, P1 = (T.of_partition(number) for number in range(2))
EARLIEST, LATEST = InitialPosition.EARLIEST, InitialPosition.LATEST


@pytest.fixture
def cluster():
    """Two partitions of three entries each."""
    found = SimulatedCluster()
    for topic in found.create("t", 2):
        topic.produce(3)
    return found


def check_of(cluster, *, fails=True, deleted=(), **options):
    read = {} if "topicsPattern" in options else {"topic": "t"}
    given = read | options | {"failOnDataLoss": str(fails).lower()}
    return LossCheck(cluster, options_of(**given), lambda topic: topic in deleted)


def mark(cluster, topic=P0):
    return cluster.topics[topic].cursors["s"]


def lose_first_ledger(topic):
    """Entries that were not processed go with the ledger; returns the ids of two that stay."""
    topic.roll_over()
    ids = topic.produce(2)
    topic.trim()
    return ids


# ---- a query that is started again, which has processed the first entry


def restarted(cluster, *, missing, topics=(P0,), entry=0, **options):
    """Start again after an entry; returns the subscription, and a check of each partition."""
    subscription = Subscription(cluster, Calls(), "s")
    answers = subscription.open(dict.fromkeys(topics, LATEST))
    check = check_of(cluster, **options)

    def run(topic):
        check.check_restart(
            subscription, topic, MessageId(10, entry), answers[topic], was_missing=topic in missing
        )
        check.reporter.log_noted()

    return subscription, run


def test_an_error_of_loss_removes_again_what_was_missing(cluster):
    for topic in cluster.topics.values():
        lose_first_ledger(topic)
    subscription, check = restarted(cluster, missing=[P0], topics=(P0, P1))
    with pytest.raises(DataLossError):
        check(P0)
    assert cluster.topics[P0].cursors == {}
    assert P0 not in subscription.partitions
    with pytest.raises(DataLossError):
        check(P1)
    assert mark(cluster, P1) == MessageId(20, 1), "it was moved: it stays where it is"


def test_a_missing_one_that_cannot_be_removed_again_is_logged(cluster, caplog):
    lose_first_ledger(cluster.topics[P0])
    _, check = restarted(cluster, missing=[P0])
    bounds = cluster.bounds(P0)
    cluster.bounds = lambda topic: bounds
    cluster.stored_end = lambda topic: MessageId(20, 1)
    cluster.failing[P0] = DeadlineError("late")
    with caplog.at_level(logging.WARNING), pytest.raises(DataLossError):
        check(P0)
    assert "cannot be removed from topic" in caplog.text


def test_without_an_error_what_is_left_is_held(cluster):
    ids = lose_first_ledger(cluster.topics[P0])
    _, check = restarted(cluster, missing=[P0], fails=False)
    check(P0)
    assert mark(cluster) == cluster.topics[P0].begin < ids[0]


@pytest.mark.parametrize("is_missing", [True, False])
def test_in_a_new_cluster_the_same_ledger_holds_other_messages(cluster, caplog, is_missing):
    cluster.topics[P0].cursors["s"] = MessageId(10, 2)
    _, check = restarted(cluster, missing=[P0] if is_missing else [])
    check(P0)
    assert ("a new one: messages up to 10:0 are not read" in caplog.text) is is_missing


@pytest.mark.parametrize(
    ("entry", "is_trimmed", "is_compacted", "told"),
    [
        (2, False, False, ""),
        (1, False, False, "nothing is lost"),
        (1, False, True, ""),
        (2, True, False, "t-partition-0: messages in (10:2, 20:-1] may be lost"),
    ],
)
def test_one_that_stands_before_the_next_ledger(cluster, caplog, entry, is_trimmed, is_compacted, told):
    cluster.topics[P0].roll_over()
    cluster.topics[P0].cursors["s"] = later = cluster.topics[P0].produce(1)[0].ledger_start
    cluster.read_compacted = is_compacted
    _, check = restarted(cluster, missing=[], entry=entry)
    if is_trimmed:
        cluster.topics[P0].trim()
    check(P0)
    assert told in caplog.text
    assert bool(caplog.text) is bool(told)
    assert (mark(cluster) < later) is (told == "nothing is lost")


def test_what_was_emptied_may_seem_to_begin_where_it_did(cluster):
    cluster.topics[P0].entries.clear()
    cluster.topics[P0]._newest = MessageId(10, 2)
    _, check = restarted(cluster, missing=[P0])
    with pytest.raises(DataLossError, match=r"partition-0.*\(10:0, 10:2\]"):
        check(P0)


def test_a_broker_that_does_not_say_where_the_topic_begins_is_an_error_that_names_it(cluster):
    _, check = restarted(cluster, missing=[P0])
    cluster.failing[P0] = DeadlineError("late")
    with pytest.raises(DeadlineError, match="partition-0"):
        check(P0)


# ---- a query that runs


def running(cluster, position):
    subscription = Subscription(cluster, Calls(), "s")
    subscription.open({P0: EARLIEST})
    subscription.partitions[P0].take_up(position)
    return subscription


def test_an_answer_is_stored(cluster):
    subscription = running(cluster, MessageId(10, 1))
    cluster.topics[P0].produce(2)
    subscription.acknowledge({P0: MessageId(10, 1)})
    cluster.topics[P0].cursors["s"] = MessageId(10, 0)
    check_of(cluster).check_answer(subscription, P0, ask(subscription, [P0])[P0])
    state = subscription.partitions[P0]
    assert state.last == MessageId(10, 4)
    assert state.acknowledged == MessageId(10, 0), "a broker that crashed forgot the last one"
    assert state.goes_on == MessageId.EARLIEST
    cluster.topics[P0].roll_over()
    later = cluster.topics[P0].produce(1)[0].ledger_start
    state.take_up(MessageId(10, 4))
    subscription.acknowledge({P0: MessageId(10, 4)})
    cluster.topics[P0].cursors["s"] = later
    check_of(cluster).check_answer(subscription, P0, ask(subscription, [P0])[P0])
    assert (state.acknowledged, state.goes_on) == (later, later), "the broker removed what was acknowledged"


@pytest.mark.parametrize("is_trimmed", [True, False])
def test_one_that_somebody_moved_over_a_micro_batch_is_told_once_if_messages_are_gone(
    cluster, caplog, is_trimmed
):
    subscription = running(cluster, MessageId(10, -1))
    topic = cluster.topics[P0]
    topic.roll_over()
    ids = topic.produce(3)
    if is_trimmed:
        topic.trim()
    topic.cursors["s"] = ids[1]
    subscription.partitions[P0].take_up(ids[2])
    check = check_of(cluster)
    for _ in range(2):
        check.check_answer(subscription, P0, ask(subscription, [P0])[P0])
        check.reporter.log_noted()
    assert caplog.text.count("(10:-1, 20:-1] may be lost") == is_trimmed
    assert subscription.partitions[P0].acknowledged == mark(cluster) == ids[1]
    assert cluster.count("bounds") == 1


@pytest.mark.parametrize(("deleted", "losses"), [((P0,), 0), ((), 1)])
def test_a_topic_that_was_made_again_is_no_loss_if_the_broker_says_so(cluster, caplog, deleted, losses):
    subscription = running(cluster, MessageId(10, 2))
    cluster.topics[P0].cursors["s"] = MessageId(10, 2)
    lose_first_ledger(cluster.topics[P0])
    cluster.topics[P0].cursors["s"] = MessageId(20, 1)
    check = check_of(cluster, fails=False, deleted=deleted)
    check.check_answer(subscription, P0, ask(subscription, [P0])[P0])
    assert ("of the old topic" in caplog.text) is (not losses)
    assert caplog.text.count("PULSAR_DATA_LOSS") == losses
    assert mark(cluster) == MessageId(20, -1)


def test_one_that_was_moved_past_where_the_topic_is_known_to_go_on_is_put_back(cluster, caplog):
    subscription = running(cluster, MessageId(10, 2))
    ids = lose_first_ledger(cluster.topics[P0])
    subscription.partitions[P0].goes_on = ids[0].ledger_start
    cluster.topics[P0].cursors["s"] = ids[-1]
    check_of(cluster).check_answer(subscription, P0, ask(subscription, [P0])[P0])
    assert "nothing is lost" in caplog.text
    assert mark(cluster) < ids[0]


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("is_start", [True, False])
def test_a_topic_that_ends_before_a_message_that_was_processed_is_set_back(
    cluster, is_start, restarts, caplog
):
    """The user's start was not processed: the topic may not have reached it yet."""
    given = {"startingOffsets": f'{{"{P0}": {{"-1": "30:6"}}}}' if is_start else "earliest"}
    subscription = running(cluster, MessageId(30, 5))
    check = check_of(cluster, fails=False, topic=str(P0), **given)
    answer = ask(subscription, [P0])[P0]
    if restarts:
        check.check_restart(subscription, P0, MessageId(30, 5), answer, was_missing=False)
    else:
        check.check_answer(subscription, P0, answer)
    position = subscription.partitions[P0].position
    assert position == (MessageId(30, 5) if is_start else MessageId(10, 2))
    assert bool(caplog.text) is not is_start
    assert is_start or ("ends at 10:2" in caplog.text and f"{P0}; message 30:5" in caplog.text)


# ---- partitions that are gone


@pytest.mark.parametrize(("entry", "is_loss"), [(1, True), (2, False)])
def test_a_deleted_partition_is_loss_where_not_all_was_processed(cluster, caplog, entry, is_loss):
    state = running(cluster, MessageId(10, entry)).partitions[P0]
    check = check_of(cluster, fails=False)
    check.report_deleted(P0, state)
    assert ("PULSAR_DATA_LOSS" in caplog.text) is is_loss
    assert list(check.reporter.deleted) == ([] if is_loss else [P0])
    if is_loss:
        with pytest.raises(DataLossError, match="the topic was deleted"):
            check_of(cluster).report_deleted(P0, state)


@pytest.mark.parametrize(
    ("options", "planned", "is_read", "is_loss"),
    [
        ({"topic": "t"}, 1, True, True),
        ({"topic": str(P0)}, 1, True, True),
        ({"topic": str(P1)}, 1, False, False),
        ({"topicsPattern": "[t].*"}, 1, True, False),
        ({"topicsPattern": "[t].*"}, 2, True, True),
        ({"topicsPattern": "[u].*"}, 2, False, False),
    ],
)
def test_a_partition_that_is_absent_is_judged_where_the_options_mean_it(
    cluster, caplog, options, planned, is_read, is_loss
):
    check = check_of(cluster, fails=False, **options)
    check.report_absent(P0, MessageId(10, 1), MessageId(10, planned), "the-name")
    assert check.reporter.count == is_loss
    assert set(check.reporter.possible) == ({P0} if is_read and not is_loss else set())
    mistake, _, advice = caplog.text.partition("If you changed the topics of this query")
    assert ("If this is the checkpoint of another query, stop this one" in mistake) is not is_read
    assert ("remove the subscription the-name" in advice) is not is_read
