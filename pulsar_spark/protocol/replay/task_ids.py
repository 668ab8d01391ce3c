"""TaskIds: the sequence ids of a task's messages on a topic partition, by micro-batch.

The ids of micro-batch n are in ``[first_sequence_id(n), first_sequence_id(n + 1))``, and begin at a number
that depends on the query's secret. So another program that writes under the producer's name does not know the
query's own ids, unless it reads them in an entry of the query.
"""

from __future__ import annotations

import hashlib

# Number of sequence ids that a micro-batch has; the first used id is in their first half.
IDS_PER_BATCH = 1 << 32

# Number of ids, from a micro-batch's first used id on, that only the query is assumed to use.
_OWN_IDS = 1 << 24


def first_sequence_id(batch: int) -> int:
    """Returns the lowest possible sequence id of a micro-batch."""
    return (batch + 1) * IDS_PER_BATCH


class TaskIds:
    """The sequence ids of one producer name on one topic partition.

    Args:
        secret: the query's secret, at most 64 bytes.
        name: name of the producer.
        topic: name of the topic partition.
    """

    def __init__(self, secret: bytes, name: str, topic: str) -> None:
        self._secret = secret
        self._place = f"{name} {topic}"

    def first(self, batch: int) -> int:
        """Returns the id of the first message of a micro-batch."""
        text = f"{self._place} {batch}".encode()
        digest = hashlib.blake2b(text, key=self._secret, digest_size=4).digest()
        return first_sequence_id(batch) + int.from_bytes(digest, "big") // 2

    def own(self, batch: int) -> range:
        """Returns a micro-batch's ids that count as the query's; other ids count as another program's."""
        return range(first := self.first(batch), first + _OWN_IDS)

    def may_be_own(self, last: int) -> bool:
        """Whether the query may have used the id ``last``, in any micro-batch; False for -1, no id."""
        return last >= IDS_PER_BATCH and last in self.own(last // IDS_PER_BATCH - 1)

    def following(self, last: int, batch: int) -> int:
        """Returns the next id to use in a micro-batch; ``last``: last id stored under the name; -1: none."""
        first = self.first(batch)
        if last < first:
            return first
        if self.may_be_own(last):
            return last + 1
        batch = last // IDS_PER_BATCH - 1  # micro-batch with ``last``, which another program used
        return self.first(batch if last < self.first(batch) else batch + 1)
