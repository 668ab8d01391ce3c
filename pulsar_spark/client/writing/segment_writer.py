"""SegmentWriter: the TopicWriter of a scalable topic. Its partitions are the active segments.

When a segment is split or merged, its producer is closed. The rows that the segment has not stored are then
sent to the new segments of their keys, before any later row. So the rows of a key stay in order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.watches import SegmentWatch
from pulsar_spark.client.writing.dedup import DedupTask, RoutedRows
from pulsar_spark.client.writing.producer import Producer
from pulsar_spark.client.writing.producer_options import NO_USER_CODE, ProducerOptions, UserCode, new_router
from pulsar_spark.client.writing.sealed_runs import follow, number_of, read_sealed
from pulsar_spark.client.writing.topic_writer import TopicWriter
from pulsar_spark.client.writing.transactions import Transaction
from pulsar_spark.errors import (
    ClosedError,
    OptionError,
    PulsarError,
    SendError,
    TerminatedError,
    TopicNotFoundError,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.segments import Segment, TopicLayout
from pulsar_spark.protocol.writing.batcher import (
    Batch,
    GroupedOrder,
    in_order,
    keyed_rows,
    order_by_group,
)
from pulsar_spark.protocol.writing.partition_writer import SentTotals
from pulsar_spark.protocol.writing.pending import MemoryBudget, Outgoing
from pulsar_spark.protocol.writing.routing import (
    Partitions,
    SegmentRouter,
    TaskPlace,
    Words,
    bucket_hashes,
    raw_hashes,
)
from pulsar_spark.wire.columns.entry_messages import EncodedSingle, decode_batches, encode_batch_messages
from pulsar_spark.wire.columns.message_columns import EncodedKeys, MessageColumns

# Seconds after which a wait for another layout checks whether the writer is being closed.
_PAUSE = 0.5

T = TypeVar("T")

_log = logging.getLogger(__name__)


class SegmentWriter(TopicWriter):
    """Writes to the active segments of one scalable topic; see :class:`TopicWriter`.

    A row is stored twice only if its producer sends it again after a lost connection, or with a WARNING if a
    sealed segment cannot be searched for it. Encrypted rows are batched only by key (KEY_BASED): the readable
    metadata of other batches would show several keys.

    Raises:
        UnsupportedError: an option does not work with segments.
    """

    _router: SegmentRouter

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        options: ProducerOptions,
        *,
        place: TaskPlace | None = None,
        transaction: Transaction | None = None,
        dedup: DedupTask | None = None,
        memory: MemoryBudget | None = None,
        code: UserCode = NO_USER_CODE,
    ) -> None:
        has_router = code.router is not None
        options.check_topic(topic, has_router=has_router, is_transactional=transaction is not None)
        if code.encryptor is not None and not options.is_key_based:
            options = replace(options, batching=False)
        self._active: dict[int, Segment] = {}  # by index in ``_names``, ordered by hash range
        self._ended: list[Producer] = []
        self._rerouted_at, self._stored_then = 0.0, -1
        self._watch = SegmentWatch(client, topic, create=True)
        try:
            super().__init__(client, topic, options, place=place, dedup=dedup, memory=memory, code=code)
        except BaseException:
            self._watch.close()
            raise

    def flush(self) -> None:
        """As :meth:`TopicWriter.flush`; also sends rows again that sealed segments have not stored."""
        with self._changed:  # else the keeper thread could send rows again after the last flush
            is_unfinished = True
            while is_unfinished:
                super().flush()
                with self._failing_for_good():
                    is_unfinished = self._follow()

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """As :attr:`TopicWriter.sent`, including segments that were sealed while this writer was open."""
        with self._changed:
            ended = {each.topic: each.sent for each in self._ended if each.sent.messages}
            return ended | super().sent

    def close(self) -> None:
        """See :meth:`TopicWriter.close`."""
        super().close()
        self._watch.close()

    # ---- the layout

    def _find_names(self) -> list[TopicName]:
        # This list only grows, so segments keep their index. The writers of a deduplicating task share it.
        self._names = [] if self._dedup is None else self._dedup.run_of(self._topic).names
        self._take(self._watch.layout())
        return self._names

    def _take(self, layout: TopicLayout) -> None:
        self._layout = layout
        self._active = {number_of(self._names, each.topic): each for each in layout.active}
        if self._dedup is not None:
            follow(self._dedup, self._topic, layout.epoch)

    @property
    def _numbers(self) -> Sequence[int]:
        return list(self._active)

    def _open_first(self) -> None:
        self._with_layout(super()._open_first)

    def _read_sealed(self) -> None:
        if self._dedup is not None:
            read_sealed(self._dedup, self._topic, self._layout)

    def _new_router(self, place: TaskPlace | None) -> SegmentRouter:
        count, is_dedup = len(self._active), self._dedup is not None
        router = new_router(SegmentRouter, self._options, self._code, count, place, has_equal_blocks=is_dedup)
        router.follow(self._active)
        return router

    def _look_for_partitions(self) -> None:
        with self._failing_for_good():
            self._follow()

    def _keep_up_once(self) -> float:
        self._follow()
        return super()._keep_up_once()

    def _with_layout(self, opens: Callable[[], T]) -> T:
        """Calls a function that opens producers; if a segment is sealed, awaits a new layout and repeats.

        A sealed segment without messages may already be deleted.

        Raises:
            TerminatedError, TopicNotFoundError: each layout until the send timeout had a sealed segment.
        """
        deadline = None
        while True:
            try:
                return opens()
            except (TerminatedError, TopicNotFoundError) as error:
                deadline = deadline or Deadline(self._options.send_timeout)
                if deadline.passed:
                    raise
                self._follow(refused=error)

    def _follow(self, *, refused: PulsarError | None = None) -> bool:
        """Uses a newer layout, and sends rows again that sealed segments have not stored.

        ``refused``: the error of a segment that accepted no producer; then a newer layout is awaited.

        Returns:
            Whether rows were sent again.

        Raises:
            SendError: for the send timeout, no layout without the sealed segment was received, or none of
                the rows that are sent again was stored.
        """
        sealed = {each.topic for each in self._producers.values() if each.is_sealed}
        if not (sealed or refused or self._watch.changed):
            return False
        self._send_held()
        self._take(self._await_layout(sealed, refused))
        self._router.follow(self._active)
        self._memory.share(self, len(self._active))
        has_rows = False
        # Computed again for each producer, because ``_send_again`` may change the layout.
        while retired := [number for number in self._producers if number not in self._active]:
            producer = self._producers[retired[0]]
            rows = producer.settle()
            self._ended.append(self._producers.pop(retired[0]))
            if rows:
                has_rows = True
                self._check_progress(producer.topic)
                _log.info("%s is sealed: rows that it does not have go to other segments", producer.topic)
                self._send_again(rows)
        return has_rows

    def _await_layout(self, sealed: set[TopicName], refused: PulsarError | None) -> TopicLayout:
        """Waits until no segment in ``sealed`` is active in the layout; returns the layout."""
        deadline = Deadline(self._options.send_timeout)
        while True:
            try:
                layout = self._watch.layout()
            except PulsarError as error:
                if deadline.passed or not error.is_passing:
                    raise
            else:
                is_newer = refused is None or layout.epoch != self._layout.epoch
                if is_newer and sealed.isdisjoint(each.topic for each in layout.active):
                    return layout
                if deadline.passed:
                    raise refused or SendError(
                        "the broker refuses messages for a segment, and no other segment has taken its place "
                        f"within {self._options.send_timeout:g} s",
                        topic=str(min(sealed)),
                    )
            if self._closing is not None:
                raise ClosedError("this writer has been closed")
            self._watch.await_change(min(_PAUSE, deadline.left))

    def _check_progress(self, topic: TopicName) -> None:
        """Raises SendError if rows are sent again and again, and none is stored for the send timeout."""
        now, stored = time.monotonic(), sum(each.messages for each in self.sent.values())
        if stored != self._stored_then:
            self._rerouted_at, self._stored_then = now, stored
        elif now > self._rerouted_at + self._options.send_timeout:
            raise SendError(
                f"segments were sealed for {self._options.send_timeout:g} s, each before it stored a message",
                topic=str(topic),
            )

    # ---- rows

    def _check_ids(self, columns: MessageColumns) -> None:
        if columns.sequence_id is not None:
            raise OptionError(
                "rows have a __sequenceId, but the topic is scalable: the ids of each segment begin at 0",
                topic=str(self._topic),
                advice="Drop the column",
            )

    def _routed(self, columns: MessageColumns, keys: EncodedKeys) -> RoutedRows:
        if columns.partition is not None and columns.partition.null_count < len(columns):
            raise OptionError(
                "a row has a __partition, but the topic is scalable: the key chooses the segment",
                advice="Drop the column, or leave it null",
            )
        numbers, hashes = self._placed(columns.key)
        return RoutedRows(columns, keys, numbers, bucket_hashes(hashes, columns.ordering_key))

    def _placed(self, keys: pa.BinaryArray) -> tuple[Partitions, Words]:
        """Returns the index of each row's segment and the raw hash of its key; opens missing producers."""
        hashes = raw_hashes(keys)

        def place() -> Partitions:
            numbers = self._router.route_hashes(hashes, keys, time.monotonic())
            if not self._active.keys() <= self._producers.keys():
                self._open(np.flatnonzero(np.bincount(numbers)).tolist())
            return numbers

        return self._with_layout(place), hashes

    def _send_batched(self, rows: RoutedRows) -> None:
        if not any(each.bucket_splits for each in self._active.values()):
            super()._send_batched(rows)
            return
        assert rows.hashes is not None
        groups = self._by_bucket(rows.partitions, rows.hashes)
        encoded = encode_batch_messages(rows.columns, rows.keys, order=groups.order)
        self._send_encoded(encoded, groups.bounds, groups.starts, rows.hashes[groups.order])

    def _by_bucket(self, partitions: Partitions, hashes: Words) -> GroupedOrder:
        """Groups rows by segment and hash bucket, so no batch has two buckets (``Segment.bucket_splits``)."""
        buckets = np.zeros(len(hashes), np.int64)
        for number, segment in self._active.items():
            if segment.bucket_splits:
                of_segment = partitions == number
                buckets[of_segment] = np.searchsorted(segment.bucket_splits, hashes[of_segment], "right")
        return order_by_group(partitions, buckets, len(self._names))

    def _options_of(self, partition: TopicName) -> ProducerOptions:
        options = self._options
        if options.name is None:
            return options
        return replace(options, name=f"{options.name}-seg-{partition.partition}")

    def _still_routed(self, rows: RoutedRows) -> RoutedRows:
        was_held = self._dedup is not None and self._dedup.strict
        if not was_held or np.isin(np.unique(rows.partitions), self._numbers).all():
            return rows
        return self._routed(rows.columns, rows.keys)

    # ---- rows of a sealed segment

    def _send_again(self, rows: Iterable[Outgoing | Batch]) -> None:
        contents = (each.rows if isinstance(each, Outgoing) else each for each in rows)
        for is_batch, some in groupby(contents, lambda each: isinstance(each, Batch)):
            if is_batch:
                self._send_batches_again([each for each in some if isinstance(each, Batch)])
            else:
                self._send_singles_again([each for each in some if isinstance(each, EncodedSingle)])

    def _send_batches_again(self, batches: Sequence[Batch]) -> None:
        payloads = [b"".join(each.parts) for each in batches]
        columns = decode_batches(payloads, [each.messages for each in batches]).columns
        numbers, hashes = self._placed(columns.key)
        body = memoryview(b"".join(payloads))
        encoded = EncodedMessages(body, np.append(columns.starts, len(body)))
        rows = keyed_rows(columns, encoded, numbers)
        if self._is_key_based:
            self._send_window(rows)
            return
        hashes = bucket_hashes(hashes, columns.ordering_key)
        groups = self._by_bucket(numbers, hashes)
        encoded = in_order(rows.messages, groups.order)
        self._send_encoded(encoded, groups.bounds, groups.starts, hashes[groups.order])

    def _send_singles_again(self, messages: Sequence[EncodedSingle]) -> None:
        numbers, _ = self._placed(pa.array([each.key for each in messages], pa.binary()))
        for number in np.unique(numbers).tolist():
            of_segment = np.flatnonzero(numbers == number).tolist()
            self._producers[number].send_singles([messages[row] for row in of_segment])
