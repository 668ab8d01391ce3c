"""The error tree: each error has the fault, its place, advice, and whether a retry can help.

    PulsarError                         code               retriable
    ├── OptionError                     PULSAR_OPTION
    ├── ProtocolError                   PULSAR_PROTOCOL    yes
    ├── CorruptError                    PULSAR_CORRUPT
    ├── DataLossError                   PULSAR_DATA_LOSS
    ├── OtherClusterError               PULSAR_OTHER_CLUSTER
    ├── UnsupportedError                PULSAR_UNSUPPORTED
    ├── CryptoError                     PULSAR_CRYPTO
    ├── DuplicatesError                 PULSAR_DUPLICATES
    ├── SchemaChangedError              PULSAR_SCHEMA_CHANGED
    ├── DeadlineError                   PULSAR_TIMEOUT
    ├── QueueFullError                  PULSAR_QUEUE_FULL
    ├── ClosedError                     PULSAR_CLOSED
    ├── LibraryError                    PULSAR_LIBRARY
    └── BrokerError                     PULSAR_BROKER
        ├── ConnectError                PULSAR_CONNECT     yes
        ├── NotReadyError               PULSAR_NOT_READY   yes
        ├── BusyError                   PULSAR_BUSY        yes
        │   └── QuotaError              PULSAR_QUOTA       yes
        ├── TlsError                    PULSAR_TLS
        ├── AuthError                   PULSAR_AUTH
        ├── TopicNotFoundError          PULSAR_TOPIC_NOT_FOUND
        ├── TopicEndedError             PULSAR_TOPIC_ENDED
        │   └── TopicMigratedError      PULSAR_TOPIC_MIGRATED
        ├── NotAllowedError             PULSAR_NOT_ALLOWED
        │   └── SubscriptionLimitError  PULSAR_SUBSCRIPTION_LIMIT
        ├── SchemaError                 PULSAR_SCHEMA
        ├── SendError                   PULSAR_SEND
        │   └── TerminatedError         PULSAR_TERMINATED
        └── TransactionError            PULSAR_TRANSACTION

Retry loops repeat calls that failed with a retriable error, and begin each attempt with a lookup. Callers put
no secrets into errors.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

if TYPE_CHECKING:
    from typing_extensions import Self

# Characters that begin a line or change a terminal's display: control characters, line separators, and marks
# of writing direction; and lone surrogates, which cannot be encoded.
_NOT_SHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def is_shown(text: str) -> bool:
    """Whether a text from outside, such as a broker's, can be shown unchanged in a log or on a terminal."""
    return _NOT_SHOWN.search(text) is None


def shown(text: str) -> str:
    """Returns the text in one line, with escapes for characters that cannot be shown."""
    return _NOT_SHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class PulsarError(Exception):
    """Base of all errors; its text is "[CODE] what happened; where. What to do".

    Parts of the text may come from a broker or a topic's name, so they are escaped.

    Args:
        what: description of the fault, without a final full stop.
        message_id: text form of the message id or range concerned.
        advice: advice to the user; None: the class's usual advice.
    """

    code: ClassVar[str] = "PULSAR_ERROR"
    usual_advice: ClassVar[str | None] = None
    retriable: ClassVar[bool] = False

    def __init__(
        self, what: str, *, topic: str | None = None, message_id: str | None = None, advice: str | None = None
    ) -> None:
        self.what = shown(what)
        self.topic = None if topic is None else shown(topic)
        self.message_id = None if message_id is None else shown(message_id)
        self.advice = advice or self.usual_advice
        super().__init__(self.facts if self.advice is None else f"{self.facts}. {self.advice}")

    @property
    def facts(self) -> str:
        """Returns the text without the advice."""
        text = f"[{self.code}] {self.what}"
        if self.topic is not None:
            text += f"; topic {self.topic}"
        if self.message_id is not None:
            text += f"; message {self.message_id}"
        return text

    def located(self, topic: str, message_id: str | None = None) -> Self:
        """Returns a copy of the error, with topic and message id if it lacks them."""
        return type(self)(
            self.what,
            topic=self.topic or topic,
            message_id=self.message_id or message_id,
            advice=self.advice,
        )

    def noting(self, what: str) -> Self:
        """Returns a copy of the error with ``what`` appended to its description."""
        return type(self)(
            f"{self.what}; {what}", topic=self.topic, message_id=self.message_id, advice=self.advice
        )

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later: for retriable errors and timeouts."""
        return self.retriable or isinstance(self, DeadlineError)

    def __reduce__(self) -> tuple[object, ...]:
        given = {"topic": self.topic, "message_id": self.message_id, "advice": self.advice}
        return partial(type(self), self.what, **given), ()


class OptionError(PulsarError):
    """An option, an offset or a column of the rows is wrong."""

    code = "PULSAR_OPTION"


class ProtocolError(PulsarError):
    """The broker or proxy violates Pulsar's protocol. The connection is closed; a new connection may work."""

    code = "PULSAR_PROTOCOL"
    usual_advice = "Check that service.url names a Pulsar broker's binary port"
    retriable = True


