"""Which segments of scalable topics are read, and when a topic is found to be scalable."""

import threading

from pulsar_spark.client import TopicLayout
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.plan import topics as plan_topics
from pulsar_spark.spark.plan.batch import plan_read
from pulsar_spark.spark.plan.scalable import SegmentOrder
from pulsar_spark.spark.plan.stream import QueryPlanner
from tests.client.clients import wait_until
from tests.spark.plan import read_topics
from tests.spark.plan.read_topics import ADMIN, names, watched
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import POLL, options_of

cluster = read_topics.cluster


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
