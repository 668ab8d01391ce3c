"""Others write what seems to be a copy of a query's witness: only visible ones count, and two are refused."""

import time

import pytest

from integration.fixtures.transactions import transactional_cluster
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.transactions import Coordinator
from integration.helpers.triggers import Triggers
from pulsar_spark.client import Witness
from pulsar_spark.errors import OtherClusterError
from pulsar_spark.ids import MessageId, TopicName
from pulsar_spark.spark.plan.offsets import Offsets

cluster = transactional_cluster


@pytest.mark.parametrize("is_aborted", [True, False], ids=["aborted", "committed"])
def test_a_forged_copy_in_a_transaction(cluster, client, topic, is_aborted):
    cluster.admin.create_held_topic(topic)
    began = int(time.time() * 1000)
    witness = Witness(TopicName.parse(topic), MessageId(3, 4), began + 4)
    with RawConnection(cluster.service_url) as connection:
        producer = RawProducer(connection, topic)

        def copy(name, number, **options):
            position = {"key": b"__MSG_PROP_REPL_SOURCE_POSITION", "value": b"3:%d" % number}
            fields = {"replicated_from": name, "properties": [position], "publish_time": began + number}
            producer.send(b"%d" % number, **fields, **options)

        for number in range(10):
            copy("a", number)
        coordinator = Coordinator(client)
        txn = coordinator.begin([topic])
        copy("x", 4, txn=txn)
        (coordinator.abort if is_aborted else coordinator.commit)(txn)
    start = Offsets("s", {witness.topic: witness.id}, witness)
    with Triggers(cluster.service_url, topic, publishTimeMargin="1s") as triggers:
        if is_aborted:
            rows = [int(value) for *_, value in triggers.read_all(start)]
            assert rows == list(range(5, 10))
        else:
            with pytest.raises(OtherClusterError, match="no copy of a message here says"):
                triggers.read_all(start)
