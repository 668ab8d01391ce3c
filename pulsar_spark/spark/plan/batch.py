"""The tasks of a read: MicroBatchPlanner plans a stream's micro-batches, :func:`plan_read` a batch read.

A batch reads the present messages of the topics, between the user's start and end.

A micro-batch reads the messages after each partition's processed position, within the user's limits. It
leaves out a partition for these reasons:

    the partition is not OPEN (``Life``)       its broker is silent, it follows an unread segment, or is done
    its entries could not be probed in time    other partitions must not wait; it is tried again after a pause
    its topic ends before its position         Spark must first checkpoint the topic's end as its position
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from pulsar_spark.client import PROMPT, Calls, Kind, PartitionBounds, PlanningClient, Range
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import Positions, PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.admission import Admission
from pulsar_spark.spark.plan.broker_probe import BrokerProbe
from pulsar_spark.spark.plan.offsets import Offsets
from pulsar_spark.spark.plan.partition import Life, Partition
from pulsar_spark.spark.plan.ranges import plan_batch, plan_ranges, split_ranges
from pulsar_spark.spark.plan.resolve import (
    probe_bounds,
    resolve,
    run_for_each,
    subscribed,
    warn_of_late_starts,
)
from pulsar_spark.spark.plan.start import after_start_times
from pulsar_spark.spark.plan.topics import first_contact, migrated

_log = logging.getLogger(__name__)

# Seconds until the next plan after a plan without messages, because no batch was due or possible.
_HELD_BACK = 0.5
# Seconds until the next plan while probes are pending; few, because their answers may make a batch possible.
_LOOK_AGAIN = 0.1


class MicroBatchPlanner:
    """Plans the micro-batches of one run of a query."""

    def __init__(
        self,
        client: PlanningClient,
        calls: Calls[Partition],
        options: SourceOptions,
        on_chunk: Callable[[TopicName], None],
    ) -> None:
        self._client = client
        self._options = options
        self._broker_probe = BrokerProbe(client, options.admin_url, on_chunk)
        self._admission = Admission(options.limits, self._broker_probe, calls)
        self._held_back_until = 0.0
        self._pauses = calls[Kind.ENTRIES].pauses

    def ends(
        self,
        partitions: Mapping[TopicName, Partition],
        checkpoint: Offsets,
        *,
        limited: bool = True,
        available_now: bool = False,
    ) -> dict[Partition, MessageId]:
        """Returns the ends of the next micro-batch; all partitions' positions if no batch is due.

        Args:
            partitions: state of each partition; partitions without a position are left out.
            available_now: whether the run reads only messages that existed at its start, and so waits for
                every partition.

        Raises:
            TopicNotFoundError: a partition was deleted; the error names it.
        """
        now = self._client.now()
        starts = {each: each.position for each in partitions.values() if each.position is not None}
        resting = set() if available_now else self._pauses.resting(now)
        ends = {
            each: position
            if each in resting
            or each.life is not Life.OPEN
            or checkpoint.positions.get(each.topic, position) > position
            else max(position, each.end)
            for each, position in starts.items()
        }
        limits = self._options.limits
        if ends == starts or not limited or not (limits.is_capped or limits.min_messages):
            return ends
        if now < self._held_back_until:
            return starts
        backlogs = {each: count for each, end in ends.items() if (count := each.entries_until(end))}
        patience = None if available_now else PROMPT
        planned = self._admission.plan(
            starts, ends, backlogs, now, available_now=available_now, patience=patience
        )
        now = self._client.now()
        for partition, end in planned.items():
            if partition in self._admission.failed:
                self._pauses.failed(partition, now)
            elif end != starts[partition]:
                self._pauses.succeeded(partition)
        if planned == starts:
            self._held_back_until = now + (_LOOK_AGAIN if self._admission.is_busy else _HELD_BACK)
        return planned

    def due_at(self, now: float) -> float:
        """Returns the time to call :meth:`ends` again if no new entry arrives before; infinity: never."""
        times = [self._pauses.due_at(now)]
        if self._held_back_until > now:
            times.append(self._held_back_until)
        return min(times)

    def tasks(self, partitions: Mapping[TopicName, Partition], start: Offsets, end: Offsets) -> list[Range]:
        """Returns the ranges of ``(start, end]``; leaves out partitions deleted or ending before ``start``.

        Args:
            partitions: state of each partition; its ``is_start_time_found`` is updated.
        """
        planned = plan_ranges(start, end, {topic: state.start for topic, state in partitions.items()})
        existing = [
            each for each in planned if each.topic in partitions and not partitions[each.topic].is_set_back
        ]
        ranges = self._with_begins(
            partitions, after_start_times(self._client, self._options, partitions, existing)
        )
        tasks = self.split(ranges)
        _log.info(
            "a micro-batch of %d tasks: %s",
            len(tasks),
            ", ".join(f"{each.topic} ({each.start}, {each.end}]" for each in ranges),
        )
        return tasks

    def split(self, ranges: list[Range]) -> list[Range]:
        """Cuts ranges into the tasks' parts, by ``minPartitions`` and ``maxMessagesPerPartition``."""
        return split_ranges(
            ranges,
            self._broker_probe,
            min_partitions=self._options.min_partitions,
            max_messages=self._options.max_messages_per_partition,
        )

    def _with_begins(self, partitions: Mapping[TopicName, Partition], ranges: list[Range]) -> list[Range]:
        """Sets each range's ``begins``: at planning, the broker had all of its messages after this position.

        For a range within a ledger, ``begins`` is the range's start, because the broker keeps a ledger with
        unread messages. Otherwise the start's ledger may be consumed and deleted. Then ``begins`` is the
        position before the range's first message that is stored, or that the planner knew.
        """
        if self._client.read_compacted:
            return ranges
        across = [each for each in ranges if each.start.ledger != each.end.ledger]
        find = self._client.first_after
        firsts = run_for_each(
            {each.topic: partial(find, each.topic, each.start.last_whole_entry) for each in across}
        )
        found = []
        for each in ranges:
            start, seen = each.start.last_whole_entry, partitions[each.topic].next_seen.whole_entry
            first = firsts.get(each.topic, start.next_entry)
            known = [it for it in (first, seen) if it is not None and start < it <= each.end.whole_entry]
            found.append(each._replace(begins=min(known).previous) if known else each)
        return found


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
    ranges = plan_batch(starts, _positions(client, options, options.end, bounds), bounds)
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
