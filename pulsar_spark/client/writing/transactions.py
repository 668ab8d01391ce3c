"""Transactions of a cluster: begin, add topic partitions, commit, abort.

Readers see the messages of a transaction all together when it is committed, and never if it is aborted. An
open transaction holds back all readers of its topic partitions. Callers must know two dangers. Messages that
are sent into a transaction after its end make its committed messages disappear, so all its producers must be
closed before. And the broker gives the same answer about a committed transaction as about an aborted one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pulsar_spark.client.client import Client
from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.pool import Purpose
from pulsar_spark.client.net.retry import retry
from pulsar_spark.errors import NotAllowedError, PulsarError, TransactionError, from_server
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb


class Transactions:
    """The transaction coordinators of a cluster. Thread-safe; each call is tried for one operation timeout.

    Args:
        client: where to connect.

    Raises:
        NotAllowedError: the brokers run without transactions.
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
        """Begin a transaction, which the broker aborts after ``ttl`` seconds."""
        number = random.randrange(len(self._coordinators))
        answer = self._ask(number, lambda request_id: commands.new_txn(request_id, number, int(ttl * 1000)))
        return TxnId(answer.newTxnResponse.txnid_most_bits, answer.newTxnResponse.txnid_least_bits)

    def add(self, transaction: TxnId, topics: Iterable[TopicName]) -> None:
        """Make topic partitions part of it, before anything is sent there: else it would never end there.

        Raises:
            TransactionError: it is not open.
        """
        names = [str(topic) for topic in topics]
        self._ask(
            transaction.most_bits,
            lambda request_id: commands.add_partition_to_txn(request_id, transaction, names),
        )

    def commit(self, transaction: TxnId, deadline: Deadline | None = None) -> None:
        """Make its messages visible; nothing more may be sent in it.

        A broker that cannot be reached is waited for until ``deadline``, None: for the operation timeout.

        Raises:
            TransactionError: the broker does not have it (any more). It was aborted, when its time was over
                or by somebody, or it was committed: by an earlier call, or by this one if an answer was lost.
        """
        self._end(transaction, deadline, commit=True)

    def abort(self, transaction: TxnId) -> None:
        """Make all readers skip its messages; raises as ``commit``."""
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
        """Send a request to a coordinator, at its current broker, until it answers."""
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
            # Not the connection that writes, which a broker that throttles publishing does not read.
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
            self._sessions.pop(coordinator, None)  # the next request looks it up again
            raise
        self._sessions[coordinator] = session
        return answer


@dataclass(frozen=True, slots=True)
class Transaction:
    """One open transaction, for those who write in it."""

    id: TxnId
    _transactions: Transactions

    def add(self, topics: Iterable[TopicName]) -> None:
        """See :meth:`Transactions.add`."""
        self._transactions.add(self.id, topics)


def _check(answer: Any) -> None:
    """Raise the error in the body of an answer, where transactions have theirs."""
    if answer.HasField("error"):
        raise from_server(answer.error, answer.message)
