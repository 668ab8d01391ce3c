"""Random values of Kafka Connect, as its own JsonConverter writes them, and their schema for Pulsar.

java/ConnectPeer.java makes the values. Pulsar's adaptor, and Confluent's AvroData and AvroConverter below it,
are not on Maven Central. So the definition is written here in AvroData's form, and AVRO by fastavro.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from integration.broker.waiting import HANG
from integration.helpers.local_spark import ROOT
from pulsar_spark_broker.jars import cache_folder, jars_of
from pulsar_spark_broker.java import java

_SOURCE = Path(__file__).parents[1] / "java" / "ConnectPeer.java"
_SUMS = ROOT / "conf" / "kafka" / "connect.sha256"


class ConnectRow(NamedTuple):
    """A payload, and its fields as java/ConnectPeer.java says."""

    payload: bytes
    fields: dict[str, Any]


def connect_rows(seed: int, count: int, decimal_format: str) -> list[ConnectRow]:
    """Random rows, the same for the same arguments; ``decimal_format``: BASE64 or NUMERIC."""
    path = os.pathsep.join(map(str, jars_of(_SUMS, cache_folder())))
    command = [java(), "-cp", path, str(_SOURCE), str(seed), str(count), decimal_format]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=2 * HANG)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return [ConnectRow(base64.b64decode(line["payload"]), line["row"]) for line in lines]


def _logical(kind: str, name: str, logical: str, **more: Any) -> dict[str, Any]:
    full = f"org.apache.kafka.connect.data.{name}"
    return {"type": kind, "connect.version": 1, "connect.name": full, "logicalType": logical, **more}


def _decimal(precision: int) -> dict[str, Any]:
    parameters = {"scale": "4"} | ({"connect.decimal.precision": str(precision)} if precision < 64 else {})
    sizes = {"scale": 4, "precision": precision}
    return _logical("bytes", "Decimal", "decimal", **sizes, **{"connect.parameters": parameters})


def _optional(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _entries(value: object) -> dict[str, Any]:
    fields = [{"name": "key", "type": "int"}, {"name": "value", "type": value}]
    entry = {"type": "record", "name": "MapEntry", "namespace": "io.confluent.connect.avro", "fields": fields}
    return {"type": "array", "items": {**entry, "connect.internal.type": "MapEntry"}}


_INNER = {
    "type": "record",
    "name": "ConnectDefault2",
    "fields": [
        _optional("price", _decimal(64)),
        _optional("names", {"type": "array", "items": ["null", "string"]}),
    ],
}
# The definition of ConnectPeer's rows. ``decimal`` has a precision in its parameters, other decimals 64.
DEFINITION = {
    "type": "record",
    "name": "ConnectDefault",
    "namespace": "io.confluent.connect.avro",
    "fields": [
        {"name": "int8", "type": {"type": "int", "connect.type": "int8"}},
        _optional("int16", {"type": "int", "connect.type": "int16"}),
        _optional("int32", "int"),
        {"name": "int64", "type": "long"},
        _optional("float32", "float"),
        {"name": "float64", "type": "double"},
        _optional("boolean", "boolean"),
        _optional("string", "string"),
        _optional("bytes", "bytes"),
        _optional("decimal", _decimal(38)),
        _optional("wide", _decimal(64)),
        _optional("date", _logical("int", "Date", "date")),
        _optional("time", _logical("int", "Time", "time-millis")),
        _optional("timestamp", _logical("long", "Timestamp", "timestamp-millis")),
        _optional("array", {"type": "array", "items": ["null", _decimal(64)]}),
        _optional("map", {"type": "map", "values": ["null", "long"]}),
        _optional("pairs", _entries(["null", _INNER])),
        _optional("struct", "ConnectDefault2"),
    ],
}
# Properties of the adaptor's schemas of JSON.
PROPERTIES = {"__AVRO_READ_OFFSET__": "0"}
