"""The reading of what a user gave into frozen dataclasses; the options themselves are in ``option_table``.

``docs/options.md`` is printed by ``python -m pulsar_spark.spark``. This file knows no Spark object.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.client import (
    ChunkLimits,
    ClientOptions,
    Credentials,
    ProducerOptions,
    RoutingMode,
    TlsOptions,
    check_identity,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.spark.options.encryption import DecryptionOptions, EncryptionOptions
from pulsar_spark.spark.options.limits import Limits
from pulsar_spark.spark.options.option import CLIENT, PRODUCER, READER, Mode, Option, Scope
from pulsar_spark.spark.options.parsers import Delivery
from pulsar_spark.spark.options.positions import Positions, PositionWord, check_order
from pulsar_spark.spark.options.table import TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a reader needs.

    Attributes:
        client: how to reach the cluster.
        topics: topics as the user named them, in that order, without repetition; not yet their partitions.
            Empty with a pattern.
        pattern: the topics to read, where they are not named.
        start: where a query without a checkpoint begins.
        end: where a batch ends; latest in a stream.
        limits: of one micro-batch.
        min_partitions: the least number of tasks, where there are as many entries.
        max_messages_per_partition: the most messages of a task, by estimate.
        subscription: the user's name for the durable subscription, or None.
        subscription_prefix: of the durable subscription's name, where the user did not name it.
        retain_subscription: whether a stream's subscription stays when it stops.
        poll_timeout: seconds that a task waits for a message that must exist.
        fail_on_data_loss: whether it is an error that unprocessed messages are gone.
        wait_for_topics: whether topics may come later than the query.
        read_compacted: whether compacted topics are read in their compacted form.
        chunks: bounds of the reassembly of chunked messages.
        decryption: of messages that are encrypted.
        metadata_columns: names of the columns behind the value, in their order.
        admin_url: of the admin service, or None.
        allow_different_schemas: whether topics of different schemas may be read together.
    """

    client: ClientOptions
    topics: tuple[TopicName, ...]
    pattern: TopicPattern | None
    start: Positions
    end: Positions
    limits: Limits
    min_partitions: int | None
    max_messages_per_partition: int | None
    subscription: str | None
    subscription_prefix: str
    retain_subscription: bool
    poll_timeout: float
    fail_on_data_loss: bool
    wait_for_topics: bool
    read_compacted: bool
    chunks: ChunkLimits
    decryption: DecryptionOptions
    metadata_columns: tuple[str, ...]
    admin_url: str | None
    allow_different_schemas: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a writer needs.

    Attributes:
        client: how to reach the cluster.
        topic: for all rows, or None where each row names its own.
        producer: how messages are sent.
        router: dotted name of the function that it is, or None.
        delivery: what was asked for; None for the best that the broker has.
        encryption: of what is sent, or None.
        transaction_timeout: seconds that a micro-batch's transactions may last; None: it has none.
        interceptors: dotted names of their classes.
        upsert: whether each row must have a key.
        on_batch_written: dotted name of the function that is told of each batch, or None.
    """

    client: ClientOptions
    topic: TopicName | None
    producer: ProducerOptions
    router: str | None
    delivery: Delivery | None
    encryption: EncryptionOptions | None
    transaction_timeout: float | None
    interceptors: tuple[str, ...]
    upsert: bool
    on_batch_written: str | None


# What Spark 4.2 and 4.3 themselves put among the options: load(path)/save(path), and the stream writer's own.
_SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname"})


def parse_source(options: Mapping[str, str], mode: Mode | None) -> SourceOptions:
    """Read the options of ``spark.read`` and ``spark.readStream``.

    Args:
        options: as the user gave them.
        mode: None where Spark does not say which it will be, when it asks for the schema: what is for one
            mode only is then let through, and the start is that of a batch.

    Raises:
        OptionError: an unknown name (the nearest known one is in the text), a bad value, a missing option, or
            options that do not go together.
    """
    values = _parse(options, Scope.SOURCE)
    names = {name.lower() for name in options}
    given = [option for option in TABLE if option.name.lower() in names]
    for option in given:
        if mode is not None and option.only not in (None, mode):
            raise OptionError(
                f"option {option.name} is not for reading a {mode.value}", advice="Leave it out"
            )
    _check_together({option.name for option in given}, values, mode)
    topic: TopicName | None = values["topic"]
    return SourceOptions(
        client=_client_options(values),
        topics=values["topics"] or (() if topic is None else (topic,)),
        pattern=values["topicsPattern"],
        start=_start(values, mode),
        end=_end(values),
        limits=Limits(
            max_messages=values["maxMessagesPerTrigger"],
            max_bytes=values["maxBytesPerTrigger"],
            min_messages=values["minMessagesPerTrigger"],
            max_delay=values["maxTriggerDelay"],
        ),
        min_partitions=values["minPartitions"],
        max_messages_per_partition=values["maxMessagesPerPartition"],
        subscription=values["predefinedSubscription"],
        subscription_prefix=values["subscriptionPrefix"],
        retain_subscription=values["retainSubscription"],
        poll_timeout=values["pollTimeoutMs"],
        fail_on_data_loss=values["failOnDataLoss"],
        wait_for_topics=values["waitingForNonExistedTopic"],
        read_compacted=values["readCompacted"],
        chunks=ChunkLimits(
            max_pending=values["maxPendingChunkedMessages"],
            expire=values["expireTimeOfIncompleteChunkedMessage"],
            auto_ack_oldest=values["autoAckOldestChunkedMessageOnQueueFull"],
        ),
        decryption=DecryptionOptions(
            values[READER + "cryptoKeyReader"], values[READER + "cryptoFailureAction"]
        ),
        metadata_columns=values["metadataColumns"],
        admin_url=values["admin.url"],
        allow_different_schemas=values["allowDifferentTopicSchemas"],
    )


def _start(values: Mapping[str, Any], mode: Mode | None) -> Positions:
    usual = PositionWord.LATEST if mode is Mode.STREAM else PositionWord.EARLIEST
    start: Positions | None = values["startingOffsets"] or values["startingTime"]
    return start or Positions("startingOffsets", usual)


def _end(values: Mapping[str, Any]) -> Positions:
    end: Positions | None = values["endingOffsets"] or values["endingTime"]
    return end or Positions("endingOffsets", PositionWord.LATEST)


def _check_together(given: set[str], values: Mapping[str, Any], mode: Mode | None) -> None:
    """Refuse what is right by itself and wrong together."""
    if len(given & {"topic", "topics", "topicsPattern"}) != 1:
        raise OptionError(
            "exactly one of the options topic, topics and topicsPattern is needed",
            advice='Set .option("topic", ...)',
        )
    offsets = sorted(given & {"startingOffsets", "endingOffsets"})
    times = sorted(given & {"startingTime", "endingTime"})
    if offsets and times:
        raise OptionError(
            f"option {offsets[0]} does not go together with {times[0]}",
            advice="Say both ends by offsets, or both by times",
        )
    if {"predefinedSubscription", "subscriptionPrefix"} <= given:
        raise OptionError(
            "options predefinedSubscription and subscriptionPrefix both name the subscription",
            advice="Leave one out",
        )
    start, end = _start(values, mode), _end(values)
    asking = [each.option for each in (start, end) if each.everywhere is PositionWord.SUBSCRIPTION]
    if asking and values["predefinedSubscription"] is None:
        raise OptionError(
            f"option {asking[0]} is subscription, and no subscription is named",
            advice="Name it with predefinedSubscription",
        )
    if mode is Mode.BATCH and values["predefinedSubscription"] is not None and not asking:
        raise OptionError(
            "option predefinedSubscription has no use in this batch, which neither begins nor ends there",
            advice="Set startingOffsets to subscription, or leave it out",
        )
    check_order(start, end)
    least, most = values["minMessagesPerTrigger"], values["maxMessagesPerTrigger"]
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"minMessagesPerTrigger, {least}, is more than maxMessagesPerTrigger, {most}",
            advice="Make it less or equal",
        )


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of ``df.write`` and ``df.writeStream``; raises as :func:`parse_source` does."""
    values = _parse(options, Scope.SINK)
    _check_chunking(values)
    producer = ProducerOptions(
        name=values[PRODUCER + "producerName"],
        access_mode=values[PRODUCER + "accessMode"],
        initial_sequence_id=values[PRODUCER + "initialSequenceId"],
        properties=values[PRODUCER + "properties"] or (),
        batching=values[PRODUCER + "batchingEnabled"],
        batching_max_messages=values[PRODUCER + "batchingMaxMessages"],
        batching_max_bytes=values[PRODUCER + "batchingMaxBytes"],
        batching_max_publish_delay=values[PRODUCER + "batchingMaxPublishDelayMicros"],
        compression=values[PRODUCER + "compressionType"],
        chunking=values[PRODUCER + "chunkingEnabled"],
        chunk_max_message_size=values[PRODUCER + "chunkMaxMessageSize"],
        max_pending_messages=values[PRODUCER + "maxPendingMessages"],
        max_pending_messages_across_partitions=values[PRODUCER + "maxPendingMessagesAcrossPartitions"],
        memory_limit=values[PRODUCER + "memoryLimit"],
        block_if_queue_full=values[PRODUCER + "blockIfQueueFull"],
        send_timeout=values[PRODUCER + "sendTimeoutMs"],
        routing_mode=values[PRODUCER + "messageRoutingMode"],
        hashing_scheme=values[PRODUCER + "hashingScheme"],
        switch_frequency=values[PRODUCER + "roundRobinRouterBatchingPartitionSwitchFrequency"],
    )
    router = values[PRODUCER + "messageRouter"]
    if (router is not None) != (producer.routing_mode is RoutingMode.CUSTOM):
        raise OptionError(
            "options messageRouter and messageRoutingMode=CustomPartition go together",
            advice="Set both or none",
        )
    is_transactional = values["delivery"] is Delivery.TRANSACTIONAL
    if not is_transactional and "transactiontimeout" in {name.lower() for name in options}:
        raise OptionError(
            "option transactionTimeout has no use without transactions",
            advice="Set delivery=transactional, or leave it out",
        )
    return SinkOptions(
        client=_client_options(values),
        topic=values["topic"],
        producer=producer,
        router=router,
        delivery=values["delivery"],
        encryption=_encryption(values),
        transaction_timeout=values["transactionTimeout"] if is_transactional else None,
        interceptors=values[PRODUCER + "interceptors"] or (),
        upsert=values["upsert"],
        on_batch_written=values["onBatchWritten"],
    )


