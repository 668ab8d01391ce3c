"""The records of a query's commit log: their JSON, and the state that results from them. Pure.

``decode_record`` checks every field; nothing else reads the JSON. [most, least] is a transaction's id, as two
numbers of 64 bits.

    record            JSON                                              written by
    ----------------  ------------------------------------------------  -----------------------------------
    OpenedRecord      {"opened": [most, least]}                         a task, before it writes a row
    Intent            {"batch": n, "after": [most, least] or null,      the driver, before it commits
                       "transactions": [[most, least]...]}
    CommittedRecord   {"committed": [most, least]}                      the driver, in this transaction
    TokenRecord       {"read to": text}                                 the driver, to find where reading ends

If the query has a key, each record is signed (:class:`RecordFormat`). If another program then writes to the
log, a record without the signature is ignored, and a copy of a signed record has this effect:

    copied record     effect
    ----------------  -------------------------------------------------------------------------------------
    OpenedRecord      none: its transaction has ended, or is already in ``LogState.opened``
    Intent            ignored: it does not follow the last intent (``after``)
    CommittedRecord   ignored outside its transaction; inside, it is visible only if that is committed
    TokenRecord       none: the driver waits for a new token

Without a key, forged records are accepted, except a CommittedRecord outside its transaction and an Intent
that does not follow the last one. A record in any other form is an error, because a later version may have
written it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pulsar_spark.errors import CorruptError, assert_never
from pulsar_spark.ids import TxnId

# Maximum of each number in a record, as in the protocol.
_MAX_NUMBER = 2**64 - 1

# Length of a signature in characters.
_SIGNATURE_SIZE = 2 * hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    """A task has opened a transaction, in which it will write its rows."""

    transaction: TxnId


@dataclass(frozen=True, slots=True)
class Intent:
    """The intent of a driver to commit a micro-batch.

    Attributes:
        transactions: distinct transactions of the micro-batch, at least one. The first one's commit commits
            the micro-batch.
        after: first transaction of the previous intent, by which readers check the order; None: no intent.
    """

    batch: int
    transactions: tuple[TxnId, ...]
    after: TxnId | None = None

    @property
    def first(self) -> TxnId:
        """Returns the transaction whose commit commits the batch; it identifies the intent."""
        return self.transactions[0]


@dataclass(frozen=True, slots=True)
class CommittedRecord:
    """The marker of a transaction, written in it, so visible if and only if it was committed."""

    transaction: TxnId


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A record used only for its position: once it is visible, no earlier record can become visible."""

    token: str


CommitRecord = OpenedRecord | Intent | CommittedRecord | TokenRecord


def encode_record(record: CommitRecord) -> bytes:
    """Encodes a record as JSON."""
    fields: dict[str, object]
    match record:
        case OpenedRecord(transaction):
            fields = {"opened": transaction}
        case Intent(batch, transactions, after):
            fields = {"batch": batch, "after": after, "transactions": transactions}
        case CommittedRecord(transaction):
            fields = {"committed": transaction}
        case TokenRecord(token):
            fields = {"read to": token}
        case _:
            assert_never(record)
    return json.dumps(fields).encode()


def decode_record(value: bytes) -> CommitRecord:
    """Decodes a record from its JSON.

    Raises CorruptError: the JSON is not a record, or one of its fields is invalid.
    """
    try:
        return _parsed(json.loads(value))
    except (ValueError, RecursionError) as error:
        raise CorruptError(
            "this is not a record of a query's commits",
            advice="Use the version of this package that wrote it. If somebody else wrote it, see "
            "'Transactions' in docs/operations.md",
        ) from error


def _parsed(fields: Any) -> CommitRecord:
    """Returns the record with exactly these fields; raises ValueError if no record has them."""
    match fields:
        case {"opened": transaction, **others} if not others:
            return OpenedRecord(_transaction(transaction))
        case {"committed": transaction, **others} if not others:
            return CommittedRecord(_transaction(transaction))
        case {"read to": str(token), **others} if not others:
            return TokenRecord(token)
        case {"batch": batch, "after": after, "transactions": [_, *_] as given, **others} if not others:
            transactions = tuple(_transaction(each) for each in given)
            if len(set(transactions)) == len(transactions):
                return Intent(_number(batch), transactions, None if after is None else _transaction(after))
    raise ValueError("not a record")


