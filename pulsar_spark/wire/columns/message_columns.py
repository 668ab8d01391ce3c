"""MessageColumns: many messages as Arrow arrays, in the form that writers accept."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumns:
    """Messages of one topic, one per row; all arrays have the same length, in the order of the topic.

    Attributes:
        value: ``binary``; null means a tombstone (``null_value``), which differs from the empty value.
        key: ``binary``; null means no key. Keys flagged as base64 on the wire are stored decoded.
        event_time: ``int64`` in ms since the epoch, null if unset; None if no message has one.
        properties: ``map<string, string>``, null-free; None if no message has any.
        ordering_key: ``binary``, null if unset; None if no message has one.
        sequence_id: ``int64``, null if unset; None if no message has one.
        deliver_at: ``int64`` in ms since the epoch, when a message to write is delivered to consumers of
            shared subscriptions. Null, or None for all messages: immediately.
        partition: ``int32``, partition of a message to write. Null, or None for all messages: routing
            decides.
    """

    value: pa.BinaryArray
    key: pa.BinaryArray
    event_time: pa.Int64Array | None = None
    properties: pa.MapArray | None = None
    ordering_key: pa.BinaryArray | None = None
    sequence_id: pa.Int64Array | None = None
    deliver_at: pa.Int64Array | None = None
    partition: pa.Int32Array | None = None

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: pa.Int64Array) -> MessageColumns:
        """The rows at the given indexes, in that order."""
        columns = ((field.name, getattr(self, field.name)) for field in fields(self))
        return MessageColumns(
            **{name: None if column is None else column.take(rows) for name, column in columns}
        )
