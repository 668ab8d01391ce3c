"""The Java client as a peer for values with a schema: it writes what Python says, and says what it reads.

It is the client that the broker's own jars hold, with the program java/TypedPeer.java. A schema is a dict, as
that file says. A value is what Spark gives for it in Python: dicts are records and maps.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from integration.helpers.java_peer import run_java

_SOURCE = Path(__file__).parents[1] / "java" / "TypedPeer.java"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

JavaSchema = Mapping[str, Any]

AUTO_CONSUME: JavaSchema = {"type": "AUTO_CONSUME"}


@dataclass(frozen=True, slots=True)
class JavaValues:
    """Values for one topic, in order; None is a tombstone.

    Attributes:
        schema: of the producer, which is opened once for each topic and schema.
        values: Python values, or what :func:`as_json` makes of them.
        batching: whether all of them are one batch.
    """

    topic: str
    schema: JavaSchema
    values: Sequence[object]
    batching: bool = False


def write_values(service_url: str, tasks: Iterable[JavaValues]) -> None:
    """Write the values of each task, one task after the other."""
    lines = [
        {
            "topic": task.topic,
            "schema": task.schema,
            "batching": task.batching,
            "values": [as_json(value) for value in task.values],
        }
        for task in tasks
    ]
    run_java(_SOURCE, ["write", service_url], _lines(lines))


def read_values(
    service_url: str, topics: Mapping[str, JavaSchema]
) -> dict[str, list[tuple[int | None, Any]]]:
    """Read topics to their ends, each by a schema; versions, and values as :func:`as_json` has them."""
    tasks = [{"topic": topic, "schema": schema} for topic, schema in topics.items()]
    found: dict[str, list[tuple[int | None, Any]]] = {topic: [] for topic in topics}
    for line in run_java(_SOURCE, ["read", service_url], _lines(tasks)).splitlines():
        message = json.loads(line)
        found[message["topic"]].append((message["version"], message["value"]))
    return found


def as_json(value: object) -> Any:
    """A value as JSON between Python and the Java program.

    Bytes are base64 text, times ns since 1970 (those without a zone as if they were in UTC), dates days since
    1970, decimals text, and floats that no JSON number says their names in Java.
    """
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)) - _EPOCH
        return since // datetime.timedelta(microseconds=1) * 1000
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _lines(tasks: Iterable[object]) -> str:
    return "".join(json.dumps(task) + "\n" for task in tasks)
