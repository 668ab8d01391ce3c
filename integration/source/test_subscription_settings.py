"""What brokers show of a query's subscription and consumers."""

import pytest

from integration.helpers.clients import reader, subscription
from pulsar_spark.client import Client, Consumer
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.parse import parse_source
from pulsar_spark.spark.plan.stream import QueryPlanner


def options_of(cluster, topic, **consumer):
    given = {f"pulsar.consumer.{name}": text for name, text in consumer.items()}
    place = {"service.url": cluster.service_url, "topic": topic, "predefinedSubscription": "query"}
    return parse_source({**place, **given}, Mode.STREAM)


def shown(admin, topic, options):
    """The subscription's statistics while a query has it."""
    planner = QueryPlanner(options)
    try:
        planner.initial()
        return subscription(admin, topic, "query")
    finally:
        planner.close()


def test_properties_replication_and_name(cluster, admin, topic):
    admin.create_topic(topic)
    options = options_of(
        cluster,
        topic,
        consumerName="etl",
        subscriptionProperties='{"team": "sales", "größe": ""}',
        replicateSubscriptionState="false",
    )
    found = shown(admin, topic, options)
    assert found["subscriptionProperties"] == {"team": "sales", "größe": ""}
    assert found["isReplicated"] is False
    assert [each["consumerName"] for each in found["consumers"]] == ["etl"]
    # Properties stay as they were made.
    again = shown(admin, topic, options_of(cluster, topic, subscriptionProperties='{"team": "other"}'))
    assert again["subscriptionProperties"] == {"team": "sales", "größe": ""}


def test_nothing_by_default(cluster, admin, topic):
    admin.create_topic(topic)
    found = shown(admin, topic, options_of(cluster, topic))
    assert found["subscriptionProperties"] == {}
    assert found["isReplicated"] is False
    assert [each["consumerName"] for each in found["consumers"]] != ["etl"]


@pytest.mark.usefixtures("leaves_nothing")
def test_readers_of_tasks_have_the_name(cluster, admin, topic):
    admin.create_topic(topic)
    options = options_of(cluster, topic, consumerName="etl").client
    with Client(options) as client, Consumer(client, TopicName.parse(topic), reader()):
        found = subscription(admin, topic, "reader")
    assert [each["consumerName"] for each in found["consumers"]] == ["etl"]