class CorruptError(PulsarError):
    """A stored entry cannot be decoded (checksum, compression or batch format)."""

    code = "PULSAR_CORRUPT"
    usual_advice = (
        "Look at the entry with pulsar-admin topics. Set failOnDataLoss=false to leave it out with a "
        "warning, or start a new query after it"
    )


class DataLossError(PulsarError):
    """The broker no longer has messages that the query had not processed."""

    code = "PULSAR_DATA_LOSS"
    usual_advice = (
        "Check the topic's retention, message TTL and subscriptions. Set failOnDataLoss=false to continue "
        "without these messages"
    )


class OtherClusterError(PulsarError):
    """The checkpoint has positions of another cluster."""

    code = "PULSAR_OTHER_CLUSTER"
    usual_advice = "Continue on the cluster that the checkpoint is of, or use a new checkpointLocation"


class UnsupportedError(PulsarError):
    """A message or the broker uses a feature that this version does not support."""

    code = "PULSAR_UNSUPPORTED"
    usual_advice = "Read or write it with another client"


class CryptoError(PulsarError):
    """An entry cannot be encrypted or decrypted. The error never contains a key."""

    code = "PULSAR_CRYPTO"
    usual_advice = "Check the keys that cryptoKeyReader finds, see docs/encryption.md"


class DuplicatesError(PulsarError):
    """With ``failOnDuplicates``: another run of a micro-batch would write rows that may be stored already."""

    code = "PULSAR_DUPLICATES"
    usual_advice = (
        "Make the query give the same rows in each run, or set failOnDuplicates=false to write all rows"
    )


class SchemaChangedError(PulsarError):
    """With ``schemaEvolutionMode=restart``: a newer version of the schema does not fit the columns."""

    code = "PULSAR_SCHEMA_CHANGED"
    usual_advice = (
        "Call load() and start the query again: it then has the new columns and reads the same messages again"
    )


class DeadlineError(PulsarError):
    """An operation did not finish within its timeout."""

    code = "PULSAR_TIMEOUT"
    usual_advice = "Check the broker's health, or raise the timeout"


class QueueFullError(PulsarError):
    """``maxPendingMessages`` or ``memoryLimit`` is reached, and ``blockIfQueueFull`` is false."""

    code = "PULSAR_QUEUE_FULL"
    usual_advice = "Raise maxPendingMessages and memoryLimit, or let sends wait with blockIfQueueFull=true"


class ClosedError(PulsarError):
    """A client, or one of its producers or consumers, is used after it was closed."""

    code = "PULSAR_CLOSED"
    usual_advice = "Create a new one"


class LibraryError(PulsarError, ImportError):
    """A required library is not installed, or is too old."""

    code = "PULSAR_LIBRARY"
    usual_advice = (
        "Install the libraries that docs/deploying.md names for the Python of the driver and of all "
        "executors: pip install 'pyspark[sql]>=4.0' 'protobuf>=5.29.6' crc32c msgspec"
    )


