"""A query's subscription on scalable topics: registered there, it has all segments, and holds them.

Brokers delete a sealed segment that no registered subscription has left to read, whatever other subscriptions
have. They give a registered one to the segments that come.
"""

from __future__ import annotations

import logging

from pulsar_spark.client import PlanningClient
from pulsar_spark.errors import PulsarError
from pulsar_spark.spark.options.source import SourceOptions

_log = logging.getLogger(__name__)


def register(client: PlanningClient, options: SourceOptions, name: str) -> None:
    """Register a subscription; nothing changes where it is registered already.

    Call it when the subscription is open on the segments, which it otherwise begins to read from the start.

    Raises:
        BrokerError: the admin service refused, or did not answer.
    """
    topics = [topic for topic in options.topics if topic.is_scalable]
    if options.admin_url is not None and topics:
        admin = client.admin(options.admin_url)
        for topic in topics:
            admin.hold_scalable(topic, name)


def unregister(client: PlanningClient, options: SourceOptions, name: str) -> None:
    """Remove a subscription from scalable topics. Failures are logged."""
    topics = [topic for topic in options.topics if topic.is_scalable]
    if options.admin_url is not None and topics:
        admin = client.admin(options.admin_url)
        for topic in topics:
            try:
                admin.release_scalable(topic, name)
            except PulsarError as error:
                _log.warning("subscription %s cannot be removed from topic %s: %s", name, topic, error)
