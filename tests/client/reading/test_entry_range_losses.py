"""The entries between two positions: what of them is data loss."""

import logging

import pytest

from pulsar_spark.errors import DataLossError
from pulsar_spark.ids import MessageId, TxnId
from tests.client.clients import START, TOPIC, flat, ids_of, numbered, singles
from tests.client.reading import entry_ranges
from tests.client.reading.entry_ranges import before, position, read
from tests.fake_broker import HANG, pass_on
from tests.fake_clients import Type
from tests.fake_topics import section_of
from tests.ranges import read_range

ids = entry_ranges.ids


LOSSES = {
    # name: ledgers trimmed, start, end, options, what is lost and what is still read
    "the end, and it was a message": ((0, 1), 3, 19, {}, (3, 19), (0, 0)),
    "the end, without anything after it": ((0, 1, 2), 3, 29, {}, (3, 29), (0, 0)),
    "the beginning, which nothing holds": ((0,), 3, 24, {"begins": -1}, (3, 10), (10, 25)),
    "all, which nothing holds": ((0, 1), 3, 15, {"begins": -1, "visible": False}, (3, 15), (0, 0)),
    "the first messages of a stream's range": ((0,), 3, 24, {"begins": 3}, (3, 10), (10, 25)),
    "the same, after the last message of a ledger": ((0, 1), 9, 24, {"begins": 9}, (9, 20), (20, 25)),
    "a part": ((0, 1), 11, 15, {"begins": 3, "visible": False, "followed": True}, (11, 15), (0, 0)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("fails", [True, False])
def test_what_was_removed_is_lost(broker, client, ids, topic, caplog, name, fails):
    trimmed, first, last, options, lost, left = LOSSES[name]
    options = dict(options)
    if "begins" in options:
        options["begins"] = position(ids, options["begins"])
    for ledger in trimmed:
        topic.trim(ids[10 * ledger].ledger)
    if fails:
        with pytest.raises(DataLossError) as caught:
            read(client, ids[first], ids[last], **options)
        assert f"messages in ({ids[lost[0]]}, " in str(caught.value)
        assert caught.value.topic == str(TOPIC)
    else:
        with caplog.at_level(logging.WARNING):
            entries = read(client, ids[first], ids[last], fail_on_data_loss=False, **options)
        assert ids_of(entries) == ids[left[0] : left[1]]
        assert f"messages in ({ids[lost[0]]}, " in caplog.text


@pytest.mark.parametrize(("first", "last"), [(9, 15), (9, 29), (10, 12), (19, 29)])
@pytest.mark.parametrize("is_visible", [True, False])
def test_a_part_that_a_broker_knows_nothing_of_is_lost(broker, client, first, last, is_visible):
    """Two clusters have one name: this one has the topic, and older ledgers, if any."""
    ids = [MessageId(1000 + number // 10, number % 10) for number in range(30)]
    broker.publish(TOPIC, *singles(numbered(3)))
    with pytest.raises(DataLossError, match=f"messages in \\({ids[first]}, {ids[last]}\\] are lost"):
        read(client, ids[first], ids[last], begins=ids[0], visible=is_visible, followed=not is_visible)


def test_a_part_of_markers_and_aborted_messages_is_not_lost(broker, client, ids, topic):
    transaction = TxnId(0, 1)
    with broker.changed:
        topic.append(section_of(b"aborted"), transaction)
        topic.end(transaction, commit=False)
    end = topic.entries[-1].id
    broker.publish(TOPIC, *singles(numbered(1, 30)))
    options = {"begins": ids[0], "visible": False, "followed": True}
    assert ids_of(read(client, ids[25], end, **options)) == ids[26:]
    assert ids_of(read(client, ids[29], end, **options)) == []


# ---- a new ledger: the broker moves readers from the end of the one before


def leaving_ledger_ends(topic):
    """An action that does the usual, and then moves all cursors that stand at the end of a ledger."""

    def action(connection, frame):
        pass_on(connection, frame)
        topic.leave_ledger_ends()

    return action


@pytest.mark.parametrize("options", [{}, {"begins": 9}, {"begins": -1}, {"begins": 9, "visible": False}])
@pytest.mark.parametrize(("first", "last"), [(9, 12), (9, 29), (19, 29)])
def test_a_reader_that_begins_at_the_end_of_a_ledger_has_lost_nothing(
    broker, client, ids, topic, options, first, last
):
    """A broker moves it to the next ledger, and keeps the one before."""
    options = {name: position(ids, value) if name == "begins" else value for name, value in options.items()}
    broker.script(Type.SUBSCRIBE, [leaving_ledger_ends(topic)] * 99)
    assert ids_of(read(client, ids[first], ids[last], **options)) == ids[first + 1 : last + 1]


@pytest.mark.parametrize("begins", [None, -1])
@pytest.mark.parametrize("at", [10, 20])
def test_a_reader_that_subscribes_again_at_the_end_of_a_ledger_has_lost_nothing(
    broker, client, ids, topic, begins, at
):
    """As after a broker was killed."""
    entries = []
    begins = begins and position(ids, begins)
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1, begins=begins):
        entries += group
        if len(entries) == at:
            broker.script(Type.SUBSCRIBE, [leaving_ledger_ends(topic)] * 99)
            broker.cut()
    assert ids_of(entries) == ids


@pytest.mark.parametrize("fails", [True, False])
def test_a_ledger_that_is_removed_while_it_is_read_is_lost(broker, client, topic, fails, caplog):
    """The broker goes on with the next ledger and says nothing."""
    ids = broker.publish(TOPIC, *singles(numbered(20)))  # more than is asked for at first
    for first in (20, 25):
        topic.roll()
        ids += broker.publish(TOPIC, *singles(numbered(5, first)))
    options = {"begins": before(ids[0]), "fail_on_data_loss": fails, "window_bytes": 1}
    ranges = flat(read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, **options))
    entries = [next(ranges)]
    with broker.changed:
        topic.trim(ids[0].ledger)
        topic.trim(ids[20].ledger)
        broker.close_all(TOPIC)
    if fails:
        with pytest.raises(DataLossError, match="while it was read"):
            entries += ranges
        assert ids_of(entries) == ids[: len(entries)]
        assert len(entries) <= 20
    else:
        entries += ranges
        assert ids_of(entries) == ids[: len(entries) - 5] + ids[25:]
        assert "while it was read" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(("last", "removed"), [(15, 2), (19, 2), (29, 3)])
def test_a_range_that_is_removed_before_its_first_entry_comes_is_lost(
    broker, client, ids, topic, caplog, fails, last, removed
):
    """As by a topic that is truncated, or deleted and created again, when a reader has just begun."""

    def removes(connection, frame):
        for ledger in range(removed):
            topic.trim(ids[10 * ledger].ledger)
        pass_on(connection, frame)

    broker.script(Type.FLOW, [removes])
    if fails:
        with pytest.raises(DataLossError, match=f"messages in \\({ids[3]}, {ids[last]}\\] are lost"):
            read(client, ids[3], ids[last])
    else:
        assert read(client, ids[3], ids[last], fail_on_data_loss=False) == []
        assert caplog.text.count("are lost") == 1
        assert f"messages in ({ids[3]}, {ids[last]}] are lost" in caplog.text
