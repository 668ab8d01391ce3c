"""ArrivalWatch: shows that a topic partition has a new entry, without a request."""

from __future__ import annotations

from types import TracebackType

from pulsar_spark.client.client import Client
from pulsar_spark.client.reading.consumer import Consumer
from pulsar_spark.client.reading.probe import EntryInfo, reader_options, receive_infos
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.permits import Permits


class ArrivalWatch:
    """A reader at a partition's end that may be sent one entry; a context manager, not thread-safe.

    It is for one use: after ``moved`` close it, and open another one when the partition is idle again.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        after: entries after this one are new, also those that exist already; ``MessageId.EARLIEST`` for the
            topic's beginning.

    Raises:
        TopicNotFoundError, BrokerError: as ``Consumer``.
    """

    def __init__(self, client: Client, topic: TopicName, after: MessageId) -> None:
        self._client = client
        self._entry: EntryInfo | None = None
        self._consumer = Consumer(
            client, topic, reader_options(client, "watch", after.next_entry), Permits(1)
        )
        try:
            self._consumer.ask_for(1)
        except PulsarError:
            self._consumer.close()
            raise

    def __enter__(self) -> ArrivalWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def moved(self) -> bool:
        """Whether an entry came, or the broker was lost so that one may have come; no request is made."""
        return self._entry is not None or self._consumer.holds_entries or self._consumer.lost

    @property
    def is_chunk(self) -> bool:
        """Whether the entry that came is a part of a chunked message; no request is made."""
        if self._entry is None and self._consumer.holds_entries:
            self._entry = receive_infos(self._consumer, self._client.operation(), 1)[0]
        return self._entry is not None and self._entry.chunked

    def close(self) -> None:
        """Close the reader; never raises what a broker answers."""
        self._consumer.close()
