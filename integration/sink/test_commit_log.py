"""The log of a query's commits at a real broker: what others write to it, quotas, encryption."""

import logging
import uuid

import pytest

from integration.broker import StandaloneBroker
from integration.broker.waiting import FAR_AWAY, wait_until
from integration.chaos.messages import numbered
from integration.fixtures.spark import PulsarInSpark, finish
from integration.fixtures.transactions import transactional_cluster
from integration.helpers.clients import entries_of
from integration.helpers.cluster import TEST_JVM
from integration.helpers.crypto_keys import make_keys, peers_key
from integration.helpers.peer import Peer
from integration.helpers.transactions import SETTINGS, write_files
from integration.sink.test_forged import LAST_ID, forge
from integration.sink.test_transactional_commits import Query
from pulsar_spark.client import Client, ClientOptions, ProducerOptions, RecordTopic
from pulsar_spark.client.writing.record_topic import _RecordProducer
from pulsar_spark.errors import SendError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink import commit_log
from pulsar_spark.spark.sink.commit_log import LogProtection

cluster = transactional_cluster

# Short ledgers without retention.
_BROKER = SETTINGS | {
    "managedLedgerMaxEntriesPerLedger": "5",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}

KEY = b"a secret of the query"


_EVICTING = {"preciseTimeBasedBacklogQuotaCheck": "true", "backlogQuotaCheckIntervalInSeconds": "1"}
# A broker looks at a quota whenever somebody opens a producer, and here only then. What it looks at may be a
# second old, as it stores acknowledgements once a second (managedLedgerDefaultMarkDeleteRateLimit). So the
# regular check may close the producer of a query that has just released the backlog.
_SELDOM = {"backlogQuotaCheckIntervalInSeconds": "3600"}
_PRECISE = _SELDOM | {"preciseTimeBasedBacklogQuotaCheck": "true"}
_BY_LEDGER = _SELDOM | {"preciseTimeBasedBacklogQuotaCheck": "false"}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(_PRECISE, id="precise"),
        pytest.param(_BY_LEDGER, id="by ledger", marks=pytest.mark.long),
    ],
)
def quota_broker(request):
    """A broker that looks at the age of messages, or of their ledgers."""
    with StandaloneBroker(_BROKER | request.param, jvm=TEST_JVM) as broker:
        yield broker


def open_query(client, peer, admin, topic):
    """A query with a key that writes to a topic of two partitions whose data is held."""
    admin.create_held_topic(topic, 2)
    return Query(client, peer, topic, LogProtection(KEY))


# ---- what others write


@pytest.fixture
def query(client, peer, admin, topic):
    return open_query(client, peer, admin, topic)


def test_copied_records_change_nothing(query, peer):
    """A replay of a micro-batch that was committed writes nothing, whatever of the log is copied before."""
    query.commit(0, query.task("a"), query.task("b"))
    copied = peer.read_all(str(query.log))
    query.die_in_commit(1, [query.task("c"), query.task("d")], commits=1)
    copied += peer.read_all(str(query.log))
    peer.produce(str(query.log), copied)
    query.commit(1, query.task("d", "c"))
    assert query.rows() == ["a", "b", "c", "d"]
    query.commit(2, query.task("e"))
    assert query.rows() == ["a", "b", "c", "d", "e"]


def test_a_copied_intent_that_comes_before_the_driver_shuts_others_out(query, peer, monkeypatch):
    """A replay of the micro-batch writes nothing: the copy is not the first intent that is read."""
    query.commit(0, query.task("a"))
    copies, open_for_writing = [peer.read_all(str(query.log))], RecordTopic.open_for_writing
    query.commit(1, query.task("b"))

    def copy_and_open(records):
        while copies:
            peer.produce(str(query.log), copies.pop())
        open_for_writing(records)

    monkeypatch.setattr(RecordTopic, "open_for_writing", copy_and_open)
    query.commit(2, query.task("c"))
    query.commit(2, query.task("c"))
    assert query.rows() == ["a", "b", "c"]


def test_somebody_who_leaves_no_sequence_ids_does_not_stop_the_query(query, client, admin):
    """In a namespace that deduplicates, a broker drops what is sent under a name with an id that was used."""
    name = f"public/{uuid.uuid4().hex[:8]}"
    admin.create_namespace(name)
    admin.set_deduplication(name, True)
    query.log = TopicName.parse(f"persistent://{name}/spark-transactions-query")
    query.commit(0, query.task("a"))
    for name in {each.metadata.producer_name.decode() for each in entries_of(client, str(query.log))}:
        forge(client, str(query.log), numbered(1), range(LAST_ID, LAST_ID + 1), name)
    query.commit(1, query.task("b"))
    assert query.rows() == ["a", "b"]


def test_a_batch_that_is_written_again_after_its_log_was_deleted_is_warned_of(
    query, transactional_broker, caplog
):
    """It was committed, Spark has not noted it, and brokers know nothing of the log."""
    caplog.set_level(logging.WARNING, commit_log.__name__)
    query.commit(0, query.task("a"))
    query.die_in_commit(1, [query.task("b", batch=1)], commits=1)
    assert caplog.messages == []
    transactional_broker.admin.delete_topic(str(query.log))
    query.commit(1, query.task("b", batch=1))
    assert query.rows() == ["a", "b", "b"]
    (line,) = caplog.messages
    assert "micro-batch 1: the log has no record of an earlier commit: its topic was deleted" in line
    assert "may be duplicated if" in line
    query.commit(2, query.task("c", batch=2))
    assert len(caplog.messages) == 1


