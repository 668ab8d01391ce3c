"""RunSearch: where a micro-batch began, and what a search has found; the module's tables."""

from __future__ import annotations

import itertools

import pytest

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.run_search import (
    OlderSearch,
    OwnEntry,
    RunSearch,
    RunToFind,
    RunVerdict,
    Unseen,
)
from pulsar_spark.wire.entry.origin import Origin

RUN = Origin(7, 3, 0)
BEGIN = MessageId(5, 10)
LAST = 1000
NAME = "query-3"


def entry(
    at: int,
    *,
    names: MessageId | None = BEGIN,
    last: int = LAST,
    run: Origin = RUN,
    is_chunk: bool = False,
    name: str = NAME,
) -> OwnEntry:
    origin = Origin(run.batch, run.task, run.write, names)
    return OwnEntry(MessageId(5, at), origin, name, last, is_chunk)


def search(
    *entries: OwnEntry,
    last: int = LAST,
    is_claimed: bool = True,
    may_be_replay: bool = True,
    may_be_own: bool = True,
    is_sealed: bool = False,
) -> RunSearch:
    found = RunSearch(RunToFind(RUN, b"", NAME, last, is_claimed, may_be_replay, may_be_own, is_sealed))
    for each in entries:
        found.take([each])
    return found


FIRST = entry(10, names=None, last=LAST)
OLDER_FIRST = entry(10, names=None, last=LAST - 5)
BEFORE = entry(3, names=MessageId(5, 1), last=9, run=Origin(6, 2, 0))


@pytest.mark.parametrize(
    ("entries", "begin", "is_known"),
    [
        ([], None, False),
        ([entry(20)], BEGIN, True),  # it names the first entry
        ([entry(20, last=LAST - 1)], BEGIN, True),
        ([FIRST], BEGIN, True),  # it is the only one
        ([OLDER_FIRST], BEGIN, False),  # there are others, or somebody else has used the name
        ([entry(30, names=None, last=LAST - 5), OLDER_FIRST], BEGIN, False),  # a copy, and the entry itself
        ([entry(30, names=None, last=LAST - 5), entry(20)], BEGIN, True),
        ([entry(20), entry(30, names=None, last=LAST - 5)], BEGIN, True),
        ([BEFORE], None, False),
        ([entry(10, names=None, is_chunk=True)], BEGIN, False),  # others of the message, and of attempts
        ([entry(30, names=None, is_chunk=True), FIRST], BEGIN, False),
        ([entry(30, names=None, is_chunk=True), entry(10, names=None, is_chunk=True), BEFORE], BEGIN, False),
        ([entry(20, is_chunk=True)], BEGIN, True),
    ],
)
def test_where_the_micro_batch_began(entries, begin, is_known):
    found = search(*entries)
    assert found.begin == begin
    assert found.is_begin_known is is_known


NO_LAST = 1 << 63


@pytest.mark.parametrize(
    ("entries", "is_known"),
    [
        ([], False),
        ([entry(20)], True),
        ([FIRST], False),  # somebody else may have copied the entry
        ([BEFORE] * 10, False),  # somebody else may have copied older entries
        ([BEFORE] * 11, True),
        ([FIRST, *[BEFORE] * 11], True),
    ],
)
def test_in_a_sealed_segment_the_search_ends_at_a_named_begin_or_at_older_entries(entries, is_known):
    found = search(*entries, last=NO_LAST, may_be_own=False, is_sealed=True)
    assert (found.is_begin_known, found.is_passed) == (is_known, is_known)
    assert found.of_batches_before == entries.count(BEFORE)


def test_an_earlier_write_of_the_micro_batch_proves_nothing_of_a_sealed_segment():
    """It may be repeated after an earlier run has stored rows of the write that is searched."""
    second = RunToFind(Origin(7, 3, 1), b"", NAME, NO_LAST, may_be_own=False, is_sealed=True)
    found, before = RunSearch(second), OlderSearch(second.origin)
    for _ in range(20):
        found.take([entry(30, run=RUN)])
        before.take([entry(30, run=RUN)])
    assert (found.is_begin_known, found.of_batches_before, before.is_passed) == (False, 0, False)


