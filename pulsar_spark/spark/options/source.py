"""The options of the source: their table, and the fields of SourceOptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from pulsar_spark.client import ChunkLimits, ClientOptions, ConsumerCryptoFailureAction
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.connection import (
    ADMIN_URL,
    LOG_LEVEL,
    TOPIC,
    DecryptionOptions,
    client_options,
)
from pulsar_spark.spark.options.option import Mode, Parser, Table, Values
from pulsar_spark.spark.options.positions import (
    Positions,
    PositionWord,
    check_order,
    parse_offsets,
    parse_times,
)
from pulsar_spark.spark.options.values import VALUE_FORMAT, VALUES, ValueOptions, value_options
from pulsar_spark.spark.rows.schema import DEFAULT_METADATA_COLUMNS, RowColumns, ValueFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one micro-batch: its size, and its delay.

    Attributes:
        min_messages: number of messages that a micro-batch waits for; None: no wait.
        max_delay: seconds since the last batch after which a batch may be smaller than ``min_messages``.
    """

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay: float = 900.0

    @property
    def is_capped(self) -> bool:
        """Whether a batch has a maximum size."""
        return self.max_messages is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """Settings of a durable subscription, sent with SUBSCRIBE.

    ``is_replicated``: True if brokers copy its position to other clusters; None: by the namespace's policy.
    """

    properties: tuple[tuple[str, str], ...] = ()
    is_replicated: bool | None = None


def _never_replicated(text: str) -> bool:
    if parsers.boolean(text):
        raise ValueError(
            "false. Brokers copy only subscriptions whose consumer receives messages, and a query's receives "
            "none. Set retention in the other cluster"
        )
    return False


SOURCE = Table()

