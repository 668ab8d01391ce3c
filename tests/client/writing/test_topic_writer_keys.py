"""TopicWriter and keys: batches of one key, keys as bytes, and what entries say of them."""

import random
from contextlib import closing, suppress
from itertools import pairwise

import pyarrow as pa
import pytest

from pulsar_spark.client import BatcherBuilder, DedupTask, Origin, TaskPlace, TopicWriter
from pulsar_spark.client.writing import topic_writer
from pulsar_spark.errors import SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire.columns.entry_messages import decode_batches
from tests.client.clients import TOPIC, client_of, columns, numbered, producing
from tests.client.writing.told import new_origin, told
from tests.client.writing.topic_writers import LATE
from tests.fake_broker import FakeBroker, pass_on, silence
from tests.fake_clients import Type
from tests.fake_topics import split_section
from tests.loops import a_few_of
from tests.writes import send_all, write_all

COUNT = 3


def open_writer(client, topic=TOPIC, *, dedup=None, place=None, **options):
    options = {"batcher_builder": BatcherBuilder.KEY_BASED, "batching_max_publish_delay": LATE, **options}
    return TopicWriter(client, topic, producing(**options), dedup=dedup, place=place)


def binaries(*texts):
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def parted(broker):
    broker.create("parted", COUNT)
    return TopicName.parse("parted")


def entries_of(broker, topic=TOPIC):
    """What each entry's metadata says of its key, and the values of its messages."""
    found = []
    stored = broker.topics[str(topic)]
    for entry in filter(stored.is_visible, stored.entries):
        metadata, payload = split_section(entry.section)
        messages = decode_batches([bytes(payload)], [metadata.num_messages_in_batch]).columns
        key = metadata.ordering_key if metadata.HasField("ordering_key") else metadata.partition_key
        found.append((key.decode(), b"".join(messages.value.to_pylist()).decode()))
    return found


def ids_of(broker, topic=TOPIC):
    """The first and the last sequence id of each entry."""
    entries = broker.topics[str(topic)].entries
    return [(entry.metadata.sequence_id, entry.metadata.highest_sequence_id) for entry in entries]


# ---- batches of one key


def test_each_batch_has_one_key_and_each_key_its_order(broker, client):
    """Keys are sent in the order of their first rows; what has none is together, too."""
    broker.create(TOPIC)
    with open_writer(client) as writer:
        writer.send(columns(numbered(8), key=binaries("a", "b", "a", None, "c", "b", None, "a")))
        send_all(writer, columns([b"x", b"y"], key=binaries("b", "a")))
    assert entries_of(broker) == [("a", "027y"), ("b", "15x"), ("", "36"), ("c", "4")]
    assert ids_of(broker) == [(0, 3), (4, 6), (7, 8), (9, 9)]


def test_the_ordering_key_wins(broker, client):
    broker.create(TOPIC)
    rows = columns(
        numbered(5), key=binaries("a", "b", "a", "o", None), ordering_key=binaries("o", "o", None, None, "p")
    )
    write_all(open_writer(client), rows)
    assert entries_of(broker) == [("o", "013"), ("a", "2"), ("p", "4")]


@pytest.mark.parametrize(
    "limit", [{"batching_max_messages": 2}, {"batching_max_bytes": 20, "batching_max_messages": 0}]
)
def test_limits_of_batches_hold_for_each_key(broker, client, limit):
    broker.create(TOPIC)
    write_all(open_writer(client, **limit), columns(numbered(8), key=binaries(*"aabaaaab")))
    assert entries_of(broker) == [("a", "01"), ("a", "34"), ("a", "56"), ("b", "27")]


def test_rows_of_a_key_are_in_one_partition_in_their_order(broker, client):
    topic, draw = parted(broker), random.Random(1)
    rows = [(draw.choice([None, "a", "b", "c", "d"]), b"%d " % number) for number in range(200)]
    with open_writer(client, topic, place=TaskPlace(0, 0), batching_max_messages=7) as writer:
        for first in range(0, 200, 50):
            some = rows[first : first + 50]
            writer.send(columns([value for _, value in some], key=binaries(*(key for key, _ in some))))
        writer.flush()
    entries = [entry for part in range(COUNT) for entry in entries_of(broker, topic.of_partition(part))]
    for key in "abcd":
        expected = b"".join(value for own, value in rows if own == key).decode()
        assert "".join(values for own, values in entries if own == key) == expected
    # Rows without a key are in blocks of 7, one in each partition in turn: all of them, once.
    without = "".join(values for own, values in entries if own == "").split()
    assert sorted(without, key=int) == [value.decode().strip() for own, value in rows if own is None]