@pytest.mark.parametrize(
    ("entries", "is_claimed", "complete", "cut_short"),
    [
        ([entry(20)], False, RunVerdict.FOUND, RunVerdict.HIDDEN),
        ([], True, RunVerdict.NOTHING, RunVerdict.MISSING),
        ([], False, RunVerdict.NOTHING, RunVerdict.MISSING),
        ([entry(20, run=Origin(7, 4, 0))], False, RunVerdict.NOTHING, RunVerdict.MISSING),
        ([BEFORE], True, RunVerdict.NOTHING, RunVerdict.MISSING),
    ],
)
def test_the_verdict_on_a_sealed_segment(entries, is_claimed, complete, cut_short):
    found = search(*entries, last=NO_LAST, is_claimed=is_claimed, may_be_own=False, is_sealed=True)
    assert found.verdict(is_hidden=False) is complete
    assert found.verdict(is_hidden=True) is cut_short


@pytest.mark.parametrize(
    ("entries", "is_found"),
    [
        ([], False),
        ([entry(20), entry(21, run=Origin(8, 3, 0))], False),
        ([entry(20), BEFORE], True),
        ([BEFORE, entry(20)], True),
    ],
)
def test_an_entry_from_before_the_micro_batch_is_found(entries, is_found):
    found = OlderSearch(RUN)
    for each in entries:
        assert not found.take([each])
    assert found.is_passed is is_found


@pytest.mark.parametrize("other", [Origin(8, 3, 0), Origin(7, 4, 0), Origin(7, 3, 1), Origin(6, 3, 0)])
def test_entries_of_other_runs_are_not_its_own(other):
    found = search(entry(20, run=other))
    assert found.begin is None
    assert not found.is_own(other)
    assert found.is_own(RUN)
    assert not found.is_own(None)


@pytest.mark.parametrize(
    ("entries", "is_claimed", "is_known"),
    [
        ([], True, False),
        ([], False, True),  # the broker knows no id, so there is nothing to wait for
        ([entry(20)], True, True),
        ([entry(20, last=LAST + 1)], True, True),
        ([entry(20, last=LAST - 1)], True, False),
        ([entry(20, last=LAST - 1), entry(30, run=Origin(7, 3, 1))], True, True),  # a later write's
        ([entry(20, last=LAST - 1), entry(30, run=Origin(7, 4, 0))], True, False),  # under another name
    ],
)
def test_whether_newer_entries_are_waited_for(entries, is_claimed, is_known):
    assert search(*entries, is_claimed=is_claimed).is_newest_known is is_known


def test_no_entry_is_older_than_the_first_id():
    assert search(last=0).newest == -1
    assert not search(last=0).is_newest_known


def expected(
    has_own: bool,
    is_newest: bool,
    is_claimed: bool,
    has_older: bool,
    replay: bool,
    hidden: bool,
    may_be_own: bool,
):
    """The second table."""
    may_be_more = hidden and is_claimed and not (has_own and is_newest)
    if has_own:
        return RunVerdict.HIDDEN if may_be_more else RunVerdict.FOUND
    if not is_claimed:
        return RunVerdict.NOTHING
    if not replay:
        return RunVerdict.HIDDEN if may_be_more else RunVerdict.NOTHING
    if not has_older and may_be_own:
        return RunVerdict.MISSING
    return RunVerdict.HIDDEN if may_be_more else RunVerdict.NOTHING


def test_all_verdicts():
    seen = set()
    for case in itertools.product((False, True), repeat=7):
        has_own, is_newest, is_claimed, has_older, replay, hidden, may_be_own = case
        entries = [BEFORE] * has_older + [entry(20, last=LAST if is_newest else LAST - 1)] * has_own
        found = search(*entries, is_claimed=is_claimed, may_be_replay=replay, may_be_own=may_be_own)
        verdict = found.verdict(is_hidden=hidden)
        assert verdict is expected(*case)
        seen.add(verdict)
    assert seen == set(RunVerdict)


def test_what_the_broker_is_still_storing_is_expected():
    for case in itertools.product((False, True), repeat=6):
        has_own, is_newest, is_claimed, has_older, replay, may_be_own = case
        entries = [BEFORE] * has_older + [entry(20, last=LAST if is_newest else LAST - 1)] * has_own
        found = search(*entries, is_claimed=is_claimed, may_be_replay=replay, may_be_own=may_be_own)
        is_missing = is_claimed and not (has_own and is_newest)
        is_of_query = replay and may_be_own
        assert found.is_newest_expected is (is_missing and is_of_query and (has_own or has_older))


