"""ScalableTopicWatch: the scalable topics of a pattern, by one list and the broker's reports."""

import pytest

from pulsar_spark.client import PlanningClient, ScalableTopicWatch, watches
from pulsar_spark.errors import AuthError, DeadlineError, UnsupportedError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import hurry, wait_until
from tests.fake_broker import FakeBroker, silence
from tests.fake_clients import Type

PATTERN = TopicPattern.parse("topic://public/default/a.*")
LAYOUT = pb.ScalableTopicDAG(epoch=0)


@pytest.fixture
def broker():
    with FakeBroker(has_segments=True) as broker:
        for name in ("public/default/a2", "public/default/a1", "public/default/b", "public/other/a"):
            broker.lay_out(f"topic://{name}", LAYOUT)
        yield broker


def names(topics):
    return [topic.local for topic in topics]


def listed(broker):
    return len(broker.seen(Type.WATCH_SCALABLE_TOPICS))


def test_it_has_the_topics_and_learns_of_each_change_without_a_request(broker, client):
    with ScalableTopicWatch(client, PATTERN) as watch:
        assert names(watch.topics()) == ["a1", "a2"]
        assert not watch.changed
        broker.lay_out("topic://public/default/a3", LAYOUT)
        wait_until(lambda: watch.changed)
        assert names(watch.topics()) == ["a1", "a2", "a3"]
        assert not watch.changed
        broker.delete_scalable("topic://public/default/a1")
        wait_until(lambda: watch.changed)
        assert names(watch.topics()) == ["a2", "a3"]
        assert listed(broker) == 1


def test_other_topics_change_nothing(broker, client):
    with ScalableTopicWatch(client, PATTERN) as watch:
        broker.lay_out("topic://public/default/c", LAYOUT)
        broker.delete_scalable("topic://public/default/b")
        client.topics_of_namespace("public", "default")  # what was sent before has come
        assert not watch.changed


def test_a_name_that_no_topic_can_have_is_left_out(broker, client):
    broker.lay_out("topic://public/default/a\n", LAYOUT)
    assert names(ScalableTopicWatch(client, PATTERN).topics()) == ["a1", "a2"]


def test_a_topic_that_is_made_again_stays(broker, client):
    with ScalableTopicWatch(client, PATTERN) as watch:
        diff = pb.ScalableTopicsDiff(
            removed=["topic://public/default/a1"], added=["topic://public/default/a1"]
        )
        broker.send(Type.WATCH_SCALABLE_TOPICS_UPDATE, watch_id=watch._id, diff=diff)
        client.topics_of_namespace("public", "default")
        assert names(watch.topics()) == ["a1", "a2"]


def test_a_lost_watch_is_opened_again(broker, client):
    with ScalableTopicWatch(client, PATTERN) as watch:
        broker.cut()
        broker.lay_out("topic://public/default/a3", LAYOUT)
        wait_until(lambda: watch.changed)
        assert names(watch.topics()) == ["a1", "a2", "a3"]


def test_an_error_of_the_broker_opens_it_again(broker, client):
    with ScalableTopicWatch(client, PATTERN) as watch:
        broker.send(
            Type.WATCH_SCALABLE_TOPICS_UPDATE, watch_id=watch._id, error=pb.MetadataError, message="x"
        )
        wait_until(lambda: watch.changed)
        assert names(watch.topics()) == ["a1", "a2"]
        assert listed(broker) == 2


def test_the_topics_are_listed_again_after_a_minute(broker, client, monkeypatch):
    """A report may be lost between brokers."""

    class Clock:
        now = 1000.0

        @classmethod
        def monotonic(cls):
            return cls.now

    monkeypatch.setattr(watches, "time", Clock)
    with ScalableTopicWatch(client, PATTERN) as watch:
        broker.layouts["topic://public/default/a3"] = LAYOUT  # nobody is told
        Clock.now += 60.0
        assert watch.changed
        assert names(watch.topics()) == ["a1", "a2", "a3"]
        assert not watch.changed
        broker.wait_for_command(Type.WATCH_SCALABLE_TOPICS_CLOSE)


def test_a_refusal(broker, client):
    def refuse(connection, frame):
        connection.send(
            Type.WATCH_SCALABLE_TOPICS_UPDATE,
            watch_id=frame.command.watchScalableTopics.watch_id,
            error=pb.AuthorizationError,
            message="no",
        )

    broker.script(Type.WATCH_SCALABLE_TOPICS, [refuse])
    with pytest.raises(AuthError, match="no"):
        ScalableTopicWatch(client, PATTERN)
    broker.wait_for_command(Type.WATCH_SCALABLE_TOPICS_CLOSE)


def test_no_answer(broker, client):
    hurry(client, 0.2)
    broker.script(Type.WATCH_SCALABLE_TOPICS, [silence])
    with pytest.raises(DeadlineError, match="default/a"):
        ScalableTopicWatch(client, PATTERN)


def test_a_broker_without_scalable_topics(broker, client):
    broker.has_segments = False
    with pytest.raises(UnsupportedError, match=r"no scalable topics.*a\.\*.*Pulsar 5"):
        ScalableTopicWatch(client, PATTERN)
    assert listed(broker) == 0


def test_one_list_of_a_batch(broker, client):
    a1, a2 = (TopicName.parse(f"topic://public/default/{name}", scalable=True) for name in ("a1", "a2"))
    found = PlanningClient(client).topics_matching(PATTERN)
    assert found == {a1: frozenset([a1]), a2: frozenset([a2])}
    broker.wait_for_command(Type.WATCH_SCALABLE_TOPICS_CLOSE)
