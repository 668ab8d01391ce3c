"""One client's connection to a fake broker: its commands, and what a broker does about each."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pulsar_spark.errors import ProtocolError
from pulsar_spark.ids import TopicName, TxnId
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import Frame, FrameReader, encode_command, is_intact
from pulsar_spark.wire.wire_values import from_wire_id
from tests.fake_clients import UNASKED, FakeConsumer, FakeProducer, Type, body_of, command_of
from tests.fake_topics import NO_MESSAGE, FakeCursor, FakeTopic, transaction_of

if TYPE_CHECKING:
    from tests.fake_broker import FakeBroker


class FakeConnection:
    """Reads the commands of one client and answers them; `serve` is its thread's.

    Attributes:
        number: of the connection, from 0 on.
        is_cut: whether nothing is read or sent any more.
        is_mute: whether answers are lost.
        is_deaf: whether commands are lost.
        is_served: whether the client has not closed it.
    """

    def __init__(self, broker: FakeBroker, opened: socket.socket, number: int) -> None:
        self.number = number
        self.is_cut = False
        self.is_mute = False
        self.is_deaf = False
        self.is_served = True
        self.consumers: dict[int, FakeConsumer] = {}
        self.producers: dict[int, FakeProducer] = {}
        self.watchers: dict[int, tuple[str, str]] = {}
        self.lookups: dict[int, str] = {}  # sessions, each with its scalable topic
        self.list_watchers: dict[int, str] = {}  # of scalable topics, each with its namespace
        self._broker = broker
        self._socket = opened
        self._is_connected = False
        self._closed_producers: set[int] = set()
        self._coordinators: set[int] = set()
        self._handlers: dict[int, Callable[[Any], object]] = {
            Type.CONNECT: self._connect,
            Type.AUTH_RESPONSE: self._log_in,
            Type.PING: lambda body: self.send(Type.PONG),
            Type.PONG: lambda body: None,
            Type.PARTITIONED_METADATA: self._partitioned_metadata,
            Type.LOOKUP: self._lookup,
            Type.GET_TOPICS_OF_NAMESPACE: self._topics_of_namespace,
            Type.WATCH_TOPIC_LIST: self._watch,
            Type.WATCH_TOPIC_LIST_CLOSE: self._close_watch,
            Type.SCALABLE_TOPIC_LOOKUP: self._look_up_segments,
            Type.SCALABLE_TOPIC_CLOSE: lambda body: self.lookups.pop(body.session_id, None),
            Type.WATCH_SCALABLE_TOPICS: self._watch_scalable,
            Type.WATCH_SCALABLE_TOPICS_CLOSE: lambda body: self.list_watchers.pop(body.watch_id, None),
            Type.GET_SCHEMA: self._get_schema,
            Type.GET_OR_CREATE_SCHEMA: self._get_or_create_schema,
            Type.SUBSCRIBE: self._subscribe,
            Type.FLOW: self._flow,
            Type.ACK: self._ack,
            Type.SEEK: self._seek,
            Type.GET_LAST_MESSAGE_ID: self._get_last_message_id,
            Type.CONSUMER_STATS: self._consumer_stats,
            Type.UNSUBSCRIBE: self._unsubscribe,
            Type.CLOSE_CONSUMER: self._close_consumer,
            Type.PRODUCER: self._producer,
            Type.CLOSE_PRODUCER: self._close_producer,
            Type.TC_CLIENT_CONNECT_REQUEST: self._connect_to_coordinator,
            Type.NEW_TXN: self._new_transaction,
            Type.ADD_PARTITION_TO_TXN: self._add_partitions,
            Type.END_TXN: self._end_transaction,
        }

    def serve(self) -> None:
        """Take commands until the client closes, or sends what ends the connection without a word."""
        reader = FrameReader(self._broker.max_message_size)
        with self._socket, suppress(OSError, ProtocolError):
            while data := self._socket.recv(1 << 16):
                for frame in reader.feed(data):
                    assert isinstance(frame, Frame)  # no client sends messages or receipts
                    with self._broker.changed:
                        if not self.is_cut and not self.is_deaf:
                            self._broker.take(self, frame)
                        self._broker.changed.notify_all()
        with self._broker.changed:
            self.is_served = False
            self._leave()
            self._broker.changed.notify_all()

    def handle(self, frame: Frame) -> None:
        """Do what a broker does about a command."""
        kind = frame.command.type
        if not self._is_connected and kind not in (Type.CONNECT, Type.PING):
            self.cut()
        elif kind == Type.SEND:
            self._send(frame.command.send, bytes(frame.payload_section))
        else:
            self._handlers[kind](body_of(frame.command))

    def send(self, kind: int, **fields: object) -> None:
        """Send a command."""
        self.write(encode_command(command_of(kind, **fields)))

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        if not self.is_cut and not self.is_mute:
            with suppress(OSError):
                self._socket.sendall(data)

    def cut(self) -> None:
        """Close the connection; what was sent before arrives."""
        self.is_cut = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._leave()

    def end(self) -> None:
        """Close the connection in both directions, so that its thread ends."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close_consumer(self, consumer: FakeConsumer) -> None:
        """Close a consumer from the broker's side, as an unload does."""
        self._drop_consumer(consumer.id)
        self.send(Type.CLOSE_CONSUMER, consumer_id=consumer.id, request_id=UNASKED)

    def close_producer(self, producer: FakeProducer) -> None:
        """Close a producer from the broker's side; what it sends from now on is dropped silently."""
        self._closed_producers.add(producer.id)
        self._drop_producer(producer.id)
        self.send(Type.CLOSE_PRODUCER, producer_id=producer.id, request_id=UNASKED)

    def error(self, request_id: int, error: int, text: str) -> None:
        """Answer with an ERROR."""
        self.send(Type.ERROR, request_id=request_id, error=error, message=text)

    # ---- connecting and looking up

    def _connect(self, body: Any) -> None:
        if self._is_connected:
            self.cut()
        elif self._broker.token is not None and body.auth_data != self._broker.token:
            self.error(UNASKED, pb.AuthenticationError, "Failed to authenticate")
            self.cut()
        else:
            self._is_connected = True
            connected = pb.CommandConnected(
                server_version="fake", protocol_version=21, max_message_size=self._broker.max_message_size
            )
            connected.feature_flags.supports_topic_watchers = self._broker.has_watches
            connected.feature_flags.supports_scalable_topics = self._broker.has_segments
            self.write(encode_command(pb.BaseCommand(type=Type.CONNECTED, connected=connected)))

    def _log_in(self, body: Any) -> None:
        if body.response.auth_data != self._broker.token:
            self.cut()

    def _partitioned_metadata(self, body: Any) -> None:
        response = pb.CommandPartitionedTopicMetadataResponse
        answer: dict[str, object] = {"partitions": 0, "response": response.Success}
        name = name_of(body.topic)
        count = self._broker.partitions.get(str(name))
        if count is not None:
            answer["partitions"] = count
        elif self._broker.is_missing_partition(name) or (
            body.topic not in self._broker.topics and not body.metadata_auto_creation_enabled
        ):
            answer = {"response": response.Failed, "error": pb.TopicNotFound, "message": "Topic not found"}
        self.send(Type.PARTITIONED_METADATA_RESPONSE, request_id=body.request_id, **answer)

    def _lookup(self, body: Any) -> None:
        self.send(
            Type.LOOKUP_RESPONSE,
            request_id=body.request_id,
            response=pb.CommandLookupTopicResponse.Connect,
            brokerServiceUrl=self._broker.url,
            authoritative=True,
        )

    def _topics_of_namespace(self, body: Any) -> None:
        topics = self._broker.topics_of(body.namespace, body.topics_pattern)
        self.send(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, request_id=body.request_id, topics=topics)

    def _watch(self, body: Any) -> None:
        self.watchers[body.watcher_id] = body.namespace, body.topics_pattern
        self.send(
            Type.WATCH_TOPIC_LIST_SUCCESS,
            request_id=body.request_id,
            watcher_id=body.watcher_id,
            topic=self._broker.topics_of(body.namespace, body.topics_pattern),
            topics_hash="hash",
        )

    def _close_watch(self, body: Any) -> None:
        self.watchers.pop(body.watcher_id, None)
        self.send(Type.SUCCESS, request_id=body.request_id)

    def _look_up_segments(self, body: Any) -> None:
        self.lookups[body.session_id] = body.topic
        layout = self._broker.layouts.get(body.topic)
        answer: dict[str, object] = {"dag": layout, "resolved_topic_name": body.topic}
        if layout is None:
            answer = {"error": pb.TopicNotFound, "message": "Scalable topic not found"}
        self.send(Type.SCALABLE_TOPIC_UPDATE, session_id=body.session_id, **answer)

    def _watch_scalable(self, body: Any) -> None:
        self.list_watchers[body.watch_id] = body.namespace
        names = [name for name in self._broker.layouts if is_in(name, body.namespace)]
        snapshot = pb.ScalableTopicsSnapshot(topics=names)
        self.send(Type.WATCH_SCALABLE_TOPICS_UPDATE, watch_id=body.watch_id, snapshot=snapshot)

    # ---- schemas

    def _get_schema(self, body: Any) -> None:
        schemas = self._broker.schemas
        version = int.from_bytes(body.schema_version, "big")
        if body.HasField("schema_version"):
            schema = schemas.at(body.topic, version)
        else:
            version, schema = schemas.latest(body.topic) or (0, None)
        answer: dict[str, object] = {"error_code": pb.TopicNotFound, "error_message": "no-schema"}
        if schema is not None:
            answer = {"schema": schema, "schema_version": version.to_bytes(8, "big")}
        self.send(Type.GET_SCHEMA_RESPONSE, request_id=body.request_id, **answer)

    def _get_or_create_schema(self, body: Any) -> None:
        answer: dict[str, object] = {"error_code": pb.TopicNotFound, "error_message": "Topic not found"}
        if body.topic in self._broker.topics:
            answer = {"schema_version": self._register(body)}
        self.send(Type.GET_OR_CREATE_SCHEMA_RESPONSE, request_id=body.request_id, **answer)

    def _register(self, body: Any) -> bytes:
        return self._broker.schemas.register(body.topic, body.schema).to_bytes(8, "big")

    # ---- consumers

    def _subscribe(self, body: Any) -> None:
        topic = self._topic(body, create=body.force_topic_creation)
        if topic is None:
            return
        cursor = topic.cursors.get(body.subscription)
        if cursor is not None and cursor.is_durable != body.durable:
            self.error(body.request_id, pb.NotAllowedError, "Durable subscription of the same name exists.")
            return
        if any(one.cursor is cursor for one in self._broker.open_consumers):
            self.error(body.request_id, pb.ConsumerBusy, "Exclusive consumer is already connected")
            return
        if cursor is None:
            cursor = FakeCursor(topic, topic.mark_of(body), is_durable=body.durable)
            topic.cursors[body.subscription] = cursor
        cursor.rewind()
        consumer = FakeConsumer(self, body.consumer_id, topic, body.subscription, cursor, 0, 0, [])
        self.consumers[body.consumer_id] = consumer
        self._broker.consumers.append(consumer)
        self.send(Type.SUCCESS, request_id=body.request_id)

    def _flow(self, body: Any) -> None:
        consumer = self.consumers.get(body.consumer_id)
        if body.messagePermits == 0:
            self.cut()
        elif consumer is not None:
            consumer.permits += body.messagePermits
            consumer.granted += body.messagePermits
            consumer.dispatch()

    def _ack(self, body: Any) -> None:
        consumer = self.consumers.get(body.consumer_id)
        if consumer is None:
            return
        ids = [from_wire_id(one) for one in body.message_id]
        if body.ack_type == pb.CommandAck.Cumulative:
            consumer.cursor.ack_to(ids[0])
        else:
            consumer.cursor.ack(ids)
        if body.HasField("request_id"):
            self.send(Type.ACK_RESPONSE, consumer_id=body.consumer_id, request_id=body.request_id)

    def _seek(self, body: Any) -> None:
        consumer = self._consumer(body)
        if consumer is None:
            return
        if body.HasField("message_id"):
            mark = consumer.topic.position_before(from_wire_id(body.message_id))
        else:
            mark = consumer.topic.position_before_time(body.message_publish_time)
        consumer.cursor.rewind(mark)
        self.send(Type.SUCCESS, request_id=body.request_id)
        self.close_consumer(consumer)

    def _get_last_message_id(self, body: Any) -> None:
        consumer = self._consumer(body)
        if consumer is not None:
            self.send(
                Type.GET_LAST_MESSAGE_ID_RESPONSE,
                request_id=body.request_id,
                last_message_id=consumer.topic.last_visible,
                consumer_mark_delete_position=consumer.cursor.mark,
            )

    def _consumer_stats(self, body: Any) -> None:
        consumer = self._consumer(body)
        if consumer is not None:
            backlog = consumer.cursor.backlog
            self.send(Type.CONSUMER_STATS_RESPONSE, request_id=body.request_id, msgBacklog=backlog)

    def _unsubscribe(self, body: Any) -> None:
        consumer = self._consumer(body)
        if consumer is not None:
            self._drop_consumer(consumer.id)
            consumer.topic.cursors.pop(consumer.subscription, None)
            self.send(Type.SUCCESS, request_id=body.request_id)

    def _close_consumer(self, body: Any) -> None:
        self._drop_consumer(body.consumer_id)
        self.send(Type.SUCCESS, request_id=body.request_id)

    def _consumer(self, body: Any) -> FakeConsumer | None:
        consumer = self.consumers.get(body.consumer_id)
        if consumer is None:
            self.error(body.request_id, pb.MetadataError, "Consumer not found")
        return consumer

    # ---- producers

    def _producer(self, body: Any) -> None:
        topic = self._topic(body, create=True)
        if topic is None:
            return
        if self._broker.requires_encryption and not body.encrypted:
            self.error(body.request_id, pb.MetadataError, f"Encryption is required in {body.topic}")
            return
        if topic.is_terminated:
            self.error(body.request_id, pb.TopicTerminatedError, "Topic was already terminated")
            return
        name = body.producer_name or f"fake-0-{next(self._broker.numbers)}"
        others = [one for one in self._broker.open_producers if one.topic is topic]
        is_exclusive = body.producer_access_mode != pb.Shared
        producer = FakeProducer(self, body.producer_id, topic, name, is_exclusive, body.request_id)
        if any(one.name == name for one in others):
            text = f"Producer with name '{name}' is already connected to topic"
            self.error(body.request_id, pb.ProducerBusy, text)
            return
        if body.producer_access_mode == pb.ExclusiveWithFencing:
            for other in others:
                other.connection.fence(other)
            others = []
        if any(one.is_exclusive and one.is_ready for one in others) and not is_exclusive:
            text = "Topic has an existing exclusive producer: " + others[0].name
            self.error(body.request_id, pb.ProducerBusy, text)
            return
        if others and body.producer_access_mode == pb.Exclusive:
            self.error(body.request_id, pb.ProducerFenced, "Topic has existing exclusive producer: x")
            return
        if body.HasField("schema"):
            producer.schema_version = self._register(body)
        producer.is_ready = not (others and is_exclusive)
        self.producers[producer.id] = producer
        self.answer_producer(producer)

    def answer_producer(self, producer: FakeProducer) -> None:
        """Send PRODUCER_SUCCESS."""
        if producer.is_exclusive and producer.is_ready:
            producer.topic.epoch += 1
        self.send(
            Type.PRODUCER_SUCCESS,
            request_id=producer.request_id,
            producer_name=producer.name,
            producer_ready=producer.is_ready,
            last_sequence_id=producer.topic.stored_ids.get(producer.name, -1),
            topic_epoch=producer.topic.epoch if producer.is_exclusive else None,
            schema_version=producer.schema_version,
        )

    def _send(self, command: pb.CommandSend, section: bytes) -> None:
        producer = self.producers.get(command.producer_id)
        if producer is None:
            if command.producer_id not in self._closed_producers:
                self.cut()
            return
        ids = {"producer_id": command.producer_id, "sequence_id": command.sequence_id}
        if not is_intact(section[:6], section[6:]):
            self.send(Type.SEND_ERROR, error=pb.ChecksumError, message="Checksum failed on the broker", **ids)
            return
        topic = producer.topic
        if self._broker.deduplicates:
            entry = topic.store(producer.name, command, section)
        else:
            entry = topic.append(section, transaction_of(command))
        place = NO_MESSAGE if entry is None else entry.id
        self.send(Type.SEND_RECEIPT, message_id=place, highest_sequence_id=command.highest_sequence_id, **ids)
        self._broker.dispatch(topic)

    def _close_producer(self, body: Any) -> None:
        self._drop_producer(body.producer_id)
        self.send(Type.SUCCESS, request_id=body.request_id)

    # ---- transactions

    def _connect_to_coordinator(self, body: Any) -> None:
        self._coordinators.add(body.tc_id)
        self.send(Type.TC_CLIENT_CONNECT_RESPONSE, request_id=body.request_id)

    def _new_transaction(self, body: Any) -> None:
        answer: dict[str, object] = {"error": pb.TransactionCoordinatorNotFound}
        if body.tc_id in self._coordinators:
            transaction = TxnId(body.tc_id, next(self._broker.numbers))
            self._broker.transactions[transaction] = set()
            answer = {"txnid_most_bits": transaction[0], "txnid_least_bits": transaction[1]}
        self.send(Type.NEW_TXN_RESPONSE, request_id=body.request_id, **answer)

    def _add_partitions(self, body: Any) -> None:
        topics, error = self._transaction(body)
        if topics is not None:
            topics.update(body.partitions)
        self.send(Type.ADD_PARTITION_TO_TXN_RESPONSE, request_id=body.request_id, **error)

    def _end_transaction(self, body: Any) -> None:
        topics, error = self._transaction(body)
        if topics is not None:
            transaction = TxnId(body.txnid_most_bits, body.txnid_least_bits)
            del self._broker.transactions[transaction]
            for name in topics:
                topic = self._broker.topics[name]
                topic.end(transaction, commit=body.txn_action == pb.COMMIT)
                self._broker.dispatch(topic)
        self.send(Type.END_TXN_RESPONSE, request_id=body.request_id, **error)

    def _transaction(self, body: Any) -> tuple[set[str] | None, dict[str, object]]:
        """The topics of an open transaction; or None, and why it cannot be had."""
        transaction = TxnId(body.txnid_most_bits, body.txnid_least_bits)
        topics = self._broker.transactions.get(transaction)
        if transaction[0] not in self._coordinators:
            return None, {"error": pb.TransactionCoordinatorNotFound}
        if topics is None:
            return None, {"error": pb.TransactionNotFound, "message": f"{transaction} is not found"}
        return topics, {}

    # ---- what they share

    def _topic(self, body: Any, *, create: bool) -> FakeTopic | None:
        """The topic that is named; answers with an error where it cannot be had."""
        name = name_of(body.topic)
        topic = self._broker.topics.get(body.topic)
        if str(name) in self._broker.partitions:
            text = "Found partitioned metadata for non-partitioned topic"
            self.error(body.request_id, pb.NotAllowedError, text)
        elif topic is None and (not create or name.is_segment or self._broker.is_missing_partition(name)):
            self.error(body.request_id, pb.TopicNotFound, f"Topic {name} does not exist")
        elif topic is None:
            return self._broker.create(name)
        return topic

    def _drop_consumer(self, consumer_id: int) -> None:
        consumer = self.consumers.pop(consumer_id, None)
        if consumer is not None and not consumer.cursor.is_durable:
            consumer.topic.cursors.pop(consumer.subscription, None)

    def fence(self, producer: FakeProducer) -> None:
        """Shut a producer out without a frame; its next SEND cuts the connection."""
        del self.producers[producer.id]

    def _drop_producer(self, producer_id: int) -> None:
        producer = self.producers.pop(producer_id, None)
        if producer is not None:
            self._broker.next_producer(producer.topic)

    def _leave(self) -> None:
        self.watchers.clear()
        self.list_watchers.clear()
        for consumer_id in list(self.consumers):
            self._drop_consumer(consumer_id)
        for producer_id in list(self.producers):
            self._drop_producer(producer_id)


def is_in(name: str, namespace: str) -> bool:
    """Whether a scalable topic is in a namespace."""
    return name.startswith(f"topic://{namespace}/")


def name_of(text: str) -> TopicName:
    """A full name as clients send it, which may be that of a segment."""
    domain, _, path = text.partition("://")
    return TopicName(domain, *path.split("/", 2)) if domain == "segment" else TopicName.parse(text)
