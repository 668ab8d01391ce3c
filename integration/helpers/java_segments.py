"""The Java client of Pulsar 5 on scalable topics: what it writes and reads, and where it puts keys."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from integration.helpers.java_peer import run_java
from integration.helpers.versions import NEWEST_LINE
from pulsar_spark.ids import TopicName
from pulsar_spark_broker.jars import VERSION_VARIABLE

_SOURCE = Path(__file__).parents[1] / "java" / "SegmentsPeer.java"

# A message: its key, or None, and its value.
KeyedValue = tuple[str | None, bytes]

# An active segment: its number, first and last hash, and the first hashes of its buckets after the first one.
PlacedSegment = tuple[int, int, int, Sequence[int]]

# Consumers of the client; only the stream consumer keeps the order of a key over a change of segments.
KINDS = ("queue", "stream", "checkpoint")


def produce_in_java_5(
    service_url: str, topic: TopicName, messages: Iterable[KeyedValue], *, batching: bool = True
) -> None:
    """Write messages to a scalable topic."""
    lines = "".join(f"{_encoded(key)} {_text(value)}\n" for key, value in messages)
    _run(["produce", service_url, str(topic), str(batching).lower()], lines)


def consume_in_java_5(
    service_url: str, topic: TopicName, kind: str, *, silence: int = 10
) -> list[KeyedValue]:
    """Read a scalable topic from its earliest message on, until none comes for some seconds.

    ``kind`` is one of KINDS.
    """
    found = _run(["consume", service_url, str(topic), kind, str(silence)])
    pairs = (line.split(" ", 1) for line in found.splitlines())
    return [
        (None if key == "-" else base64.b64decode(key).decode(), base64.b64decode(value))
        for key, value in pairs
    ]


def places_in_java_5(
    keys: Sequence[str], layouts: Sequence[Sequence[PlacedSegment]]
) -> npt.NDArray[np.int64]:
    """The number of the segment and of its entry bucket for each key in each layout.

    A layout is its active segments. The result has an axis for keys, layouts and the two numbers.
    """
    arguments = [";".join(map(_segment, layout)) for layout in layouts]
    found = _run(["place", *arguments], "".join(f"{_encoded(key)}\n" for key in keys))
    return np.fromstring(found, np.int64, sep=" ").reshape(len(keys), len(layouts), 2)


def _segment(segment: PlacedSegment) -> str:
    *numbers, splits = segment
    return ":".join(map(str, numbers)) + ":" + ",".join(map(str, splits))


def _encoded(key: str | None) -> str:
    return "-" if key is None else _text(key.encode())


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _run(arguments: Sequence[str], lines: str = "") -> str:
    with patch.dict(os.environ, {VERSION_VARIABLE: NEWEST_LINE}):
        return run_java(_SOURCE, arguments, lines)
