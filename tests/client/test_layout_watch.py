"""LayoutWatch: the segments of a scalable topic, by one lookup session."""

import pytest

from pulsar_spark.client import LayoutWatch, PlanningClient
from pulsar_spark.errors import DeadlineError, TopicNotFoundError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of, hurry, wait_until
from tests.fake_broker import FakeBroker, silence
from tests.fake_clients import Type
from tests.protocol.test_layout import segment

TOPIC = TopicName.parse("topic://public/default/st", scalable=True)


def dag(epoch, *segments):
    return pb.ScalableTopicDAG(epoch=epoch, segments=segments)


WHOLE = dag(4, segment(0, 0, 0xFFFF))
SPLIT = dag(5, segment(0, 0, 0xFFFF, sealed=True), segment(1, 0, 0x7FFF), segment(2, 0x8000, 0xFFFF))


@pytest.fixture
def broker():
    with FakeBroker(has_segments=True) as broker:
        broker.layouts[str(TOPIC)] = WHOLE
        yield broker


@pytest.fixture
def client(broker):
    with client_of(broker) as client:
        yield client


def numbers(layout):
    return [name.partition for name in layout.segments]


def test_it_has_the_segments_and_learns_of_each_change_without_a_request(broker, client):
    with LayoutWatch(client, TOPIC) as watch:
        assert numbers(watch.layout()) == [0]
        assert not watch.changed
        broker.lay_out(str(TOPIC), SPLIT)
        wait_until(lambda: watch.changed)
        assert numbers(watch.layout()) == [0, 1, 2]
        assert not watch.changed
        assert len(broker.seen(Type.SCALABLE_TOPIC_LOOKUP)) == 1


def test_an_older_layout_changes_nothing(broker, client):
    with LayoutWatch(client, TOPIC) as watch:
        broker.lay_out(str(TOPIC), SPLIT)
        wait_until(lambda: watch.changed)
        watch.layout()
        broker.lay_out(str(TOPIC), WHOLE)
        client.topics_of_namespace("public", "default")  # what was sent before has come
        assert not watch.changed
        assert numbers(watch.layout()) == [0, 1, 2]


def test_a_lost_session_is_looked_up_again(broker, client):
    with LayoutWatch(client, TOPIC) as watch:
        broker.layouts[str(TOPIC)] = SPLIT
        broker.cut()
        wait_until(lambda: watch.changed)
        assert numbers(watch.layout()) == [0, 1, 2]


def test_it_ends_its_session(broker, client):
    assert numbers(PlanningClient(client).layout(TOPIC)) == [0]
    client.topics_of_namespace("public", "default")
    assert len(broker.seen(Type.SCALABLE_TOPIC_CLOSE)) == 1


def test_what_does_not_exist_is_not_created(broker, client):
    missing = TopicName.parse("topic://public/default/missing", scalable=True)
    with pytest.raises(TopicNotFoundError, match="missing"):
        LayoutWatch(client, missing)
    broker.wait_for_command(Type.SCALABLE_TOPIC_CLOSE)  # so that the connection may end


def test_a_broker_without_scalable_topics(broker, client):
    broker.has_segments = False
    with pytest.raises(UnsupportedError, match=r"no scalable topics.*st.*Pulsar 5"):
        LayoutWatch(client, TOPIC)
    assert broker.seen(Type.SCALABLE_TOPIC_LOOKUP) == []


def test_no_answer(broker, client):
    hurry(client, 0.2)
    broker.script(Type.SCALABLE_TOPIC_LOOKUP, [silence])
    with pytest.raises(DeadlineError, match="st"):
        LayoutWatch(client, TOPIC)
