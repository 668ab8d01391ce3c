"""StoredRows: which rows of a run are stored, whatever their order, and what is said of the others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.protocol.replay import stored_rows
from pulsar_spark.protocol.replay.stored_rows import Rows, StoredRows, extras_of
from pulsar_spark.wire.columns.entry_messages import encode_batch_messages
from pulsar_spark.wire.columns.message_columns import MessageColumns
from tests.loops import for_each

VALUES = st.lists(st.sampled_from([b"", b"a", b"b", b"bb", b"c" * 40]), max_size=12)


def rows_of(values: Sequence[bytes], extras: Sequence[bytes] | None = None) -> Rows:
    keys = pa.nulls(len(values), pa.binary())
    encoded = encode_batch_messages(MessageColumns(value=pa.array(values, pa.binary()), key=keys))
    return Rows(encoded, [b""] * len(values) if extras is None else extras)


def blocks_of(values: Sequence[bytes], size: int = 3) -> Iterator[Rows]:
    """Stored rows in blocks."""
    for at in range(0, len(values), size):
        yield rows_of(values[at : at + size])


def stored(*partitions: Sequence[bytes], size: int = 3) -> StoredRows:
    found = StoredRows()
    for number, values in enumerate(partitions):
        found.add(number, blocks_of(values, size))
    return found


def take(found: StoredRows, *partitions: Sequence[bytes]) -> list[list[bool]]:
    """Which rows of each partition are stored."""
    bounds = np.cumsum([0, *map(len, partitions)]).tolist()
    flags = found.take(rows_of([value for values in partitions for value in values]), bounds).tolist()
    return [flags[first:last] for first, last in pairwise(bounds)]


# stored, rows of this run -> which are found
CASES = {
    "nothing is stored": ("", "abc", "..."),
    "all": ("abc", "abc", "xxx"),
    "the first ones": ("ab", "abcd", "xx.."),
    "more than there are": ("abcd", "ab", "xx"),
    "a hole": ("acd", "abcd", "x.xx"),
    "the first one is missing": ("bcd", "abcd", ".xxx"),
    "another order": ("dcba", "abcd", "xxxx"),
    "other rows between": ("a?b?c", "abc", "xxx"),
    "only other rows": ("???", "abc", "..."),
    "equal rows, fewer of them": ("aa", "aaaa", "xx.."),
    "equal rows, more of them": ("aaaa", "aa", "xx"),
    "equal rows in another order": ("bbab", "aabb", "x.xx"),
    "equal rows around a hole": ("aba", "aaba", "xxx."),
    "one is changed": ("abcd", "abXd", "xx.x"),
}


@for_each("size", [1, 2, 100])
@for_each(("before", "now", "expected"), CASES.values())
def test_what_is_found(before, now, expected, size):
    given_rows = [letter.encode() for letter in now]
    found = stored([letter.encode() for letter in before], size=size)
    together = take(found, given_rows)[0]
    assert Counter(expected) == Counter("x" if flag else "." for flag in together)
    one_by_one = stored([letter.encode() for letter in before], size=size)
    flags = [take(one_by_one, [value])[0][0] for value in given_rows]
    assert "".join("x" if flag else "." for flag in flags) == expected
    assert found.found()[0] == one_by_one.found()[0] == expected.count("x")


@given(VALUES, VALUES, st.integers(1, 5), st.integers(1, 5), st.randoms(use_true_random=False))
def test_what_is_sent_and_what_is_stored_are_all_rows_once(before, now, size, block, chance):
    """For any rows on any partitions: what is missing is sent, and nothing else."""
    parts = [[value for value in before if chance.random() < 0.5] for _ in range(2)]
    found, sent = stored(*parts, size=size), Counter()
    for at in range(0, len(now), block):
        some = now[at : at + block]
        cut = chance.randrange(len(some) + 1)
        flags = take(found, some[:cut], some[cut:])
        sent.update(value for value, flag in zip(some, flags[0] + flags[1], strict=True) if not flag)
    there = Counter(parts[0] + parts[1])
    assert sent == Counter(now) - there
    assert found.found().total() == (Counter(now) & there).total()
    assert found.missed() == (there - Counter(now)).total()


def test_rows_of_another_partition_count():
    """Partitions may have been added since."""
    found = stored([b"a", b"b"], [b"c", b"d"], [])
    assert take(found, [], [b"b", b"c"], [b"a", b"d", b"e"]) == [[], [True, True], [True, True, False]]
    assert found.found() == {0: 2, 1: 2}


def test_rows_are_read_when_they_are_needed():
    read = []

    def blocks() -> Iterator[Rows]:
        for number in range(5):
            read.append(number)
            yield from blocks_of([b"%d" % number, b"x"])

    found = StoredRows()
    found.add(0, blocks_of([b"a"] * 3))
    found.add(1, blocks())
    assert read == [0]
    assert take(found, [b"a"], [b"0"]) == [[True]] * 2
    assert take(found, [b"a"], [b"x", b"1"]) == [[True], [True] * 2]
    assert read == [0, 1]
    assert take(found, [b"a"], [b"x", b"2", b"x"]) == [[True], [True] * 3]
    assert read == [0, 1, 2, 3]
    assert take(found, [], [b"3", b"x", b"4", b"x"]) == [[], [True] * 4]
    assert not found.has_more
    assert take(found, [b"3"]) == [[False]]


def test_rows_are_looked_for_until_all_are_found():
    found = stored([b"a", b"b"])
    for value, is_found, has_more in [(b"?", False, True), (b"b", True, True), (b"a", True, False)]:
        assert found.has_more
        assert take(found, [value]) == [[is_found]]
        assert found.has_more is has_more


def test_rows_of_a_partition_are_not_compared_with_those_of_the_next():
    found = stored([b"a"], [b"b", b"c"], [b"c", b"d"])
    assert take(found, [b"a"], [b"b"], [b"c"]) == [[True], [True], [True]]
    assert take(found, [], [b"c", b"z"], [b"d"]) == [[], [True, False], [True]]


def test_reading_ends_with_the_task():
    closed = []

    def blocks() -> Iterator[Rows]:
        try:
            yield from blocks_of([b"a", b"b"])
        finally:
            closed.append(True)

    found = StoredRows()
    opened = blocks()  # held: what nobody holds ends anyway
    found.add(0, opened)
    found.close()
    assert closed
    assert not found.has_more


@pytest.mark.parametrize("is_stuck", [False, True])
def test_rows_that_were_not_found_are_counted(is_stuck):
    found = StoredRows()
    found.add(1, blocks_of([b"a", b"b", b"c"]))
    assert take(found, [], [b"a", b"?"] if is_stuck else [b"a"])[1][0]
    assert found.missed() == 2
    assert found.has_more
    assert take(found, [b"c"]) == [[True]]
    assert found.missed() == 1


def test_of_many_equal_rows_the_first_ones_are_found():
    found = stored([b"?", *[b"a", b"b"] * 100])
    assert all(take(found, [b"a", b"b"] * 50)[0])
    assert found.missed() == 101


def test_many_rows_in_another_order_are_found():
    values = [b"%d" % number for number in range(5000)]
    assert all(take(stored(values, size=1000), values[::-1])[0])


@pytest.mark.parametrize(
    ("one", "other"), [((-1, -1), (0, -1)), ((0, -1), (1, -1)), ((-1, -1), (-1, 7)), ((1, 12), (11, 2))]
)
@pytest.mark.parametrize("in_order", [True, False])
def test_rows_differ_by_their_schema_version_and_time_of_delivery(one, other, in_order):
    def given_as(numbers: tuple[int, int], count: int) -> list[bytes]:
        return extras_of(np.full(count, numbers[0]), np.full(count, numbers[1]))

    values = [b"a", b"a"]
    for numbers, expected in ((one, [True, True]), (other, [False, False])):
        found = StoredRows()
        first = [] if in_order else [rows_of([b"?"])]
        found.add(0, iter([*first, rows_of(values, given_as(one, 2))]))
        assert found.take(rows_of(values, given_as(numbers, 2)), [0, 2]).tolist() == expected


def test_rows_differ_by_their_sizes_and_extras_at_the_same_time():
    found = StoredRows()
    found.add(0, iter([rows_of([b"a", b"b", b"c"], [b"", b"1", b"1"])]))
    assert found.take(rows_of([b"aa", b"b"], [b"", b"2"]), [0, 2]).tolist() == [False, False]


def test_the_extras_of_rows_are_told_apart():
    versions, times = np.array([-1, -1, -1, 0, 1, 11]), np.array([-1, 0, 5, -1, 11, 1])
    assert len(set(extras_of(versions, times))) == 6
    assert extras_of(versions[:1], times[:1]) == [b""]
    assert len(set(extras_of(versions[:2], times[:2]))) == 2


def test_different_rows_with_digests_that_begin_alike_are_sent(monkeypatch):
    """As nobody can make such rows, digests are cut; it must not lose rows."""
    real = stored_rows._digests_of

    def cut_short(*given_rows):
        digests = real(*given_rows)
        digests[:, 0] %= 2
        return digests

    monkeypatch.setattr(stored_rows, "_digests_of", cut_short)
    chance = random.Random(1)
    values = [b"%d" % number for number in range(50)]
    there = set(chance.sample(values, 25))
    found = stored([*sorted(there), b"?"])
    rows = chance.sample(values, 50)
    flags = take(found, rows)[0]
    assert {value for value, flag in zip(rows, flags, strict=True) if flag} <= there
    assert 0 < sum(flags) == found.found()[0]


def test_rows_of_all_sizes_are_compared_in_order():
    chance = random.Random(2)
    values = [chance.randbytes(chance.choice([0, 1, 7, 300])) for _ in range(200)]
    for at in range(0, 200, 7):
        changed = list(values)
        changed[at] = chance.randbytes(9)
        flags = take(stored(values, size=64), changed)[0]
        assert [number for number, flag in enumerate(flags) if not flag] == [at]


def test_the_extras_of_a_row_do_not_depend_on_the_rows_beside_it():
    """Runs do not cut their rows into the same blocks."""
    versions, times = np.array([-1, -1, 0, 3, -1]), np.array([-1, 5, -1, 5, -1])
    whole = extras_of(versions, times)
    assert whole == [extras_of(versions[row : row + 1], times[row : row + 1])[0] for row in range(5)]
    assert len(set(whole)) == 4
