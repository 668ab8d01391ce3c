"""RangeProgress: how far a range is read and what of it is lost, as tables and against made-up topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.range_progress import AskBefore, LostRange, RangeProgress


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


@pytest.mark.parametrize(
    ("options", "mark", "position", "judged"),
    [
        # a stream's range: a subscription holds it, so where the reader begins says nothing until the end
        ({}, "3:4", "3:4", None),
        ({}, "2:-1", "3:4", None),
        ({}, "3:-1", "3:4", None),
        ({}, "4:-1", "4:-1", None),
        ({}, "5:8", "5:8", None),
        ({}, "5:9", "5:9", "(3:4, 5:9]"),
        ({}, "6:-1", "6:-1", "(3:4, 5:9]"),
        (INVISIBLE, "5:9", "5:9", None),
        (INVISIBLE, "6:-1", "6:-1", None),
        # a batch's range: what lies between its start and where the reader begins is gone
        (BATCH, "3:4", "3:4", None),
        (BATCH, "2:-1", "3:4", None),
        (BATCH, "3:5", "3:5", "(3:4, 3:5]"),
        (BATCH, "5:8", "5:8", "(3:4, 5:8]"),
        (BATCH, "6:-1", "6:-1", "(3:4, 5:9]"),
        (BATCH | INVISIBLE, "4:-1", "4:-1", "(3:4, 4:-1]"),
        # what was gone when the batch was planned is not lost
        ({"begins": "4:-1"}, "4:-1", "4:-1", None),
        ({"begins": "4:-1"}, "4:0", "4:0", "(4:-1, 4:0]"),
        # compaction's doing is no loss, wherever the reader begins
        (COMPACTED, "6:-1", "3:4", None),
        (COMPACTED | BATCH, "6:-1", "3:4", None),
    ],
)
def test_where_the_reader_begins(options, mark, position, judged):
    reading = progress(**options)
    assert lost(reading.opened(at(mark))) == judged
    assert reading.position == at(position)


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
    assert reading.opened(at("3:4")) is None
    assert reading.came(at("4:2")) is None
    assert not reading.is_done
    assert lost(reading.passed(None if found is None else at(found))) == judged
    assert reading.is_done
    assert reading.position == at("5:9")


@pytest.mark.parametrize(
    ("found", "why"),
    [("6:0", "behind 4:2 it sent 6:0"), (None, "behind 4:2 nothing more came")],
)
def test_what_is_lost_says_how_that_is_known(found, why):
    reading = progress(start="4:2")
    assert reading.passed(found and at(found)) == LostRange(at("4:2"), at("5:9"), why)


def test_the_end_comes():
    reading = progress()
    reading.opened(at("3:4"))
    assert reading.entries_left is None
    reading.came(at("5:2"))
    assert reading.entries_left == 7
    assert not reading.is_done
    reading.came(at("5:9"))
    assert reading.is_done


def test_an_end_within_an_entry_is_reached_with_that_entry():
    reading = progress(end="5:9:3")
    reading.came(at("5:8"))
    assert not reading.is_done
    reading.came(at("5:9"))
    assert reading.is_done


@pytest.mark.parametrize(
    ("steps", "asked"),
    [
        (["3:9", "4:0"], ["3:1"]),
        (["4:0", "4:1", "5:0"], ["3:1", "4:1"]),
        (["5:9"], ["3:1"]),
        (["3:9", "3:10"], []),
    ],
)
def test_each_ledger_that_follows_is_asked_about_where_nothing_holds_the_data(steps, asked):
    reading = progress(**BATCH)
    reading.opened(at("3:4"))
    found = []
    for step in steps:
        question = reading.came(at(step))
        if question is not None:
            found.append(str(question.position))
            assert reading.answered(MessageId(question.position.ledger, 9)) is None
        assert reading.position == at(step)
    assert found == asked


@pytest.mark.parametrize("options", [{}, COMPACTED | BATCH])
def test_nothing_is_asked_where_it_cannot_be_loss(options):
    reading = progress(**options)
    reading.opened(at("3:4"))
    assert reading.came(at("4:0")) is None
    assert reading.passed(at("5:10")) is None


def test_a_ledger_that_is_removed_under_the_reader_is_lost():
    reading = progress(**BATCH)
    reading.opened(at("3:4"))
    reading.came(at("3:6"))
    assert reading.came(at("5:1")) == AskBefore(at("3:1"))
    assert reading.answered(at("5:-1")) == LostRange(
        at("3:6"), at("5:-1"), "ledger 3 was removed while it was read"
    )
    assert reading.position == at("5:1")
    assert reading.came(at("5:9")) is None


def test_the_ledger_that_is_asked_about_is_the_one_in_which_the_reader_stands():
    reading = progress(begins="4:-1")
    assert reading.opened(at("4:-1")) is None
    assert reading.came(at("5:1")) == AskBefore(at("4:1"))
    assert reading.answered(at("4:7")) is None
    assert reading.position == at("5:1")


def test_an_invisible_end_that_is_not_reached_asks_about_its_ledger_too():
    reading = progress(**BATCH, **INVISIBLE)
    reading.opened(at("3:4"))
    assert reading.passed(None) == AskBefore(at("3:1"))
    assert lost(reading.answered(at("5:-1"))) == "(3:4, 5:-1]"
    assert reading.is_done


@pytest.mark.parametrize(
    ("options", "last", "mark", "exhausted"),
    [
        ({}, "5:9", "4:2", False),
        ({}, "4:2", "4:2", True),
        ({}, "4:2:7", "4:2", True),
        ({}, "-1:-1", "3:4", True),
        ({}, "7:0", "5:8", False),
        ({}, "7:0", "5:9", True),
        ({}, "7:0", "6:-1", True),
        (COMPACTED, "7:0", "6:-1", False),
        (COMPACTED, "4:2", "3:4", True),
    ],
)
def test_whether_anything_is_left_to_come(options, last, mark, exhausted):
    reading = progress(**options)
    reading.came(at("4:2"))
    assert reading.is_exhausted(at(last), at(mark)) is exhausted


def test_a_corrupt_entry_is_passed():
    reading = progress()
    reading.skip(at("4:7"))
    assert reading.position == at("4:7")
    assert not reading.is_done


def test_the_text_of_a_range_without_an_end():
    assert str(LostRange(at("1:2"), None, "why")) == "(1:2, the end]"


class Topic:
    """Ledgers 10, 20, ... of a length; all that is left after some were trimmed."""

    def __init__(self, lengths):
        self.entries = [MessageId(10 * n + 10, e) for n, length in enumerate(lengths) for e in range(length)]

    def trim(self, ledger):
        self.entries = [entry for entry in self.entries if entry.ledger > ledger]

    def before(self, position):
        """The broker's answer: the last entry before a position; what begins everything where none is."""
        left = [entry for entry in self.entries if entry < position]
        return left[-1] if left and left[-1].ledger <= position.ledger else self.first.ledger_start

    @property
    def first(self):
        return self.entries[0]

    def after(self, position):
        return next((entry for entry in self.entries if entry > position), None)


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=3),
)
def test_what_is_not_read_of_a_batch_is_reported_lost(lengths, trims):
    """Ledgers are trimmed at any time while all is read entry by entry."""
    topic = Topic(lengths)
    everything, end = list(topic.entries), topic.entries[-1]
    begin = topic.first.ledger_start
    reading = RangeProgress(begin, end, begins=begin)
    trims = dict(trims)
    taken, reports = [], []

    def judge(judged):
        if isinstance(judged, AskBefore):
            judged = reading.answered(topic.before(judged.position))
        if judged is not None:
            reports.append(judged)

    step = 0
    judge(reading.opened(begin))
    while not reading.is_done:
        # The last ledger is never trimmed.
        topic.trim(min(10 * trims.get(step, 0), end.ledger - 1))
        step += 1
        entry = topic.after(reading.position)
        judge(reading.came(entry))
        taken.append(entry)
    missing = [entry for entry in everything if entry not in taken]
    assert all(any(each.start < entry <= each.end for each in reports) for entry in missing)
    # A ledger that was read and then trimmed is reported too: nobody knows what came after its last entry.
    assert not reports or topic.first > begin.next_entry
