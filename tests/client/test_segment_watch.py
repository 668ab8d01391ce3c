"""SegmentWatch: the segments of a scalable topic, by one lookup session."""

import pytest

from pulsar_spark.client import PlanningClient, SegmentWatch
from pulsar_spark.errors import DeadlineError, NotReadyError, TopicNotFoundError, UnsupportedError
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import hurry, wait_until
from tests.fake_broker import FakeBroker, silence
from tests.fake_clients import Type
from tests.protocol.test_segments import segment

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


def numbers(layout):
    return [name.partition for name in layout.segments]


def test_it_has_the_segments_and_learns_of_each_change_without_a_request(broker, client):
    with SegmentWatch(client, TOPIC) as watch:
        assert numbers(watch.layout()) == [0]
        assert not watch.changed
        broker.lay_out(str(TOPIC), SPLIT)
        wait_until(lambda: watch.changed)
        assert numbers(watch.layout()) == [0, 1, 2]
        assert not watch.changed
        assert len(broker.seen(Type.SCALABLE_TOPIC_LOOKUP)) == 1


def test_an_older_layout_changes_nothing(broker, client):
    with SegmentWatch(client, TOPIC) as watch:
        broker.lay_out(str(TOPIC), SPLIT)
        wait_until(lambda: watch.changed)
        watch.layout()
        broker.lay_out(str(TOPIC), WHOLE)
        client.topics_of_namespace("public", "default")  # what was sent before has come
        assert not watch.changed
        assert numbers(watch.layout()) == [0, 1, 2]


def test_a_lost_session_is_looked_up_again(broker, client):
    with SegmentWatch(client, TOPIC) as watch:
        broker.layouts[str(TOPIC)] = SPLIT
        broker.cut()
        wait_until(lambda: watch.changed)
        assert numbers(watch.layout()) == [0, 1, 2]


def test_an_older_layout_after_a_lost_session_is_not_taken(broker, client):
    with SegmentWatch(client, TOPIC) as watch:
        broker.lay_out(str(TOPIC), SPLIT)
        wait_until(lambda: watch.changed)
        watch.layout()
        broker.layouts[str(TOPIC)] = WHOLE
        hurry(client, 0.5)
        for _ in range(2):
            broker.cut()
            wait_until(lambda: watch.changed)
            with pytest.raises(NotReadyError, match=r"epoch 4, and others knew 5.*restart"):
                watch.layout()
            assert watch.changed
        hurry(client, 30.0)
        broker.layouts[str(TOPIC)] = SPLIT
        assert numbers(watch.layout()) == [0, 1, 2]


def test_a_layout_that_came_and_was_not_taken_is_not_gone_back_from(broker, client):
    with SegmentWatch(client, TOPIC) as watch:
        broker.lay_out(str(TOPIC), SPLIT)
        wait_until(lambda: watch.changed)
        broker.layouts[str(TOPIC)] = WHOLE
        broker.cut()
        wait_until(lambda: watch._updates.error is not None)
        hurry(client, 0.5)
        with pytest.raises(NotReadyError):
            watch.layout()


def test_a_topic_that_is_made_again_begins_anew(broker, client):
    with SegmentWatch(client, TOPIC) as watch:
        del broker.layouts[str(TOPIC)]
        broker.cut()
        wait_until(lambda: watch.changed)
        with pytest.raises(TopicNotFoundError):
            watch.layout()
        broker.layouts[str(TOPIC)] = dag(0, segment(0, 0, 0xFFFF))
        assert watch.layout().epoch == 0


def test_a_lookup_that_does_not_end_well_leaves_nothing(broker, client, monkeypatch):
    """Whatever ended it, also what is no error of Pulsar."""
    opened = []
    service = client.service

    def service_of(deadline):
        opened.append(service(deadline))
        return opened[-1]

    monkeypatch.setattr(client, "service", service_of)
    hurry(client, 0.2)
    broker.script(Type.SCALABLE_TOPIC_LOOKUP, [silence])
    with pytest.raises(DeadlineError):
        SegmentWatch(client, TOPIC)
    monkeypatch.setattr("pulsar_spark.client.watches._Updates.await_first", exits)
    with pytest.raises(SystemExit):
        SegmentWatch(client, TOPIC)
    assert opened
    for session in opened:
        assert not session._handlers


def exits(*_):
    raise SystemExit


def test_it_ends_its_session(broker, client):
    assert numbers(PlanningClient(client).layout(TOPIC)) == [0]
    client.topics_of_namespace("public", "default")
    assert len(broker.seen(Type.SCALABLE_TOPIC_CLOSE)) == 1


def test_what_does_not_exist_is_not_created(broker, client):
    missing = TopicName.parse("topic://public/default/missing", scalable=True)
    with pytest.raises(TopicNotFoundError, match="missing"):
        SegmentWatch(client, missing)
    broker.wait_for_command(Type.SCALABLE_TOPIC_CLOSE)  # so that the connection may end


def test_a_broker_without_scalable_topics(broker, client):
    broker.has_segments = False
    with pytest.raises(UnsupportedError, match=r"no scalable topics.*st.*Pulsar 5"):
        SegmentWatch(client, TOPIC)
    assert broker.seen(Type.SCALABLE_TOPIC_LOOKUP) == []


def test_no_answer(broker, client):
    hurry(client, 0.2)
    broker.script(Type.SCALABLE_TOPIC_LOOKUP, [silence])
    with pytest.raises(DeadlineError, match="st"):
        SegmentWatch(client, TOPIC)
