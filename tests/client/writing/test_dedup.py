"""DedupTask: rows of a micro-batch are stored once, however often their task is run."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import closing

import pyarrow as pa
import pytest

from pulsar_spark.client import (
    Encryptor,
    ProducerCryptoFailureAction,
    TopicWriter,
    UserCode,
    last_sequence_id,
)
from pulsar_spark.errors import CryptoError, DuplicatesError, NotAllowedError, OptionError, SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.replay.task_ids import TaskIds
from pulsar_spark.protocol.writing.batcher import BatcherBuilder
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import TOPIC, client_of, columns, hurry, numbered, producing
from tests.client.writing import dedup_tasks
from tests.client.writing.dedup_tasks import NAME, SECRET, open_writer, run, task_of
from tests.client.writing.replays import Replays
from tests.fake_broker import FakeBroker, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.fake_topics import section_of
from tests.loops import a_few_of
from tests.writes import write_all

pytestmark = pytest.mark.usefixtures("quick_searches")
broker = dedup_tasks.broker


def ids_of(topic):
    return [entry.metadata.sequence_id for entry in topic.entries]


# ---- the same rows again


@pytest.mark.parametrize("options", [{}, {"batching": False}, {"compression": pb.LZ4}])
def test_what_is_stored_is_left_out(client, topic, options, caplog):
    for _ in range(3):
        _, count = run(client, numbered(10), **options)
        assert count == 10
    assert topic.values == numbered(10) if not options.get("compression") else len(topic.entries) == 3
    assert not caplog.records


@pytest.mark.parametrize("stored", [0, 1, 4, 5, 9])
@pytest.mark.parametrize(("size", "blocks"), [(1, 7), (3, 1), (100, 7)])
def test_a_run_that_was_interrupted_is_completed(client, topic, stored, size, blocks):
    """Also with other sizes of batches and of Spark's Arrow batches, and by a run that is not batched."""
    run(client, numbered(stored))
    _, count = run(client, numbered(10), batching_max_messages=size, blocks=blocks)
    assert count == 10
    assert topic.values == numbered(10)
    run(client, numbered(10), batching=False)
    assert topic.values == numbered(10)


def test_each_micro_batch_is_its_own(client, topic):
    for batch in (0, 1, 1, 2):
        run(client, numbered(5), batch)
    assert topic.values == numbered(5) * 3


@pytest.mark.parametrize("builder", BatcherBuilder)
@pytest.mark.parametrize("added", [0, 1])
def test_rows_are_found_in_whatever_partition_they_are(broker, client, builder, added):
    """The number of partitions, and so the routes of rows, may have changed since."""
    name = TopicName.parse("parted")
    broker.create(name, 3)
    rows = columns(numbered(500), key=pa.array([b"%d" % (number % 9) for number in range(500)], pa.binary()))
    for part, size in ((rows.take(pa.array(range(200))), 10), (rows, 7)):
        task = task_of(client)
        write_all(open_writer(client, task, name, batching_max_messages=size, batcher_builder=builder), part)
        task.close()
        broker.create(name, 3 + added)
    parts = [broker.topics[str(name.of_partition(number))].values for number in range(3 + added)]
    values = [value for part in parts for value in part]
    assert Counter(values) == Counter(numbered(500))
    if not added:
        by_key = [[int(value) for value in values if int(value) % 9 == key] for key in range(9)]
        assert all(numbers == sorted(numbers) for numbers in by_key)


@pytest.mark.parametrize("action", [cut, lose_answer])
def test_connections_that_are_lost_change_nothing(broker, client, topic, action):
    for at in range(6):
        broker.script(Type.SEND, [*[pass_on] * at, action, pass_on, action])
        for _ in range(2):
            run(client, numbered(30), at)
    assert topic.values == numbered(30) * 6


def test_the_version_that_an_earlier_run_wrote_by_is_known(broker, client):
    broker.create("parted", 2)
    name = TopicName.parse("parted")
    first, second = Schema(SchemaType.STRING), Schema(SchemaType.INT32)
    for schema, stored in ((first, None), (second, 0), (None, 0)):
        task, _ = run(client, numbered(1), topic=name, schema=schema)
        assert task.stored_version(name) == stored
        assert task.stored_version(TOPIC) is None
    task, _ = run(client, numbered(1), batch=1, topic=name, schema=second)
    assert task.stored_version(name) is None


def test_the_same_bytes_of_another_version_are_another_row(client, topic):
    for schema in (Schema(SchemaType.STRING), Schema(SchemaType.INT32)):
        run(client, numbered(3), schema=schema)
    assert topic.values == numbered(3) * 2


def test_a_writer_that_is_opened_again_goes_on(broker, client, topic):
    """Writers may be closed and opened while a task runs, where it writes to many topics."""
    for _ in range(2):
        task = task_of(client)
        for first in range(0, 12, 4):
            write_all(open_writer(client, task), columns(numbered(4, first)))
        assert topic.values == numbered(12)
        task.close()


