"""OriginReader: finds the entries that a query has written to a topic partition, by their origins.

An origin is a signed metadata field with micro-batch, task and run (:mod:`pulsar_spark.wire.entry.origin`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pulsar_spark.arrow.arrays import Ints
from pulsar_spark.ids import TopicName
from pulsar_spark.protocol.replay.run_search import OwnEntry
from pulsar_spark.wire.entry.entries import Entries
from pulsar_spark.wire.entry.entry_fields import EntryField
from pulsar_spark.wire.entry.origin import Origin, decode_origin, has_begin, metadata_before


class OriginReader:
    """Decodes and verifies the origins of entries."""

    def __init__(self, secret: bytes, topic: TopicName) -> None:
        self._secret = secret
        self._topic = str(topic)

    def own(self, entries: Entries) -> list[OwnEntry]:
        """Returns the entries of the query; all entries with the same origin become one item."""
        counts = np.maximum(entries.messages, 1)
        last = entries.last_sequence_id
        for row in np.flatnonzero(entries.chunked).tolist():
            chunk = entries.metadata(row)
            counts[row] = chunk.chunk_id + 1 == chunk.num_chunks_from_msg
        origins, numbers = self.origins(entries)
        names = entries.texts(EntryField.PRODUCER_NAME)
        found = []
        for number, origin in enumerate(origins):
            rows = np.flatnonzero(numbers == number).tolist()
            if origin is None or not rows:
                continue
            found.append(
                OwnEntry(
                    entries.id_of(rows[0]),
                    origin,
                    (names[rows[0]].as_py() or b"").decode(errors="replace"),
                    int(last[rows].max()),
                    bool(entries.chunked[rows].any()),
                    entries.id_of(rows[-1]),
                    int(counts[rows].sum()),
                    is_open=not counts[rows[-1]],
                )
            )
        return found

    def origins(self, entries: Entries) -> tuple[list[Origin | None], Ints]:
        """Returns the distinct origins, and for each entry the index of its origin, int64[n].

        The origin is None if an entry has no origin field, or the query has not signed the field.
        """
        fields, numbers = distinct(entries, EntryField.ORIGIN)
        names_begin = np.array([field is None or has_begin(field) for field in fields], np.bool_)
        origins = [
            decode_origin(field, self._secret, self._topic) if field is not None and is_alike else None
            for field, is_alike in zip(fields, names_begin.tolist(), strict=True)
        ]
        for row in np.flatnonzero(~names_begin[numbers]).tolist():
            origins.append(self._origin_of_first(entries, row, fields[numbers[row]]))
            numbers[row] = len(origins) - 1
        return origins, numbers

    def _origin_of_first(self, entries: Entries, row: int, field: bytes) -> Origin | None:
        """Returns the origin; its signature covers the payload and, except for chunks, the metadata."""
        entry = entries.one(row)
        metadata = b"" if entries.chunked[row] else metadata_before(field, entry.metadata)
        if metadata is None:
            return None
        return decode_origin(field, self._secret, self._topic, entry.payload, metadata)


def distinct(entries: Entries, field: EntryField) -> tuple[list[Any], Ints]:
    """Returns the distinct values of a field (None: not set), and each entry's index among them, int64[n]."""
    encoded = entries.texts(field).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