class BrokerError(PulsarError):
    """The broker refused a request, and no more specific error code applies."""

    code = "PULSAR_BROKER"
    usual_advice = "Look at the broker's log"


class ConnectError(BrokerError):
    """A connection could not be opened, or was lost."""

    code = "PULSAR_CONNECT"
    usual_advice = "Check service.url and the broker's health"
    retriable = True


class NotReadyError(BrokerError):
    """The broker does not serve the topic at the moment (unload, restart, recovery)."""

    code = "PULSAR_NOT_READY"
    usual_advice = "It was retried until the timeout. Check the broker's health"
    retriable = True


class BusyError(BrokerError):
    """Another producer or consumer has the name, or exclusive access to the topic, and may disconnect."""

    code = "PULSAR_BUSY"
    usual_advice = "Stop the other producer or consumer, or choose another name"
    retriable = True


class QuotaError(BusyError):
    """A backlog quota is exceeded. The broker blocks producers until subscriptions have caught up."""

    code = "PULSAR_QUOTA"
    usual_advice = (
        "Let the subscriptions with the largest backlog catch up, remove them, or raise the backlog quota"
    )


class TlsError(BrokerError):
    """TLS failed, and a retry cannot help: wrong certificate, wrong files, or no TLS at the port."""

    code = "PULSAR_TLS"
    usual_advice = "Check service.url and the TLS options (pulsar.client.tls...)"


class AuthError(BrokerError):
    """The broker refused the credentials, or a permission is missing."""

    code = "PULSAR_AUTH"
    usual_advice = (
        "Check pulsar.client.authPluginClassName and authParams, that the credentials have not expired, and "
        "that the role has the permission"
    )


class TopicNotFoundError(BrokerError):
    """The topic, its namespace or its tenant does not exist."""

    code = "PULSAR_TOPIC_NOT_FOUND"
    usual_advice = "Check the spelling of the topic and its namespace, or create it first"


class TopicEndedError(BrokerError):
    """The topic gets no more messages: it was terminated, or migrated to another cluster. Only logged."""

    code = "PULSAR_TOPIC_ENDED"
    usual_advice = (
        "Stop the query if it reads nothing else. If the topic continues elsewhere, start a new query there"
    )


class TopicMigratedError(TopicEndedError):
    """The topic was made a scalable topic, which has all its new messages. Only logged."""

    code = "PULSAR_TOPIC_MIGRATED"
    usual_advice = (
        "Set the option topic to the name of the scalable topic (topic://...) and start the query again with "
        "the same checkpoint: it reads what is left, and then the new messages"
    )


class NotAllowedError(BrokerError):
    """The request conflicts with the topic's state or policies, such as a limit of message sizes."""

    code = "PULSAR_NOT_ALLOWED"
    usual_advice = (
        "Check the policies of the topic and its namespace. If a subscription has another type, choose "
        "another name for it"
    )


class SubscriptionLimitError(NotAllowedError):
    """The topic has its maximum number of subscriptions, and the requested one does not exist."""

    code = "PULSAR_SUBSCRIPTION_LIMIT"
    usual_advice = "Remove subscriptions that nobody needs, or raise maxSubscriptionsPerTopic"


class SchemaError(BrokerError):
    """The broker refused the schema, or data does not fit it."""

    code = "PULSAR_SCHEMA"
    usual_advice = "Compare the rows with the topic's schema, see docs/schemas.md"


class SendError(BrokerError):
    """The broker refused a message, or did not acknowledge it in time."""

    code = "PULSAR_SEND"
    usual_advice = "Check the topic's state (terminated, backlog quota, another exclusive producer)"


class TerminatedError(SendError):
    """The topic was terminated."""

    code = "PULSAR_TERMINATED"
    usual_advice = "Write to another topic"


