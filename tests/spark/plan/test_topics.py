"""Which partitions are read, at the start and as topics come and go."""

import logging
import threading
from itertools import pairwise
from uuid import UUID

import pytest

from pulsar_spark.errors import AuthError, ConnectError, DeadlineError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan import topics as plan_topics
from pulsar_spark.spark.plan.batch import plan_read
from pulsar_spark.spark.plan.stream import QueryPlanner
from pulsar_spark.spark.plan.topics import find_partitions, first_contact
from tests.client.clients import wait_until
from tests.spark.plan import read_topics
from tests.spark.plan.read_topics import names, watched
from tests.spark.plan.simulated_spark import POLL, options_of

cluster = read_topics.cluster


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"topic": "plain"}, ["plain"]),
        ({"topic": "parted"}, ["parted-partition-0", "parted-partition-1"]),
        ({"topics": "parted,plain"}, ["parted-partition-0", "parted-partition-1", "plain"]),
        ({"topics": "a/b/other,plain"}, ["other", "plain"]),
        ({"topicsPattern": "p.*"}, ["parted-partition-0", "parted-partition-1", "plain"]),
        ({"topicsPattern": "none"}, []),
        ({"topics": "gone,plain", "waitingForNonExistedTopic": "true"}, ["plain"]),
    ],
)
def test_the_partitions_of_all_topics(cluster, options, found):
    assert names(first_contact(cluster, options_of(**options))) == found


