"""Each message of a micro-batch once, against the real broker: what a second run of a task does."""

import random
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import columns_of, number_of, numbered, read_topic
from integration.helpers.task_runs import NAME, SECRET, open_writer, run, task_of
from pulsar_spark.client import Client, ClientOptions, Producer, ProducerOptions
from pulsar_spark.client.net.session import Purpose
from pulsar_spark.errors import DuplicatesError, OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.replay.task_ids import TaskIds
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.columns.entry_messages import encode_singles
from pulsar_spark.wire.columns.message_columns import MessageColumns

pytestmark = pytest.mark.usefixtures("leaves_nothing")

ROWS = 600


def numbers(peer, topic):
    return [number_of(record) for record in peer.read_all(topic)]


def test_equal_runs_store_each_message_once(client, peer, once_topic, caplog):
    """With other sizes of batches, single messages between, and more of the same name in later batches."""
    records = numbered(ROWS, keys=20) + numbered(ROWS, first=ROWS)
    run(client, once_topic, records, dies_after=130, batching_max_messages=7)
    run(client, once_topic, records, dies_after=700, batching_max_messages=1000)
    run(client, once_topic, records, batching_max_messages=33)
    assert run(client, once_topic, records, batching_max_messages=50) == 0
    later = numbered(10, first=2 * ROWS, keys=3)
    run(client, once_topic, later, task_of(client, 1))
    assert run(client, once_topic, later, task_of(client, 1)) == 0
    read = peer.read_all(once_topic)
    assert sorted(map(number_of, read)) == list(range(2 * ROWS + 10))
    for key in {record.key for record in records + later if record.key}:
        ordered = [number_of(record) for record in read if record.key == key]
        assert ordered == sorted(ordered)
    assert not caplog.records


