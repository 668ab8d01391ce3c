"""One function for each command that a client sends; each returns the framed bytes."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from google.protobuf.message import Message

from pulsar_spark.ids import MessageId, TxnId
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import encode_command
from pulsar_spark.wire.wire_values import to_wire_id, to_wire_schema, to_wire_version, varint

PROTOCOL_VERSION = 21

# Full name of a command's message type -> its field in BaseCommand; the field's number is the command's type.
_FIELDS = {
    field.message_type.full_name: field
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}

# First bytes of SEND: size of the rest of the frame, size of the command, _SEND_TAGS, size of the body.
_SEND_HEAD = struct.Struct(">II3sB")
_SEND_SIZE = 4  # bytes of the command before its body
_SEND_TAGS = b"\x08\x06\x32"  # the command's type, and the tag of its body

# Schema in SUBSCRIBE: the consumer accepts topics of any schema, and topics without a schema.
_ANY_SCHEMA = to_wire_schema(Schema(SchemaType.AUTO_CONSUME))


class InitialPosition(Enum):
    """The first position of a new subscription; values as in CommandSubscribe.InitialPosition."""

    LATEST = pb.CommandSubscribe.Latest
    EARLIEST = pb.CommandSubscribe.Earliest


@dataclass(frozen=True, slots=True)
class Login:
    """The authentication method and its data, which is secret, in CONNECT and AUTH_RESPONSE."""

    method: str
    data: bytes = field(repr=False)

    def blanked(self, text: str) -> str:
        """Returns a broker's text with ``***`` for this login's data, because brokers may repeat the data."""
        data = self.data.decode(errors="replace")
        # In basic authentication the password follows the user name; HTTP sends both in base64.
        for secret in (data, base64.b64encode(self.data).decode(), data.partition(":")[2]):
            if secret:
                text = text.replace(secret, "***")
        return text


def connect(client_version: str, proxy_to_broker_url: str | None = None, login: Login | None = None) -> bytes:
    """CONNECT, with the feature flags of this client."""
    features = pb.FeatureFlags(
        supports_auth_refresh=True,
        supports_broker_entry_metadata=True,
        supports_partial_producer=True,
        supports_topic_watchers=True,
        supports_get_partitioned_metadata_without_auto_creation=True,
        supports_scalable_topics=True,
    )
    command = pb.CommandConnect(
        client_version=client_version, protocol_version=PROTOCOL_VERSION, feature_flags=features
    )
    if proxy_to_broker_url is not None:
        command.proxy_to_broker_url = proxy_to_broker_url
    if login is not None:
        command.auth_method_name = login.method
        command.auth_data = login.data
    return _framed(command)


def auth_response(client_version: str, login: Login) -> bytes:
    """AUTH_RESPONSE to a broker's AUTH_CHALLENGE."""
    command = pb.CommandAuthResponse(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        response=pb.AuthData(auth_method_name=login.method, auth_data=login.data),
    )
    return _framed(command)


def ping() -> bytes:
    """PING."""
    return _framed(pb.CommandPing())


def pong() -> bytes:
    """PONG."""
    return _framed(pb.CommandPong())


def partitioned_metadata(request_id: int, topic: str, *, create: bool) -> bytes:
    """PARTITIONED_METADATA; without ``create`` the answer for a missing topic is TopicNotFound."""
    command = pb.CommandPartitionedTopicMetadata(
        topic=topic, request_id=request_id, metadata_auto_creation_enabled=create
    )
    return _framed(command)


def lookup(request_id: int, topic: str, *, authoritative: bool, listener: str | None = None) -> bytes:
    """LOOKUP: asks for the broker that serves a topic; ``listener`` names one of its advertised addresses."""
    command = pb.CommandLookupTopic(
        topic=topic,
        request_id=request_id,
        authoritative=authoritative,
        advertised_listener_name=listener,
    )
    return _framed(command)


def topics_of_namespace(request_id: int, namespace: str, pattern: str | None = None) -> bytes:
    """GET_TOPICS_OF_NAMESPACE: asks for persistent topics; the answer lists each partition by its own name.

    ``pattern``: regular expression in the broker's dialect, for ``tenant/namespace/name``; None: all topics.
    Brokers may also return topics that do not match.
    """
    command = pb.CommandGetTopicsOfNamespace(
        request_id=request_id, namespace=namespace, topics_pattern=pattern
    )
    return _framed(command)


def watch_topic_list(request_id: int, watcher_id: int, namespace: str, pattern: str | None = None) -> bytes:
    """WATCH_TOPIC_LIST: asks for the topics of a namespace, and later for each created or deleted topic.

    ``pattern`` is as in :func:`topics_of_namespace`.
    """
    command = pb.CommandWatchTopicList(
        request_id=request_id, watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern or ".*"
    )
    return _framed(command)


