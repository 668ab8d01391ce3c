"""Reading backwards from a topic's end: how far, what is waited for, and the entries of a proof."""

import logging
from itertools import repeat
from types import SimpleNamespace

import pytest

from pulsar_spark.client.reading import backward_search
from pulsar_spark.client.reading.backward_search import find_stored, search_back
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.replay import run_search
from pulsar_spark.protocol.replay.known_batch import KnownBatch
from pulsar_spark.protocol.writing.pending import EntryKind, Outgoing
from pulsar_spark.protocol.writing.stored_ids import StoredProof
from pulsar_spark.wire.entry.origin import Origin
from pulsar_spark.wire.wire_values import from_wire_id
from tests.client.clients import TOPIC, hurry
from tests.fake_broker import knows_no_last_message, pass_on, silence
from tests.fake_clients import Type
from tests.fake_topics import batch_section, section_of, split_section

SEGMENT = TopicName("topic", "public", "default", "topic").segment(0, 0xFFFF, 0)


def stored(name: str, sequence_id: int, messages: int = 0) -> bytes:
    if messages:
        return batch_section([b"x"] * messages, producer_name=name, sequence_id=sequence_id)
    return section_of(b"x", producer_name=name, sequence_id=sequence_id)


class Wanted:
    """What is wanted: some entries.

    Attributes:
        calls: ids of the entries of each call.
    """

    def __init__(self, *ids, passes=True, is_newest_expected=False):
        self._left = set(ids)
        self._passes = passes
        self.is_newest_expected = is_newest_expected
        self.calls = []

    @property
    def jump(self):
        return None

    @property
    def unseen(self):
        return None

    @property
    def is_newest_known(self):
        return not self._left

    @property
    def is_passed(self):
        return self._passes and not self._left

    def take(self, entries):
        assert len(entries)
        found = list(map(MessageId, entries.ledger.tolist(), entries.entry.tolist()))
        self.calls.append(found)
        self._left -= set(found)
        return False

    @property
    def seen(self):
        return [one for call in self.calls for one in call]


def search(client, wanted, topic=TOPIC, *, first_step=4, growth=2.0, **given):
    return search_back(client, topic, wanted, wanted.take, first_step=first_step, growth=growth, **given)


@pytest.fixture
def ids(broker):
    """205 entries in five ledgers."""
    topic = broker.create(TOPIC)
    ids = broker.publish(TOPIC, *(stored("me", number) for number in range(5)))
    for _ in range(4):
        topic.roll()
        ids += broker.publish(TOPIC, *(stored("other", number) for number in range(50)))
    return ids


# How many entries each step may read, as long as they lie in one ledger.
STEPS = {(1, 1.25): 20, (4, 2.0): 64, (64, 2.0): 64, (1000, 2.0): 1000}


@pytest.mark.parametrize(("first_step", "growth"), STEPS)
@pytest.mark.parametrize("place", [0, 3, 4, 5, 100, 203, 204])
def test_entries_are_found_however_far_back_they_are(client, ids, place, first_step, growth):
    """Each entry is read once, and those of a call are in order; not much is read that is not needed."""
    wanted = Wanted(ids[place])
    assert search(client, wanted, first_step=first_step, growth=growth)
    assert sorted(wanted.seen) == ids[-len(wanted.seen) :]
    assert all(call == sorted(call) for call in wanted.calls)
    needed = len(ids) - place
    assert needed <= len(wanted.seen) <= max(first_step, needed * growth + 50)


@pytest.fixture
def segment_ids(broker):
    """Six entries of a segment whose broker knows no last message."""
    topic = broker.create(SEGMENT)
    ids = broker.publish(SEGMENT, *(stored("me", number) for number in range(3)))
    topic.roll()
    ids += broker.publish(SEGMENT, *(stored("me", number) for number in range(3, 6)))
    broker.script(Type.GET_LAST_MESSAGE_ID, repeat(knows_no_last_message))
    return ids


@pytest.mark.parametrize("is_sealed", [False, True])
def test_an_old_last_message_of_a_segment_hides_no_entry(client, segment_ids, is_sealed):
    wanted = Wanted(*segment_ids)
    assert search(client, wanted, SEGMENT, is_sealed=is_sealed)
    assert sorted(wanted.seen) == segment_ids


def test_an_entry_that_a_segment_gets_later_is_awaited(broker, client, segment_ids, monkeypatch):
    later = []
    slept = SimpleNamespace(sleep=lambda _: later or later.extend(broker.publish(SEGMENT, stored("me", 6))))
    monkeypatch.setattr(backward_search, "time", slept)
    last = segment_ids[-1]
    wanted = Wanted(MessageId(last.ledger, last.entry + 1))
    assert search(client, wanted, SEGMENT)
    assert later[0] in wanted.seen


