"""Transactions in tests: their settings, and a coordinator for messages that a RawProducer writes.

with Client(ClientOptions(service_url=broker.service_url)) as client:
    coordinator = Coordinator(client)
    txn = coordinator.begin([topic])
    RawProducer(connection, topic).send(b"value", txn=txn)
    coordinator.commit(txn)

The broker must run with SETTINGS.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from integration.helpers.peer import Peer
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


def write_files(folder: Path, files: int, rows: int) -> None:
    """Write ascending numbers into files, in the order in which Spark will take them."""
    (folder / "in").mkdir()
    for number in range(files):
        path = folder / "in" / f"{number:04}.txt"
        path.write_text("".join(f"{row}\n" for row in range(number * rows, (number + 1) * rows)))
        os.utime(path, (number, number))


def assert_once(service_url: str, topic: str, rows: int) -> None:
    """Let the C++ client read the numbers from 0 to ``rows`` - 1, each once."""
    with Peer(service_url) as peer:
        read = Counter(int(record.value) for record in peer.read_all(topic) if record.value is not None)
    missing, doubled = set(range(rows)) - read.keys(), [row for row, count in read.items() if count > 1]
    assert not missing, f"{len(missing)} of {rows} are missing, such as {min(missing)}"
    assert not doubled, f"{len(doubled)} of {rows} are doubled, such as {min(doubled)}"
    assert len(read) == rows, "there are rows that nobody wrote"
