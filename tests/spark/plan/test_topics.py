"""Which partitions are read, at the start and as topics come and go."""

import logging
from uuid import UUID

import pytest

from pulsar_spark.errors import AuthError, ConnectError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.plan.topics import Topics, find_partitions, first_contact
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_spark import options_of


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
        ({"topics": "plain,gone", "waitingForNonExistedTopic": "true"}, ["plain"]),
    ],
)
def test_the_partitions_of_all_topics(cluster, options, found):
    assert names(first_contact(cluster, options_of(**options))) == found


def test_commit_logs_are_read_only_where_they_are_named(cluster):
    log = f"spark-transactions-{UUID(int=5)}"
    cluster.create(log)
    assert log not in names(find_partitions(cluster, options_of(topicsPattern=".*")))
    assert names(find_partitions(cluster, options_of(topic=log))) == [log]


def test_a_topic_that_is_missing_is_an_error(cluster):
    with pytest.raises(TopicNotFoundError):
        find_partitions(cluster, options_of(topics="plain,gone"))


def test_a_broker_that_does_not_answer_is_an_error(cluster):
    cluster.failing[TopicName.parse("plain")] = ConnectError("cut")
    with pytest.raises(ConnectError):
        find_partitions(cluster, options_of(topic="plain"))


def watched(cluster, **options):
    given = options_of(**options)
    return Topics(cluster, given, find_partitions(cluster, given))


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
    assert cluster.open_readers == 2, "one watch a namespace"
    topics.close()
    assert cluster.open_readers == 0


def test_a_dropped_topic_is_read_again_when_it_is_found_again(cluster):
    topics = watched(cluster, topicsPattern="p.*")
    topics.refresh()
    topics.drop(TopicName.parse("plain"))
    topics.refresh()
    assert "plain" not in names(topics.partitions)
    cluster.create("plain")
    topics.refresh()
    assert "plain" in names(topics.partitions)


def test_a_named_topic_that_is_gone_is_left_to_the_planner(cluster, caplog):
    topics = watched(cluster, topics="parted,plain")
    before = list(topics.partitions)
    cluster.delete("plain")
    with caplog.at_level(logging.WARNING):
        topics.refresh()
    assert topics.partitions == before
    assert "does not exist now" in caplog.text


def test_a_broker_that_is_silent_is_asked_again(cluster, caplog):
    topics = watched(cluster, topic="plain")
    topics.refresh()
    cluster.create("unrelated")
    plain = TopicName.parse("plain")
    cluster.failing[plain] = ConnectError("cut")
    with caplog.at_level(logging.WARNING):
        topics.refresh()
    assert "they are listed again" in caplog.text
    cluster.failing.clear()
    listed = cluster.count("list")
    topics.refresh()
    assert cluster.count("list") == listed + 1
    cluster.create("unrelated")
    cluster.failing[plain] = AuthError("no")
    with pytest.raises(AuthError):
        topics.refresh()
