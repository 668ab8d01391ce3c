"""DedupTask: rows of a micro-batch are stored once, however often their task is run."""

import pyarrow as pa
import pytest

from pulsar_spark.client import (
    DedupTask,
    Encryptor,
    Origin,
    ProducerCryptoFailureAction,
    TopicWriter,
    UserCode,
    last_sequence_id,
)
from pulsar_spark.errors import (
    AuthError,
    CryptoError,
    DuplicatesError,
    NotAllowedError,
    OptionError,
    SendError,
)
from pulsar_spark.ids import TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.schemas.schema import Schema, SchemaType
from tests.client.clients import TOPIC, client_of, columns, hurry, numbered, producing
from tests.fake_broker import FakeBroker, cut, lose_answer, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.fake_topics import section_of


@pytest.fixture
def broker():
    with FakeBroker(deduplicates=True) as broker:
        broker.create(TOPIC)
        yield broker


@pytest.fixture
def topic(broker):
    return broker.topics[str(TOPIC)]


SECRET = b"only the query knows this"


def task_of(client, batch=0, *, required=True, strict=False, name="query-0", **given):
    return DedupTask(client, name, Origin(batch, 0, 0), SECRET, required=required, strict=strict, **given)


def open_writer(client, task, topic=TOPIC, **options):
    options = {"batching_max_publish_delay": 1000.0, "batching_max_messages": 4, **options}
    return TopicWriter(client, topic, producing(**options), dedup=task)


def run(client, values, batch=0, *, required=True, finish=True, topic=TOPIC, **options):
    """One run of a task, which is interrupted where it does not finish; gives the task and what was sent."""
    task = task_of(client, batch, required=required)
    with open_writer(client, task, topic, **options) as writer:
        writer.send(columns(values))
        writer.flush()
        return task, sum(part.messages for part in (*writer.sent.values(), *task.sent.values()))


def names_of(topic):
    return {entry.metadata.producer_name.decode() for entry in topic.entries if topic.is_visible(entry)}


# ---- the same rows again


@pytest.mark.parametrize("batching", [True, False])
def test_what_is_stored_is_left_out(broker, client, topic, batching):
    for _ in range(3):
        _, sent = run(client, numbered(10), batching=batching)
        assert sent == 10
    assert topic.values == numbered(10)
    assert names_of(topic) == {"query-0"}


@pytest.mark.parametrize("stored", [1, 4, 5, 9])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_run_that_was_interrupted_is_completed(broker, client, topic, stored, size):
    """Also with other sizes of batches, which need not be the same in each run."""
    run(client, numbered(stored), finish=False)
    _, sent = run(client, numbered(10), batching_max_messages=size)
    assert sent == 10
    assert topic.values == numbered(10)
    assert names_of(topic) == {"query-0"}


def test_each_micro_batch_is_its_own(broker, client, topic):
    for batch in (0, 1, 1, 2):
        run(client, numbered(5, 5 * batch), batch)
    assert topic.values == numbered(15)


def test_rows_go_to_the_same_partitions_again(broker, client):
    broker.create("parted", 3)
    name = TopicName.parse("parted")
    for _ in range(2):
        run(client, numbered(2500), topic=name, batching_max_messages=100)
    found = [broker.topics[str(name.of_partition(number))].values for number in range(3)]
    assert found == [numbered(1000), numbered(1000, 1000), numbered(500, 2000)]


@pytest.mark.parametrize("action", [cut, lose_answer])
def test_connections_that_are_lost_change_nothing(broker, client, topic, action):
    broker.script(Type.SEND, [pass_on, pass_on, action, pass_on, action])
    for _ in range(2):
        run(client, numbered(30))
    assert topic.values == numbered(30)


