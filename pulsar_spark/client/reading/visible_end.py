"""Finds the last visible message of a segment at brokers with transactions that do not report it.

Such brokers (5.0.0-M1, 5.0.1) repeat their first answer to GET_LAST_MESSAGE_ID until they load the segment
again, although they deliver all new messages. So the stored entries are compared with the entries that a
reader receives.
"""

from __future__ import annotations

import logging
import math

from pulsar_spark.client.client import Client
from pulsar_spark.client.consuming.consumer import Consumer
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.reading.probe import has_read_over, reader_options, receive_infos
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.protocol.reading.permits import Permits

_log = logging.getLogger(__name__)

# Seconds of silence after which the broker is asked for its position.
_ASKED_AFTER = 0.5

# Maximum bytes in flight; the broker itself reads up to 5 MiB at a time.
_WINDOW_BYTES = 1 << 20


def visible_end(
    client: Client,
    topic: TopicName,
    told: MessageId,
    stored: MessageId,
    silence: float,
    seen: MessageId = MessageId.EARLIEST,
    patience: float = math.inf,
) -> MessageId:
    """Returns the last visible entry of a segment, at least the broker's answer.

    Args:
        told: last message in the broker's answer, or the position before the first entry.
        stored: last entry, visible or not.
        silence: seconds without an entry after which the rest counts as invisible, because it belongs to an
            open transaction; shorter if the broker has read all entries.
        seen: entry that is known to be visible.
        patience: seconds after which the last entry found so far is returned.

    Raises:
        DeadlineError: the connection was lost for longer than the operation timeout.
    """
    if stored <= told.whole_entry:
        return told
    before = MessageId(stored.ledger, stored.entry - 1)
    given = _last_given(client, topic, before, stored, silence, patience)
    if given > before:
        return given
    after = seen if told < seen <= stored else told
    return _last_given(client, topic, after, stored, silence, patience)


def _last_given(
    client: Client, topic: TopicName, after: MessageId, end: MessageId, silence: float, patience: float
) -> MessageId:
    """Returns the last entry that a reader receives after a position, up to ``end`` or the entry after it."""
    position, until, quiet = after, Deadline(patience), Deadline(silence)
    options = reader_options(client, "planner", after.next_entry)
    with Consumer(client, topic, options, Permits(_WINDOW_BYTES)) as reader:
        while position.whole_entry < end and not until.passed:
            count = end.entries_since(position.whole_entry)
            # A lost connection does not count as silence.
            found = receive_infos(
                reader, Deadline(_ASKED_AFTER + client.operation().seconds), count, _ASKED_AFTER
            )
            if found:
                position, quiet = found[-1].id, Deadline(silence)
            elif has_read_over(reader, after, position, end):
                break
            elif quiet.passed:
                _log.info("%s: what is stored after %s, up to %s, is not delivered", topic, position, end)
                break
    return position
