"""The rules of data loss, as the tables that the module's docstring has."""

import logging

import pytest

from pulsar_spark.client import LostRange
from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.plan.data_loss import (
    Judgement,
    LossReporter,
    LossVerdict,
    Stored,
    judge_answer,
    judge_deleted,
    judge_restart,
    lost_by_deletion,
)
from tests.loops import for_each
from tests.spark.plan.simulated_spark import at

T = TopicName.parse("t-partition-3")
STRICT = LossReporter(fail_on_data_loss=True)
FINE, ASK, MOVED, LOST, UNSURE, SET_BACK = (
    *(LossVerdict.FINE, LossVerdict.ASK, LossVerdict.MOVED, LossVerdict.LOST),
    *(LossVerdict.UNSURE, LossVerdict.SET_BACK),
)


def stored(begin, end="9:9"):
    return None if begin is None else Stored(at(begin), at(end))


RESTART = [
    # processed, last, subscription, missing, begin, verdict, lost
    # where the broker put it, or where this query left it
    ("5:9", "5:9", "5:9", False, None, FINE, None),
    ("5:9", "7:3", "5:4", False, None, FINE, None),
    ("5:9", "7:3", "4:-1", False, None, FINE, None),
    ("5:9:2", "7:3", "5:8", False, None, FINE, None),
    # somebody else moved it
    ("5:9", "7:3", "5:10", False, None, ASK, None),
    ("5:9", "7:3", "7:3", False, None, ASK, None),
    ("5:9:2", "7:3", "5:9", False, None, ASK, None),
    ("5:9", "7:3", "7:3", False, "5:-1", MOVED, None),
    ("5:9", "7:3", "7:3", False, "5:9", MOVED, None),
    ("5:9", "7:3", "7:3", False, "6:-1", LOST, "(5:9, 6:-1]"),
    ("5:9:2", "7:3", "7:3", False, "5:9", LOST, "(5:9:2, 5:9]"),
    ("5:9:2", "7:3", "7:3", False, "5:8", MOVED, None),
    # the broker does not remove a ledger of which a part was never acknowledged
    ("5:9:2", "7:3", "6:-1", False, None, ASK, None),
    ("5:9:0", "7:3", "6:-1", False, "6:-1", LOST, "(5:9:0, 6:-1]"),
    # it is gone
    ("5:9", "5:9", "5:9", True, None, ASK, None),
    ("5:9", "7:3", "7:3", True, "4:-1", MOVED, None),
    ("5:9", "7:3", "7:3", True, "7:-1", LOST, "(5:9, 7:-1]"),
    ("5:-1", "5:3", "5:3", True, "5:-1", MOVED, None),
    # the topic ends before what is processed
    ("5:9", "4:3", "4:3", True, None, SET_BACK, None),
    ("5:9", "4:3", "4:-1", False, None, SET_BACK, None),
    ("5:9", "5:3", "5:3", False, None, SET_BACK, None),
    ("5:9:2", "5:9", "5:8", False, None, FINE, None),
    ("5:9:2", "5:9", "5:7", False, None, FINE, None),
    ("5:9", "4:-1", "4:-1", True, "4:-1", MOVED, None),
    ("5:9", "4:3", "5:8", False, None, SET_BACK, None),
    # after its last visible message are markers of transactions, where the query began
    ("5:0", "4:3", "5:0", False, None, FINE, None),
    ("5:0", "4:3", "6:-1", False, None, ASK, None),
    ("5:0", "4:3", "5:1", False, "3:-1", MOVED, None),
    ("5:0", "4:3", "5:1", True, "3:-1", MOVED, None),
]


@for_each(("position", "last", "mark", "missing", "begin", "verdict", "lost"), RESTART)
def test_a_partition_at_restart(position, last, mark, missing, begin, verdict, lost):
    found = judge_restart(
        at(position),
        last=at(last),
        mark_delete=at(mark),
        was_missing=missing,
        is_processed=at(position).is_entry,
        stored=stored(begin),
    )
    assert found.verdict is verdict
    assert (found.lost and str(found.lost)) == lost
    assert found.was_removed is missing
    assert bool(found.why) is (verdict in (MOVED, LOST))