class RecordFormat:
    """The stored bytes of a query's records: JSON; with a key, the signature and then the JSON.

    The signature is an HMAC with SHA-256 over the log's topic and the JSON, in hexadecimal. Because the topic
    is signed, records of another log are not accepted. Without a key no signature is verified.
    """

    def __init__(self, topic: str, key: bytes | None) -> None:
        self._topic = topic
        self._key = key

    def encode(self, record: CommitRecord) -> bytes:
        """Encodes a record as the bytes to store."""
        text = encode_record(record)
        return text if self._key is None else self._signature(self._key, text) + text

    def decode(self, value: bytes) -> CommitRecord | None:
        """Decodes stored bytes; None if the query has a key, and their signature is missing or invalid.

        Raises CorruptError: the JSON is not a record. It was written by another version or, without a key,
        by another program.
        """
        signature, text = b"", value
        if not value.startswith(b"{"):
            signature, text = value[:_SIGNATURE_SIZE], value[_SIGNATURE_SIZE:]
        if self._key is not None and not hmac.compare_digest(signature, self._signature(self._key, text)):
            return None
        return decode_record(text)

    def _signature(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, self._topic.encode() + b"\0" + text, hashlib.sha256).hexdigest().encode()


@dataclass(frozen=True, slots=True)
class LogState:
    """The state that results from the visible records.

    Attributes:
        committed: transactions whose markers are visible.
        opened: transactions that tasks have opened, without the transactions of the last intent.
    """

    intent: Intent | None = None
    committed: frozenset[TxnId] = frozenset()
    opened: frozenset[TxnId] = frozenset()

    def has_committed(self, batch: int) -> bool:
        """Whether the last intent is for the micro-batch ``batch``, and its commit is visible."""
        return self.intent is not None and self.intent.batch == batch and self.intent.first in self.committed

    def after(self, records: Iterable[CommitRecord]) -> LogState:
        """Returns the state after ``records``, in order. Reading records again changes nothing."""
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


def lost_history(state: LogState, batch: int, *, drivers_before: int, is_found_again: bool) -> str | None:
    """Returns the warning for a driver about to write its intent; None if no record is missing.

    A query never acknowledges its last intent. If that intent is acknowledged or missing, the cause is a
    message TTL, a backlog quota or another program. Brokers count drivers from 0 after a topic was deleted.

    ======  ============  ==============  ===========  ====================================================
    intent  acknowledged  drivers before  micro-batch  result
    ======  ============  ==============  ===========  ====================================================
    yes     no            any             any          None
    yes     yes           any             any          the intent is still stored, but may be removed
    no      -             1 or more       any          rows that the last driver committed may be duplicated
    no      -             0               later        rows may be duplicated if an older log was deleted
    no      -             0               0            None: a new query
    ======  ============  ==============  ===========  ====================================================

    ``drivers_before``: number of earlier drivers of the log, counted by brokers. ``is_found_again``: whether
    the intent was found among acknowledged messages.
    """
    cause = "by a message TTL, by a backlog quota or by somebody"
    if state.intent is not None:
        if not is_found_again:
            return None
        return (
            f"records of the query's commits were acknowledged, {cause}; they are still stored this time, "
            "but without them a restart may write a micro-batch twice"
        )
    if drivers_before > 0:
        return (
            f"the records of the query's commits were removed, {cause}, or have another transactionLogKey: "
            "if this micro-batch was committed before the query was stopped, its rows are now duplicated"
        )
    if batch == 0:
        return None
    return (
        "the log has no record of an earlier commit: its topic was deleted, or the log was in another "
        "namespace or cluster, or the query has not written rows with delivery=transactional before. Rows of "
        "this micro-batch may be duplicated if the query was stopped after it had written them"
    )


def is_next(last: Intent | None, intent: Intent) -> bool:
    """Whether ``intent`` follows ``last``, because its writer had read ``last``. Any intent follows None."""
    return last is None or last.first == intent.after


def _transaction(value: Any) -> TxnId:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("a transaction is two numbers")
    return TxnId(_number(value[0]), _number(value[1]))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        raise ValueError("not a number of 64 bits")
    return value
