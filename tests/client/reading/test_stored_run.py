"""What earlier runs of a task have stored: found by the origins of entries, and read as by any reader."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.client import DedupTask, Origin, TopicWriter
from pulsar_spark.client.encryption import Decryptor
from pulsar_spark.client.reading import backward_search, stored_run
from pulsar_spark.client.reading.entry_range import read_entries
from pulsar_spark.client.reading.stored_run import find_stored_batch, read_stored_run
from pulsar_spark.errors import BrokerError
from pulsar_spark.ids import MessageId
from pulsar_spark.protocol.replay.run_search import RunToFind
from pulsar_spark.protocol.replay.task_ids import TaskIds
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.entry.entries import Entries, Entry
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import decode_origin
from pulsar_spark.wire.frames import encode_section_head
from tests.client.clients import TOPIC, client_of, columns, numbered, producing
from tests.fake_broker import FakeBroker, refuses
from tests.fake_clients import Type
from tests.fake_topics import batch_section, section_of, signed_metadata, split_section

SECRET, NAME, RUN = b"secret", "query-0", Origin(6, 0, 0)
FIRST = 7 << 32


@pytest.fixture
def broker(monkeypatch):
    monkeypatch.setattr(backward_search, "_SETTLING", 0.05)
    monkeypatch.setattr(backward_search, "_PAUSE", 0.01)
    with FakeBroker(deduplicates=True) as broker:
        broker.create(TOPIC)
        yield broker


def write(client, values, origin=RUN, *, properties=None, **options):
    task = DedupTask(client, NAME, origin, SECRET, required=False)
    with TopicWriter(client, TOPIC, producing(batching_max_messages=3, **options), dedup=task) as writer:
        maps = [list((properties or {}).items())] * len(values)
        writer.send(replace(columns(values), properties=pa.array(maps, pa.map_(pa.string(), pa.string()))))
        writer.flush()
    task.close()


def run_of(topic, origin=RUN, secret=SECRET, *, may_be_replay=True):
    last = topic.stored_ids.get(NAME, -1)
    return RunToFind(replace(origin, run=1), secret, NAME, last, last >= FIRST, may_be_replay)


def read(client, topic, run=None, **given):
    return read_of(client, run or run_of(topic, **given))


def read_of(client, run):
    found = read_stored_run(client, TOPIC, run, Decryptor(), 1 << 20)
    return found, sum(len(block.extras) for block in found.blocks)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batching": False},
        {"compression": pb.ZSTD},
        {"batching": False, "chunking": True, "chunk_max_message_size": 150},
    ],
)
def test_the_rows_of_the_run_are_read(broker, client, topic, options):
    write(client, [b"before"], Origin(5, 0, 0))
    values = [value + b"." * (300 if "chunking" in options else 5) for value in numbered(10)]
    for number in range(3):
        broker.publish(TOPIC, section_of(b"somebody's"), batch_section([b"somebody's"], producer_name=NAME))
        write(client, values[: 4 * (number + 1)], **options)
    found, count = read(client, topic)
    assert count == 10
    assert found.unread is None
    assert topic.is_visible(next(entry for entry in topic.entries if entry.id == found.begin))


def test_where_nothing_is_stored_nothing_is_found(client, topic):
    read_nothing(client, topic)
    write(client, [b"before"], Origin(5, 0, 0))
    read_nothing(client, topic)


def read_nothing(client, topic):
    found, count = read(client, topic)
    assert (found.begin, found.version, found.unread, count) == (None, None, None, 0)


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 5),
        ({"producer_name": f"{NAME.rpartition('-')[0]}-1"}, 0),  # another task's
        ({"batch": 5}, None),
        ({"replicated_from": None}, None),
        ({"producer_name": "another-1"}, None),
        ({"sequence_id": FIRST + 1}, None),  # not the query's own ids
    ],
)
def test_copies_of_the_micro_batch_are_read_and_told(broker, client, topic, given, count):
    """By any task of the query; origins are not copied. ``count``: messages of the task; None: no copies."""
    wanted = {"producer_name": NAME, "replicated_from": b"a", "batch": 6} | given
    batch, name = wanted.pop("batch"), wanted["producer_name"]
    first = {"sequence_id": TaskIds(SECRET, name, str(TOPIC)).first(batch)} | wanted
    fields = {key: value for key, value in first.items() if value is not None}
    broker.publish(TOPIC, batch_section([b"a", b"b", b"c"], **fields))
    broker.publish(TOPIC, *[section_of(b"somebody's")] * 20)
    broker.publish(
        TOPIC, batch_section([b"d", b"e"], **(fields | {"sequence_id": fields["sequence_id"] + 3}))
    )
    for _ in range(2):  # the second time it is known
        found, rows = read(client, topic)
        assert (found.unread, list(found.copied_from)) == (None, [] if count is None else ["a"])
        assert rows == (count or 0)
        assert found.is_replay == (count is not None)


def test_copies_that_another_task_of_the_process_has_read_count(broker, client, topic):
    """Task 1 was run here before they came, so it searches for its own entries."""
    name, other = NAME, f"{NAME.rpartition('-')[0]}-1"
    task = DedupTask(client, other, Origin(6, 1, 0), SECRET, required=False, may_be_replay=False)
    with TopicWriter(client, TOPIC, producing(), dedup=task) as writer:
        writer.send(columns([b"of task 1"]))
        writer.flush()
    first = TaskIds(SECRET, name, str(TOPIC)).first(6)
    copied = batch_section([b"a", b"b"], producer_name=name, replicated_from=b"a", sequence_id=first)
    broker.publish(TOPIC, copied)
    found, rows = read_of(client, RunToFind(Origin(6, 1, 0, run=1), SECRET, other, topic.stored_ids[other]))
    assert rows == 1
    found, rows = read(client, topic)
    assert (rows, list(found.copied_from)) == (2, ["a"])


@pytest.mark.parametrize("properties", [{}, {"a": "1", "b": "2"}])
def test_the_property_of_a_replicator_is_no_difference(broker, client, topic, properties):
    """It adds one to each entry that is no batch."""
    first = TaskIds(SECRET, NAME, str(TOPIC)).first(6)
    for number in range(2):
        given = [*properties.items(), ("__MSG_PROP_REPL_SOURCE_POSITION", f"3:{number}")]
        fields = [pb.KeyValue(key=key.encode(), value=value.encode()) for key, value in given]
        copied: dict[str, Any] = {"replicated_from": b"a", "properties": fields}
        section = section_of(b"row %d" % number, producer_name=NAME, sequence_id=first + number, **copied)
        broker.publish(TOPIC, section)
    write(client, [b"row 0", b"row 1", b"row 2"], properties=properties)
    assert [entry.section.count(b"row") for entry in topic.entries] == [1, 1, 1]
    assert b"row 2" in topic.entries[2].section


def test_the_search_for_copies_ends_at_an_earlier_micro_batch_of_any_task(broker, client, topic):
    """The copies are further back than the first step; and a run that was here has marked its entries."""
    name = f"{NAME.rpartition('-')[0]}-1"
    fields = {"producer_name": name, "sequence_id": TaskIds(SECRET, name, str(TOPIC)).first(5)}
    broker.publish(TOPIC, *[section_of(b"somebody's")] * 500, batch_section([b"older"], **fields))
    first = TaskIds(SECRET, NAME, str(TOPIC)).first(6)
    copied = batch_section([b"a", b"b"], producer_name=NAME, replicated_from=b"a", sequence_id=first)
    broker.publish(TOPIC, copied)
    write(client, [b"a", b"b", b"c"])
    broker.publish(TOPIC, *[section_of(b"somebody's")] * 100)
    began = len(broker.seen(Type.SUBSCRIBE))
    found, rows = read(client, topic)
    assert (rows, found.is_again, list(found.copied_from)) == (3, True, ["a"])
    starts = [one.start_message_id.entryId for one in broker.seen(Type.SUBSCRIBE)[began:]]
    assert min(starts) >= 300


@pytest.mark.parametrize(
    "given", [{"origin": Origin(6, 1, 0)}, {"origin": Origin(6, 0, 1)}, {"secret": b"another query's"}]
)
def test_rows_of_others_are_not_read(client, topic, given):
    write(client, numbered(4))
    found, count = read(client, topic, **given)
    assert found.begin is None
    assert count == 0


def test_little_more_than_the_run_is_read(broker, client, topic):
    """What others have written before it is not."""
    broker.publish(TOPIC, *[section_of(b"somebody's")] * 500)
    write(client, [b"before"], Origin(5, 0, 0))
    write(client, numbered(30))
    broker.publish(TOPIC, *[section_of(b"somebody's")] * 10)
    began = [len(broker.seen(Type.SUBSCRIBE))]
    assert read(client, topic)[1] == 30
    starts = [one.start_message_id.entryId for one in broker.seen(Type.SUBSCRIBE)[began[0] :]]
    assert min(starts) >= 501


def test_an_entry_that_is_replicated_in_another_way_does_not_count(broker, client, topic):
    """It was made of one of the run's, and is not seen everywhere."""
    write(client, numbered(6))
    *_, last = topic.entries
    metadata, payload = split_section(last.section)
    metadata.replicate_to.append(b"here only")
    broker.publish(TOPIC, encode_section_head(metadata.SerializeToString(), payload) + payload)
    assert read(client, topic)[1] == 6


