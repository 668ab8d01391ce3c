"""The table of all options, and the reading of what a user gave into frozen dataclasses.

``TABLE`` is the only source of names, defaults and meanings; ``docs/options.md`` is printed from it by
``python -m pulsar_spark.spark``. Nothing is in it that is not built. This file knows no Spark object.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any

from pulsar_spark.client import ClientOptions, ProducerOptions
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.lookup import parse_service_url
from pulsar_spark.wire import pulsar_pb2 as pb


class Start(Enum):
    """Where a query begins that has no checkpoint yet."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Scope(Flag):
    """Which side takes an option."""

    SOURCE = 1
    SINK = 2
    BOTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a reader needs.

    Attributes:
        client: how to reach the cluster.
        topics: topics as the user named them, in that order, without repetition; not yet their partitions.
        start: None where the user left it to the default of the mode.
        subscription_prefix: of the durable subscription's name.
        poll_timeout: seconds that a task waits for a message that must exist.
    """

    client: ClientOptions
    topics: tuple[TopicName, ...]
    start: Start | None
    subscription_prefix: str
    poll_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a writer needs.

    Attributes:
        client: how to reach the cluster.
        topic: for all rows, or None where each row names its own.
        producer: how messages are sent.
    """

    client: ClientOptions
    topic: TopicName | None
    producer: ProducerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One line of the table.

    Attributes:
        name: as users write it; looked up without regard to case.
        kind: what is accepted, for the docs page.
        parse: makes the value, or raises ValueError with what would be right.
        default: as a user would write it; None where there is none.
        scope: which side takes it.
        doc: the meaning, one sentence or two.
    """

    name: str
    kind: str
    parse: Callable[[str], Any]
    default: str | None
    scope: Scope
    doc: str


_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_UNITS = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_COMPRESSIONS = {"NONE": pb.NONE, "LZ4": pb.LZ4, "ZLIB": pb.ZLIB, "ZSTD": pb.ZSTD, "SNAPPY": pb.SNAPPY}
_NUMBER_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


# Java's "for ever", Long.MAX_VALUE, is more than the system's calls can wait for: 2**31 ms, 24.8 days.
_LONGEST = 24 * 86400.0
_LARGEST = 1 << 40


def _seconds(plain_unit: str, least: float) -> Callable[[str], float]:
    """Make a parser of time spans to seconds; a number without a unit is in ``plain_unit``."""

    def parse(text: str) -> float:
        match = _NUMBER_UNIT.fullmatch(text.lower())
        unit = _TIME_UNITS.get(match[2] or plain_unit) if match else None
        if match is None or unit is None:
            raise ValueError(f"a time such as 500ms, 5s, 2m, or a number of {plain_unit}")
        seconds = float(match[1]) * unit
        if seconds < least:
            raise ValueError(f"a time of at least {least:g} s")
        if seconds > _LONGEST:
            raise ValueError(f"a time of at most {_LONGEST / 86400:g}d")
        return seconds

    return parse


def _size(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        match = _NUMBER_UNIT.fullmatch(text.lower())
        unit = _SIZE_UNITS.get(match[2] or "b") if match else None
        if match is None or unit is None:
            raise ValueError("a size such as 512k, 64m, or a number of bytes")
        size = float(match[1]) * unit
        if not least <= size <= _LARGEST:
            raise ValueError(f"a size of {least} to {_LARGEST >> 30}g bytes")
        return int(size)

    return parse


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < least:
            raise ValueError(f"a whole number from {least} to 999999999")
        return int(text)

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text that is not empty")
    return text


def _start(text: str) -> Start:
    try:
        return Start(text.lower())
    except ValueError:
        raise ValueError("earliest or latest; this version knows no other") from None


def _compression(text: str) -> pb.CompressionType:
    if text.upper() not in _COMPRESSIONS:
        raise ValueError(f"one of {', '.join(_COMPRESSIONS)}")
    return _COMPRESSIONS[text.upper()]


def _service_url(text: str) -> str:
    parse_service_url(text)
    return text


def _topics(text: str) -> tuple[TopicName, ...]:
    return tuple(dict.fromkeys(TopicName.parse(part) for part in text.split(",")))


_CLIENT = "pulsar.client."
_PRODUCER = "pulsar.producer."


def _client(name: str, kind: str, parse: Callable[[str], Any], default: str, doc: str) -> Option:
    return Option(name=_CLIENT + name, kind=kind, parse=parse, default=default, scope=Scope.BOTH, doc=doc)


def _producer(name: str, kind: str, parse: Callable[[str], Any], default: str | None, doc: str) -> Option:
    return Option(name=_PRODUCER + name, kind=kind, parse=parse, default=default, scope=Scope.SINK, doc=doc)


TABLE: tuple[Option, ...] = (
    Option(
        name="service.url",
        kind="URL",
        parse=_service_url,
        default=None,
        scope=Scope.BOTH,
        doc="Required. `pulsar://h1:6650,h2:6650`; with several hosts the first try is random, "
        "then they are tried in order.",
    ),
    _client(
        "operationTimeoutMs", "time (ms)", _seconds("ms", 0.001), "30s", "For a request, with its retries."
    ),
    _client(
        "connectionTimeoutMs",
        "time (ms)",
        _seconds("ms", 0.001),
        "10s",
        "For one TCP connection and handshake.",
    ),
    _client(
        "keepAliveIntervalSeconds",
        "time (s)",
        _seconds("s", 1.0),
        "30s",
        "Silence after which a PING is sent.",
    ),
    Option(
        name="topic",
        kind="topic",
        parse=TopicName.parse,
        default=None,
        scope=Scope.BOTH,
        doc="Source: the one topic to read; a partitioned topic means all its partitions, `t-partition-2` "
        "means that one. Sink: where all rows go; without it the column `__topic` says it for each row.",
    ),
    Option(
        name="topics",
        kind="topics",
        parse=_topics,
        default=None,
        scope=Scope.SOURCE,
        doc="Several topics to read, separated by commas; in place of `topic`.",
    ),
    Option(
        name="startingOffsets",
        kind="`earliest`, `latest`",
        parse=_start,
        default=None,
        scope=Scope.SOURCE,
        doc="Where a query without a checkpoint begins. Default: `latest` in a stream, `earliest` in a "
        "batch.",
    ),
    Option(
        name="subscriptionPrefix",
        kind="text",
        parse=_text,
        default="spark-pulsar",
        scope=Scope.SOURCE,
        doc="Streams: the durable subscription is named `<prefix>-<uuid>`, made once per query and kept "
        "in its checkpoint.",
    ),
    Option(
        name="pollTimeoutMs",
        kind="time (ms)",
        parse=_seconds("ms", 0.001),
        default="2m",
        scope=Scope.SOURCE,
        doc="How long a task waits for a message that must exist before it fails.",
    ),
    _producer(
        "producerName",
        "text",
        _text,
        None,
        "Names of producers are `<this>-<number of the Spark task>`; without it the broker chooses them.",
    ),
    _producer("batchingEnabled", "boolean", _boolean, "true", "Several messages in one broker entry."),
    _producer(
        "batchingMaxMessages", "number", _count(0), "1000", "Messages that close a batch; 0: no such limit."
    ),
    _producer(
        "batchingMaxBytes",
        "size",
        _size(0),
        "128k",
        "Bytes that close a batch; 0: the broker's largest message.",
    ),
    _producer(
        "batchingMaxPublishDelayMicros", "time (us)", _seconds("us", 0.0), "1ms", "Time that closes a batch."
    ),
    _producer(
        "maxPendingMessages",
        "number",
        _count(1),
        "10000",
        "Messages sent and not yet acknowledged, for each partition; 0, in Java no limit, is refused.",
    ),
    _producer(
        "maxPendingMessagesAcrossPartitions",
        "number",
        _count(1),
        "50000",
        "The same for all partitions of a topic together: each has min(first, this / partitions).",
    ),
    _producer(
        "memoryLimit",
        "size",
        _size(1),
        "64m",
        "Bytes sent to a topic and not yet acknowledged; 0, in Java no limit, is refused.",
    ),
    _producer(
        "blockIfQueueFull",
        "boolean",
        _boolean,
        "true",
        "When too many are pending: wait, or fail with `[PULSAR_QUEUE_FULL]`.",
    ),
    _producer(
        "sendTimeoutMs",
        "time (ms)",
        _seconds("ms", 0.001),
        "30s",
        "Not acknowledged in this time: the task fails; nothing is dropped in silence. "
        "0, in Java no limit, is refused.",
    ),
    _producer(
        "compressionType",
        ", ".join(f"`{name}`" for name in _COMPRESSIONS),
        _compression,
        "NONE",
        "Compression of batches and of single messages.",
    ),
)  # fmt: skip - a call to a line keeps the table a table

# What Spark 4.2 and 4.3 themselves put among the options: load(path)/save(path), and the stream writer's own.
_SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname"})


def parse_source(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of ``spark.read`` and ``spark.readStream``.

    Raises:
        OptionError: an unknown name (the nearest known one is in the text), a bad value, a missing option.
    """
    values = _parse(options, Scope.SOURCE)
    topic, topics = values["topic"], values["topics"]
    if (topic is None) == (topics is None):
        raise OptionError(
            "exactly one of the options topic and topics is needed", advice='Set .option("topic", ...)'
        )
    return SourceOptions(
        client=_client_options(values),
        topics=topics or (topic,),
        start=values["startingOffsets"],
        subscription_prefix=values["subscriptionPrefix"],
        poll_timeout=values["pollTimeoutMs"],
    )


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of ``df.write`` and ``df.writeStream``; raises as :func:`parse_source` does."""
    values = _parse(options, Scope.SINK)
    producer = ProducerOptions(
        name=values[_PRODUCER + "producerName"],
        batching=values[_PRODUCER + "batchingEnabled"],
        batching_max_messages=values[_PRODUCER + "batchingMaxMessages"],
        batching_max_bytes=values[_PRODUCER + "batchingMaxBytes"],
        batching_max_publish_delay=values[_PRODUCER + "batchingMaxPublishDelayMicros"],
        compression=values[_PRODUCER + "compressionType"],
        max_pending_messages=values[_PRODUCER + "maxPendingMessages"],
        max_pending_messages_across_partitions=values[_PRODUCER + "maxPendingMessagesAcrossPartitions"],
        memory_limit=values[_PRODUCER + "memoryLimit"],
        block_if_queue_full=values[_PRODUCER + "blockIfQueueFull"],
        send_timeout=values[_PRODUCER + "sendTimeoutMs"],
    )
    return SinkOptions(client=_client_options(values), topic=values["topic"], producer=producer)


def _client_options(values: Mapping[str, Any]) -> ClientOptions:
    return ClientOptions(
        service_url=values["service.url"],
        operation_timeout=values[_CLIENT + "operationTimeoutMs"],
        connection_timeout=values[_CLIENT + "connectionTimeoutMs"],
        keep_alive_interval=values[_CLIENT + "keepAliveIntervalSeconds"],
    )


def _parse(options: Mapping[str, str], scope: Scope) -> dict[str, Any]:
    known = {option.name.lower(): option for option in TABLE if scope in option.scope}
    given = {name.lower(): text.strip() for name, text in options.items()}
    for name in given.keys() - known.keys() - _SPARKS_OWN:
        raise _unknown(name, scope)
    if "service.url" not in given:
        raise OptionError(
            "the option service.url is missing", advice='Set .option("service.url", "pulsar://host:6650")'
        )
    values = {}
    for name, option in known.items():
        text = given.get(name, option.default)
        values[option.name] = None if text is None else _value(option, text)
    return values


def _value(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except ValueError as error:
        raise OptionError(f"option {option.name} is {text!r}", advice=f"Give it {error}") from None


def _unknown(name: str, scope: Scope) -> OptionError:
    side = "source" if scope is Scope.SOURCE else "sink"
    here = {option.name.lower(): option.name for option in TABLE if scope in option.scope}
    elsewhere = {option.name.lower(): option.name for option in TABLE if scope not in option.scope}
    if name in elsewhere:
        other = "sink" if scope is Scope.SOURCE else "source"
        return OptionError(
            f"option {elsewhere[name]} is not one of the {side}", advice=f"It belongs to the {other}"
        )
    # The last part of a name is what is mistyped or written without its prefix.
    near = difflib.get_close_matches(name, here, n=1, cutoff=0.0)
    for known in here:
        if known.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1]:
            near = [known]
    return OptionError(f"the {side} has no option {name!r}", advice=f"Did you mean {here[near[0]]}?")


def docs_page() -> str:
    """The text of ``docs/options.md``."""
    sides = {Scope.BOTH: "source, sink", Scope.SOURCE: "source", Scope.SINK: "sink"}
    lines = [
        "# Options",
        "",
        "Generated by `python -m pulsar_spark.spark > docs/options.md`; a test says when it drifts.",
        "",
        "Names are case-insensitive; an unknown one is an error that names the nearest known one.",
        "Times take units (`100ms`, `5s`, `2m`), sizes too (`512k`, `64m`); a plain number is in the unit "
        "shown. No time is longer than 24 days, no size larger than 1024g.",
        "",
        "| option | for | takes | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for option in TABLE:
        default = "" if option.default is None else f"`{option.default}`"
        lines.append(
            f"| `{option.name}` | {sides[option.scope]} | {option.kind} | {default} | {option.doc} |"
        )
    return "\n".join(lines) + "\n"