def test_rows_with_ids_keep_their_order_and_an_entry_ends_where_the_key_changes(broker, client):
    """Put together by key, a broker that deduplicates would drop ids that come after higher ones."""
    broker.create(TOPIC)
    ids = pa.array([5, 6, 8, 9, 10, 11], pa.int64())
    with open_writer(client) as writer:
        writer.send(columns(numbered(6), key=binaries(*"aabbab"), sequence_id=ids))
        writer.send(columns([b"x"], key=binaries("b"), sequence_id=pa.array([12], pa.int64())))
        send_all(writer, columns([b"y"], key=binaries("b")))
    assert entries_of(broker) == [("a", "01"), ("b", "23"), ("a", "4"), ("b", "5"), ("b", "x"), ("b", "y")]
    assert ids_of(broker) == [(5, 6), (8, 9), (10, 10), (11, 11), (12, 12), (13, 13)]


def test_rows_wait_for_others_of_their_key_until_a_window_is_full(broker, client, monkeypatch):
    """A row takes 10 bytes."""
    monkeypatch.setattr(topic_writer, "_WINDOW", 40)
    broker.create(TOPIC)
    with open_writer(client) as writer:
        writer.send(columns(numbered(3), key=binaries(*"aba")))
        assert broker.seen(Type.SEND) == []
        writer.send(columns(numbered(6, 3), key=binaries(*"babbbb")))
        broker.wait_for(lambda: entries_of(broker) == [("a", "02"), ("b", "13"), ("a", "4"), ("b", "567")])
        writer.flush()
        assert entries_of(broker)[4:] == [("b", "8")]


def test_one_row_whose_key_does_not_fit_twice_keeps_the_others_back():
    with FakeBroker(max_message_size=10_000) as broker, client_of(broker) as client:
        topic = parted(broker)
        rows = columns([b"x", b"y"], key=binaries("a", "k" * 8_000))
        with open_writer(client, topic) as writer:
            writer.send(rows)
            with pytest.raises(SendError, match="does not fit"):
                writer.flush()
        assert broker.seen(Type.SEND) == []
        write_all(open_writer(client, topic, batcher_builder=BatcherBuilder.DEFAULT), rows)


# ---- batches of several keys


def test_a_batch_of_several_keys_says_the_first(broker, client):
    broker.create(TOPIC)
    with open_writer(client, batcher_builder=BatcherBuilder.DEFAULT, batching_max_messages=2) as writer:
        send_all(writer, columns(numbered(6), key=binaries("a", "b", None, "a", "c", None)))
    assert entries_of(broker) == [("a", "01"), ("", "23"), ("c", "45")]


# ---- deduplication

ROWS = columns(numbered(10), key=binaries(*"abcabcaaba"))


def run_once(client, topic, rows, cuts, **options):
    """One run of a task over the rows, in sends that end at ``cuts``; all of its rows are stored then.

    Returns:
        How many of its rows are stored, and how many messages may be duplicated.
    """
    task = DedupTask(client, "query-0", new_origin(0, 0, 0), b"secret", required=True)
    with closing(task), open_writer(client, topic, dedup=task, **options) as writer:
        for first, last in pairwise([0, *cuts]):
            writer.send(rows.take(pa.array(range(first, last), pa.int64())))
        writer.flush()
        task.finish()
        parts = [*task.sent.values(), *writer.sent.values()]
        return sum(each.messages for each in parts), told((task, writer.sent))


@pytest.mark.parametrize("stored", [1, 2, 3, 5, 9])
def test_a_run_that_was_cut_off_is_completed(stored):
    """So many entries are stored; the next run has the same rows, and other limits of batches."""
    expected = [("a", "03679"), ("b", "148"), ("c", "25")]
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        broker.create(TOPIC)
        # What the first run has sent: rows in the order of their keys.
        order = [int(number) for _, numbers in expected for number in numbers]
        run_once(client, TOPIC, ROWS.take(pa.array(order)), [stored], batching_max_messages=1)
        for limit in (3, 100):
            assert run_once(client, TOPIC, ROWS, [10], batching_max_messages=limit) == (10, 0)
        found = {}
        for key, values in entries_of(broker):
            found[key] = found.get(key, "") + values
        assert list(found.items()) == expected


def check_order(broker, topic, keys):
    """Each row is stored once, and those of a key in their order."""
    parts = [broker.topics[str(topic.of_partition(part))].values for part in range(COUNT)]
    together = [int(value) for part in parts for value in part]
    assert sorted(together) == list(range(len(keys)))
    for key in set(keys) - {None}:
        own = [number for number in together if keys[number] == key]
        assert own == sorted(own), key