@pytest.mark.parametrize("plan", [first_contact, lambda cluster, options: plan_read(options, cluster)])
def test_a_pattern_that_no_topic_matches_is_warned_of(cluster, caplog, plan):
    plan(cluster, options_of(Mode.BATCH, topicsPattern="a/b/oth"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("no topic of the namespace a/b matches topicsPattern 'oth', so")
    caplog.clear()
    plan(cluster, options_of(Mode.BATCH, topicsPattern="a/b/oth.*"))
    plan(cluster, options_of(Mode.BATCH, topics="gone", waitingForNonExistedTopic="true"))
    assert caplog.records == []


def test_a_stream_whose_pattern_matches_nothing_is_warned_of_once(cluster, caplog):
    planner = QueryPlanner(options_of(topicsPattern="none.*"), cluster)
    start = planner.initial()
    for _ in range(5):
        cluster.clock += POLL
        planner.latest(start)
    planner.close()
    assert caplog.text.count("matches topicsPattern 'none.*'") == 1


def test_commit_logs_are_read_only_where_they_are_named(cluster):
    log = f"spark-transactions-{UUID(int=5)}"
    cluster.create(log)
    assert log not in names(find_partitions(cluster, options_of(topicsPattern=".*")))
    assert names(find_partitions(cluster, options_of(topic=log))) == [log]


def test_a_topic_that_is_missing_is_an_error(cluster):
    with pytest.raises(TopicNotFoundError):
        find_partitions(cluster, options_of(topics="plain,gone"))


def test_a_topic_that_is_deleted_after_it_was_listed_is_left_out(cluster, monkeypatch):
    listed = [TopicName.parse("gone"), TopicName.parse("plain")]
    monkeypatch.setattr(cluster, "topics_matching", lambda pattern: listed)
    assert find_partitions(cluster, options_of(topicsPattern=".*")) == listed[1:]


def test_a_broker_that_does_not_answer_is_an_error(cluster):
    cluster.failing[TopicName.parse("plain")] = ConnectError("cut")
    with pytest.raises(ConnectError):
        find_partitions(cluster, options_of(topic="plain"))


def test_topics_are_listed_again_when_they_change(cluster):
    topics = watched(cluster, topics="parted,a/b/other")
    topics.refresh()
    listed = cluster.count("list")
    for _ in range(5):
        topics.refresh()
    assert cluster.count("list") == listed
    cluster.create("parted", 3)
    topics.refresh()
    assert names(topics.partitions) == [*(f"parted-partition-{n}" for n in range(3)), "other"]
    assert cluster.open_readers == 2, "one watch a topic"
    assert not any(request[2] for request in cluster.requests if request[0] == "watch topics")
    topics.close()
    assert cluster.open_readers == 0


def test_a_watch_that_cannot_be_opened_costs_none_of_the_others(cluster, monkeypatch):
    topics, watch_topics = watched(cluster, topics="parted,a/b/other,plain"), cluster.watch_topics
    patterns = []

    def watch(pattern, *, may_list):
        patterns.append(pattern)
        if len(patterns) in (2, 4):
            raise DeadlineError("late")
        return watch_topics(pattern, may_list=may_list)

    monkeypatch.setattr(cluster, "watch_topics", watch)
    for _ in range(3):
        topics.refresh()
        cluster.clock += 3.0
    assert cluster.open_readers == 3
    assert len(patterns) == 3 + 2, "those that are open are not opened again"
    assert len(set(patterns)) == 3
    topics.close()
    assert cluster.open_readers == 0


@pytest.mark.parametrize(("most", "watched_for"), [(3, ["a", "b", "c"]), (2, ["a|b|c"])])
def test_many_named_topics_are_watched_together(cluster, monkeypatch, most, watched_for):
    monkeypatch.setattr(plan_topics, "_MAX_WATCHES", most)
    for name in "abc":
        cluster.create(name)
    topics = watched(cluster, topics="a,b,c")
    topics.refresh()
    found = [request[1:] for request in cluster.requests if request[0] == "watch topics"]
    assert found == [(f"persistent://public/default/{each}", False) for each in watched_for]


def test_a_dropped_topic_is_read_again_when_it_is_found_again(cluster):
    topics = watched(cluster, topicsPattern="p.*")
    topics.refresh()
    cluster.delete("plain")
    topics.drop(TopicName.parse("plain"))
    topics.refresh()
    assert "plain" not in names(topics.partitions)
    cluster.create("plain")
    topics.refresh()
    assert "plain" in names(topics.partitions)


def test_only_topics_that_changed_are_asked_for_their_partitions(cluster):
    for number in range(50):
        cluster.create(f"p{number}")
    topics = watched(cluster, topicsPattern="p.*")
    topics.refresh()
    asked, listed = cluster.count("list"), cluster.count("list topics")

    def asks(count, lists=0):
        nonlocal asked, listed
        topics.refresh()
        assert (cluster.count("list"), cluster.count("list topics")) == (asked + count, listed + lists)
        asked, listed = asked + count, listed + lists
        assert sorted(topics.partitions) == find_partitions(cluster, options_of(topicsPattern="p.*"))
        asked, listed = cluster.count("list"), cluster.count("list topics")

    cluster.create("p-new")
    asks(1)
    cluster.create("parted", 5)
    asks(1)
    cluster.delete("p7")
    asks(1)
    cluster.create("unrelated")
    asks(0)
    for watch in topics._watches:  # as once a minute, and after a lost connection
        watch._seen = -1
    cluster.create("p-unseen")
    cluster.delete("p8")
    asks(3, lists=1)  # those named before are asked for once more
    cluster.create("p-new")
    for watch in topics._watches:
        watch._seen = -1
    asks(0, lists=1)


def test_after_a_list_that_failed_all_topics_are_listed(cluster):
    topics = watched(cluster, topicsPattern="p.*")
    topics.refresh()
    cluster.create("p-new")
    cluster.failing[TopicName.parse("p-new")] = ConnectError("cut")
    topics.refresh()
    assert "p-new" not in names(topics.partitions)
    cluster.failing.clear()
    cluster.clock += 60.0
    topics.refresh()
    assert "p-new" in names(topics.partitions)


def test_a_named_topic_that_is_gone_is_left_to_the_planner(cluster, caplog):
    topics = watched(cluster, topics="parted,plain")
    before = list(topics.partitions)
    cluster.delete("plain")
    with caplog.at_level(logging.WARNING):
        topics.refresh()
    assert topics.partitions == before
    assert "does not exist at the moment" in caplog.text


@pytest.mark.parametrize("most", [100, 1])
@pytest.mark.parametrize("gone", ["parted", "plain"])
def test_a_named_topic_that_is_gone_hides_nothing_of_the_others(cluster, caplog, monkeypatch, gone, most):
    """Whether topics are watched one by one or together."""
    monkeypatch.setattr(plan_topics, "_MAX_WATCHES", most)
    cluster.create("growing", 1)
    topics = watched(cluster, topics="plain,growing,parted")
    cluster.delete(gone)
    for count in (2, 3):
        cluster.create("growing", count)
        topics.refresh()
        assert {f"growing-partition-{n}" for n in range(count)} <= set(names(topics.partitions))
    assert caplog.text.count("does not exist at the moment") == 1
    for topic in [each for each in topics.partitions if gone in (each.local, each.base.local)]:
        topics.drop(topic)  # the planner has found that they are gone
    cluster.create("growing", 4)
    topics.refresh()
    assert len(topics.partitions) == 4 + (2 if gone == "plain" else 1)
    cluster.create(gone, 2 if gone == "parted" else 0)
    topics.refresh()
    assert len(topics.partitions) == 4 + 3
    cluster.delete(gone)
    topics.refresh()
    assert caplog.text.count("does not exist at the moment") == 2


def test_a_broker_that_is_silent_is_asked_again(cluster, caplog):
    topics = watched(cluster, topic="plain")
    topics.refresh()
    cluster.create("plain")
    plain = TopicName.parse("plain")
    cluster.failing[plain] = ConnectError("cut")
    with caplog.at_level(logging.WARNING):
        topics.refresh()
    assert "could not be listed" in caplog.text
    cluster.failing.clear()
    listed = cluster.count("list")
    topics.refresh()
    assert cluster.count("list") == listed
    cluster.clock += 1.0
    topics.refresh()
    assert cluster.count("list") == listed + 1
    cluster.create("plain")
    cluster.failing[plain] = AuthError("no")
    with pytest.raises(AuthError):
        topics.refresh()


def test_lists_that_fail_are_tried_again_after_a_pause_that_grows(cluster, monkeypatch):
    topics = watched(cluster, topic="plain")
    topics.refresh()
    cluster.create("plain")
    tried = []

    def fail(topic):
        tried.append(cluster.clock)
        raise DeadlineError("late")

    began = cluster.clock
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "partitions", fail)
        for _ in range(200):
            topics.refresh()
            cluster.clock += 1.0
    assert [at - began for at in tried[:6]] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert {after - before for before, after in pairwise(tried[5:])} == {30.0}
    cluster.clock += 30.0
    topics.refresh()
    assert names(topics.partitions) == ["plain"]


def test_a_list_that_takes_long_is_taken_when_it_has_come(cluster, monkeypatch):
    """Nobody waits for it again; what is closed meanwhile stays closed."""
    topics, answered, tried = watched(cluster, topic="parted"), threading.Event(), []
    topics.refresh()
    real = cluster.partitions

    def take_long(topic):
        tried.append(topic)
        assert answered.wait(60)
        return real(topic)

    monkeypatch.setattr(plan_topics, "PROMPT", 0.01)
    monkeypatch.setattr(cluster, "partitions", take_long)
    cluster.create("parted", 3)
    for _ in range(5):
        topics.refresh()
    assert len(tried) == 1
    assert len(topics.partitions) == 2
    answered.set()
    wait_until(lambda: topics.refresh() or len(topics.partitions) == 3)
    cluster.create("parted", 4)
    answered.clear()
    topics.refresh()
    topics.close()
    answered.set()
    assert cluster.open_readers == 0


def test_a_watch_that_opens_after_the_end_is_closed(cluster, monkeypatch):
    topics, answered = watched(cluster, topic="plain"), threading.Event()
    watch_topics = cluster.watch_topics

    def take_long(pattern, *, may_list):
        assert answered.wait(60)
        return watch_topics(pattern, may_list=may_list)

    monkeypatch.setattr(plan_topics, "PROMPT", 0.01)
    monkeypatch.setattr(cluster, "watch_topics", take_long)
    topics.refresh()
    topics.close()
    answered.set()
    wait_until(lambda: not topics._listing.busy and not cluster.open_readers)
    assert cluster.count("watch topics") == 1


def test_what_comes_after_a_list_that_takes_long_is_listed(cluster, monkeypatch):
    topics = watched(cluster, topic="parted")
    topics.refresh()
    with monkeypatch.context() as patch:
        patch.setattr(topics._listing, "take", dict)
        cluster.create("parted", 3)
        topics.refresh()
    assert not topics._listing.busy
    cluster.create("parted", 4)
    topics.refresh()
    assert len(topics.partitions) == 3
    topics.refresh()
    assert len(topics.partitions) == 4


def test_a_topic_that_is_dropped_while_topics_are_listed_is_not_taken_from_that_list(cluster, monkeypatch):
    """Else it would be opened, and so perhaps created, again."""
    topics, begun, answered = watched(cluster, topic="parted"), threading.Event(), threading.Event()
    topics.refresh()
    real = cluster.partitions

    def take_long(topic):
        found = real(topic)
        begun.set()
        assert answered.wait(60)
        return found

    first, second = topics.partitions
    with monkeypatch.context() as patch:
        patch.setattr(plan_topics, "PROMPT", 0.0)
        patch.setattr(cluster, "partitions", take_long)
        cluster.create("parted", 3)
        topics.refresh()
        assert begun.wait(60)
        topics.drop(second)
        answered.set()
        wait_until(lambda: not topics._listing.busy)
        topics.drop(first)
        topics.refresh()
        assert names(topics.partitions) == ["parted-partition-2"]
    topics.refresh()
    assert names(topics.partitions) == [f"parted-partition-{number}" for number in range(3)]


def test_only_the_watch_of_a_topic_is_asked_whether_it_was_deleted(cluster):
    topics = watched(cluster, topics="plain,parted")
    partition = TopicName.parse("parted-partition-1")
    assert not topics.take_deleted(partition), "nothing is watched yet"
    topics.refresh()
    cluster.delete("parted")
    assert topics.take_deleted(partition)
    cluster.deleted.add(partition)
    topics.forget_deleted([partition])
    assert not topics.take_deleted(partition)
