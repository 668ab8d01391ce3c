"""Transactions in tests: their settings, and a coordinator for messages that a RawProducer writes.

with Client(ClientOptions(service_url=broker.service_url)) as client:
    coordinator = Coordinator(client)
    txn = coordinator.begin([topic])
    RawProducer(connection, topic).send(b"value", txn=txn)
    coordinator.commit(txn)

The broker must run with SETTINGS.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_spark.client import Client, Transactions
from pulsar_spark.ids import TopicName, TxnId

SETTINGS = {"transactionCoordinatorEnabled": "true"}


class Coordinator:
    """Our own client's transactions, with topics by their names."""

    def __init__(self, client: Client) -> None:
        self._transactions = Transactions(client)
        self.commit = self._transactions.commit
        self.abort = self._transactions.abort

    def begin(self, topics: Sequence[str], *, seconds: float = 600.0) -> TxnId:
        """Begin a transaction on topics; it is aborted by itself after ``seconds``."""
        txn = self._transactions.begin(seconds)
        self._transactions.add(txn, [TopicName.parse(topic) for topic in topics])
        return txn
