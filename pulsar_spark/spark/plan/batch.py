"""The plan of a batch read: the present messages of the topics, between the user's start and end."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pulsar_spark.client import PartitionBounds, PlanningClient, Range
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import Positions, PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.broker_probe import BrokerProbe
from pulsar_spark.spark.plan.ranges import plan_batch, split_ranges
from pulsar_spark.spark.plan.resolve import probe_bounds, resolve, subscribed, warn_of_late_starts
from pulsar_spark.spark.plan.topics import first_contact, migrated

_log = logging.getLogger(__name__)


def plan_read(options: SourceOptions, client: PlanningClient | None = None) -> list[Range]:
    """Plans the tasks of a batch read. Leaves no subscription behind, and moves no position.

    Raises:
        TopicNotFoundError: a topic does not exist.
        OptionError: a start or an end does not fit the partitions.
    """
    client = client or PlanningClient.shared(options.client, read_compacted=options.read_compacted)
    partitions = first_contact(client, options)
    for error in migrated(client, [*options.topics, *partitions]):
        _log.warning("%s", error)
    # A segment may have been removed since its lookup; like removed old messages, this is no error.
    segments = [topic for topic in partitions if topic.is_segment]
    classic = [topic for topic in partitions if not topic.is_segment]
    bounds = probe_bounds(client, classic, must_exist=options.must_exist)
    bounds |= probe_bounds(client, segments, must_exist=False)
    starts = _positions(client, options, options.start, bounds)
    warn_of_late_starts(client, options.start.option, starts, bounds)
    ranges = plan_batch(
        starts=starts,
        ends=_positions(client, options, options.end, bounds),
        begins={topic: each.begin for topic, each in bounds.items()},
        lasts={topic: each.last for topic, each in bounds.items()},
    )
    return split_ranges(
        ranges,
        BrokerProbe(client, options.admin_url, on_chunk=lambda topic: None),
        min_partitions=options.min_partitions,
        max_messages=options.max_messages_per_partition,
    )


def _positions(
    client: PlanningClient,
    options: SourceOptions,
    given: Positions,
    bounds: Mapping[TopicName, PartitionBounds],
) -> dict[TopicName, MessageId]:
    if given.everywhere is PositionWord.SUBSCRIPTION:
        assert options.subscription is not None
        return subscribed(client, bounds, options.subscription)
    return resolve(client, given.of(bounds), bounds, options.publish_time_margin)