@pytest.mark.parametrize("is_sealed", [False, True])
def test_entries_of_an_open_transaction_hide_others_of_a_segment(
    broker, client, segment_ids, monkeypatch, is_sealed
):
    hurry(client, 1.5)
    monkeypatch.setattr(backward_search, "_SETTLING", 0.2)
    with broker.changed:
        hidden = broker.topics[str(SEGMENT)].append(stored("me", 6), TxnId(0, 1)).id
    wanted = Wanted(hidden)
    assert not search(client, wanted, SEGMENT, is_sealed=is_sealed)
    assert is_sealed or sorted(wanted.seen) == segment_ids


def test_little_is_read_in_vain_with_little_growth(client, ids):
    """A broker that has just stored what is looked for has it at the end."""
    for back in (1, 2, 5, 20):
        wanted = Wanted(ids[-back])
        assert search(client, wanted, first_step=1, growth=1.25)
        assert back <= len(wanted.seen) <= 1.25 * back + 1


@pytest.mark.parametrize("entries", [1, 50, 51, 60, 120, 300])
def test_one_step_reads_so_many_entries_over_ledgers(client, ids, entries, monkeypatch):
    monkeypatch.setattr(backward_search, "_SETTLING", 0.0)
    wanted = Wanted(ids[0], MessageId(1 << 40, 0))
    assert search(client, wanted, first_step=entries, is_one_step=True)
    assert wanted.seen == ids[-entries:]


def test_the_search_ends_where_it_is_said_to(client, ids, broker):
    """A topic's whole past is not read."""
    wanted = Wanted(ids[-1])
    assert search(client, wanted)
    assert wanted.seen == ids[-4:]
    starts = [from_wire_id(one.start_message_id) for one in broker.seen(Type.SUBSCRIBE)]
    assert min(starts) == ids[-4]
    assert len(broker.seen(Type.GET_LAST_MESSAGE_ID)) == 1, "of the search"


def test_what_is_newest_known_need_not_be_passed(client, ids):
    wanted = Wanted(ids[-1], passes=False)
    assert search(client, wanted)
    assert sorted(wanted.seen) == ids


@pytest.mark.parametrize("has_entries", [False, True])
def test_nothing_is_read_where_nothing_is_wanted_or_stored(client, broker, has_entries):
    broker.create(TOPIC)
    if has_entries:
        broker.publish(TOPIC, stored("other", 1))
    wanted = Wanted()
    assert search(client, wanted)
    assert wanted.seen == []


class Unseen(Wanted):
    """Entries after a known one; what lies before it need not be read."""

    is_passed = True

    def __init__(self, after, *ids, task=1):
        super().__init__(*ids)
        self._unseen = run_search.Unseen(after, task)

    @property
    def unseen(self):
        return None if self.is_newest_known else self._unseen


def known_parts(*parts):
    """Entries at the end of each part are those of a task."""
    known = KnownBatch()
    for task, (start, end) in enumerate(parts):
        known.has_read(start, end)
        known.add([run_search.OwnEntry(end, Origin(7, task, 0), "name", 1)])
    return known


def test_what_lies_after_a_known_entry_is_read_though_nothing_before_it_is_wanted(client, ids):
    """What is known of a topic may have been read in parts. These are not read again."""
    wanted = Unseen(ids[100], ids[110])
    known = known_parts((ids[99], ids[100]), (ids[103], ids[106]))
    assert search(client, wanted, known=known)
    assert wanted.seen[:6] == ids[101:104] + ids[107:110]


def test_parts_next_to_tasks_with_near_numbers_are_read_first(client, ids):
    known = known_parts((ids[99], ids[100]), (ids[109], ids[110]), (ids[119], ids[120]))
    wanted = Unseen(ids[100], ids[112], task=2)
    assert search(client, wanted, known=known)
    assert wanted.seen[:2] == ids[111:113]
    assert not set(wanted.seen) & set(ids[101:110])


def test_nothing_is_read_twice_by_searches_that_share_what_they_know(client, broker, ids):
    """Also after more was written."""
    known, seen = KnownBatch(), []
    known.add([run_search.OwnEntry(ids[0], Origin(7, 1, 0), "name", 1)])
    for wanted in (Wanted(ids[190]), Unseen(ids[20], ids[25]), Wanted(ids[60]), Wanted(ids[0])):
        assert search(client, wanted, known=known)
        seen += wanted.seen
        ids += broker.publish(TOPIC, stored("other", 1))
    assert sorted(seen) == ids[:-1]


class Jumping(Wanted):
    """Entries that lie before those of others, which say where they began."""

    def __init__(self, begins, *ids):
        super().__init__(*ids)
        self._begins = begins

    @property
    def jump(self):
        return (
            None if self.is_newest_known else min(map(self._begins.get, self.seen), default=MessageId.LATEST)
        )


