"""TaskIds: the sequence ids of a task's messages on a topic partition, by micro-batch.

Those of micro-batch n are at least ``first_sequence_id(n)`` and less than ``first_sequence_id(n + 1)``. They
begin at a number that depends on the query's secret. So anybody can use the ids of a micro-batch under the
producer's name, but not those that the query would use, unless an entry of the query shows them.
"""

from __future__ import annotations

import hashlib

# Sequence ids between the first ones of two micro-batches; they begin in the first half.
IDS_PER_BATCH = 1 << 32

# Ids that are taken for the query's, from the first one of a micro-batch on.
_OWN_IDS = 1 << 24


def first_sequence_id(batch: int) -> int:
    """The lowest sequence id that a micro-batch may have."""
    return (batch + 1) * IDS_PER_BATCH


class TaskIds:
    """The sequence ids of one producer name on one topic partition.

    Args:
        secret: of the query, at most 64 bytes.
        name: of the producer.
        topic: the topic partition.
    """

    def __init__(self, secret: bytes, name: str, topic: str) -> None:
        self._secret = secret
        self._place = f"{name} {topic}"

    def first(self, batch: int) -> int:
        """The id of the first message of a micro-batch."""
        text = f"{self._place} {batch}".encode()
        digest = hashlib.blake2b(text, key=self._secret, digest_size=4).digest()
        return first_sequence_id(batch) + int.from_bytes(digest, "big") // 2

    def may_be_own(self, last: int) -> bool:
        """Whether the query can have used an id, as far as the id tells; -1 stands for no id."""
        return last >= IDS_PER_BATCH and 0 <= last - self.first(last // IDS_PER_BATCH - 1) < _OWN_IDS

    def following(self, last: int, batch: int) -> int:
        """The id of a micro-batch's next message, if ``last`` is the last id under the producer's name."""
        first = self.first(batch)
        if last < first:
            return first
        if self.may_be_own(last):
            return last + 1
        batch = last // IDS_PER_BATCH - 1
        return self.first(batch if last < self.first(batch) else batch + 1)
