"""The options of the consumer that holds a stream's durable subscription."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.option import Mode, Parser, Table, Values

CONSUMER = Table()


def _never_replicated(text: str) -> bool:
    if parsers.boolean(text):
        raise ValueError(
            "false. Brokers copy only subscriptions whose consumer receives messages, and a query's receives "
            "none. Set retention in the other cluster"
        )
    return False


CONSUMER_NAME = CONSUMER.add_optional(
    "pulsar.consumer.consumerName",
    parsers.non_empty,
    "Name of all consumers of this query, also of its tasks, in the topics' statistics. Default: names that "
    "the broker chooses.",
)
_SUBSCRIPTION_PROPERTIES = CONSUMER.add(
    "pulsar.consumer.subscriptionProperties",
    parsers.properties,
    "{}",
    'Properties of the durable subscription, shown in the topic\'s statistics: `{"name": "text"}`. They '
    "are set only when the subscription is created.",
    only=Mode.STREAM,
)
_REPLICATE_SUBSCRIPTION_STATE = CONSUMER.add_optional(
    "pulsar.consumer.replicateSubscriptionState",
    Parser("`false`", _never_replicated),
    "`false`: the broker does not copy the durable subscription to other clusters. Default: the namespace's "
    "policy. `true` is refused, because it has no effect. See docs/clusters.md.",
    only=Mode.STREAM,
)


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Settings of a durable subscription, sent with SUBSCRIBE.

    Attributes:
        properties: names and values that the broker stores when it creates the subscription.
        is_replicated: True if its position is copied to other clusters; None: by the namespace's policy.
    """

    properties: tuple[tuple[str, str], ...] = ()
    is_replicated: bool | None = None


def subscription_settings(values: Values) -> SubscriptionSettings:
    """Returns the settings from values of the table CONSUMER."""
    return SubscriptionSettings(values[_SUBSCRIPTION_PROPERTIES], values[_REPLICATE_SUBSCRIPTION_STATE])
