"""TopicSchemas: the schemas of topics from brokers, each version requested once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from pulsar_spark.client.net.deadline import Deadline, retry
from pulsar_spark.client.parallel import run_all
from pulsar_spark.errors import ProtocolError, PulsarError, from_server
from pulsar_spark.ids import TopicName
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_pb2 as pb
from pulsar_spark.wire.wire_values import from_wire_schema, from_wire_version

_MAX_BYTES = 32 << 20  # maximum bytes of the kept schemas
_OVERHEAD = 1000  # bytes counted for each schema in addition to its texts
# Maximum parallel requests. For each request a broker reads all versions of the topic, so more requests are
# not faster, and may exhaust the broker's memory.
_IN_FLIGHT = 2

_Key = tuple[str, str, int]  # topic, ``load`` (see ``TopicSchemas``), version
_Ask = Callable[[Callable[[int], bytes], Deadline], pb.BaseCommand]


class VersionedSchema(NamedTuple):
    """A schema, and its number at the broker within its topic, from 0."""

    version: int
    schema: Schema


class TopicSchemas:
    """Requests schemas from brokers, and keeps each version, because versions never change. Thread-safe.

    All partitions of a topic share its schema. Requests raise BrokerError if no broker answers within the
    operation timeout. If a topic is deleted and created again, its versions begin at 0 again: the old
    versions are dropped as soon as ``latest`` or ``remember`` receives a different schema for a kept version.
    ``load`` names one use, such as one read: versions kept for one ``load`` are not used for another.

    Args:
        ask: function that sends a request to any broker, without retries.
        ask_owner: function that sends a request to the broker that serves a topic, without retries.
        operation: function that makes the deadline of a request with its retries.
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
        """Requests the latest schema of a topic.

        Returns None if the topic does not exist, has never had a schema, or its schema was deleted.
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
        """Returns one version of a topic's schema; None if it does not exist."""
        return self._at((str(topic.base), load, version), self._ask)

    def at_all(self, topic: TopicName, versions: Iterable[int], *, load: str = "") -> dict[int, Schema]:
        """Returns the versions that exist, by number; ``versions``: numbers that messages name.

        A broker may not know yet a version that was registered at another broker. So a version above its
        latest version is requested from the broker that serves the messages, which knows it. Producers may
        name any number in their entries, so only two requests are sent for all versions above the topic's
        latest one. Several versions are requested in parallel, each with its own timeout.
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
        """Returns the existing versions, and the missing numbers that may be above the latest version."""
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
        """Keeps a version from a broker; drops the kept versions of a deleted topic with the same name."""
        name = str(topic.base)
        key = name, "", version
        with self._lock:
            if self._kept.get(key, schema) != schema:
                self._forget(name)
            self._keep(key, schema)

    # ---- requests

    def _latest(self, name: str, ask: _Ask) -> tuple[int, Schema | None]:
        """Returns the latest version, (number, schema); (n, None): it was deleted; (-1, None): no schema."""
        answer = self._get(name, None, ask)
        if answer is None:
            return -1, None
        version = from_wire_version(answer.schema_version)
        if version is None:
            raise ProtocolError("the broker's answer has a schema without a version", topic=name)
        return version, _schema_of(answer, name)

    def _at(self, key: _Key, ask: _Ask) -> Schema | None:
        schema = self._kept_at(key)
        if schema is not None:
            return schema
        name, _, version = key
        with self._lock:
            asking = self._asking.setdefault(key, threading.Lock())
        # One thread requests a version; other threads wait for its schema. If the version is missing, each
        # thread requests it again, because it may have been registered since.
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
        deadline = self._operation()

        def attempt() -> pb.CommandGetSchemaResponse:
            build = partial(commands.get_schema, topic=name, version=version)
            answer = ask(build, deadline).getSchemaResponse
            if answer.HasField("error_code") and answer.error_code != pb.TopicNotFound:
                raise from_server(answer.error_code, answer.error_message, topic=name)
            return answer

        answer = retry(attempt, deadline)
        return None if answer.HasField("error_code") else answer

    # ---- kept versions; the last two methods are called with the lock held

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
    if not answer.HasField("schema"):
        raise ProtocolError("the broker's answer has no schema", topic=topic)
    schema = from_wire_schema(answer.schema)
    return None if schema.type is SchemaType.NONE else schema


def _size_of(schema: Schema) -> int:
    texts = (*schema.properties.keys(), *schema.properties.values(), schema.name)
    return _OVERHEAD + len(schema.data) + sum(map(len, texts))