def test_entries_of_all_kinds_that_come_together_are_told_apart(broker, client, topic):
    """Origins are decoded once for entries that have the same; that of a first entry is of one payload."""
    write(client, numbered(40), batching=False)
    last, run = topic.entries[-1].section, run_of(topic)
    for task in range(1, 4):
        write(client, numbered(8), Origin(6, task, 0), batching=False)
    sections = [entry.section for entry in topic.entries]
    mixed = sections + [with_payload(section, b"other rows") for section in sections]
    mixed += [section_of(b"somebody's")] * 20
    random.Random(1).shuffle(mixed)
    broker.publish(TOPIC, *mixed, last)
    assert len(topic.entries) > 200
    found, count = read(client, topic, run)
    assert count == sum(is_own(entry.section) for entry in topic.entries) == 40 + 40 + 39 + 1
    assert found.unread is None


def with_payload(section, payload):
    head, _ = split_section(section)
    return encode_section_head(head.SerializeToString(), payload) + payload


def is_own(section):
    head, payload = split_section(section)
    field = Entries.of([Entry(0, 0, head, payload, None)]).texts(EntryField.ORIGIN)[0].as_py()
    origin = decode_origin(field or b"", SECRET, str(TOPIC), payload, signed_metadata(head))
    return origin is not None and (origin.batch, origin.task, origin.write) == (6, 0, 0)


