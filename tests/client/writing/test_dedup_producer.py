"""DedupTask: what entries say of where they come from, and what others' entries cannot do."""

from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from pulsar_spark.client import DedupTask, EntryField, Origin, TopicWriter
from pulsar_spark.client.reading import backward_search
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.entry.origin import decode_origin, encode_origin
from pulsar_spark.wire.frames import encode_section_head
from tests.client.clients import TOPIC, columns, numbered, producing
from tests.client.writing import dedup_tasks
from tests.client.writing.dedup_tasks import NAME, SECRET
from tests.client.writing.told import new_origin
from tests.fake_broker import lose_answer
from tests.fake_clients import Type
from tests.fake_topics import signed_metadata, split_section

ROWS = numbered(10)
broker = dedup_tasks.broker


@pytest.fixture(autouse=True)
def all_is_visible(monkeypatch):
    monkeypatch.setattr(backward_search, "_SETTLING", 0.0)


def run(client, values=ROWS, name=TOPIC, *, batch=0, strict=True, may_be_replay=True, **options):
    """One run of a task; gives how many of its rows are stored."""
    task = DedupTask(
        client,
        NAME,
        new_origin(batch, 0, 0),
        SECRET,
        required=True,
        strict=strict,
        may_be_replay=may_be_replay,
    )
    given = producing(batching_max_messages=3, **options)
    with closing(task), TopicWriter(client, name, given, dedup=task) as writer:
        writer.send(columns(values))
        writer.flush()
        task.finish()
        return sum(each.messages for each in (*task.sent.values(), *writer.sent.values()))


def origins_of(topic, **changes):
    """What each entry says, as readers find it."""
    sections = [split_section(one.section) for one in topic.entries]
    entries = Entries.of(
        [Entry(one.id.ledger, one.id.entry, one.metadata, b"", None) for one in topic.entries]
    )
    fields = entries.texts(EntryField.ORIGIN).to_pylist()
    return [
        None
        if field is None
        else replace(decode_origin(field, SECRET, topic.name, payload, signed_metadata(metadata)), **changes)
        for field, (metadata, payload) in zip(fields, sections, strict=True)
    ]


def entry_of(value, origin, **metadata):
    """The payload section of an entry that anybody may write."""
    given = pb.MessageMetadata(producer_name=NAME.encode(), publish_time=1, **metadata)
    written = given.SerializeToString() + origin
    return encode_section_head(written, value) + value


# ---- what entries say


@pytest.mark.parametrize("batching", [True, False])
def test_entries_say_who_wrote_them_and_where_the_micro_batch_began(client, topic, batching):
    for batch in range(2):
        run(client, batch=batch, batching=batching)
    entries = list(zip(topic.entries, origins_of(topic, run=0), strict=True))
    for batch in range(2):
        (first, origin), *others = [each for each in entries if each[1].batch == batch]
        assert origin == Origin(batch, 0, 0)
        assert others
        for _, origin in others:
            assert origin == Origin(batch, 0, 0, first.id)


def test_a_later_run_names_where_the_first_one_began(client, topic):
    run(client, ROWS[:4])
    begin, count = topic.entries[0].id, len(topic.entries)
    for _ in range(2):
        run(client)
    assert len(topic.entries) > count
    again = Origin(0, 0, 0, begin, is_again=True)
    assert origins_of(topic, run=0)[count:] == [again] * (len(topic.entries) - count)


def test_the_first_entry_is_known_where_its_receipt_was_lost(client, broker, topic):
    broker.script(Type.SEND, [lose_answer])
    assert run(client) == 10
    assert run(client) == 10
    assert topic.values == ROWS
    origins = origins_of(topic)
    assert {each.begin for each in origins} == {None, topic.entries[0].id}
    assert origins[0].begin is None


# ---- what others can write


BEGIN = MessageId(1, 0)
FORGED = {
    "another secret": encode_origin(Origin(0, 0, 0, BEGIN), b"another", str(TOPIC)),
    "no secret": encode_origin(Origin(0, 0, 0, BEGIN), b"", str(TOPIC)),
    "another topic": encode_origin(Origin(0, 0, 0, BEGIN), SECRET, str(TopicName.parse("another"))),
    "another task": encode_origin(Origin(0, 1, 0, BEGIN), SECRET, str(TOPIC)),
    "another micro-batch": encode_origin(Origin(1, 0, 0, BEGIN), SECRET, str(TOPIC)),
    "another write": encode_origin(Origin(0, 0, 1, BEGIN), SECRET, str(TOPIC)),
    "that of the first entry": encode_origin(Origin(0, 0, 0), SECRET, str(TOPIC), b"other rows"),
}


@pytest.mark.parametrize("origin", FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("is_replay", [False, True])
def test_rows_in_entries_of_others_do_not_count(client, broker, topic, origin, is_replay):
    """Whoever may write to a topic cannot keep a query's rows out of it."""
    if is_replay:
        run(client, ROWS[:2])
    broker.publish(TOPIC, *(entry_of(value, origin, sequence_id=1) for value in ROWS))
    before = Counter(topic.values)
    assert run(client, strict=False) == 10
    expected = before + Counter(ROWS[2:] if is_replay else ROWS)
    assert Counter(topic.values) == expected


def test_copies_do_not_hide_where_the_micro_batch_began(client, broker, topic):
    """Everybody can copy what an entry says into others: rows are found all the same."""
    run(client)
    fields = [encode_origin(each, SECRET, str(TOPIC)) for each in origins_of(topic)]
    for field in fields:
        broker.publish(TOPIC, entry_of(b"copy", field, sequence_id=1))
    before = Counter(topic.values)
    for _ in range(2):
        assert run(client, strict=False) == 10
        assert Counter(topic.values) == before
