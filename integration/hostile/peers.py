"""Peers that never come to an end: how often they are asked, and what they hold up, is bounded.

Each case is one peer on a socket of this machine: a broker that redirects, challenges or closes again and
again, an admin service whose answer is mostly structure, and clients of the monitoring page that send
nothing.
"""

from __future__ import annotations

import http.client
import itertools
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from integration.hostile.frames import UndocumentedError
from pulsar_spark.client import (
    Client,
    ClientOptions,
    Consumer,
    Credentials,
    Deadline,
    HttpAnswer,
    PageServer,
    SubscriptionOptions,
)
from pulsar_spark.client.net.http import MAX_ANSWER, parse_json
from pulsar_spark.errors import PulsarError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.reading.permits import Permits
from pulsar_spark.wire.frames import Frame
from tests.fake_broker import FakeBroker, redirects
from tests.fake_clients import Type
from tests.fake_connection import FakeConnection
from tests.fake_topics import section_of

_TOPIC = TopicName.parse("persistent://a/b/t")
_READER = SubscriptionOptions(name="r", durable=False)
_JSON_MEMORY = 200 << 20  # bytes
_CLOSES_WITHIN = 2.0  # seconds


def run(seconds: float) -> Iterator[int]:
    """Let each peer have a client for so long; gives how many have had one.

    Raises:
        UndocumentedError: a bound does not hold; the text has the figures.
    """
    for number, case in enumerate((_redirects, _challenges, _message_and_end, _structure, _slow_clients), 1):
        case(seconds)
        yield number


def _check(what: str, found: float, least: float, most: float) -> None:
    if not least <= found <= most:
        raise UndocumentedError(f"{what}: {found:g}, which is not from {least:g} to {most:g}")


# ---- brokers


@contextmanager
def _client_of(broker: FakeBroker, **options: object) -> Iterator[Client]:
    with broker, Client(ClientOptions(service_url=broker.url, **options)) as client:  # type: ignore[arg-type]
        yield client


def _redirects(seconds: float) -> None:
    broker = FakeBroker()
    broker.script(Type.LOOKUP, itertools.repeat(redirects(broker.url)))
    with _client_of(broker, operation_timeout=seconds) as client:
        try:
            Consumer(client, _TOPIC, _READER)
        except PulsarError:
            _check("lookups that are redirected", len(broker.seen(Type.LOOKUP)), 3, 12 + seconds)


def _challenges(seconds: float) -> None:
    broker = FakeBroker(token=b"t")
    with _client_of(broker, credentials=Credentials("token", "t")) as client:
        client.check()
        until = Deadline(seconds)
        while not until.passed:
            for _ in range(100):
                broker.send(Type.AUTH_CHALLENGE)
            time.sleep(0.01)
        _check("logins after challenges", len(broker.seen(Type.AUTH_RESPONSE)), 1, 2 + seconds)


def _message_and_end(seconds: float) -> None:
    broker = FakeBroker()
    broker.create(_TOPIC)

    def give_one(connection: FakeConnection, frame: Frame) -> None:
        connection.handle(frame)
        consumer = connection.consumers.get(frame.command.flow.consumer_id)
        if consumer is not None:  # or an earlier request for messages has closed it
            broker.publish(_TOPIC, section_of(b"value"))
            connection.close_consumer(consumer)

    broker.script(Type.FLOW, itertools.repeat(give_one))
    with _client_of(broker) as client, Consumer(client, _TOPIC, _READER, Permits(1)) as consumer:
        until, patience = Deadline(seconds), Deadline(30)
        # A busy machine may do less than three in the time that a short run has.
        while not until.passed or (len(broker.seen(Type.SUBSCRIBE)) < 3 and not patience.passed):
            try:
                consumer.receive(Deadline(seconds), 1)
            except PulsarError:
                break
        subscribed = len(broker.seen(Type.SUBSCRIBE))
    _check("subscriptions that end after a message", subscribed, 3, 22 + 4 * seconds)


# ---- HTTP


def _structure(_: float) -> None:
    """Answers of an admin service that are much larger as objects than as text."""
    for item in (b"[],", b'{"":0},', b"[[1.5,{}],257],", b'"ab",'):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            parse_json(b"[" + item * (MAX_ANSWER // len(item)) + b"0]")
        except ValueError:
            pass
        else:
            raise UndocumentedError(f"an answer of {item!r} is parsed")
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        _check(f"bytes that an answer of {item!r} takes", taken, 0, _JSON_MEMORY)


def _slow_clients(seconds: float) -> None:
    server = PageServer(lambda path: HttpAnswer("text/plain", path.encode()), "127.0.0.1", 0)
    address = server.url.split("/")[2]
    with ExitStack() as stack:
        host, _, port = address.partition(":")
        clients = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10)) for _ in range(300)
        ]
        until = Deadline(seconds)
        while not until.passed:
            for dripping in clients[-10:]:
                try:
                    dripping.sendall(b"G")
                except OSError:
                    continue
            time.sleep(0.05)
            began = time.monotonic()
            connection = http.client.HTTPConnection(address, timeout=10)
            connection.request("GET", "/metrics")
            _check("status of the page among slow clients", connection.getresponse().status, 200, 200)
            connection.close()
            _check("seconds for the page among slow clients", time.monotonic() - began, 0, 2.0)
        began = time.monotonic()
        server.close()
        _check("seconds to close the page's server", time.monotonic() - began, 0, _CLOSES_WITHIN)