CHANGES: dict[str, dict[str, Any]] = {
    "batching": {"batching": False},
    "sizes": {"batching_max_messages": 7},
    "codec": {"compression": pb.ZSTD},
    "rows at a time": {"at_a_time": 61},
    "chunks": {"batching": False, "chunking": True, "chunk_max_message_size": 1100},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("strict", [False, True])
def test_a_run_with_other_options_stores_each_message_once(client, peer, once_topic, caplog, change, strict):
    """Keyless rows go to other partitions then."""
    records = numbered(ROWS // 2, keys=20, size=200) + numbered(ROWS // 2, first=ROWS // 2, size=200)
    run(client, once_topic, records, dies_after=ROWS - 100)
    sent = run(client, once_topic, records, task_of(client, strict=strict), **CHANGES[change])
    assert sent == 100
    assert sorted(numbers(peer, once_topic)) == list(range(ROWS))
    assert not caplog.records


CHANGED_ROWS = [("order", False), ("fewer", False), ("fewer", True), ("more", False), ("more", True)]


@pytest.mark.parametrize(("change", "strict"), CHANGED_ROWS)
def test_a_run_with_the_same_rows_stores_each_once(client, peer, once_topic, caplog, change, strict):
    """In another order; or it ends early; or rows come that the earlier run did not get to."""
    records = numbered(ROWS, keys=20)
    again = {"order": random.Random(1).sample(records, ROWS), "fewer": records[:300], "more": records}
    run(client, once_topic, records, dies_after=400)
    run(client, once_topic, again[change], task_of(client, strict=strict))
    stored = 400 if change == "fewer" else ROWS
    assert sorted(numbers(peer, once_topic)) == list(range(stored))
    run(client, once_topic, records, task_of(client, strict=strict))
    assert sorted(numbers(peer, once_topic)) == list(range(ROWS))
    assert not caplog.records


def test_a_strict_run_sends_nothing_before_all_stored_rows_are_found(client, peer, once_topic):
    """Each new row may be one that is stored with another value, as far as it knows."""
    records = numbered(ROWS, keys=20)
    again = random.Random(1).sample(records, ROWS)
    run(client, once_topic, records, dies_after=400)
    lacking = [record for record in again if number_of(record) != 7]
    with pytest.raises(DuplicatesError, match="None of these rows is sent"):
        run(client, once_topic, lacking, task_of(client, strict=True))
    assert sorted(numbers(peer, once_topic)) == list(range(400))
    run(client, once_topic, again, task_of(client, strict=True))
    assert sorted(numbers(peer, once_topic)) == list(range(ROWS))
    assert run(client, once_topic, again, task_of(client, strict=True)) == 0


# Rows that differ in one thing; their order within each column is that of the rows.
KINDS = MessageColumns(
    value=pa.array([b"v", b"", None, b"v", b"v", b"v", b"v", b"v", b"v", b"v"], pa.binary()),
    key=pa.array([None, None, None, b"", b"k", b"\xff", None, None, None, b"k"], pa.binary()),
    event_time=pa.array([None] * 6 + [5, None, None, None], pa.int64()),
    properties=pa.array(
        [[], [], [], [], [], [], [], [("b", "1"), ("a", ""), ("b", "1")], [], []],
        pa.map_(pa.string(), pa.string()),
    ),
    ordering_key=pa.array([None] * 8 + [b"o", b""], pa.binary()),
)


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("change", [{}, {"key_bytes": True}, {"batching": "other"}, {"compression": pb.LZ4}])
def test_rows_of_all_kinds_are_stored_once(client, peer, once_topic, batching, change):
    """Rows without a value, too, whose keys are no texts or empty; each differs from all others."""

    def write(columns, **options):
        with (
            closing(task_of(client, strict=True)) as task,
            closing(open_writer(client, once_topic, task, **options)) as writer,
        ):
            writer.send(columns)
            writer.flush()
            return sum(each.messages for each in writer.sent.values())

    count, half = len(KINDS), KINDS.take(pa.array(range(0, len(KINDS), 2)))
    assert write(half, batching=batching) == len(half)
    again = {"batching": batching, **change}
    if change.get("batching"):
        again["batching"] = not batching
    assert write(KINDS, **again) == count - len(half)
    assert write(KINDS, batching=batching) == 0
    assert len(peer.read_all(once_topic)) == count


def test_effectively_once_is_proven_by_the_first_entry(client, peer, once_topic, admin, topic):
    """Nothing but rows is in the topic, whatever client reads it."""
    for batch in range(2):
        rows = numbered(10, first=10 * batch, keys=5)
        run(client, once_topic, rows, task_of(client, batch, required=True))
    assert sorted(numbers(peer, once_topic)) == list(range(20))
    assert sorted(number_of(record) for record in read_topic(client, once_topic)) == list(range(20))
    admin.create_topic(topic)
    records = numbered(30)
    for _ in range(2):
        with pytest.raises(OptionError, match=r"first rows .* are stored.*set-deduplication"):
            run(client, topic, records, task_of(client, required=True), batching_max_messages=10)
    assert number_of(next(iter(peer.read_all(topic)))) == 0
    run(client, topic, records, batching_max_messages=10)
    assert Counter(numbers(peer, topic)) == Counter(range(30))
    assert [number_of(record) for record in read_topic(client, topic)] == numbers(peer, topic)


class SpiedClient(Client):
    """A client that calls ``before`` with each topic partition that it looks up to write to."""

    def __init__(self, service_url, before):
        super().__init__(ClientOptions(service_url=service_url))
        self._before = before

    def locate(self, topic, purpose, deadline):
        """As that of every client."""
        if purpose is Purpose.WRITE:
            self._before(topic)
        return super().locate(topic, purpose, deadline)


def test_copies_of_a_task_do_not_wait_for_each_other(cluster, peer, once_topic):
    """One gives its first name away to prove deduplication, and has others; the other copy comes then."""
    records = numbered(ROWS, keys=20)
    first, second = (TopicName.parse(once_topic).of_partition(number) for number in range(2))
    by_one: list[TopicName] = []
    by_other: list[TopicName] = []
    copies: list[Future[int]] = []

    def let_the_other_in(topic):
        if topic == first and second in by_one and not copies:
            copies.append(threads.submit(run, other, once_topic, records, task_of(other, required=True)))
            wait_until(lambda: second in by_other)
        by_one.append(topic)

    with (
        SpiedClient(cluster.service_url, let_the_other_in) as one,
        SpiedClient(cluster.service_url, by_other.append) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        assert run(one, once_topic, records, task_of(one, required=True)) == ROWS
        assert copies[0].result() == 0
    assert sorted(numbers(peer, once_topic)) == list(range(ROWS))


def test_what_is_not_found_is_sent_again(client, peer, once_topic, caplog):
    """The ids are the query's and no entry is, as if the broker had deleted them."""
    topic = TopicName.parse(once_topic).of_partition(0)
    first = TaskIds(SECRET, NAME, str(topic)).first(0)
    with closing(Producer(client, topic, ProducerOptions(name=NAME), 1, first_sequence_id=first)) as producer:
        producer.send_singles(encode_singles(columns_of(numbered(5))))
        producer.flush()
    with pytest.raises(DuplicatesError, match="were not found"):
        run(client, str(topic), numbered(7, first=5), task_of(client, strict=True))
    run(client, str(topic), numbered(7, first=5))
    assert sorted(numbers(peer, str(topic))) == list(range(12))
    assert "were not found" in caplog.text
    caplog.clear()
    assert run(client, str(topic), numbered(7, first=5), task_of(client, strict=True)) == 0
    assert not caplog.records
