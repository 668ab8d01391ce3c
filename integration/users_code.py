"""What users write and name in options, for tests: Spark's Python workers import it from here."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from pulsar_spark import ProducerInterceptor
from pulsar_spark.spark.written import Figures
from pulsar_spark.wire.columns import MessageColumns


def by_last_digit(keys: pa.BinaryArray, partitions: int) -> list[int]:
    """A `messageRouter`: keys end with a digit; rows without a key go to the last partition."""
    return [partitions - 1 if key is None else int(key[-1:]) % partitions for key in keys.to_pylist()]


def notes_of(topic: str) -> Path:
    """Where `note_figures` notes what is written to `topic`."""
    return Path(tempfile.gettempdir()) / f"{topic.rpartition('/')[2]}.figures"


def note_figures(batch: int | None, figures: Sequence[Figures]) -> None:
    """An `onBatchWritten`: a line of JSON for each batch."""
    lines = [
        (each.topic, each.messages, each.bytes, str(each.first_id), str(each.last_id)) for each in figures
    ]
    with notes_of(lines[0][0].partition("-partition-")[0]).open("a") as notes:
        notes.write(json.dumps([batch, lines]) + "\n")


class Shout(ProducerInterceptor):
    """An interceptor."""

    def before_send(self, columns: MessageColumns) -> MessageColumns:
        values = [value.upper() + b"!" for value in columns.value.to_pylist()]
        return replace(columns, value=pa.array(values, pa.binary()))
