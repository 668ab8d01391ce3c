"""The records of a query's commit log: their JSON, and the state that they add up to. Pure.

Each kind of record is a small value with a ``parse`` that checks every field of it; nothing else reads them.

    record            JSON                                              written by
    ----------------  ------------------------------------------------  -----------------------------------
    OpenedRecord      {"opened": [most, least]}                         a task, before it writes a row
    Intent            {"batch": n, "after": [most, least] or null,      the driver, before it commits
                       "transactions": [[most, least]...]}
    CommittedRecord   {"committed": [most, least]}                      the driver, in that very transaction
    TokenRecord       {"read to": text}                                 the driver, to see how far it can read

Where the query has a key, each is signed (:class:`RecordFormat`). What others may do, who may write to the
topic, and what follows:

    record            made up by others      a copy of a signed one
    ----------------  ---------------------  ------------------------------------------------------------
    OpenedRecord      signed: left out       means nothing: its transaction has ended, or is in the state
    Intent            signed: left out       left out: it does not follow the last one (``after``)
    CommittedRecord   signed: left out       left out: it is not in its transaction; in it, it shares its fate
    TokenRecord       signed: left out       means nothing: no other one is waited for
    anything else     left out               -

Without a key what others make up is believed, but for a marker outside its transaction and for an intent that
does not follow the last one.

Before records were signed they were stored as messages' payloads (:class:`OldRecords`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.errors import CorruptError, TransactionError
from pulsar_spark.ids import TxnId

_Fields = Mapping[str, Any]

# Of each number in a record: that of the protocol.
_MAX_NUMBER = 2**64 - 1

# Characters of a signature.
_SIGNATURE_SIZE = 2 * hashlib.sha256().digest_size


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
        transactions: all that make it up, at least one, each once; the batch is committed if and only if the
            first is.
        after: the first transaction of the intent before it, or None where there was none.
    """

    batch: int
    transactions: tuple[TxnId, ...]
    after: TxnId | None = None

    @property
    def first(self) -> TxnId:
        """The transaction with which the batch is committed; no other intent has it."""
        return self.transactions[0]

    def fields(self) -> _Fields:
        """What is stored."""
        return {"batch": self.batch, "after": self.after, "transactions": self.transactions}

    @classmethod
    def parse(cls, fields: _Fields) -> Intent:
        """Read what ``fields`` gives; raises ValueError."""
        given, after = fields.get("transactions"), fields.get("after")
        if not isinstance(given, list) or not given:
            raise ValueError("an intent names transactions")
        transactions = tuple(_transaction(each) for each in given)
        if len(set(transactions)) < len(transactions):
            raise ValueError("an intent names each transaction once")
        return cls(_number(fields["batch"]), transactions, None if after is None else _transaction(after))


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

_ADVICE = "Use the version of this package that wrote it"

# The field by which each kind is known.
_KINDS: dict[str, type[CommitRecord]] = {
    "batch": Intent,
    "committed": CommittedRecord,
    "opened": OpenedRecord,
    "read to": TokenRecord,
}


def encode_record(record: CommitRecord) -> bytes:
    """The JSON of a record."""
    return json.dumps(record.fields()).encode()


def decode_record(value: bytes) -> CommitRecord:
    """Read the JSON of a record.

    Raises:
        CorruptError: it is none, or a field of it is not what it must be.
    """
    try:
        fields = json.loads(value)
        if not isinstance(fields, dict):
            raise ValueError("a record is a JSON object")
        kinds = [kind for name, kind in _KINDS.items() if name in fields]
        if len(kinds) != 1:
            raise ValueError("not a kind of record")
        return kinds[0].parse(fields)
    except (ValueError, RecursionError) as error:
        raise CorruptError("this is not a record of a query's commits", advice=_ADVICE) from error


class OldRecords:
    """The records that versions have stored which put them into payloads, without ``after`` and signatures.

    They are not believed. A query that has no other ones would write a micro-batch again that is committed,
    and their subscription ``spark-transactions`` would hold the log for ever.
    """

    def __init__(self) -> None:
        self._are_there = False
        self._last: int | None = None

    def add(self, payload: bytes) -> None:
        """Take the payload of a message that is no record as they are stored now."""
        try:
            record = decode_record(payload)
        except CorruptError:
            return
        self._are_there = True
        if isinstance(record, Intent):
            self._last = record.batch

    def error(self, batch: int, topic: str) -> TransactionError | None:
        """Why nothing may be committed in a log that has no intent; None where there are no such records.

        Args:
            batch: id of the micro-batch that is to be committed.
            topic: of the log.
        """
        if not self._are_there:
            return None
        last = "none" if self._last is None else str(self._last)
        return TransactionError(
            f"micro-batch {batch} is not committed, and none of its rows is in the topic: an older version "
            f"of this package wrote the query's log; the last micro-batch whose commit it started is {last}",
            topic=topic,
            advice="Delete the log's topic, and start the query again. If both are the same micro-batch, its "
            "rows may then be duplicated",
        )


