"""Others write what seems to be a copy of a task's row from another cluster: only visible ones are judged."""

from collections import Counter
from typing import Any

import pytest

from integration.broker.waiting import HANG
from integration.chaos.messages import numbered
from integration.fixtures.transactions import transactional_cluster
from integration.helpers.peer import Peer
from integration.helpers.raw import RawConnection, RawProducer
from integration.helpers.task_runs import NAME, SECRET, run, task_of
from integration.helpers.transactions import Coordinator
from pulsar_spark.client import Client, ClientOptions
from pulsar_spark.errors import DuplicatesError
from pulsar_spark.protocol.replay.task_ids import TaskIds

cluster = transactional_cluster

FIRST, SECOND = numbered(50), numbered(50, first=50)


@pytest.mark.parametrize("is_aborted", [True, False], ids=["aborted", "committed"])
def test_a_forged_copy_in_a_transaction(cluster, topic, is_aborted, caplog):
    url, namespace = cluster.service_url, f"public/{topic[-8:]}"
    cluster.admin.create_namespace(namespace)
    cluster.admin.set_deduplication(namespace, enabled=True)
    topic = topic.replace("public/default", namespace)
    with Client(ClientOptions(service_url=url, operation_timeout=HANG)) as client:
        run(client, topic, FIRST, task_of(client))
        coordinator = Coordinator(client)
        txn = coordinator.begin([topic])
        forged: dict[str, Any] = {
            "producer_name": NAME,
            "sequence_id": TaskIds(SECRET, NAME, topic).own(1).start,
        }
        with RawConnection(url) as connection:
            RawProducer(connection, topic).send(SECOND[0].value, txn=txn, replicated_from="a", **forged)
        (coordinator.abort if is_aborted else coordinator.commit)(txn)
        if not is_aborted:
            with pytest.raises(DuplicatesError, match="in cluster a before"):
                run(client, topic, SECOND, task_of(client, 1, strict=True))
        assert run(client, topic, SECOND, task_of(client, 1, strict=is_aborted)) == 50 - (not is_aborted)
    assert ("in cluster a before" in caplog.text) is not is_aborted
    with Peer(url) as peer:
        found = Counter(record.value for record in peer.read_all(topic))
    assert found == Counter(record.value for record in (*FIRST, *SECOND))
