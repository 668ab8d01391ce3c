"""The options of the source."""

from __future__ import annotations

from functools import partial

from pulsar_spark.client import ConsumerCryptoFailureAction
from pulsar_spark.ids import TopicPattern
from pulsar_spark.spark.options import parsers as values
from pulsar_spark.spark.options.option import READER, Mode, Option, Scope, names_of, option
from pulsar_spark.spark.options.positions import parse_offsets, parse_times
from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS

_source = partial(option, scope=Scope.SOURCE)

SOURCE: tuple[Option, ...] = (
    Option(
        name="topics",
        kind="topics",
        parse=values.topics,
        default=None,
        scope=Scope.SOURCE,
        doc="Several topics to read, separated by commas; in place of `topic`.",
    ),
    _source(
        "topicsPattern",
        "pattern",
        TopicPattern.parse,
        None,
        "All topics of a namespace whose own name this regular expression matches in full, in place of "
        "`topic`: `persistent://tenant/namespace/regex`, `tenant/namespace/regex`, or `regex` for "
        "public/default. Looked up again while the query runs.",
    ),
    _source(
        "startingOffsets",
        "words, JSON",
        partial(parse_offsets, "startingOffsets", end=False),
        None,
        "Where a query without a checkpoint begins: `earliest`, `latest`, `subscription` (where "
        "`predefinedSubscription` stands), or JSON "
        '`{"topic": {"0": "ledger:entry[:batch]", "1": "earliest", "2": "latest"}}` with the key `"-1"` for '
        "a topic without partitions; the message named is the first one read. The JVM connector's "
        '`{"persistent://...": [8, 12, 16, ...]}` is read too. Default: `latest` in a stream, `earliest` in '
        "a batch.",
    ),
    _source(
        "endingOffsets",
        "words, JSON",
        partial(parse_offsets, "endingOffsets", end=True),
        None,
        "The last message read, in the same forms. Default: `latest`, what there is when it is planned.",
        only=Mode.BATCH,
    ),
    _source(
        "startingTime",
        "time, JSON",
        partial(parse_times, "startingTime"),
        None,
        "Begin at the first message published at or after this time: milliseconds since 1970, ISO-8601 "
        '(without a zone: UTC), or JSON by topic `{"topic": time}`. In place of `startingOffsets`.',
    ),
    _source(
        "endingTime",
        "time, JSON",
        partial(parse_times, "endingTime"),
        None,
        "End before the first message published at or after this time. In place of `endingOffsets`.",
        only=Mode.BATCH,
    ),
    _source(
        "failOnDataLoss",
        "boolean",
        values.boolean,
        "true",
        "Messages that were not processed yet are gone at the broker: fail with `[PULSAR_DATA_LOSS]`, or "
        "warn and read on.",
    ),
    _source(
        "maxMessagesPerTrigger",
        "number",
        values.count(1),
        None,
        "The most messages of one micro-batch; see docs/limits.md for what is exact when.",
        only=Mode.STREAM,
    ),
    _source(
        "maxBytesPerTrigger",
        "size",
        values.size(1),
        None,
        "The most bytes of one micro-batch, as stored.",
        only=Mode.STREAM,
    ),
    _source(
        "minMessagesPerTrigger",
        "number",
        values.count(1),
        None,
        "A micro-batch waits until there are as many messages, for `maxTriggerDelay` at most. "
        "Trigger.AvailableNow does not wait.",
        only=Mode.STREAM,
    ),
    _source(
        "maxTriggerDelay",
        "time (ms)",
        values.seconds("ms", 0.0),
        "15m",
        "The longest that `minMessagesPerTrigger` holds a micro-batch back.",
        only=Mode.STREAM,
    ),
    _source(
        "minPartitions",
        "number",
        values.count(1),
        None,
        "The least number of Spark tasks, where there are as many entries: long ranges are split.",
    ),
    _source(
        "maxMessagesPerPartition",
        "number",
        values.count(1),
        None,
        "Ranges with more messages than this, by estimate, are split into several Spark tasks.",
    ),
    _source(
        "predefinedSubscription",
        "text",
        values.non_empty,
        None,
        "Streams: name of the durable subscription, in place of one made from `subscriptionPrefix`. "
        "Batches: the one whose position the word `subscription` means; it is not moved.",
    ),
    _source(
        "subscriptionPrefix",
        "text",
        values.non_empty,
        "spark-pulsar",
        "Streams: the durable subscription is named `<prefix>-<uuid>`, made once per query and kept "
        "in its checkpoint.",
    ),
    _source(
        "retainSubscription",
        "boolean",
        values.boolean,
        "true",
        "Whether the durable subscription stays when the query stops, for its next run. Batches leave none.",
        only=Mode.STREAM,
    ),
    _source(
        "pollTimeoutMs",
        "time (ms)",
        values.seconds("ms", 0.001),
        "2m",
        "How long a task waits for a message that must exist before it fails.",
    ),
    _source(
        "waitingForNonExistedTopic",
        "boolean",
        values.boolean,
        "false",
        "Wait for a topic that does not exist yet; else that is an error at the start.",
    ),
    _source(
        "allowDifferentTopicSchemas",
        "boolean",
        values.boolean,
        "false",
        "Let topics with different schemas be read together.",
    ),
    _source(
        "readCompacted",
        "boolean",
        values.boolean,
        "false",
        "Read the compacted topic: of each key the last message only, as far as compaction has come.",
    ),
    _source(
        "maxPendingChunkedMessages",
        "number",
        values.count(0),
        "10",
        "Incomplete chunked messages that a task keeps at once; over it the oldest is given up. "
        "0: any number.",
    ),
    _source(
        "expireTimeOfIncompleteChunkedMessage",
        "time (ms)",
        values.seconds("ms", 0.0),
        "1m",
        "A chunked message whose chunks were published over a longer time is given up. 0: any time.",
    ),
    _source(
        "autoAckOldestChunkedMessageOnQueueFull",
        "boolean",
        values.boolean,
        "false",
        "Whether a chunked message given up over `maxPendingChunkedMessages` counts as processed.",
    ),
    _source(
        "metadataColumns",
        "column names",
        values.metadata_columns,
        ",".join(DEFAULT_METADATA_COLUMNS),
        "The columns behind the value, in this order, separated by commas; fewer are faster, an empty list "
        f"is allowed. Also: {', '.join(f'`{name}`' for name in tuple(METADATA_COLUMNS)[6:])}.",
    ),
    Option(
        name=READER + "cryptoKeyReader",
        kind="folder, Python name",
        parse=values.key_reader,
        default=None,
        scope=Scope.SOURCE,
        doc="Who knows the private keys of messages that are encrypted end to end: a folder (`/path` or "
        "`file:///path`) with files `NAME.private.pem`, or `package.module.Class` of your own. Tasks use it: "
        "see docs/encryption.md.",
    ),
    Option(
        name=READER + "cryptoFailureAction",
        kind=names_of(ConsumerCryptoFailureAction),
        parse=values.one_of(ConsumerCryptoFailureAction),
        default="FAIL",
        scope=Scope.SOURCE,
        doc="Messages that cannot be decrypted: fail with `[PULSAR_CRYPTO]`, leave them out with a warning, "
        "or give each entry as one row whose value is what is stored.",
    ),
)  # fmt: skip - a call to a line keeps the table a table
