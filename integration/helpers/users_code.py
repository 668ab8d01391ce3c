"""What users write and name in options, for tests: Spark's Python workers import it from here."""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pulsar_spark import ProducerInterceptor
from pulsar_spark.client import EncryptionKeyInfo
from pulsar_spark.errors import CryptoError
from pulsar_spark.spark.sink.report import TopicPartitionMetrics
from pulsar_spark.wire.columns.message_columns import MessageColumns


def by_last_digit(keys: pa.BinaryArray, partitions: int) -> list[int]:
    """A `messageRouter`: keys end with a digit; rows without a key go to the last partition."""
    return [partitions - 1 if key is None else int(key[-1:]) % partitions for key in keys.to_pylist()]


def notes_of(topic: str) -> Path:
    """Where `note_figures` notes what is written to `topic`."""
    return Path(tempfile.gettempdir()) / f"{topic.rpartition('/')[2]}.figures"


def note_figures(batch: int | None, figures: Sequence[TopicPartitionMetrics]) -> None:
    """An `onBatchWritten`: a line of JSON for each batch."""
    lines = [
        (each.topic, each.messages, each.bytes, str(each.first_id), str(each.last_id)) for each in figures
    ]
    with notes_of(_topic_of(lines[0][0])).open("a") as notes:
        notes.write(json.dumps([batch, lines]) + "\n")


def _topic_of(name: str) -> str:
    """The topic of a partition or a segment."""
    return name.rpartition("/")[0] if name.startswith("segment:") else name.partition("-partition-")[0]


def note_duplicates(batch: int | None, figures: Sequence[TopicPartitionMetrics]) -> None:
    """An `onBatchWritten`: a line for each batch with rows, how many messages may be there twice."""
    if not figures:
        return
    with notes_of(_topic_of(figures[0].topic)).open("a") as notes:
        notes.write(f"{sum(each.possible_duplicates for each in figures)}\n")


class Shout(ProducerInterceptor):
    """An interceptor."""

    def before_send(self, columns: MessageColumns) -> MessageColumns:
        values = [value.upper() + b"!" for value in columns.value.to_pylist()]
        return replace(columns, value=pa.array(values, pa.binary()))


class Blames(ProducerInterceptor):
    """An interceptor that fails, with a value in its error."""

    def before_send(self, columns: MessageColumns) -> MessageColumns:
        raise ValueError(f"cannot mask {columns.value[0].as_py().decode()}")


class ExemptObjects(ProducerInterceptor):
    """An interceptor: each value becomes the number of objects that the worker never looks at for garbage."""

    def before_send(self, columns: MessageColumns) -> MessageColumns:
        return replace(columns, value=pa.array([b"%d" % gc.get_freeze_count()] * len(columns), pa.binary()))


class Keys:
    """A `cryptoKeyReader` that knows one key, `own`."""

    def __init__(self) -> None:
        self._key = ec.derive_private_key(7, ec.SECP256R1())

    def get_public_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        self._check(name)
        pem = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return EncryptionKeyInfo(pem, {"version": "1"})

    def get_private_key(self, name: str, metadata: Mapping[str, str]) -> EncryptionKeyInfo:
        self._check(name)
        assert metadata == {"version": "1"}
        return EncryptionKeyInfo(self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def _check(self, name: str) -> None:
        if name != "own":
            raise CryptoError(f"the vault has no key {name!r}")
