"""The Java client as a peer: where it sends keys, and what it reads of what we wrote.

It is the client that the broker's own jars hold; java/PulsarPeer.java is compiled once in a process.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from integration.broker.waiting import HANG
from integration.helpers.peer import Record
from pulsar_spark_broker.jars import broker_jars, kept_classes
from pulsar_spark_broker.java import java

_SOURCE = Path(__file__).parents[1] / "java" / "PulsarPeer.java"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaMessage:
    """One message, as the Java client shows it.

    Attributes:
        topic: the partition's full name.
        value: None is a null value.
        key: None is no key.
        key_is_base64: whether it was base64 text on the wire.
        event_time: in ms since 1970; 0 when there is none.
        publish_time: in ms since 1970.
        deliver_at: in ms since 1970, or None.
        batched: whether it is in a batch.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    key_is_base64: bool
    ordering_key: bytes | None
    properties: dict[str, str]
    event_time: int
    publish_time: int
    deliver_at: int | None
    sequence_id: int
    batched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaEntries:
    """Messages for one topic, in groups.

    Attributes:
        batching: whether each group is one batch; else each message is an entry.
        chunk: maximum bytes of a chunk; 0: no chunks.
    """

    topic: str
    groups: Sequence[Sequence[Record]]
    codec: str = "NONE"
    batching: bool = False
    chunk: int = 0
    names: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """The task as the Java program reads it."""
        return asdict(self) | {"groups": [list(map(_as_json, group)) for group in self.groups]}


def _as_json(record: Record) -> dict[str, Any]:
    return asdict(record) | {"value": _text(record.value), "properties": dict(record.properties)}


def _text(part: bytes | None) -> str | None:
    return None if part is None else base64.b64encode(part).decode()


def read_in_java(service_url: str, topics: Sequence[str], keys: Path | None = None) -> list[JavaMessage]:
    """Read each topic, none of them partitioned, from its first message to the current last.

    `keys` is a folder as `integration.helpers.crypto_keys` makes it, where messages are encrypted.
    """
    messages = []
    folder = [] if keys is None else ["--keys", str(keys)]
    for line in _run([*folder, "read", service_url, *topics]).splitlines():
        fields = json.loads(line)
        for name in ("value", "key", "ordering_key"):
            fields[name] = None if fields[name] is None else base64.b64decode(fields[name])
        messages.append(JavaMessage(**fields))
    return messages


def partitions_in_java(keys: Iterable[bytes], partitions: int) -> list[tuple[int, int]]:
    """The partition of each key by JavaStringHash and by Murmur3_32Hash."""
    lines = "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)
    found = (line.split() for line in _run(["partitions", str(partitions)], lines).splitlines())
    return [(int(string), int(murmur)) for string, murmur in found]


def produce_in_java(
    service_url: str,
    topic: str,
    rows: Iterable[tuple[bytes, bytes | None, bytes | None]],
    *,
    key_based: bool = False,
) -> None:
    """Write rows of value, key as bytes and ordering key in a batch, with `key_based` in one for each key."""
    fields = [
        {"value": _text(value), "key_bytes": _text(key), "ordering_key": _text(ordering_key)}
        | {"properties": {}, "event_time": 0}
        for value, key, ordering_key in rows
    ]
    task = JavaEntries(topic=topic, groups=(), batching=True).as_json()
    line = json.dumps(task | {"key_based": key_based, "groups": [fields]})
    _run(["write", service_url], f"{line}\n")


def write_in_java(service_url: str, tasks: Iterable[JavaEntries], keys: Path | None = None) -> None:
    """Write the entries of each task; ``keys`` is as in :func:`read_in_java`."""
    lines = "".join(f"{json.dumps(task.as_json())}\n" for task in tasks)
    folder = [] if keys is None else ["--keys", str(keys)]
    _run([*folder, "write", service_url], lines)


def run_java(source: Path, arguments: Sequence[str], lines: str = "") -> str:
    """Run a program of one file with the broker's jars; give it `lines`, return what it wrote."""
    command = java_command(source, arguments)
    done = subprocess.run(
        command, input=lines, capture_output=True, encoding="utf-8", check=False, timeout=2 * HANG
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def java_command(source: Path, arguments: Sequence[str]) -> list[str]:
    """The command line that runs a program of one file with the broker's jars."""
    return [*_java(_compiled(source)), source.stem, *arguments]


@cache
def _compiled(source: Path) -> Path:
    """The folder of a program's classes, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="pulsar_spark_java_"))
    atexit.register(shutil.rmtree, folder)
    compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-d", str(folder), str(source)]
    subprocess.run([*_java(), *compiler], check=True, timeout=2 * HANG)
    return folder


def _java(*folders: Path) -> list[str]:
    program, jars = java(), broker_jars()
    path = os.pathsep.join(map(str, (*jars, *folders)))
    # C1 alone: most live for a second or two.
    return [program, *kept_classes(program, jars), "-XX:TieredStopAtLevel=1", "-cp", path]


def _run(arguments: Sequence[str], lines: str = "") -> str:
    return run_java(_SOURCE, arguments, lines)
