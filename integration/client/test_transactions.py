"""Our client's transactions: what readers see, and what a lost connection leaves unknown."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.broker.waiting import HANG, wait_until
from integration.chaos.messages import columns_of
from integration.helpers.peer import Record
from integration.helpers.proxy import Direction
from pulsar_spark.client import ProducerOptions, TopicWriter, Transaction, Transactions
from pulsar_spark.errors import SendError, TransactionError
from pulsar_spark.ids import TopicName
from tests.writes import send_all


@pytest.fixture
def cluster(proxied_transactions):
    return proxied_transactions


@pytest.fixture
def deduplicates():
    """Whether the topic's namespace does."""
    return False


@pytest.fixture
def held(admin, namespace, own_topic, deduplicates):
    admin.set_deduplication(namespace, deduplicates)
    admin.create_held_topic(own_topic)
    return own_topic


def begin(client):
    transactions = Transactions(client)
    return transactions, Transaction(transactions.begin(600.0), transactions)


@pytest.mark.parametrize("batching", [True, False])
def test_a_commit_and_an_abort(client, peer, held, batching):
    for value in (b"aborted", b"committed"):
        transactions, transaction = begin(client)
        options = ProducerOptions(batching=batching)
        with TopicWriter(client, TopicName.parse(held), options, transaction=transaction) as writer:
            send_all(writer, columns_of([Record(value), Record(value, key="k")]))
        assert peer.read_all(held) == []
        end = transactions.commit if value == b"committed" else transactions.abort
        end(transaction.id)
        with pytest.raises(TransactionError):
            end(transaction.id)
    assert peer.read_all(held) == [Record(b"committed"), Record(b"committed", key="k")]


@pytest.mark.parametrize(
    ("deduplicates", "reason"), [(False, "not certain that the namespace"), (True, "cannot be read before")]
)
def test_what_may_be_stored_is_not_sent_again(client, proxy, admin, held, deduplicates, reason):
    _, transaction = begin(client)
    with TopicWriter(client, TopicName.parse(held), ProducerOptions(), transaction=transaction) as writer:
        send_all(writer, columns_of([Record(b"acknowledged")]))
        proxy.stall(Direction.TO_CLIENT)
        try:
            writer.send(columns_of([Record(b"unknown")]))
            wait_until(lambda: admin.stats(held)["msgInCounter"] == 2)
            proxy.cut_all()
        finally:
            proxy.resume()
        with pytest.raises(SendError, match=f"1 messages of a transaction .*{reason}"):
            writer.flush()


@pytest.mark.parametrize("deduplicates", [True])
def test_what_is_not_stored_is_sent_again_where_the_broker_deduplicates(
    client, peer, proxy, held, deduplicates
):
    transactions, transaction = begin(client)
    with TopicWriter(client, TopicName.parse(held), ProducerOptions(), transaction=transaction) as writer:
        send_all(writer, columns_of([Record(b"acknowledged")]))
        proxy.stall(Direction.TO_BROKER)
        try:
            writer.send(columns_of([Record(b"lost")]))
            proxy.cut_all()
        finally:
            proxy.resume()
        writer.flush()
    transactions.commit(transaction.id)
    assert peer.read_all(held) == [Record(b"acknowledged"), Record(b"lost")]


def test_a_lost_answer_is_never_taken_for_a_commit(client, peer, proxy, held):
    transactions, transaction = begin(client)
    with TopicWriter(client, TopicName.parse(held), ProducerOptions(), transaction=transaction) as writer:
        send_all(writer, columns_of([Record(b"value")]))
    proxy.stall(Direction.TO_CLIENT)
    with ThreadPoolExecutor(1) as pool:
        try:
            commit = pool.submit(transactions.commit, transaction.id)
            wait_until(lambda: peer.read_all(held) == [Record(b"value")])
            proxy.cut_all()
        finally:
            proxy.resume()
        with pytest.raises(TransactionError, match="the broker's response was lost"):
            commit.result(HANG)
