"""A broker in memory, on a socket of this machine: it lets the code that drives connections run in seconds.

It does in small what real brokers were seen to do, and nothing else; the integration tests hold the same code
to real brokers. A test scripts its faults: what it does in place of the usual, command by command.
"""

from __future__ import annotations

import itertools
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

from pulsar_spark.ids import MessageId, TopicName, TxnId
from pulsar_spark.protocol.lookup import Address
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE, Frame
from tests.fake_clients import COORDINATORS, FakeConsumer, FakeProducer, Type, body_of
from tests.fake_connection import FakeConnection, is_in
from tests.fake_schemas import FakeSchemas
from tests.fake_topics import NO_MESSAGE, FakeTopic

# Seconds after which a test has failed that waits for something.
HANG = 20.0

Action: TypeAlias = Callable[[FakeConnection, Frame], None]


class Seen(NamedTuple):
    """A command that came, and the number of its connection."""

    connection: int
    command: pb.BaseCommand


class FakeBroker:
    """A broker; a context manager, at whose end all connections are closed and no thread is left.

    Args:
        deduplicates: whether the namespaces do.
        has_transactions: whether there is a transaction coordinator.
        has_watches: whether it tells which topics come and go.
        has_segments: whether it has scalable topics.
        token: that clients must log in with, or None.
        max_message_size: bytes of an entry.

    Attributes:
        url: for clients.
        address: the same.
        changed: hold it to read or change what is here; notified after each command.
        commands: all that came, in order, over all connections.
        topics: topic partitions by name.
        partitions: of each partitioned topic, how many it has.
        layouts: of scalable topics, by name: what a lookup of their segments is answered.
        schemas: of topics.
        transactions: the open ones, with the topics that were added to them.
        consumers: all that there were, also those that are closed.
    """

    def __init__(
        self,
        *,
        deduplicates: bool = False,
        has_transactions: bool = False,
        has_watches: bool = True,
        has_segments: bool = False,
        requires_encryption: bool = False,
        token: bytes | None = None,
        max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    ) -> None:
        self.deduplicates = deduplicates
        self.has_watches = has_watches
        self.has_segments = has_segments
        self.requires_encryption = requires_encryption
        self.token = token
        self.max_message_size = max_message_size
        self.changed = threading.Condition()
        self.numbers = itertools.count(1)
        self.commands: list[Seen] = []
        self.topics: dict[str, FakeTopic] = {}
        self.partitions: dict[str, int] = {COORDINATORS: 1} if has_transactions else {}
        self.layouts: dict[str, pb.ScalableTopicDAG] = {}
        self.schemas = FakeSchemas()
        self.transactions: dict[TxnId, set[str]] = {}
        self.consumers: list[FakeConsumer] = []
        self._scripts: dict[int, Iterator[Action]] = {}
        self._connections: list[FakeConnection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self.url = f"pulsar://{self.address}"
        self._threads = [threading.Thread(target=self._accept, name="fake broker")]
        self._threads[0].start()

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(HANG)
        for connection in self._connections:
            connection.end()
        for thread in self._threads:
            thread.join(HANG)
            assert not thread.is_alive()

    # ---- what tests prepare

    def create(self, name: TopicName | str, partitions: int = 0) -> FakeTopic:
        """Create a topic; gives it, or the first of its partitions."""
        with self.changed:
            name = name if isinstance(name, TopicName) else TopicName.parse(name)
            names = [name]
            if partitions:
                names = [name.of_partition(number) for number in range(partitions)]
                self.partitions[str(name)] = partitions
            new = [str(one) for one in names if str(one) not in self.topics]
            for one in new:
                self.topics[one] = FakeTopic(one, lambda: next(self.numbers))
            self._tell_watchers(new_topics=new)
            return self.topics[str(names[0])]

    def lay_out(self, name: str, layout: pb.ScalableTopicDAG) -> None:
        """Give a scalable topic other segments, and tell those who have looked it up."""
        with self.changed:
            if name not in self.layouts:
                self._tell_list_watchers(name, "added")
            self.layouts[name] = layout
            for each in layout.segments:
                place = each.hash_start, each.hash_end, each.segment_id
                segment = self.create(TopicName.parse(name, scalable=True).segment(*place))
                if each.state == pb.SEALED and not segment.is_terminated:
                    self.terminate(segment)
            for connection in self._connections:
                for session_id, topic in connection.lookups.items():
                    if topic == name:
                        connection.send(Type.SCALABLE_TOPIC_UPDATE, session_id=session_id, dag=layout)

    def delete_scalable(self, name: str) -> None:
        """Delete a scalable topic; those who have looked it up are not told."""
        with self.changed:
            del self.layouts[name]
            self._tell_list_watchers(name, "removed")

    def _tell_list_watchers(self, name: str, how: str) -> None:
        diff = pb.ScalableTopicsDiff(**{how: [name]})
        for connection in self._connections:
            for watch_id, namespace in connection.list_watchers.items():
                if is_in(name, namespace):
                    connection.send(Type.WATCH_SCALABLE_TOPICS_UPDATE, watch_id=watch_id, diff=diff)

    def terminate(self, topic: FakeTopic) -> None:
        """Let a topic store no more entries, and close its producers, before a new layout says so."""
        with self.changed:
            topic.is_terminated = True
            for producer in self.open_producers:
                if producer.topic is topic:
                    producer.connection.close_producer(producer)

    def delete(self, name: TopicName | str) -> None:
        """Delete a topic under its consumers and producers, which are closed."""
        with self.changed:
            full_name = str(TopicName.parse(str(name)))
            self.close_all(full_name)
            del self.topics[full_name]
            self.schemas.drop(full_name)
            self._tell_watchers(deleted_topics=[full_name])

    def publish(self, name: TopicName | str, *sections: bytes) -> list[MessageId]:
        """Store entries, and give them to who waits; the topic is created where there is none."""
        with self.changed:
            topic = self.topics.get(str(name)) or self.create(name)
            ids = [topic.append(section).id for section in sections]
            self.dispatch(topic)
            self.changed.notify_all()
            return ids

    def script(self, kind: int, actions: Iterable[Action]) -> None:
        """Do these actions about the next commands of a type, one for each; afterwards the usual again."""
        with self.changed:
            self._scripts[kind] = iter(actions)

    def close_all(self, name: TopicName | str) -> None:
        """Close all producers and consumers of a topic, as an unload does; their connections live on."""
        with self.changed:
            for producer in self.open_producers:
                if producer.topic.name == str(name):
                    producer.connection.close_producer(producer)
            for consumer in self.open_consumers:
                if consumer.topic.name == str(name):
                    consumer.connection.close_consumer(consumer)

    def fall_silent(self) -> None:
        """Lose all that comes and goes on the connections that there are; they stay open."""
        with self.changed:
            for connection in self._connections:
                connection.is_mute = connection.is_deaf = True

    def cut(self) -> None:
        """Close all connections."""
        with self.changed:
            for connection in self._connections:
                connection.cut()

    def send(self, kind: int, **fields: object) -> None:
        """Send a command to all clients."""
        with self.changed:
            for connection in self._connections:
                connection.send(kind, **fields)

    # ---- what tests look at

    def seen(self, kind: int) -> list[Any]:
        """What the commands of a type said, in the order they came."""
        with self.changed:
            return [body_of(each.command) for each in self.commands if each.command.type == kind]

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something is true of this broker."""
        with self.changed:
            assert self.changed.wait_for(condition, HANG)

    def wait_for_command(self, kind: int, count: int = 1) -> None:
        """Wait until so many commands of a type have come."""
        self.wait_for(lambda: len(self.seen(kind)) >= count)

    @property
    def open_connections(self) -> list[FakeConnection]:
        """Those that are not cut by this side."""
        return [one for one in self._connections if not one.is_cut]

    @property
    def open_consumers(self) -> list[FakeConsumer]:
        """Consumers that are subscribed now."""
        return [one for connection in self._connections for one in connection.consumers.values()]

    @property
    def open_producers(self) -> list[FakeProducer]:
        """Producers that are registered now, also those that wait for the topic."""
        return [one for connection in self._connections for one in connection.producers.values()]

    # ---- for its connections

    def take(self, connection: FakeConnection, frame: Frame) -> None:
        """Note a command, and do what the script says about it, or else the usual."""
        self.commands.append(Seen(connection.number, frame.command))
        action = next(self._scripts.get(frame.command.type, iter(())), pass_on)
        action(connection, frame)

    def dispatch(self, topic: FakeTopic) -> None:
        """Send what has come to the topic's consumers."""
        for consumer in self.open_consumers:
            if consumer.topic is topic:
                consumer.dispatch()

    def next_producer(self, topic: FakeTopic) -> None:
        """Let one have the topic that waits for it, where it is free."""
        waiting = [one for one in self.open_producers if one.topic is topic]
        if waiting and not any(one.is_ready for one in waiting):
            waiting[0].is_ready = True
            waiting[0].connection.answer_producer(waiting[0])

    def topics_of(self, namespace: str, pattern: str) -> list[str]:
        """Names of the topic partitions of `tenant/namespace` that a pattern matches; all without one."""
        return [name for name in self.topics if is_listed(name, namespace, pattern)]

    def is_missing_partition(self, name: TopicName) -> bool:
        """Whether it is a partition that a partitioned topic does not have."""
        return 0 <= self.partitions.get(str(name.base), name.partition + 1) <= name.partition

    def _tell_watchers(self, **names: list[str]) -> None:
        for connection in self._connections:
            for watcher_id, (namespace, pattern) in connection.watchers.items():
                for kind, all_names in names.items():
                    for name in all_names:
                        if is_listed(name, namespace, pattern):
                            update = {kind: [name], "topics_hash": "hash", "watcher_id": watcher_id}
                            connection.send(Type.WATCH_TOPIC_UPDATE, **update)

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.changed:
                connection = FakeConnection(self, opened, len(self._connections))
                self._connections.append(connection)
                self._threads.append(threading.Thread(target=connection.serve, name="fake connection"))
                self._threads[-1].start()


# ---- actions for scripts


def pass_on(connection: FakeConnection, frame: Frame) -> None:
    """Do the usual."""
    connection.handle(frame)


def silence(connection: FakeConnection, frame: Frame) -> None:
    """Do nothing, and do not answer."""


def cut(connection: FakeConnection, frame: Frame) -> None:
    """Close the connection before anything is done."""
    connection.cut()


def answer_and_cut(connection: FakeConnection, frame: Frame) -> None:
    """Do the usual, and close the connection when the answer is sent."""
    connection.handle(frame)
    connection.cut()


def without_answer(connection: FakeConnection, frame: Frame) -> None:
    """Do the usual, and keep the answer back."""
    connection.is_mute = True
    connection.handle(frame)
    connection.is_mute = False


def knows_no_last_message(connection: FakeConnection, frame: Frame) -> None:
    """Answer as brokers with transactions do of a segment that was empty when they were asked first."""
    body = frame.command.getLastMessageId
    mark = connection.consumers[body.consumer_id].cursor.mark
    answer = {"last_message_id": NO_MESSAGE, "consumer_mark_delete_position": mark}
    connection.send(Type.GET_LAST_MESSAGE_ID_RESPONSE, request_id=body.request_id, **answer)


def accept_and_close(broker: FakeBroker, topic: TopicName, *, cuts: bool) -> Action:
    """Do the usual, and then cut the connection, or close the topic's producers and consumers."""

    def action(connection: FakeConnection, frame: Frame) -> None:
        connection.handle(frame)
        if cuts:
            connection.cut()
        else:
            broker.close_all(topic)

    return action


def lose_answer(connection: FakeConnection, frame: Frame) -> None:
    """Do the usual, but close the connection in place of the answer."""
    connection.is_mute = True
    connection.handle(frame)
    connection.cut()


def says(data: bytes) -> Action:
    """Answer with bytes."""
    return lambda connection, frame: connection.write(data)


def redirects(url: str, *, authoritative: bool = False) -> Action:
    """Answer a lookup with another broker, which is to be asked."""

    def action(connection: FakeConnection, frame: Frame) -> None:
        connection.send(
            Type.LOOKUP_RESPONSE,
            request_id=frame.command.lookupTopic.request_id,
            response=pb.CommandLookupTopicResponse.Redirect,
            brokerServiceUrl=url,
            authoritative=authoritative,
        )

    return action


_FAILED: dict[int, tuple[int, dict[str, object]]] = {
    Type.LOOKUP: (Type.LOOKUP_RESPONSE, {"response": pb.CommandLookupTopicResponse.Failed}),
    Type.PARTITIONED_METADATA: (
        Type.PARTITIONED_METADATA_RESPONSE,
        {"response": pb.CommandPartitionedTopicMetadataResponse.Failed},
    ),
    Type.TC_CLIENT_CONNECT_REQUEST: (Type.TC_CLIENT_CONNECT_RESPONSE, {}),
    Type.NEW_TXN: (Type.NEW_TXN_RESPONSE, {}),
    Type.ADD_PARTITION_TO_TXN: (Type.ADD_PARTITION_TO_TXN_RESPONSE, {}),
    Type.END_TXN: (Type.END_TXN_RESPONSE, {}),
}
_FAILED_BY_CODE: dict[int, int] = {
    Type.CONSUMER_STATS: Type.CONSUMER_STATS_RESPONSE,
    Type.GET_SCHEMA: Type.GET_SCHEMA_RESPONSE,
    Type.GET_OR_CREATE_SCHEMA: Type.GET_OR_CREATE_SCHEMA_RESPONSE,
}


def refuses(error: int, text: str = "refused by the test") -> Action:
    """Answer with a ServerError, in the way that each command has for it."""

    def action(connection: FakeConnection, frame: Frame) -> None:
        kind, body = frame.command.type, body_of(frame.command)
        if kind == Type.SEND:
            ids = {"producer_id": body.producer_id, "sequence_id": body.sequence_id}
            connection.send(Type.SEND_ERROR, error=error, message=text, **ids)
        elif kind == Type.ACK:
            ids = {"consumer_id": body.consumer_id, "request_id": body.request_id}
            connection.send(Type.ACK_RESPONSE, error=error, message=text, **ids)
        elif kind in _FAILED_BY_CODE:
            failed = {"error_code": error, "error_message": text}
            connection.send(_FAILED_BY_CODE[kind], request_id=body.request_id, **failed)
        elif kind in _FAILED:
            answer, fields = _FAILED[kind]
            fields = {**fields, "error": error, "message": text}
            connection.send(answer, request_id=body.request_id, **fields)
        else:
            connection.error(body.request_id, error, text)

    return action


class Held:
    """An action that keeps commands until `release` does the usual about them."""

    def __init__(self, broker: FakeBroker) -> None:
        self.count = 0
        self._broker = broker
        self._kept: list[tuple[FakeConnection, Frame]] = []

    def __call__(self, connection: FakeConnection, frame: Frame) -> None:
        """Keep a command."""
        self.count += 1
        self._kept.append((connection, frame))

    def release(self, count: int | None = None) -> None:
        """Do the usual about all that is kept, or about the first ones, in order."""
        with self._broker.changed:
            kept, self._kept = self._kept[:count], [] if count is None else self._kept[count:]
            for connection, frame in kept:
                connection.handle(frame)


def is_listed(name: str, namespace: str, pattern: str) -> bool:
    """Whether a broker tells a topic of `tenant/namespace`, where `pattern` may narrow what it tells."""
    domain, _, place = name.partition("://")
    is_there = domain == "persistent" and place.startswith(f"{namespace}/")
    return is_there and re.fullmatch(pattern or ".*", place) is not None