class TransactionError(BrokerError):
    """The broker does not have the transaction any more: somebody ended it, or it timed out."""

    code = "PULSAR_TRANSACTION"
    usual_advice = "Raise transactionTimeout if a micro-batch may take longer"


class _ServerError(NamedTuple):
    """Name and class of a ServerError in PulsarApi.proto; ``advice`` defaults to the class's."""

    name: str
    kind: type[BrokerError]
    advice: str | None = None


_SERVER_ERRORS = {
    0: _ServerError("UnknownError", BrokerError),
    1: _ServerError(
        "MetadataError",
        NotReadyError,
        "It was retried until the timeout. Check the metadata store and the broker's log",
    ),
    2: _ServerError(  # the ledger was fenced, is recovering, or cannot be written
        "PersistenceError",
        NotReadyError,
        "It was retried until the timeout. Check the bookies and their disks",
    ),
    3: _ServerError("AuthenticationError", AuthError),
    4: _ServerError(
        "AuthorizationError",
        AuthError,
        "The login succeeded, but its role lacks the permission: grant it produce or consume on the topic",
    ),
    5: _ServerError("ConsumerBusy", BusyError),
    6: _ServerError("ServiceNotReady", NotReadyError),
    7: _ServerError("ProducerBlockedQuotaExceededError", QuotaError),  # quota policy producer_request_hold
    8: _ServerError("ProducerBlockedQuotaExceededException", SendError, QuotaError.usual_advice),
    9: _ServerError(
        "ChecksumError", SendError, "The message was damaged on the way to the broker. Check the network"
    ),
    10: _ServerError(
        "UnsupportedVersionError", BrokerError, "The broker is too old for this request. Upgrade it"
    ),
    11: _ServerError("TopicNotFound", TopicNotFoundError),
    12: _ServerError(
        "SubscriptionNotFound",
        BrokerError,
        "Somebody has removed the subscription. Start the query again: it reports which messages are lost",
    ),
    13: _ServerError(
        "ConsumerNotFound", BrokerError, "The broker has dropped the consumer. Start the query again"
    ),
    14: _ServerError(
        "TooManyRequests",
        NotReadyError,
        "It was retried until the timeout. The broker limits concurrent lookups "
        "(maxConcurrentLookupRequest, maxConcurrentTopicLoadRequest): raise these limits",
    ),
    15: _ServerError("TopicTerminatedError", TerminatedError),
    16: _ServerError("ProducerBusy", BusyError),
    17: _ServerError("InvalidTopicName", TopicNotFoundError, "Correct the topic's name"),
    18: _ServerError(
        "IncompatibleSchema",
        SchemaError,
        "Compare it with the topic's schema (pulsar_spark admin schemas TOPIC) and the namespace's schema "
        "compatibility strategy: most strategies require that types stay the same and that new fields have "
        "a default",
    ),
    19: _ServerError("ConsumerAssignError", BrokerError, "Look at the subscription's other consumers"),
    # The transaction coordinator has moved to another broker, or is still being loaded.
    20: _ServerError("TransactionCoordinatorNotFound", NotReadyError),
    21: _ServerError("InvalidTxnStatus", NotReadyError),  # the transaction is being ended
    22: _ServerError("NotAllowedError", NotAllowedError),
    23: _ServerError("TransactionConflict", TransactionError),
    24: _ServerError("TransactionNotFound", TransactionError),
    25: _ServerError(
        "ProducerFenced",
        SendError,
        "A producer with an exclusive accessMode has taken the topic. Stop it, or write to another topic",
    ),
}

# MetadataError with these texts means that the namespace accepts only encrypted messages, so a retry does not
# help.
_METADATA_ERROR = 1
_ENCRYPTION_REQUIRED = ("Encryption is required", "must be encrypted")
# The response to GET_LAST_MESSAGE_ID while the broker cannot parse the metadata of the topic's last entry.
# Any producer can write such an entry; brokers do not send it to readers.
_LAST_UNPARSABLE = "Failed to get batch size for entry"

