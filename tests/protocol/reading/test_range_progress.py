"""RangeProgress: how far a range is read and what of it is lost, as tables."""

import numpy as np
import pytest

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.reading.range_progress import Gap, LostRange, ProbedGap, RangeProgress
from tests.loops import for_each


def at(text):
    return MessageId.parse(text)


def progress(start="3:4", end="5:9", **options):
    if options.get("begins") is not None:
        options["begins"] = at(options["begins"])
    return RangeProgress(at(start), at(end), **options)


def lost(judged):
    return None if judged is None else str(judged)


BATCH = {"begins": "2:-1"}
COMPACTED = {"read_compacted": True}
INVISIBLE = {"visible": False}
FOLLOWED = {"visible": False, "followed": True}


@for_each(
    ("options", "mark", "position", "judged"),
    [
        # it is not known what there was: where the reader begins says nothing until the end
        ({}, "3:4", "3:4", None),
        ({}, "2:-1", "3:4", None),
        ({}, "3:-1", "3:4", None),
        ({}, "4:-1", "4:-1", None),
        ({}, "5:-1", "5:-1", None),
        ({}, "6:-1", "5:9", "(3:4, 5:9]"),
        (INVISIBLE, "6:-1", "6:-1", None),
        # a reader begins at an entry after the start where the broker has moved it: a gap like any other
        ({}, "5:8", "3:4", None),
        ({}, "5:9", "3:4", None),
        (INVISIBLE, "5:9", "3:4", None),
        (BATCH, "3:5", "3:4", None),
        (BATCH, "5:8", "3:4", None),
        # it is known that there was everything: what lies before where the reader begins is gone
        (BATCH, "3:4", "3:4", None),
        (BATCH, "2:-1", "3:4", None),
        (BATCH, "5:-1", "5:-1", "(3:4, 5:-1]"),
        (BATCH, "6:-1", "5:9", "(3:4, 5:9]"),
        (BATCH | INVISIBLE, "4:-1", "4:-1", "(3:4, 4:-1]"),
        # a stream's range across ledgers begins before its first message
        ({"begins": "3:4"}, "4:-1", "4:-1", "(3:4, 4:-1]"),
        ({"begins": "4:-1"}, "3:4", "3:4", None),
        ({"begins": "4:1"}, "5:-1", "5:-1", "(4:1, 5:-1]"),
        ({"begins": "4:1"}, "4:-1", "4:-1", None),
        # a part of a range
        ({"begins": "2:-1", "visible": False, "followed": True}, "6:-1", "5:9", "(3:4, 5:9]"),
        # what was gone when the batch was planned is not lost
        ({"begins": "4:-1"}, "4:-1", "4:-1", None),
        ({"begins": "4:-1"}, "5:-1", "5:-1", "(4:-1, 5:-1]"),
        # compaction's doing is no loss, wherever the reader begins
        (COMPACTED, "6:-1", "3:4", None),
        (COMPACTED | BATCH, "6:-1", "3:4", None),
    ],
)
def test_where_the_reader_begins(options, mark, position, judged):
    reading = progress(**options)
    assert reading.opened(at(mark)) is (judged is not None)
    if judged is not None:
        assert reading.position == at("3:4")
        assert lost(reading.judge_probe(at(mark), at("6:0"), None).lost) == judged
    assert reading.position == at(position)


@for_each("options", [{}, {"begins": "2:-1"}, {"begins": "3:4"}])
@for_each("mark", ["4:-1", "6:-1"])
def test_a_ledger_is_there_if_a_reader_can_begin_in_it(options, mark):
    """The broker moved the first reader on, from the end of the ledger."""
    reading = progress(**options)
    reading.opened(at(mark))
    position = reading.position
    assert reading.judge_probe(at("3:3"), at("6:0"), at("6:0")) == ProbedGap(Gap.EMPTY)
    assert reading.position == position


@pytest.mark.parametrize(
    ("options", "found", "judged"),
    [
        ({}, "5:10", None),
        ({}, "6:0", "(4:2, 5:9]"),
        ({}, None, "(4:2, 5:9]"),
        (INVISIBLE, "5:10", None),
        (INVISIBLE, "6:0", None),
        (INVISIBLE, None, None),
        (COMPACTED, "6:0", None),
        (COMPACTED, None, None),
    ],
)
def test_the_end_does_not_come(options, found, judged):
    reading = progress(**options)
    assert not reading.opened(at("3:4"))
    reading.received(at("4:2"))
    assert not reading.is_done
    assert lost(reading.passed(None if found is None else at(found))) == judged
    assert reading.is_done
    assert reading.position == at("5:9")


