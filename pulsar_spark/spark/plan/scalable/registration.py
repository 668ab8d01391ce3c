"""A query's subscription on scalable topics: if registered there, it covers and retains all segments.

Brokers delete a sealed segment once all registered subscriptions have read it; unregistered subscriptions do
not matter. Brokers create a registered subscription on each new segment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pulsar_spark.client import PlanningClient
from pulsar_spark.errors import PulsarError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.source import SourceOptions

_log = logging.getLogger(__name__)


_WHY = "brokers keep the segments of a scalable topic only for a subscription that is registered on it"


def registered(
    client: PlanningClient, options: SourceOptions, topics: Iterable[TopicName], name: str
) -> set[TopicName]:
    """Returns the scalable topics on which a subscription is registered now.

    The cursors of segments do not show this, because a cursor created only on a segment retains nothing.

    Raises:
        BrokerError: the admin service refused, or did not answer.
    """
    return {topic for topic in topics if is_registered(client, options, topic, name)}


def is_registered(client: PlanningClient, options: SourceOptions, topic: TopicName, name: str) -> bool | None:
    """Whether a subscription is registered on a scalable topic; None for a missing topic.

    False without the URL of an admin service.
    """
    if options.admin_url is None:
        return False
    try:
        return client.admin(options.admin_url).scalable_subscriptions(topic).get(name) == "STREAM"
    except TopicNotFoundError:
        return None
    except PulsarError as error:
        raise error.noting(_WHY) from error


def register(client: PlanningClient, options: SourceOptions, topics: Iterable[TopicName], name: str) -> None:
    """Registers a subscription on scalable topics; does nothing if it is registered already.

    Does nothing without the URL of an admin service. Active segments without the subscription get it at their
    first message.
    """
    if options.admin_url is not None:
        for topic in topics:
            try:
                client.admin(options.admin_url).hold_scalable(topic, name)
            except PulsarError as error:
                raise error.noting(_WHY) from error


def unregister(
    client: PlanningClient, options: SourceOptions, topics: Iterable[TopicName], name: str
) -> None:
    """Removes a subscription from scalable topics. Failures are logged."""
    if options.admin_url is not None:
        for topic in topics:
            try:
                client.admin(options.admin_url).release_scalable(topic, name)
            except PulsarError as error:
                _log.warning("subscription %s cannot be removed from topic %s: %s", name, topic, error)
