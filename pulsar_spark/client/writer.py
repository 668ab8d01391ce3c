"""TopicWriter: takes message columns and sends each row to its partition."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pulsar_spark.client.client import Client
from pulsar_spark.client.producer import Producer, ProducerOptions
from pulsar_spark.errors import ClosedError, PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.batcher import Batcher
from pulsar_spark.protocol.routing import partitions_for_keys
from pulsar_spark.wire.batches import encode_batch_messages
from pulsar_spark.wire.columns import MessageColumns
from pulsar_spark.wire.singles import encode_singles

# Bytes kept free for a batch's metadata within the broker's largest message.
METADATA_ROOM = 1024

# Seconds after which a lost connection is noticed while the caller is away.
_MENDING_INTERVAL = 0.5


class TopicWriter:
    """Writes to all partitions of one topic. Thread-safe; a context manager that does not flush.

    Rows with a key go to the key's partition, in order; rows without one go round robin, a batch's worth to
    each partition in turn. A thread of its own sends a batch that has been open for the publish delay, and
    opens producers again that were lost while the caller is away.

    Args:
        client: where to connect.
        topic: with or without partitions, or one partition; created as the broker's policy says.
        options: of each partition's producer.

    Raises:
        BrokerError: the topic cannot be had, or its producers cannot be opened within the operation timeout.
    """

    def __init__(self, client: Client, topic: TopicName, options: ProducerOptions) -> None:
        self._options = options
        names = client.partitions(topic, create=True)
        self._producers: list[Producer] = []
        try:
            for name in names:
                self._producers.append(Producer(client, name, options, len(names)))
        except PulsarError:
            self._close_producers()
            raise
        self._batchers = [self._new_batcher(producer) for producer in self._producers]
        # Rows without a key fill a block of one partition, then one of the next; where they begin is random,
        # or short-lived writers would all send to the first.
        self._block = max(1, options.batching_max_messages) if options.batching else 1
        self._turn = random.randrange(len(names)) * self._block
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._closed = False
        self._keeper = threading.Thread(target=self._keep_up, name=f"pulsar writer {topic}", daemon=True)
        self._keeper.start()

    def __enter__(self) -> TopicWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, columns: MessageColumns) -> None:
        """Send all rows; waits while the pending windows are full.

        Raises:
            SendError: a message is larger than the broker takes, was refused, or its send timeout is over.
            QueueFullError: there is no room and ``block_if_queue_full`` is false.
        """
        with self._failing_for_good():
            bounds = np.array([0, len(columns)])
            if len(self._producers) > 1:
                partitions = self._route(columns.key)
                order = np.argsort(partitions, kind="stable")
                columns = columns.take(pa.array(order))
                bounds = np.searchsorted(partitions[order], np.arange(len(self._producers) + 1))
            if self._options.batching:
                self._send_batched(columns, bounds)
            else:
                self._send_single(columns, bounds)

    def flush(self) -> None:
        """Send the open batches and wait until everything is acknowledged; raises what ``send`` raises."""
        with self._failing_for_good():
            for number in range(len(self._producers)):
                self._send_open_batch(number)
            for producer in self._producers:
                producer.flush()

    def close(self) -> None:
        """Give the producers up without waiting for what is pending; ``flush`` first."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._keeper.join()
        self._close_producers()

    def _close_producers(self) -> None:
        for producer in self._producers:
            producer.close()

    def _new_batcher(self, producer: Producer) -> Batcher:
        options = self._options
        most = producer.max_message_size - METADATA_ROOM
        max_bytes = min(options.batching_max_bytes, most) if options.batching_max_bytes > 0 else most
        return Batcher(options.batching_max_messages, max_bytes, options.batching_max_publish_delay)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        """Hold the lock; what goes wrong within is raised by all later calls too: rows may be missing."""
        with self._changed:
            if self._closed:
                raise ClosedError("this writer has been closed")
            if self._failure is not None:
                raise self._failure
            try:
                for producer in self._producers:
                    producer.check()
                yield
            except Exception as error:
                self._failure = error
                raise

    def _route(self, keys: pa.BinaryArray) -> npt.NDArray[np.int32]:
        """The partition of each row."""
        count = len(self._producers)
        partitions: npt.NDArray[np.int32] = partitions_for_keys(keys, count)
        without_key = np.flatnonzero(partitions < 0)
        turns = (self._turn + np.arange(len(without_key))) // self._block
        partitions[without_key] = turns % count
        self._turn += len(without_key)
        return partitions

    def _send_batched(self, columns: MessageColumns, bounds: npt.NDArray[np.int64]) -> None:
        """Put the rows from ``bounds[p]`` to ``bounds[p + 1]`` into batches of partition p."""
        encoded = encode_batch_messages(columns)
        now = time.monotonic()
        for number, batcher in enumerate(self._batchers):
            first, last = int(bounds[number]), int(bounds[number + 1])
            closed = batcher.add(encoded.buffer, encoded.offsets[first : last + 1], now)
            self._producers[number].send_batches(closed)
        self._changed.notify_all()

    def _send_single(self, columns: MessageColumns, bounds: npt.NDArray[np.int64]) -> None:
        encoded = encode_singles(columns)
        for number, producer in enumerate(self._producers):
            producer.send_singles(encoded[bounds[number] : bounds[number + 1]])

    def _send_open_batch(self, number: int) -> None:
        batch = self._batchers[number].take()
        if batch is not None:
            self._producers[number].send_batches([batch])

    def _keep_up(self) -> None:
        """The keeper's thread; what goes wrong in it is raised by the next call."""
        with self._changed:
            while not self._closed and self._failure is None:
                try:
                    self._changed.wait(self._keep_up_once())
                except Exception as error:  # noqa: BLE001 - not dropped: rows are missing, and callers are told
                    self._failure = error

    def _keep_up_once(self) -> float:
        """Send batches whose time is over and mend producers; returns the seconds until the next turn."""
        now = time.monotonic()
        wait = _MENDING_INTERVAL
        for number, (producer, batcher) in enumerate(zip(self._producers, self._batchers, strict=True)):
            producer.mend()
            due = batcher.due_at
            if due is not None and due <= now:
                self._send_open_batch(number)
            elif due is not None:
                wait = min(wait, due - now)
        return wait
