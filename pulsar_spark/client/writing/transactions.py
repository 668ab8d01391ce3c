"""Transactions of a cluster: begin, add topic partitions, commit, abort.

Readers see all messages of a transaction at once when it is committed, and never if it is aborted. An open
transaction holds back all readers of its topic partitions. So follow two rules. Close all producers of a
transaction before its end, because a message that is sent later makes the committed messages disappear. And
do not request the outcome, because the broker's answer is the same for a committed and an aborted
transaction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline, retry
from pulsar_spark.client.net.session import Purpose
from pulsar_spark.errors import NotAllowedError, PulsarError, TransactionError, from_server
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb


class Transactions:
    """The transaction coordinators of a cluster. Thread-safe; each call is retried for one operation timeout.

    Raises NotAllowedError if the brokers run without transactions.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sessions = client.coordinator_sessions
        self._coordinators = client.transaction_coordinators()
        if not self._coordinators:
            raise NotAllowedError(
                "the cluster has no transaction coordinators",
                advice="Set transactionCoordinatorEnabled=true in the brokers' configuration",
            )

    def begin(self, ttl: float) -> TxnId:
        """Begins a transaction, which the broker aborts after ``ttl`` seconds."""
        number = random.randrange(len(self._coordinators))
        answer = self._ask(number, lambda request_id: commands.new_txn(request_id, number, int(ttl * 1000)))
        return TxnId(answer.newTxnResponse.txnid_most_bits, answer.newTxnResponse.txnid_least_bits)

    def add(self, transaction: TxnId, topics: Iterable[TopicName]) -> None:
        """Adds topic partitions; call it before sending. A transaction never ends in partitions not added.

        Raises TransactionError if the transaction is not open.
        """
        names = [str(topic) for topic in topics]
        self._ask(
            transaction.most_bits,
            lambda request_id: commands.add_partition_to_txn(request_id, transaction, names),
        )

    def commit(self, transaction: TxnId, deadline: Deadline | None = None) -> None:
        """Makes the messages of a transaction visible; no more messages may be sent in it.

        An unreachable broker is awaited until ``deadline``; None: for one operation timeout.

        Raises:
            TransactionError: the broker no longer has the transaction. It was aborted, by its timeout or by
                another program; or it is committed already, perhaps by this call if an answer was lost.
        """
        self._end(transaction, deadline, commit=True)

    def abort(self, transaction: TxnId) -> None:
        """Makes all readers skip the messages of a transaction; raises as ``commit``."""
        self._end(transaction, None, commit=False)

    def _end(self, transaction: TxnId, deadline: Deadline | None, *, commit: bool) -> None:
        asked = 0

        def build(request_id: int) -> bytes:
            nonlocal asked
            asked += 1
            return commands.end_txn(request_id, transaction, commit=commit)

        try:
            self._ask(transaction.most_bits, build, deadline)
        except TransactionError as error:
            if asked == 1:
                raise
            done = "committed" if commit else "aborted"
            raise TransactionError(
                f"it is unknown whether transaction {transaction} was {done}: the broker's response was "
                f"lost, and the retry failed: {error.what}",
                advice="Read its topics to find out",
            ) from error

    def _ask(
        self, coordinator: int, build: Callable[[int], bytes], deadline: Deadline | None = None
    ) -> pb.BaseCommand:
        """Sends a request to a coordinator, at its current broker, until it answers."""
        if coordinator >= len(self._coordinators):
            self._coordinators = self._client.transaction_coordinators(coordinator + 1)
        if coordinator >= len(self._coordinators):
            raise TransactionError(f"the cluster has no transaction coordinator {coordinator}")
        until = deadline or self._client.operation()
        return retry(lambda: self._ask_once(coordinator, build, until), until)

    def _ask_once(
        self, coordinator: int, build: Callable[[int], bytes], deadline: Deadline
    ) -> pb.BaseCommand:
        session = self._sessions.get(coordinator)
        if session is None or session.error is not None:
            # Avoids the producers' connection, because a broker that throttles publishing stops reading it.
            session = self._client.locate(self._coordinators[coordinator], Purpose.READ, deadline)
            connect = session.request(
                lambda request_id: commands.tc_client_connect(request_id, coordinator), deadline
            )
            _check(connect.tcClientConnectResponse)
        try:
            answer = session.request(build, deadline)
            for body in (answer.newTxnResponse, answer.addPartitionToTxnResponse, answer.endTxnResponse):
                _check(body)
        except PulsarError:
            self._sessions.pop(coordinator, None)  # the next request looks up the coordinator again
            raise
        self._sessions[coordinator] = session
        return answer


@dataclass(frozen=True, slots=True)
class Transaction:
    """One open transaction, for its writers."""

    id: TxnId
    _transactions: Transactions

    def add(self, topics: Iterable[TopicName]) -> None:
        """See :meth:`Transactions.add`."""
        self._transactions.add(self.id, topics)


def _check(answer: Any) -> None:
    if answer.HasField("error"):
        raise from_server(answer.error, answer.message)
