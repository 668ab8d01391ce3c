"""QueryPlanner: the state of one run of a streaming query, in Spark's planner process.

Spark checkpoints the start and end of each batch. All decisions here must be reproducible from these.

    fresh query     initial() makes a subscription, which retains all messages after the start. Unless the
                    start is "earliest", the first latest() plans an empty batch 0, with which Spark
                    checkpoints the start.
    every trigger   latest(start) acknowledges ``start``, which Spark has checkpointed as processed
    restart         ranges(start, end) of the unfinished batch, or latest(start): both name the subscription
                    to continue. For a batch 0 that did not finish, Spark calls initial() again and passes
                    its result as ``start``. This second subscription is removed. The batch starts at the
                    position of the subscription in ``end``, or earlier.

The decisions are made in the other modules of this package; this module calls them in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import TypeVar

from pulsar_spark.client import PROMPT, Calls, Kind, LastMessageId, PlanningClient, Range
from pulsar_spark.errors import TopicNotFoundError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.options.positions import PositionWord
from pulsar_spark.spark.options.source import SourceOptions
from pulsar_spark.spark.plan.batch import MicroBatchPlanner
from pulsar_spark.spark.plan.clusters import MovedError, Moves, Witnesses
from pulsar_spark.spark.plan.ends import EndTracker, QuietTime
from pulsar_spark.spark.plan.loss_check import Checkpoint, LossCheck
from pulsar_spark.spark.plan.offsets import DONE, Json, Offsets, done_in, is_moved
from pulsar_spark.spark.plan.partition import Life, Partition
from pulsar_spark.spark.plan.resolve import existing, probe_bounds
from pulsar_spark.spark.plan.scalable import ScalableTopics, find_ended, not_ended, without_done
from pulsar_spark.spark.plan.source_reporter import SourceReporter
from pulsar_spark.spark.plan.start import QueryStart, restart_query, start_before, start_query
from pulsar_spark.spark.plan.subscription import Subscription
from pulsar_spark.spark.plan.topics import Topics, first_contact

_log = logging.getLogger(__name__)

T = TypeVar("T")
_Positions = Mapping[TopicName, MessageId]

# Seconds after which pending acknowledgements and answers are checked again.
_LOOK_AGAIN = 0.1


class QueryPlanner:
    """Plans the batches of one run of a query, and acknowledges processed messages."""

    def __init__(self, options: SourceOptions, client: PlanningClient | None = None) -> None:
        self._options = options
        self._client = client or PlanningClient.shared(options.client, read_compacted=options.read_compacted)
        self._scalable = ScalableTopics(self._client, options)
        self._calls: Calls[Partition] = Calls()
        found = first_contact(self._client, options)
        self._topics = Topics(self._client, options, self._scalable, found)
        self._micro_batches = MicroBatchPlanner(self._client, self._calls, options, self._meet_chunks)
        self._ends = EndTracker(self._client, self._calls)
        self._witnesses = Witnesses(self._client, self._calls, options)
        self._loss_check = LossCheck(self._client, options, self._topics.take_deleted)
        self._moves = Moves(self._client, options, self._loss_check)
        self._reporter = SourceReporter(self._client, options.client.service_url)
        self._subscription: Subscription | None = None
        self._fresh: Offsets | None = None
        self._fresh_is_planned = False
        self._start_is_durable = False
        self._frozen: Mapping[TopicName, MessageId] | None = None
        self._batch_began: float | None = None
        self._quiet = QuietTime()
        self._report: Json | None = None
        self._changed: dict[TopicName, Partition] = {}  # partitions changed since the last report
        self._continued: Offsets | None = None  # result of the last latest()

    # ---- called by Spark

    def initial(self, end: Offsets | None = None) -> Offsets:
        """Returns the start of a query without a checkpoint; the same in all calls of one run.

        ``end``: end of the first batch, if Spark has recorded it before the start.
        """
        if self._fresh is None:
            started = start_query(
                self._client, self._calls, self._options, self._topics.partitions, self._scalable
            )
            name, positions = self._track(started).name, started.positions
            if end is not None:
                positions = start_before(started, end.positions, self._options)
                self._loss_check.check_first_end(started.subscription, end.positions)
                self._start_is_durable = True  # Spark checkpoints the start before the next latest()
            witness = self._witnesses.at_start(positions) if end is None else None
            self._fresh = Offsets(name, positions, witness)
        return self._fresh

    def first_ends(self, subscription: str) -> dict[TopicName, MessageId]:
        """Returns the present ends of all topic partitions, for the first offset in a checkpoint.

        Raises:
            BusyError: another query uses the subscription, so the offset must not name this subscription.
        """
        ends = self.ends()
        existing(self._client, ends, subscription)
        return ends

    def ends(self) -> dict[TopicName, MessageId]:
        """Returns the present ends of all topic partitions."""
        bounds = probe_bounds(self._client, self._topics.partitions, must_exist=False)
        return {topic: each.last for topic, each in bounds.items()}

    def freeze(self, ends: _Positions | None = None) -> None:
        """Limits the run to ``ends``, by default to the present ends of the topics (Trigger.AvailableNow)."""
        self._frozen = self.ends() if ends is None else ends
        for topic, state in self._partitions.items():
            state.frozen_end = self._frozen.get(topic)

    def latest(self, start: Offsets, *, limited: bool = True) -> Offsets:
        """Acknowledges the processed ``start``, and returns the next end; ``start`` if there is none.

        Does nothing if the last call returned ``start`` itself, and no message was received since.
        """
        self._reporter.begin_trigger()
        self._quiet.trigger(start, self._client.now())
        if self._is_quiet(start, limited):
            return start
        self._quiet.end()
        try:
            subscription = self._current(start) or self._follow(Checkpoint.finished(start))
        except MovedError as error:
            return self._moves.moved(start, error, self._topics.partitions)
        self._fresh_is_planned = True
        if self._is_first_checkpoint_due(start):
            return start
        # A run that is limited to existing messages, or has one micro-batch (Trigger.Once), must not leave
        # out messages, because they would count as read.
        waits = self._frozen is not None or not limited
        done = done_in(start.positions)
        self._appear(subscription, start, done)
        self._ask(subscription, waits=waits)
        is_all_acknowledged = self._acknowledge(subscription)
        self._measure(subscription, done)
        unsure = self._hold(subscription, start, waits=waits)
        planned = self._limit(subscription, start, limited=limited)
        subscription.settle(start.positions)
        self._continued = planned
        if planned is start:
            if self._frozen is not None and unsure and subscription.is_waited_for:
                raise not_ended(min(unsure))
            due_at = self._next_due(subscription, is_all_acknowledged=is_all_acknowledged)
            self._quiet.begin(start, self._topics.partitions, due_at, limited=limited)
        return planned

    # ---- the steps of a trigger, in order

    def _is_first_checkpoint_due(self, start: Offsets) -> bool:
        """Whether Spark must checkpoint the start of a new query before anything is planned."""
        begins_with_rows = self._options.start.everywhere is PositionWord.EARLIEST
        is_due = not self._start_is_durable and not begins_with_rows and start == self._fresh
        self._start_is_durable = self._start_is_durable or is_due
        return is_due

    def _appear(self, subscription: Subscription, start: Offsets, done: Set[TopicName]) -> None:
        """Adds new partitions, and records the checkpointed position of each partition."""
        if start is not self._continued:
            subscription.unsettle(subscription.partitions.values())
        subscription.note_done(done)
        self._loss_check.absent &= start.positions.keys()
        self._add_new_partitions(subscription, start)
        self._scalable.check_done(done)
        for topic, state in subscription.unsettled.items():
            position = start.positions.get(topic)
            state.take_up(state.last if position == DONE else position)

    def _ask(self, subscription: Subscription, *, waits: bool) -> None:
        """Requests the ends that are due, judges the answers for data loss, and drops deleted partitions."""
        asked = self._ends.refresh(partial(subscription.ask, patience=None if waits else PROMPT))
        subscription.unsettle([*asked.arrived, *asked.answers])
        self._changed |= subscription.unsettled
        answers, deleted = asked.answers, list(asked.gone)
        for partition, answer in answers.items():
            try:
                self._loss_check.check_answer(subscription, partition.topic, answer)
            except TopicNotFoundError:
                deleted.append(partition)
        # The reported deletions of these partitions are dropped, because the check has used them.
        self._topics.forget_deleted([each.topic for each in answers])
        self._ends.renew_tails(list(answers), len(subscription.partitions))
        for partition in deleted:
            self._drop(subscription, partition)
        self._loss_check.reporter.log_noted()

    def _acknowledge(self, subscription: Subscription) -> bool:
        """Acknowledges processed messages; returns True if none are left to acknowledge later."""
        is_polled = self._quiet.is_polled and self._frozen is None
        return subscription.acknowledge_processed(self._options.chunks.expire, is_polled=is_polled)

    def _measure(self, subscription: Subscription, done: Set[TopicName]) -> None:
        """Records ended topics, drops segments that are done, and counts the backlogs."""
        subscription.note_ends(self._scalable.is_ordered)
        subscription.drop_done(done)
        subscription.count_backlogs()
        self._reporter.probe(subscription.unsettled)
        self._report = None
        self._log_processed()

    def _hold(self, subscription: Subscription, start: Offsets, *, waits: bool) -> set[TopicName]:
        """Records which segments must not be read yet, because an older segment is not read to its end.

        If a sealed segment is read to its last visible message, its broker is asked whether it has ended,
        because open transactions may add messages. Returns the read segments not known to have ended.
        """
        held = self._scalable.held(self._topics.partitions, start.positions)
        states = subscription.partitions
        read = [
            states[topic]
            for topic in self._scalable.unsure(start.positions, held) & states.keys()
            if states[topic].position_or_start.last_whole_entry >= states[topic].last
        ]
        ended = find_ended(self._client, self._calls, read, waits=waits)
        for segment in ended.intersection(read):
            self._scalable.note_end(segment.topic, segment.position_or_start)
        if ended:
            held = self._scalable.held(self._topics.partitions, start.positions)
        for topic, state in subscription.unsettled.items():
            state.hold(is_held=topic in held)
        return {each.topic for each in read if each not in ended}

    def _limit(self, subscription: Subscription, start: Offsets, *, limited: bool) -> Offsets:
        """Plans a micro-batch within the limits; returns its end, or ``start`` if it is empty."""
        ends = self._without_deleted(
            subscription,
            lambda: self._micro_batches.ends(
                subscription.unsettled, start, limited=limited, available_now=self._frozen is not None
            ),
        )
        for partition, end in ends.items():
            partition.planned = end
        self._report = None
        states = subscription.partitions
        planned = {topic: position for topic, position in start.positions.items() if topic in states}
        planned |= {partition.topic: end for partition, end in ends.items()}
        planned = self._scalable.with_done(planned, start, self._topics.partitions)
        if not is_moved(planned, start):
            return start
        witness = self._witnesses.renewed(start.witness, ends)
        return Offsets(start.subscription, planned, witness, start.left)

    # ---- between triggers

    def await_news(self) -> None:
        """Waits briefly for new entries, if repeated calls of :meth:`latest` found none."""
        self._ends.wait_for_arrivals(self._quiet.seconds_to_wait(self._client.now()))

    def _is_quiet(self, start: Offsets, limited: bool) -> bool:
        """Whether a trigger has nothing to do, in constant time for any number of partitions."""
        now = self._client.now()
        if self._ends.has_arrivals or not self._quiet.lasts(
            start, self._topics.partitions, now, limited=limited
        ):
            return False
        if self._frozen is None:
            self._topics.refresh()
        return self._quiet.lasts(start, self._topics.partitions, now, limited=limited)

    def _next_due(self, subscription: Subscription, *, is_all_acknowledged: bool) -> float:
        now = self._client.now()
        times = [
            self._ends.due_at,
            self._micro_batches.due_at(now),
            subscription.openings.pauses.due_at(now),
            max(self._calls[Kind.FINAL_END].pauses.due_at(now), now + _LOOK_AGAIN),
        ]
        pending = (subscription.openings, self._calls[Kind.LAST_MESSAGE], self._calls[Kind.FINAL_END])
        if not is_all_acknowledged or any(each.has_more for each in pending):
            times.append(now + _LOOK_AGAIN)
        return min(times)

    def report(self) -> Json:
        """Returns the report for Spark's progress: ends and backlogs at the last trigger."""
        if self._report is None:
            subscription = "" if self._subscription is None else self._subscription.name
            self._report = self._reporter.report(
                subscription, self._partitions, self._changed, self._loss_check.reporter
            )
            self._changed = {} if self._subscription is None else {**self._subscription.unsettled}
        return self._reporter.renewed(self._report)

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """Returns the ranges for tasks of the batch ``(start, end]``; none for a move to another cluster."""
        self._report = None
        if start.left != end.left:
            return []
        subscription = self._current(end)
        if subscription is None:
            try:
                subscription = self._follow(Checkpoint.unfinished(start, end))
            except MovedError as error:
                copied = self._moves.replay(start, end, error, self._topics.partitions)
                return self._micro_batches.split(copied)
        self._start_is_durable = self._start_is_durable or start == self._fresh
        known = subscription.partitions.keys() | self._loss_check.absent
        for topic in end.positions.keys() - known:
            if start.positions.get(topic, MessageId.EARLIEST) < end.positions[topic]:
                Checkpoint(end, start.positions, {}).report_absent(self._loss_check, topic)
        old = done_in(start.positions)
        first, last = (without_done(each, old, subscription.partitions) for each in (start, end))
        tasks = self._without_deleted(
            subscription, lambda: self._micro_batches.tasks(subscription.partitions, first, last)
        )
        self._batch_began = self._client.now()
        if end.left is None:
            return tasks
        return [each._replace(copies=end.left.unread(each.topic)) for each in tasks]

    def commit(self) -> None:
        """Repeats the acknowledgement of the last ``latest``, if it has failed."""
        if self._subscription is not None:
            self._acknowledge(self._subscription)

    def close(self) -> None:
        """Closes the subscription, which stays for the next run, or removes it if no checkpoint names it."""
        self._quiet.end()
        self._report = None
        self._loss_check.reporter.log_noted()
        self._topics.close()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._leave(subscription)

    # ---- subscription and topics

    def _without_deleted(self, subscription: Subscription, plan: Callable[[], T]) -> T:
        """Returns the result of ``plan``; repeats it after dropping a deleted partition that it finds."""
        while True:
            try:
                return plan()
            except TopicNotFoundError as error:
                gone = [each for each in subscription.partitions.values() if str(each.topic) == error.topic]
                if not gone:
                    raise
                self._drop(subscription, gone[0])

    @property
    def _partitions(self) -> Mapping[TopicName, Partition]:
        subscription = self._subscription
        return {} if subscription is None else subscription.partitions

    def _current(self, offsets: Offsets) -> Subscription | None:
        """Returns the open subscription, if it is the subscription in a checkpointed offset."""
        current = self._subscription
        return current if current is not None and current.name == offsets.subscription else None

    def _follow(self, checkpoint: Checkpoint) -> Subscription:
        """Opens the subscription of a checkpoint, and closes or removes the previous subscription."""
        before, self._subscription = self._subscription, None
        if before is None and not self._options.start.is_default:
            _log.info("%s is not used: the query continues from its checkpoint", self._options.start.option)
        try:
            found = restart_query(
                self._client,
                self._calls,
                self._options,
                self._topics,
                self._scalable,
                self._loss_check,
                self._witnesses,
                checkpoint,
            )
        finally:
            if before is not None:
                self._leave(before)
        return self._track(found)

    def _track(self, started: QueryStart) -> Subscription:
        """Uses an opened subscription as the query's current one, and tracks its partitions."""
        self._subscription = started.subscription
        self._scalable.subscription = started.subscription.name
        started.subscription.note_done(done_in(started.positions))
        self._add(started.answers)
        return started.subscription

    def _add(self, answers: Mapping[TopicName, LastMessageId]) -> None:
        self._ends.add({self._partitions[topic]: answer for topic, answer in answers.items()})
        self._loss_check.absent -= answers.keys()
        if self._frozen is not None:
            for topic in answers:
                state = self._partitions[topic]
                # A partition added later is read to its present end, so that the run ends although it grows.
                state.frozen_end = self._frozen.get(topic, state.last)

    def _leave(self, subscription: Subscription) -> None:
        own = self._options.subscription is None
        made_here = own and self._fresh is not None and subscription.name == self._fresh.subscription
        if (made_here and not self._fresh_is_planned) or not self._options.retain_subscription:
            subscription.unsubscribe()
            self._scalable.unregister(self._scalable.topics, subscription.name)
        else:
            subscription.close()

    def _add_new_partitions(self, subscription: Subscription, start: Offsets) -> None:
        """Adds new topics and partitions, which are read from their first message."""
        if self._frozen is not None:
            return
        self._topics.refresh()
        for topic, count in self._scalable.take_skipped().items():
            self._loss_check.report_unheld(topic, MessageId.EARLIEST, count)
        pauses, now = subscription.openings.pauses, self._client.now()
        new = [
            topic
            for topic in self._topics.partitions
            if topic not in subscription.partitions
            and start.positions.get(topic) != DONE
            and pauses.is_over(topic, now)
        ]
        opened, failed, gone = subscription.try_open(self._scalable.initial_positions(new), PROMPT)
        now = self._client.now()
        for topic, error in failed.items():
            if not error.is_passing:
                raise error
            level = logging.WARNING if pauses.failed(topic, now) else logging.INFO
            _log.log(level, "a new partition cannot be read yet; this is retried: %s", error)
        for topic in gone:
            _log.info("%s is not read: it was deleted before its first message was read", topic)
            pauses.succeeded(topic)
            self._topics.drop(topic)
            self._report_unread(topic, MessageId.EARLIEST, subscription.name)
        for topic in opened:
            pauses.succeeded(topic)
        if opened:
            subscription.begin_before(opened)
            _log.info("new partitions are read: %s", ", ".join(map(str, opened)))
            self._add(opened)

    # ---- partitions that are gone

    def _drop(self, subscription: Subscription, partition: Partition) -> None:
        topic, is_done = partition.topic, partition.life is Life.DONE
        subscription.drop(topic)
        self._topics.drop(topic)
        self._loss_check.absent.add(topic)
        if not is_done and not self._report_unread(topic, partition.position_or_start, subscription.name):
            self._loss_check.report_deleted(topic, partition)

    def _report_unread(self, topic: TopicName, position: MessageId, name: str) -> bool:
        """Reports a deleted segment that may have had messages after a position; False if it had none."""
        is_unread = topic.is_segment and self._scalable.is_unread(topic, position, name)
        if is_unread:
            self._loss_check.report_unheld(topic, position)
        return is_unread

    def _meet_chunks(self, topic: TopicName) -> None:
        # Request threads call this method. The trigger's thread may drop the partition meanwhile.
        partition = self._partitions.get(topic)
        if partition is not None:
            partition.meet_chunks()

    def _log_processed(self) -> None:
        began, self._batch_began = self._batch_began, None
        if began is not None and _log.isEnabledFor(logging.INFO):
            _log.info(
                "the micro-batch took %.3f s; backlog after it: %d entries",
                *(self._client.now() - began, self.report()["backlogEntries"]),
            )
