"""The last visible entry of a segment whose broker repeats an old answer."""

import pytest

from pulsar_spark.client import PlanningClient
from pulsar_spark.client.reading import probe as module
from pulsar_spark.client.reading.probe import visible_end
from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import START, TOPIC, client_of, numbered, singles
from tests.fake_broker import HANG, Held, accept_and_close, cut, pass_on, refuses, silence
from tests.fake_clients import Type
from tests.fake_topics import section_of

SEGMENT = TopicName("topic", "public", "default", "topic").segment(0, 0xFFFF, 0)
COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"
SILENCE = 0.2
OPEN = TxnId(0, 1)


@pytest.fixture(autouse=True)
def asks_soon(monkeypatch):
    monkeypatch.setattr(module, "_ASKED_AFTER", 0.05)


@pytest.fixture
def topic(broker):
    return broker.create(SEGMENT)


@pytest.fixture
def ids(broker, topic):
    first = broker.publish(SEGMENT, *singles(numbered(20)))
    topic.roll()
    return first + broker.publish(SEGMENT, *singles(numbered(20)))


def of_transaction(broker, topic, count=3):
    with broker.changed:
        return [topic.append(section_of(b"txn"), OPEN).id for _ in range(count)]


def end(client, told, seen=START):
    return visible_end(client, SEGMENT, told, PlanningClient(client).stored_end(SEGMENT), SILENCE, seen)


def test_an_old_answer_is_replaced_by_what_is_stored(client, ids):
    assert [end(client, told) for told in (START, ids[3], ids[19], ids[-1])] == [ids[-1]] * 4


def test_what_is_stored_is_asked_for_by_one_entry(broker, client, ids):
    end(client, ids[3])
    broker.wait_for(lambda: not broker.open_consumers)
    assert [len(each.sent) for each in broker.consumers] == [0, 1]


def test_an_empty_segment_stays_so(client, topic):
    assert end(client, START) == START


@pytest.mark.parametrize("ends", [None, False])
def test_what_readers_are_not_given_does_not_count(broker, client, topic, ids, ends):
    of_transaction(broker, topic)
    if ends is not None:
        with broker.changed:
            topic.end(OPEN, commit=ends)
    for told, seen in ((ids[3], START), (ids[3], ids[30]), (ids[-1], START), (START, START)):
        assert end(client, told, seen) == ids[-1]


def test_what_was_seen_is_not_read_again(broker, client, topic, ids):
    of_transaction(broker, topic)
    end(client, ids[3], ids[38])
    broker.wait_for(lambda: not broker.open_consumers)
    assert [each.sent for each in broker.consumers] == [[], [], [ids[39]]]


def test_what_was_seen_counts_only_up_to_what_is_stored(client, ids):
    """The segment may be another one of its name."""
    assert end(client, ids[-1], MessageId(ids[-1].ledger, 99)) == ids[-1]


def test_committed_messages_count(broker, client, topic, ids):
    sent = of_transaction(broker, topic)
    with broker.changed:
        topic.end(OPEN, commit=True)  # leaves a marker
    assert end(client, ids[3]) == sent[-1]


def test_a_lost_connection_is_no_silence(broker, client, topic, ids):
    """Else a batch read would leave out what was committed."""
    of_transaction(broker, topic)
    # It cannot subscribe again for longer than the silence lasts.
    again = [cut] * 4
    broker.script(Type.SUBSCRIBE, [pass_on, pass_on, accept_and_close(broker, SEGMENT, cuts=True), *again])
    assert end(client, ids[3]) == ids[-1]
    assert len(broker.seen(Type.SUBSCRIBE)) == 8


def test_a_scan_ends_early_where_its_result_is_no_last_one(broker, client, topic, ids):
    of_transaction(broker, topic)
    assert (
        visible_end(
            client, SEGMENT, ids[3], PlanningClient(client).stored_end(SEGMENT), SILENCE, patience=0.0
        )
        == ids[3]
    )


@pytest.mark.parametrize("answer", ["some", "none", "refused"])
def test_where_it_is_asked(broker, client, ids, answer):
    """The cluster is asked once; the bounds of segments are right where it has transactions."""
    has_transactions = answer != "none"
    if answer == "some":
        broker.create(COORDINATORS, 1)
    if answer == "refused":
        broker.script(Type.PARTITIONED_METADATA, [refuses(pb.AuthorizationError)])
    planning = PlanningClient(client)

    def says_old(connection, frame):
        connection.send(
            Type.GET_LAST_MESSAGE_ID_RESPONSE,
            request_id=frame.command.getLastMessageId.request_id,
            last_message_id=ids[3],
            consumer_mark_delete_position=START,
        )

    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, says_old])
    assert planning.bounds(SEGMENT).last == (ids[-1] if has_transactions else ids[3])
    asked = len(broker.seen(Type.PARTITIONED_METADATA))
    assert planning.may_have_old_end(SEGMENT) == has_transactions
    assert not planning.may_have_old_end(TopicName.parse("persistent://public/default/topic"))
    assert len(broker.seen(Type.PARTITIONED_METADATA)) == asked


def test_where_nobody_answers_the_cluster_is_asked_again(broker):
    """An error would end a stream."""
    broker.script(Type.PARTITIONED_METADATA, [silence])
    with client_of(broker, operation_timeout=0.3) as client:
        planning = PlanningClient(client)
        assert [planning.may_have_old_end(SEGMENT) for _ in range(2)] == [True, False]


def test_the_bounds_of_a_segment_without_entries(broker, client, topic):
    """A broker that was restarted cannot begin at the first entry of a sealed one."""
    broker.script(Type.SUBSCRIBE, [pass_on, pass_on, refuses(pb.UnknownError, "")])
    bounds = PlanningClient(client).bounds(SEGMENT)
    assert bounds.begin == bounds.last == topic.end_position
    assert not bounds.last.is_entry
    assert len(broker.seen(Type.SUBSCRIBE)) == 2


@pytest.mark.parametrize("name", [SEGMENT, TOPIC])
@pytest.mark.parametrize("ledgers", [1, 2])
def test_a_topic_that_was_terminated_with_an_empty_ledger_has_all_its_entries(broker, client, name, ledgers):
    topic = broker.create(name)
    ids = broker.publish(name, *singles(numbered(5)))
    for _ in range(ledgers):
        topic.roll()
    broker.terminate(topic)
    planning = PlanningClient(client)
    assert planning.stored_end(name) == ids[-1]
    assert planning.bounds(name) == (ids[0].ledger_start, ids[-1])
    assert planning.entry_at(name, ids[2]).id == ids[2]
    assert [planning.first_after(name, each) for each in (ids[2], ids[-1])] == [ids[3], None]


def test_what_the_broker_has_read_over_is_not_waited_for(broker, client, topic, ids):
    """However long a silence may be: it has read aborted messages, and does not deliver them."""
    of_transaction(broker, topic)
    with broker.changed:
        topic.end(OPEN, commit=False)
    assert visible_end(client, SEGMENT, ids[3], PlanningClient(client).stored_end(SEGMENT), HANG) == ids[-1]


def test_a_broker_that_is_slow_is_waited_for(broker, client, ids):
    held = Held(broker)
    broker.script(Type.FLOW, [held])

    def is_late(connection, frame):
        pass_on(connection, frame)
        held.release()

    broker.script(Type.GET_LAST_MESSAGE_ID, [pass_on, pass_on, is_late])  # the end, and after two silences
    assert visible_end(client, SEGMENT, ids[3], PlanningClient(client).stored_end(SEGMENT), HANG) == ids[-1]
