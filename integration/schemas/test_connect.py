"""Kafka Connect: random values of all its types, by its own converter, are read as Connect has them."""

from __future__ import annotations

import base64
import datetime
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from integration.helpers.connect_peer import DEFINITION, PROPERTIES, connect_rows
from integration.helpers.payloads import register, write_payloads

COUNT = 1_000
EPOCH = datetime.datetime(1970, 1, 1)


def shown(value):
    """A value of Spark's in a form that equals ConnectPeer's, whatever NaN and numbers are."""
    if isinstance(value, bool | None):
        return value
    if isinstance(value, int | float | Decimal):
        return "NaN" if isinstance(value, float) and math.isnan(value) else float(value).hex()
    return value


def number(text, kind=float):
    """A number of ConnectPeer's; decimals are compared with all their digits."""
    return None if text is None else shown(kind(text))


def single(text):
    """A float, as a double of the same value."""
    return None if text is None else shown(struct.unpack("<f", struct.pack("<f", float(text)))[0])


def decimal(value):
    return None if value is None else f"{Decimal(value):.4f}"


def inner(fields):
    return fields and {"price": decimal(fields["price"]), "names": fields["names"]}


FORMS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), lambda text: text and int(text)),
    "float32": single,
    "float64": number,
    "bytes": lambda text: None if text is None else base64.b64decode(text),
    "decimal": decimal,
    "wide": decimal,
    "date": lambda days: None if days is None else EPOCH.date() + datetime.timedelta(days=days),
    "timestamp": lambda millis: None if millis is None else EPOCH + datetime.timedelta(milliseconds=millis),
    "array": lambda items: items and list(map(decimal, items)),
    "map": lambda pairs: None if pairs is None else {key: each and int(each) for key, each in pairs},
    "pairs": lambda pairs: None if pairs is None else {int(key): inner(value) for key, value in pairs},
    "struct": inner,
}


def expected(fields):
    return {name: FORMS.get(name, lambda value: value)(value) for name, value in fields.items()}


def found(row):
    """A row of Spark's in the same form."""
    values = row.asDict(recursive=True)
    values |= {name: shown(values[name]) for name in ("float32", "float64")}
    values |= {name: decimal(values[name]) for name in ("decimal", "wide")}
    values["bytes"] = values["bytes"] and bytes(values["bytes"]) if values["bytes"] is not None else None
    values["array"] = values["array"] and list(map(decimal, values["array"]))
    pairs = values["pairs"]
    values["pairs"] = None if pairs is None else {each["key"]: inner(each["value"]) for each in pairs}
    values["struct"] = inner(values["struct"])
    return values


def read(pulsar_in_spark, topic):
    pulsar_in_spark.spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = pulsar_in_spark.read(topic, valueFormat="columns", metadataColumns="")
    kinds = dict(rows.dtypes)
    assert (kinds["decimal"], kinds["wide"], kinds["time"]) == ("decimal(38,4)", "string", "int")
    return rows.withColumn("timestamp", rows["timestamp"].cast("timestamp_ntz")).collect()


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_the_converters_json(pulsar_in_spark, cluster, admin, topic, decimals):
    rows = connect_rows(len(decimals), COUNT, decimals)
    version = register(admin, topic, "JSON", DEFINITION, PROPERTIES)
    write_payloads(cluster.service_url, topic, version, [(row.payload, None) for row in rows])
    for ours, theirs in zip(read(pulsar_in_spark, topic), rows, strict=True):
        assert found(ours) == expected(theirs.fields)