def test_entries_before_a_copy_are_read_if_the_newest_one_is_missing():
    """The copy names where the micro-batch began, and the newest entry lies before the copy."""
    copy, begin = entry(40, last=1), entry(10, names=None, last=5)
    assert search(copy).is_begin_known
    assert not search(copy).is_passed
    assert search(copy, entry(30)).is_passed
    assert search(copy, begin).is_passed  # all of the run was read
    assert search(copy, may_be_own=False).is_passed
    assert search(copy, may_be_replay=False).is_passed


@pytest.mark.parametrize(("name", "is_only"), [(NAME, True), ("query-3-spare", False)])
def test_only_a_first_entry_of_the_name_in_use_can_be_the_only_one(name, is_only):
    """Another name has ids of its own."""
    found = search(entry(30, names=None, name=name))
    assert found.is_begin_known is is_only
    assert found.begin == MessageId(5, 30)


def test_ids_of_the_write_before_are_no_hidden_rows():
    found = RunSearch(RunToFind(Origin(7, 3, 1), b"", NAME, LAST, may_be_replay=False))
    assert found.verdict(is_hidden=True) is RunVerdict.NOTHING


@pytest.mark.parametrize("may_be_replay", [False, True])
@pytest.mark.parametrize(("last", "is_known"), [((9 << 32) - 1, False), (9 << 32, True)])
def test_an_id_of_a_later_micro_batch_is_waited_for_in_a_replay_only(may_be_replay, last, is_known):
    found = search(entry(20), last=last, may_be_replay=may_be_replay)
    assert found.is_newest_known is (is_known and not may_be_replay)


@pytest.mark.parametrize(
    ("run", "may_be_replay", "is_known"),
    [(Origin(7, 3, 1), False, True), (Origin(7, 3, 1), True, False), (Origin(7, 3, 0), False, False)],
)
def test_an_entry_of_the_write_before_is_not_waited_for(run, may_be_replay, is_known):
    """Unless an earlier run of the later write can have stored rows."""
    found = RunSearch(RunToFind(run, b"", NAME, LAST, may_be_replay=may_be_replay))
    assert not found.is_newest_known
    found.take([entry(3, run=Origin(6, 4, 0))])
    assert found.is_newest_known is is_known
    found.take([entry(20, last=LAST - 1, run=run)])
    assert not found.is_newest_known


def test_an_older_entry_ends_the_search_if_it_cannot_be_a_replay():
    """Anybody may copy an older entry behind those of an interrupted run: in a replay it proves nothing."""
    assert search(BEFORE, may_be_replay=False).is_begin_known
    assert not search(BEFORE, may_be_replay=True).is_begin_known
    assert not search(entry(3, run=Origin(9, 2, 0)), may_be_replay=False).is_begin_known


@pytest.mark.parametrize(
    ("run", "is_older"),
    [
        (Origin(6, 9, 9), True),
        (Origin(7, 3, 1), True),
        (Origin(7, 9, 2), False),
        (Origin(7, 3, 3), False),
        (Origin(8, 3, 0), False),
    ],
)
def test_an_older_entry_is_of_an_earlier_micro_batch_or_write(run, is_older):
    found = RunSearch(RunToFind(Origin(7, 3, 2), b"", NAME, LAST))
    found.take([entry(3, run=run)])
    assert (found.verdict(is_hidden=False) is RunVerdict.NOTHING) is is_older


def test_entries_that_come_together_come_in_any_order():
    """All count: those after one of another run, and the first of two that name no begin."""
    later, other = entry(30, names=None, last=LAST - 5), entry(40, run=Origin(8, 4, 0))
    for entries in itertools.permutations([BEFORE, later, OLDER_FIRST, other]):
        found = RunSearch(RunToFind(RUN, b"", NAME, LAST, may_be_replay=False))
        found.take(entries)
        assert found.begin == BEGIN
        assert found.is_begin_known  # by the older entry


