"""A micro-batch that did not finish in one cluster runs again in another one, which has its rows."""

import uuid
from collections import Counter

import pytest

from integration.helpers.peer import Peer, Record
from integration.helpers.task_runs import run, task_of
from pulsar_spark.client import Client, ClientOptions
from pulsar_spark.errors import DuplicatesError, OtherClusterError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.spark.sink.commit_log import CommitLog, QueryLog, announce, log_topic, was_committed
from pulsar_spark.spark.sink.commit_records import Intent
from pulsar_spark.wire import pulsar_pb2 as pb

ROWS = [Record(b"%d" % number, key=str(number % 3)) for number in range(100)]


@pytest.fixture(scope="module")
def namespace(two_clusters):
    return two_clusters.create_namespace("sink", deduplicationEnabled=True)


@pytest.fixture(scope="module")
def clients(two_clusters):
    with (
        Client(ClientOptions(service_url=two_clusters.a.service_url)) as a,
        Client(ClientOptions(service_url=two_clusters.b.service_url)) as b,
    ):
        yield a, b


# How many micro-batches finish before the move, how many rows of the next one are stored, and how.
MOVES = [
    (0, 60, {}),
    (3, 60, {}),
    (2, 100, {}),  # as if a copied checkpoint wrote in both clusters
    *(
        pytest.param(*move, marks=pytest.mark.long)
        for move in [
            (0, 1, {}),
            (1, 99, {"batching": False}),
            (3, 30, {"compression": pb.LZ4}),
            (4, 50, {"batching": False, "chunking": True, "chunk_max_message_size": 150}),
            (5, 77, {"batching_max_messages": 7}),
            (6, 2, {"compression": pb.ZSTD, "batching": False}),
            (7, 98, {}),
        ]
    ),
]


def stored(clusters, topic):
    """The rows that cluster b has, in order."""
    with Peer(clusters.b.service_url) as peer:
        return [record.value for record in peer.read_all(topic)]


@pytest.mark.parametrize(("before", "died", "options"), MOVES)
def test_its_copies_are_left_out_and_told(two_clusters, clients, geo_topic, before, died, options, caplog):
    """Also if the query was in both clusters before, or dies again; and the next micro-batch finds none."""
    a, b = clients
    for batch in range(before):
        run(clients[batch % 2], geo_topic, ROWS, task_of(clients[batch % 2], batch), **options)
    run(a, geo_topic, ROWS, task_of(a, before), dies_after=died, **options)
    two_clusters.await_replicated("a", geo_topic)
    two_clusters.await_replicated("b", geo_topic)
    there = stored(two_clusters, geo_topic)
    with pytest.raises(DuplicatesError, match=r"in cluster a before.*No row is sent"):
        run(b, geo_topic, ROWS, task_of(b, before, strict=True), **options)
    assert stored(two_clusters, geo_topic) == there
    again = (died + len(ROWS)) // 2
    run(b, geo_topic, ROWS, task_of(b, before), dies_after=again, **options)
    assert run(b, geo_topic, ROWS, task_of(b, before), **options) == len(ROWS) - again
    assert "in cluster a before" in caplog.text
    found = stored(two_clusters, geo_topic)
    assert Counter(found) == {row.value: before + 1 for row in ROWS}
    assert found[len(there) - died :] == [row.value for row in ROWS]
    caplog.clear()
    assert run(b, geo_topic, ROWS, task_of(b, before + 1, strict=True), **options) == len(ROWS)
    assert caplog.text == ""


def test_another_programs_copies_are_not_taken_for_it(two_clusters, clients, geo_topic):
    a, b = clients
    run(a, geo_topic, ROWS, task_of(a, 1, name="spark-other-0"))
    two_clusters.await_replicated("a", geo_topic)
    assert run(b, geo_topic, ROWS, task_of(b, 1, strict=True)) == len(ROWS)


def test_a_commit_log_of_another_cluster_is_refused(two_clusters, clients, geo_topic):
    a, b = clients
    log = QueryLog(log_topic(TopicName.parse(geo_topic), str(uuid.uuid4())), 3)
    announce(a, log, TxnId(0, 5))
    two_clusters.await_replicated("a", str(log.topic))
    with pytest.raises(OtherClusterError, match=r"in cluster 'a'.*delete this topic here"):
        was_committed(b, log)
    with pytest.raises(OtherClusterError, match="in cluster 'a'"):
        CommitLog(b, log)
    assert not was_committed(a, log)
    two_clusters.b.admin.delete_topic(str(log.topic))
    with CommitLog(b, log) as opened:
        assert opened.state.intent is None


def test_a_commit_log_that_is_not_replicated_is_missed(two_clusters, clients, caplog):
    """Rows that name their topics have it in `public/default`."""
    a, b = clients
    name, transaction = log_topic(None, str(uuid.uuid4())), TxnId(0, 5)
    with CommitLog(a, QueryLog(name, 2)) as opened:
        opened.write(Intent(2, (transaction,)))
    with CommitLog(b, QueryLog(name, 3)) as opened:
        opened.write(Intent(3, (transaction,)))
    assert "may be duplicated" in caplog.text
    assert "another namespace or cluster" in caplog.text