@pytest.mark.parametrize("seed", a_few_of(24, 8))
def test_runs_that_fail_anywhere_store_each_row_once(seed, monkeypatch, caplog):
    """Runs end early, or are cut off with some of their entries stored.

    Each gets its rows in other portions, and makes other batches, of one key or of several, or none.
    """
    draw = random.Random(seed)
    count = draw.choice([20, 60])
    keys = [draw.choice([None, "a", "b", "c", "d"]) for _ in range(count)]
    rows = columns([b"%d " % number for number in range(count)], key=binaries(*keys))

    def run(end, **options):
        monkeypatch.setattr(topic_writer, "_WINDOW", draw.choice([40, 150, 1000]))
        sends = sorted(draw.randint(0, end) for _ in range(2))
        kind = draw.choice([BatcherBuilder.KEY_BASED, BatcherBuilder.KEY_BASED, BatcherBuilder.DEFAULT])
        options |= {"batching": draw.random() < 0.8, "batcher_builder": kind}
        options |= {"batching_max_messages": draw.choice([1, 2, 7, 1000])}
        return run_once(client, topic, rows, [*sends, end], **options)

    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = parted(broker)
        for _ in range(draw.randint(1, 4)):
            end = draw.randint(0, count)
            broker.script(Type.SEND, [pass_on] * draw.randint(0, 9) + [silence] * 5 * count)
            with suppress(SendError):
                run(end, send_timeout=0.05)
            broker.script(Type.SEND, [])
            if draw.random() < 0.5:
                assert run(end)[0] == end  # Spark has ended its rows: the driver is not asked
        assert run(count) == (count, 0)
        check_order(broker, topic, keys)
    assert not caplog.messages


def test_rows_without_keys_go_to_the_same_partitions_in_each_run():
    with FakeBroker(deduplicates=True) as broker, client_of(broker) as client:
        topic = parted(broker)
        for batch in (0, 0, 1, 1, 4):
            task = DedupTask(client, "query-1", Origin(batch, 1, 0), b"secret", required=True)
            with closing(task), open_writer(client, topic, dedup=task) as writer:
                send_all(writer, columns(numbered(2, 2 * batch)))
        parts = [broker.topics[str(topic.of_partition(part))].values for part in range(COUNT)]
        assert parts == [[b"8", b"9"], [b"0", b"1"], [b"2", b"3"]]


# ---- keys as bytes


@pytest.mark.parametrize("batching", [True, False])
def test_keys_as_bytes_go_where_their_text_goes(broker, client, batching):
    topic = parted(broker)
    options = {"key_bytes": True, "batching": batching, "batcher_builder": BatcherBuilder.DEFAULT}
    with open_writer(client, topic, place=TaskPlace(0, 0), **options) as writer:
        send_all(writer, columns(numbered(3), key=binaries("a", "b", None)))
    found = []
    for part in range(COUNT):
        (entry,) = broker.topics[str(topic.of_partition(part))].entries
        found.append((entry.values, entry.metadata.partition_key, entry.metadata.partition_key_b64_encoded))
    # JavaStringHash of "YQ==" is 2731192, of "Yg==" 2752334.
    assert found == [([b"2"], b"", False), ([b"0"], b"YQ==", True), ([b"1"], b"Yg==", True)]


@pytest.mark.parametrize(("encoding", "key"), [("SEPARATED", "YQ=="), ("INLINE", "a")])
def test_the_keys_of_a_schema_are_sent_as_java_sends_them(broker, client, encoding, key):
    broker.create(TOPIC)
    properties = {"kv.encoding.type": encoding, "key.schema.type": "STRING", "value.schema.type": "STRING"}
    with open_writer(client, schema=Schema(SchemaType.KEY_VALUE, bytes(8), properties)) as writer:
        send_all(writer, columns(numbered(1), key=binaries("a")))
    assert entries_of(broker) == [(key, "0")]
    (entry,) = broker.topics[str(TOPIC)].entries
    assert entry.metadata.partition_key_b64_encoded == (encoding == "SEPARATED")


def test_batches_of_one_key_as_bytes(broker, client):
    broker.create(TOPIC)
    write_all(open_writer(client, key_bytes=True), columns(numbered(4), key=binaries("a", "YQ==", "a", None)))
    assert entries_of(broker) == [("YQ==", "02"), ("WVE9PQ==", "1"), ("", "3")]