# The response to GET_LAST_MESSAGE_ID while the broker closes the topic to load it again.
_UNKNOWN_ERROR = 0
_RECOVERY_FAILED = "Failed to recover Transaction Buffer"

# An error with _IS_NON_DURABLE is retriable, because brokers remove a non-durable subscription after its
# consumer. The planner opens one to check whether a durable subscription of the same name exists.
_NOT_ALLOWED = 22
_IS_NON_DURABLE = "NonDurable subscription with the same name already exists"
_TOO_MANY_SUBSCRIPTIONS = "Exceed the maximum number of subscriptions of the topic"
# Texts of brokers that refuse messages by a policy of the topic or namespace, and advice.
_REFUSED_MESSAGES = {
    "Exceed maximum message size": "Raise the topic's maxMessageSize (pulsar-admin topicPolicies "
    "set-max-message-size), or send smaller entries: lower pulsar.producer.batchingMaxBytes, compress, or "
    "shorten the values",
    "Exceeds max allowed delivery delay": "Raise maxDeliveryDelayInMillis (pulsar-admin namespaces "
    "set-delayed-delivery), or give rows an earlier __deliverAt or a shorter __deliverAfter",
}

# The broker's reason for a refused schema has many lines, and is repeated after " caused by ".
_INCOMPATIBLE_SCHEMA = 18
_SAID_AGAIN = " caused by "
_JAVA_CLASS = re.compile(r"\b(?:\w+\.)+\w*Exception: ")
_MAX_REASON, _MAX_SCHEMA_REASON = 300, 2000


def from_server(error: int, text: str, *, topic: str | None = None) -> BrokerError:
    """Returns the exception for a ServerError code.

    The error has the first line of the broker's text, or the whole reason for a refused schema on one line.
    The code's name replaces an empty text.
    """
    known = _SERVER_ERRORS.get(error, _ServerError("an unknown error", BrokerError))
    if error == _INCOMPATIBLE_SCHEMA:
        said = text.partition(_SAID_AGAIN)[0][: 2 * _MAX_SCHEMA_REASON]
        reason = " ".join(_JAVA_CLASS.sub("", said).split())[:_MAX_SCHEMA_REASON]
    else:
        reason = text.splitlines()[0][:_MAX_REASON] if text else ""
    reason = reason.strip()
    what = f"the broker refused the request: {reason or known.name} (ServerError {error})"
    if error == _METADATA_ERROR and any(words in what for words in _ENCRYPTION_REQUIRED):
        return NotAllowedError(what, topic=topic, advice="Set pulsar.producer.encryptionKeys")
    if error == _METADATA_ERROR and _LAST_UNPARSABLE in what:
        advice = "The topic's last entry is damaged: publish another message, then the broker answers again"
        return NotReadyError(what, topic=topic, advice=advice)
    # A retry helps if the broker gives no reason, for example while it deletes a scalable topic's segment.
    if error == _UNKNOWN_ERROR and (not reason or _RECOVERY_FAILED in what):
        return NotReadyError(what, topic=topic)
    if error == _NOT_ALLOWED and _IS_NON_DURABLE in what:
        advice = "It was retried until the timeout. Close the readers that use the subscription's name"
        return NotReadyError(what, topic=topic, advice=advice)
    if error == _NOT_ALLOWED and _TOO_MANY_SUBSCRIPTIONS in what:
        return SubscriptionLimitError(what, topic=topic)
    for words, advice in _REFUSED_MESSAGES.items():
        if error == _NOT_ALLOWED and words in what:
            return NotAllowedError(what, topic=topic, advice=advice)
    return known.kind(what, topic=topic, advice=known.advice)


def assert_never(member: NoReturn) -> NoReturn:
    """Raises for an enum member that a ``match`` does not handle; as in ``typing`` of Python 3.11."""
    raise AssertionError(f"{member!r} is not handled")
