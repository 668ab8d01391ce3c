"""Replays: however often a task is run, each row is stored; once, where the runs are equal."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import SendError
from pulsar_spark.protocol import dedup_replay as module
from pulsar_spark.protocol.batcher import Batch
from pulsar_spark.protocol.dedup_replay import (
    IDS_PER_BATCH,
    DedupReplay,
    StoredRun,
    Verdict,
    count_stored,
    has_digest,
    judge_stored_run,
)
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.batches import decode_batches, encode_batch_messages
from pulsar_spark.wire.dedup_mark import read_dedup_mark, read_run_ends
from pulsar_spark.wire.message_columns import MessageColumns
from pulsar_spark.wire.singles import EncodedSingle, encode_singles

HEAD = pb.MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=0).SerializeToString()


def columns(rows):
    values = pa.array([b"%d" % row for row in rows], pa.binary())
    return MessageColumns(value=values, key=pa.nulls(len(rows), pa.binary()))


def batches(rows, sizes):
    """The rows in batches of these sizes, the last size again and again."""
    encoded = encode_batch_messages(columns(rows))
    made, first, sizes = [], 0, list(sizes)
    while first < len(rows):
        last = min(len(rows), first + (sizes.pop(0) if len(sizes) > 1 else sizes[0]))
        start, middle, end = (int(encoded.offsets[at]) for at in (first, (first + last) // 2, last))
        parts = tuple(part for part in (encoded.buffer[start:middle], encoded.buffer[middle:end]) if part)
        made.append(Batch(parts, last - first, end - start))
        first = last
    return made


def rows_of(item):
    if isinstance(item, Batch):
        body = b"".join(item.parts)
        assert item.size == len(body)
        return [int(value) for value in decode_batches([body], [item.messages]).columns.value.to_pylist()]
    return [int(bytes(item.payload))]


def mark_of(item):
    return read_dedup_mark(pb.MessageMetadata.FromString(HEAD + item.dedup_mark))


class ListSpool:
    """A spool in memory."""

    def __init__(self):
        self.items = []
        self.is_closed = False

    def put(self, item):
        self.items.append(item)

    def take(self):
        items, self.items = self.items, []
        yield from items
        self.close()

    def close(self):
        self.is_closed = True


def replay_of(stored, digest):
    return DedupReplay(stored, digest, ListSpool())


class Broker:
    """One topic partition with deduplication, of which one micro-batch of one task is looked at."""

    def __init__(self):
        self.rows = []
        self._stored = 0
        self._mark = None

    def replay(self):
        return replay_of(self._stored, self._mark)

    def store(self, item, verdict):
        self.rows += rows_of(item)
        if verdict is Verdict.SAME:
            self._stored += len(rows_of(item))
            self._mark = mark_of(item)
        else:
            assert verdict is Verdict.DIFFERENT
            assert mark_of(item) is None

    def run(self, items, stop_after=10**9, group=3):
        """One attempt, which ends by itself or dies when so many entries are stored; gives its verdict."""
        replay = self.replay()
        groups = [items[at : at + group] for at in range(0, len(items), group)]
        for given_at_once in [*groups, None]:
            taken = replay.end() if given_at_once is None else replay.take(given_at_once)
            for item in taken:
                if stop_after == 0:
                    replay.close()
                    return replay.verdict
                self.store(item, replay.verdict)
                stop_after -= 1
        replay.close()
        return replay.verdict


FIRST = 7 * IDS_PER_BATCH
DIGEST = b"x" * 16


@pytest.mark.parametrize(
    ("last", "digest", "stored", "judged", "verdict"),
    [
        (-1, None, 0, StoredRun.NOTHING, Verdict.SAME),
        (FIRST - 1, None, 0, StoredRun.NOTHING, Verdict.SAME),
        (FIRST, DIGEST, 1, StoredRun.COMPARABLE, Verdict.OPEN),
        (FIRST, None, 1, StoredRun.UNREADABLE, Verdict.DIFFERENT),
        (FIRST + IDS_PER_BATCH - 1, DIGEST, IDS_PER_BATCH, StoredRun.COMPARABLE, Verdict.OPEN),
        (FIRST + IDS_PER_BATCH - 1, None, IDS_PER_BATCH, StoredRun.UNREADABLE, Verdict.DIFFERENT),
        (FIRST + IDS_PER_BATCH, None, IDS_PER_BATCH + 1, StoredRun.LATER, Verdict.DIFFERENT),
        (FIRST + IDS_PER_BATCH, DIGEST, IDS_PER_BATCH + 1, StoredRun.LATER, Verdict.DIFFERENT),
    ],
)
def test_what_an_earlier_run_has_left(last, digest, stored, judged, verdict):
    assert count_stored(last, FIRST) == stored
    assert judge_stored_run(stored, digest) is judged
    assert has_digest(stored) == (judged in (StoredRun.COMPARABLE, StoredRun.UNREADABLE))
    assert replay_of(stored, digest).verdict is verdict


@pytest.mark.parametrize(
    ("stored", "digest", "taken", "last", "foreign"),
    [
        (0, None, 0, -1, False),
        (0, None, 0, FIRST - 1, False),
        (0, None, 0, FIRST, True),
        (0, None, 5, FIRST + 4, False),
        (0, None, 5, FIRST + 5, True),
        (5, DIGEST, 2, FIRST + 4, False),  # what is stored and has not come again is known
        (5, DIGEST, 2, FIRST + 5, True),
        (5, None, 2, FIRST + 99, False),  # this run writes under another name
    ],
)
def test_whether_another_run_has_written_since(stored, digest, taken, last, foreign):
    replay = replay_of(stored, digest)
    list(replay.take(batches(list(range(taken)), [1])))
    assert replay.is_foreign(last, FIRST) is foreign


cuts = st.lists(st.integers(1, 7), min_size=1, max_size=4)
stops = st.integers(0, 8)


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.tuples(cuts, stops), max_size=4), cuts)
def test_equal_runs_store_each_row_once_whatever_their_cuts(rows, attempts, last_cut):
    broker = Broker()
    for cut, stop in attempts:
        broker.run(batches(rows, cut), stop)
    assert broker.run(batches(rows, last_cut)) is Verdict.SAME
    assert broker.rows == rows


@pytest.mark.parametrize("cut", [[12], [3, 6], [5], [1], [4, 1, 7]])
def test_what_is_stored_ends_anywhere_within_a_batch(cut):
    rows, broker = list(range(12)), Broker()
    broker.run(batches(rows, [5]), 1)
    assert broker.rows == rows[:5]
    assert broker.run(batches(rows, cut)) is Verdict.SAME
    assert broker.rows == rows


@st.composite
def other_runs(draw):
    """Runs over the same rows: in another order, cut short, longer, or as they are."""
    rows = list(range(draw(st.integers(0, 30))))
    runs = []
    for _ in range(draw(st.integers(1, 4))):
        run = draw(st.sampled_from(["same", "shuffled", "prefix", "longer"]))
        changed = draw(st.permutations(rows)) if run == "shuffled" else list(rows)
        if run == "prefix":
            changed = changed[: draw(st.integers(0, len(rows)))]
        elif run == "longer":
            changed += draw(st.lists(st.integers(100, 120), max_size=5))
        runs.append((changed, draw(cuts), draw(stops), draw(st.booleans())))
    return runs


def as_items(rows, cut, batching):
    return batches(rows, cut) if batching else encode_singles(columns(rows))


@given(other_runs())
def test_no_row_is_ever_missing(runs):
    broker = Broker()
    for rows, cut, stop, batching in runs[:-1]:
        broker.run(as_items(rows, cut, batching), stop)
    before = broker.replay()
    rows, cut, _, batching = runs[-1]
    verdict = broker.run(as_items(rows, cut, batching))
    assert not Counter(rows) - Counter(broker.rows)
    if before.stored and verdict is Verdict.DIFFERENT:
        assert broker.rows[-len(rows) :] == rows or not rows  # all of it once more


def test_entries_say_where_runs_have_ended_as_it_is_known_then():
    ends = []
    replay = DedupReplay(0, None, ListSpool(), ends)
    one, other = batches([1, 2], [1])
    found = list(replay.take([one]))
    ends.append(2)
    found += replay.take([other])
    metadata = [pb.MessageMetadata.FromString(HEAD + item.dedup_mark) for item in found]
    assert [read_run_ends(each) for each in metadata] == [(), (2,)]


@given(st.integers(1, 20), st.integers(1, 20), cuts)
def test_a_run_that_ends_before_the_border_is_sent_again(stored, count, cut):
    broker = Broker()
    broker.run(batches(list(range(stored)), cut))
    verdict = broker.run(batches(list(range(count)), cut))
    if count >= stored:
        assert verdict is Verdict.SAME
        assert broker.rows == list(range(max(stored, count)))
    else:
        assert verdict is Verdict.DIFFERENT
        assert broker.rows == [*range(stored), *range(count)]


def test_a_mark_that_was_not_found_is_different_at_once():
    replay = replay_of(3, None)
    assert replay.verdict is Verdict.DIFFERENT
    items = batches([1, 2], [2])
    assert list(replay.take(items)) == items


def test_single_messages_are_compared_too():
    broker = Broker()
    items = encode_singles(columns(list(range(10))))
    broker.run(items, 4)
    assert broker.run(items) is Verdict.SAME
    assert broker.rows == list(range(10))
    fields = [EncodedSingle(memoryview(bytes(one.payload)), memoryview(b"")) for one in items]
    assert broker.run(fields[:0] + [one._replace(metadata=memoryview(b"\x32\x01k")) for one in items]) is (
        Verdict.DIFFERENT
    )


def test_many_rows_are_kept_in_a_file():
    rows = list(range(1000))
    encoded = encode_singles(
        MessageColumns(
            value=pa.array([b"%d" % row + b" " * 10_000 for row in rows], pa.binary()),
            key=pa.nulls(1000, pa.binary()),
        )
    )
    replay = replay_of(1001, b"x" * 16)
    assert list(replay.take(encoded)) == []
    again = list(replay.end())
    assert [bytes(one.payload) for one in again] == [bytes(one.payload) for one in encoded]


def test_sequence_ids_do_not_run_into_those_of_the_next_batch(monkeypatch):
    monkeypatch.setattr(module, "IDS_PER_BATCH", 10)
    replay = replay_of(0, None)
    replay.take(batches(list(range(10)), [5]))
    with pytest.raises(SendError, match="delivery=at-least-once"):
        replay.take(batches([1], [1]))


def test_the_digest_is_of_bytes_not_of_entries():
    rows = np.arange(20).tolist()
    one, other = replay_of(0, None), replay_of(0, None)
    last = [list(replay.take(batches(rows, cut)))[-1] for replay, cut in ((one, [3, 8]), (other, [20]))]
    assert mark_of(last[0]) == mark_of(last[1]) is not None


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 3), st.integers(0, 200))
def test_the_digest_does_not_depend_on_cuts_and_sees_each_byte(parts, bit, place):
    def digest(of):
        made = module._Digest()
        for part in of:
            made.add(part)
        return made.digest()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WINDOW", 4)
        patch.setattr(module, "_STRIDE", 11)
        whole = b"".join(parts)
        assert digest(parts) == digest([whole]) == digest([whole[at : at + 1] for at in range(len(whole))])
        if whole:
            at = place % len(whole)
            assert digest([whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]]) != digest([whole])