# ---- all tasks of the micro-batch


def of(
    at: int, begin: int | None, task: int, run: int, *, is_again: bool = False, batch: int = 7
) -> OwnEntry:
    named = None if begin is None else MessageId(5, begin)
    origin = Origin(batch, task, 0, named, run, is_again=is_again)
    return OwnEntry(MessageId(5, at), origin, f"query-{task}", 1)


@pytest.mark.parametrize(
    ("found", "is_replay", "is_again"),
    [
        ([], False, False),
        ([of(5, 4, 2, run=1)], False, False),  # another task of this run
        ([of(5, 4, 2, run=1, is_again=True)], True, False),  # which has seen what an earlier run has stored
        ([of(5, 4, 3, run=1)], True, False),  # an earlier attempt
        ([of(5, 4, 2, run=6)], True, False),
        ([of(5, 4, 2, run=6, is_again=True)], True, True),
        ([of(5, 4, 3, run=6, is_again=True)], True, True),
        ([of(5, 4, 2, run=6, is_again=True, batch=6)], False, False),
    ],
)
def test_what_earlier_runs_have_stored_is_seen_whichever_task_it_was(found, is_replay, is_again):
    of_run = RunSearch(RunToFind(Origin(7, 3, 0, run=1), b"", NAME, LAST))
    of_run.take(found)
    assert (of_run.is_replay, of_run.is_again) == (is_replay, is_again)


@pytest.mark.parametrize(("batch", "write", "is_late"), [(6, 0, False), (7, 1, False), (8, 0, True)])
def test_a_later_micro_batch_shows_that_the_checkpoint_was_set_back(batch, write, is_late):
    found = search(entry(20, run=Origin(batch, 1, write)), entry(10))
    assert found.is_late is is_late


def test_a_quick_look_goes_from_task_to_task():
    found = search(last=LAST)
    assert found.jump == MessageId.LATEST
    for other, jump in ((of(50, 40, 6, run=6), 40), (of(39, None, 5, run=6), 39), (of(45, 42, 6, run=6), 39)):
        found.take([other])
        assert found.jump == MessageId(5, jump)
    found.take([entry(20)])
    assert found.jump is None
    assert search(is_claimed=False).jump is None
    assert search(BEFORE).jump is None
    assert search(may_be_replay=False).jump is None


def test_a_quick_look_ends_at_an_own_entry():
    """What lies after it tells whether it is the first one; nobody else's entries need to."""
    assert search(OLDER_FIRST).jump is None
    assert not search(OLDER_FIRST).is_passed


def test_a_task_that_a_quick_look_has_passed_over_is_looked_for_in_between():
    other, older = of(50, 40, 6, run=6), of(3, 1, 2, run=5, batch=6)
    assert search().unseen is None
    assert search(other).unseen == search(other, older).unseen == Unseen(MessageId(5, 40), RUN.task)
    assert search(older).unseen is None
    assert search(other, is_claimed=False).unseen is None
    assert search(other, may_be_replay=False).unseen is None


def test_newer_own_entries_are_looked_for_where_the_last_one_was_not_seen():
    assert search(entry(20)).unseen is None
    for first in (entry(20, last=LAST - 1), entry(20, names=None, last=LAST - 1)):
        assert search(first).unseen == Unseen(MessageId(5, 20), RUN.task)
        assert search(first, is_claimed=False).unseen is None
        assert search(first, may_be_replay=False).unseen is None
    assert search(entry(20, last=LAST - 1), entry(30)).unseen is None
    part = entry(30)._replace(is_chunk=True, is_open=True)
    assert search(part).unseen == Unseen(MessageId(5, 30), RUN.task)
    assert search(part, entry(31)).unseen is None


@pytest.mark.parametrize(
    ("copy", "may_be_own"),
    [
        (entry(20, name="somebody"), True),  # a copy of an entry, under another name
        (entry(20, last=LAST - 1), False),  # somebody has used the name with a higher id
        (entry(20), False),
    ],
)
def test_nothing_of_somebody_else_hides_newer_own_entries(copy, may_be_own):
    """They were passed over, and their rows sent again."""
    assert search(copy, may_be_own=may_be_own).unseen == Unseen(MessageId(5, 20), RUN.task)
