"""QueryPlanner: what Spark's planner process keeps for one run of a streaming query.

Spark checkpoints the start and end of each batch; what is decided here must come out the same from there.

    fresh query     initial() makes a subscription, which holds everything from the start on. Unless that is
                    "earliest" the first latest() takes nothing: Spark checkpoints an empty batch 0 and with
                    it the start.
    every trigger   latest(start): Spark has checkpointed ``start`` as processed, it is acknowledged
    restart         ranges(start, end) of the unfinished batch, or latest(start): both name the subscription
                    to go on with. For a batch 0 that did not finish Spark calls initial() once more and hands
                    over that start. A subscription made for it is removed again, and the batch begins no
                    later than where the one in ``end`` stands, to which nothing was acknowledged yet.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pulsar_spark.client import Deadline, InitialPosition, LastMessageId, now, run_all, shared_client
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import AtTime, PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.admission import Admission
from pulsar_spark.spark.plan.broker_probe import BrokerProbe, cut
from pulsar_spark.spark.plan.data_loss import LossRules
from pulsar_spark.spark.plan.ends import EndTracker
from pulsar_spark.spark.plan.offsets import Json, Offsets
from pulsar_spark.spark.plan.ranges import Range, plan_ranges, progress
from pulsar_spark.spark.plan.resolve import before_time, probe_bounds
from pulsar_spark.spark.plan.start import begin
from pulsar_spark.spark.plan.subscription import Subscription
from pulsar_spark.spark.plan.topics import Topics, first_contact

_log = logging.getLogger(__name__)

# Seconds until a batch that was not due, or not possible, is planned again.
_HELD_BACK = 0.5


class QueryPlanner:
    """Plans the batches of one run of a query and acknowledges what is processed.

    Raises:
        TopicNotFoundError: a topic does not exist.
        BrokerError: no broker answers within :data:`topics.FIRST_CONTACT` seconds.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = shared_client(options.client)
        self._topics = Topics(self._client, options, first_contact(options))
        self._lookahead = BrokerProbe(self._client, options.admin_url, self._hold_chunks)
        self._admission = Admission(options.limits, self._lookahead, run_all)
        self._outlook = EndTracker(self._client, self._ask, self._check, self._hold_chunks)
        self._loss = LossRules(self._client, options)
        self._subscription: Subscription | None = None
        self._fresh: Offsets | None = None
        self._fresh_is_planned = False
        self._start_is_durable = False
        self._frozen: dict[TopicName, MessageId] | None = None
        self._held_back = Deadline(0.0)
        self._timed: set[TopicName] = set()
        # As of the last trigger: up to where partitions were taken and will be taken, and their backlogs.
        self._positions: dict[TopicName, MessageId] = {}
        self._planned: dict[TopicName, MessageId] = {}
        self._backlogs: dict[TopicName, int] = {}

    # ---- called by Spark

    def initial(self) -> Offsets:
        """Where a query begins that has no checkpoint; always the same in one run."""
        if self._fresh is None:
            subscription, answers, positions = begin(self._client, self._options, self._topics.partitions)
            self._subscription = subscription
            self._outlook.add(answers)
            self._fresh = Offsets(subscription.name, positions)
        return self._fresh

    def freeze(self) -> None:
        """Take what the topics hold now as all there is (Trigger.AvailableNow)."""
        looks = probe_bounds(self._client, self._topics.partitions)
        self._frozen = {topic: seen.last for topic, seen in looks.items()}

    def latest(self, start: Offsets, *, limited: bool = True) -> Offsets:
        """Acknowledge ``start``, which is processed, and return the next end; ``start`` if there is none.

        Args:
            start: the end of the batch before.
            limited: whether the user's limits hold.
        """
        subscription = self._follow(start, start.positions)
        self._fresh_is_planned = True
        begins_with_rows = self._options.start.everywhere is PositionWord.EARLIEST
        if start == self._fresh and not self._start_is_durable and not begins_with_rows:
            self._start_is_durable = True
            return start
        self._take_in_new_partitions(subscription)
        recreated = self._loss.take_recreated()
        self._positions = {
            topic: begins if topic in recreated else start.positions.get(topic, begins)
            for topic, begins in subscription.begins.items()
        }
        for topic in self._outlook.refresh():
            self._drop(subscription, topic)
        self._acknowledge(subscription)
        self._planned = self._plan(subscription, limited)
        return Offsets(start.subscription, self._planned)

    def report(self) -> Json:
        """Ends and backlogs for the query's progress, as of the last trigger."""
        lasts = {topic: self._last(topic) for topic in self._planned}
        return progress(self._planned, lasts, self._backlogs)

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What the tasks of the batch ``(start, end]`` read."""
        processed = start.positions if start.subscription == end.subscription else end.positions
        # A partition that the end leaves out was gone when that was planned, and was told of then.
        subscription = self._follow(
            end, {topic: position for topic, position in processed.items() if topic in end.positions}
        )
        ranges = self._behind_times(plan_ranges(start, end, subscription.begins))
        tasks = cut(ranges, self._options, self._lookahead)
        _log.info(
            "a batch of %d tasks: %s",
            len(tasks),
            ", ".join(f"{each.topic} ({each.start}, {each.end}]" for each in ranges),
        )
        return tasks

    def commit(self) -> None:
        """Acknowledge what the last ``latest`` was told is processed, where that has failed."""
        if self._subscription is not None:
            self._acknowledge(self._subscription)

    def close(self) -> None:
        """Let go of the subscription, which stays for the next run; if no checkpoint can name it, it goes."""
        self._admission.close()
        self._outlook.close()
        self._topics.close()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._leave(subscription)

    # ---- subscription and topics

    def _follow(self, offsets: Offsets, processed: Mapping[TopicName, MessageId]) -> Subscription:
        """The subscription that a checkpointed offset names, on all partitions that are read now.

        It is asked for as one that would begin at the end: if somebody removed it, it shows as one that has
        acknowledged what this query never did.
        """
        before, name = self._subscription, offsets.subscription
        if before is not None and before.name == name:
            return before
        partitions = self._topics.partitions
        for topic in sorted(processed.keys() - set(partitions)):
            self._loss.gone_while_stopped(topic, processed[topic], name)
        self._subscription = None
        found = Subscription(self._client, name, self._options.chunks.expire)
        try:
            missing = found.missing([topic for topic in partitions if topic in processed])
            answers = found.open(
                {
                    topic: InitialPosition.LATEST if topic in processed else InitialPosition.EARLIEST
                    for topic in partitions
                }
            )
            for topic, answer in answers.items():
                if topic in processed:
                    self._loss.on_restart(
                        found, topic, processed[topic], answer, was_missing=topic in missing
                    )
        except BaseException:  # SystemExit, too: that is how Spark ends the planner
            found.close()
            raise
        finally:
            if before is not None:
                self._leave(before)
        self._outlook.close()
        self._outlook.add(answers)
        self._subscription = found
        return found

    def _leave(self, subscription: Subscription) -> None:
        mine = self._options.subscription is None
        made_here = mine and self._fresh is not None and subscription.name == self._fresh.subscription
        if (made_here and not self._fresh_is_planned) or not self._options.retain_subscription:
            subscription.unsubscribe()
        else:
            subscription.close()

    def _take_in_new_partitions(self, subscription: Subscription) -> None:
        """Read topics and partitions that are new from their beginning."""
        if self._frozen is not None:
            return
        self._topics.refresh()
        new = [topic for topic in self._topics.partitions if topic not in subscription.begins]
        if not new:
            return
        try:
            answers = subscription.open(dict.fromkeys(new, InitialPosition.EARLIEST))
        except PulsarError as error:
            for topic in new:
                subscription.drop(topic)
            if not error.is_passing:
                raise
            _log.warning("new partitions cannot be read yet, it is tried again: %s", error)
            return
        _log.info("new partitions are read: %s", ", ".join(map(str, new)))
        self._outlook.add(answers)

    def _drop(self, subscription: Subscription, topic: TopicName) -> None:
        """Go on without a topic, or one partition, that was deleted."""
        position, last = self._positions.pop(topic), self._last(topic)
        subscription.drop(topic)
        self._outlook.drop(topic)
        self._topics.drop(topic)
        self._loss.topic_gone(topic, position, last)

    def _hold_chunks(self, topic: TopicName) -> None:
        if self._subscription is not None:
            self._subscription.hold_chunks(topic)

    def _acknowledge(self, subscription: Subscription) -> None:
        """Acknowledge what is processed; a start that the user gave may lie behind all there is."""
        processed = {topic: min(position, self._last(topic)) for topic, position in self._positions.items()}
        news = subscription.without_chunks(processed)
        urgent = {topic for topic, position in news.items() if position >= self._end(topic)}
        later = news.keys() - self._lookahead.look_for_chunks(news, urgent)
        subscription.acknowledge({topic: each for topic, each in processed.items() if topic not in later})

    # ---- ends

    def _ask(self, topics: Sequence[TopicName]) -> Mapping[TopicName, LastMessageId | PulsarError]:
        return {} if self._subscription is None else self._subscription.ask(topics)

    def _check(self, topic: TopicName, answer: LastMessageId) -> None:
        if (subscription := self._subscription) is not None:
            position = self._positions.get(topic, subscription.begins[topic])
            self._loss.on_answer(subscription, topic, position, self._last(topic), answer)

    def _last(self, topic: TopicName) -> MessageId:
        """The last visible message; in front of everything where there is none."""
        last = self._outlook.last(topic)
        return MessageId(-1, -1) if last.entry < 0 else last.whole_entry

    def _plan(self, subscription: Subscription, limited: bool) -> dict[TopicName, MessageId]:
        starts = self._positions
        ends = {topic: max(position, self._end(topic)) for topic, position in starts.items()}
        limits = self._options.limits
        if ends == starts or not limited or not (limits.capped or limits.min_messages):
            return ends
        if not self._held_back.passed:
            return starts
        self._backlogs = self._count_backlogs(subscription, starts, ends)
        available_now = self._frozen is not None
        planned = self._admission.plan(starts, ends, self._backlogs, now(), available_now=available_now)
        if planned == starts:
            self._held_back = Deadline(_HELD_BACK)
        return planned

    def _count_backlogs(
        self,
        subscription: Subscription,
        starts: Mapping[TopicName, MessageId],
        ends: Mapping[TopicName, MessageId],
    ) -> dict[TopicName, int]:
        """Entries between starts and ends: within a ledger by their numbers, else the broker counts them."""
        counts, across = {}, []
        for topic, end in ends.items():
            start = starts[topic]
            if start < end and start.ledger == end.ledger:
                counts[topic] = end.entry - start.entry
            elif start < end:
                across.append(topic)
        return counts | (subscription.backlogs(across) if across else {})

    def _end(self, topic: TopicName) -> MessageId:
        last = self._last(topic)
        return last if self._frozen is None else min(last, self._frozen.get(topic, last))

    # ---- ranges

    def _behind_times(self, ranges: list[Range]) -> list[Range]:
        """Leave out what was published before ``startingTime``: it may have come after the query began."""
        starts = self._options.start
        timed = []
        for each in ranges:
            time = starts.everywhere or starts.named.get(each.topic, starts.named.get(each.topic.base))
            if isinstance(time, AtTime) and each.topic not in self._timed:
                start, end = each.start.last_whole_entry, each.end.whole_entry
                first = before_time(self._client, each.topic, time, start, end)
                if first >= end:
                    continue
                self._timed.add(each.topic)
                each = each._replace(start=max(each.start, first))
            timed.append(each)
        return timed