# ---- quotas


@pytest.fixture
def namespace(quota_broker):
    """A namespace of the test's own, for the log alone: what holds the data must not block its producers."""
    name = f"public/{uuid.uuid4().hex[:8]}"
    quota_broker.admin.create_namespace(name)
    return name


@pytest.fixture
def quota_query(quota_broker, topic, namespace):
    options = ClientOptions(service_url=quota_broker.service_url, operation_timeout=FAR_AWAY)
    with Client(options) as client, Peer(quota_broker.service_url) as peer:
        query = open_query(client, peer, quota_broker.admin, topic)
        query.log = TopicName.parse(f"persistent://{namespace}/spark-transactions-query")
        yield query


@pytest.mark.parametrize("quota_broker", [_EVICTING], indirect=True, ids=["evicting"])
def test_a_batch_that_is_written_again_after_an_eviction_is_warned_of(
    quota_query, quota_broker, namespace, caplog
):
    """It was committed, Spark has not noted it, and its records are gone."""
    admin, log = quota_broker.admin, str(quota_query.log)
    caplog.set_level(logging.WARNING, commit_log.__name__)
    quota_query.commit(0, quota_query.task("a"))
    quota_query.die_in_commit(1, [quota_query.task("b", batch=1)], commits=1)
    assert caplog.messages == []
    admin.unload(log)  # ledgers are evicted and removed when they are closed
    admin.set_message_age_quota(namespace, limit_seconds=1, policy="consumer_backlog_eviction")
    wait_until(lambda: admin.backlog(log, "spark-pulsar-transactions") == 0)
    admin.request("DELETE", f"namespaces/{namespace}/backlogQuota?backlogQuotaType=message_age")
    admin.trim(log)
    wait_until(lambda: len(admin.internal_stats(log)["ledgers"]) == 1)
    quota_query.commit(1, quota_query.task("b", batch=1))
    assert quota_query.rows() == ["a", "b", "b"]
    (line,) = caplog.messages
    assert "micro-batch 1: the records of the query's commits were removed" in line
    assert "its rows are now duplicated" in line


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
def test_the_logs_own_backlog_does_not_block_the_query(quota_query, quota_broker, namespace, policy):
    def await_quota():
        """Wait until a quota keeps producers out of the log."""
        quota_broker.admin.unload(str(quota_query.log))  # what is in the last ledger has no age
        wait_until(is_blocked)

    def is_blocked():
        try:
            _RecordProducer(quota_query.client, quota_query.log, ProducerOptions(), 1).close()
        except SendError:
            return True
        return False

    quota_query.commit(0, quota_query.task("a"), quota_query.task("b"))
    quota_broker.admin.set_message_age_quota(namespace, limit_seconds=1, policy=policy)
    await_quota()
    reports = [quota_query.task("c", batch=1), quota_query.task("d", batch=1)]
    await_quota()  # the micro-batch takes longer
    quota_query.commit(1, *reports)
    assert quota_query.rows() == ["a", "b", "c", "d"]
    quota_query.die_in_commit(2, [quota_query.task("e", batch=2)], commits=1)
    await_quota()
    with pytest.raises(SendError, match=r"to finish micro-batch 2; topic .* Raise the namespace's backlog"):
        quota_query.task("e", batch=2)
    quota_broker.admin.set_message_age_quota(namespace, limit_seconds=3600, policy=policy)
    wait_until(lambda: not is_blocked())  # the topic learns of it after the admin service has answered
    quota_query.commit(2, quota_query.task("e", batch=2))
    assert quota_query.rows() == ["a", "b", "c", "d", "e"]


# ---- encryption


def test_where_a_namespace_takes_encrypted_messages_only(
    spark, transactional_broker, peer, checkpoint, tmp_path
):
    """The sink has public keys alone, and reads its log nevertheless."""
    keys, own = make_keys(tmp_path), tmp_path / "own"
    own.mkdir()
    (own / "rsa.public.pem").write_bytes((keys / "rsa.public.pem").read_bytes())
    (tmp_path / "key").write_text(KEY.decode())
    namespace = f"public/{uuid.uuid4().hex[:8]}"
    transactional_broker.admin.create_namespace(namespace)
    transactional_broker.admin.require_encryption(namespace)
    topic = f"persistent://{namespace}/t"
    write_files(tmp_path, 2, 20)
    options = {
        "delivery": "transactional",
        "transactionLogKey": f"file://{tmp_path}/key",
        "pulsar.producer.encryptionKeys": "rsa",
        "pulsar.producer.cryptoKeyReader": str(own),
    }
    here = PulsarInSpark(spark, transactional_broker.service_url)
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "in"))
    finish(here.write_stream(rows, checkpoint, topic, **options).trigger(availableNow=True).start())
    found = peer.read_all(topic, crypto_key_reader=peers_key(keys, "rsa"))
    assert sorted(int(each.value) for each in found if each.value is not None) == list(range(40))
