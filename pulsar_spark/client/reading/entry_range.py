"""The entries between two positions of a topic partition, as the broker delivers them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.reading.consumer import Consumer, SubscriptionOptions
from pulsar_spark.errors import CorruptError, DataLossError, PulsarError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.permits import Permits
from pulsar_spark.wire.entries import Entries

WINDOW_BYTES = 16 * 1024 * 1024

# Silence after which the broker is asked whether anything is left to come, in seconds: at first, and at most.
_FIRST_IDLE = 0.2
_LONGEST_IDLE = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """How a range is read.

    Attributes:
        poll_timeout: seconds to wait for each next entry.
        visible: whether the range's end was a message when the range was planned, so that not to find it is
            data loss. An end that is not visible may be anything: a marker of a transaction, an aborted or
            compacted message, or beyond the end of its ledger.
        begins: where nothing holds the data: the position before the first entry that the broker had when the
            range was planned. A reader that begins later, or whose ledger goes away under it, has lost data.
        fail_on_data_loss: whether lost or corrupt data is an error; else it is a WARNING and reading goes on
            behind it.
        read_compacted: whether to read what compaction left. There, what is missing is no loss.
        window_bytes: how much may be on its way from the broker.
    """

    poll_timeout: float
    visible: bool = True
    begins: MessageId | None = None
    fail_on_data_loss: bool = True
    read_compacted: bool = False
    window_bytes: int = WINDOW_BYTES


def read_entries(
    client: Client, topic: TopicName, start: MessageId, end: MessageId, options: RangeOptions
) -> Iterator[Entries]:
    """Give all entries behind ``start`` up to and with ``end``, whole, in order, each once.

    Raises what :func:`pulsar_spark.client.read_range` does.
    """
    if start < end:
        with _reader(client, topic, start.next_entry, options) as consumer:
            yield from _Range(client, consumer, start, end, options).read()


def position_before(client: Client, topic: TopicName, position: MessageId) -> MessageId:
    """The entry in front of ``position``, in whichever ledger; entry -1 where the topic begins there.

    Where ``position`` lies behind the end of its ledger that is the ledger's last entry. Where its ledger is
    gone it is the position in front of all that is left.
    """
    options = SubscriptionOptions(name=_unique_name(), durable=False, start=position)
    with Consumer(client, topic, options) as consumer:
        return consumer.last_message_id().mark_delete


class _Range:
    """A range being read."""

    def __init__(
        self, client: Client, consumer: Consumer, start: MessageId, end: MessageId, options: RangeOptions
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._position = start
        self._acked = start
        self._end = end
        self._options = options
        # Compaction may have taken the end away, and may still have what was trimmed.
        self._visible = options.visible and not options.read_compacted
        self._begins = None if options.read_compacted else options.begins
        # The ledger up to which it is known that nothing was trimmed behind the start.
        self._seen = start.ledger

    def read(self) -> Iterator[Entries]:
        if not self._options.read_compacted:
            self._begin()
        end = self._end
        while self._position < self._end:
            try:
                entries = self._next()
            except CorruptError as error:
                self._corrupt(error)
                continue
            ledger, entry = entries.ledger, entries.entry
            is_inside = (ledger < end.ledger) | ((ledger == end.ledger) & (entry <= end.entry))
            count = int(np.count_nonzero(is_inside))
            if count:
                last = MessageId(int(ledger[count - 1]), int(entry[count - 1]))
                self._cross(last.ledger)
                self._position = last
                yield entries[:count]
            if count < len(entries) and self._position < end.whole_entry:
                self._passed(MessageId(int(ledger[count]), int(entry[count])))
            if not len(entries):
                self._passed(None)

    def _begin(self) -> None:
        """See where the broker begins: it moves a start that it no longer has, and says nothing."""
        start, mark = self._position, self._consumer.last_message_id().mark_delete
        self._position = max(start, mark)
        self._seen = mark.ledger
        if self._begins is not None and mark > max(start, self._begins):
            self._lost(max(start, self._begins), min(mark, self._end), f"what it has begins behind {mark}")
        elif self._visible and mark >= self._end.whole_entry:
            self._lost(start, self._end, f"what it has begins behind {mark}")

    def _next(self) -> Entries:
        """The next entries; none when the broker has nothing more in this range."""
        deadline, idle = Deadline(self._options.poll_timeout), _FIRST_IDLE
        while True:
            entries = self._consumer.receive(deadline, self._entries_left(), idle)
            if len(entries) or self._is_exhausted():
                return entries
            idle = min(2 * idle, _LONGEST_IDLE)

    def _entries_left(self) -> int | None:
        """How many are left, where that is known: within one ledger entries are numbered without gaps."""
        same = self._position.ledger == self._end.ledger
        return self._end.entry - self._position.entry if same else None

    def _is_exhausted(self) -> bool:
        """Ask whether what is left of the range will never be delivered.

        Markers and aborted messages are not; the broker acknowledges them itself as it reads over them, so
        with our acknowledgement of what it did deliver the subscription's position shows how far it has read.
        """
        try:
            if self._position > self._acked:
                self._consumer.ack_cumulative(self._position)
                self._acked = self._position
            last, mark = self._consumer.last_message_id()
        except PulsarError as error:
            if not error.is_passing:
                raise
            _log.info("%s: asking again whether something is left: %s", self._consumer.topic, error)
            return False
        if not self._options.read_compacted and mark >= self._end.whole_entry:
            return True
        return last.whole_entry <= self._position

    def _cross(self, ledger: int) -> None:
        """See that nothing was trimmed between the ledger that was read last and ``ledger``.

        Ledgers are trimmed from the oldest on: where the last one is still there, so is all behind it.
        """
        if self._begins is not None and ledger > max(self._seen, self._position.ledger):
            before = position_before(self._client, self._consumer.topic, MessageId(self._seen, 1))
            if before.ledger != self._seen:
                why = f"ledger {self._seen} was removed while it was read"
                self._lost(self._position, MessageId(ledger, -1), why)
        self._seen = ledger

    def _passed(self, found: MessageId | None) -> None:
        """Nothing of the range is left, without its end having come; ``found`` is what came behind it."""
        if found is None or found.ledger != self._end.ledger:
            where = "nothing more came" if found is None else f"it sent {found}"
            if self._visible:
                self._lost(self._position, self._end, f"behind {self._position} {where}")
            else:
                self._cross(self._end.ledger)
        self._position = self._end

    def _corrupt(self, error: CorruptError) -> None:
        """Go on behind an entry that cannot be taken apart, where lost data is no error."""
        assert error.message_id is not None  # the consumer names it
        found = MessageId.parse(error.message_id)
        if found > self._end:
            self._passed(found)
            return
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("an entry is left out: %s", error)
        self._position = found
        self._consumer.seek(found.next_entry)

    def _lost(self, start: MessageId, end: MessageId, why: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"messages in ({start}, {end}] are lost: {why}",
                topic=str(self._consumer.topic),
                message_id=str(end),
                advice="Look at the topic's retention, and whether its subscription was removed",
            )
        _log.warning("%s: messages in (%s, %s] are lost: %s", self._consumer.topic, start, end, why)


def _unique_name() -> str:
    return f"spark-pulsar-reader-{uuid.uuid4()}"


def _reader(client: Client, topic: TopicName, first: MessageId, options: RangeOptions) -> Consumer:
    subscription = SubscriptionOptions(
        name=_unique_name(), durable=False, start=first, read_compacted=options.read_compacted
    )
    return Consumer(client, topic, subscription, Permits(options.window_bytes))