def test_only_the_first_entry_is_sent_before_the_receipt_that_says_where_it_is(broker, client, topic):
    broker.script(Type.SEND, [silence])
    with open_writer(client, task_of(client)) as writer:
        writer.send(columns(numbered(20)))
        broker.wait_for_command(Type.SEND)
        broker.cut()
        writer.flush()
    assert topic.values == numbered(20)
    assert len(broker.seen(Type.SEND)) == 6


# ---- refused entries, early ends


@pytest.mark.parametrize("error", [pb.NotAllowedError, pb.ChecksumError, pb.PersistenceError])
@pytest.mark.parametrize("at", range(5))
def test_a_refused_entry_is_sent_by_a_later_run(broker, client, topic, at, error, caplog):
    """Later entries of the pipeline are stored, so the refused ids can never be stored under the name."""
    broker.script(Type.SEND, [*[pass_on] * at, refuses(error), *[pass_on] * 20, *[refuses(error)] * 20])
    failed = 0
    for _ in range(5):
        try:
            run(client, numbered(20), strict=True, send_timeout=1.0)
        except (NotAllowedError, SendError):
            failed += 1
        else:
            break
        if failed == 2:
            broker.script(Type.SEND, [])
    assert Counter(topic.values) == Counter(numbered(20))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("builder", BatcherBuilder)
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_early_ends_double_nothing_and_are_no_difference(client, topic, strict, builder, step, caplog):
    """Spark ends the rows of a task early if a step before it fails: it looks as if there were no more."""
    for end in [39, *range(0, 41, step), 20, 40]:
        task, _ = run(client, numbered(end), strict=strict, blocks=3, batcher_builder=builder)
    assert task.told == 0
    assert topic.values == numbered(40)
    assert not caplog.records


# ---- other rows


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("other", [0, 4, 9])
def test_rows_that_differ_are_told_or_refused(broker, client, topic, other, strict, caplog):
    run(client, numbered(10))
    values = numbered(14)
    values[other] = b"other"
    if strict:
        with pytest.raises(DuplicatesError, match=r"PULSAR_DUPLICATES.*differs.*failOnDuplicates") as raised:
            run(client, values, strict=True)
        assert raised.value.topic == str(TOPIC)
        assert topic.values == numbered(10)
        assert broker.open_producers == []
    else:
        task, _ = run(client, values)
        assert task.told == 1
        assert Counter(topic.values) == Counter([*numbered(14), b"other"])


def test_a_checkpoint_that_was_set_back_writes_what_is_not_there(client, topic):
    for batch in (3, 4, 7):
        run(client, [b"%d" % batch], batch)
    run(client, [b"3", b"new"], 3)
    run(client, [b"5"], 5)
    assert topic.values == [b"3", b"4", b"7", b"new", b"5"]


# ---- what is stored cannot be read


def lose_entries(client, topic, broker):
    topic.roll()
    topic.trim(next(iter(topic.ledgers)))
    hurry(client, 1.0)  # an empty topic looks as if its entries were hidden


def refuse_readers(client, topic, broker):
    broker.script(Type.SUBSCRIBE, [refuses(pb.AuthorizationError, "no right to consume")])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    ("meanwhile", "why"), [(lose_entries, "may have deleted them"), (refuse_readers, "no right to consume")]
)
def test_what_cannot_be_read_is_told_or_refused(
    broker, client, topic, meanwhile, why, required, strict, caplog
):
    run(client, numbered(4), 5)
    meanwhile(client, topic, broker)
    before = topic.values
    if strict:
        with pytest.raises(DuplicatesError, match=why):
            run(client, numbered(4), 5, required=required, strict=True)
        assert topic.values == before
        assert broker.open_producers == []
    else:
        task, _ = run(client, numbered(4), 5, required=required)
        assert task.told == 4
        assert topic.values == [*before, *numbered(4)]
        assert why in caplog.text


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_part_that_was_deleted_is_told(client, topic, is_forgotten, caplog):
    """How many rows there may have been is known by the entries that are left, also without the name."""
    run(client, numbered(8), 5)
    topic.roll()
    run(client, numbered(12), 5)
    topic.trim(next(iter(topic.ledgers)))
    if is_forgotten:
        topic.stored_ids.clear()
    task, _ = run(client, numbered(12), 5)
    assert task.told == 8
    assert Counter(topic.values) == Counter(numbered(12))
    assert "the broker has deleted some of them" in caplog.text


