import logging
import pickle
from typing import Any

import pytest

from pulsar_spark.client import SentTotals
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.driver_files import SinkTotals
from pulsar_spark.spark.sink import report
from pulsar_spark.spark.sink.report import TaskReport, TopicPartitionMetrics, add_up, report_batch

T = TopicName.parse("t")
SCALABLE = TopicName.parse("topic://public/default/t", scalable=True)
REPORTED: list[Any] = []


def note(batch, metrics):
    REPORTED.append((batch, metrics))


def fail(batch, metrics):
    raise RuntimeError("a user's mistake")


@pytest.fixture(autouse=True)
def nothing_reported():
    REPORTED.clear()


def sent(messages, first, last):
    return SentTotals(messages, messages * 10, first, last)


def test_a_report_comes_back_as_it_was():
    parts = {
        T.of_partition(10): sent(2, MessageId(1, 2, 0), MessageId(1, 3)),
        T.of_partition(2): sent(3, None, None),
        TopicName.parse("other/ns/whole"): sent(1, MessageId(5, 0), MessageId(5, 0)),
        SCALABLE.segment(0, 0x7FFF, 3): sent(1, MessageId(6, 0), MessageId(6, 0)),
    }
    assert TaskReport.of(parts).sent == parts
    assert TaskReport.of({}).sent == {}


def test_a_report_is_small():
    ids = MessageId(2**33, 2**20, 999)
    parts = {T.of_partition(number): SentTotals(10**9, 10**12, ids, ids) for number in range(30)}
    assert len(pickle.dumps(TaskReport.of(parts))) < 2048


def test_parts_add_up():
    early, late = MessageId(9, 5, 3), MessageId(10, 0)
    total = add_up([{T: sent(1, late, late)}, {T: sent(2, early, early)}, {T: sent(4, None, None)}])
    assert total == {T: sent(7, early, late)}


def test_one_line_says_what_is_written(caplog):
    one, two = MessageId(1, 2, 0), MessageId(1, 9, 7)
    reports = [TaskReport.of({T.of_partition(10): sent(2, one, one)}), TaskReport.of({})]
    reports.append(
        TaskReport.of({T.of_partition(10): sent(3, two, two), T.of_partition(9): sent(1, None, None)})
    )
    with caplog.at_level(logging.INFO, report.__name__):
        report_batch(reports, {}, 4, f"{__name__}.note")
    (line,) = caplog.messages
    assert line == (
        "micro-batch 4 is written: 6 messages, 60 bytes to 2 topic partitions; "
        "persistent://public/default/t-partition-9: 1 messages, 10 bytes; "
        "persistent://public/default/t-partition-10: 5 messages, 50 bytes from 1:2:0 to 1:9:7"
    )
    name = "persistent://public/default/t-partition-"
    assert [
        (
            4,
            [
                TopicPartitionMetrics(name + "9", 1, 10, None, None),
                TopicPartitionMetrics(name + "10", 5, 50, one, two),
            ],
        )
    ] == REPORTED


def test_what_may_be_there_twice_is_told_to_all(caplog, monkeypatch):
    told = []
    monkeypatch.setattr(report, "add_sink_totals", lambda *what: told.append(what))
    one, two = T.of_partition(0), T.of_partition(1)
    reports = [
        TaskReport.of({one: SentTotals(3, 30, found=2)}, query="q", retries=2),
        TaskReport.of({one: SentTotals(4, 40, found=1)}, query="q", retries=1),
        TaskReport.of({}, query="q"),
    ]
    report_batch(reports, {one: 3, two: 5}, 4, f"{__name__}.note")
    (line,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert line == (
        "micro-batch 4 ran before, and its rows differed or could not be compared: no row is missing, and "
        f"up to 8 messages may be duplicated ({one}: 3, {two}: 5)"
    )
    assert told == [("q", SinkTotals(7, 70, 8, 3))]
    ((_, metrics),) = REPORTED
    assert [(each.topic, each.messages, each.possible_duplicates) for each in metrics] == [
        (str(one), 7, 3),
        (str(two), 0, 5),
    ]


def test_a_plain_batch_write_has_no_listener(caplog, monkeypatch):
    monkeypatch.setattr(report, "add_sink_totals", None)
    report_batch([TaskReport.of({T: SentTotals(3, 30, found=2)})], {T: 2}, None, None)
    assert "up to 2 messages may be duplicated" in caplog.text


def test_many_partitions_stay_one_line(caplog):
    parts = {T.of_partition(number): sent(1, None, None) for number in range(100)}
    with caplog.at_level(logging.INFO, report.__name__):
        report_batch([TaskReport.of(parts)], {}, None, None)
    (line,) = caplog.messages
    assert line.startswith("the batch is written: 100 messages, 1000 bytes to 100 topic partitions; ")
    assert line.endswith("; and 70 more")


@pytest.mark.parametrize("name", ["fail", "missing"])
def test_what_goes_wrong_in_the_users_function_is_logged(caplog, name):
    report_batch([], {}, 0, f"{__name__}.{name}")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "onBatchWritten failed" in record.message
    assert record.exc_info is not None