def test_how_many_are_stored(broker, client, topic):
    assert find_stored_batch(client, TOPIC, SECRET, RUN).stored.total() == 0
    write(client, numbered(10))
    assert find_stored_batch(client, TOPIC, SECRET, RUN).stored == {0: 10}
    broker.script(Type.SUBSCRIBE, [refuses(pb.AuthorizationError, "no right to consume")])
    with pytest.raises(BrokerError, match="no right"):
        find_stored_batch(client, TOPIC, SECRET, RUN)


def test_the_begin_is_that_of_the_first_run(client, topic):
    write(client, numbered(4))
    begin = read(client, topic)[0].begin
    write(client, numbered(9))
    assert read(client, topic)[0].begin == begin == MessageId(topic.entries[0].id.ledger, 0)


def test_a_look_that_took_too_long_counts_for_no_other_task(broker, client, topic, monkeypatch):
    """Each of them looks again; one that was done counts for all."""
    answers, searched = [False, True, True], []

    def search_back(*arguments, **options):
        searched.append(arguments)
        return answers[len(searched) - 1]

    monkeypatch.setattr(stored_run, "search_back", search_back)
    for task in range(4):
        read(client, topic, run_of(topic, replace(RUN, task=task)))
    assert len(searched) == 2


@pytest.mark.parametrize("stays", [0.5, 0.9])
def test_tasks_of_two_processes_read_little(broker, topic, monkeypatch, stays):
    """Two tasks wrote at a time, in turns or one far ahead of the other. All are run again."""
    rng, tasks, each, read = random.Random(1), 24, 10, Counter()
    with client_of(broker) as client:
        write(client, [b"before"], Origin(5, 0, 0))
        write_at_a_time(client, rng, tasks, each, stays)
    stored = len(topic.entries)

    def counted(*given):
        for entries in read_entries(*given):
            read.update(entries=len(entries))
            yield entries

    for module in (backward_search, stored_run):
        monkeypatch.setattr(module, "read_entries", counted)
    with client_of(broker) as one, client_of(broker) as other:
        for task in range(tasks):
            name = f"{NAME}{task}"
            run = RunToFind(Origin(6, task, 0, run=1), SECRET, name, topic.stored_ids[name])
            found, count = read_of(rng.choice((one, other)), run)
            assert (found.unread, found.is_replay, count) == (None, True, each)
    assert read["entries"] <= 3 * stored


def write_at_a_time(client, rng, tasks, each, stays):
    """Two tasks at a time write entries of a row; ``stays``: how likely the next one is of the same task."""
    waiting, running, at = iter(range(tasks)), [], 0
    while True:
        while len(running) < 2 and (number := next(waiting, None)) is not None:
            origin = Origin(6, number, 0)
            task = DedupTask(client, f"{NAME}{number}", origin, SECRET, required=False, may_be_replay=False)
            writer = TopicWriter(client, TOPIC, producing(batching=False), dedup=task)
            running.append((writer, iter(numbered(each))))
        if not running:
            return
        at = at if at < len(running) and rng.random() < stays else rng.randrange(len(running))
        writer, values = running[at]
        value = next(values, None)
        if value is None:
            writer.close()
            del running[at]
        else:
            writer.send(columns([value]))
            writer.flush()
