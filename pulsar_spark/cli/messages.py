"""``pulsar_spark send`` and ``peek``: write a message, and show the first messages of a topic."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pyarrow as pa

from pulsar_spark.cli.admin import add_login_arguments, login_of, topic_of
from pulsar_spark.client import (
    Client,
    ClientOptions,
    DecodedMessages,
    MessageColumns,
    PlanningClient,
    ProducerOptions,
    Range,
    RangeEntries,
    TopicWriter,
    decode_entries,
    read_ranges,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName

_TIMEOUT = 30.0  # seconds to wait for each next entry
_BYTES = 1 << 20  # maximum bytes of entries decoded at once

_SEND = "Send one message to a topic. A topic that does not exist is created as the namespace allows."
_PEEK = """
Print the first messages of a topic, partition after partition, as a JSON object a line. Bytes that are not
UTF-8 are shown as \\xNN; a null value is null. No subscription changes.
"""


def add_commands(commands: Any) -> None:
    """Adds ``send`` and ``peek`` to the subparsers of a command line."""
    send = commands.add_parser("send", help="send a message to a topic", description=_SEND)
    peek = commands.add_parser("peek", help="show the first messages of a topic", description=_PEEK)
    for parser, run in ((send, _send), (peek, _peek)):
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument(
            "--service-url",
            default="pulsar://localhost:6650",
            metavar="URL",
            help="broker (default: %(default)s)",
        )
        add_login_arguments(parser)
        parser.set_defaults(run=run)
    send.add_argument("text", metavar="TEXT", help="value of the message")
    send.add_argument("--key", help="key of the message")
    peek.add_argument("-n", type=int, default=10, metavar="NUMBER", help="of messages (default: %(default)s)")


def _client(given: argparse.Namespace) -> Client:
    credentials, tls = login_of(given, given.service_url, "pulsar+ssl://")
    return Client(ClientOptions(service_url=given.service_url, credentials=credentials, tls=tls))


def _send(given: argparse.Namespace) -> None:
    topic = topic_of(given.topic)
    columns = MessageColumns(
        value=pa.array([given.text.encode()], pa.binary()),
        key=pa.array([None if given.key is None else given.key.encode()], pa.binary()),
    )
    with _client(given) as client, TopicWriter(client, topic, ProducerOptions()) as writer:
        writer.send(columns)
        writer.flush()
    sys.stdout.write(f"sent to {topic}\n")


def _peek(given: argparse.Namespace) -> None:
    if given.n < 1:
        raise OptionError(f"{given.n} is not a number of messages", advice="Give -n 1 or more")
    with _client(given) as client, closing(_messages(client, topic_of(given.topic), given.n)) as found:
        for line in islice(found, given.n):
            sys.stdout.write(f"{json.dumps(line, ensure_ascii=False)}\n")


def _messages(client: Client, topic: TopicName, number: int) -> Generator[dict[str, object], None, None]:
    for partition in client.partitions(topic):
        bounds = PlanningClient(client).bounds(partition)
        if not bounds.begin < bounds.last:
            continue
        ranges = [Range(partition, bounds.begin, bounds.last)]
        with closing(read_ranges(client, ranges, poll_timeout=_TIMEOUT)) as streams:
            for entries in streams:
                stored = [RangeEntries(partition, entries)]
                for messages in decode_entries(stored, max_rows=number, max_bytes=_BYTES):
                    yield from _lines(partition, messages)


def _lines(partition: TopicName, messages: DecodedMessages) -> Iterator[dict[str, object]]:
    indexes = messages.batch_index
    columns = (
        messages.ledger.to_pylist(),
        messages.entry.to_pylist(),
        [None] * len(messages) if indexes is None else indexes.to_pylist(),
        messages.key.to_pylist(),
        messages.value.to_pylist(),
    )
    for ledger, entry, index, key, value in zip(*columns, strict=True):
        place = f"{ledger}:{entry}" if index is None else f"{ledger}:{entry}:{index}"
        yield {"topic": str(partition), "offset": place, "key": _text(key), "value": _text(value)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
