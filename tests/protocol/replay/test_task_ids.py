"""TaskIds: sequence ids that nobody can guess, and ids that the query cannot have used."""

from __future__ import annotations

import random

import pytest

from pulsar_spark.protocol.replay.task_ids import IDS_PER_BATCH, TaskIds, first_sequence_id
from tests.loops import for_each

IDS = TaskIds(b"secret", "query-0", "topic")
BATCHES = [0, 1, 7, (1 << 31) - 3]


@pytest.mark.parametrize("batch", BATCHES)
def test_ids_of_a_micro_batch_begin_in_the_first_half_of_its_ids(batch):
    assert 0 <= IDS.first(batch) - ((batch + 1) << 32) < 1 << 31


def test_all_versions_begin_at_the_same_ids():
    """A micro-batch that another version began is known by its ids."""
    assert [IDS.first(batch) for batch in (0, 7)] == [6_236_034_251, 35_541_528_248]


def test_where_they_begin_depends_on_all():
    others = [
        TaskIds(b"other", "query-0", "topic"),
        TaskIds(b"secret", "query-1", "topic"),
        TaskIds(b"secret", "query-0", "other"),
    ]
    firsts = [IDS.first(7), IDS.first(8) - IDS_PER_BATCH, *(each.first(7) for each in others)]
    assert len(set(firsts)) == len(firsts)


@for_each("batch", BATCHES)
@for_each(("after", "expected"), [(-1, False), (0, True), (1000, True), (1 << 24, False)])
def test_ids_that_may_be_the_querys(batch, after, expected):
    assert IDS.may_be_own(IDS.first(batch) + after) is expected


@pytest.mark.parametrize("last", [-1, 0, 1000, IDS_PER_BATCH - 1])
def test_ids_below_all_micro_batches_are_not_the_querys(last):
    assert not IDS.may_be_own(last)


def test_ids_that_are_guessed_are_not_the_querys():
    chance = random.Random(1)
    guesses = [chance.randrange(first_sequence_id(7), first_sequence_id(8)) for _ in range(10_000)]
    assert sum(map(IDS.may_be_own, guesses)) < 100


@pytest.mark.parametrize("batch", BATCHES)
def test_the_first_id_of_a_micro_batch_is_used_once(batch):
    first = IDS.first(batch)
    assert IDS.following(first - 1, batch) == first
    assert IDS.following(first, batch) == first + 1


def test_the_next_id_is_higher_than_the_last_one_and_one_of_the_querys():
    chance, seen = random.Random(2), {False: 0, True: 0}
    for _ in range(1000):
        batch = chance.randrange(10)
        near = IDS.first(chance.randrange(10)) + chance.randrange(1 << 20)
        last = chance.choice([-1, chance.randrange(first_sequence_id(12)), near])
        following = IDS.following(last, batch)
        assert following > last
        assert following >= IDS.first(batch)
        assert IDS.may_be_own(following)
        seen[following == last + 1] += 1
    assert min(seen.values()) > 100


def test_the_ids_go_on_after_the_querys_own_last_one():
    first = IDS.first(7)
    assert IDS.following(first + 5, 7) == first + 6
    assert IDS.following(first - 1, 7) == first
    assert IDS.following(-1, 7) == first
    assert IDS.following(first + (1 << 24), 7) == IDS.first(8)
    assert IDS.following(first_sequence_id(9), 7) == IDS.first(9)
