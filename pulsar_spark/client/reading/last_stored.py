"""Finding the entry that a producer stored last, by the producer's name and the sequence id it ends with."""

from __future__ import annotations

import time

import numpy as np
import pyarrow.compute as pc

from pulsar_spark.client.client import Client
from pulsar_spark.client.reading.chunk_search import positions_before
from pulsar_spark.client.reading.consumer import Consumer
from pulsar_spark.client.reading.entry_range import RangeOptions, read_entries
from pulsar_spark.client.reading.probe import reader_options
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire.entries import Entries, Entry
from pulsar_spark.wire.entry_fields import EntryField

# Entries of the first step back.
_FIRST_STEP = 64

# Seconds in which what the broker is still writing must become visible, and seconds between two requests.
_SETTLING = 2.0
_PAUSE = 0.1


def find_last_stored(client: Client, topic: TopicName, producer_name: str, sequence_id: int) -> Entry | None:
    """Find the entry whose last message has ``sequence_id``; None where it is not found in time.

    Of a chunked message it is the last chunk.

    It reads backwards from the end of the topic partition, so what was written lately is found soon. An entry
    after the first message of an open transaction is not visible, nor is one that the broker is still
    writing: it waits for both. One that the broker has removed is not found. It takes at most one operation
    timeout.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        producer_name: as the entry's metadata has it.
        sequence_id: of its last message.
    """
    search = _Search(client, topic, producer_name, sequence_id)
    try:
        return search.run()
    except DeadlineError:
        return None


class _Search:
    def __init__(self, client: Client, topic: TopicName, producer_name: str, sequence_id: int) -> None:
        self._client = client
        self._topic = topic
        self._name = producer_name
        self._sequence_id = sequence_id
        self._deadline = client.operation()
        # Whether an older entry of the producer was met: the one that is searched for lies after that.
        self._passed_older = False

    def run(self) -> Entry | None:
        with Consumer(self._client, self._topic, reader_options("replay", MessageId.LATEST)) as consumer:
            visible, stored = consumer.last_message_id()
            end = visible.whole_entry
            found = self._backwards(end)
            patience = self._deadline.at_most(_SETTLING)
            while found is None:
                visible = consumer.last_message_id().last
                if visible.whole_entry > end:
                    found = self._between(end, visible.whole_entry)
                    end = visible.whole_entry
                elif (self._deadline if end < stored.whole_entry else patience).passed:
                    break
                else:
                    time.sleep(_PAUSE)
            return found

    def _backwards(self, end: MessageId) -> Entry | None:
        if not end.is_message:
            return None
        for start in positions_before(self._client, self._topic, end.next_entry, _FIRST_STEP):
            found = self._between(start, end)
            if found is not None or self._passed_older:
                return found
            end = start
        return None

    def _between(self, start: MessageId, end: MessageId) -> Entry | None:
        options = RangeOptions(
            poll_timeout=self._deadline.left, visible=False, begins=None, fail_on_data_loss=False
        )
        found = None
        for entries in read_entries(self._client, self._topic, start, end, options):
            if self._deadline.passed:
                raise self._deadline.error("the entry was not found")
            found = self._match(entries) or found
        return found

    def _match(self, entries: Entries) -> Entry | None:
        names = entries.texts(EntryField.PRODUCER_NAME)
        ours = pc.equal(names, self._name.encode()).to_numpy(zero_copy_only=False)
        last = entries.sequence_id + np.maximum(entries.messages, 1) - 1
        self._passed_older = self._passed_older or bool((ours & (last < self._sequence_id)).any())
        rows = np.flatnonzero(ours & (last == self._sequence_id))
        entry = entries.one(int(rows[-1])) if len(rows) else None
        # A broker that restarts takes a message's id from its first chunk already; only the last proves it.
        if entry is not None and entry.metadata.chunk_id < entry.metadata.num_chunks_from_msg - 1:
            return None
        return entry
