"""The entries between two positions: readers that the broker moves, as a message TTL does."""

import pytest

from pulsar_spark.errors import DataLossError
from tests.client.clients import START, TOPIC, flat, ids_of, numbered, values_in
from tests.client.reading import entry_ranges
from tests.client.reading.entry_ranges import before, in_transactions, position, read
from tests.fake_broker import HANG, pass_on
from tests.fake_clients import Type
from tests.ranges import read_range

ids = entry_ranges.ids


def expiring(broker, topic, position):
    """An action that does the usual, and then moves all cursors over what is stored up to a position."""

    def action(connection, frame):
        pass_on(connection, frame)
        topic.expire(position)

    return action


@pytest.mark.parametrize("last", [29, 24, 8])
@pytest.mark.parametrize("expired", [0, 7, 8, 9, 20, 24, 25, 29])
@pytest.mark.parametrize("options", [{}, {"visible": False}, {"begins": -1}])
def test_what_a_reader_is_moved_over_before_it_begins_is_read(
    broker, client, ids, topic, options, expired, last
):
    options = {name: position(ids, value) if name == "begins" else value for name, value in options.items()}
    broker.script(Type.SUBSCRIBE, [expiring(broker, topic, ids[expired])])
    assert ids_of(read(client, START, ids[last], **options)) == ids[: last + 1]


@pytest.mark.parametrize("expired", [10, 17, 18, 22, 28, 29])
@pytest.mark.parametrize("at", [1, 16, 17, 25])
def test_what_a_reader_is_moved_over_while_it_reads_is_read_in_its_place(
    broker, client, ids, topic, at, expired
):
    entries = []
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1):
        entries += group
        if len(entries) == at:
            with broker.changed:
                topic.expire(ids[expired])
    assert ids_of(entries) == ids
    assert values_in(entries) == numbered(30)


@pytest.mark.parametrize("step", [1, 3])
def test_a_reader_that_is_moved_again_and_again_reads_on(broker, client, ids, topic, step):
    entries = []
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1):
        entries += group
        with broker.changed:
            topic.expire(ids[min(len(entries) + step, 29)])
    assert ids_of(entries) == ids


@pytest.mark.parametrize("fails", [True, False])
def test_what_no_reader_is_let_read_is_lost(broker, client, ids, topic, fails, caplog):
    """Retries have a bound: a broker that moves every reader at once gives nothing."""
    broker.script(Type.SUBSCRIBE, [expiring(broker, topic, ids[11])] * 99)
    if fails:
        with pytest.raises(DataLossError, match="6 readers did not receive them"):
            read(client, ids[3], ids[-1])
    else:
        assert ids_of(read(client, ids[3], ids[-1], fail_on_data_loss=False)) == ids[12:]
        assert f"messages in ({ids[3]}, {ids[11]}] are lost" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_what_a_reader_was_moved_over_and_is_gone_is_lost(broker, client, ids, topic, fails, caplog):
    """Nothing holds it any more: a message TTL moves the subscription that should."""
    options = {"window_bytes": 1, "fail_on_data_loss": fails}
    ranges = flat(read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, **options))
    entries = [next(ranges) for _ in range(14)]
    with broker.changed:
        topic.trim(ids[0].ledger)
        topic.trim(ids[10].ledger)
    if fails:
        with pytest.raises(DataLossError, match="while it was read"):
            entries += ranges
        assert ids_of(entries) == ids[:16]
    else:
        entries += ranges
        assert ids_of(entries) == ids[:16] + ids[20:]
        assert f"messages in ({ids[15]}, {before(ids[20])}] are lost" in caplog.text


@pytest.mark.parametrize("expired", range(0, 30, 3))
def test_a_reader_that_is_moved_in_a_topic_full_of_markers(broker, client, topic, expired):
    ids = in_transactions(broker, topic, 20, 2)
    entries = []
    for group in read_range(client, TOPIC, START, ids[-1], poll_timeout=HANG, window_bytes=1):
        entries += group
        if len(entries) == 16:
            with broker.changed:
                topic.expire(topic.entries[expired].id)
    assert ids_of(entries) == ids
