"""Interceptors: users' code that may change messages before they are sent, and receives the results."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import TypeAlias

import pyarrow as pa

from pulsar_spark.errors import OptionError
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing
from pulsar_spark.wire.columns.message_columns import MessageColumns

OnReceipt: TypeAlias = Callable[[Outgoing, MessageId | None], None]

_TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "event_time": pa.int64(),
    "properties": pa.map_(pa.string(), pa.string()),
    "ordering_key": pa.binary(),
    "sequence_id": pa.int64(),
    "deliver_at": pa.int64(),
    "partition": pa.int32(),
}
_log = logging.getLogger(__name__)


class ProducerInterceptor:
    """Base class of interceptors. Each Spark task creates its own instance and calls it from one thread.

    An exception in ``before_send`` fails the task, and no row of the send is sent, because an interceptor
    that masks values must not let them through. An exception in ``on_send_acknowledgement`` is logged.
    """

    def before_send(self, columns: MessageColumns) -> MessageColumns:
        """Returns the columns to send instead of ``columns``: as many rows, with the same types.

        Called with all rows of one send to one topic, before their partitions are chosen.
        """
        return columns

    def on_send_acknowledgement(
        self,
        topic: str,
        sequence_id: int,
        messages: int,
        message_id: MessageId | None,
        error: Exception | None,
    ) -> None:
        """Called with the result of an entry: a batch, an unbatched message, or a message in chunks.

        Called once for each entry that was sent, some time after it was acknowledged, or when the writer is
        closed. The entries of a topic partition are reported in order.

        Args:
            topic: topic partition.
            sequence_id: sequence id of the entry's first message.
            messages: number of messages in the entry.
            message_id: id of the entry; None if the entry failed, or if the broker had stored it before.
            error: reason why the entry was not acknowledged, or None.
        """


class Interceptors:
    """Calls the interceptors of one writer; receipts wait until the caller's thread calls ``acknowledge``."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._all = interceptors
        self._receipts: deque[tuple[str, Outgoing, MessageId | None]] = deque()

    def on_receipt(self, topic: str) -> OnReceipt | None:
        """Returns the callback for the producer of a topic partition; None without interceptors."""
        if not self._all:
            return None
        return lambda entry, place: self._receipts.append((topic, entry, place))

    def before_send(self, columns: MessageColumns, topic: str) -> MessageColumns:
        """Returns the columns to send instead of ``columns``; ``topic`` is for error texts.

        Raises:
            OptionError: an interceptor has failed, or returned columns that cannot be sent. The error omits
                the interceptor's text, which may contain values of rows.
        """
        for one in self._all:
            name = f"{type(one).__module__}.{type(one).__qualname__}"
            try:
                changed = one.before_send(columns)
            except Exception as error:
                raise OptionError(
                    f"the interceptor {name} raised {type(error).__name__} in before_send: no row is sent",
                    topic=topic,
                    advice="Correct the class. With logLevel=DEBUG its traceback is in the task's log",
                ) from error
            problem = _problem(changed, len(columns))
            if problem is not None:
                raise OptionError(
                    f"before_send of the interceptor {name} returned what cannot be sent: {problem}",
                    topic=topic,
                    advice="Return MessageColumns with as many rows, in columns of the same types",
                )
            columns = changed
        return columns

    def acknowledge(self) -> None:
        """Reports the receipts since the last call."""
        for _ in range(len(self._receipts)):
            topic, entry, place = self._receipts.popleft()
            self._report(topic, entry, place, None)

    def failed(self, topic: str, entries: Iterable[Outgoing], error: Exception) -> None:
        """Reports entries that were sent and not acknowledged."""
        for entry in entries:
            self._report(topic, entry, None, error)

    def _report(self, topic: str, entry: Outgoing, place: MessageId | None, error: Exception | None) -> None:
        if entry.kind is EntryKind.CHUNK:
            return  # not reported, because the last chunk is reported for the whole message
        for one in self._all:
            try:
                one.on_send_acknowledgement(topic, entry.sequence_id, entry.messages, place, error)
            except Exception:  # noqa: BLE001 - a user's code, and no reason to stop the send
                _log.exception("%s.on_send_acknowledgement failed", type(one).__name__)


def _problem(columns: object, rows: int) -> str | None:
    """Returns the reason that columns cannot be sent instead of ``rows`` rows; None if they can."""
    if not isinstance(columns, MessageColumns):
        return f"{type(columns).__name__} instead of MessageColumns"
    for field in fields(columns):
        column = getattr(columns, field.name)
        if column is None and field.name not in ("value", "key"):
            continue
        if not isinstance(column, pa.Array) or column.type != _TYPES[field.name]:
            return f"column {field.name} is not an array of {_TYPES[field.name]}"
        if len(column) != rows:
            return f"column {field.name} has {len(column)} rows instead of {rows}"
    return None
