"""Client: finds a topic's partitions and their brokers, and keeps connections to the brokers."""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from pulsar_spark.client.closing import Closing
from pulsar_spark.client.net.admin import Admin
from pulsar_spark.client.net.auth import Credentials, Identity
from pulsar_spark.client.net.deadline import Deadline, retry
from pulsar_spark.client.net.session import Purpose, Session, SessionPool
from pulsar_spark.client.net.tls import TlsOptions
from pulsar_spark.client.schemas import TopicSchemas
from pulsar_spark.errors import (
    AuthError,
    DeadlineError,
    NotReadyError,
    ProtocolError,
    PulsarError,
    TopicNotFoundError,
    from_server,
)
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.protocol.lookup import MAX_REDIRECTS, Address, Lookup, parse_service_url
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE

_log = logging.getLogger(__name__)

# Maximum partitions of a topic, far above real clusters. A larger number in an answer would fill memory.
MAX_PARTITIONS = 100_000

# Seconds until an unreachable broker is an error, at the start of a query.
FIRST_CONTACT = 4.0

# Seconds that ``locate_all`` waits. Topics without an answer by then are looked up one by one.
_PARALLEL_TIMEOUT = 1.0

_COORDINATORS = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Settings of the connections to a cluster; all times are in seconds.

    Attributes:
        operation_timeout: maximum duration of a request, including its retries.
        lookup_timeout: maximum duration of a request for a topic's partitions, including its retries, and of
            a lookup of a topic's broker, including its redirects. None: the operation timeout.
        listener_name: the advertised listener whose addresses lookups return; None: the internal listener.
        connection_timeout: limit of one TCP connection, and of one handshake.
        keep_alive_interval: silence after which a PING is sent.
        subscription_prefix: prefix of subscription names that this client generates. A namespace may require
            that subscription names begin with the login's role.
        consumer_name: name of all consumers in topic statistics; None: the broker chooses the names.
        credentials: login; None: no authentication, unless ``tls`` has a certificate.
    """

    service_url: str
    operation_timeout: float = 30.0
    lookup_timeout: float | None = None
    max_lookup_redirects: int = MAX_REDIRECTS
    listener_name: str | None = None
    connection_timeout: float = 10.0
    keep_alive_interval: float = 30.0
    connection_max_idle: float = 60.0
    subscription_prefix: str = "spark-pulsar"
    consumer_name: str | None = None
    tls: TlsOptions = field(default_factory=TlsOptions)
    credentials: Credentials | None = None


class Client(Closing):
    """Connections to one cluster; thread-safe. Use it in a ``with`` block, or share it (``shared_client``).

    All requests raise BrokerError if no broker answers in time.

    Attributes:
        coordinator_sessions: sessions that ``Transactions`` caches, by index of the transaction coordinator.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._identity = Identity(options.credentials, options.tls, options.connection_timeout)
        self._pool = SessionPool(
            parse_service_url(options.service_url),
            self._identity,
            connection_timeout=options.connection_timeout,
            keep_alive=options.keep_alive_interval,
            max_idle=options.connection_max_idle,
        )
        self.schemas = TopicSchemas(self._ask_service, self._ask_owner, self.operation)
        self._ids = itertools.count(1)
        self._max_message_size = 0
        self._unreadable: set[str] = set()  # invalid names of topics about which a WARNING was logged
        self._kept: dict[tuple[TopicName, Purpose], Session] = {}
        self._first_partitions: dict[TopicName, TopicName] = {}
        self._coordinators: list[TopicName] = []
        self.coordinator_sessions: dict[int, Session] = {}

    def close(self) -> None:
        """Closes all connections; open consumers and producers can no longer be used."""
        self._pool.close()

    def operation(self) -> Deadline:
        """Returns a deadline that is one operation timeout from now."""
        return Deadline(self.options.operation_timeout)

    @property
    def _lookup_timeout(self) -> float:
        return self.options.lookup_timeout or self.options.operation_timeout

    def max_message_size(self) -> int:
        """Returns the maximum entry size in bytes: the largest that brokers have reported; before, 5 MiB."""
        return self._max_message_size or DEFAULT_MAX_MESSAGE_SIZE

    def reader_name(self, role: str) -> str:
        """Returns a unique name of a non-durable subscription; ``role``: its purpose, such as planner."""
        return f"{self.options.subscription_prefix}-{role}-{uuid.uuid4()}"

    def new_id(self) -> int:
        """Returns an id for a consumer or producer that is unique in this client."""
        return next(self._ids)

    def partitions(self, topic: TopicName, *, create: bool = False) -> list[TopicName]:
        """Returns the partitions of a topic, or the topic itself if it is not partitioned.

        ``create``: whether the broker may create a missing topic, if its auto-creation policy allows this.

        Raises:
            TopicNotFoundError: the topic does not exist.
            ProtocolError: there are more than 100,000 partitions.
        """
        deadline = Deadline(self._lookup_timeout)

        def attempt() -> pb.CommandPartitionedTopicMetadataResponse:
            answer = self._ask_service(
                lambda request_id: commands.partitioned_metadata(request_id, str(topic), create=create),
                deadline,
            ).partitionMetadataResponse
            if answer.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
                raise from_server(answer.error, answer.message, topic=str(topic))
            return answer

        answer = retry(attempt, deadline)
        if answer.partitions > MAX_PARTITIONS:
            raise ProtocolError(
                f"the broker reports {answer.partitions} partitions; the maximum is {MAX_PARTITIONS}",
                topic=str(topic),
            )
        return [topic.of_partition(number) for number in range(answer.partitions)] or [topic]

    def first_partition(self, topic: TopicName) -> TopicName:
        """Returns the first partition of a topic, or the topic itself; creates a missing topic.

        The broker's answer is cached until :meth:`forget_first_partition`. If the topic is deleted later,
        the next producer or consumer creates it again. Raises as :meth:`partitions`.
        """
        first = self._first_partitions.get(topic)
        if first is None:
            first = self._first_partitions[topic] = self.partitions(topic, create=True)[0]
        return first

    def forget_first_partition(self, topic: TopicName) -> None:
        """Drops the cached answer, so that the next :meth:`first_partition` asks the broker."""
        self._first_partitions.pop(topic, None)

    def transaction_coordinators(self, count: int = 1) -> list[TopicName]:
        """Returns one topic for each transaction coordinator; an empty list if the cluster has none.

        The result is cached, and requested again if it has fewer than ``count`` coordinators, because a
        cluster may add some. Raises AuthError if the role has no permission for the request.
        """
        if len(self._coordinators) < count:
            try:
                self._coordinators = self.partitions(_COORDINATORS)
            except TopicNotFoundError:
                self._coordinators = []
        return self._coordinators

    def topics_of_namespace(
        self, tenant: str, namespace: str, broker_regex: str | None = None
    ) -> list[TopicName]:
        """Returns the persistent topics of a namespace; each partition has its own name.

        Skips topics with invalid names, with one WARNING for each. ``broker_regex``: filter for the broker
        (:attr:`TopicPattern.broker_regex`), which may also return other topics; None: all topics.
        """
        name = f"{tenant}/{namespace}"
        deadline = self.operation()
        build = partial(commands.topics_of_namespace, namespace=name, pattern=broker_regex)
        try:
            answer = retry(lambda: self._ask_service(build, deadline), deadline)
        except AuthError as error:
            advice = f"{error.advice}. A pattern needs the permission consume on the namespace"
            raise AuthError(f"{error.what}; namespace {name}", advice=advice) from None
        names = {text: TopicName.found(text) for text in answer.getTopicsOfNamespaceResponse.topics}
        for text in sorted(text for text, topic in names.items() if topic is None):
            if text not in self._unreadable:
                self._unreadable.add(text)
                _log.warning(
                    "a topic of namespace %s is left out because its name is invalid: %r", name, text[:500]
                )
        return [topic for topic in names.values() if topic is not None]

    def topics_matching(self, pattern: TopicPattern) -> dict[TopicName, frozenset[TopicName]]:
        """Returns the topics that match a pattern, sorted, each with its partitions that exist at the broker.

        For an unpartitioned topic the set has only the topic itself. :meth:`partitions` also returns
        partitions that the broker has not created yet.
        """
        found: dict[TopicName, set[TopicName]] = {}
        for topic in self.topics_of_namespace(pattern.tenant, pattern.namespace, pattern.broker_regex):
            if pattern.matches(topic):
                found.setdefault(topic.base, set()).add(topic)
        return {name: frozenset(found[name]) for name in sorted(found)}

    def admin(self, url: str) -> Admin:
        """Returns the admin service at ``url``, with this client's login."""
        return Admin(url, identity=self._identity)

    def check(self) -> None:
        """Connects to a broker; raises as ``Session`` if no broker accepts this client."""
        deadline = self.operation()
        retry(lambda: self.service(deadline), deadline)

    def service(self, deadline: Deadline) -> Session:
        """Returns a session with any broker, for requests that every broker can answer."""
        return self._pool.service(Purpose.READ, deadline)

    def locate(self, topic: TopicName, purpose: Purpose, deadline: Deadline) -> Session:
        """Looks up the broker that serves ``topic``, follows redirects, and returns a session with it.

        Makes one attempt. Lookups never use the connections of producers, because a broker that throttles
        publishing stops reading from these connections.
        """
        within = deadline.at_most(self._lookup_timeout)
        service = self.service(within)
        lookup = Lookup(str(topic), service.address, self.options.max_lookup_redirects)
        while True:
            pause = lookup.pause(random.random())
            if pause:
                time.sleep(min(pause, within.left))
                if within.passed:
                    raise lookup.unfinished()
            session = self._pool.get(lookup.ask, Purpose.READ, within)
            answer = self._ask(session, partial(self._lookup_command, lookup), within)
            broker = lookup.answered(answer.lookupTopicResponse)
            if broker is not None:
                return self._session_with(broker, purpose, deadline)

    def locate_all(self, topics: Iterable[TopicName]) -> None:
        """Looks up topics in parallel, and keeps their sessions for :meth:`kept_session`.

        A lookup that fails, takes over a second or is redirected is repeated by :meth:`kept_session`.
        """
        deadline = Deadline(_PARALLEL_TIMEOUT)
        asked = []
        try:
            service = self.service(deadline)
            for topic in topics:
                if self._kept_session(topic, Purpose.READ) is None:
                    lookup = Lookup(str(topic), service.address)
                    answer = service.ask(partial(self._lookup_command, lookup), deadline.left)
                    asked.append((topic, lookup, answer))
        except PulsarError as error:
            _log.debug("topics are looked up one by one: %s", error)
        for topic, lookup, answer in asked:
            try:
                broker = lookup.answered(answer.result().lookupTopicResponse)
                if broker is not None:
                    self._keep(topic, Purpose.READ, self._session_with(broker, Purpose.READ, deadline))
            except PulsarError as error:
                _log.debug("%s is looked up again: %s", topic, error)

    def _lookup_command(self, lookup: Lookup, request_id: int) -> bytes:
        listener = self.options.listener_name
        return commands.lookup(
            request_id, lookup.topic, authoritative=lookup.authoritative, listener=listener
        )

    def _session_with(self, broker: Address, purpose: Purpose, deadline: Deadline) -> Session:
        found = self._pool.get(broker, purpose, deadline)
        self._max_message_size = max(self._max_message_size, found.max_message_size)
        return found

    def kept_session(self, topic: TopicName, purpose: Purpose, deadline: Deadline) -> Session:
        """Returns the cached session with the topic's broker; looks up the broker if no open one is cached.

        Call :meth:`forget_session` if the broker refuses or closes a consumer or producer, or does not
        answer, because the broker may no longer serve the topic.
        """
        session = self._kept_session(topic, purpose)
        if session is None:
            session = self.locate(topic, purpose, deadline)
            self._keep(topic, purpose, session)
        return session

    def _kept_session(self, topic: TopicName, purpose: Purpose) -> Session | None:
        session = self._kept.get((topic, purpose))
        return session if session is not None and session.error is None else None

    def _keep(self, topic: TopicName, purpose: Purpose, session: Session) -> None:
        if len(self._kept) >= MAX_PARTITIONS:
            self._kept.clear()
        self._kept[topic, purpose] = session

    def forget_session(self, topic: TopicName, purpose: Purpose) -> None:
        """Drops the kept session, so that the next :meth:`kept_session` looks up the topic."""
        self._kept.pop((topic, purpose), None)

    def _ask_service(self, build: Callable[[int], bytes], deadline: Deadline) -> pb.BaseCommand:
        return self._ask(self.service(deadline), build, deadline)

    def _ask_owner(
        self, topic: TopicName, build: Callable[[int], bytes], deadline: Deadline
    ) -> pb.BaseCommand:
        return self._ask(self.kept_session(topic, Purpose.READ, deadline), build, deadline)

    def _ask(self, session: Session, build: Callable[[int], bytes], deadline: Deadline) -> pb.BaseCommand:
        """Sends a request that brokers answer at once; raises NotReadyError after the connection timeout."""
        try:
            return session.request(build, deadline.at_most(self.options.connection_timeout))
        except DeadlineError as error:
            raise NotReadyError(error.what, advice=error.advice) from error


_shared: dict[ClientOptions, Client] = {}
_shared_lock = threading.Lock()


def shared_client(options: ClientOptions) -> Client:
    """Returns this process's client for ``options``, so that its tasks share connections."""
    with _shared_lock:
        client = _shared.get(options)
        if client is None:
            client = _shared[options] = Client(options)
        return client


def _forget_after_fork() -> None:
    """Drops the clients in a forked child, because it has the sockets of its parent but not the threads."""
    global _shared_lock
    _shared_lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def impatient_client(options: ClientOptions) -> Client:
    """Returns a new client whose operations take at most :data:`FIRST_CONTACT` seconds."""
    return Client(
        replace(
            options,
            operation_timeout=min(FIRST_CONTACT, options.operation_timeout),
            connection_timeout=min(FIRST_CONTACT, options.connection_timeout),
            lookup_timeout=options.lookup_timeout and min(FIRST_CONTACT, options.lookup_timeout),
        )
    )


def check_reachable(options: ClientOptions) -> None:
    """Connects to a broker within :data:`FIRST_CONTACT` seconds; raises as :class:`Session`."""
    with impatient_client(options) as client:
        client.check()
