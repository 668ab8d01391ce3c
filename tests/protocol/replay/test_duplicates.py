"""How many messages of a micro-batch may be duplicated, and what is counted for that."""

from __future__ import annotations

from collections import Counter

import pytest

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.duplicates import BatchSearch, possible_duplicates
from pulsar_spark.protocol.replay.run_search import OwnEntry
from pulsar_spark.wire.entry.origin import Origin

NOW = 9  # this run


@pytest.mark.parametrize(
    ("stored", "sent", "found", "expected"),
    [
        ({}, 0, 0, 0),
        ({NOW: 10}, 10, 0, 0),  # the first run
        ({1: 10}, 0, 10, 0),  # all is found
        ({1: 4, NOW: 6}, 6, 4, 0),  # the first run ended early
        ({1: 10}, 0, 4, 0),  # this run has less
        ({1: 10, NOW: 6}, 6, 4, 6),  # rows moved, or have other values
        ({1: 10, NOW: 20}, 20, 0, 10),  # this run has more rows
        ({1: 10, 2: 6}, 0, 10, 6),  # the run before has sent them again, and died
        ({1: 10, 2: 6, NOW: 3}, 3, 13, 3),
        ({1: 4, 2: 6}, 0, 10, 0),  # the run before has sent what was left
        ({NOW: 10 + 6}, 6, 4, 6),  # an attempt of this run that failed has sent ten
        ({NOW: 10}, 6, 4, 0),
        ({1: 10}, 5, 0, 5),  # its own rows are hidden yet
    ],
)
def test_how_many_may_be_duplicated(stored, sent, found, expected):
    assert possible_duplicates(Counter(stored), NOW, sent, found) == expected


BATCH = Origin(7, 3, 1, run=NOW)


def entry(at, batch=7, write=1, *, task=0, run=1, messages=1, newest=None):
    newest = None if newest is None else MessageId(5, newest)
    return OwnEntry(
        MessageId(5, at), Origin(batch, task, write, run=run), "n", 1, newest=newest, messages=messages
    )


def test_entries_of_all_tasks_and_runs_count():
    search = BatchSearch(BATCH)
    assert (search.begin, search.is_passed) == (None, False)
    assert search.take([entry(30, task=9, messages=4), entry(20, run=2, messages=2, newest=28)])
    assert search.take([entry(25, messages=3)])
    assert search.stored == {1: 7, 2: 2}
    assert (search.begin, search.end) == (MessageId(5, 20), MessageId(5, 30))
    search.take([entry(10, run=2, newest=40)])
    assert (search.begin, search.end) == (MessageId(5, 10), MessageId(5, 40))


def test_where_the_micro_batch_has_no_entry_older_ones_end_the_search():
    """A few of them may be copies that somebody has put there."""
    search = BatchSearch(BATCH)
    search.take([entry(90 - number, 6 - number) for number in range(10)])
    assert not search.is_passed
    search.take([entry(70, 6, task=1)])
    assert search.is_passed
    search.take([entry(60)])
    assert not search.is_passed, "there is one, and what was older came after it"


@pytest.mark.parametrize(("batch", "write"), [(6, 1), (7, 0), (8, 0), (7, 2)])
def test_other_writes_do_not_count(batch, write):
    search = BatchSearch(BATCH)
    assert not search.take([entry(20, batch, write)])
    assert not search.stored
    assert search.begin is None


@pytest.mark.parametrize(
    ("others", "is_passed"),
    [
        ([], False),
        ([entry(3, 6)], True),
        ([entry(3, 7, 0)], True),
        ([entry(3, 8)], False),  # of a later micro-batch: the checkpoint was set back
        ([entry(30, 6)], False),  # somebody has copied an older entry
    ],
)
def test_the_search_ends_where_the_query_wrote_before(others, is_passed):
    search = BatchSearch(BATCH)
    search.take([entry(20), *others])
    assert search.is_passed is is_passed
