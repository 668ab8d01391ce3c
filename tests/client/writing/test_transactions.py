"""Transactions: begin, add, commit, abort, and what is known when an answer is lost."""

import threading
from functools import partial

import pytest

from pulsar_spark.client import Deadline, Transaction, Transactions
from pulsar_spark.errors import NotAllowedError, NotReadyError, TransactionError
from pulsar_spark.ids import TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import TOPIC, client_of, hurry
from tests.fake_broker import HANG, FakeBroker, Held, cut, lose_answer, refuses
from tests.fake_clients import COORDINATORS, Type
from tests.fake_topics import section_of


@pytest.fixture
def broker():
    with FakeBroker(has_transactions=True) as broker:
        yield broker


@pytest.fixture
def transactions(client):
    return Transactions(client)


def begin(broker, transactions, topic):
    """A transaction with one message in a topic."""
    transaction = transactions.begin(60.0)
    transactions.add(transaction, [TOPIC])
    with broker.changed:
        topic.append(section_of(b"inside"), transaction)
    return transaction


def test_what_is_committed_shows_and_what_is_aborted_does_not(broker, transactions, topic):
    first = begin(broker, transactions, topic)
    assert topic.values == []
    transactions.commit(first)
    assert topic.values == [b"inside"]
    second = begin(broker, transactions, topic)
    transactions.abort(second)
    broker.publish(TOPIC, section_of(b"plain"))
    assert topic.values == [b"inside", b"plain"]
    assert [one.txn_ttl_millis for one in broker.seen(Type.NEW_TXN)] == [60_000] * 2
    added = broker.seen(Type.ADD_PARTITION_TO_TXN)
    assert [list(one.partitions) for one in added] == [[str(TOPIC)]] * 2
    assert [one.txn_action for one in broker.seen(Type.END_TXN)] == [pb.COMMIT, pb.ABORT]


def test_the_coordinator_is_looked_up_once(broker, transactions):
    for _ in range(3):
        transactions.commit(transactions.begin(1.0))
    assert len(broker.seen(Type.TC_CLIENT_CONNECT_REQUEST)) == 1
    assert len(broker.seen(Type.LOOKUP)) == 1


def test_later_transactions_of_a_client_look_nothing_up(broker, client):
    for _ in range(3):
        later = Transactions(client)
        later.commit(later.begin(1.0))
    for kind in (Type.PARTITIONED_METADATA, Type.LOOKUP, Type.TC_CLIENT_CONNECT_REQUEST):
        assert len(broker.seen(kind)) == 1


def test_a_coordinator_that_a_cluster_got_later(broker, client, transactions):
    broker.partitions[COORDINATORS] = 2
    with pytest.raises(TransactionError, match="is not found"):
        transactions.commit(TxnId(1, 5))
    assert [one.tc_id for one in broker.seen(Type.TC_CLIENT_CONNECT_REQUEST)] == [1]


def test_parallel_requests_share_the_coordinators_connection(broker, transactions):
    transaction, held = transactions.begin(60.0), Held(broker)
    broker.script(Type.ADD_PARTITION_TO_TXN, [held] * 3)
    add = partial(transactions.add, transaction, [TOPIC])
    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    broker.wait_for_command(Type.ADD_PARTITION_TO_TXN, 3)
    held.release()
    for thread in threads:
        thread.join(HANG)
    assert len(broker.seen(Type.TC_CLIENT_CONNECT_REQUEST)) == len(broker.seen(Type.LOOKUP)) == 1


def test_one_transaction_for_those_who_write_in_it(broker, transactions, topic):
    transaction = Transaction(transactions.begin(1.0), transactions)
    transaction.add([TOPIC])
    assert broker.transactions == {transaction.id: {str(TOPIC)}}


@pytest.mark.parametrize("first", ["commit", "abort"])
@pytest.mark.parametrize("second", ["commit", "abort"])
def test_one_that_was_ended_is_not_there(broker, transactions, topic, first, second):
    transaction = begin(broker, transactions, topic)
    getattr(transactions, first)(transaction)
    with pytest.raises(TransactionError, match="is not found"):
        getattr(transactions, second)(transaction)
    with pytest.raises(TransactionError):
        transactions.add(transaction, [TOPIC])
    assert topic.values == ([b"inside"] if first == "commit" else [])


@pytest.mark.parametrize(("method", "done"), [("commit", "committed"), ("abort", "aborted")])
def test_where_the_answer_is_lost_the_outcome_is_unknown(broker, transactions, topic, method, done):
    transaction = begin(broker, transactions, topic)
    broker.script(Type.END_TXN, [lose_answer])
    with pytest.raises(
        TransactionError, match=f"unknown whether .* was {done}: the broker's response was lost"
    ):
        getattr(transactions, method)(transaction)
    assert len(broker.seen(Type.END_TXN)) == 2


@pytest.mark.parametrize("kind", [Type.END_TXN, Type.ADD_PARTITION_TO_TXN, Type.NEW_TXN])
@pytest.mark.parametrize(
    "trouble", [cut, refuses(pb.TransactionCoordinatorNotFound), refuses(pb.InvalidTxnStatus)]
)
def test_what_passes_is_asked_again_wherever_the_coordinator_is(broker, transactions, topic, kind, trouble):
    broker.script(kind, [trouble])
    transactions.commit(begin(broker, transactions, topic))
    assert topic.values == [b"inside"]
    assert len(broker.seen(kind)) == 2
    assert len(broker.seen(Type.TC_CLIENT_CONNECT_REQUEST)) == 2
    assert broker.transactions == {}


def test_a_coordinator_that_is_being_loaded(broker, transactions):
    broker.script(Type.TC_CLIENT_CONNECT_REQUEST, [refuses(pb.TransactionCoordinatorNotFound)])
    transactions.begin(1.0)
    assert len(broker.seen(Type.TC_CLIENT_CONNECT_REQUEST)) == 2


def test_a_coordinator_that_is_never_loaded(broker, client, transactions):
    broker.script(Type.TC_CLIENT_CONNECT_REQUEST, [refuses(pb.TransactionCoordinatorNotFound)] * 99)
    hurry(client, 0.4)
    with pytest.raises(NotReadyError):
        transactions.begin(1.0)


def test_a_commit_may_wait_for_longer_than_the_operation_timeout(broker, client, transactions, topic):
    transaction = begin(broker, transactions, topic)
    broker.script(Type.TC_CLIENT_CONNECT_REQUEST, [refuses(pb.TransactionCoordinatorNotFound)] * 4)
    broker.script(Type.END_TXN, [refuses(pb.TransactionCoordinatorNotFound)])
    hurry(client, 0.1)
    transactions.commit(transaction, Deadline(60.0))
    assert topic.values == [b"inside"]


def test_a_coordinator_that_there_is_not(broker, transactions):
    with pytest.raises(TransactionError, match="no transaction coordinator 7"):
        transactions.commit(TxnId(7, 1))
    assert broker.seen(Type.END_TXN) == []


def test_brokers_without_transactions():
    with FakeBroker() as broker, client_of(broker) as client:
        with pytest.raises(NotAllowedError, match="no transaction coordinators"):
            Transactions(client)
        assert len(broker.seen(Type.PARTITIONED_METADATA)) == 1