_TOPICS = SOURCE.add_optional(
    "topics", parsers.topics, "Several topics to read, separated by commas. Replaces `topic`."
)
_TOPICS_PATTERN = SOURCE.add_optional(
    "topicsPattern",
    Parser("pattern", TopicPattern.parse),
    "Read all topics that match: `persistent://tenant/namespace/regex`, `tenant/namespace/regex`, or `regex` "
    "for public/default; or all scalable topics that match `topic://tenant/namespace/regex`. The regular "
    "expression must match the whole name after the namespace. Topics that appear later are read, too. "
    "Replaces `topic`.",
)
_STARTING_OFFSETS = SOURCE.add_optional(
    "startingOffsets",
    Parser("words, JSON", partial(parse_offsets, "startingOffsets", end=False)),
    "Where a query without a checkpoint starts. `earliest`, `latest`, or `subscription` (the position of "
    '`predefinedSubscription`). Or JSON `{"topic": {"0": "ledger:entry[:batch]", "1": "earliest", "2": '
    '"latest"}}`, with the key `"-1"` for a topic without partitions; the named message is the first one '
    "read. Or the JVM connector's form `{\"persistent://...\": [8, 12, 16, ...]}`. Or a query's offset as "
    "Spark shows it (`endOffset` of its progress; a line in its checkpoint's `offsets`): reading starts "
    "after it. Default in a batch: `earliest`. In a stream: the position of `predefinedSubscription` if that "
    "exists, otherwise `latest`.",
)
_ENDING_OFFSETS = SOURCE.add_optional(
    "endingOffsets",
    Parser("words, JSON", partial(parse_offsets, "endingOffsets", end=True)),
    "The last message to read, in the forms of `startingOffsets`. Default: `latest`, the topic's end when "
    "the batch is planned.",
    only=Mode.BATCH,
)
_STARTING_TIME = SOURCE.add_optional(
    "startingTime",
    Parser("time, JSON", partial(parse_times, "startingTime")),
    "Start at the first message published at or after this time: milliseconds since 1970 (not seconds), "
    'ISO-8601 (UTC if it has no zone), or JSON by topic `{"topic": time}`. Replaces `startingOffsets`.',
)
_ENDING_TIME = SOURCE.add_optional(
    "endingTime",
    Parser("time, JSON", partial(parse_times, "endingTime")),
    "End before the first message published at or after this time, in the forms of `startingTime`. Replaces "
    "`endingOffsets`.",
    only=Mode.BATCH,
)
_PUBLISH_TIME_MARGIN = SOURCE.add(
    "publishTimeMargin",
    parsers.seconds("ms", 0.0),
    "1m",
    "Maximum by which publish times go back in a topic partition, because clocks differ or messages are "
    "stored late. Beyond it `startingTime` and `endingTime` may skip messages. The driver reads the messages "
    "of this time span to find the first one.",
)
_FAIL_ON_DATA_LOSS = SOURCE.add(
    "failOnDataLoss",
    parsers.boolean,
    "true",
    "Fail with `[PULSAR_DATA_LOSS]` if the broker has deleted unprocessed messages, and with "
    "`[PULSAR_CORRUPT]` if an entry cannot be decoded. `false`: log a warning and continue without these "
    "messages.",
)
_MAX_MESSAGES_PER_TRIGGER = SOURCE.add_optional(
    "maxMessagesPerTrigger",
    parsers.count(1),
    "Maximum messages of a micro-batch. An entry is never divided, so a micro-batch may exceed this by one "
    "entry for each partition. When it is exact: docs/operations.md.",
    only=Mode.STREAM,
)
_MAX_BYTES_PER_TRIGGER = SOURCE.add_optional(
    "maxBytesPerTrigger",
    parsers.size(1),
    "Maximum bytes of a micro-batch, as stored at the broker. A micro-batch may exceed this by one entry for "
    "each partition.",
    only=Mode.STREAM,
)
_MIN_MESSAGES_PER_TRIGGER = SOURCE.add_optional(
    "minMessagesPerTrigger",
    parsers.count(1),
    "A micro-batch waits until this many messages are available, or until `maxTriggerDelay` is over. "
    "Trigger.AvailableNow does not wait.",
    only=Mode.STREAM,
)
_MAX_TRIGGER_DELAY = SOURCE.add(
    "maxTriggerDelay",
    parsers.seconds("ms", 0.0),
    "15m",
    "Maximum time that a micro-batch waits for `minMessagesPerTrigger`.",
    only=Mode.STREAM,
)
_MIN_PARTITIONS = SOURCE.add_optional(
    "minPartitions",
    parsers.count(1),
    "Minimum number of Spark tasks. Long ranges are split to reach it, unless there are too few entries.",
)
_MAX_MESSAGES_PER_PARTITION = SOURCE.add_optional(
    "maxMessagesPerPartition",
    parsers.count(1),
    "Maximum estimated messages of a Spark task. A range with more is split into several tasks. Short ranges "
    "share a task only up to this number, where each entry counts as 1,000 messages.",
)
_PREDEFINED_SUBSCRIPTION = SOURCE.add_optional(
    "predefinedSubscription",
    parsers.non_empty,
    "Streams: name of the durable subscription. The query moves an existing one only forward: to what it has "
    "processed, or to `startingOffsets` or `startingTime`. Batches: the subscription to start from with "
    "`startingOffsets=subscription`. Its position is not changed.",
)
_RETAIN_SUBSCRIPTION = SOURCE.add(
    "retainSubscription",
    parsers.boolean,
    "true",
    "Keep the durable subscription when the query stops. `false`: remove it, so that nothing keeps messages "
    "for the next run.",
    only=Mode.STREAM,
)
_POLL_TIMEOUT = SOURCE.add(
    "pollTimeoutMs",
    parsers.seconds("ms", 0.001),
    "2m",
    "Maximum time that a task waits for a message that must exist. After that the task fails.",
)
_WAIT_FOR_TOPICS = SOURCE.add(
    "waitingForNonExistedTopic",
    parsers.boolean,
    "false",
    "If a topic does not exist at the start: wait for it, or with `Trigger.AvailableNow` and in batches "
    "leave it out. `false`: fail.",
)
_READ_COMPACTED = SOURCE.add(
    "readCompacted",
    parsers.boolean,
    "false",
    "Read the compacted topic: only the last message of each key, and all messages after the point that "
    "compaction has reached.",
)
_MAX_PENDING_CHUNKED = SOURCE.add(
    "maxPendingChunkedMessages",
    parsers.count(0),
    "10",
    "Maximum incomplete chunked messages that a task keeps in memory. With more, the oldest one is removed, "
    "and read again when its last chunk comes. 0 = unlimited.",
)
_CHUNKS_EXPIRE = SOURCE.add(
    "expireTimeOfIncompleteChunkedMessage",
    parsers.seconds("ms", 0.0),
    "1m",
    "Maximum time between the first and the last chunk of a message, by publish time. A message that takes "
    "longer is left out. In a partition with chunks, messages are acknowledged this much later. 0 = "
    "unlimited: the query then acknowledges nothing there while it runs.",
)
_AUTO_ACK_OLDEST_CHUNKED = SOURCE.add(
    "autoAckOldestChunkedMessageOnQueueFull",
    parsers.boolean,
    "false",
    "Leave out a message that was removed because of `maxPendingChunkedMessages`, and log a warning. "
    "`false`: read it again.",
)
_METADATA_COLUMNS = SOURCE.add(
    "metadataColumns",
    parsers.metadata_columns,
    ",".join(DEFAULT_METADATA_COLUMNS),
    "Metadata columns after the value, in this order, separated by commas; none if empty, all if `*`. "
    "Fewer columns are faster. All of them: docs/columns.md.",
)
_CRYPTO_KEY_READER = SOURCE.add_optional(
    "pulsar.reader.cryptoKeyReader",
    parsers.key_reader,
    "Where driver and tasks find the private keys for end-to-end decryption: a folder with "
    "files `NAME.private.pem`, or your own class `package.module.Class`. See docs/encryption.md.",
)
_CRYPTO_FAILURE_ACTION = SOURCE.add(
    "pulsar.reader.cryptoFailureAction",
    parsers.member_of(ConsumerCryptoFailureAction),
    "FAIL",
    "If messages cannot be decrypted: `FAIL` with `[PULSAR_CRYPTO]`; `DISCARD` them and log a warning; or "
    "`CONSUME`: each entry is one row whose value is the stored, encrypted bytes.",
)
_CONSUMER_NAME = SOURCE.add_optional(
    "pulsar.consumer.consumerName",
    parsers.non_empty,
    "Name of all consumers of this query, also of its tasks, in the topics' statistics. Default: names that "
    "the broker chooses.",
)
_SUBSCRIPTION_PROPERTIES = SOURCE.add(
    "pulsar.consumer.subscriptionProperties",
    parsers.properties,
    "{}",
    'Properties of the durable subscription, shown in the topic\'s statistics: `{"name": "text"}`. They '
    "are set only when the subscription is created.",
    only=Mode.STREAM,
)
_REPLICATE_SUBSCRIPTION_STATE = SOURCE.add_optional(
    "pulsar.consumer.replicateSubscriptionState",
    Parser("`false`", _never_replicated),
    "`false`: the broker does not copy the durable subscription to other clusters. Default: the namespace's "
    "policy. `true` is refused, because it has no effect. See docs/clusters.md.",
    only=Mode.STREAM,
)
SOURCE.extend(VALUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a source. Fields not listed here have the meaning of the option with their name.

    Attributes:
        topics: names of topics, without partitions, in the user's order and without repetition; empty with
            a pattern.
        end: end of a batch read; always latest in a stream.
        publish_time_margin: maximum seconds that a message's publish time is before an earlier message's.
        must_exist: True if a topic that is missing when the read starts is an error.
    """

    client: ClientOptions
    topics: tuple[TopicName, ...]
    pattern: TopicPattern | None
    start: Positions
    end: Positions
    publish_time_margin: float
    limits: Limits
    min_partitions: int | None
    max_messages_per_partition: int | None
    subscription: str | None
    subscription_settings: SubscriptionSettings
    retain_subscription: bool
    poll_timeout: float
    fail_on_data_loss: bool
    must_exist: bool
    read_compacted: bool
    chunks: ChunkLimits
    decryption: DecryptionOptions
    columns: RowColumns
    values: ValueOptions
    admin_url: str | None
    log_level: int | None

    @property
    def scalable_topics(self) -> list[TopicName]:
        """Returns the named topics that have segments instead of partitions."""
        return [topic for topic in self.topics if topic.is_scalable]

    @property
    def has_scalable_topics(self) -> bool:
        """Whether scalable topics are named, or the pattern is for them."""
        return bool(self.scalable_topics) or (self.pattern is not None and self.pattern.is_scalable)


def source_options(values: Values, mode: Mode | None) -> SourceOptions:
    """Returns the options of a source from parsed values, and checks their combinations."""
    client = client_options(values)
    _check_topics(values, mode)
    default = PositionWord.LATEST if mode is Mode.STREAM else PositionWord.EARLIEST
    start = values[_STARTING_OFFSETS] or values[_STARTING_TIME]
    start = start or Positions(_STARTING_OFFSETS.name, default, is_default=True)
    end = values[_ENDING_OFFSETS] or values[_ENDING_TIME]
    end = end or Positions(_ENDING_OFFSETS.name, PositionWord.LATEST, is_default=True)
    _check_start_and_end(values, mode, start, end)
    _check_min_messages(values)
    _check_encrypted_values(values)
    topic, topics = values[TOPIC], values[_TOPICS]
    return SourceOptions(
        client=replace(client, consumer_name=values[_CONSUMER_NAME]),
        topics=topics or (() if topic is None else (topic,)),
        pattern=values[_TOPICS_PATTERN],
        start=start,
        end=end,
        publish_time_margin=values[_PUBLISH_TIME_MARGIN],
        limits=Limits(
            max_messages=values[_MAX_MESSAGES_PER_TRIGGER],
            max_bytes=values[_MAX_BYTES_PER_TRIGGER],
            min_messages=values[_MIN_MESSAGES_PER_TRIGGER],
            max_delay=values[_MAX_TRIGGER_DELAY],
        ),
        min_partitions=values[_MIN_PARTITIONS],
        max_messages_per_partition=values[_MAX_MESSAGES_PER_PARTITION],
        subscription=values[_PREDEFINED_SUBSCRIPTION],
        subscription_settings=SubscriptionSettings(
            values[_SUBSCRIPTION_PROPERTIES], values[_REPLICATE_SUBSCRIPTION_STATE]
        ),
        retain_subscription=values[_RETAIN_SUBSCRIPTION],
        poll_timeout=values[_POLL_TIMEOUT],
        fail_on_data_loss=values[_FAIL_ON_DATA_LOSS],
        must_exist=values[_TOPICS_PATTERN] is None and not values[_WAIT_FOR_TOPICS],
        read_compacted=values[_READ_COMPACTED],
        chunks=ChunkLimits(
            max_pending=values[_MAX_PENDING_CHUNKED],
            expire=values[_CHUNKS_EXPIRE],
            auto_ack_oldest=values[_AUTO_ACK_OLDEST_CHUNKED],
        ),
        decryption=DecryptionOptions(values[_CRYPTO_KEY_READER], values[_CRYPTO_FAILURE_ACTION]),
        columns=RowColumns(values[_METADATA_COLUMNS]),
        values=value_options(values),
        admin_url=values[ADMIN_URL],
        log_level=values[LOG_LEVEL],
    )


def _check_topics(values: Values, mode: Mode | None) -> None:
    given = [option.name for option in (TOPIC, _TOPICS, _TOPICS_PATTERN) if option in values.given]
    if not given:
        raise OptionError(
            "no topic is named", advice='Set .option("topic", ...), or topics for several, or topicsPattern'
        )
    if len(given) > 1:
        raise OptionError(
            f"options {' and '.join(given)} cannot be used together", advice="Leave all but one of them out"
        )
    topics = (*(values[_TOPICS] or ()), values[TOPIC], values[_TOPICS_PATTERN])
    is_scalable = any(each is not None and each.is_scalable for each in topics)
    if mode is Mode.STREAM and is_scalable and values[ADMIN_URL] is None:
        raise OptionError(
            f"a stream of a scalable topic needs the option {ADMIN_URL.name}: only through the admin service "
            "can it register its subscription, without which brokers delete segments before they are read",
            advice=f"Set {ADMIN_URL.name}, such as http://host:8080",
        )


def _check_start_and_end(values: Values, mode: Mode | None, start: Positions, end: Positions) -> None:
    offsets = [option for option in (_ENDING_OFFSETS, _STARTING_OFFSETS) if option in values.given]
    times = [option for option in (_ENDING_TIME, _STARTING_TIME) if option in values.given]
    if offsets and times:
        raise OptionError(
            f"options {offsets[0].name} and {times[0].name} cannot be used together",
            advice="Give start and end both as offsets, or both as times",
        )
    asking = [each.option for each in (start, end) if each.everywhere is PositionWord.SUBSCRIPTION]
    is_named = values[_PREDEFINED_SUBSCRIPTION] is not None
    if asking and not is_named:
        raise OptionError(
            f"option {asking[0]} is subscription, but no subscription is named",
            advice="Name it with predefinedSubscription",
        )
    if mode is Mode.BATCH and is_named and not asking:
        raise OptionError(
            "option predefinedSubscription has no effect in this batch, which neither starts nor ends at "
            "the subscription",
            advice="Set startingOffsets to subscription, or leave it out",
        )
    check_order(start, end)


def _check_min_messages(values: Values) -> None:
    smallest, largest = values[_MIN_MESSAGES_PER_TRIGGER], values[_MAX_MESSAGES_PER_TRIGGER]
    if smallest is not None and largest is not None and smallest > largest:
        raise OptionError(
            f"minMessagesPerTrigger ({smallest}) is greater than maxMessagesPerTrigger ({largest})",
            advice="Set it to at most maxMessagesPerTrigger",
        )


def _check_encrypted_values(values: Values) -> None:
    is_consumed = values[_CRYPTO_FAILURE_ACTION] is ConsumerCryptoFailureAction.CONSUME
    if is_consumed and values[VALUE_FORMAT] is not ValueFormat.RAW:
        raise OptionError(
            f"{_CRYPTO_FAILURE_ACTION.name}=CONSUME gives encrypted bytes, which cannot be read by a schema",
            advice="Set it to FAIL or DISCARD, or valueFormat to raw",
        )