def _check_chunking(values: Mapping[str, Any]) -> None:
    chunking = values[PRODUCER + "chunkingEnabled"]
    if chunking and values[PRODUCER + "batchingEnabled"]:
        raise OptionError(
            f"options {PRODUCER}chunkingEnabled and {PRODUCER}batchingEnabled are both true",
            advice=f"Set {PRODUCER}batchingEnabled to false: chunks are never part of a batch",
        )
    if values[PRODUCER + "chunkMaxMessageSize"] is not None and not chunking:
        raise OptionError(
            f"option {PRODUCER}chunkMaxMessageSize has no use without {PRODUCER}chunkingEnabled",
            advice=f"Set {PRODUCER}chunkingEnabled to true, or leave it out",
        )


def _encryption(values: Mapping[str, Any]) -> EncryptionOptions | None:
    keys, reader = values[PRODUCER + "encryptionKeys"], values[PRODUCER + "cryptoKeyReader"]
    if (keys is None) != (reader is None):
        raise OptionError(
            "options encryptionKeys and cryptoKeyReader of the producer go together",
            advice="Set both or none: names of public keys, and who knows them",
        )
    return None if keys is None else EncryptionOptions(reader, keys, values[PRODUCER + "cryptoFailureAction"])


def _client_options(values: Mapping[str, Any]) -> ClientOptions:
    plugin, params = values[CLIENT + "authPluginClassName"], values[CLIENT + "authParams"]
    if plugin is None and params is not None:
        raise OptionError(
            "option authParams needs to know for what login it is",
            advice=f"Set {CLIENT}authPluginClassName, such as token",
        )
    options = ClientOptions(
        service_url=values["service.url"],
        operation_timeout=values[CLIENT + "operationTimeoutMs"],
        connection_timeout=values[CLIENT + "connectionTimeoutMs"],
        keep_alive_interval=values[CLIENT + "keepAliveIntervalSeconds"],
        tls=TlsOptions(
            trust_certs=values[CLIENT + "tlsTrustCertsFilePath"],
            certificate=values[CLIENT + "tlsCertificateFilePath"],
            key=values[CLIENT + "tlsKeyFilePath"],
            allow_insecure=values[CLIENT + "tlsAllowInsecureConnection"],
            verify_hostname=values[CLIENT + "tlsHostnameVerificationEnable"],
        ),
        credentials=None if plugin is None else Credentials(plugin, params or ""),
    )
    check_identity(options)
    return options


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
        given = "wrong" if option.secret else repr(text[:500])
        raise OptionError(f"option {option.name} is {given}", advice=f"Give it {error}") from None


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
        side = sides[option.scope] if option.only is None else f"{option.only.value} source"
        default = "" if option.default is None else f"`{option.default}`"
        lines.append(f"| `{option.name}` | {side} | {option.kind} | {default} | {option.doc} |")
    return "\n".join(lines) + "\n"
