"""Finds entries that a producer stored recently, by the producer's name and their sequence ids."""

from __future__ import annotations

import logging
import time
from typing import Protocol

import numpy as np
import pyarrow.compute as pc

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.reading.chunk_search import positions_before
from pulsar_spark.client.reading.entry_range import RangeOptions, read_entries
from pulsar_spark.client.reading.probe import reader_options
from pulsar_spark.errors import DeadlineError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.stored_check import StoredProof
from pulsar_spark.wire.entries import Entries, Entry
from pulsar_spark.wire.entry_fields import EntryField

# Minimum entries of the first step back.
_FIRST_STEP = 64

# Seconds in which entries that the broker is writing must become visible; seconds between two requests.
_SETTLING = 2.0
_PAUSE = 0.1

_log = logging.getLogger(__name__)


def find_last_stored(client: Client, topic: TopicName, producer_name: str, sequence_id: int) -> Entry | None:
    """Find the entry whose last message has ``sequence_id``; None where it is not found in time.

    Of a chunked message it is the last chunk. It searches as :func:`find_stored` does.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        producer_name: as the entry's metadata has it.
        sequence_id: of its last message.
    """
    wanted = _LastEntry(producer_name, sequence_id)
    _Search(client, topic, wanted).run()
    return wanted.entry


def find_stored(client: Client, topic: TopicName, proof: StoredProof) -> None:
    """Give a proof the stored entries that it needs, as far as they are found in time.

    It reads backwards from the end of the topic partition, so recent entries are found soon. Entries after
    the first message of an open transaction are not visible, nor are those that the broker is still writing:
    it waits for both. Deleted entries are not found. It takes at most one operation
    timeout; if that was too short, it calls the proof's ``cut_short``.

    Args:
        client: where to connect.
        topic: one partition, or a topic without partitions.
        proof: the entries to find.
    """
    if not _Search(client, topic, proof).run():
        proof.cut_short()


class _Wanted(Protocol):
    """Entries that a search looks for: those of one producer, with ids from the first to the last one."""

    producer_name: str
    first_sequence_id: int
    last_sequence_id: int
    count: int

    @property
    def is_found(self) -> bool:
        """Whether nothing more is looked for."""

    def take(self, entry: Entry) -> None:
        """Take an entry of that name whose ids are not lower than the first and not higher than the last."""


class _LastEntry:
    """One entry, by the id of its last message."""

    count = 1

    def __init__(self, producer_name: str, sequence_id: int) -> None:
        self.producer_name = producer_name
        self.first_sequence_id = self.last_sequence_id = sequence_id
        self.entry: Entry | None = None

    @property
    def is_found(self) -> bool:
        return self.entry is not None

    def take(self, entry: Entry) -> None:
        metadata = entry.metadata
        ends_here = metadata.sequence_id + metadata.num_messages_in_batch - 1 == self.last_sequence_id
        # A restarted broker takes a message's id from its first chunk; only the last one proves the message.
        if ends_here and metadata.chunk_id >= metadata.num_chunks_from_msg - 1:
            self.entry = entry


class _Search:
    def __init__(self, client: Client, topic: TopicName, wanted: _Wanted) -> None:
        self._client = client
        self._topic = topic
        self._wanted = wanted
        self._deadline = client.operation()
        # Whether an older entry of the producer was found: the wanted entries lie after that.
        self._passed_older = False

    def run(self) -> bool:
        """Search; return whether there was time to read everything needed."""
        try:
            return self._run()
        except DeadlineError as error:
            _log.info("%s: the search for stored messages timed out: %s", self._topic, error)
            return False

    def _run(self) -> bool:
        with Consumer(
            self._client, self._topic, reader_options(self._client, "replay", MessageId.LATEST)
        ) as consumer:
            visible, stored = consumer.last_message_id()
            end = visible.whole_entry
            self._backwards(end)
            patience = self._deadline.at_most(_SETTLING)
            while not self._wanted.is_found:
                visible = consumer.last_message_id().last
                if visible.whole_entry > end:
                    self._between(end, visible.whole_entry)
                    end = visible.whole_entry
                elif (self._deadline if end < stored.whole_entry else patience).passed:
                    return end >= stored.whole_entry
                else:
                    time.sleep(_PAUSE)
        return True

    def _backwards(self, end: MessageId) -> None:
        if not end.is_message or self._wanted.is_found:
            return
        step = max(_FIRST_STEP, self._wanted.count)
        for start in positions_before(self._client, self._topic, end.next_entry, step):
            self._between(start, end)
            if self._wanted.is_found or self._passed_older:
                return
            end = start

    def _between(self, start: MessageId, end: MessageId) -> None:
        options = RangeOptions(
            poll_timeout=self._deadline.left, visible=False, begins=None, fail_on_data_loss=False
        )
        for entries in read_entries(self._client, self._topic, start, end, options):
            if self._deadline.passed:
                raise self._deadline.error("the entries were not found")
            self._match(entries)

    def _match(self, entries: Entries) -> None:
        wanted = self._wanted
        names = entries.texts(EntryField.PRODUCER_NAME)
        ours = pc.equal(names, wanted.producer_name.encode()).to_numpy(zero_copy_only=False)
        first = entries.sequence_id
        last = first + np.maximum(entries.messages, 1) - 1
        self._passed_older = self._passed_older or bool((ours & (last < wanted.first_sequence_id)).any())
        is_wanted = ours & (last >= wanted.first_sequence_id) & (last <= wanted.last_sequence_id)
        for row in np.flatnonzero(is_wanted).tolist():
            wanted.take(entries.one(row))
