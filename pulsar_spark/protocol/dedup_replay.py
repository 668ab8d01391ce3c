"""DedupReplay: compares what a task sends in a micro-batch with what an earlier run of it has stored.

A task that is run again learns from the broker how many of its messages are stored already. They are left
out only if they are the same ones: each entry has a dedup mark, a digest of all messages up to its end, which
does not depend on where entries begin and end. When as many messages have come as are stored, their digest is
compared with that of the last stored entry. Until then they are held back in a spool. No message is ever
dropped because of a number alone.

What is stored when a task opens its producer, ``stored`` = last stored id - first id of the micro-batch + 1:

    ====================  ==========  ===========================================================
    stored                digest      judged
    ====================  ==========  ===========================================================
    0 or less             (not read)  NOTHING: send all, with marks
    1 to IDS_PER_BATCH    found       COMPARABLE: hold back, and compare the digests
    1 to IDS_PER_BATCH    not found   UNREADABLE: send all under another producer name
    more                  (not read)  LATER: a later micro-batch; send all under another name
    ====================  ==========  ===========================================================

How messages are handled:

    ==========  =============================================  ===============================
    verdict     take(items)                                    end()
    ==========  =============================================  ===============================
    OPEN        hold back; with the last of those stored:      DIFFERENT: give what was held
                digests equal -> SAME: give the rest, marked   back
                else -> DIFFERENT: give all, with what was
                held back
    SAME        give all, marked                               -
    DIFFERENT   give all as they are                           -
    ==========  =============================================  ===============================
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Protocol, TypeAlias

from pulsar_spark.errors import SendError
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.wire.crc32c import crc32c
from pulsar_spark.wire.dedup_mark import DIGEST_SIZE, encode_dedup_mark, encode_run_ends
from pulsar_spark.wire.fields.batch_walk import find_fields
from pulsar_spark.wire.frames import Buffer
from pulsar_spark.wire.singles import EncodedSingle

Item: TypeAlias = "Batch | EncodedSingle"
"""What becomes one entry, or with chunks several."""

# Sequence ids that each micro-batch has in a topic partition.
IDS_PER_BATCH = 1 << 32

# Bytes: the first ``_WINDOW`` of each ``_STRIDE`` are hashed.
_WINDOW, _STRIDE = 1 << 10, 1 << 16

_SIZES = struct.Struct(">III")
_SINGLE = 0xFFFFFFFF  # a batch's messages begin with a size below 2**31


class StoredRun(Enum):
    """What is stored under a task's name when it opens a producer; see the module's first table."""

    NOTHING = auto()
    COMPARABLE = auto()
    UNREADABLE = auto()
    LATER = auto()


def count_stored(last_sequence_id: int, first_sequence_id: int) -> int:
    """How many messages are stored from the first id of a micro-batch on; more than it can have if later."""
    return max(0, last_sequence_id - first_sequence_id + 1)


def has_digest(stored: int) -> bool:
    """Whether the last stored message is one of this micro-batch, so that its digest can be compared."""
    return 0 < stored <= IDS_PER_BATCH


def judge_stored_run(stored: int, digest: bytes | None) -> StoredRun:
    """Decide what an earlier run has left, by the module's first table.

    Args:
        stored: as ``count_stored`` says.
        digest: of the last stored entry; None if it was not found, or not looked for.
    """
    if stored == 0:
        return StoredRun.NOTHING
    if not has_digest(stored):
        return StoredRun.LATER
    return StoredRun.UNREADABLE if digest is None else StoredRun.COMPARABLE


class Spool(Protocol):
    """Keeps items until they are taken."""

    def put(self, item: Item) -> None:
        """Append an item."""

    def take(self) -> Iterator[Item]:
        """Give each item once, in order."""

    def close(self) -> None:
        """Drop what was not taken."""


class Verdict(Enum):
    """Whether this run's messages are the stored ones; see the module's second table."""

    OPEN = auto()
    SAME = auto()
    DIFFERENT = auto()


class DedupReplay:
    """Takes the messages of one topic partition, and gives those not known to be stored, with dedup marks.

    Args:
        stored: how many messages of this micro-batch are stored, as ``count_stored`` says.
        digest: of the stored messages, from the last stored entry's dedup mark; None if it is not known.
        spool: keeps what is held back.
        run_ends: written into dedup marks; may change while messages come.

    Attributes:
        verdict: changes from OPEN once. After DIFFERENT nothing is left out or marked, and all must be sent
            under another producer name.
        messages: how many have come in this run; sequence ids are counted by them.
        stored: as given.
    """

    def __init__(self, stored: int, digest: bytes | None, spool: Spool, run_ends: Sequence[int] = ()) -> None:
        self.messages = 0
        self.stored = stored
        self._stored_digest = digest
        self._digest = _Digest()
        self._spool = spool
        self._run_ends = run_ends
        run = judge_stored_run(stored, digest)
        if run is StoredRun.NOTHING:
            self.verdict = Verdict.SAME
        elif run is StoredRun.COMPARABLE:
            self.verdict = Verdict.OPEN
        else:
            self.verdict = Verdict.DIFFERENT

    @property
    def is_later(self) -> bool:
        """Whether a later micro-batch is stored, so that all of this one may be, too."""
        return judge_stored_run(self.stored, self._stored_digest) is StoredRun.LATER

    def is_foreign(self, last_sequence_id: int, first_sequence_id: int) -> bool:
        """Whether another run of the task has written since: more is stored than this run knows of.

        Never after DIFFERENT: this run then writes under a name of its own.

        Args:
            last_sequence_id: that the broker has stored under the task's name.
            first_sequence_id: of the micro-batch.
        """
        if self.verdict is Verdict.DIFFERENT:
            return False
        return last_sequence_id >= first_sequence_id + max(self.messages, self.stored)

    def take(self, items: Sequence[Item]) -> Iterable[Item]:
        """Take what comes next; give what is to be sent now, under the name that ``verdict`` then asks for.

        Raises:
            SendError: there are more messages than sequence ids.
        """
        if self.verdict is Verdict.OPEN:
            return self._compare(items)
        if self.verdict is Verdict.SAME:
            return [self._marked(item) for item in items]
        return items

    def end(self) -> Iterable[Item]:
        """Note that no more messages come. Give what is held back: fewer came than are stored."""
        if self.verdict is not Verdict.OPEN:
            return ()
        self.verdict = Verdict.DIFFERENT
        return self._spool.take()

    def close(self) -> None:
        """Drop what is held back."""
        self._spool.close()

    def _compare(self, items: Sequence[Item]) -> Iterable[Item]:
        for number, item in enumerate(items):
            head, tail = _split(item, self.stored - self.messages)
            self._add(head)
            if self.messages == self.stored:
                return self._decide(item, tail, items[number + 1 :])
            self._spool.put(item)
        return ()

    def _decide(self, item: Item, tail: Item | None, rest: Sequence[Item]) -> Iterable[Item]:
        """As many messages as are stored have come, the last ones in ``item``, of which ``tail`` is new."""
        if self._digest.digest() == self._stored_digest:
            self.verdict = Verdict.SAME
            self.close()
            return [self._marked(one) for one in ([] if tail is None else [tail]) + list(rest)]
        self.verdict = Verdict.DIFFERENT
        return chain(self._spool.take(), [item], rest)

    def _marked(self, item: Item) -> Item:
        self._add(item)
        mark = encode_dedup_mark(self._digest.digest()) + encode_run_ends(self._run_ends)
        return item._replace(dedup_mark=mark)

    def _add(self, item: Item) -> None:
        if isinstance(item, Batch):
            for part in item.parts:
                self._digest.add(part)
            self.messages += item.messages
        else:
            self._digest.add(_SIZES.pack(_SINGLE, len(item.metadata), len(item.payload)))
            self._digest.add(item.metadata)
            self._digest.add(item.payload)
            self.messages += 1
        if self.messages > IDS_PER_BATCH:
            raise SendError(
                f"a task writes more than {IDS_PER_BATCH} messages of a micro-batch to one topic partition",
                advice="Make micro-batches smaller, or set delivery=at-least-once",
            )


class _Digest:
    """A digest of a stream of bytes, which does not depend on how the stream is cut.

    SHA-256 of all bytes would take a fifth of the time of sending. So it covers 1 KiB in 64, which detects
    another order of rows. CRC-32C covers all bytes at little cost, and detects single other rows.
    """

    def __init__(self) -> None:
        self._size = 0
        self._crc = 0
        self._sha = hashlib.sha256()
        self._sha_digest: bytes | None = None  # cached: needed for each entry, and few entries change it

    def add(self, data: Buffer) -> None:
        self._crc = crc32c(data, self._crc)
        view, begin = memoryview(data), self._size
        self._size += len(view)
        for window in range(begin - begin % _STRIDE, self._size, _STRIDE):
            if window + _WINDOW > begin:
                self._sha_digest = None
                self._sha.update(view[max(window - begin, 0) : window - begin + _WINDOW])

    def digest(self) -> bytes:
        """DIGEST_SIZE bytes."""
        if self._sha_digest is None:
            self._sha_digest = self._sha.copy().digest()[: DIGEST_SIZE - 4]
        return self._crc.to_bytes(4, "big") + self._sha_digest


def _split(item: Item, count: int) -> tuple[Item, Item | None]:
    """Cut an item after its first ``count`` messages; the second part is None if nothing is left."""
    if not isinstance(item, Batch) or item.messages <= count:
        return item, None
    body = b"".join(item.parts)
    at = int(find_fields(body, item.messages).start[count])
    view = memoryview(body)
    return Batch((view[:at],), count, at), Batch((view[at:],), item.messages - count, len(body) - at)
