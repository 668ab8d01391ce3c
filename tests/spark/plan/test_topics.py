"""Which partitions are read, at the start and as topics come and go."""

import logging
import threading
from itertools import pairwise
from uuid import UUID

import pytest

from pulsar_spark.client import TopicLayout
from pulsar_spark.errors import AuthError, ConnectError, DeadlineError, TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan import topics as plan_topics
from pulsar_spark.spark.plan.batch import plan_read
from pulsar_spark.spark.plan.scalable.segments import SegmentOrder
from pulsar_spark.spark.plan.scalable.topics import ScalableTopics
from pulsar_spark.spark.plan.stream import QueryPlanner
from pulsar_spark.spark.plan.topics import Topics, find_partitions, first_contact
from tests.client.clients import wait_until
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import POLL, options_of

# A stream of a scalable topic needs one.
ADMIN = "http://localhost:1"


@pytest.fixture
def cluster():
    found = SimulatedCluster()
    found.create("plain")
    found.create("parted", 2)
    found.create("a/b/other")
    found.create("odd-partition-7")
    return found


def names(topics):
    return [topic.local for topic in topics]


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


def test_scalable_topics_that_a_pattern_seems_to_mean_are_named(cluster, caplog):
    first_contact(cluster, options_of(topicsPattern="p.*", admin__url=ADMIN))
    assert caplog.records == []
    for name in ("public/default/pretty", "public/default/other", "a/b/pretty"):
        ScalableTopic(cluster, f"topic://{name}")
    first_contact(cluster, options_of(topicsPattern="p.*", admin__url=ADMIN))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "so 1 are not read, among them topic://public/default/pretty. Name" in record.getMessage()
    caplog.clear()
    cluster.failing[TopicName("topic", "public", "default", "")] = ConnectError("cut")
    for given in (options_of(topicsPattern="pl.*"), options_of(topicsPattern="pl.*", admin__url=ADMIN)):
        assert names(first_contact(cluster, given)) == ["plain"]
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


def watched(cluster, **options):
    given = options_of(**options)
    return Topics(cluster, given, ScalableTopics(cluster, given), find_partitions(cluster, given))


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


def test_a_topic_that_became_scalable_is_named_once(cluster, caplog):
    """At the start, and in lists; a batch names it as well."""
    ScalableTopic(cluster, "topic://public/default/other")
    planner = QueryPlanner(options_of(topics="plain,parted"), cluster)
    assert "MIGRATED" not in caplog.text
    for name in ("plain", "parted"):
        cluster.layouts[TopicName.parse(name)] = TopicLayout(1, {}, is_scalable=True)
    start = planner.initial()
    for _ in range(4):
        cluster.create(f"more-{len(cluster.topics)}")
        cluster.clock += POLL
        start = planner.latest(start)
    planner.close()
    plan_read(options_of(Mode.BATCH, topic="plain"), cluster)
    told = [line for line in caplog.messages if line.startswith("[PULSAR_TOPIC_MIGRATED]")]
    assert [line.partition("; ")[2].partition(". ")[0] for line in told] == [
        "topic persistent://public/default/plain",
        "topic persistent://public/default/parted",
        "topic persistent://public/default/plain",
    ]
    assert "are in topic://public/default/plain" in told[0]


def test_brokers_without_scalable_topics_are_not_asked_for_them(cluster):
    planner = QueryPlanner(options_of(topic="plain"), cluster)
    planner.latest(planner.initial())
    planner.close()
    assert cluster.count("layout") == 0


def test_open_segments_that_no_layout_has_are_held(cluster):
    """They may follow any other; a query that is closed and made again may have them of a newer layout."""
    scalable = ScalableTopic(cluster, "topic://public/default/st")
    topics = watched(cluster, topic=str(scalable.name), admin__url=ADMIN)
    child = scalable.name.segment(0, 0x7FFF, 7)
    assert topics._scalable.held(
        topics.partitions, {scalable.named(0): MessageId.EARLIEST, child: MessageId(9, 9)}
    ) == {child}
    topics.close()


def test_a_topic_may_come_while_it_is_decided_what_is_held(cluster, monkeypatch):
    scalable = ScalableTopic(cluster, "topic://public/default/st")
    topics = watched(cluster, topic=str(scalable.name), admin__url=ADMIN)
    real = SegmentOrder.held

    def held(order, processed):
        orders = topics._scalable._orders
        orders[TopicName.parse(f"t{len(orders)}")] = order
        return real(order, processed)

    monkeypatch.setattr(SegmentOrder, "held", held)
    assert topics._scalable.held(topics.partitions, {}) == set()
    topics.close()