@pytest.mark.parametrize(
    ("found", "why"),
    [("6:0", "after 4:2 the broker sent 6:0"), (None, "after 4:2 the broker sent nothing more")],
)
def test_what_is_lost_says_how_that_is_known(found, why):
    reading = progress(start="4:2")
    assert reading.passed(found and at(found)) == LostRange(at("4:2"), at("5:9"), why)


def test_the_end_comes():
    reading = progress()
    reading.opened(at("3:4"))
    assert reading.entries_left is None
    reading.received(at("5:2"))
    assert reading.entries_left == 7
    assert not reading.is_done
    reading.received(at("5:9"))
    assert reading.is_done


def test_an_end_within_an_entry_is_reached_with_that_entry():
    reading = progress(end="5:9:3")
    reading.received(at("5:8"))
    assert not reading.is_done
    reading.received(at("5:9"))
    assert reading.is_done


# ---- gaps


@pytest.mark.parametrize(
    ("entries", "row"),
    [
        ("3:5", 1),
        ("3:5 3:6 3:7", 3),
        ("3:6", 0),
        ("4:0", 0),
        ("3:5 3:7", 1),
        ("3:5 3:6 3:9 3:10", 2),
        ("3:5 3:6 3:7 3:9", 3),
        ("3:5 3:6 4:0 4:1", 2),
        ("3:5 3:6 4:7", 2),
        ("3:5 4:6 4:8", 1),
        ("3:5 3:7 3:8 3:10", 1),
        ("", 0),
    ],
)
def test_the_first_gap_among_what_came(entries, row):
    ids = [at(text) for text in entries.split()]
    ledger, entry = (np.array([getattr(one, name) for one in ids], np.int64) for name in ("ledger", "entry"))
    assert progress().first_gap(ledger, entry) == row
    assert progress(**COMPACTED).first_gap(ledger, entry) == len(ids)


@pytest.mark.parametrize(
    ("mark", "judged"),
    [
        ("2:9", Gap.EMPTY),
        ("3:3", Gap.EMPTY),
        ("3:4", Gap.EMPTY),
        ("3:5", Gap.UNKNOWN),
        ("3:8", Gap.UNKNOWN),
        ("3:9", Gap.SKIPPED),
        ("4:2", Gap.SKIPPED),
    ],
)
def test_a_gap_is_judged_by_where_the_reader_stands(mark, judged):
    assert progress().judge_gap(at(mark), at("3:9")) is judged


@for_each("has_read", [True, False])
@for_each("options", [{}, BATCH])
@for_each(
    ("begins", "first", "found", "gap", "position"),
    [
        ("3:4", "3:9", "3:9", Gap.EMPTY, "3:4"),
        ("3:4", "4:0", "4:0", Gap.EMPTY, "3:4"),
        ("3:4", "3:5", "3:9", Gap.SKIPPED, "3:4"),
        # the second reader was moved, too
        ("3:4", "3:10", "3:9", Gap.SKIPPED, "3:4"),
        ("3:4", None, "3:9", Gap.SKIPPED, "3:4"),
        ("3:7", "3:9", "3:9", Gap.SKIPPED, "3:4"),
        ("4:0", "4:1", "4:1", Gap.SKIPPED, "3:4"),
        # nothing had come
        ("3:4", None, None, Gap.EMPTY, "3:4"),
        ("3:4", "5:10", None, Gap.EMPTY, "3:4"),
        ("3:4", "5:9", None, Gap.SKIPPED, "3:4"),
        # the ledger of the position is gone
        ("4:-1", "4:0", "4:0", Gap.EMPTY, "4:-1"),
        ("4:-1", "4:0", "4:2", Gap.SKIPPED, "4:-1"),
        ("6:-1", "6:0", "6:0", Gap.EMPTY, "5:9"),
    ],
)
def test_a_gap_is_judged_by_what_a_second_reader_finds(
    options, has_read, begins, first, found, gap, position
):
    reading = progress(**options)
    if has_read:
        reading.received(at("3:4"))
    probed = reading.judge_probe(at(begins), first and at(first), found and at(found))
    is_gone = position != "3:4" and (has_read or options or position == "5:9")
    why = f"the remaining messages start after {begins}"
    if has_read:
        why = "the broker deleted ledger 3 while it was read"
    assert probed == ProbedGap(gap, LostRange(at("3:4"), at(position), why) if is_gone else None)
    assert reading.position == at(position)


