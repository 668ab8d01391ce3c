"""ChunkIndex: which first chunks are known, and when a search for more has ended."""

import numpy as np
import pytest

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol import chunk_index
from pulsar_spark.protocol.chunk_index import ChunkIndex


def at(entry):
    return MessageId(7, entry)


def times(*counted):
    """Publish times, each as often as it says."""
    return np.concatenate([np.full(count, time_ms, np.int64) for time_ms, count in counted])


NOTHING = times((0, 0))


def look(index, publish_times=NOTHING, begins=None, *, is_beginning=False):
    index.looked_through(begins or {}, publish_times, is_beginning=is_beginning)
    return index.has_ended


def test_the_last_first_chunk_counts():
    index = ChunkIndex(60.0)
    assert index.find(b"m") is None
    index.begin(b"m", at(20))
    look(index, begins={b"m": at(10), b"n": at(11)})
    assert (index.find(b"m"), index.find(b"n"), index.find(b"o")) == (at(20), at(11), None)
    index.begin(b"m", at(30))
    assert index.find(b"m") == at(30)


def test_of_too_many_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(chunk_index, "_MAX_BEGINS", 3)
    index = ChunkIndex(60.0)
    assert not look(index, begins={b"0": at(0)})
    for number in range(1, 4):
        index.begin(b"%d" % number, at(number))
    assert [index.find(b"%d" % number) for number in range(4)] == [None, at(1), at(2), at(3)]
    assert look(index, begins={b"4": at(4)})


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
    index = ChunkIndex(expire)
    assert [look(index, times(*region)) for region in regions] == ended


def test_a_search_ends_at_the_beginning_and_after_so_many_entries(monkeypatch):
    assert look(ChunkIndex(60.0), is_beginning=True)
    monkeypatch.setattr(chunk_index, "_MAX_ENTRIES", 100)
    index = ChunkIndex(60.0)
    assert not look(index, times((5000, 60)))
    assert not look(index, times((5000, 39)))
    assert look(index, times((5000, 1)))
