import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.options.option import Mode
from pulsar_spark.spark.options.source import SubscriptionSettings
from tests.spark.options.parsing import sink, source


def test_what_the_broker_is_told_of_a_subscription():
    options = source(
        pulsar_consumer_consumerName="etl",
        pulsar_consumer_subscriptionProperties='{"team": "sales"}',
        pulsar_consumer_replicateSubscriptionState="false",
    )
    assert options.client.consumer_name == "etl"
    assert options.subscription_settings == SubscriptionSettings((("team", "sales"),), is_replicated=False)


def test_nothing_is_told_by_default():
    options = source()
    assert options.client.consumer_name is None
    assert options.subscription_settings == SubscriptionSettings()


def test_a_batch_has_consumers_and_no_durable_subscription():
    assert source(Mode.BATCH, pulsar_consumer_consumerName="etl").client.consumer_name == "etl"
    for name, text in (("subscriptionProperties", "{}"), ("replicateSubscriptionState", "false")):
        with pytest.raises(OptionError, match=f"{name} is not allowed for reading a batch"):
            source(Mode.BATCH, **{f"pulsar_consumer_{name}": text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumerName", ""),
        ("subscriptionProperties", '{"team": 1}'),
        ("subscriptionProperties", "team=sales"),
        ("replicateSubscriptionState", "yes"),
        ("replicateSubscriptionState", "true"),
    ],
)
def test_what_is_refused(name, text):
    with pytest.raises(OptionError, match=rf"pulsar\.consumer\.{name} is .*It must be "):
        source(**{f"pulsar_consumer_{name}": text})


def test_the_sink_has_none_of_them():
    with pytest.raises(OptionError, match="consumerName is not one of the sink"):
        sink(pulsar_consumer_consumerName="etl")