@pytest.mark.parametrize("ledgers", [1, 2, 3])
def test_where_the_broker_has_forgotten_the_name_the_last_entries_are_looked_at(client, topic, ledgers):
    """It forgets names that were away for hours, and more than it may keep."""
    run(client, numbered(8), 5)
    topic.stored_ids.clear()
    for _ in range(1, ledgers):  # a broker begins one at each restart
        topic.roll()
        topic.append(section_of(b"other"))
    run(client, numbered(12), 5)
    assert [value for value in topic.values if value != b"other"] == numbered(12)


# ---- strangers


@pytest.mark.parametrize("block", a_few_of(2, 1))
def test_whatever_happens_each_row_is_there_once(broker, block):
    """Some topics of the model that `integration chaos replays` plays for longer."""
    events = Counter()
    for seed in range(1010 + 10 * block, 1016 + 10 * block):
        outcome = Replays(broker, seed).play()
        outcome.check()
        events += outcome.events
    assert events["crash"]
    assert events["early end"]
    assert events["two copies at once"]
    assert events["no replay"]
    assert events["stage repeated"]


# ---- whether the topic deduplicates


def test_it_is_proven_by_the_first_entry(broker, client, topic):
    task, _ = run(client, numbered(12), required=True)
    assert topic.values == numbered(12)
    first = TaskIds(SECRET, NAME, topic.name).first(0)
    assert ids_of(topic) == [first + number for number in (0, 4, 8)]
    assert task.deduplicates() is True
    registered = len(broker.seen(Type.PRODUCER))
    run(client, numbered(4), batch=1, required=True)
    assert len(broker.seen(Type.PRODUCER)) == registered + 1  # it is known from the ids that are stored


def test_without_rows_nothing_is_written(topic, client):
    task, count = run(client, [], required=True)
    assert count == 0
    assert topic.entries == []
    assert task.deduplicates() is None


@pytest.mark.parametrize("required", [True, False])
def test_a_topic_that_does_not_deduplicate(required):
    with FakeBroker() as broker, client_of(broker) as client:
        broker.create(TOPIC)
        topic = broker.topics[str(TOPIC)]
        if required:
            with pytest.raises(OptionError, match="the broker has deduplication disabled") as caught:
                run(client, numbered(12), required=True)
            assert caught.value.topic == str(TOPIC)
            assert topic.values == numbered(4)
            broker.deduplicates = True
            run(client, numbered(12), required=True)
        else:
            task, _ = run(client, numbered(12))
            assert task.deduplicates() is False
        assert topic.values == numbered(12)


@pytest.mark.parametrize("names", [["parted", "parted-partition-1"], ["parted-partition-1", "parted"]])
def test_a_topic_and_its_partition_are_not_both_named(broker, client, names):
    """The task would have to wait for its own producer."""
    broker.create("parted", 2)
    first, second = map(TopicName.parse, names)
    with closing(task_of(client)) as task, open_writer(client, task, first):
        with pytest.raises(OptionError, match="also one of its partitions") as caught:
            open_writer(client, task, second)
        assert caught.value.topic == str(second)
    assert broker.open_producers == []


def test_partitions_may_be_named_one_by_one(broker, client):
    broker.create("parted", 2)
    names = [TopicName.parse("parted").of_partition(number) for number in range(2)]
    with closing(task_of(client)) as task:
        for name in names:
            run(client, numbered(4), topic=name, task=task)
    assert [broker.topics[str(name)].values for name in names] == [numbered(4)] * 2


def test_ids_of_the_rows_own_are_refused(client, topic):
    rows = columns(numbered(1), sequence_id=pa.array([7]))
    with open_writer(client, task_of(client)) as writer:
        with pytest.raises(OptionError, match="effectively-once"):
            writer.send(rows)
        writer.flush()
    assert topic.entries == []


class NoKeys:
    """It has no key, so payloads are sent as they are."""

    def get_public_key(self, name, metadata):
        raise CryptoError("no key")

    get_private_key = get_public_key


def test_where_only_encrypted_messages_are_taken():
    with FakeBroker(deduplicates=True, requires_encryption=True) as broker, client_of(broker) as client:
        broker.create(TOPIC)
        with pytest.raises(NotAllowedError, match="Encryption is required"):
            run(client, numbered(4))
        encryptor = Encryptor(NoKeys(), ["a"], ProducerCryptoFailureAction.SEND)
        task, code = task_of(client), UserCode(encryptor=encryptor)
        write_all(TopicWriter(client, TOPIC, producing(), dedup=task, code=code), columns(numbered(4)))
        assert task.deduplicates() is True
        assert last_sequence_id(client, TOPIC, NAME, is_encrypted=True) >= 1 << 32


def test_the_last_id_of_a_name(broker, client):
    assert last_sequence_id(client, TOPIC, NAME, is_encrypted=False) == -1
    run(client, numbered(4))
    assert (
        last_sequence_id(client, TOPIC, NAME, is_encrypted=False)
        == TaskIds(SECRET, NAME, str(TOPIC)).first(0) + 3
    )
    assert broker.open_producers == []
