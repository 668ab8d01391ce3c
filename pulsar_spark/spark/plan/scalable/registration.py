"""A query's subscription on scalable topics: registered there, it has all segments, and holds them.

Brokers delete a sealed segment that no registered subscription has left to read, whatever other subscriptions
have. They give a registered one to the segments that come.
"""

from __future__ import annotations

import logging

from pulsar_spark.client import PlanningClient
from pulsar_spark.errors import PulsarError, TopicNotFoundError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.options.source import SourceOptions

_log = logging.getLogger(__name__)


_WHY = "brokers keep the segments of a scalable topic only for a subscription that is registered on it"


def registered(client: PlanningClient, options: SourceOptions, name: str) -> set[TopicName]:
    """The scalable topics to read on which a subscription is registered now.

    The cursors of segments do not tell that: one that is made on a segment alone holds nothing.

    Raises:
        BrokerError: the admin service refused, or did not answer.
    """
    return {topic for topic in options.scalable_topics if is_registered(client, options, topic, name)}


def is_registered(client: PlanningClient, options: SourceOptions, topic: TopicName, name: str) -> bool | None:
    """Whether a subscription is registered on a scalable topic; None if that does not exist.

    Raises:
        BrokerError: the admin service refused, or did not answer.
    """
    if options.admin_url is None:
        return False
    try:
        return name in client.admin(options.admin_url).scalable_subscriptions(topic)
    except TopicNotFoundError:
        return None
    except PulsarError as error:
        raise error.noting(_WHY) from error


def register(client: PlanningClient, options: SourceOptions, name: str) -> None:
    """Register a subscription; nothing changes where it is registered already.

    Segments that take messages get it at their first message, unless they have it.

    Raises:
        BrokerError: the admin service refused, or did not answer.
    """
    if options.admin_url is not None:
        for topic in options.scalable_topics:
            try:
                client.admin(options.admin_url).hold_scalable(topic, name)
            except PulsarError as error:
                raise error.noting(_WHY) from error


def unregister(client: PlanningClient, options: SourceOptions, name: str) -> None:
    """Remove a subscription from scalable topics. Failures are logged."""
    if options.admin_url is not None:
        for topic in options.scalable_topics:
            try:
                client.admin(options.admin_url).release_scalable(topic, name)
            except PulsarError as error:
                _log.warning("subscription %s cannot be removed from topic %s: %s", name, topic, error)
