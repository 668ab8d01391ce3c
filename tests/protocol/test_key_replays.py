"""Replays of rows that are put together by key: histories of runs that end early, die anywhere, or go on."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.protocol.dedup_replay import DedupReplay, Verdict
from pulsar_spark.protocol.key_groups import KeyWindow, RunEnds, group_by_key, keyed_rows
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.batches import encode_batch_messages
from pulsar_spark.wire.dedup_mark import MAX_ENDS, read_dedup_mark, read_run_ends
from pulsar_spark.wire.message_columns import MessageColumns
from tests.protocol.test_dedup_replay import HEAD, ListSpool, rows_of

HISTORIES = 60
FOREVER = 1 << 30


class DiedError(Exception):
    """A run ends here, and not all of what it has sent is stored."""


class StoredPart:
    """A topic partition: rows under the task's name, those under other names, marks of the last entry."""

    def __init__(self):
        self.own, self.others, self.marks = [], [], b""


class Runs:
    """Runs of one task over the same rows."""

    def __init__(self, draw):
        self.draw = draw
        self.count = count = draw.choice([1, 5, 20, 60])
        names = draw.choice([[b"a"], [None, b"a"], [None, b"a", b"b", b"c", b"d"]])
        self.keys = [draw.choice(names) for _ in range(count)]
        self.window = draw.choice([40, 150, 400, FOREVER])
        self.parts = [StoredPart() for _ in range(draw.choice([1, 2, 3]))]
        values = [b"%0*d" % (draw.choice([1, 1, 60]), number) for number in range(count)]
        columns = MessageColumns(value=pa.array(values, pa.binary()), key=pa.array(self.keys, pa.binary()))
        where = [number // 7 if key is None else ord(key) for number, key in enumerate(self.keys)]
        partitions = np.array(where, np.int32) % len(self.parts)
        self.rows = keyed_rows(columns, encode_batch_messages(columns), partitions)
        self.warnings = 0
        self.reached = Counter()

    def run(self, end, *, flushes=(), by_key=True, forged=(), life=FOREVER):
        """One run over the rows up to ``end``, which dies after ``life`` entries; gives its RunEnds."""
        ends, replays, is_dead = RunEnds(), [], False
        for part in self.parts:
            metadata = pb.MessageMetadata.FromString(HEAD + part.marks)
            ends.add(read_run_ends(metadata))
            mark = read_dedup_mark(metadata)
            replays.append(DedupReplay(len(part.own), mark, ListSpool(), ends.known))
        ends.add(forged)
        sent = [[] for _ in self.parts]
        try:
            for number, item in self._items(end, flushes, KeyWindow(self.window, ends), replays, by_key):
                sent[number].append((replays[number].verdict, item))
                life -= 1
                if life < 0:
                    raise DiedError
        except DiedError:
            is_dead = True
            self.reached["died"] += 1
            sent = [items[: self.draw.randint(0, len(items))] for items in sent]
        for part, replay, items in zip(self.parts, replays, sent, strict=True):
            self.warnings += replay.stored > 0 and replay.verdict is Verdict.DIFFERENT
            for verdict, item in items:
                if verdict is Verdict.SAME:
                    part.own += rows_of(item)
                    part.marks = item.dedup_mark
                else:
                    part.others += rows_of(item)
        assert is_dead or set(range(end)) <= self.found().keys()
        is_cut = ends.rows < self.count and ends.rows in ends.known
        self.reached["ended early, in some partitions"] += is_cut and not all(part.own for part in self.parts)
        return ends

    def _items(self, end, flushes, window, replays, by_key):
        """What each partition is to be sent."""

        def taken(rows):
            groups = group_by_key(rows, len(replays))
            bounds = pairwise(groups.bounds.tolist())
            for number, ((first, last), starts) in enumerate(zip(bounds, groups.starts, strict=True)):
                offsets = groups.offsets[first : last + 1]
                for item in replays[number].take(list(self._batches(groups.body, offsets, starts))):
                    yield number, item

        sends = [self.draw.randint(0, end) for _ in range(3)] + [each for each in flushes if each < end]
        for first, last in pairwise([0, *sorted(sends), end]):
            if by_key:
                for full in window.add(self.rows.slice(first, last)):
                    yield from taken(full)
            else:
                for row in range(first, last):
                    yield from taken(self.rows.slice(row, row + 1))
            if last in flushes and (held := window.take()) is not None:
                yield from taken(held)
        window.end()
        if (held := window.take()) is not None:
            yield from taken(held)
        for number, replay in enumerate(replays):
            for item in replay.end():
                yield number, item

    def _batches(self, body, offsets, starts):
        limit, edges = self.draw.choice([1, 3, 100]), [*starts.tolist(), len(offsets) - 1]
        for first, last in pairwise(edges):
            for begin in range(first, last, limit):
                at = slice(int(offsets[begin]), int(offsets[min(last, begin + limit)]))
                yield Batch((body[at],), min(last, begin + limit) - begin, at.stop - at.start)

    def found(self):
        """How often each row is stored."""
        return Counter(row for part in self.parts for row in part.own + part.others)

    def check(self):
        """No row is missing, or there twice without a warning; rows of a key are in order."""
        found = self.found()
        assert found.keys() == set(range(self.count))
        is_double = max(found.values()) > 1
        assert self.warnings or not is_double
        self.reached["there twice"] += is_double
        for part in self.parts:
            assert len(part.own) == len(set(part.own))
            for key in set(self.keys):
                own = [row for row in part.own if self.keys[row] == key]
                assert own == sorted(own)

    def life(self):
        return self.draw.choice([FOREVER, self.draw.randint(0, 12)])


@pytest.mark.parametrize("has_flushes", [False, True])
def test_runs_that_come_as_far_as_those_before_store_each_row_once(has_flushes):
    """A run that ends early has all rows that an earlier one had. Topics that make room are flushed."""
    reached = Counter()
    for seed in range(HISTORIES):
        runs = Runs(draw := random.Random(seed))
        flushes = {draw.randint(1, runs.count) for _ in range(4)} if has_flushes else ()
        end = 0
        for _ in range(draw.randint(1, 5)):
            end = runs.run(draw.randint(end, runs.count), flushes=flushes, life=runs.life()).rows
        runs.run(runs.count, flushes=flushes)
        runs.check()
        assert not runs.warnings
        reached += runs.reached
    assert min(reached["died"], reached["ended early, in some partitions"]) > HISTORIES / 10


def test_rows_are_never_missing_nor_there_twice_without_a_warning():
    """Runs have fewer rows than earlier ones, other batches or ends that somebody forged, or are too many."""
    reached = Counter()
    for seed in range(HISTORIES):
        runs = Runs(draw := random.Random(seed))
        for number in range(draw.choice([3, 3, MAX_ENDS + 5])):
            end = min(number, runs.count) if draw.random() < 0.5 else draw.randint(0, runs.count)
            forged = [draw.randint(0, 70) for _ in range(draw.choice([0, 0, 3, MAX_ENDS]))]
            ends = runs.run(end, forged=forged, by_key=draw.random() < 0.7, life=runs.life())
            assert len(ends.known) <= MAX_ENDS
            reached["all ends known"] += len(ends.known) == MAX_ENDS
        runs.run(runs.count)
        runs.check()
        reached += runs.reached
    assert min(reached[each] for each in ("died", "there twice", "all ends known")) > HISTORIES / 10
