"""A subscription on scalable topics, by the admin service; test_topics.py shows what it is for."""

import logging

import pytest

from pulsar_spark.errors import AuthError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.plan.scalable import ScalableTopics
from tests.spark.plan.simulated_cluster import SimulatedCluster
from tests.spark.plan.simulated_segments import ScalableTopic
from tests.spark.plan.simulated_spark import options_of

NAME = TopicName.parse("topic://public/default/st", scalable=True)


@pytest.fixture
def cluster():
    cluster = SimulatedCluster()
    ScalableTopic(cluster, str(NAME))
    return cluster


def scalable(cluster, topics):
    return ScalableTopics(cluster, options_of(topics=topics, admin__url="http://localhost:1"))


def test_scalable_topics_get_it_and_lose_it(cluster):
    topics = scalable(cluster, f"{NAME},classic")
    topics.register([NAME], "s")
    topics.register([NAME], "s")
    assert cluster.registered == {NAME: {"s"}}
    topics.unregister([NAME], "s")
    assert cluster.registered == {NAME: set()}


def test_classic_topics_need_no_admin_service(cluster):
    topics = ScalableTopics(cluster, options_of(topic="classic"))
    topics.register([], "s")
    topics.unregister([], "s")


def test_a_refusal_is_an_error_before_and_a_warning_after(cluster, caplog):
    class Refusing:
        def hold_scalable(self, topic, name):
            raise AuthError("no")

        scalable_subscriptions = release_scalable = hold_scalable

    cluster.admin = lambda url: Refusing()
    with pytest.raises(AuthError, match="only for a subscription that is registered"):
        scalable(cluster, str(NAME)).register([NAME], "s")
    with caplog.at_level(logging.WARNING):
        scalable(cluster, str(NAME)).unregister([NAME], "s")
    assert str(NAME) in caplog.text
