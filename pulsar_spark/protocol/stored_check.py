"""What a broker's last sequence id says of the entries that are pending when a producer registers again.

A broker that deduplicates drops what is sent with an id up to the last one that it has stored under the
producer's name. Pending entries were sent and not acknowledged; ``sent`` is the highest id that this producer
knows of otherwise: acknowledged, or found stored when it registered first.

    =====================================  ================================================================
    last id that the broker has stored     judged
    =====================================  ================================================================
    none (-1), and pending entries         MAY_REPEAT: the broker does not deduplicate, or knows nothing of
    belong to a transaction                the name; they may be stored, and would be stored twice
    none (-1), and none of them does       RESEND
    above ``sent`` and all pending ids     FOREIGN: another program has used the name; the broker would
                                           drop what is sent now
    in a pending entry, before its last    FOREIGN: a broker stores an entry whole or not at all
    id
    the id of a pending chunk              CHUNK_IN_DOUBT: a broker that restarts takes the id of a message
                                           from its first chunk; only the last chunk proves the message
    any other                              RESEND: the broker drops what it has
    =====================================  ================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from pulsar_spark.errors import SendError
from pulsar_spark.protocol.pending import Outgoing


class StoredCheck(Enum):
    """What becomes of pending entries; see the module's table."""

    RESEND = auto()
    CHUNK_IN_DOUBT = auto()
    FOREIGN = auto()
    MAY_REPEAT = auto()


def check_stored(last_sequence_id: int, sent: int, pending: Sequence[Outgoing]) -> StoredCheck:
    """Judge the pending entries of a producer by the module's table.

    Args:
        last_sequence_id: that the broker has stored under the producer's name; -1 for none.
        sent: the highest id that is not pending and that this producer knows of; -1 for none.
        pending: in the order they were sent.
    """
    if last_sequence_id < 0:
        in_transaction = any(entry.transaction is not None for entry in pending)
        return StoredCheck.MAY_REPEAT if in_transaction else StoredCheck.RESEND
    if last_sequence_id > max([sent, *(entry.highest_sequence_id for entry in pending)]):
        return StoredCheck.FOREIGN
    if any(entry.sequence_id <= last_sequence_id < entry.highest_sequence_id for entry in pending):
        return StoredCheck.FOREIGN
    if any(entry.kind.is_chunk and entry.sequence_id == last_sequence_id for entry in pending):
        return StoredCheck.CHUNK_IN_DOUBT
    return StoredCheck.RESEND


def foreign_writes(topic: str, name: str) -> SendError:
    """The error of a producer under whose name somebody else has written meanwhile."""
    return SendError(
        f"somebody else, such as another run of this task, has written under the producer name {name}",
        topic=topic,
        advice="Let Spark try tasks again (spark.task.maxFailures), and give no two queries one producerName",
    )