LEDGERS = [
    # processed, subscription, begin, end, end of its ledger, verdict, lost
    ("5:9", "6:-1", None, None, None, ASK, None),
    # nothing ever came after it
    ("5:9", "6:-1", "6:-1", "5:9", None, FINE, None),
    ("5:9", "6:-1", "5:-1", "5:9", 9, FINE, None),
    ("5:-1", "6:-1", "6:-1", "5:-1", None, FINE, None),
    # retention keeps the ledger
    ("5:9", "6:-1", "5:-1", "6:3", 9, FINE, None),
    ("5:9", "6:-1", "4:-1", "6:3", 9, FINE, None),
    ("5:9", "6:-1", "5:-1", "6:3", 11, MOVED, None),
    ("5:-1", "6:-1", "5:-1", "6:3", 0, MOVED, None),
    # all that came after it is gone
    ("5:9", "6:-1", "6:-1", "5:10", None, LOST, "(5:9, 6:-1]"),
    ("5:9", "9:-1", "8:2", "8:2", None, LOST, "(5:9, 8:2]"),
    # it may have been the last of its ledger
    ("5:9", "6:-1", "6:-1", "6:0", None, UNSURE, "(5:9, 6:-1]"),
    ("5:9", "6:-1", "6:-1", "7:3", None, UNSURE, "(5:9, 6:-1]"),
    ("5:9", "6:-1", "6:-1", "6:-1", None, UNSURE, "(5:9, 6:-1]"),
    ("5:-1", "6:-1", "6:-1", "6:-1", None, FINE, None),  # a message was never seen
    ("5:-1", "6:-1", "6:-1", "6:0", None, UNSURE, "(5:-1, 6:-1]"),
    ("5:-1", "6:-1", "6:-1", "5:3", None, LOST, "(5:-1, 6:-1]"),
]


@for_each(("position", "mark", "begin", "end", "ledger_end", "verdict", "lost"), LEDGERS)
def test_a_partition_whose_subscription_stands_before_a_later_ledger_at_restart(
    position, mark, begin, end, ledger_end, verdict, lost
):
    found = judge_restart(
        at(position),
        last=at("9:9"),
        mark_delete=at(mark),
        was_missing=False,
        is_processed=at(position).is_entry,
        stored=begin and Stored(at(begin), at(end), ledger_end),
    )
    assert found.verdict is verdict
    assert (found.lost and str(found.lost)) == lost
    assert not found.was_removed
    assert bool(found.why) is (verdict not in (FINE, ASK))


@pytest.mark.parametrize(("last", "verdict"), [("4:3", FINE), ("5:9", FINE)])
def test_a_position_that_was_never_a_message_says_nothing_of_the_topic(last, verdict):
    """A start that the user gave may lie after the end of a topic that is younger than it."""
    found = judge_restart(
        at("5:9"), last=at(last), mark_delete=at("4:3"), was_missing=False, is_processed=False
    )
    assert found.verdict is verdict


ANSWERS = [
    # processed, acknowledged, seen before, subscription, begin, verdict, lost
    ("5:9", "5:9", "5:9", "5:9", None, FINE, None),
    ("5:9", "5:4", "5:9", "5:4", None, FINE, None),
    # a broker that crashed before it stored the last acknowledgement
    ("5:9", "5:9", "5:9", "5:4", None, FINE, None),
    ("5:9", "5:9", "5:9", "4:-1", None, FINE, None),
    # somebody moved it over messages of the micro-batch
    ("5:9", "5:4", "7:3", "5:9", None, ASK, None),
    ("5:9", "4:4", "7:3", "5:2", None, ASK, None),
    ("5:9:2", "5:4", "7:3", "5:8", None, ASK, None),
    ("5:9", "5:4", "7:3", "5:9", "5:-1", FINE, None),
    ("5:9", "4:4", "7:3", "5:2", "4:-1", FINE, None),
    ("5:9", "4:4", "7:3", "5:2", "5:-1", UNSURE, "(4:4, 5:-1]"),
    ("5:9", "5:4", "7:3", "5:9", "6:-1", UNSURE, "(5:4, 6:-1]"),
    # or the broker removed a ledger that was consumed
    ("5:9", "4:4", "7:3", "5:-1", None, FINE, None),
    # the broker removed a ledger that was consumed
    ("5:9", "5:9", "5:9", "6:-1", None, FINE, None),
    ("5:9", "5:9", "-1:-1", "6:-1", None, FINE, None),
    ("5:9", "5:9", "6:3", "6:-1", None, FINE, None),
    # somebody moved or removed it
    ("5:9", "5:9", "6:3", "7:-1", None, ASK, None),
    ("5:9", "5:9", "6:3", "7:-1", "5:-1", MOVED, None),
    ("5:9", "5:9", "6:3", "7:-1", "7:-1", LOST, "(5:9, 7:-1]"),
    ("5:9", "5:9", "5:9", "5:10", None, ASK, None),
    ("5:9", "5:9", "7:3", "7:3", "5:9", MOVED, None),
    ("5:9", "5:9", "7:3", "7:3", "6:-1", LOST, "(5:9, 6:-1]"),
    ("5:9:2", "5:8", "5:9", "5:9", "5:8", MOVED, None),
    ("5:9:2", "5:8", "5:9", "5:9", "5:9", LOST, "(5:9:2, 5:9]"),
    # an end that was acknowledged already may be found again
    ("5:9", "7:3", "7:3", "7:3", None, FINE, None),
]


