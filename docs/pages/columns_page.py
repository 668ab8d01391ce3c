"""The text of ``docs/columns.md``."""

from __future__ import annotations

from typing import NamedTuple

from pulsar_spark.spark.rows.schema import DEFAULT_METADATA_COLUMNS, METADATA_COLUMNS
from pulsar_spark.spark.rows.write import written_types


class ColumnText(NamedTuple):
    """The page's text for one column, except its types.

    Attributes:
        read: meaning of a value that the source reads; empty if only the sink has the column.
        null_read: meaning of a null that the source reads.
        written: what the sink does with a value; empty if only the source has the column.
        null_written: meaning of a null that is written.
    """

    read: str = ""
    null_read: str = ""
    written: str = ""
    null_written: str = ""


_NEVER = "never null"

COLUMN_TEXTS = {
    "__key": ColumnText(
        read="The message's key. If it was sent in base64, it is decoded.",
        null_read="no key",
        written="The message's key, which decides the partition. A key that is not UTF-8 is sent in base64, "
        "with a mark. With the option `keyBytes` every key is.",
        null_written="no key",
    ),
    "__topic": ColumnText(
        read="The topic's full name, `persistent://tenant/namespace/topic`, with `-partition-N` if it is "
        "partitioned.",
        null_read=_NEVER,
        written="The topic of the row, as a short or a full name. The option `topic` takes precedence. "
        "Without it, rows that are written as they were read go back into their own topic.",
        null_written="an error",
    ),
    "__messageId": ColumnText(
        read="The message's id, as Java's `MessageId.toByteArray()` gives it.",
        null_read=_NEVER,
    ),
    "__publishTime": ColumnText(
        read="When the producer sent the message, by its own clock.", null_read=_NEVER
    ),
    "__eventTime": ColumnText(
        read="The message's event time.",
        null_read="no event time",
        written="The message's event time. A bigint is in milliseconds since 1970. Microseconds are cut off. "
        "0 is no event time.",
        null_written="no event time",
    ),
    "__messageProperties": ColumnText(
        read="The message's properties. An empty map: no properties. Names may repeat.",
        null_read=_NEVER,
        written="The message's properties. A property whose value is null is left out.",
        null_written="no properties",
    ),
    "__partition": ColumnText(
        read="The number of the partition, from 0.",
        null_read="the topic has no partitions",
        written="The partition to write to, from 0, whatever the key says.",
        null_written="the key or the routing mode decides",
    ),
    "__offset": ColumnText(
        read="The message's position, `ledger:entry[:batch]`, as `startingOffsets` takes it.",
        null_read=_NEVER,
    ),
    "__orderingKey": ColumnText(
        read="The ordering key, which Key_Shared subscriptions use in place of the key.",
        null_read="no ordering key",
        written="The ordering key.",
        null_written="no ordering key",
    ),
    "__sequenceId": ColumnText(
        read="The sequence id that the producer gave the message.",
        null_read=_NEVER,
        written="The message's sequence id. Rows with this column are delivered at least once: retried rows "
        "may be duplicated.",
        null_written="the producer numbers the message",
    ),
    "__producerName": ColumnText(read="The name of the producer.", null_read=_NEVER),
    "__schemaVersion": ColumnText(
        read="The version of the topic's schema that the message was written with, in the broker's form.",
        null_read="written without a schema",
    ),
    "__schemaId": ColumnText(
        read="The schema's id in [a registry outside of Pulsar](schemas.md#a-registry-outside-of-pulsar), as "
        "the producer sent it.",
        null_read="no such registry",
    ),
    "__replicatedFrom": ColumnText(
        read="The cluster that the message was replicated from.", null_read="not replicated"
    ),
    "__isNull": ColumnText(read="Whether the message has no value (a tombstone).", null_read=_NEVER),
    "__index": ColumnText(
        read="The message's number in the topic partition, from 0, if the broker [counts "
        "messages](operations.md#what-is-exact).",
        null_read="the broker does not count",
    ),
    "__brokerPublishTime": ColumnText(
        read="When the broker took the message, by its clock, if it "
        "[adds times](operations.md#what-is-exact).",
        null_read="the broker adds none",
    ),
    "__corruptValue": ColumnText(
        read="With `mode=PERMISSIVE`: the bytes of a value that [could not be "
        "read](schemas.md#messages-that-cannot-be-read).",
        null_read="the row could be read",
    ),
    "__deliverAt": ColumnText(
        written="When consumers of shared subscriptions get the message, which is then sent outside batches.",
        null_written="delivered at once",
    ),
    "__deliverAfter": ColumnText(
        written="The same as a delay in milliseconds from now. A row may have only one of the two.",
        null_written="delivered at once",
    ),
}

_HEAD = """\
# Columns

A row is a message. Its value is one column or several. Columns whose names begin with `__` are its metadata.
A timestamp is an instant; Spark shows it in the session's time zone. Those of the metadata are precise to
1 ms. In string columns, each byte sequence that is not valid UTF-8 becomes U+FFFD.

## Value

Without `valueFormat`:

| | column | null means |
|---|---|---|
| read | `value`, binary: the bytes of the payload | a message without a value (a tombstone) |
| written | the one binary or string column that has no `__`, whatever its name | a tombstone |

With `valueFormat`, the topic's schema gives the columns that are [read](schemas.md#types) and takes those
that are [written](schemas.md#write).

## Metadata columns that are read

The option `metadataColumns` chooses these columns and their order."""


def docs_page() -> str:
    """The text of ``docs/columns.md``."""
    on_request = [name for name in METADATA_COLUMNS if name not in DEFAULT_METADATA_COLUMNS]
    lines = [
        f"{_HEAD} The default is the first {len(DEFAULT_METADATA_COLUMNS)}. Fewer columns are faster.",
        "",
        "| column | type | meaning | null means |",
        "|---|---|---|---|",
    ]
    for name in (*DEFAULT_METADATA_COLUMNS, *on_request):
        text = COLUMN_TEXTS[name]
        kind = METADATA_COLUMNS[name].type.simpleString()
        lines.append(f"| `{name}` | `{kind}` | {text.read} | {text.null_read} |")
    lines += [
        "",
        "## Metadata columns that are written",
        "",
        "All are optional, except `__topic` if the option `topic` is not set. Columns of the source that the "
        "sink cannot write are left out, with one WARNING. So rows can be written as they were read.",
        "",
        "| column | type | meaning | null means |",
        "|---|---|---|---|",
    ]
    for name, kinds in written_types().items():
        text = COLUMN_TEXTS[name]
        types = " or ".join(f"`{kind}`" for kind in kinds)
        lines.append(f"| `{name}` | {types} | {text.written} | {text.null_written} |")
    lines += [
        "",
        "<!-- Generated by `python -m docs.pages columns > docs/columns.md`; a test compares them. -->",
    ]
    return "\n".join(lines) + "\n"
