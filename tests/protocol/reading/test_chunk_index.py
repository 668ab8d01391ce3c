"""ChunkIndex: which chunks are known, which of them are read again, and when a search has ended."""

import random
from itertools import pairwise

import numpy as np
import pytest

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading import chunk_index
from pulsar_spark.protocol.reading.chunk_index import ChunkIndex, FoundChunk

START = MessageId(7, 100)


def at(entry):
    return MessageId(7, entry)


def times(*counted):
    """Publish times, each as often as it says."""
    return np.concatenate([np.full(count, time_ms, np.int64) for time_ms, count in counted])


NOTHING = times((0, 0))


def look(index, publish_times=NOTHING, chunks=(), low=START, *, is_beginning=False):
    index.searched(low, chunks, publish_times, is_beginning=is_beginning)
    return index.has_ended


def chunk(entry, number, size=5, key=b"m" * 16):
    return FoundChunk(key, at(entry), number, size)


def places(index, last, chunks=3, total=15):
    found = index.chunks_before(last, chunks, total)
    return None if found is None else [place.entry for place in found]


def test_chunks_are_found_wherever_they_lie():
    index = ChunkIndex(60.0, START)
    assert not index.has_ended
    look(index, chunks=[chunk(10, 0), chunk(11, 0, key=b"n" * 16)], low=at(5))
    assert index.has_beginning(b"n" * 16, at(120))
    assert places(index, chunk(120, 2)) is None
    index.add(chunk(110, 1))
    assert places(index, chunk(120, 2)) == [10, 110]
    assert places(index, chunk(120, 2, key=b"n" * 16)) is None
    assert places(index, chunk(105, 2)) is None, "one lies after it"
    assert (index.has_beginning(b"m" * 16, at(120)), index.has_beginning(b"m" * 16, at(10))) == (True, False)


def test_what_was_looked_through_is_not_added_again():
    index = ChunkIndex(60.0, START)
    index.add(chunk(110, 0))
    index.read_up_to(at(110), NOTHING)
    index.add(chunk(110, 0))
    assert len(index) == 1


def test_chunks_that_came_several_times_are_all_read():
    """Also an earlier last one: the message may have been complete by that."""
    index = ChunkIndex(60.0, START)
    look(index, chunks=[chunk(entry, number) for entry, number in enumerate((0, 0, 1, 2, 1, -1, 3, 0))])
    assert places(index, chunk(9, 2)) == [0, 1, 2, 3, 4, 7]


@pytest.mark.parametrize(
    ("sizes", "total", "fit"),
    [
        ([[5], [5]], 15, True),
        ([[5], [5]], 14, False),
        ([[5], [5]], 16, False),
        ([[5, 9], [5]], 15, True),
        ([[5, 9], [5, 1]], 15, True),
        ([[5, 9], [5, 2]], 16, True),
        ([[5, 9], [5, 2]], 17, False),
        ([[1], [2], [4]], 12, True),
        ([[1], [2], [4]], 11, False),
        ([range(9), range(9)], 1000, True),  # too many to find out
        ([range(9), range(9)], 4, False),
    ],
)
def test_chunks_that_cannot_have_the_size_of_the_message_are_not_read(sizes, total, fit):
    """A few bytes, the last chunk of another's large message, would have all of that read again."""
    index, entry = ChunkIndex(60.0, START), 0
    for number, several in enumerate(sizes):
        for size in several:
            entry += 1
            look(index, chunks=[chunk(entry, number, size)])
    last = chunk(50, len(sizes))
    assert (index.chunks_before(last, len(sizes) + 1, total) is not None) == fit


def test_any_number_of_chunks_may_be_declared():
    index = ChunkIndex(60.0, START)
    index.add(chunk(110, 0))
    assert index.chunks_before(chunk(120, 2**31 - 2), 2**31 - 1, 2**31 - 1) is None


