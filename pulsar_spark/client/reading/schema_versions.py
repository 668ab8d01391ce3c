"""The schema version that a message was written with; an entry has one for all its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.client.reading.decoded_messages import DecodedMessages
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.wire_values import from_wire_version

NO_VERSION = "the message has no schema version: it was written by a producer without a schema"
EXTERNAL = "the message's schema is not stored in Pulsar, but in an external schema registry"


class SchemaVersions(NamedTuple):
    """The schema versions of m messages.

    Attributes:
        distinct: the numbers of versions; instead of one that is none, words that say why.
        of_row: which of ``distinct`` each message has, int64[m]; None where all have the first.
    """

    distinct: Sequence[int | str]
    of_row: Ints | None


def schema_versions(messages: DecodedMessages) -> SchemaVersions:
    """Read the versions of at least one message; no work is done for single messages of a batch."""
    parts = [part for run in messages.runs for part in run.entries]
    found = pa.concat_arrays([part.texts(EntryField.SCHEMA_VERSION) for part in parts]).dictionary_encode()
    distinct = [_version(text) for text in found.dictionary.to_pylist()]
    of_entry = found.indices.fill_null(len(distinct)).to_numpy().astype(np.int64)
    if found.null_count:
        distinct.append(NO_VERSION)
    has_id = [part.texts(EntryField.SCHEMA_ID).is_valid() for part in parts]
    if any(flags.true_count for flags in has_id):
        of_entry[pa.concat_arrays(has_id).to_numpy(zero_copy_only=False)] = len(distinct)
        distinct.append(EXTERNAL)
    if len(distinct) == 1:
        return SchemaVersions(distinct, None)
    return SchemaVersions(
        distinct, np.repeat(of_entry, np.concatenate([run.counts for run in messages.runs]))
    )


def _version(text: bytes) -> int | str:
    if not text:
        return NO_VERSION
    version = from_wire_version(text)
    return f"the message's schema version is not a number: {text[:16].hex()}" if version is None else version
