"""The records of a query's commit log: their JSON, and the state that they add up to. Pure.

Each kind of record is a small value with a ``parse`` that checks every field of it; nothing else reads them.

    record            JSON                                              written by
    ----------------  ------------------------------------------------  -----------------------------------
    OpenedRecord      {"opened": [most, least]}                         a task, before it writes a row
    Intent            {"batch": n, "transactions": [[most, least]...]}  the driver, before it commits
    CommittedRecord   {"committed": [most, least]}                      the driver, in that very transaction
    TokenRecord       {"read to": text}                                 the driver, to see how far it can read
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.errors import CorruptError
from pulsar_spark.ids import TxnId

_Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    """A task has opened a transaction.

    Attributes:
        transaction: the task writes its rows in it.
    """

    transaction: TxnId

    def fields(self) -> _Fields:
        """What is stored."""
        return {"opened": self.transaction}

    @classmethod
    def parse(cls, fields: _Fields) -> OpenedRecord:
        """Read what ``fields`` gives; raises ValueError."""
        return cls(_transaction(fields["opened"]))


@dataclass(frozen=True, slots=True)
class Intent:
    """What a driver was about to commit.

    Attributes:
        batch: id of the micro-batch.
        transactions: all that make it up, at least one; the batch is committed if and only if the first is.
    """

    batch: int
    transactions: tuple[TxnId, ...]

    def fields(self) -> _Fields:
        """What is stored."""
        return {"batch": self.batch, "transactions": self.transactions}

    @classmethod
    def parse(cls, fields: _Fields) -> Intent:
        """Read what ``fields`` gives; raises ValueError."""
        batch, transactions = fields["batch"], fields.get("transactions")
        if not isinstance(transactions, list) or not transactions:
            raise ValueError("an intent names transactions")
        return cls(_number(batch), tuple(_transaction(each) for each in transactions))


@dataclass(frozen=True, slots=True)
class CommittedRecord:
    """The marker of a transaction: visible if and only if the transaction was committed.

    Attributes:
        transaction: the one that it is written in.
    """

    transaction: TxnId

    def fields(self) -> _Fields:
        """What is stored."""
        return {"committed": self.transaction}

    @classmethod
    def parse(cls, fields: _Fields) -> CommittedRecord:
        """Read what ``fields`` gives; raises ValueError."""
        return cls(_transaction(fields["committed"]))


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A record that means nothing but its place: when it is visible, so is all before it that ever will be.

    Attributes:
        token: unique.
    """

    token: str

    def fields(self) -> _Fields:
        """What is stored."""
        return {"read to": self.token}

    @classmethod
    def parse(cls, fields: _Fields) -> TokenRecord:
        """Read what ``fields`` gives; raises ValueError."""
        token = fields["read to"]
        if not isinstance(token, str):
            raise ValueError("a token is text")
        return cls(token)


CommitRecord = OpenedRecord | Intent | CommittedRecord | TokenRecord

# The field by which each kind is known.
_KINDS: dict[str, type[CommitRecord]] = {
    "batch": Intent,
    "committed": CommittedRecord,
    "opened": OpenedRecord,
    "read to": TokenRecord,
}


def encode_record(record: CommitRecord) -> bytes:
    """The bytes of a record."""
    return json.dumps(record.fields()).encode()


def decode_record(value: bytes) -> CommitRecord | None:
    """Read a record; None for a JSON object of an unknown kind.

    Raises:
        CorruptError: it is no JSON object, or a field of it is not what it must be.
    """
    try:
        fields = json.loads(value)
        if not isinstance(fields, dict):
            raise ValueError("a record is a JSON object")
        kind = next((kind for name, kind in _KINDS.items() if name in fields), None)
        return None if kind is None else kind.parse(fields)
    except ValueError as error:
        raise CorruptError(
            "this is no record of a query's commits: somebody else writes to this topic"
        ) from error


@dataclass(frozen=True, slots=True)
class LogState:
    """What the records that are visible add up to.

    Attributes:
        intent: the last one, or None.
        committed: transactions whose markers are visible.
        opened: transactions that tasks have opened, and that no intent names.
    """

    intent: Intent | None = None
    committed: frozenset[TxnId] = frozenset()
    opened: frozenset[TxnId] = frozenset()

    def after(self, records: Iterable[CommitRecord | None]) -> LogState:
        """The state when ``records`` are read too, in their order; to read one again changes nothing."""
        intent, committed, opened = self.intent, set(self.committed), set(self.opened)
        for record in records:
            if isinstance(record, Intent):
                intent = record
                opened.difference_update(record.transactions)
            elif isinstance(record, CommittedRecord):
                committed.add(record.transaction)
            elif isinstance(record, OpenedRecord):
                opened.add(record.transaction)
        return LogState(intent, frozenset(committed), frozenset(opened))


def _transaction(value: Any) -> TxnId:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("a transaction is two numbers")
    return TxnId(_number(value[0]), _number(value[1]))


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a number from 0 on")
    return value
