"""Entry: one broker entry as it was delivered, before its payload is looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pulsar_spark.ids import MessageId
    from pulsar_spark.wire import pulsar_pb2 as pb


class Entry(NamedTuple):
    """One MESSAGE command with its metadata and payload.

    Attributes:
        ledger: ledger id.
        entry: entry id in the ledger.
        metadata: the entry's MessageMetadata.
        payload: the stored bytes, still compressed; a batch where ``num_messages_in_batch`` is set.
        broker_index: the broker's index of the entry's last message, or None where the broker sends none.
        first_chunk: of a message that was put together from chunks, the id of the first; ids, metadata and
            index are those of the last then, and the payload is the whole one.
    """

    ledger: int
    entry: int
    metadata: pb.MessageMetadata
    payload: memoryview
    broker_index: int | None
    first_chunk: MessageId | None = None