@for_each(("position", "acked", "seen", "mark", "begin", "verdict", "lost"), ANSWERS)
def test_a_partition_under_the_running_query(position, acked, seen, mark, begin, verdict, lost):
    found = judge_answer(
        at(position),
        acknowledged=at(acked),
        asked=at(acked),
        last_seen=at(seen),
        next_seen=at(seen),
        last=at("9:9"),
        mark_delete=at(mark),
        is_processed=at(position).is_entry,
        stored=stored(begin),
    )
    assert found.verdict is verdict
    assert (found.lost and str(found.lost)) == lost
    assert not found.was_removed, "the rest must be held"


UNASKED = [
    # processed, asked, seen, a message, goes on, begin, verdict
    # the ledger cannot have been consumed: this query never acknowledged all of it
    ("5:9", "5:4", "5:9", True, "-1:-1", None, ASK),
    ("5:9", "4:4", "5:9", True, "-1:-1", "6:-1", LOST),
    ("5:9", "4:4", "5:9", True, "-1:-1", "5:-1", MOVED),
    ("5:9", "5:9", "5:9", True, "-1:-1", None, FINE),
    ("5:9:2", "5:8", "5:9", True, "-1:-1", None, ASK),
    # a start of the user may lie where nothing is
    ("5:9", "4:4", "5:9", False, "-1:-1", None, FINE),
    ("5:9", "4:4", "4:4", True, "-1:-1", None, FINE),
    # it is known that nothing came between the two ledgers
    ("5:9", "5:9", "6:1", True, "6:-1", "6:-1", MOVED),
    ("5:9", "5:9", "6:1", True, "6:-1", "7:-1", LOST),
]


@pytest.mark.parametrize(
    ("position", "asked", "seen", "is_processed", "goes_on", "begin", "verdict"), UNASKED
)
def test_a_partition_whose_subscription_stands_before_a_later_ledger(
    position, asked, seen, is_processed, goes_on, begin, verdict
):
    found = judge_answer(
        at(position),
        acknowledged=at("4:4"),
        asked=at(asked),
        last_seen=at(seen),
        next_seen=at(seen),
        last=at("9:9"),
        mark_delete=at("7:-1"),
        is_processed=is_processed,
        goes_on=at(goes_on),
        stored=stored(begin),
    )
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("asked", "goes_on", "is_processed"),
    [("5:2", "-1:-1", True), ("4:4", "5:2", True), ("4:4", "-1:-1", False)],
)
def test_a_subscription_at_a_processed_message_was_not_moved_if_the_query_may_have_put_it_there(
    asked, goes_on, is_processed
):
    found = judge_answer(
        at("5:9"),
        acknowledged=at("4:4"),
        asked=at(asked),
        last_seen=at("7:3"),
        next_seen=at("7:3"),
        last=at("9:9"),
        mark_delete=at("5:2"),
        is_processed=is_processed,
        goes_on=at(goes_on),
    )
    assert found.verdict is FINE


@pytest.mark.parametrize(
    ("seen", "deleted", "verdict"),
    [("5:9", True, LossVerdict.RECREATED), ("5:9", False, LOST), ("6:3", True, LOST), ("6:3", False, LOST)],
)
def test_loss_where_the_topic_was_deleted_and_made_again(seen, deleted, verdict):
    found = judge_answer(
        at("5:9"),
        acknowledged=at("5:9"),
        asked=at("5:9"),
        last_seen=at(seen),
        next_seen=at(seen),
        last=at("9:9"),
        mark_delete=at("9:5"),
        is_processed=True,
        stored=stored("9:-1"),
    )
    judged = found.of_deleted(lambda: deleted)
    assert judged.verdict is verdict
    assert (judged.lost is None) is (verdict is not LOST)


def test_nobody_waits_for_a_report_where_nothing_is_lost():
    def fail():
        raise AssertionError

    for verdict in set(LossVerdict) - {LOST}:
        assert Judgement(verdict, is_all_seen_processed=True).of_deleted(fail).verdict is verdict


