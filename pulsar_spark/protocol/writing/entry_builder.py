"""EntryBuilder: makes the entries of one producer on one topic partition from rows.

It has the open batch, the rows' own sequence ids and the packer. What becomes of entries is up to the
partition's writer, which says what the broker has answered. The way of a row:

    batch_rows, batch_groups, close_batch -> batches -> pack_batches -> entries
    messages that must not share a batch -----------> pack_singles -> entries
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pulsar_spark.arrow.arrays import Flags, Ints
from pulsar_spark.protocol.writing.batcher import Batch, Batcher, BatchLimits, SequenceIds
from pulsar_spark.protocol.writing.outgoing import Outgoing, OutgoingRun
from pulsar_spark.protocol.writing.packer import RUN_MESSAGES, Packer
from pulsar_spark.wire.columns.singles import EncodedSingle
from pulsar_spark.wire.entry.encode_metadata import schema_version_field

# Messages of a run if sends do not wait for room: receipts can make room before the next run.
_RUN_MESSAGES_IF_NOT_BLOCKING = 500


class EntryBuilder:
    """The entries of one producer, from rows on. Calls must not overlap.

    Args:
        packer: makes the entries.
        batch_limits: of its batches.
        blocks_if_full: whether entries wait for room in the window; else runs are shorter, and
            ``PartitionWriter.check_room`` raises QueueFullError.

    Attributes:
        packer: as given; it also checks sizes, and has the transaction of what is packed next.
        blocks_if_full: as given.
    """

    def __init__(self, packer: Packer, batch_limits: BatchLimits, *, blocks_if_full: bool = True) -> None:
        self.packer = packer
        self._batch_limits = batch_limits
        self.blocks_if_full = blocks_if_full
        self._batcher: Batcher | None = None
        self._own_ids = SequenceIds(-1)

    # ---- what the broker has answered

    def number_from(self, first_sequence_id: int, last_sequence_id: int) -> None:
        """Set the id of the next message.

        Args:
            first_sequence_id: that id, if it is above ``last_sequence_id``; else the next id after that.
            last_sequence_id: that the broker has stored under the producer's name; -1 for none.
        """
        self._own_ids = SequenceIds(last_sequence_id)
        self.packer.next_sequence_id = max(first_sequence_id, last_sequence_id + 1)

    def registered(self, name: str, max_message_size: int, schema_version: bytes) -> bool:
        """Take what is true for entries that are packed from now on.

        Args:
            name: of the producer.
            max_message_size: of the broker, in bytes. Limits of batches follow the first one.
            schema_version: that the producer's schema has; empty without a schema.

        Returns:
            Whether entries that were packed before have another schema version.

        Raises:
            CryptoError: a key to encrypt with is missing.
        """
        packer, version_field = self.packer, schema_version_field(schema_version)
        has_new_version = version_field != packer.version_field
        packer.producer_name, packer.max_message_size = name, max_message_size
        packer.version_field = version_field
        if self._batcher is None:
            limits, fits = self._batch_limits, packer.max_shared_size
            max_bytes = min(limits.max_bytes, fits) if limits.max_bytes > 0 else fits
            self._batcher = Batcher(limits.max_messages, max_bytes, limits.max_delay)
        return has_new_version

    # ---- rows into batches

    def take_ids(self, given: pa.Int64Array) -> tuple[Ints, Flags]:
        """The rows' own sequence ids, and which rows must begin a batch; see ``SequenceIds.take``."""
        return self._own_ids.take(given)

    def batch_rows(
        self,
        body: memoryview,
        offsets: Ints,
        now: float,
        sequence_ids: Ints | None = None,
    ) -> list[Batch]:
        """Put rows into the open batch and return the batches that this closes; see ``Batcher.add``."""
        assert self._batcher is not None, "the producer is not registered"
        return self._batcher.add(body, offsets, now, sequence_ids)

    def batch_groups(self, body: memoryview, offsets: Ints, starts: Ints) -> list[Batch]:
        """Close the open batch and make batches of rows, none of them of two groups; see ``Batcher``."""
        assert self._batcher is not None, "the producer is not registered"
        return self._batcher.add_groups(body, offsets, starts)

    def close_batch(self) -> Batch | None:
        """Close the open batch, whatever it holds; None if there is none."""
        return None if self._batcher is None else self._batcher.take()

    @property
    def batch_due_at(self) -> float | None:
        """When the open batch is to be closed by time, in monotonic seconds; None if there is none."""
        return None if self._batcher is None else self._batcher.due_at

    # ---- batches and single messages into entries

    def pack_batches(self, batches: Iterable[Batch], publish_time: int) -> Iterator[Outgoing]:
        """Make an entry of each batch, lazily.

        Args:
            batches: in the order they are to be sent.
            publish_time: in ms since the epoch.

        Raises:
            SendError: one is larger than the broker takes.
            CryptoError: it cannot be encrypted.
        """
        return (self.packer.batch(batch, publish_time) for batch in batches)

    def pack_singles(
        self, messages: Sequence[EncodedSingle], publish_time: int
    ) -> Iterator[Outgoing | OutgoingRun]:
        """Make one entry of each message, or one of each of its chunks; raises as ``pack_batches`` does."""
        run_messages = RUN_MESSAGES if self.blocks_if_full else _RUN_MESSAGES_IF_NOT_BLOCKING
        return self.packer.singles(messages, publish_time, run_messages=run_messages)
