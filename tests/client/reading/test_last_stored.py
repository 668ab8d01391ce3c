"""Finding what a producer stored lately."""

import logging
from itertools import repeat

import pytest
from pulsar_spark.client.reading.last_stored import _LastEntry, _Search, find_last_stored, find_stored

from pulsar_spark.client.client import Client, ClientOptions
from pulsar_spark.ids import MessageId, TxnId
from pulsar_spark.protocol.outgoing import EntryKind, Outgoing
from pulsar_spark.protocol.stored_check import StoredProof
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.commands import from_wire_id
from pulsar_spark.wire.entries import Entries, Entry
from tests.client.clients import TOPIC, hurry
from tests.fake_broker import silence
from tests.fake_clients import Type
from tests.fake_topics import batch_section, section_of, split_section


def entry(number: int, sequence_id: int, *, name: str = "me", **more) -> Entry:
    metadata = pb.MessageMetadata(
        producer_name=name.encode(), sequence_id=sequence_id, publish_time=1, **more
    )
    return Entry(3, number, metadata, b"", None)


def found(*entries: Entry, last: int) -> Entry | None:
    with Client(ClientOptions(service_url="pulsar://localhost:1")) as client:
        wanted = _LastEntry("me", last)
        _Search(client, TOPIC, wanted)._match(Entries.of(entries))
        return wanted.entry


def test_the_entry_that_ends_with_the_id():
    batch = entry(1, 5, num_messages_in_batch=3)
    assert found(entry(0, 4), batch, entry(2, 7, name="other"), last=7) == batch
    assert found(entry(0, 4), batch, last=6) is None


def test_of_a_message_in_chunks_only_the_last_proves_that_it_is_stored():
    """A broker that restarts takes the message's id from its first chunk."""
    chunks = [entry(number, 7, num_chunks_from_msg=3, chunk_id=number) for number in range(3)]
    assert found(*chunks, last=7) == chunks[2]
    assert found(*chunks[:2], last=7) is None


# ---- with a broker


def stored(name: str, sequence_id: int, messages: int = 0) -> bytes:
    if messages:
        return batch_section([b"x"] * messages, producer_name=name, sequence_id=sequence_id)
    return section_of(b"x", producer_name=name, sequence_id=sequence_id)


def position_of(entry):
    return None if entry is None else MessageId(entry.ledger, entry.entry)


def test_it_is_found_however_far_back_it_is(broker, client):
    topic = broker.create(TOPIC)
    ids = broker.publish(TOPIC, *(stored("me", number) for number in range(5)))
    for _ in range(4):
        topic.roll()
        broker.publish(TOPIC, *(stored("other", number) for number in range(50)))
    assert position_of(find_last_stored(client, TOPIC, "me", 4)) == ids[4]


def test_the_batch_that_ends_with_the_id(broker, client):
    ids = broker.publish(TOPIC, stored("me", 0, 10), stored("me", 10, 10), stored("other", 10, 10))
    assert position_of(find_last_stored(client, TOPIC, "me", 19)) == ids[1]


def test_an_older_entry_of_the_producer_ends_the_search(broker, client):
    """What is looked for would lie after that: a topic's whole past is not read."""
    topic = broker.create(TOPIC)
    broker.publish(TOPIC, *(stored("other", number) for number in range(5)))
    topic.roll()
    old = broker.publish(TOPIC, stored("me", 3), *(stored("other", number) for number in range(100)))
    hurry(client, 1.0)
    assert find_last_stored(client, TOPIC, "me", 7) is None
    starts = [from_wire_id(one.start_message_id) for one in broker.seen(Type.SUBSCRIBE)]
    assert min(starts).ledger == old[0].ledger


def commit_at_the_third_question(broker, topic, transaction):
    asked = []

    def answer(connection, frame):
        asked.append(frame)
        if len(asked) == 3:
            topic.end(transaction, commit=True)
        connection.handle(frame)

    broker.script(Type.GET_LAST_MESSAGE_ID, repeat(answer))


def test_an_entry_that_becomes_visible_later_is_waited_for(broker, client):
    topic = broker.create(TOPIC)
    transaction = TxnId(0, 1)
    broker.publish(TOPIC, stored("other", 1))
    with broker.changed:
        entry = topic.append(stored("me", 7), transaction)
    commit_at_the_third_question(broker, topic, transaction)
    assert position_of(find_last_stored(client, TOPIC, "me", 7)) == entry.id