@pytest.mark.parametrize(
    ("last", "mark", "is_processed", "verdict"),
    [
        ("4:9", "4:2", True, SET_BACK),
        ("4:9", "4:2", False, FINE),
        ("5:3", "4:2", True, SET_BACK),
        ("5:3", "5:9", True, FINE),
        ("-1:-1", "4:2", True, FINE),
        # after its last visible message are markers of transactions, where the query began
        ("4:9", "5:8", True, SET_BACK),
        ("4:9", "5:9", True, FINE),
        ("4:9", "6:-1", True, FINE),
    ],
)
def test_a_topic_that_is_set_back_under_the_running_query(last, mark, is_processed, verdict):
    found = judge_answer(
        at("5:9"),
        acknowledged=at("5:9"),
        asked=at("5:9"),
        last_seen=at("5:9"),
        next_seen=at("5:9"),
        last=at(last),
        mark_delete=at(mark),
        is_processed=is_processed,
    )
    assert found.verdict is verdict
    assert found.lost is None


def test_a_topic_that_is_set_back_is_an_error_or_a_warning(caplog):
    with pytest.raises(DataLossError) as caught:
        STRICT.set_back(T, at("5:9"), at("4:3"))
    assert caplog.text == ""
    lenient = LossReporter(fail_on_data_loss=False)
    lenient.set_back(T, at("5:9"), at("4:3"))
    assert lenient.count == 1
    for text in (str(caught.value), caplog.text):
        assert all(part in text for part in (str(T), "5:9", "ends at 4:3"))
    assert "failOnDataLoss=false" in str(caught.value)
    assert "failOnDataLoss" not in caplog.text, "it is set"


def test_what_may_be_lost_is_a_warning_that_names_it_and_is_not_counted(caplog):
    reporter = LossReporter(fail_on_data_loss=True)
    reporter.log_noted()
    assert not caplog.records
    for partition in range(3):
        lost = LostRange(at("5:9"), at("7:-1"), "the ledger is gone")
        reporter.unsure(T.of_partition(partition), lost)
    for _ in range(2):
        reporter.log_noted()
    assert reporter.count == 0
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    for part in (
        "t-partition-3-partition-0",
        "(5:9, 7:-1] may be lost, and of 2 more partitions: the ledger is gone",
    ):
        assert part in line.getMessage()


@pytest.mark.parametrize(
    ("position", "seen", "lost"),
    [
        ("5:9", "5:9", None),
        ("5:9", "-1:-1", None),
        ("6:-1", "5:9", None),
        ("5:9", "6:0", "(5:9, 6:0]"),
        ("5:9:2", "5:9", "(5:9:2, 5:9]"),
        ("-1:-1", "5:0", "(-1:-1, 5:0]"),
    ],
)
def test_a_topic_that_was_deleted_under_the_running_query(position, seen, lost):
    found = lost_by_deletion(at(position), at(seen))
    assert (found and str(found)) == lost


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    ("position", "planned", "is_all_processed"),
    [
        ("5:9", "5:9", True),
        ("5:-1", "5:-1", True),
        ("-1:-1", "-1:-1", True),
        ("5:9", "6:-1", True),
        ("-1:-1", "5:-1", True),
        ("6:0", "5:9", True),
        ("5:9", "5:10", False),
        ("5:9:2", "5:9", False),
        ("5:9", "6:0", False),
        ("-1:-1", "5:0", False),
    ],
)
def test_a_topic_that_was_deleted_while_the_query_was_stopped(position, planned, is_all_processed, is_named):
    """Planned messages that were not processed are lost; of others that came meanwhile nobody knows."""
    found = judge_deleted(at(position), at(planned), is_named=is_named)
    is_unsure = is_all_processed and not is_named
    assert found.verdict is (LossVerdict.UNSURE if is_unsure else LossVerdict.LOST)
    assert str(found.lost) == f"({position}, the end]"


def test_topics_that_are_deleted_without_a_loss_are_one_warning_in_a_run(caplog):
    reporter = LossReporter(fail_on_data_loss=True)
    for first, count in ((0, 3), (3, 1), (4, 2000)):
        reporter.deleted += map(T.of_partition, range(first, first + count))
        for _ in range(2):
            reporter.log_noted()
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert "t-partition-3-partition-0 and 2 more partitions: deleted; all messages" in line.getMessage()
    assert reporter.count == 0
    assert len(reporter.deleted) == 1000
    assert reporter.deleted[-1] == T.of_partition(2003)


def test_loss_is_an_error_or_a_warning(caplog):
    lost = LostRange(at("5:9"), at("7:-1"), "the topic was deleted")
    with pytest.raises(DataLossError) as caught, caplog.at_level(logging.WARNING):
        STRICT.lost(T, lost)
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        lenient = LossReporter(fail_on_data_loss=False)
        lenient.lost(T, lost)
        lenient.lost(T, lost)
    assert (STRICT.count, lenient.count) == (0, 2)
    for text in (str(caught.value), caplog.text):
        assert all(part in text for part in ("[PULSAR_DATA_LOSS]", str(T), "(5:9, 7:-1]", "was deleted"))