def test_the_version_that_an_earlier_run_wrote_by_is_known(broker, client):
    broker.create("parted", 2)
    name = TopicName.parse("parted")
    first, second = Schema(SchemaType.STRING), Schema(SchemaType.INT32)
    for schema, stored in ((first, None), (second, 0), (None, 0)):
        task, _ = run(client, numbered(1), topic=name, schema=schema)
        assert task.stored_version(name) == stored
        assert task.stored_version(name.of_partition(1)) == stored
        assert task.stored_version(TOPIC) is None
    task, _ = run(client, numbered(1), batch=1, topic=name, schema=second)
    assert task.stored_version(name) is None
    task, _ = run(client, numbered(1), batch=1, topic=name, schema=first)
    assert task.stored_version(name) == 1
    for _ in range(2):
        task, _ = run(client, numbered(1), batch=2, topic=name)
        assert task.stored_version(name) is None


def test_the_version_is_that_of_the_first_partition_whichever_is_opened_first(client, broker):
    broker.create("parted", 3)
    name = TopicName.parse("parted")
    for partition, schema in ((2, SchemaType.STRING), (1, SchemaType.INT32)):
        run(client, numbered(1), topic=name.of_partition(partition), schema=Schema(schema))
    for order in ((1, 2), (2, 1), (0, 2, 1)):
        with task_of(client) as task:
            for partition in order:
                task.open(name.of_partition(partition), producing(), 3).close()
            assert task.stored_version(name) == 1


# ---- other rows


@pytest.mark.parametrize("other", [0, 4, 9])
def test_other_rows_are_all_sent_under_another_name(broker, client, topic, other, caplog):
    run(client, numbered(10))
    values = numbered(10)
    values[other] = b"other"
    _, sent = run(client, values)
    assert sent == 10
    assert topic.values == numbered(10) + values
    assert len(names_of(topic)) == 2
    assert "this run of the micro-batch may differ from the earlier one" in caplog.text
    assert "its first 10 messages differ from the stored ones" in caplog.text


def test_fewer_rows_are_sent_when_no_more_come(broker, client, topic, caplog):
    run(client, numbered(10))
    with task_of(client) as task, open_writer(client, task) as writer:
        writer.send(columns(numbered(6)))
        writer.flush()
        assert topic.values == numbered(10)
        assert task.unfinished == {TOPIC}
        writer.finish()
        assert task.unfinished == set()
    assert topic.values == numbered(10) + numbered(6)
    assert "it has only 6 messages, but 10 are stored" in caplog.text


def test_a_writer_that_is_opened_again_goes_on(broker, client, topic):
    """Writers may be closed and opened while a task runs, where it writes to many topics."""
    for _ in range(2):
        with task_of(client) as task:
            for first in range(0, 12, 4):
                with open_writer(client, task) as writer:
                    writer.send(columns(numbered(4, first)))
                    writer.flush()
            with open_writer(client, task) as writer:
                writer.finish()
        assert topic.values == numbered(12)


def test_other_rows_stay_under_the_other_name_when_a_writer_is_opened_again(broker, client, topic):
    run(client, numbered(4))
    with task_of(client) as task:
        for values in ([b"a", b"b", b"c", b"d"], [b"e"]):
            with open_writer(client, task) as writer:
                writer.send(columns(values))
                writer.flush()
    assert topic.values == [*numbered(4), b"a", b"b", b"c", b"d", b"e"]
    assert last_sequence_id(client, TOPIC, "query-0", is_encrypted=False) == (1 << 32) + 3


# ---- what is stored cannot be compared


def test_where_what_is_stored_was_removed_all_is_sent(broker, client, topic, caplog):
    run(client, numbered(4))
    topic.roll()
    topic.trim(next(iter(topic.ledgers)))
    hurry(client, 1.0)
    run(client, numbered(4))
    assert topic.values == numbered(4)
    assert len(names_of(topic)) == 1
    assert "the broker may have removed it" in caplog.text


def test_an_entry_without_a_mark_cannot_be_compared(broker, client, topic, caplog):
    """It was written by another client under the name."""
    number = (1 << 32) + 1
    broker.publish(TOPIC, section_of(b"x", producer_name="query-0", sequence_id=number))
    topic.stored_ids["query-0"] = number
    run(client, numbered(4))
    assert topic.values == [b"x", *numbered(4)]
    assert "may differ from the earlier one" in caplog.text


