"""TopicWriter: sends each row of message columns to its partition."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.arrow.join import EncodedMessages
from pulsar_spark.client.client import Client
from pulsar_spark.client.closing import Closing, close_all
from pulsar_spark.client.net.deadline import Deadline, retry
from pulsar_spark.client.net.session import CLOSE_TIMEOUT
from pulsar_spark.client.parallel import raise_error_of, run_all
from pulsar_spark.client.writing.dedup import DedupTask, RoutedRows
from pulsar_spark.client.writing.dedup_producer import DedupProducer
from pulsar_spark.client.writing.interceptors import Interceptors
from pulsar_spark.client.writing.producer import Producer, task_memory
from pulsar_spark.client.writing.producer_options import (
    NO_USER_CODE,
    AccessMode,
    ProducerOptions,
    UserCode,
    new_router,
)
from pulsar_spark.client.writing.transactions import Transaction
from pulsar_spark.errors import ClosedError, OptionError, PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.writing.batcher import (
    KeyedRows,
    KeyWindow,
    begin_keys,
    by_partition,
    in_order,
    keyed_rows,
    order_by_key,
    parts_of,
    split_runs,
    unless_all,
)
from pulsar_spark.protocol.writing.partition_writer import SentTotals
from pulsar_spark.protocol.writing.pending import MemoryBudget
from pulsar_spark.protocol.writing.routing import Router, TaskPlace, Words
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages, encode_singles
from pulsar_spark.wire.columns.message_columns import (
    EncodedKeys,
    MessageColumns,
    check_properties,
    encode_keys,
)

# Maximum seconds until the keeper (background) thread notices a connection that was lost between calls.
_REOPEN_INTERVAL = 0.5

# Seconds between requests for new partitions, as in the Java client.
_LOOK_AGAIN = 60.0

# Bytes of encoded rows that are grouped by key. Twice as many are in memory during sorting.
_WINDOW = 4 << 20

_log = logging.getLogger(__name__)


class TopicWriter(Closing):
    """Writes to all partitions of one topic; a context manager that does not flush.

    Thread-safe, except with interceptors. A :class:`Router` chooses the partition of each row. The rows of a
    partition stay in order; with KEY_BASED batches only the rows of each key. A producer is opened with the
    first row of its partition, or earlier (see ``_open``). A keeper thread sends each batch that has been
    open for the publish delay, and opens lost producers again. KEY_BASED rows wait without a time limit,
    until there are 4 MiB or ``flush`` is called.

    Args:
        topic: topic, or one partition; the broker creates a missing topic if its policy allows this.
        place: numbers of the micro-batch and the task. They choose the first partition of rows without a key,
            and partitions are not switched by time, so a replay chooses the same partitions. None: the first
            partition is random, so that short-lived writers do not all use the same one.
        look_again: seconds after which a send requests the partitions again. None: never.
        dedup: deduplicating task, or None. It replaces ``place``, and partitions are not requested again.
        memory: memory budget that writers share; call ``fit`` of all other writers after adding one. None:
            the limit of the options, not shared.
        code: router, encryptor and interceptors of the user.

    Raises:
        BrokerError: the topic cannot be reached, or a first producer cannot be opened, within the operation
            timeout.
    """

    def __init__(
        self,
        client: Client,
        topic: TopicName,
        options: ProducerOptions,
        *,
        place: TaskPlace | None = None,
        look_again: float | None = _LOOK_AGAIN,
        transaction: Transaction | None = None,
        dedup: DedupTask | None = None,
        memory: MemoryBudget | None = None,
        code: UserCode = NO_USER_CODE,
    ) -> None:
        if dedup is not None:
            dedup.check_name(topic)
            place, look_again = dedup.place, None
        self._dedup = dedup
        self._client = client
        self._topic = topic
        self._options = options
        self._memory = memory or task_memory(options)
        self._code = code
        self._transaction = transaction
        self._interceptors = Interceptors(code.interceptors)
        self._is_key_based = options.batching and options.is_key_based
        self._window = KeyWindow(_WINDOW)
        self._producers: dict[int, Producer] = {}  # by number of the partition
        self._names = self._find_names()
        self._memory.share(self, len(self._numbers))
        self._router = self._new_router(place)
        self._look_again = look_again
        self._looked_at = time.monotonic()
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._closing: Deadline | None = None
        try:
            self._open_first()
        except BaseException:
            close_all(self._producers.values())
            raise
        self._keeper = threading.Thread(target=self._keep_up, name=f"pulsar writer {topic}", daemon=True)
        self._keeper.start()

    def _find_names(self) -> list[TopicName]:
        return self._client.partitions(self._topic, create=True)

    def _new_router(self, place: TaskPlace | None) -> Router:
        count, is_dedup = len(self._names), self._dedup is not None
        return new_router(Router, self._options, self._code, count, place, has_equal_blocks=is_dedup)

    def send(self, columns: MessageColumns) -> None:
        """Sends all rows; waits while a limit of pending messages or bytes is reached.

        Raises:
            SendError: a message is larger than the broker's limit, was refused, or its send timeout is over.
            QueueFullError: too many messages are pending, and ``block_if_queue_full`` is false.
            OptionError: a row, or the user's router, names a missing partition; a property is not UTF-8; or
                an interceptor has failed.
            BrokerError: the producer of a partition's first row cannot be opened.
        """
        self._look_for_partitions()
        columns = self._interceptors.before_send(columns, str(self._topic))
        self._check_ids(columns)
        with self._failing_for_good():
            try:
                self._send(columns)
            except OptionError as error:
                raise error.located(str(self._topic)) from error
        self._interceptors.acknowledge()

    def _check_ids(self, columns: MessageColumns) -> None:
        """Raises OptionError if rows have sequence ids by which brokers could drop a repeated task's rows."""
        is_named = self._transaction is not None and self._options.name is not None
        if columns.sequence_id is not None and (is_named or self._dedup is not None):
            how = "transactions and producerName" if is_named else "delivery=effectively-once"
            raise OptionError(
                f"the column __sequenceId cannot be used with {how}",
                topic=str(self._topic),
                advice="Drop the column, or set delivery=at-least-once",
            )

    def flush(self) -> None:
        """Sends the open batches and waits until all rows are acknowledged; raises as ``send``."""
        with self._failing_for_good():
            self._send_held()
            for producer in self._producers.values():
                producer.send_open_batch()
            for producer in self._producers.values():
                if isinstance(producer, DedupProducer):
                    producer.release()  # in all producers first, because each ``flush`` waits for receipts
            for producer in self._producers.values():
                producer.flush()
        self._interceptors.acknowledge()

    def fit(self) -> None:
        """Waits until the pending rows fit into this writer's share of the budget; raises as ``send``."""
        with self._failing_for_good():
            for producer in self._producers.values():
                producer.fit()

    @property
    def sent(self) -> dict[TopicName, SentTotals]:
        """Returns the totals of the acknowledged messages of each partition that has some."""
        with self._changed:
            sent = {producer.topic: producer.sent for producer in self._producers.values()}
        return {topic: part for topic, part in sent.items() if part.messages}

    def begin_close(self) -> None:
        """Begins to close without waiting for receipts or brokers; call ``close`` afterwards."""
        # Without the lock, because the keeper thread may hold it while it opens a producer again.
        self._closing = self._closing or Deadline(CLOSE_TIMEOUT)
        for producer in list(self._producers.values()):
            producer.begin_close()

    def close(self) -> None:
        """Closes without waiting for receipts; call ``flush`` first.

        Waits for brokers' answers, and for a thread that opens a producer, until 5 s after ``begin_close``.
        """
        failure = self._failure or ClosedError("the writer was closed before this was acknowledged")
        self.begin_close()
        assert self._closing is not None
        if self._changed.acquire(timeout=self._closing.left):  # another thread may hold it for long
            self._changed.notify_all()
            self._changed.release()
        producers = list(self._producers.values())
        close_all(producers)
        self._memory.share(self, 0)
        self._keeper.join(self._closing.left)
        self._interceptors.acknowledge()
        for producer in producers:
            self._interceptors.failed(str(producer.topic), producer.pending, failure)

    @property
    def _numbers(self) -> Sequence[int]:  # numbers of the writable partitions, in order of opening
        return range(len(self._names))

    def _open_first(self) -> None:
        has_shared_name = self._dedup is not None or self._options.name is not None
        self._open(self._numbers[:1] if has_shared_name and self._transaction is None else [])

    def _open(self, numbers: Sequence[int]) -> None:
        """Opens the missing producers of ``numbers``, or all for exclusive access or ``dedup.opens_all``.

        Writers with the same producer names open the topic's first partition before all others, so that only
        one writer opens more. While a deduplicating task waits for a name, it closes the producers that it
        has opened here: a running copy of the task may lose its connection, and must get its names back.
        """
        dedup, claims_all = self._dedup, self._options.access_mode is not AccessMode.SHARED
        if claims_all or (dedup is not None and dedup.opens_all(self._topic)):
            numbers = self._numbers
        missing = [number for number in numbers if number not in self._producers]
        if not missing:
            return
        if dedup is None:
            self._open_missing(missing)
            return
        deadline = self._client.operation()

        def attempt() -> None:
            with self._dropping(missing):
                self._open_missing(missing, deadline)

        retry(attempt, deadline)
        opened = [each for each in map(self._producers.get, missing) if isinstance(each, DedupProducer)]
        with self._dropping(missing):  # after an error (a deleted segment), all producers are opened again
            for some in (opened[:1], opened[1:]):  # if the first finds a replay, the other producers search
                raise_error_of(run_all([each.read_stored for each in some]))
            self._read_sealed()
        self._open([])  # all partitions, if ``opens_all`` has changed because a replay was found

    @contextmanager
    def _dropping(self, numbers: Sequence[int]) -> Iterator[None]:
        """Closes and drops the producers of ``numbers`` if the block raises an error."""
        try:
            yield
        except PulsarError:
            close_all([self._producers.pop(number) for number in numbers if number in self._producers])
            raise

    def _read_sealed(self) -> None:
        """Begins to read stored rows of sealed segments; see ``SegmentWriter``."""

    def _open_missing(self, numbers: Sequence[int], opening: Deadline | None = None) -> None:
        """Opens producers: the writer's first producer alone, then all others in parallel."""
        if self._transaction is not None:
            self._transaction.add(self._names[number] for number in numbers)
        first = [] if self._producers else numbers[:1]
        for some in (first, numbers[len(first) :]):
            answers = run_all([partial(self._new_producer, number, opening) for number in some])
            opened = zip(some, answers, strict=True)
            self._producers |= {number: each for number, each in opened if isinstance(each, Producer)}
            raise_error_of(answers)

    def _new_producer(self, number: int, opening: Deadline | None) -> Producer:
        name, partitions = self._names[number], len(self._numbers)
        on_receipt, encryptor = self._interceptors.on_receipt(str(name)), self._code.encryptor
        if self._dedup is not None and opening is not None:
            return DedupProducer(
                self._dedup,
                self._topic,
                name,
                number,
                self._options,
                partitions,
                opening,
                encryptor=encryptor,
                on_receipt=on_receipt,
                memory=self._memory,
            )
        return Producer(
            self._client,
            name,
            self._options_of(name),
            partitions,
            transaction=None if self._transaction is None else self._transaction.id,
            encryptor=encryptor,
            on_receipt=on_receipt,
            memory=self._memory,
        )

    def _options_of(self, partition: TopicName) -> ProducerOptions:
        return self._options

    def _look_for_partitions(self) -> None:
        """Finds partitions that were added; requests them on the caller's thread, without the lock."""
        now = time.monotonic()
        with self._changed:
            if self._look_again is None or now < self._looked_at + self._look_again:
                return
            self._looked_at = now
        try:
            names = self._client.partitions(self._topic)
        except PulsarError as error:
            # Only a warning, because the producers raise an error if the topic can no longer be written.
            what = "%s: the number of partitions could not be checked; it is checked again later: %s"
            _log.warning(what, self._topic, error)
            return
        with self._failing_for_good():
            if len(names) > len(self._names):
                _log.info("%s has %d partitions now", self._topic, len(names))
                self._names = names
                self._memory.share(self, len(names))
                self._open([])

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """Holds the lock. After an error in the block, all later calls raise it: rows may be missing."""
        with self._changed:
            if self._closing is not None:
                raise ClosedError("this writer has been closed")
            if self._failure is not None:
                raise self._failure
            try:
                for producer in self._producers.values():
                    producer.check()
                yield
            except Exception as error:
                self._failure = error
                raise

    def _send(self, columns: MessageColumns) -> None:
        if columns.properties is not None:
            check_properties(columns.properties)
        keys = encode_keys(columns.key, as_bytes=self._options.sends_key_bytes)
        parts = [self._routed(columns, keys)]
        if self._dedup is not None:
            version = next((each.schema_version for each in self._producers.values()), None)
            parts = self._dedup.to_send(self._topic, parts[0], version)
        must_cut = columns.sequence_id is not None or columns.deliver_at is not None
        for rows in map(self._still_routed, parts):
            if not len(rows.columns):
                continue
            if self._is_key_based and not must_cut:
                self._hold(rows)
                continue
            self._send_held()
            if self._options.batching and not must_cut:
                self._send_batched(rows)
            else:
                self._send_cut(rows)

    def _routed(self, columns: MessageColumns, keys: EncodedKeys) -> RoutedRows:
        """Chooses the partitions of rows, and opens the missing producers."""
        partitions = self._router.route(columns, keys.texts, len(self._names), time.monotonic())
        if len(self._producers) < len(self._names):
            self._open(np.flatnonzero(np.bincount(partitions)).tolist())
        return RoutedRows(columns, keys, partitions)

    def _still_routed(self, rows: RoutedRows) -> RoutedRows:
        """Returns the rows, routed again if a segment was sealed while they were held back."""
        return rows

    def _hold(self, rows: RoutedRows) -> None:
        """Holds rows until a window is full, then sends the rows of each key in separate batches."""
        encoded = encode_batch_messages(rows.columns, rows.keys)
        for window in self._window.add(keyed_rows(rows.columns, encoded, rows.partitions)):
            self._send_window(window)

    def _send_held(self) -> None:
        if (rows := self._window.take()) is not None:
            self._send_window(rows)

    def _send_window(self, rows: KeyedRows) -> None:
        groups = order_by_key(rows, len(self._names))
        self._send_encoded(in_order(rows.messages, groups.order), groups.bounds, groups.starts)

    def _send_batched(self, rows: RoutedRows) -> None:
        order, bounds = by_partition(rows.partitions, len(self._names))
        encoded = encode_batch_messages(
            rows.columns, rows.keys, order=order if len(self._names) > 1 else None
        )
        hashes = None if rows.hashes is None else rows.hashes[order]
        self._send_encoded(encoded, bounds, hashes=hashes)

    def _send_encoded(
        self,
        encoded: EncodedMessages,
        bounds: Ints,
        groups: Sequence[Ints] | None = None,
        hashes: Words | None = None,
    ) -> None:
        """Puts rows from ``bounds[p]`` to ``bounds[p + 1]`` into batches of partition p."""
        body, offsets, parts = encoded.buffer, encoded.offsets, parts_of(bounds)
        for number, first, last in parts:
            self._producers[number].packer.check_messages(body, offsets[first : last + 1])
        for number, first, last in parts:
            own, some = offsets[first : last + 1], None if hashes is None else hashes[first:last]
            group = None if groups is None else groups[number]
            self._producers[number].send_rows(body, own, groups=group, hashes=some)
        self._changed.notify_all()

    def _send_cut(self, rows: RoutedRows) -> None:
        """Sends rows that cannot all share batches: unbatched, with sequence ids or with delivery times."""
        columns, keys = rows.columns, rows.keys
        order, bounds = by_partition(rows.partitions, len(self._names))
        # Rows of a segment are not batched here, because no entry may have messages of two buckets.
        alone = np.full(len(columns), not self._options.batching or rows.hashes is not None)
        begins = np.zeros(len(columns), np.bool_)
        ids: Ints | None = None
        if columns.deliver_at is not None:
            alone |= columns.deliver_at.is_valid().to_numpy(zero_copy_only=False)[order]
        if columns.sequence_id is not None:
            ids, begins = self._own_ids(columns.sequence_id.take(pa.array(order)), bounds)
            columns = replace(columns, sequence_id=pa.array(ids[np.argsort(order)]))
        if self._is_key_based:
            begins |= begin_keys(columns, order, bounds)
        singles = encode_singles(columns, keys, order=unless_all(order[alone], len(columns)))
        if ids is not None:
            singles = singles.with_ids(ids[alone])
        batched = encode_batch_messages(columns, keys, order=unless_all(order[~alone], len(columns)))
        # Index of each row among the single rows, or among the batched rows.
        single_at, batched_at = (np.append(0, np.cumsum(kind)) for kind in (alone, ~alone))
        for number, first, last in parts_of(bounds):
            packer = self._producers[number].packer
            packer.check_singles(singles[single_at[first] : single_at[last]])
            packer.check_messages(batched.buffer, batched.offsets[batched_at[first] : batched_at[last] + 1])
        for number, first, last in parts_of(bounds):
            producer = self._producers[number]
            for run in split_runs(begins, alone, first, last):
                if run.begins:
                    producer.send_open_batch()
                if run.alone:
                    producer.send_singles(singles[single_at[run.first] : single_at[run.last]])
                else:
                    offsets = batched.offsets[batched_at[run.first] : batched_at[run.last] + 1]
                    some = None if ids is None else ids[run.first : run.last]
                    producer.send_rows(batched.buffer, offsets, sequence_ids=some)
        self._changed.notify_all()

    def _own_ids(self, given: pa.Int64Array, bounds: Ints) -> tuple[Ints, Flags]:
        parts = [
            self._producers[number].packer.own_ids.take(given[first:last])
            for number, first, last in parts_of(bounds)
        ]
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([begins for _, begins in parts])

    def _keep_up(self) -> None:
        """Sends due batches and reopens lost producers until ``close``; the next call raises its error."""
        with self._changed:
            while self._closing is None and self._failure is None:
                try:
                    self._changed.wait(self._keep_up_once())
                except Exception as error:  # noqa: BLE001 - rows are missing: the next call raises it
                    self._failure = error

    def _keep_up_once(self) -> float:
        """Sends batches that are due and reopens lost producers; returns the seconds until the next turn."""
        now, wait = time.monotonic(), _REOPEN_INTERVAL
        for producer in self._producers.values():
            producer.reopen_lost()
            due = producer.batcher.due_at
            if due is not None and due <= now:
                producer.send_open_batch()
            elif due is not None:
                wait = min(wait, due - now)
        return wait