def test_of_a_message_that_was_complete_only_what_came_after_that_counts():
    index = ChunkIndex(60.0, START)
    key = b"m" * 16
    look(index, chunks=[chunk(entry, entry) for entry in (0, 1, 2)])
    assert not index.is_settled(key, at(5))
    index.settle(key, at(2))
    assert index.is_settled(key, at(5))
    assert places(index, chunk(5, 2)) is None
    look(index, chunks=[chunk(6, 0), chunk(7, 1)])
    assert not index.is_settled(key, at(8))
    assert places(index, chunk(8, 2)) == [6, 7]


def test_a_range_that_is_read_again_knows_nothing_of_its_messages():
    index = ChunkIndex(60.0, START)
    key = b"m" * 16
    look(index, chunks=[chunk(entry, entry) for entry in (0, 1, 2)])
    for place in (at(2), at(5)):
        index.settle(key, place)
        assert not index.is_settled(key, at(2))
        assert places(index, chunk(2, 2)) == [0, 1]


def test_last_chunks_that_complete_nothing_are_tried_a_few_times():
    index = ChunkIndex(60.0, START)
    key = b"m" * 16
    for first in (0, 10):
        look(index, chunks=[chunk(first, 0), chunk(first + 1, 1)])
        for entry in range(first + 2, first + 6):
            index.failed(key, at(entry), was_read=True)
            assert places(index, chunk(first + 9, 2)) == [first, first + 1]
        index.failed(key, at(first + 6), was_read=True)
        assert index.is_settled(key, at(first + 9))


def test_last_chunks_are_tried_as_long_as_that_takes_little_work(monkeypatch):
    """They are of a wrong size, so that nothing is read again for them."""
    monkeypatch.setattr(chunk_index, "_MAX_EFFORT", 100)
    index = ChunkIndex(60.0, START)
    key = b"m" * 16
    look(index, chunks=[chunk(entry, entry) for entry in range(10)])
    for entry in range(10, 19):
        index.failed(key, at(entry), was_read=False)
        assert not index.is_settled(key, at(30))
    index.failed(key, at(19), was_read=False)
    assert index.is_settled(key, at(30))
    look(index, chunks=[chunk(20, 0), chunk(21, 1)])
    assert not index.is_settled(key, at(30)), "it has begun again, and has its tries again"
    index.failed(key, at(30), was_read=False)
    assert places(index, chunk(30, 2)) == [20, 21]


def test_chunks_are_those_of_a_plain_list():
    """However they were added, over several ledgers, and whatever was settled."""
    chance = random.Random(5)
    keys = [bytes([number]) * 16 for number in range(4)]
    for _ in range(30):
        index = ChunkIndex(60.0, START)
        ids = [MessageId(chance.randrange(1, 4), entry) for entry in range(200)]
        known = [FoundChunk(chance.choice(keys), place, 0, 5) for place in ids]
        settled = {key: chance.choice(ids) for key in keys[:2]}
        for key, place in settled.items():
            index.settle(key, place)
        chance.shuffle(known)
        cuts = [0, *sorted(chance.sample(range(1, 200), 6)), 200]
        for first, end in pairwise(cuts):
            look(index, chunks=known[first:end])
            assert not index.has_beginning(b"x" * 16, START)  # it puts them in order
        for key, place in ((key, place) for key in keys for place in chance.sample(ids, 20)):
            after = settled.get(key, place)
            after = after if after < place else MessageId.EARLIEST
            expected = sorted(each.place for each in known if each.key == key and after < each.place < place)
            assert index.chunks_before(FoundChunk(key, place, 1, 5), 2, 10) == (expected or None)


def test_what_is_settled_is_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(chunk_index, "_MAX_SETTLED", 3)
    index = ChunkIndex(60.0, START)
    keys = [bytes([number]) * 16 for number in range(5)]
    for key in (*keys[:3], keys[0], *keys[3:]):
        index.failed(key, at(1), was_read=True)
        index.settle(key, at(1))
    assert [index.is_settled(key, at(5)) for key in keys] == [True, False, False, True, True]