@pytest.mark.parametrize("required", [True, False])
def test_who_may_not_read_cannot_compare(broker, client, topic, required, caplog):
    run(client, numbered(4))
    broker.script(Type.SUBSCRIBE, [refuses(pb.AuthorizationError, "no right to consume")])
    if required:
        with pytest.raises(AuthError, match="no right to consume"):
            run(client, numbered(4))
        assert topic.values == numbered(4)
        assert broker.open_producers == []
    else:
        run(client, numbered(4), required=False)
        assert topic.values == numbered(4) * 2
        assert "no right to consume" in caplog.text


def test_a_checkpoint_that_was_set_back(broker, client, topic, caplog):
    run(client, numbered(4), batch=7)
    run(client, numbered(4, 4), batch=3)
    assert topic.values == numbered(8)
    assert len(names_of(topic)) == 2
    assert "a later micro-batch is already stored" in caplog.text


def test_another_run_that_still_writes_is_an_error(broker, client, topic):
    """A task that Spark took for lost: from then on ids would not stand for these rows."""
    with task_of(client) as task:
        with open_writer(client, task) as writer:
            writer.send(columns(numbered(4)))
            writer.flush()
        topic.stored_ids["query-0"] += 4  # the other run's
        with pytest.raises(SendError, match="has written under the producer name query-0"):
            open_writer(client, task)
    assert broker.open_producers == []


def test_another_run_that_wrote_while_the_connection_was_lost_is_an_error(broker, client, topic):
    """Even with the same rows: of what was sent here nothing would be stored. The next try compares."""
    with FakeBroker(deduplicates=True) as other_broker, client_of(other_broker) as other:
        run(other, numbered(8))  # what another run of the task has to store
        sections = [one.section for one in other_broker.topics[str(TOPIC)].entries if one.messages > 1]
    broker.script(Type.SEND, [pass_on, pass_on, silence, silence])
    with task_of(client) as task, open_writer(client, task) as writer:
        writer.send(columns(numbered(12)))
        broker.wait_for_command(Type.SEND, 4)
        broker.script(Type.SEND, [])
        with broker.changed:
            broker.cut()
            topic.append(sections[1])
            topic.stored_ids["query-0"] = (1 << 32) + 7
        with pytest.raises(SendError, match="has written under the producer name query-0"):
            writer.finish()
    run(client, numbered(12))
    assert topic.values == numbered(12)
    assert names_of(topic) == {"query-0"}


# ---- how many may be there twice, and what a strict task does


def remove_last_entry(topic):
    topic.roll()
    topic.trim(next(iter(topic.ledgers)))


# What is stored of another run, what comes, in which micro-batch, how many of it may be there twice.
REPLAYS = {
    "the same": (None, numbered(10), 5, 0),
    "more": (None, numbered(14), 5, 0),
    "other rows": (None, [b"other", *numbered(12)], 5, 10),
    "fewer rows": (None, numbered(6), 5, 10),
    "no rows": (None, [], 5, 10),
    "what is stored is gone": (remove_last_entry, numbered(10), 5, 10),
    "an earlier micro-batch": (None, numbered(7), 3, 7),
    "a later micro-batch": (None, numbered(7), 6, 0),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("meanwhile", "values", "batch", "twice"), REPLAYS.values(), ids=REPLAYS.keys())
def test_what_may_be_there_twice(broker, client, topic, meanwhile, values, batch, twice, strict):
    run(client, numbered(10), 5)
    if meanwhile is not None:
        meanwhile(topic)
        hurry(client, 1.0)
    before = len(topic.values)
    with task_of(client, batch, strict=strict) as task:
        if strict and twice:
            with pytest.raises(DuplicatesError, match=r"PULSAR_DUPLICATES.*failOnDuplicates") as raised:
                send(client, task, values)
            assert raised.value.topic == str(TOPIC)
            assert len(topic.values) == before
        else:
            assert send(client, task, values) == twice
    assert broker.open_producers == []


