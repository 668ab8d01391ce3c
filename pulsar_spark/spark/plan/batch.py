"""The plan of a batch read: what the topics hold now, between the start and the end that the user gave."""

from __future__ import annotations

from pulsar_spark.client import Client, shared_client
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import Positions, PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.broker_probe import BrokerProbe, cut
from pulsar_spark.spark.plan.ranges import Range, plan_batch
from pulsar_spark.spark.plan.resolve import PartitionBounds, probe_bounds, resolve, subscribed
from pulsar_spark.spark.plan.topics import first_contact


def plan_read(options: SourceOptions) -> list[Range]:
    """The tasks of a batch read; no subscription stays behind, and no position is moved.

    Raises:
        TopicNotFoundError: a topic does not exist.
        OptionError: a start or an end that does not fit the partitions.
        BrokerError: no broker could be asked.
    """
    partitions = first_contact(options)
    client = shared_client(options.client)
    looks = probe_bounds(client, partitions)
    ranges = plan_batch(
        starts=_positions(client, options, options.start, looks),
        ends=_positions(client, options, options.end, looks),
        begins={topic: seen.begin for topic, seen in looks.items()},
        lasts={topic: seen.last for topic, seen in looks.items()},
    )
    return cut(ranges, options, BrokerProbe(client, options.admin_url, lambda topic: None))


def _positions(
    client: Client, options: SourceOptions, given: Positions, looks: dict[TopicName, PartitionBounds]
) -> dict[TopicName, MessageId]:
    if given.everywhere is PositionWord.SUBSCRIPTION:
        assert options.subscription is not None
        return subscribed(client, looks, options.subscription)
    return resolve(client, given.of(looks), looks)