def watch_topic_list_close(request_id: int, watcher_id: int) -> bytes:
    """WATCH_TOPIC_LIST_CLOSE."""
    return _framed(pb.CommandWatchTopicListClose(request_id=request_id, watcher_id=watcher_id))


def scalable_topic_lookup(session_id: int, topic: str, *, create: bool = False) -> bytes:
    """SCALABLE_TOPIC_LOOKUP: asks for a topic's segments, and later for each change.

    ``create``: whether the broker may create a missing topic, if its auto-creation policy allows that.
    """
    command = pb.CommandScalableTopicLookup(session_id=session_id, topic=topic, create_if_missing=create)
    return _framed(command)


def scalable_topic_close(session_id: int) -> bytes:
    """SCALABLE_TOPIC_CLOSE, which has no answer."""
    return _framed(pb.CommandScalableTopicClose(session_id=session_id))


def watch_scalable_topics(watch_id: int, namespace: str) -> bytes:
    """WATCH_SCALABLE_TOPICS: asks for a namespace's scalable topics, and later for each change."""
    return _framed(pb.CommandWatchScalableTopics(watch_id=watch_id, namespace=namespace))


def watch_scalable_topics_close(watch_id: int) -> bytes:
    """WATCH_SCALABLE_TOPICS_CLOSE, which has no answer."""
    return _framed(pb.CommandWatchScalableTopicsClose(watch_id=watch_id))


def subscribe(
    request_id: int,
    consumer_id: int,
    topic: str,
    subscription: str,
    *,
    durable: bool,
    initial: InitialPosition,
    start: MessageId | None,
    create: bool,
    read_compacted: bool = False,
    consumer_name: str | None = None,
    properties: Iterable[tuple[str, str]] = (),
    is_replicated: bool | None = None,
) -> bytes:
    """SUBSCRIBE, exclusive. ``start`` is inclusive and applies to non-durable subscriptions only.

    ``properties`` are set on a new subscription. ``is_replicated`` None: the namespace decides.

    The consumer accepts any schema (AUTO_CONSUME). Without a schema, the broker would refuse other consumers
    that register the first schema of an empty topic.
    """
    command = pb.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=pb.CommandSubscribe.Exclusive,
        consumer_id=consumer_id,
        request_id=request_id,
        durable=durable,
        initialPosition=initial.value,
        force_topic_creation=create,
        schema=_ANY_SCHEMA,
        consumer_name=consumer_name,
        replicate_subscription_state=is_replicated,
        subscription_properties=[
            pb.KeyValue(key=name.encode(), value=text.encode()) for name, text in properties
        ],
    )
    if read_compacted:
        command.read_compacted = True
    if start is not None:
        command.start_message_id.CopyFrom(to_wire_id(start))
    return _framed(command)


def get_schema(request_id: int, topic: str, version: int | None = None) -> bytes:
    """GET_SCHEMA of one version, or of the latest. If there is none, the answer is TopicNotFound."""
    command = pb.CommandGetSchema(request_id=request_id, topic=topic)
    if version is not None:
        command.schema_version = to_wire_version(version)
    return _framed(command)


def get_or_create_schema(request_id: int, topic: str, schema: Schema) -> bytes:
    """GET_OR_CREATE_SCHEMA: asks for a schema's version; the broker registers a schema new to the topic.

    The topic must exist, and must have been looked up.
    """
    command = pb.CommandGetOrCreateSchema(request_id=request_id, topic=topic, schema=to_wire_schema(schema))
    return _framed(command)


def flow(consumer_id: int, permits: int) -> bytes:
    """FLOW: grants ``permits`` more messages; below 1, the broker closes the connection."""
    return _framed(pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))


def ack(request_id: int | None, consumer_id: int, message_id: MessageId) -> bytes:
    """ACK, cumulative, of all entries up to that of ``message_id``. Without a request id it has no answer."""
    command = pb.CommandAck(
        consumer_id=consumer_id,
        ack_type=pb.CommandAck.Cumulative,
        message_id=[to_wire_id(message_id.whole_entry)],
        request_id=request_id,
    )
    return _framed(command)


def get_last_message_id(request_id: int, consumer_id: int) -> bytes:
    """GET_LAST_MESSAGE_ID of a consumer's topic; needs no permits."""
    return _framed(pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id))


def consumer_stats(request_id: int, consumer_id: int) -> bytes:
    """CONSUMER_STATS of one consumer and its subscription."""
    return _framed(pb.CommandConsumerStats(request_id=request_id, consumer_id=consumer_id))


def seek(request_id: int, consumer_id: int, target: MessageId | int) -> bytes:
    """SEEK to a message id (the next message to be read) or to a publish time in ms."""
    command = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id)
    if isinstance(target, MessageId):
        command.message_id.CopyFrom(to_wire_id(target))
    else:
        command.message_publish_time = target
    return _framed(command)


def unsubscribe(request_id: int, consumer_id: int) -> bytes:
    """UNSUBSCRIBE: removes the subscription and its position."""
    return _framed(pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id))


