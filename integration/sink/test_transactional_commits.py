"""What the driver of `delivery=transactional` does, whichever way the one before it has died."""

import logging
import threading
import uuid

import pyarrow as pa
import pytest

from integration.broker.waiting import wait_until
from integration.chaos.messages import columns_of
from integration.fixtures.transactions import transactional_cluster
from integration.helpers.peer import Record
from pulsar_spark.client import ProducerOptions, TopicWriter, Transactions, UserCode
from pulsar_spark.errors import SendError, TransactionError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.commit_log import CommitLog, LogProtection, QueryLog, log_topic
from pulsar_spark.spark.sink.report import TaskReport
from pulsar_spark.spark.sink.transactional import commit_batch, write_in_transaction

cluster = transactional_cluster

SPARK_TASK_FAILURES = 4  # spark.task.maxFailures


@pytest.fixture
def query(client, peer, admin, topic):
    admin.create_held_topic(topic, 2)
    return Query(client, peer, topic)


class DriverDied(BaseException):
    """The driver has died here."""


class Query:
    """What the tasks and the driver of one streaming query do, called here in any order."""

    def __init__(self, client, peer, topic, protection=None):
        self.client = client
        self.protection = protection or LogProtection()
        self.transactions = Transactions(client)
        self.topic = TopicName.parse(topic)
        self.log = log_topic(self.topic, uuid.uuid4().hex)
        self._peer = peer

    def log_of(self, batch):
        """The query's log, for a micro-batch."""
        return QueryLog(self.log, batch, self.protection)

    def task(self, *values, batch=0):
        """Run a task that writes rows; again, as Spark does, if a lost connection leaves messages in doubt.

        A broker may close producers at any time, and the topics here do not deduplicate. The transaction of
        the failed attempt is aborted, and no commit gets its report.
        """
        for _ in range(SPARK_TASK_FAILURES - 1):
            try:
                return self._attempt(values, batch)
            except SendError as error:
                if not error.what.startswith("the connection was lost with"):
                    raise
        return self._attempt(values, batch)

    def _attempt(self, values, batch):
        def write(batches, transaction):
            options, code = ProducerOptions(), UserCode(encryptor=self.protection.encryptor)
            with TopicWriter(self.client, self.topic, options, transaction=transaction, code=code) as writer:
                for batch in batches:
                    records = [Record(value.encode(), key=value) for value in batch[0].to_pylist()]
                    writer.send(columns_of(records))
                writer.flush()
            return TaskReport.of(writer.sent)

        rows = pa.record_batch([pa.array(values, pa.string())], names=["value"])
        return write_in_transaction(self.client, self.log_of(batch), 600.0, iter([rows]), write)

    def commit(self, batch, *reports):
        commit_batch(self.client, reports, batch, self.protection, 600.0)

    def die_in_commit(self, batch, reports, commits):
        """Commit a batch, in a driver that dies when ``commits`` of its transactions are committed."""
        lock, left, commit = threading.Lock(), commits, Transactions.commit

        def die(*_):
            raise DriverDied

        def commit_or_die(transactions, transaction):
            nonlocal left
            with lock:
                if left == 0:
                    die()
                left -= 1
            commit(transactions, transaction)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Transactions, "commit", commit_or_die)
            patch.setattr(CommitLog, "trim", die)
            with pytest.raises(DriverDied):
                self.commit(batch, *reports)

    def rows(self):
        """What the C++ client reads."""
        values = [record.value.decode() for record in self._peer.read_all(str(self.topic)) if record.value]
        return sorted(value for value in values if value != "plain")


def transactions(reports):
    return tuple(report.transaction for report in reports if report.transaction is not None)


def test_a_batch_comes_as_a_whole(query, caplog):
    for batch in range(4):
        reports = [query.task(f"{batch}-{task}-a", f"{batch}-{task}-b") for task in range(3)]
        assert len(query.rows()) == 6 * batch
        query.commit(batch, *reports, query.task())
    assert len(set(query.rows())) == len(query.rows()) == 24
    with CommitLog(query.client, query.log_of(4)) as log:
        assert log.state.intent is not None
        assert log.state.intent.batch == 3
        assert not log.state.opened
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_driver_that_died_between_two_commits(query, commits):
    query.commit(0, query.task("0"))
    query.die_in_commit(1, [query.task("a", "b"), query.task("c"), query.task("d")], commits)
    for _ in range(2):  # it may die again, before Spark notes that the micro-batch is done
        query.commit(1, query.task("d", "c", "b", "a"))
        assert query.rows() == ["0", "a", "b", "c", "d"]
    query.commit(2, query.task("e"))
    assert query.rows() == ["0", "a", "b", "c", "d", "e"]


def test_a_transaction_whose_time_is_over(query):
    late = query.transactions.begin(0.001)

    def is_over():
        try:
            query.transactions.add(late, [query.topic.of_partition(0)])
        except TransactionError:
            return True
        return False

    wait_until(is_over)
    reports = [query.task("a"), TaskReport({}, log=query.log, transaction=late)]
    with pytest.raises(TransactionError, match="none of its rows is in the topic"):
        query.commit(0, *reports)
    assert query.rows() == []
    query.commit(0, query.task("b", "a"))
    assert query.rows() == ["a", "b"]


def test_a_transaction_whose_time_is_over_between_two_commits(query):
    """The window that is left: what is committed stays, the rest is gone, and that is an error."""
    reports = [query.task("a"), query.task("b")]
    query.die_in_commit(0, reports, commits=1)
    query.transactions.abort(transactions(reports)[1])  # as the broker does
    for _ in range(2):
        with pytest.raises(TransactionError, match="1 other transactions are in the topic"):
            query.commit(0, query.task("a", "b"))
    assert query.rows() == ["a"]


def test_an_answer_that_was_lost(query):
    """The broker says of what was committed what it says of what is gone; the marker tells them apart."""
    reports = [query.task("a"), query.task("b"), query.task("c")]
    query.die_in_commit(0, reports, commits=1)
    with CommitLog(query.client, query.log_of(0)) as log:
        query.transactions.commit(transactions(reports)[2])
        log.refresh()
        assert log.state.committed == {transactions(reports)[0]}  # the second holds the third's marker back
    query.commit(0, *reports)
    assert query.rows() == ["a", "b", "c"]


def test_what_a_killed_task_leaves_open_ends_with_the_next_commit(query, peer):
    query.task("never")
    query.commit(0, query.task("a"))
    peer.produce(str(query.topic), [Record(b"after", key=str(number)) for number in range(10)])
    assert query.rows() == ["a", *["after"] * 10]
