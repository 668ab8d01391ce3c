"""Transactions, run with our own commands, so that tests can read what was committed, aborted or is open.

with RawConnection(broker.service_url) as connection:
    coordinator = Coordinator(connection)
    txn = coordinator.begin([topic])
    RawProducer(connection, topic).send(b"value", txn=txn)
    coordinator.commit(txn)

The broker must run with SETTINGS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from integration.raw import RawConnection
from pulsar_spark.wire import pulsar_pb2 as pb

SETTINGS = {"transactionCoordinatorEnabled": "true"}

Txn: TypeAlias = "tuple[int, int]"

_ASSIGN_TOPIC = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
_TYPE = pb.BaseCommand


class Coordinator:
    """The first transaction coordinator of a cluster; a standalone broker has no other.

    A client must look up the coordinator's topic and introduce itself on the connection before it asks for a
    transaction: else the broker answers ServiceNotReady, or TransactionCoordinatorNotFound.
    """

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        connection.look_up(_ASSIGN_TOPIC)
        request = pb.CommandTcClientConnectRequest(request_id=connection.new_id(), tc_id=0)
        connection.ask(pb.BaseCommand(type=_TYPE.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=request))

    def begin(self, topics: Sequence[str], *, seconds: float = 600.0) -> Txn:
        """Begin a transaction on topics; it is aborted by itself after ``seconds``.

        A message of a transaction that does not know its topic is never decided: it blocks all reading.
        """
        connection = self._connection
        begin = pb.CommandNewTxn(request_id=connection.new_id(), txn_ttl_millis=int(seconds * 1000), tc_id=0)
        answer = connection.ask(pb.BaseCommand(type=_TYPE.NEW_TXN, newTxn=begin)).newTxnResponse
        txn = answer.txnid_most_bits, answer.txnid_least_bits
        add = pb.CommandAddPartitionToTxn(
            request_id=connection.new_id(),
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
            partitions=topics,
        )
        connection.ask(pb.BaseCommand(type=_TYPE.ADD_PARTITION_TO_TXN, addPartitionToTxn=add))
        return txn

    def commit(self, txn: Txn) -> None:
        """Make its messages visible; a marker follows them in each topic."""
        self._end(txn, pb.COMMIT)

    def abort(self, txn: Txn) -> None:
        """Have its messages skipped by all readers; a marker follows them in each topic."""
        self._end(txn, pb.ABORT)

    def _end(self, txn: Txn, action: pb.TxnAction) -> None:
        end = pb.CommandEndTxn(
            request_id=self._connection.new_id(),
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
            txn_action=action,
        )
        self._connection.ask(pb.BaseCommand(type=_TYPE.END_TXN, endTxn=end))
