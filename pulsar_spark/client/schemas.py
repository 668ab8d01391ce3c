"""TopicSchemas: the schemas of topics from brokers, each version requested once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from pulsar_spark.client.net.deadline import Deadline
from pulsar_spark.client.net.retry import retry
from pulsar_spark.client.parallel import run_all
from pulsar_spark.errors import ProtocolError, PulsarError, from_server
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import from_wire_schema, from_wire_version

# Maximum bytes of the schemas that are kept, and bytes counted for each besides its texts.
_MAX_BYTES = 32 << 20
_OVERHEAD = 1000
_IN_FLIGHT = 16  # requests at the same time

_Key = tuple[str, str, int]  # topic, load, version
_Ask = Callable[[Callable[[int], bytes], Deadline], pb.BaseCommand]


class VersionedSchema(NamedTuple):
    """A schema, and the number that the broker has given it within its topic, from 0 on."""

    version: int
    schema: Schema


class TopicSchemas:
    """Requests schemas from brokers, and keeps those of versions, which never change. Thread-safe.

    All partitions of a topic share its schema. Requests are retried as lookups are. A topic that is deleted
    and created again counts from 0 again: the old versions are dropped as soon as ``latest`` or ``remember``
    gets another schema for a version. Versions kept for one load are given to no other.

    Args:
        ask: sends a request to any broker, once.
        ask_owner: sends one to the broker that serves a topic, once.
        operation: makes the deadline of a request, with its retries.
        max_bytes: of the schemas that are kept.
    """

    def __init__(
        self,
        ask: _Ask,
        ask_owner: Callable[[TopicName, Callable[[int], bytes], Deadline], pb.BaseCommand],
        operation: Callable[[], Deadline],
        *,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self._ask = ask
        self._ask_owner = ask_owner
        self._operation = operation
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, Schema] = OrderedDict()
        self._size = 0
        # Each lock is held while its version is requested, and dropped when unused.
        self._asking: WeakValueDictionary[_Key, threading.Lock] = WeakValueDictionary()

    def latest(self, topic: TopicName) -> VersionedSchema | None:
        """The latest schema of a topic, requested each time; None if there is none.

        There is none if the topic does not exist, has never had one, or its schema was deleted.

        Raises:
            BrokerError: no broker answered within the operation timeout.
        """
        name = str(topic.base)
        version, schema = self._latest(name, self._ask)
        with self._lock:
            if any(key[0] == name and key[2] > version for key in self._kept):
                self._forget(name)
        if schema is None:
            return None
        self.remember(topic, version, schema)
        return VersionedSchema(version, schema)

    def at(self, topic: TopicName, version: int, *, load: str = "") -> Schema | None:
        """One version of a topic's schema; None where any broker knows none. Raises as :meth:`latest`."""
        return self._at((str(topic.base), load, version), self._ask)

    def at_all(self, topic: TopicName, versions: Iterable[int], *, load: str = "") -> dict[int, Schema]:
        """Versions that messages name, by their numbers, without those that do not exist.

        A broker may not know yet what was registered at another one. So what lies above its latest is
        requested from the one that serves the messages, which knows it. Producers may name any number in
        their entries: however many do not exist, there are only two requests for all above the topic's
        latest. Some versions are requested in parallel, each with its own timeout. Raises as :meth:`latest`
        does.

        Args:
            topic: the partition of the messages.
            versions: their numbers.
            load: name of the use that versions are kept for, such as a read; other uses request their own.
        """
        wanted = sorted({version for version in versions if version >= 0})
        found, above = self._find(topic, wanted, load, self._ask)
        if above:
            more, _ = self._find(topic, above, load, partial(self._ask_owner, topic))
            found |= more
        return found

    def _find(
        self, topic: TopicName, wanted: list[int], load: str, ask: _Ask
    ) -> tuple[dict[int, Schema], list[int]]:
        """Versions that exist, and those without one that are not known to be below the latest."""
        name = str(topic.base)
        kept = {version: self._kept_at((name, load, version)) for version in wanted}
        found = {version: schema for version, schema in kept.items() if schema is not None}
        missing = [version for version in wanted if version not in found]
        highest = self._latest(name, ask)[0] if len(missing) > 1 else None
        below = [version for version in missing if highest is None or version <= highest]
        for first in range(0, len(below), _IN_FLIGHT):
            some = below[first : first + _IN_FLIGHT]
            calls = [partial(self._at, (name, load, version), ask) for version in some]
            for version, schema in zip(some, run_all(calls), strict=True):
                if isinstance(schema, PulsarError):
                    raise schema
                if schema is not None:
                    found[version] = schema
        above = missing if highest is None else missing[len(below) :]
        return found, [version for version in above if version not in found]

    def remember(self, topic: TopicName, version: int, schema: Schema) -> None:
        """Keep a version that the caller got from a broker; contradicting ones are of an older topic."""
        key = str(topic.base), "", version
        with self._lock:
            if self._kept.get(key, schema) != schema:
                self._forget(key[0])
            self._keep(key, schema)

    # ---- requests

    def _latest(self, name: str, ask: _Ask) -> tuple[int, Schema | None]:
        """The latest number of a topic, also of a schema that was deleted, and its schema; -1 for none."""
        answer = self._get(name, None, ask)
        if answer is None:
            return -1, None
        version = from_wire_version(answer.schema_version)
        if version is None:
            raise ProtocolError("the broker's answer has a schema without a version", topic=name)
        return version, _schema_of(answer, name)

    def _at(self, key: _Key, ask: _Ask) -> Schema | None:
        """One version: a kept one, or requested now."""
        schema = self._kept_at(key)
        if schema is not None:
            return schema
        name, _, version = key
        with self._lock:
            asking = self._asking.setdefault(key, threading.Lock())
        # Threads that wait here find what another one has requested. Each requests what was not found: it may
        # have been registered since.
        with asking:
            schema = self._kept_at(key)
            if schema is None:
                answer = self._get(name, version, ask)
                schema = None if answer is None else _schema_of(answer, name)
                if schema is not None:
                    with self._lock:
                        self._keep(key, schema)
            return schema

    def _get(self, name: str, version: int | None, ask: _Ask) -> pb.CommandGetSchemaResponse | None:
        """The broker's answer; None if there is no such schema."""
        deadline = self._operation()

        def attempt() -> pb.CommandGetSchemaResponse:
            answer = ask(
                lambda request_id: commands.get_schema(request_id, name, version), deadline
            ).getSchemaResponse
            if answer.HasField("error_code") and answer.error_code != pb.TopicNotFound:
                raise from_server(answer.error_code, answer.error_message, topic=name)
            return answer

        answer = retry(attempt, deadline)
        return None if answer.HasField("error_code") else answer

    # ---- what is kept; the last two are called with the lock held

    def _kept_at(self, key: _Key) -> Schema | None:
        with self._lock:
            schema = self._kept.get(key)
            if schema is not None:
                self._kept.move_to_end(key)
            return schema

    def _keep(self, key: _Key, schema: Schema) -> None:
        old = self._kept.pop(key, None)
        self._size += _size_of(schema) - (0 if old is None else _size_of(old))
        self._kept[key] = schema
        while self._size > self._max_bytes and len(self._kept) > 1:
            _, least_used = self._kept.popitem(last=False)
            self._size -= _size_of(least_used)

    def _forget(self, name: str) -> None:
        for key in [key for key in self._kept if key[0] == name]:
            self._size -= _size_of(self._kept.pop(key))


def _schema_of(answer: pb.CommandGetSchemaResponse, topic: str) -> Schema | None:
    """The schema of an answer; None for the mark of a deleted schema."""
    if not answer.HasField("schema"):
        raise ProtocolError("the broker's answer has no schema", topic=topic)
    schema = from_wire_schema(answer.schema)
    return None if schema.type is SchemaType.NONE else schema


def _size_of(schema: Schema) -> int:
    texts = (*schema.properties.keys(), *schema.properties.values(), schema.name)
    return _OVERHEAD + len(schema.data) + sum(map(len, texts))
