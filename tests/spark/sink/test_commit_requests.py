"""The requests of a transactional micro-batch without its rows, by a broker that counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pulsar_spark.client import Client, Transaction
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.ids import TopicName
from pulsar_spark.spark.sink.commit_log import LogProtection, QueryLog, was_committed
from pulsar_spark.spark.sink.report import TaskReport
from pulsar_spark.spark.sink.transactional import commit_batch, write_in_transaction
from pulsar_spark.wire import pulsar_pb2 as pb
from tests.client.clients import client_of
from tests.fake_broker import FakeBroker, cut, refuses
from tests.fake_clients import Type

DATA = TopicName.parse("persistent://public/default/orders")
LOG = TopicName.parse("persistent://public/default/spark-transactions-query")

TASK = {"NEW_TXN": 1, "PRODUCER": 1, "CLOSE_PRODUCER": 1, "ADD_PARTITION_TO_TXN": 1}
DRIVER = {
    "SUBSCRIBE": 2,  # the durable one, and a reader of the log
    "FLOW": 1,
    "CLOSE_CONSUMER": 2,
    "PRODUCER": 1,
    "CLOSE_PRODUCER": 1,
    "ADD_PARTITION_TO_TXN": 1,
    "END_TXN": 1,
    "ACK": 1,
}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(has_transactions=True) as broker:
        broker.create(DATA)
        yield broker


def write_micro_batch(client: Client, batch: int) -> TaskReport:
    def write(batches: Iterator[pa.RecordBatch], transaction: Transaction | None) -> TaskReport:
        assert transaction is not None
        transaction.add([DATA])
        assert sum(each.num_rows for each in batches) == 1
        return TaskReport({})

    rows = [pa.record_batch([pa.array(["a"])], names=["value"])]
    return write_in_transaction(client, QueryLog(LOG, batch), 60.0, iter(rows), write)


def commit(client: Client, report: TaskReport, batch: int) -> None:
    commit_batch(client, [report], batch, LogProtection(), 60.0)


def requests(broker: FakeBroker, since: int) -> Counter[str]:
    uncounted = {Type.SEND, Type.PING, Type.PONG, Type.CONNECT}
    kinds = [each.command.type for each in list(broker.commands)[since:]]
    return Counter(pb.BaseCommand.Type.Name(kind) for kind in kinds if kind not in uncounted)


def test_a_later_micro_batch_looks_nothing_up(broker):
    """Tasks and driver are in processes of their own."""
    with client_of(broker) as task, client_of(broker) as driver:
        for batch in range(4):
            begin = len(broker.commands)
            report = write_micro_batch(task, batch)
            written = len(broker.commands)
            of_task = requests(broker, begin)
            commit(driver, report, batch)
            of_driver = requests(broker, written)
    assert of_task == TASK
    # What is to be read, whether a broker's marker is a gap, and whether the intent is visible. A slow
    # broker is asked once more.
    assert of_driver.pop("GET_LAST_MESSAGE_ID") in (3, 4)
    assert of_driver == DRIVER


MOVED = {
    "a coordinator": (Type.NEW_TXN, refuses(pb.TransactionCoordinatorNotFound)),
    "the log": (Type.PRODUCER, refuses(pb.ServiceNotReady)),
    "all": (Type.PRODUCER, cut),
}


@pytest.mark.parametrize(("kind", "action"), MOVED.values(), ids=MOVED.keys())
def test_what_has_moved_since_is_looked_up_again(broker, kind, action):
    with client_of(broker) as client:
        commit(client, write_micro_batch(client, 0), 0)
        begin = len(broker.commands)
        broker.script(kind, [action])
        commit(client, write_micro_batch(client, 1), 1)
        assert requests(broker, begin)["LOOKUP"] >= 1
    assert broker.transactions == {}


def test_a_log_that_was_deleted_since_is_created_again(broker):
    with client_of(broker) as client:
        commit(client, write_micro_batch(client, 0), 0)
        del broker.topics[str(LOG)]
        commit(client, write_micro_batch(client, 1), 1)
    assert str(LOG) in broker.topics
    assert broker.transactions == {}


def test_tasks_find_a_log_that_was_created_again_with_partitions(broker: FakeBroker) -> None:
    """The first of them meets the old name; the next attempt asks again."""
    with client_of(broker) as task, client_of(broker) as other:
        commit(other, write_micro_batch(other, 0), 0)
        assert was_committed(task, QueryLog(LOG, 0))
        del broker.topics[str(LOG)]
        broker.create(LOG, partitions=2)
        with pytest.raises(NotAllowedError):
            was_committed(task, QueryLog(LOG, 1))
        assert not was_committed(task, QueryLog(LOG, 1))
