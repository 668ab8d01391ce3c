"""The text of ``docs/columns.md``."""

from __future__ import annotations

from typing import NamedTuple

from pulsar_spark.spark.rows.metadata_columns import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS
from pulsar_spark.spark.rows.write import written_types


class ColumnText(NamedTuple):
    """The page's text for one column, except its types.

    Attributes:
        unit: unit of the values, or their form.
        read: meaning of a value that the source reads; empty if only the sink has the column.
        null_read: meaning of a null that the source reads.
        written: what the sink does with a value; empty if only the source has the column.
        null_written: meaning of a null that is written.
    """

    unit: str
    read: str = ""
    null_read: str = ""
    written: str = ""
    null_written: str = ""


_NEVER = "never null"

COLUMN_TEXTS = {
    "__key": ColumnText(
        "bytes, or text in UTF-8",
        read="The message's key. If it was sent in base64, it is decoded.",
        null_read="no key",
        written="The message's key. It decides the partition. A key that is not UTF-8 is sent in base64, "
        "with a mark. With the option `keyBytes` every key is sent so.",
        null_written="no key",
    ),
    "__topic": ColumnText(
        "`persistent://tenant/namespace/topic`",
        read="The full name of the topic, with `-partition-N` if it is partitioned.",
        null_read=_NEVER,
        written="The topic of the row, as a short or a full name. The option `topic` takes precedence. "
        "Without that option this column is required; rows that are written as they were read then go back "
        "into their own topic.",
        null_written="an error",
    ),
    "__messageId": ColumnText(
        "bytes of Pulsar's `MessageIdData`",
        read="The message's id, as Java's `MessageId.toByteArray()` gives it.",
        null_read=_NEVER,
    ),
    "__publishTime": ColumnText(
        "precise to 1 ms", read="When the producer sent the message, by its own clock.", null_read=_NEVER
    ),
    "__eventTime": ColumnText(
        "precise to 1 ms",
        read="The message's event time.",
        null_read="no event time",
        written="The message's event time. A bigint is in milliseconds since 1970. Microseconds are cut off.",
        null_written="no event time",
    ),
    "__messageProperties": ColumnText(
        "text to text",
        read="The message's properties. The map is empty if the message has no properties.",
        null_read=_NEVER,
        written="The message's properties. A property whose value is null is left out.",
        null_written="no properties",
    ),
    "__partition": ColumnText(
        "number, from 0",
        read="The number of the partition.",
        null_read="the topic has no partitions",
        written="The partition to write to, whatever the key says.",
        null_written="the key or the routing mode decides",
    ),
    "__offset": ColumnText(
        "`ledger:entry[:batch]`",
        read="The message's position, in the form that `startingOffsets` takes.",
        null_read=_NEVER,
    ),
    "__orderingKey": ColumnText(
        "bytes",
        read="The ordering key, which Key_Shared subscriptions use in place of the key.",
        null_read="no ordering key",
        written="The ordering key.",
        null_written="no ordering key",
    ),
    "__sequenceId": ColumnText(
        "number",
        read="The sequence id that the producer gave the message.",
        null_read=_NEVER,
        written="The message's sequence id. Rows with this column are delivered at least once: retried rows "
        "may be duplicated.",
        null_written="the producer numbers the message",
    ),
    "__producerName": ColumnText("text", read="The name of the producer.", null_read=_NEVER),
    "__schemaVersion": ColumnText(
        "bytes",
        read="The version of the topic's schema that the message was written with, in the broker's form.",
        null_read="written without a schema",
    ),
    "__schemaId": ColumnText(
        "bytes",
        read="The schema's id in a registry outside of Pulsar, as the producer sent it: "
        "[Schemas](schemas.md#a-registry-outside-of-pulsar).",
        null_read="no such registry",
    ),
    "__replicatedFrom": ColumnText(
        "text", read="The cluster that the message was replicated from.", null_read="not replicated"
    ),
    "__isNull": ColumnText(
        "true or false", read="Whether the message has no value (a tombstone).", null_read=_NEVER
    ),
    "__index": ColumnText(
        "number, from 0",
        read="The message's number in the topic partition, if the broker [counts "
        "messages](operations.md#what-is-exact).",
        null_read="the broker does not count",
    ),
    "__brokerPublishTime": ColumnText(
        "precise to 1 ms",
        read="When the broker took the message, by its clock, if it "
        "[adds times](operations.md#what-is-exact).",
        null_read="the broker adds none",
    ),
    "__corruptValue": ColumnText(
        "bytes",
        read="The bytes of a value that could not be read by the schema, with `mode=PERMISSIVE`: "
        "[Schemas](schemas.md#messages-that-cannot-be-read).",
        null_read="the row could be read",
    ),
    "__deliverAt": ColumnText(
        "precise to 1 ms",
        written="When consumers of shared subscriptions get the message. The message is sent alone, not in "
        "a batch.",
        null_written="delivered at once",
    ),
    "__deliverAfter": ColumnText(
        "milliseconds from now",
        written="`__deliverAt` as a delay. A row may have one of the two only.",
        null_written="delivered at once",
    ),
}

_HEAD = """\
# Columns

A row is a message. Its value is one column or several. Columns whose names begin with `__` are its metadata.
A timestamp is an instant; Spark shows it in the session's time zone. In string columns, each byte sequence
that is not valid UTF-8 becomes U+FFFD.

## Value

Without `valueFormat`:

| | column | null means |
|---|---|---|
| read | `value`, binary: the bytes of the payload | a message without a value (a tombstone) |
| written | the one binary or string column that has no `__`, whatever its name | a tombstone |

With `valueFormat`, the topic's schema gives the columns that are [read](schemas.md#types) and takes those
that are [written](schemas.md#write).

## Metadata columns that are read

The option `metadataColumns` chooses these columns and their order. Fewer columns are faster.
"""


def docs_page() -> str:
    """The text of ``docs/columns.md``."""
    lines = [
        _HEAD,
        "| column | type | by default | unit or form | meaning | null means |",
        "|---|---|---|---|---|---|",
    ]
    for name, column in METADATA_COLUMNS.items():
        text = COLUMN_TEXTS[name]
        default = "yes" if name in DEFAULT_METADATA_COLUMNS else ""
        kind = column.type.simpleString()
        lines.append(f"| `{name}` | `{kind}` | {default} | {text.unit} | {text.read} | {text.null_read} |")
    lines += [
        "",
        "## Metadata columns that are written",
        "",
        "All of them are optional. Columns of the source that the sink cannot write are left out, with one "
        "WARNING. So rows can be written as they were read.",
        "",
        "| column | type | unit or form | meaning | null means |",
        "|---|---|---|---|---|",
    ]
    for name, kinds in written_types().items():
        text = COLUMN_TEXTS[name]
        types = " or ".join(f"`{kind}`" for kind in kinds)
        lines.append(f"| `{name}` | {types} | {text.unit} | {text.written} | {text.null_written} |")
    lines += [
        "",
        "<!-- Generated by `python -m docs.pages columns > docs/columns.md`; a test compares them. -->",
    ]
    return "\n".join(lines) + "\n"
