"""The options of the source: their table, and what a reader needs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pulsar_spark.client import ChunkLimits, ClientOptions, ConsumerCryptoFailureAction
from pulsar_spark.errors import OptionError
from pulsar_spark.ids import TopicName, TopicPattern
from pulsar_spark.spark.options import parsers
from pulsar_spark.spark.options.connection import ADMIN_URL, LOG_LEVEL, TOPIC, client_options
from pulsar_spark.spark.options.consumer import (
    CONSUMER,
    CONSUMER_NAME,
    SubscriptionSettings,
    subscription_settings,
)
from pulsar_spark.spark.options.encryption import DecryptionOptions
from pulsar_spark.spark.options.limits import Limits
from pulsar_spark.spark.options.option import Mode, Table, Values
from pulsar_spark.spark.options.positions import (
    Positions,
    PositionWord,
    check_order,
    parse_offsets,
    parse_times,
)
from pulsar_spark.spark.options.values import VALUES, ValueOptions, value_options
from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS
from pulsar_spark.spark.rows.schema import RowColumns

SOURCE = Table()

_COLUMNS_ON_REQUEST = [name for name in METADATA_COLUMNS if name not in DEFAULT_METADATA_COLUMNS]

_TOPICS = SOURCE.add(
    "topics",
    "topics",
    parsers.topics,
    None,
    "Several topics to read, separated by commas; in place of `topic`.",
)
_TOPICS_PATTERN = SOURCE.add(
    "topicsPattern",
    "pattern",
    TopicPattern.parse,
    None,
    "All topics of a namespace whose own name this regular expression matches in full, in place of "
    "`topic`: `persistent://tenant/namespace/regex`, `tenant/namespace/regex`, or `regex` for "
    "public/default. Looked up again while the query runs.",
)
_STARTING_OFFSETS = SOURCE.add(
    "startingOffsets",
    "words, JSON",
    partial(parse_offsets, "startingOffsets", end=False),
    None,
    "Where a query without a checkpoint begins: `earliest`, `latest`, `subscription` (where "
    "`predefinedSubscription` stands), or JSON "
    '`{"topic": {"0": "ledger:entry[:batch]", "1": "earliest", "2": "latest"}}` with the key `"-1"` for '
    "a topic without partitions; the message named is the first one read. The JVM connector's "
    '`{"persistent://...": [8, 12, 16, ...]}` is read too. So is the offset of a query as Spark shows it '
    "(`endOffset` of its progress; a line in its checkpoint's `offsets`): what comes after it is read. "
    "Default: `earliest` in a batch; in a stream where "
    "`predefinedSubscription` stands, and `latest` if there is none yet.",
)
_ENDING_OFFSETS = SOURCE.add(
    "endingOffsets",
    "words, JSON",
    partial(parse_offsets, "endingOffsets", end=True),
    None,
    "The last message read, in the same forms. Default: `latest`, what there is when it is planned.",
    only=Mode.BATCH,
)
_STARTING_TIME = SOURCE.add(
    "startingTime",
    "time, JSON",
    partial(parse_times, "startingTime"),
    None,
    "Begin at the first message published at or after this time: milliseconds since 1970, ISO-8601 "
    '(without a zone: UTC), or JSON by topic `{"topic": time}`. In place of `startingOffsets`.',
)
_ENDING_TIME = SOURCE.add(
    "endingTime",
    "time, JSON",
    partial(parse_times, "endingTime"),
    None,
    "End before the first message published at or after this time. In place of `endingOffsets`.",
    only=Mode.BATCH,
)
_FAIL_ON_DATA_LOSS = SOURCE.add(
    "failOnDataLoss",
    "boolean",
    parsers.boolean,
    "true",
    "Messages that were not processed yet are gone at the broker: fail with `[PULSAR_DATA_LOSS]`, or "
    "warn and read on; the same for entries that cannot be decoded.",
)
_MAX_MESSAGES_PER_TRIGGER = SOURCE.add(
    "maxMessagesPerTrigger",
    "number",
    parsers.count(1),
    None,
    "The most messages of one micro-batch; see docs/limits.md for what is exact when.",
    only=Mode.STREAM,
)
_MAX_BYTES_PER_TRIGGER = SOURCE.add(
    "maxBytesPerTrigger",
    "size",
    parsers.size(1),
    None,
    "The most bytes of one micro-batch, as stored.",
    only=Mode.STREAM,
)
_MIN_MESSAGES_PER_TRIGGER = SOURCE.add(
    "minMessagesPerTrigger",
    "number",
    parsers.count(1),
    None,
    "A micro-batch waits until there are as many messages, for `maxTriggerDelay` at most. "
    "Trigger.AvailableNow does not wait.",
    only=Mode.STREAM,
)
_MAX_TRIGGER_DELAY = SOURCE.add(
    "maxTriggerDelay",
    "time (ms)",
    parsers.seconds("ms", 0.0),
    "15m",
    "The longest that `minMessagesPerTrigger` holds a micro-batch back.",
    only=Mode.STREAM,
)
_MIN_PARTITIONS = SOURCE.add(
    "minPartitions",
    "number",
    parsers.count(1),
    None,
    "The least number of Spark tasks, where there are as many entries: long ranges are split.",
)
_MAX_MESSAGES_PER_PARTITION = SOURCE.add(
    "maxMessagesPerPartition",
    "number",
    parsers.count(1),
    None,
    "Ranges with more messages than this, by estimate, are split into several Spark tasks.",
)
_PREDEFINED_SUBSCRIPTION = SOURCE.add(
    "predefinedSubscription",
    "text",
    parsers.non_empty,
    None,
    "Streams: name of the durable subscription, in place of one made from `subscriptionPrefix`. One that "
    "exists is moved forward only by what the query has processed, or by a start that you give. "
    "Batches: the one whose position the word `subscription` means; it is not moved.",
)
_RETAIN_SUBSCRIPTION = SOURCE.add(
    "retainSubscription",
    "boolean",
    parsers.boolean,
    "true",
    "Whether the durable subscription stays when the query stops, for its next run. Batches leave none.",
    only=Mode.STREAM,
)
_POLL_TIMEOUT = SOURCE.add(
    "pollTimeoutMs",
    "time (ms)",
    parsers.seconds("ms", 0.001),
    "2m",
    "How long a task waits for a message that must exist before it fails.",
)
_WAIT_FOR_TOPICS = SOURCE.add(
    "waitingForNonExistedTopic",
    "boolean",
    parsers.boolean,
    "false",
    "Wait for a topic that does not exist yet; else that is an error at the start.",
)
_READ_COMPACTED = SOURCE.add(
    "readCompacted",
    "boolean",
    parsers.boolean,
    "false",
    "Read the compacted topic: of each key the last message only, as far as compaction has come.",
)
_MAX_PENDING_CHUNKED = SOURCE.add(
    "maxPendingChunkedMessages",
    "number",
    parsers.count(0),
    "10",
    "Incomplete chunked messages that a task keeps at once; over it the oldest is given up. 0: any number.",
)
_CHUNKS_EXPIRE = SOURCE.add(
    "expireTimeOfIncompleteChunkedMessage",
    "time (ms)",
    parsers.seconds("ms", 0.0),
    "1m",
    "A chunked message whose chunks were published over a longer time is given up; a partition with chunks "
    "is acknowledged so much later. 0: any time; it is then not acknowledged while the query runs.",
)
_AUTO_ACK_OLDEST_CHUNKED = SOURCE.add(
    "autoAckOldestChunkedMessageOnQueueFull",
    "boolean",
    parsers.boolean,
    "false",
    "Whether a chunked message given up over `maxPendingChunkedMessages` counts as processed.",
)
_METADATA_COLUMNS = SOURCE.add(
    "metadataColumns",
    "column names",
    parsers.metadata_columns,
    ",".join(DEFAULT_METADATA_COLUMNS),
    "The columns behind the value, in this order, separated by commas; fewer are faster, an empty list "
    f"is allowed. Also: {', '.join(f'`{name}`' for name in _COLUMNS_ON_REQUEST)}. `__key` has the bytes as "
    "they are; in columns of strings each malformed part of what is not UTF-8 is U+FFFD. `__corruptValue` is "
    "null but for messages that cannot be read by the schema (`mode`).",
)
_CRYPTO_KEY_READER = SOURCE.add(
    "pulsar.reader.cryptoKeyReader",
    "folder, Python name",
    parsers.key_reader,
    None,
    "Who knows the private keys of messages that are encrypted end to end: a folder (`/path` or "
    "`file:///path`) with files `NAME.private.pem`, or `package.module.Class` of your own. Tasks use it: "
    "see docs/encryption.md.",
)
_CRYPTO_FAILURE_ACTION = SOURCE.add(
    "pulsar.reader.cryptoFailureAction",
    parsers.names_of(parsers.by_value(ConsumerCryptoFailureAction)),
    parsers.one_of(parsers.by_value(ConsumerCryptoFailureAction)),
    "FAIL",
    "Messages that cannot be decrypted: fail with `[PULSAR_CRYPTO]`, leave them out with a warning, "
    "or give each entry as one row whose value is what is stored.",
)
SOURCE.extend(CONSUMER)
SOURCE.extend(VALUES)


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
        limits: how much one micro-batch may hold.
        min_partitions: the minimum number of tasks, where there are as many entries.
        max_messages_per_partition: the maximum number of messages of a task, by estimate.
        subscription: the user's name for the durable subscription, or None.
        subscription_settings: what the broker is told of the durable subscription.
        retain_subscription: whether a stream's subscription stays when it stops.
        poll_timeout: seconds that a task waits for a message that must exist.
        fail_on_data_loss: whether it is an error that unprocessed messages are gone.
        wait_for_topics: whether topics may come later than the query.
        read_compacted: whether compacted topics are read in their compacted form.
        chunks: bounds of the reassembly of chunked messages.
        decryption: where keys are found, and what happens to messages that cannot be decrypted.
        columns: of the rows, where payloads are not looked into.
        values: how payloads are read.
        admin_url: where the admin service is, or None.
        log_level: from which level on log lines are shown, or None.
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
    subscription_settings: SubscriptionSettings
    retain_subscription: bool
    poll_timeout: float
    fail_on_data_loss: bool
    wait_for_topics: bool
    read_compacted: bool
    chunks: ChunkLimits
    decryption: DecryptionOptions
    columns: RowColumns
    values: ValueOptions
    admin_url: str | None
    log_level: int | None

    @property
    def must_exist(self) -> bool:
        """Whether it is an error that a topic does not exist when a read begins."""
        return self.pattern is None and not self.wait_for_topics


def source_options(values: Values, mode: Mode | None) -> SourceOptions:
    """What a reader needs, of options that are right by themselves.

    Args:
        values: of the tables CONNECTION and SOURCE.
        mode: None where Spark does not say which it will be; the start is then that of a batch.

    Raises:
        OptionError: options do not go together.
    """
    client = client_options(values)
    for check in _CHECKS:
        check(values, mode)
    topic, topics = values[TOPIC], values[_TOPICS]
    return SourceOptions(
        client=replace(client, consumer_name=values[CONSUMER_NAME]),
        topics=topics or (() if topic is None else (topic,)),
        pattern=values[_TOPICS_PATTERN],
        start=_start(values, mode),
        end=_end(values),
        limits=Limits(
            max_messages=values[_MAX_MESSAGES_PER_TRIGGER],
            max_bytes=values[_MAX_BYTES_PER_TRIGGER],
            min_messages=values[_MIN_MESSAGES_PER_TRIGGER],
            max_delay=values[_MAX_TRIGGER_DELAY],
        ),
        min_partitions=values[_MIN_PARTITIONS],
        max_messages_per_partition=values[_MAX_MESSAGES_PER_PARTITION],
        subscription=values[_PREDEFINED_SUBSCRIPTION],
        subscription_settings=subscription_settings(values),
        retain_subscription=values[_RETAIN_SUBSCRIPTION],
        poll_timeout=values[_POLL_TIMEOUT],
        fail_on_data_loss=values[_FAIL_ON_DATA_LOSS],
        wait_for_topics=values[_WAIT_FOR_TOPICS],
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


def _start(values: Values, mode: Mode | None) -> Positions:
    default = PositionWord.LATEST if mode is Mode.STREAM else PositionWord.EARLIEST
    given = values[_STARTING_OFFSETS] or values[_STARTING_TIME]
    return given or Positions(_STARTING_OFFSETS.name, default, is_default=True)


def _end(values: Values) -> Positions:
    latest = Positions(_ENDING_OFFSETS.name, PositionWord.LATEST, is_default=True)
    return values[_ENDING_OFFSETS] or values[_ENDING_TIME] or latest


def _check_topics(values: Values, mode: Mode | None) -> None:
    if sum(option in values.given for option in (TOPIC, _TOPICS, _TOPICS_PATTERN)) != 1:
        raise OptionError(
            "exactly one of the options topic, topics and topicsPattern is needed",
            advice='Set .option("topic", ...)',
        )


def _check_offsets_or_times(values: Values, mode: Mode | None) -> None:
    offsets = [option for option in (_ENDING_OFFSETS, _STARTING_OFFSETS) if option in values.given]
    times = [option for option in (_ENDING_TIME, _STARTING_TIME) if option in values.given]
    if offsets and times:
        raise OptionError(
            f"option {offsets[0].name} does not go together with {times[0].name}",
            advice="Say both ends by offsets, or both by times",
        )


def _check_subscription_is_of_use(values: Values, mode: Mode | None) -> None:
    bounds = (_start(values, mode), _end(values))
    asking = [each.option for each in bounds if each.everywhere is PositionWord.SUBSCRIPTION]
    is_named = values[_PREDEFINED_SUBSCRIPTION] is not None
    if asking and not is_named:
        raise OptionError(
            f"option {asking[0]} is subscription, and no subscription is named",
            advice="Name it with predefinedSubscription",
        )
    if mode is Mode.BATCH and is_named and not asking:
        raise OptionError(
            "option predefinedSubscription has no use in this batch, which neither begins nor ends there",
            advice="Set startingOffsets to subscription, or leave it out",
        )


def _check_start_before_end(values: Values, mode: Mode | None) -> None:
    check_order(_start(values, mode), _end(values))


def _check_min_messages(values: Values, mode: Mode | None) -> None:
    smallest, largest = values[_MIN_MESSAGES_PER_TRIGGER], values[_MAX_MESSAGES_PER_TRIGGER]
    if smallest is not None and largest is not None and smallest > largest:
        raise OptionError(
            f"minMessagesPerTrigger, {smallest}, is more than maxMessagesPerTrigger, {largest}",
            advice="Make it less or equal",
        )


def _check_encrypted_values(values: Values, mode: Mode | None) -> None:
    is_consumed = values[_CRYPTO_FAILURE_ACTION] is ConsumerCryptoFailureAction.CONSUME
    if is_consumed and not value_options(values).is_raw:
        raise OptionError(
            f"{_CRYPTO_FAILURE_ACTION.name}=CONSUME gives what is stored, which no schema reads",
            advice="Set it to FAIL or DISCARD, or valueFormat to raw",
        )


# What is right by itself and wrong together; the first that finds something raises OptionError.
_CHECKS: tuple[Callable[[Values, Mode | None], None], ...] = (
    _check_topics,
    _check_offsets_or_times,
    _check_subscription_is_of_use,
    _check_start_before_end,
    _check_min_messages,
    _check_encrypted_values,
)
