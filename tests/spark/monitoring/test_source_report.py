"""What a source reports: counted, written as JSON, read again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.monitoring.source_report import (
    EntryMeans,
    PartitionBacklog,
    SourceReport,
    partition_backlog,
    sum_or_none,
)
from tests.loops import for_each

P0 = TopicName.parse("t-partition-0")
MEANS = EntryMeans(100.0, 5000.0)


def counted(position, planned, last, entries=None, means=MEANS):
    found = partition_backlog(P0, position=position, planned=planned, last=last, entries=entries, means=means)
    return found.entries, found.batch_entries, found.messages


@for_each(
    ("position", "planned", "last", "entries", "expected"),
    [
        (MessageId(7, 4), MessageId(7, 9), MessageId(7, 9), None, (5, 5, 500)),
        (MessageId(7, 4), MessageId(7, 6), MessageId(7, 9), None, (5, 2, 500)),
        (MessageId(7, 4), MessageId(7, 4), MessageId(7, 9), None, (5, 0, 500)),
        (MessageId(7, 9), MessageId(7, 9), MessageId(7, 9), None, (0, 0, 0)),
        (MessageId(7, 9), MessageId(7, 9), MessageId.EARLIEST, None, (0, 0, 0)),
        (MessageId(7, 4, 3), MessageId(7, 9), MessageId(7, 9), None, (6, 6, 600)),
        # Over ledgers: what the broker has counted, and one where it did not.
        (MessageId(7, 4), MessageId(9, 3), MessageId(9, 3), 40, (40, 40, 4000)),
        (MessageId(7, 4), MessageId(9, 1), MessageId(9, 3), 40, (40, 38, 4000)),
        (MessageId(7, 4), MessageId(7, 9), MessageId(9, 3), 40, (40, 5, 4000)),
        (MessageId(7, 4), MessageId(8, 2), MessageId(9, 3), 40, (40, 3, 4000)),
        (MessageId.EARLIEST, MessageId(9, 3), MessageId(9, 3), None, (1, 1, 100)),
        # The broker counts none, but its last message is after the position: something waits.
        (MessageId(7, 4), MessageId(7, 4), MessageId(9, 3), 0, (1, 0, 100)),
        (MessageId(7, 4), MessageId(9, 3), MessageId(9, 3), 0, (1, 1, 100)),
        (MessageId(0, 4), MessageId(0, 4), MessageId(0, 9), None, (5, 0, 500)),
        (MessageId(7, 4), MessageId(9, 3), MessageId(9, 3), -67, (1, 1, 100)),
    ],
)
def test_what_waits_in_a_partition(position, planned, last, entries, expected):
    assert counted(position, planned, last, entries) == expected


def test_messages_are_not_known_before_the_first_probe_but_none_are_none():
    assert counted(MessageId(7, 4), MessageId(7, 9), MessageId(7, 9), means=None) == (5, 5, None)
    assert counted(MessageId(7, 9), MessageId(7, 9), MessageId(7, 9), means=None) == (0, 0, 0)


def test_the_end_is_not_before_where_the_query_stands():
    found = partition_backlog(
        P0,
        position=MessageId(7, 1),
        planned=MessageId(7, 9),
        last=MessageId.EARLIEST,
        entries=None,
        means=None,
    )
    assert (found.topic, found.partition, found.end) == ("persistent://public/default/t", "0", "7:9")


backlogs = st.builds(
    lambda topic, partition, end, entries, batch, messages: PartitionBacklog(
        topic, str(partition), end, entries, min(batch, entries), messages
    ),
    st.sampled_from(["a", "b", '"\\<'] * 2),
    st.integers(-1, 3),
    st.sampled_from(["1:2", "-1:-1"]),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.none() | st.integers(0, 10**12),
)
reports = st.builds(
    SourceReport,
    st.sampled_from(["1-a", "2-b"]),
    st.text(),
    st.integers(0, 10**13),
    st.integers(0, 10**13),
    # In the order of topics, as planners give them: JSON groups partitions by topic.
    st.lists(backlogs, unique_by=lambda each: each[:2]).map(
        lambda found: tuple(sorted(found, key=lambda each: each[:2]))
    ),
    st.none() | st.integers(0, 10**15),
    st.integers(0, 9),
    st.integers(0, 9),
)


@given(reports)
def test_a_report_comes_back_as_it_was(report):
    text = json.dumps(report.to_json())
    assert SourceReport.parse(text) == report
    found = json.loads(text)
    assert found["backlogEntries"] == sum(each.entries for each in report.partitions)
    assert found.get("backlogMessagesEstimate") == sum_or_none([each.messages for each in report.partitions])


@given(reports)
def test_after_an_idle_trigger_what_the_batch_left_is_there(report):
    idle = report.when_idle()
    for before, after in zip(report.partitions, idle.partitions, strict=True):
        assert after.entries == before.entries - before.batch_entries
        assert after.batch_entries == 0
        assert (after.messages is None) == (before.messages is None)
        if after.entries == 0 and before.entries:
            assert not after.messages
    assert idle.when_idle() == idle


@pytest.mark.parametrize(
    "text", [None, "", "null", "{}", '{"topics": {}}', '{"logOffset": 3}', "[1]", "7", "x"]
)
def test_other_sources_are_passed_over(text):
    assert SourceReport.parse(text) is None


@pytest.mark.parametrize(
    "change",
    [
        {"topics": None},
        {"topics": []},
        {"topics": {"t": []}},
        {"topics": {"t": {"0": "12:99"}}},
        {"topics": {"t": {"0": {}}}},
        {"topics": {"t": {"0": {"end": "1:1", "backlogEntries": "?", "batchEntries": 0}}}},
        {"timeMs": None},
        {"retries": "many"},
        {"batchBytesEstimate": []},
    ],
)
def test_a_report_of_ours_that_cannot_be_read_is_an_error(change):
    report = SourceReport("1-a", "s", 1, 2, (), None, 0, 0, service_url="pulsar://host:6650")
    good = report.to_json()
    assert SourceReport.parse(json.dumps(good)) == report
    with pytest.raises(ValueError, match=r"report|invalid literal"):
        SourceReport.parse(json.dumps(good | change))


def test_a_sum_of_what_is_not_all_known_is_not_known():
    assert sum_or_none([]) == 0
    assert sum_or_none([1, 2]) == 3
    assert sum_or_none([1, None]) is None
