"""The C++ client as a peer: what it writes we must read, what we write it must read.

with Peer(cluster.service_url) as peer:
    peer.produce(topic, [Record(b"value", key="k"), Record(None, key="k")], compression=CompressionType.LZ4)
    records = peer.read_all(topic)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pulsar
from pulsar import CompressionType

from integration.broker.waiting import wait_until

__all__ = ["CompressionType", "Peer", "Record"]

_OPERATION_TIMEOUT = 60  # seconds
# How long one message may take to come, in ms.
_READ_TIMEOUT = 120_000


@dataclass(frozen=True, slots=True)
class Record:
    """One message, as both sides see it; equal and with the same hash when all of it is the same.

    Attributes:
        value: the payload; None is a null value (a deletion mark in a compacted topic).
        key: the partition key; None when there is none.
        properties: name and value pairs, sorted.
        event_time: in ms since 1970; 0 when there is none.
        partition: the partition it was read from, 0 in a topic without any; of no effect on writing.
    """

    value: bytes | None
    key: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    event_time: int = 0
    partition: int = field(default=0, kw_only=True)


class Peer:
    """A C++ client that is quiet but for errors."""

    def __init__(self, service_url: str, **client_options: Any) -> None:
        """Connect to `service_url`; `client_options` are those of pulsar.Client, such as `authentication`."""
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        # After a start a broker may take half a minute to look through a topic's transactions.
        self.client = pulsar.Client(
            service_url, operation_timeout_seconds=_OPERATION_TIMEOUT, logger=logger, **client_options
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        batch_size: int = 0,
        compression: CompressionType = CompressionType.NONE,
        **producer_options: Any,
    ) -> list[pulsar.MessageId]:
        """Write `records`; return their ids, in the same order, once all are stored.

        Args:
            topic: a topic, partitioned or not; records with a key go to the partition of that key.
            batch_size: messages a batch, 2 or more; 0 writes each as an entry of its own.
            producer_options: others of pulsar.Client.create_producer, such as `chunking_enabled`.

        Raises:
            pulsar.PulsarException: when the broker refuses the producer.
            RuntimeError: when it refuses messages.
        """
        options = {
            "compression_type": compression,
            "batching_enabled": batch_size > 0,
            "batching_max_messages": max(batch_size, 2),  # It refuses less, even where batching is off.
            # Batches end when they are full, not by chance of time.
            "batching_max_publish_delay_ms": 10_000,
            "max_pending_messages": max(2 * batch_size, 1000),
            "block_if_queue_full": True,
        }
        receipts = _Receipts()
        with closing(self.client.create_producer(topic, **(options | producer_options))) as producer:
            count = 0
            for record in records:
                producer.send_async(
                    record.value,
                    receipts.callback(count),
                    partition_key=record.key,
                    properties=dict(record.properties),
                    event_timestamp=record.event_time,
                )
                count += 1
            producer.flush()
            return receipts.wait(count)

    def read_all(self, topic: str, **reader_options: Any) -> list[Record]:
        """Read every message from the first to the current last; partition after partition, each in order.

        `reader_options` are those of pulsar.Client.create_reader, such as `crypto_key_reader`.
        """
        partitions = self.client.get_topic_partitions(topic)
        return [
            _record(message, number)
            for number, partition in enumerate(partitions)
            for message in self._messages(partition, reader_options)
        ]

    def messages(
        self, topic: str, *, silence_ms: int | None = None, **reader_options: Any
    ) -> Iterator[pulsar.Message]:
        """Yield what :meth:`read_all` reads as the C++ client's own messages.

        `silence_ms`: time after which a partition counts as read although it ends with chunks of a message
        that is not whole, which is never received. None: this is an error.
        """
        expected = () if silence_ms is None else (pulsar.Timeout,)
        for partition in self.client.get_topic_partitions(topic):
            with suppress(*expected):
                yield from self._messages(partition, reader_options, silence_ms or _READ_TIMEOUT)

    def _messages(
        self, partition: str, options: dict[str, Any], timeout_ms: int = _READ_TIMEOUT
    ) -> Iterator[pulsar.Message]:
        with closing(self._reader(partition, options)) as reader:
            while reader.has_message_available():
                yield reader.read_next(timeout_ms)

    def _reader(self, topic: str, options: dict[str, Any]) -> pulsar.Reader:
        """Open a reader that knows where its topic ends.

        A broker that restores a topic's transactions may never answer the first request for that.
        """
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest, **options)
        try:
            reader.has_message_available()
        except pulsar.Timeout:
            reader.close()
            reader = self.client.create_reader(topic, pulsar.MessageId.earliest, **options)
        return reader


class _Receipts:
    """What the broker answered to each message."""

    def __init__(self) -> None:
        self._ids: dict[int, pulsar.MessageId] = {}
        self._errors: list[pulsar.Result] = []

    def callback(self, number: int) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
        """Return what the client calls, on a thread of its own, with the answer to message `number`."""

        def received(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            if result != pulsar.Result.Ok:
                self._errors.append(result)
            self._ids[number] = message_id  # last: who waits looks at these

        return received

    def wait(self, count: int) -> list[pulsar.MessageId]:
        wait_until(lambda: len(self._ids) == count)
        if self._errors:
            raise RuntimeError(
                f"{len(self._errors)} of {count} messages were refused, one with {self._errors[0]}"
            )
        return [self._ids[number] for number in range(count)]


def _record(message: pulsar.Message, partition: int) -> Record:
    return Record(
        None if message.has_null_value() else message.data(),
        message.partition_key() or None,
        tuple(sorted(message.properties().items())),
        message.event_timestamp(),
        partition=partition,
    )
