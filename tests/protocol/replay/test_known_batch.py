"""KnownBatch: which parts of a topic partition were read, and which is read next."""

from __future__ import annotations

import random

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.known_batch import KnownBatch
from pulsar_spark.protocol.replay.run_search import OwnEntry, Unseen
from pulsar_spark.wire.entry.origin import Origin

END = MessageId(5, 40)


def at(entry: int) -> MessageId:
    return MessageId(5, entry)


def test_what_was_read_in_parts_is_known():
    """Parts join where they touch, and what is left of any range is what no part has."""
    rng = random.Random(1)
    for _ in range(200):
        known, read = KnownBatch(), set()
        for _ in range(rng.randrange(8)):
            first, last = sorted(rng.sample(range(-1, 30), 2))
            known.has_read(at(first), at(last))
            read |= set(range(first + 1, last + 1))
        assert all(one[1] < other[0] for one, other in zip(known.parts, known.parts[1:], strict=False))
        first, last = sorted(rng.sample(range(-1, 30), 2))
        unread = known.unread(at(first), at(last))
        left = [entry for one, other in unread for entry in range(one.entry + 1, other.entry + 1)]
        assert left == [entry for entry in range(first + 1, last + 1) if entry not in read]
        assert all(one < other for one, other in unread)


def test_nothing_is_left_of_an_empty_range():
    known = KnownBatch()
    known.has_read(at(3), at(5))
    for first, last in ((3, 3), (4, 4), (5, 3), (9, 9)):
        assert known.unread(at(first), at(last)) == []


def of_task(entry: int, task: int, newest: int | None = None) -> OwnEntry:
    origin = Origin(7, task, 0, MessageId(5, 0))
    return OwnEntry(at(entry), origin, f"query-{task}", 1, newest=None if newest is None else at(newest))


def test_a_task_is_looked_for_next_to_tasks_with_near_numbers():
    known = KnownBatch()
    known.add([of_task(30, 12)])
    known.add([of_task(0, 0), of_task(20, 9), of_task(10, 4, newest=12)])
    for first, last in ((-1, 0), (9, 12), (19, 20), (29, 30)):
        known.has_read(at(first), at(last))
    gaps = [(at(0), at(9)), (at(12), at(19)), (at(20), at(29)), (at(30), END)]
    for task, gap in ((2, 0), (5, 1), (8, 1), (9, 1), (10, 2), (20, 2)):
        assert known.likely(Unseen(at(0), task), END) == gaps[gap]
    assert known.likely(Unseen(at(24), 2), END) == (at(24), at(29))
    known.has_read(*gaps[0])
    assert known.likely(Unseen(at(0), 2), END) == gaps[1]
    known.has_read(at(0), END)
    assert known.likely(Unseen(at(0), 2), END) is None