def test_a_range_goes_on_where_one_before_has_ended():
    older, index = ChunkIndex(60.0, at(50)), ChunkIndex(60.0, START)
    look(older, times((5000, 40)), [chunk(30, 0)], at(20))
    older.settle(b"n" * 16, at(40))
    index.add(chunk(110, 1))
    look(index, times((5000, 40)), [chunk(60, 0, key=b"n" * 16)], at(50))
    index.joined(older)
    assert places(index, chunk(120, 2)) == [30, 110]
    assert index.low == at(20)
    assert not index.is_settled(b"n" * 16, at(70))
    assert index.is_settled(b"n" * 16, at(55))
    assert not index.has_ended


def test_where_one_before_has_ended_there_is_nothing_more_to_look_for():
    older, index = ChunkIndex(60.0, at(50)), ChunkIndex(60.0, START)
    look(older, is_beginning=True)
    index.joined(older)
    assert index.has_ended


def test_of_very_many_chunks_each_is_found():
    index, chance = ChunkIndex(60.0, START), random.Random(7)
    keys = [chance.randbytes(16) for _ in range(5000)]
    found = [chunk(entry, entry % 2, key=keys[entry // 2]) for entry in range(10_000)]
    blocks = [found[first : first + size] for first, size in ((0, 3000), (3000, 10), (3010, 6990))]
    for block in reversed(blocks):
        look(index, chunks=block)
    assert len(index) == 10_000
    for number in chance.sample(range(5000), 200):
        last = FoundChunk(keys[number], at(20_000), 2, 5)
        assert places(index, last) == [2 * number, 2 * number + 1]


def test_chunks_that_come_one_by_one_are_few_blocks():
    """Each block is searched for each last chunk."""
    index = ChunkIndex(60.0, START)
    for entry in range(200):
        look(index, chunks=[chunk(entry, 0)])
        assert index.has_beginning(b"m" * 16, at(200))
    assert len(index._chunks._blocks) <= 8


@pytest.mark.parametrize(
    ("expire", "regions", "ended"),
    [
        (1.0, [[(5000, 40)], [(4500, 40)]], [False, False]),
        (1.0, [[(5000, 40)], [(4000, 40)], [(3999, 40)]], [False, False, True]),
        # in one region, and in several that are small
        (1.0, [[(3000, 31), (5000, 31)]], [True]),
        (1.0, [[(3000, 30), (5000, 31)]], [False]),
        (1.0, [[(5000, 20)], [(5000, 20)], [(3000, 20)], [(3000, 20)]], [False, False, False, True]),
        # dates that others give to a few
        (1.0, [[(5000, 60)], [(1, 15), (5000, 16)], [(10**15, 15), (5000, 16)]], [False, False, False]),
        (1.0, [[(10**15, 15), (5000, 16)], [(4500, 31)]], [False, False]),
        (0.0, [[(5000, 40)], [(1, 40)]], [False, False]),
    ],
)
def test_a_search_ends_where_entries_are_older_than_a_message_may_take(expire, regions, ended):
    index = ChunkIndex(expire, START)
    assert [look(index, times(*region)) for region in regions] == ended


def test_what_ranges_have_read_since_makes_the_rest_older():
    index, newer = ChunkIndex(1.0, at(50)), ChunkIndex(1.0, START)
    assert not look(index, times((5000, 80)))
    index.read_up_to(at(60), times((9000, 40), (5000, 31)))
    assert not index.has_ended
    index.read_up_to(at(70), times((6001, 31)))
    assert index.has_ended
    look(newer, times((9000, 40)))
    older = ChunkIndex(1.0, at(50))
    look(older, times((5000, 40)))
    newer.joined(older)
    assert newer.has_ended


def test_a_search_ends_at_the_beginning_and_after_so_many_entries(monkeypatch):
    assert look(ChunkIndex(60.0, START), is_beginning=True)
    monkeypatch.setattr(chunk_index, "_MAX_ENTRIES", 100)
    index = ChunkIndex(60.0, START)
    assert not look(index, times((5000, 60)))
    assert not look(index, times((5000, 39)))
    assert look(index, times((5000, 1)))