def close_consumer(request_id: int, consumer_id: int) -> bytes:
    """CLOSE_CONSUMER."""
    return _framed(pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id))


def producer(
    request_id: int,
    producer_id: int,
    topic: str,
    name: str | None,
    epoch: int,
    *,
    encrypted: bool = False,
    access_mode: pb.ProducerAccessMode = pb.Shared,
    topic_epoch: int | None = None,
    properties: Iterable[tuple[str, str]] = (),
    schema: Schema | None = None,
) -> bytes:
    """PRODUCER; with ``name`` None the broker chooses a name.

    The broker registers a ``schema`` that is new to the topic; None: a producer of bytes. A namespace may
    require ``encrypted`` producers. With exclusive access, ``topic_epoch`` is the value in the broker's last
    answer to this producer; it shows the broker whether another producer has had access since then.
    """
    command = pb.CommandProducer(
        topic=topic,
        producer_id=producer_id,
        request_id=request_id,
        epoch=epoch,
        user_provided_producer_name=name is not None,
    )
    if encrypted:
        command.encrypted = True
    if name is not None:
        command.producer_name = name
    if access_mode != pb.Shared:
        command.producer_access_mode = access_mode
    if topic_epoch is not None:
        command.topic_epoch = topic_epoch
    if schema is not None:
        command.schema.CopyFrom(to_wire_schema(schema))
    for key, value in properties:
        command.metadata.add(key=key.encode(), value=value.encode())
    return _framed(command)


def close_producer(request_id: int, producer_id: int) -> bytes:
    """CLOSE_PRODUCER."""
    return _framed(pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id))


def send(
    producer_id: int,
    sequence_ids: tuple[int, int],
    messages: int,
    transaction: TxnId | None = None,
    *,
    is_chunk: bool = False,
) -> pb.BaseCommand:
    """SEND of one entry, not framed; pass the result to ``encode_command``.

    Args:
        sequence_ids: sequence ids of the first and the last message.
        transaction: transaction of the entry, or None. The entry's metadata must have its ids too.
        is_chunk: whether the entry is a chunk of a message.
    """
    command = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_ids[0])
    if messages > 1:
        command.num_messages = messages
        command.highest_sequence_id = sequence_ids[1]
    if is_chunk:
        command.is_chunk = True
    if transaction is not None:
        command.txnid_most_bits, command.txnid_least_bits = transaction
    return pb.BaseCommand(type=pb.BaseCommand.SEND, send=command)


def send_head(producer_id: int, sequence_ids: tuple[int, int], messages: int, section_size: int) -> bytes:
    """Frames SEND of one entry; ``section_size`` bytes of payload section must follow.

    The result is the same as with ``send`` and ``encode_command``, but no command object is made,
    because each entry has a command.
    """
    body = _producer_field(producer_id) + varint(sequence_ids[0])
    if messages > 1:
        body += b"\x18" + varint(messages) + b"\x30" + varint(sequence_ids[1])
    size = len(body) + _SEND_SIZE
    return _SEND_HEAD.pack(size + 4 + section_size, size, _SEND_TAGS, len(body)) + body


@lru_cache(maxsize=64)
def _producer_field(producer_id: int) -> bytes:
    """Serializes SEND's field producer_id, and the tag of the next field, sequence_id."""
    return b"\x08" + varint(producer_id) + b"\x10"


def tc_client_connect(request_id: int, coordinator: int) -> bytes:
    """TC_CLIENT_CONNECT_REQUEST: makes the broker load a transaction coordinator."""
    return _framed(pb.CommandTcClientConnectRequest(request_id=request_id, tc_id=coordinator))


def new_txn(request_id: int, coordinator: int, ttl_ms: int) -> bytes:
    """NEW_TXN: opens a transaction, which the broker aborts if it is still open after ``ttl_ms``."""
    return _framed(pb.CommandNewTxn(request_id=request_id, tc_id=coordinator, txn_ttl_millis=ttl_ms))


def add_partition_to_txn(request_id: int, transaction: TxnId, topics: Sequence[str]) -> bytes:
    """ADD_PARTITION_TO_TXN: registers topic partitions before the transaction writes to them."""
    command = pb.CommandAddPartitionToTxn(request_id=request_id, partitions=topics)
    command.txnid_most_bits, command.txnid_least_bits = transaction
    return _framed(command)


def end_txn(request_id: int, transaction: TxnId, *, commit: bool) -> bytes:
    """END_TXN: commits or aborts."""
    command = pb.CommandEndTxn(request_id=request_id, txn_action=pb.COMMIT if commit else pb.ABORT)
    command.txnid_most_bits, command.txnid_least_bits = transaction
    return _framed(command)


def _framed(command: Message) -> bytes:
    field = _FIELDS[command.DESCRIPTOR.full_name]
    known = {"type": field.number, field.name: command}
    return encode_command(pb.BaseCommand(**known))  # type: ignore[arg-type]  # fields are named at runtime