def test_what_was_removed_is_not_found(broker, client):
    topic = broker.create(TOPIC)
    ids = broker.publish(TOPIC, stored("me", 7))
    topic.roll()
    topic.trim(ids[0].ledger)
    hurry(client, 0.4)
    assert find_last_stored(client, TOPIC, "me", 7) is None


def test_a_broker_that_gives_no_answer_has_nothing_to_show(broker, client):
    broker.publish(TOPIC, stored("me", 7))
    broker.script(Type.FLOW, [silence] * 99)
    hurry(client, 0.4)
    assert find_last_stored(client, TOPIC, "me", 7) is None


def test_why_a_search_has_ended_early_is_logged(broker, client, caplog):
    broker.publish(TOPIC, stored("me", 7))
    broker.script(Type.FLOW, [silence] * 99)
    hurry(client, 0.2)
    caplog.set_level(logging.INFO)
    assert find_last_stored(client, TOPIC, "me", 7) is None
    assert "the search for stored messages timed out" in caplog.text


# ---- all entries of a proof


def proof_of(*sections: bytes) -> StoredProof:
    entries = []
    for section in sections:
        metadata, payload = split_section(section)
        first, messages = metadata.sequence_id, metadata.num_messages_in_batch
        head = section[: len(section) - len(payload)]
        entries.append(Outgoing(first, first + messages - 1, messages, head, payload, EntryKind.BATCH))
    return StoredProof(str(TOPIC), "me", entries)


def test_all_entries_of_a_proof_are_found_over_many_steps_back(broker, client):
    topic = broker.create(TOPIC)
    sections = [stored("me", 10 * number, 10) for number in range(30)]
    for number, section in enumerate(sections):
        broker.publish(TOPIC, section, *(stored("other", other) for other in range(20)))
        if number % 7 == 6:
            topic.roll()
    proof = proof_of(*sections[10:])
    find_stored(client, TOPIC, proof)
    assert proof.is_found


def test_the_search_for_a_proof_ends_at_an_older_entry_where_one_is_missing(broker, client):
    topic = broker.create(TOPIC)
    broker.publish(TOPIC, *(stored("other", number) for number in range(5)))
    topic.roll()
    sections = [stored("me", number) for number in range(8)]
    old = broker.publish(TOPIC, *sections[:3], *(stored("other", 1) for _ in range(100)), *sections[4:])
    proof = proof_of(*sections[3:])
    hurry(client, 1.0)
    find_stored(client, TOPIC, proof)
    assert not proof.is_found
    assert "1 messages were not acknowledged" in str(proof.error())
    assert not proof.error().retriable
    starts = [from_wire_id(one.start_message_id) for one in broker.seen(Type.SUBSCRIBE)]
    assert min(starts).ledger == old[0].ledger


def test_entries_that_become_visible_one_after_the_other_are_waited_for(broker, client):
    topic = broker.create(TOPIC)
    transaction = TxnId(0, 1)
    sections = [stored("me", number) for number in range(4)]
    broker.publish(TOPIC, *sections[:2])
    with broker.changed:
        topic.append(stored("other", 1), transaction)
        for section in sections[2:]:
            topic.append(section)
    commit_at_the_third_question(broker, topic, transaction)
    proof = proof_of(*sections)
    find_stored(client, TOPIC, proof)
    assert proof.is_found


@pytest.mark.parametrize("why", ["an open transaction", "no answer", "no subscription"])
def test_a_search_that_runs_out_of_time_leaves_it_open_what_is_stored(broker, client, why):
    """A broker may open the topic so long, and recover its transactions."""
    topic = broker.create(TOPIC)
    broker.publish(TOPIC, stored("other", 1))
    if why == "an open transaction":
        with broker.changed:
            topic.append(stored("other", 2), TxnId(0, 1))
    section = stored("me", 1)
    broker.publish(TOPIC, section)
    broker.script(Type.FLOW, [silence] * 99 if why == "no answer" else [])
    broker.script(Type.SUBSCRIBE, [silence] * 99 if why == "no subscription" else [])
    proof = proof_of(section)
    hurry(client, 0.4)
    find_stored(client, TOPIC, proof)
    assert not proof.is_found
    assert proof.error().retriable