def send(client, task, values):
    with open_writer(client, task) as writer:
        writer.send(columns(values))
        writer.finish()
        return sum(part.possible_duplicates for part in writer.sent.values())


def test_what_may_be_there_twice_is_counted_once_where_a_writer_is_opened_again(client, topic):
    run(client, numbered(4), 5)
    with task_of(client, 5) as task:
        assert [send(client, task, values) for values in ([b"a", b"b", b"c", b"d"], [b"e"])] == [4, 0]


# ---- whether the topic deduplicates


def test_it_is_proven_before_the_first_row_by_what_no_consumer_is_given(broker, client, topic):
    task, _ = run(client, numbered(4))
    proof, *rows = topic.entries
    assert not topic.is_visible(proof)
    assert proof.metadata.sequence_id == (1 << 32) - 1
    assert [entry.metadata.sequence_id for entry in rows] == [1 << 32]
    assert task.deduplicates() is True
    run(client, numbered(4, 4), batch=1)
    assert len(topic.entries) == 3  # it is known from the ids that are stored


def test_without_rows_nothing_is_written(broker, client, topic):
    task, sent = run(client, [])
    assert sent == 0
    assert topic.entries == []
    assert task.deduplicates() is None


@pytest.mark.parametrize("required", [True, False])
def test_a_topic_that_does_not_deduplicate(required):
    with FakeBroker() as broker, client_of(broker) as client:
        if required:
            with pytest.raises(OptionError, match="the broker has deduplication disabled") as caught:
                run(client, numbered(4))
            assert caught.value.topic == str(TOPIC)
            assert broker.topics[str(TOPIC)].values == []
        else:
            task, _ = run(client, numbered(4), required=False)
            assert task.deduplicates() is False
            assert broker.topics[str(TOPIC)].values == numbered(4)


def test_where_it_is_not_required_it_is_found_out_afterwards(broker, client, topic):
    task, _ = run(client, numbered(4), required=False)
    assert all(topic.is_visible(entry) for entry in topic.entries)
    assert task.deduplicates() is True


def test_ids_of_the_rows_own_are_refused(client, topic):
    rows = columns(numbered(1), sequence_id=pa.array([7]))
    with task_of(client) as task, open_writer(client, task) as writer:
        with pytest.raises(OptionError, match="effectively-once"):
            writer.send(rows)
        writer.finish()
    assert topic.entries == []


class NoKeys:
    """It has no key, so payloads are sent as they are."""

    def get_public_key(self, name, metadata):
        raise CryptoError("no key")

    get_private_key = get_public_key


@pytest.mark.parametrize("required", [True, False])
def test_where_only_encrypted_messages_are_taken(required):
    with FakeBroker(deduplicates=True, requires_encryption=True) as broker, client_of(broker) as client:
        broker.create(TOPIC)
        with pytest.raises(NotAllowedError, match="Encryption is required"):
            run(client, numbered(4), required=required)
        encryptor = Encryptor(NoKeys(), ["a"], ProducerCryptoFailureAction.SEND)
        task, code = task_of(client, required=required), UserCode(encryptor=encryptor)
        with task, TopicWriter(client, TOPIC, producing(), dedup=task, code=code) as writer:
            writer.send(columns(numbered(4)))
            writer.finish()
        assert task.deduplicates() is True
        assert last_sequence_id(client, TOPIC, "query-0", is_encrypted=True) >= 1 << 32


def test_the_last_id_of_a_name(broker, client):
    assert last_sequence_id(client, TOPIC, "query-0", is_encrypted=False) == -1
    run(client, numbered(4))
    assert last_sequence_id(client, TOPIC, "query-0", is_encrypted=False) == (1 << 32) + 3
    assert broker.open_producers == []