class RecordFormat:
    """The bytes of a query's records as they are stored: JSON, after its signature where there is a key.

    The signature is an HMAC with SHA-256 over the log's topic and the JSON, in hexadecimal.

    Args:
        topic: of the log, so that records of another log are not taken for its own.
        key: secret of the query; None: records are not signed, and no signature is verified.
    """

    def __init__(self, topic: str, key: bytes | None) -> None:
        self._topic = topic
        self._key = key

    def encode(self, record: CommitRecord) -> bytes:
        """The bytes to store."""
        text = encode_record(record)
        return text if self._key is None else self._signature(self._key, text) + text

    def decode(self, value: bytes) -> CommitRecord | None:
        """Read stored bytes; None for what somebody else has written.

        Raises:
            CorruptError: it is signed with the query's key, and is no record: another version wrote it.
        """
        signature, text = b"", value
        if not value.startswith(b"{"):
            signature, text = value[:_SIGNATURE_SIZE], value[_SIGNATURE_SIZE:]
        is_signed = self._key is not None and hmac.compare_digest(signature, self._signature(self._key, text))
        if self._key is not None and not is_signed:
            return None
        try:
            return decode_record(text)
        except CorruptError:
            if is_signed:
                raise
            return None

    def _signature(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, self._topic.encode() + b"\0" + text, hashlib.sha256).hexdigest().encode()


@dataclass(frozen=True, slots=True)
class LogState:
    """What the records that are visible add up to.

    Attributes:
        intent: the last one, or None.
        committed: transactions whose markers are visible.
        opened: transactions that tasks have opened, and that the last intent does not name.
    """

    intent: Intent | None = None
    committed: frozenset[TxnId] = frozenset()
    opened: frozenset[TxnId] = frozenset()

    def follows(self, intent: Intent) -> bool:
        """Whether ``intent`` was written by who had read the last one; any may be the first."""
        return self.intent is None or self.intent.first == intent.after

    def after(self, records: Iterable[CommitRecord]) -> LogState:
        """The state when ``records`` are read too, in their order; to read them all again changes nothing."""
        intent, committed, opened = self.intent, set(self.committed), set(self.opened)
        named = set() if intent is None else set(intent.transactions)
        for record in records:
            if isinstance(record, Intent):
                if is_next(intent, record):
                    intent, named = record, set(record.transactions)
                    opened -= named
            elif isinstance(record, CommittedRecord):
                committed.add(record.transaction)
            elif isinstance(record, OpenedRecord) and record.transaction not in named:
                opened.add(record.transaction)
        return LogState(intent, frozenset(committed), frozenset(opened))


def lost_history(state: LogState, *, drivers_before: int, is_found_again: bool) -> str | None:
    """What to warn of when a driver is about to write its intent; None where no record is missing.

    The last intent is not acknowledged by the query, so where it is missing, or is acknowledged, a message
    TTL, a backlog quota or somebody did it.

    ======  ============  ==============  ======================================================
    intent  acknowledged  drivers before  result
    ======  ============  ==============  ======================================================
    yes     no            any             None
    yes     yes           any             it is there this time
    no      -             0               None: a new query
    no      -             more            what the last of them committed may be written twice
    ======  ============  ==============  ======================================================

    Args:
        state: what was read.
        drivers_before: how many have begun to write to the log before; brokers count them.
        is_found_again: whether the intent was found among what was acknowledged.
    """
    cause = "by a message TTL, by a backlog quota or by somebody"
    if state.intent is not None:
        if not is_found_again:
            return None
        return (
            f"records of the query's commits were acknowledged, {cause}; they are still stored this time, "
            "but without them a restart may write a micro-batch twice"
        )
    if drivers_before == 0:
        return None
    return (
        f"the records of the query's commits were removed, {cause}, or have another transactionLogKey: if "
        "this micro-batch was committed before the query was stopped, its rows are now duplicated"
    )


def is_next(last: Intent | None, intent: Intent) -> bool:
    """Whether ``intent`` was written by who had read the last one; any may be the first that is read."""
    return last is None or last.first == intent.after


def _transaction(value: Any) -> TxnId:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("a transaction is two numbers")
    return TxnId(_number(value[0]), _number(value[1]))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        raise ValueError("not a number of 64 bits")
    return value