def test_what_lies_between_the_first_and_the_last_entry_of_others_is_not_read(client, ids):
    begins = {one: ids[max(0, number // 20 * 20)] for number, one in enumerate(ids)}
    wanted = Jumping(begins, ids[79])
    assert search(client, wanted, first_step=1, growth=1.25)
    assert ids[79] in wanted.seen
    assert len(wanted.seen) < 40


def commit_at_question(number, broker, topic, transaction):
    asked = []

    def answer(connection, frame):
        asked.append(frame)
        if len(asked) == number:
            topic.end(transaction, commit=True)
        connection.handle(frame)

    broker.script(Type.GET_LAST_MESSAGE_ID, repeat(answer))


def test_an_entry_that_becomes_visible_later_is_waited_for(broker, client, monkeypatch):
    """Much longer than those that the broker is writing: a transaction may take its time."""
    monkeypatch.setattr(backward_search, "_SETTLING", 0.0)
    topic = broker.create(TOPIC)
    transaction = TxnId(0, 1)
    (first,) = broker.publish(TOPIC, stored("other", 1))
    with broker.changed:
        entry = topic.append(stored("me", 7), transaction)
    commit_at_question(5, broker, topic, transaction)
    wanted = Wanted(entry.id)
    assert search(client, wanted)
    assert wanted.seen == [first, entry.id]


def test_an_entry_that_the_broker_is_writing_is_waited_for(broker, client):
    """Also in a topic that is empty so far."""
    broker.create(TOPIC)
    asked, entries = [], []

    def answer(connection, frame):
        asked.append(frame)
        if len(asked) == 3:
            entries.extend(broker.publish(TOPIC, stored("me", 7)))
        connection.handle(frame)

    broker.script(Type.GET_LAST_MESSAGE_ID, repeat(answer))
    wanted = Wanted(MessageId(broker.topics[str(TOPIC)].end_position.ledger, 0))
    assert search(client, wanted)
    assert wanted.seen == entries


def test_what_was_removed_is_not_waited_for_long(broker, client, monkeypatch):
    topic = broker.create(TOPIC)
    ids = broker.publish(TOPIC, stored("me", 7))
    topic.roll()
    left = broker.publish(TOPIC, stored("other", 1))
    topic.trim(ids[0].ledger)
    monkeypatch.setattr(backward_search, "_SETTLING", 0.2)
    wanted = Wanted(ids[0])
    assert search(client, wanted), "nothing is hidden, so all was read"
    assert wanted.seen == left


def test_a_topic_that_is_trimmed_to_nothing_has_nothing_to_show(broker, client):
    topic = broker.create(TOPIC)
    ids = broker.publish(TOPIC, stored("me", 7))
    topic.roll()
    topic.trim(ids[0].ledger)
    hurry(client, 0.4)
    wanted = Wanted(ids[0])
    search(client, wanted)
    assert wanted.seen == []


def test_what_is_hidden_is_waited_for_to_the_end(broker, client, monkeypatch):
    """Entries after the first message of an open transaction may be those that are wanted."""
    topic = broker.create(TOPIC)
    broker.publish(TOPIC, stored("other", 1))
    with broker.changed:
        topic.append(stored("other", 2), TxnId(0, 1))
    hidden = broker.publish(TOPIC, stored("me", 7))
    monkeypatch.setattr(backward_search, "_SETTLING", 0.0)
    hurry(client, 0.4)
    assert not search(client, Wanted(*hidden))
    assert len(broker.seen(Type.GET_LAST_MESSAGE_ID)) > 3


@pytest.mark.parametrize("comes", [False, True])
def test_what_the_broker_is_still_storing_is_waited_for_to_the_end(broker, client, monkeypatch, comes):
    (last,) = broker.publish(TOPIC, stored("me", 7))

    def store(connection, frame):
        broker.topics[str(TOPIC)].append(stored("me", 8))
        pass_on(connection, frame)

    monkeypatch.setattr(backward_search, "_SETTLING", 0.0)
    broker.script(Type.GET_LAST_MESSAGE_ID, [*[pass_on] * 3, store] if comes else [])
    hurry(client, 10.0 if comes else 0.4)
    wanted = Wanted(MessageId(last.ledger, last.entry + 1), is_newest_expected=True)
    assert search(client, wanted) is comes
    assert len(broker.seen(Type.GET_LAST_MESSAGE_ID)) >= 4


def test_why_a_search_has_ended_early_is_logged(broker, client, caplog):
    wanted = Wanted(*broker.publish(TOPIC, stored("me", 7)))
    broker.script(Type.FLOW, [silence] * 99)
    hurry(client, 0.2)
    caplog.set_level(logging.INFO)
    assert not search(client, wanted)
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


def test_only_the_entries_of_the_producer_with_these_ids_count(broker, client):
    broker.publish(TOPIC, stored("me", 0, 10), stored("me", 10, 10), stored("other", 10, 10))
    proof = proof_of(stored("me", 10, 10))
    find_stored(client, TOPIC, proof)
    assert proof.is_found


def test_entries_that_become_visible_one_after_the_other_are_waited_for(broker, client):
    topic = broker.create(TOPIC)
    transaction = TxnId(0, 1)
    sections = [stored("me", number) for number in range(4)]
    broker.publish(TOPIC, *sections[:2])
    with broker.changed:
        topic.append(stored("other", 1), transaction)
        for section in sections[2:]:
            topic.append(section)
    commit_at_question(3, broker, topic, transaction)
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