@for_each("begins", ["5:-1", "6:-1", "9:-1"])
@for_each("found", ["6:0", "9:0", None])
@for_each("is_visible", [True, False])
def test_a_range_of_which_all_is_gone_is_reported_once_whoever_notices(begins, found, is_visible):
    """A stream's, of which nothing was read: it is lost if its end was a message, and is gone."""
    first = progress(visible=is_visible)
    second = progress(visible=is_visible)
    assert not second.opened(at("3:4"))
    is_late = first.opened(at(begins))
    reports = [
        [
            first.judge_probe(at(begins), None, None).lost if is_late else None,
            first.passed(found and at(found)),
        ],
        [second.judge_probe(at(begins), None, None).lost, second.passed(found and at(found))],
    ]
    for each in reports:
        assert sum(lost is not None for lost in each) == is_visible
    assert first.is_done
    assert second.is_done


@pytest.mark.parametrize(("first", "gap"), [(None, Gap.EMPTY), ("5:10", Gap.EMPTY), ("5:9", Gap.SKIPPED)])
@pytest.mark.parametrize("begins", ["3:4", "3:7", "9:-1", "9:4"])
def test_where_a_reader_of_what_compaction_left_begins_says_nothing(begins, first, gap):
    reading = progress(**COMPACTED)
    assert reading.judge_probe(at(begins), first and at(first), None) == ProbedGap(gap)
    assert reading.position == at("3:4")


def test_what_was_gone_when_a_batch_was_planned_is_not_lost_when_it_is_looked_for():
    reading = progress(begins="4:-1")
    assert reading.judge_probe(at("4:-1"), at("4:3"), at("4:3")) == ProbedGap(Gap.EMPTY)


@pytest.mark.parametrize(
    ("found", "lost_to"), [("3:9", "3:8"), ("4:0", "4:-1"), ("6:3", "5:9"), (None, "5:9")]
)
def test_what_is_read_again_in_vain_is_lost(found, lost_to):
    reading = progress()
    found = found and at(found)
    assert [reading.repeat(found) for _ in range(5)] == [None] * 5
    lost = reading.repeat(found)
    assert (lost.start, lost.end) == (at("3:4"), at(lost_to))
    assert reading.position == at(lost_to)
    if lost_to == "5:9":
        assert reading.passed(found) is None  # it is not reported again


def test_what_comes_lets_a_range_be_read_again_anew():
    reading = progress()
    for entry in range(5, 9):
        assert [reading.repeat(None) for _ in range(5)] == [None] * 5
        reading.received(MessageId(3, entry))


@pytest.mark.parametrize(
    ("options", "last", "mark", "judged"),
    [
        ({}, "5:9", "4:2", None),
        ({}, "4:2", "4:2", Gap.EMPTY),
        ({}, "4:2:7", "4:2", Gap.EMPTY),
        ({}, "-1:-1", "3:4", Gap.EMPTY),
        ({}, "7:0", "5:8", None),
        ({}, "7:0", "5:9", Gap.UNKNOWN),
        ({}, "7:0", "6:-1", Gap.UNKNOWN),
        (COMPACTED, "7:0", "6:-1", None),
        (COMPACTED, "4:2", "3:4", Gap.EMPTY),
        (COMPACTED, "-1:-1", "3:4", Gap.UNKNOWN),
        # a message after the end was known: this broker has lost it, or is another cluster's
        (FOLLOWED, "4:2", "4:2", Gap.UNKNOWN),
        (FOLLOWED, "-1:-1", "3:4", Gap.UNKNOWN),
        (FOLLOWED, "7:0", "5:8", None),
        (FOLLOWED | COMPACTED, "4:2", "3:4", Gap.EMPTY),
    ],
)
def test_whether_anything_is_left_to_come(options, last, mark, judged):
    reading = progress(**options)
    reading.received(at("4:2"))
    assert reading.judge_silence(at(last), at(mark)) is judged


@for_each(
    ("first", "gap"), [(None, Gap.SKIPPED), ("5:9", Gap.SKIPPED), ("5:10", Gap.EMPTY), ("7:0", Gap.EMPTY)]
)
def test_a_part_is_only_over_if_what_follows_it_comes(first, gap):
    reading = progress(**FOLLOWED)
    assert reading.judge_probe(at("3:4"), first and at(first), None) == ProbedGap(gap)
    reading = progress(**FOLLOWED | COMPACTED)
    assert reading.judge_probe(at("3:4"), None, None) == ProbedGap(Gap.EMPTY)


def test_a_corrupt_entry_is_passed():
    reading = progress()
    reading.skip(at("4:7"))
    assert reading.position == at("4:7")
    assert not reading.is_done


def test_the_text_of_a_range_without_an_end():
    assert str(LostRange(at("1:2"), None, "why")) == "(1:2, the end]"