def test_a_scalable_topic_that_is_gone_is_looked_up_after_pauses(cluster):
    name = ScalableTopic(cluster, "topic://public/default/st").name
    topics = watched(cluster, topics=f"{name},plain", admin__url=ADMIN)
    topics.refresh()
    gone = cluster.layouts.pop(name)
    looked = cluster.count("layout", name)
    for _ in range(100):
        topics.refresh()
        cluster.clock += 0.05
    assert cluster.count("layout", name) - looked == 3, "at 0, 1 and 3 seconds"
    cluster.create("unrelated")
    topics.refresh()
    assert "plain" in names(topics.partitions), "others are listed meanwhile"
    cluster.layouts[name] = gone
    cluster.clock += 30.0
    topics.refresh()
    looked = cluster.count("layout", name)
    topics.refresh()
    assert cluster.count("layout", name) == looked
    topics.close()


def test_a_scalable_topic_that_is_waited_for_is_read_when_it_comes(cluster):
    name = "topic://public/default/st"
    topics = watched(cluster, topics=f"{name},plain", waitingForNonExistedTopic="true", admin__url=ADMIN)
    for _ in range(100):
        topics.refresh()
        cluster.clock += 0.05
    assert names(topics.partitions) == ["plain"]
    assert cluster.count("list") < 10
    scalable = ScalableTopic(cluster, name)
    cluster.clock += 30.0
    topics.refresh()
    assert scalable.named(0) in topics.partitions
    scalable.split(scalable.named(0))
    topics.refresh()
    assert set(scalable.active) <= set(topics.partitions)
    topics.close()
    assert cluster.open_readers == 0


def test_whether_topics_were_migrated_is_not_waited_for(cluster, caplog, monkeypatch):
    """Neither by a query that starts nor by a list."""
    ScalableTopic(cluster, "topic://public/default/other")
    answered, real = threading.Event(), cluster.layout

    def take_long(topic):
        assert answered.wait(10)
        return real(topic)

    monkeypatch.setattr(plan_topics, "PROMPT", 0.01)
    monkeypatch.setattr(cluster, "layout", take_long)
    cluster.layouts[TopicName.parse("parted")] = TopicLayout(1, {}, is_scalable=True)
    topics = watched(cluster, topic="parted")
    cluster.create("parted", 3)
    wait_until(lambda: topics.refresh() or len(topics.partitions) == 3)
    assert "MIGRATED" not in caplog.text
    answered.set()
    wait_until(lambda: topics.refresh() or "MIGRATED" in caplog.text)
    topics.close()


def test_all_topics_are_looked_at_in_turn_also_those_of_a_pattern(cluster, caplog, monkeypatch):
    monkeypatch.setattr(plan_topics, "_MAX_WATCHES", 2)
    ScalableTopic(cluster, "topic://public/default/other")
    named = [f"t{number}" for number in range(7)]
    for name in named:
        cluster.create(name)
        cluster.layouts[TopicName.parse(name)] = TopicLayout(1, {}, is_scalable=name in ("t1", "t6"))
    for options in ({"topicsPattern": "t[0-9]"}, {"topics": ",".join(named)}):
        caplog.clear()
        topics = watched(cluster, **options)
        for _ in range(10):
            cluster.create("t0")
            looked = cluster.count("layout")
            topics.refresh()
            assert cluster.count("layout") - looked <= 2
        topics.close()
        told = [line for line in caplog.messages if "MIGRATED" in line]
        assert len(told) == 2
        assert "are in topic://public/default/t1;" in told[0]
        assert "are in topic://public/default/t6;" in told[1]


def test_a_broker_without_scalable_topics_costs_no_look_at_each_name(cluster, monkeypatch):
    """That was a sixth of the planner's CPU for one new topic among 3,000."""
    looked = []
    monkeypatch.setattr(plan_topics, "_classic", looked.append)
    topics = watched(cluster, topicsPattern="p.*")
    cluster.create("p2")
    wait_until(lambda: topics.refresh() or "p2" in names(topics.partitions))
    topics.close()
    assert not looked


def test_old_partitions_of_a_topic_that_is_read_as_a_scalable_one_are_not_told_of(cluster):
    cluster.layouts[TopicName.parse("parted")] = TopicLayout(1, {}, is_scalable=True)
    scalable = ScalableTopic(cluster, "topic://public/default/parted")
    read = [scalable.named(0), *(TopicName.parse("parted").of_partition(number) for number in range(2))]
    assert plan_topics.migrated(cluster, read) == []
    assert len(plan_topics.migrated(cluster, read[1:])) == 1
